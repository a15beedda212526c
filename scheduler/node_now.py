"""The present state of a node: its use, what keeps Pods away, and which live rule sets name its labels."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from policies import publishing
from policies.engine.errors import ObjectError
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.resources import CPU, MEMORY
from policies.engine.ruleset import Rule, RuleSet
from scheduler.cluster.bind import is_name
from scheduler.cluster.client import ASK_TIMEOUT_SECONDS, Client
from scheduler.cluster.errors import APIError, APINotFoundError

_GIBIBYTE = 2**30
_MILLI = 1000
_TEXT = re.compile(r'"([^"]*)"')
# labels.KEY and labels.?KEY, labels['KEY'] and labels[?'KEY'], 'KEY' in …
_LABEL = re.compile(r"""labels\.\??(\w+)|labels\[\??["']([^"']+)["']|["']([^"']+)["']\s+in\b""")


class NodeNowError(Exception):
    """The node's state can't be determined; the message says why."""


class Use(msgspec.Struct, frozen=True):
    """The requests of a node's Pods for a resource; `percent` of its allocatable amount, None if that is zero."""

    name: str
    requested: str
    allocatable: str
    percent: int | None


class Label(msgspec.Struct, frozen=True):
    """A label, and the live rule sets that name its key."""

    key: str
    value: str
    rule_sets: list[str]


class NodeNow(msgspec.Struct, frozen=True, kw_only=True):
    """The node's state. `keeps_away` are sentences, the worst first."""

    pods: int
    keeps_away: list[str]
    uses: list[Use]
    labels: list[Label]


class _Pods(msgspec.Struct):
    items: list[dict[str, Any]] | None = None


def node_now(client: Client, name: str) -> NodeNow:
    """Return the present state of a node.

    Raises:
        NodeNowError: the node doesn't exist, or the API server can't be queried.
    """
    if not is_name(name):
        message = f"{name} is no node's name"
        raise NodeNowError(message)
    query = {"fieldSelector": f"spec.nodeName={name}"}
    try:
        node = msgspec.json.decode(client.get(path=f"/api/v1/nodes/{name}", timeout_seconds=ASK_TIMEOUT_SECONDS))
        body = client.get(path="/api/v1/pods", query=query, timeout_seconds=ASK_TIMEOUT_SECONDS)
        pods = msgspec.json.decode(body, type=_Pods).items or []
        info = NodeInfo(Node.from_json(node), [Pod.from_json(each) for each in pods])
    except APINotFoundError as error:
        message = f"The cluster has no node {name} now: it was removed, or never existed under this name."
        raise NodeNowError(message) from error
    except (APIError, msgspec.DecodeError, ObjectError) as error:
        message = f"The node can't be asked for: {error}"
        raise NodeNowError(message) from error
    live = [each for each in publishing.values_of(publishing.current_revision()).values() if isinstance(each, RuleSet)]
    return NodeNow(
        pods=len(info.pods),
        keeps_away=_keeps_away(node),
        uses=_uses(info.usage),
        labels=labels_named(info.node.labels, live),
    )


def labels_named(labels: Mapping[str, str], live: Iterable[RuleSet]) -> list[Label]:
    """Return labels, first those whose keys rules name: in an expression, or as an argument of a built-in. Pure."""
    found: dict[str, list[str]] = {key: [] for key in labels}
    for rule_set in live:
        rules = (*rule_set.spec.filters, *rule_set.spec.scores)
        for key in found.keys() & {name for rule in rules for name in _named(rule)}:
            found[key].append(rule_set.name)
    rows = [Label(key, value, sorted(found[key])) for key, value in labels.items()]
    return sorted(rows, key=lambda row: (not row.rule_sets, row.key))


def _named(rule: Rule) -> Iterator[str]:
    """Iterate over the strings in a rule that may be a label's key."""
    if not rule.expression:
        yield from _TEXT.findall(msgspec.json.encode(rule.arguments).decode())
    for match in _LABEL.finditer(rule.expression):
        yield next(name for name in match.groups() if name)


def _keeps_away(node: Mapping[str, Any]) -> list[str]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    ready: Mapping[str, str] = next(
        (each for each in status.get("conditions") or [] if each.get("type") == "Ready"), {}
    )
    said = []
    if ready.get("status") != "True":
        said.append(f"It isn't ready: {ready.get('message') or 'its kubelet has said nothing'}")
    if spec.get("unschedulable"):
        said.append("It is cordoned: nothing new is placed there")
    taints: Sequence[Mapping[str, str]] = spec.get("taints") or []
    said += [
        f"Taint {each.get('key')}{'=' + each['value'] if each.get('value') else ''}: {each.get('effect')}"
        for each in taints
    ]
    return said


def _uses(usage: Mapping[str, Mapping[str, int]]) -> list[Use]:
    allocatable, requested = usage["allocatable"], usage["requested"]
    names = sorted(allocatable, key=lambda name: (name not in (CPU, MEMORY, "pods"), name))
    shown = [name for name in names if allocatable[name] or requested.get(name)]
    return [
        Use(
            name,
            _amount(name, requested.get(name, 0)),
            _amount(name, allocatable[name]),
            requested.get(name, 0) * 100 // allocatable[name] if allocatable[name] else None,
        )
        for name in shown
    ]


def _amount(name: str, amount: int) -> str:
    if name == CPU:
        return f"{amount / _MILLI:g} cores"
    if name == MEMORY or name.startswith(("ephemeral-storage", "hugepages-")):
        return f"{amount / _GIBIBYTE:.1f} GiB"
    return f"{amount:,}"
