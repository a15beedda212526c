"""What a built-in filter looked at when it refused a node, in words. Pure; only `explain` reads it.

Each detail is worked out from the same objects as the filter's answer, but it decides nothing.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from policies.engine.filters.node_affinity import NOT_ENFORCED, MatchNodeSelector
from policies.engine.objects.columns import label
from policies.engine.objects.matching import required_terms
from policies.engine.objects.node import NodeInfo, Path
from policies.engine.objects.pod import Port
from policies.engine.objects.resources import CPU, EPHEMERAL, MEMORY, PODS
from policies.engine.objects.spreading import (
    DO_NOT_SCHEDULE,
    Constraint,
    SpreadDefaults,
    constraints_of,
    count_matching,
    counts_on,
    has_all_keys,
)
from policies.engine.objects.tolerations import NO_EXECUTE, NO_SCHEDULE, tolerates
from policies.engine.rule import Cycle
from policies.engine.selectors import (
    NodeSelectorTerm,
    Requirement,
    SelectorError,
    is_empty_term,
    is_valid_term,
    matches,
    matches_field,
)

_LACKING = "Insufficient "
_PLAIN_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - compared, not listened on
_BYTES = (MEMORY, EPHEMERAL)
_UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


class Detail(NamedTuple):
    """What a rule saw and wanted, and what would help. `says` and `remedy` are parts of a sentence."""

    says: str = ""
    wanted: str = ""
    remedy: str = ""
    seen: Mapping[str, Any] = {}


class Refusal(NamedTuple):
    """A refused node, with all that may say why."""

    cycle: Cycle
    row: int
    reason: str
    # The filter itself.
    made: object
    # The rule's.
    arguments: Mapping[str, Any]

    @property
    def info(self) -> NodeInfo:
        """The node."""
        return self.cycle.table.infos[self.row]


def detail_of(refusal: Refusal) -> Detail:
    """Return what a built-in filter looked at. Where nothing more is known than its reason, what it wants."""
    made = type(refusal.made)
    known = _DETAILS.get(made.__name__)
    wanted = (made.__doc__ or "").strip().partition("\n")[0].rstrip(".")
    detail = known(refusal) if known else Detail()
    return detail._replace(says=detail.says or wanted, wanted=detail.wanted or wanted)


def amount(resource: str, number: int) -> str:
    """Write an amount as people do: 2,000m cpu, 1.5Gi memory."""
    if resource == CPU:
        return f"{number:,}m"
    for unit, size in _UNITS:
        if resource in _BYTES and abs(number) >= size:
            return f"{number / size:,.6g}{unit}"
    return f"{number:,}"


def _resources(refusal: Refusal) -> Detail:
    info, wanted = refusal.info, refusal.cycle.pod.wanted
    says, remedies, wants = [], [], []
    seen: dict[str, Any] = {}
    for reason in refusal.reason.split(", "):
        name = reason.removeprefix(_LACKING) if reason.startswith(_LACKING) else PODS
        needs = 1 if name == PODS else wanted.get(name)
        there = info.node.allocatable.get(name)
        free = there - (len(info.pods) if name == PODS else info.requested.get(name))
        seen |= {f"usage.allocatable.{name}": there, f"usage.free.{name}": free}
        wants.append(f"{amount(name, needs)} {name}")
        says.append(f"needs {wants[-1]}, {info.name} has {amount(name, free)} of {amount(name, there)} free")
        if needs > there:
            remedies.append(f"there is never that much {name} on this node")
        else:
            remedies.append(f"would fit if {amount(name, needs - free)} {name} were freed")
    return Detail(f"the Pod {', and '.join(says)}", ", ".join(wants), ", ".join(remedies), seen)


def _selector(refusal: Refusal) -> Detail:
    spec, labels, name = refusal.cycle.pod.spec, refusal.info.node.labels, refusal.info.name
    seen: dict[str, Any] = {}
    wants: list[str] = []
    whose, required, selector = "the Pod", required_terms(spec), spec.node_selector or {}
    if refusal.reason == NOT_ENFORCED.reason:
        added = msgspec.convert(refusal.arguments, MatchNodeSelector.Arguments).added_affinity
        whose, required, selector = "the rule", added.required if added else None, {}
    for key, value in sorted(selector.items()):
        if labels.get(key) != value:
            wants.append(f"{key}={value}")
            seen[_label(key)] = labels.get(key)
    if required is not None:
        failing = [_failing(term, refusal, seen) for term in required.node_selector_terms or ()]
        if all(failing):
            wants.append(" or ".join(failing) or "one of no terms, which no node has")
    has = [f"no {path}" if value is None else f"{path} = {value}" for path, value in seen.items()]
    wanted = " and ".join(wants)
    says = f"{whose} wants {wanted}" + (f", and the node has {' and '.join(has)}" if has else "")
    return Detail(says, wanted, f"would pass if {name} were labelled so, or if {whose} didn't ask for it", seen)


def _label(key: str) -> str:
    return spelled("node", ("metadata", "labels", key))


def _failing(term: NodeSelectorTerm, refusal: Refusal, seen: dict[str, Any]) -> str:
    """Return what a term of node affinity asks and the node hasn't; empty when it passes."""
    if is_empty_term(term):
        return "an empty term, which no node has"
    if not is_valid_term(term):
        return "a term that Kubernetes can't read"
    labels, name = refusal.info.node.labels, refusal.info.name
    missing = [each for each in term.match_expressions or () if not matches(each, labels)]
    for each in missing:
        seen[_label(each.key)] = labels.get(each.key)
    fields = [each for each in term.match_fields or () if not matches_field(each, name)]
    return " and ".join(_requirement(each) for each in [*missing, *fields])


def _requirement(requirement: Requirement) -> str:
    values = ", ".join(requirement.values or ())
    return f"{requirement.key} {requirement.operator}" + (f" ({values})" if values else "")


def _taints(refusal: Refusal) -> Detail:
    spec, info = refusal.cycle.pod.spec, refusal.info
    keeping_off = [taint for taint in info.node.parsed.spec.taints or () if taint.effect in {NO_SCHEDULE, NO_EXECUTE}]
    untolerated = [
        f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
        for taint in keeping_off
        if not tolerates(spec.tolerations, taint)
    ]
    listed = ", ".join(untolerated)
    return Detail(
        f"the node {info.name} has {_plural(untolerated, 'the taint', 'the taints')} {listed}, which the Pod doesn't tolerate",
        "a toleration of every taint with effect NoSchedule or NoExecute",
        f"would pass with a toleration of {listed}, or without it on the node",
        {"node.spec.taints": untolerated},
    )


def _ports(refusal: Refusal) -> Detail:
    taken: dict[str, str] = {}
    for wanted in refusal.cycle.pod.host_ports:
        for pod in refusal.info.pods:
            if any(_conflict(wanted, other) for other in pod.host_ports):
                taken[f"{wanted.protocol} {wanted.number}"] = f"{pod.namespace}/{pod.name}"
    holders = ", ".join(f"{port} is taken by {holder}" for port, holder in taken.items())
    return Detail(
        f"on {refusal.info.name} port {holders}",
        f"{', '.join(taken)} of the host",
        f"would pass without {', '.join(taken.values())} on the node",
        {"host ports": taken},
    )


def _conflict(wanted: Port, other: Port) -> bool:
    same = (wanted.protocol, wanted.number) == (other.protocol, other.number)
    return same and (wanted.ip == other.ip or _ANY_ADDRESS in {wanted.ip, other.ip})


def _cordoned(refusal: Refusal) -> Detail:
    return Detail(
        f"the node {refusal.info.name} is cordoned",
        "a node without spec.unschedulable",
        f"would pass after kubectl uncordon {refusal.info.name}",
        {"node.spec.unschedulable": True},
    )


def _host(refusal: Refusal) -> Detail:
    wanted = refusal.cycle.pod.spec.node_name
    return Detail(
        f"the Pod names {wanted}",
        f"the node {wanted}",
        f"the only node that passes is {wanted}",
        {"pod.spec.nodeName": wanted, "node.metadata.name": refusal.info.name},
    )


def _conditions(refusal: Refusal) -> Detail:
    found = {each.type: each.status for each in refusal.info.node.parsed.status.conditions or ()}
    listed = ", ".join(f"{kind} {status}" for kind, status in found.items())
    listed += ", and it is cordoned" if refusal.info.node.parsed.spec.unschedulable else ""
    return Detail(
        f"the conditions of {refusal.info.name} are {listed or 'none'}",
        remedy="would pass once these are otherwise",
        seen={f"condition {kind}": status for kind, status in found.items()},
    )


def _spread(refusal: Refusal) -> Detail:
    pod, table = refusal.cycle.pod, refusal.cycle.table
    defaults = msgspec.convert(refusal.arguments, SpreadDefaults)
    snapshot = refusal.cycle.snapshot
    try:
        constraints = constraints_of(pod=pod, snapshot=snapshot, defaults=defaults, action=DO_NOT_SCHEDULE)
    except SelectorError:
        return Detail(refusal.reason)
    labelled = has_all_keys(table, constraints)
    says, wants = [], []
    seen: dict[str, Any] = {}
    for constraint in constraints:
        value = refusal.info.node.labels.get(constraint.key)
        seen[_label(constraint.key)] = value
        wants.append(f"a skew of at most {constraint.max_skew} by {constraint.key}")
        if value is None:
            says.append(f"the node {refusal.info.name} has no label {constraint.key}")
            continue
        counts = _domains(refusal.cycle, constraint, labelled)
        fewest = 0 if len(counts) < constraint.min_domains else min(counts.values(), default=0)
        seen[f"matching Pods by {constraint.key}"] = counts
        if counts.get(value, 0) + int(constraint.selector.matches(pod.labels)) - fewest > constraint.max_skew:
            says.append(
                f"the domain {constraint.key}={value} has {counts.get(value, 0)} matching Pods, the emptiest domain {fewest}"
            )
    return Detail(", and ".join(says), ", ".join(wants), "would pass once other domains have more of these Pods", seen)


def _domains(cycle: Cycle, constraint: Constraint, labelled: "np.ndarray[Any, Any]") -> dict[str, int]:
    """Count the Pods that a constraint counts, by domain."""
    column = label(cycle.table, constraint.key)
    counting = labelled & counts_on(cycle.table, constraint, cycle.pod)
    counts = count_matching(cycle.table, constraint.selector, cycle.pod.namespace)
    found: dict[str, int] = {}
    for row in np.flatnonzero(counting).tolist():
        domain = str(column.values[column.codes[row]])
        found[domain] = found.get(domain, 0) + int(counts[row])
    return dict(sorted(found.items()))


def spelled(root: str, path: Path) -> str:
    """Write a path as in an expression: node.metadata.labels['example.com/kind']."""
    return root + "".join(f".{step}" if _PLAIN_STEP.fullmatch(step) else f"['{step}']" for step in path)


def _plural(items: list[str], one: str, many: str) -> str:
    return one if len(items) == 1 else many


_DETAILS: dict[str, Callable[[Refusal], Detail]] = {
    "CheckNodeCondition": _conditions,
    "CheckNodeDiskPressure": _conditions,
    "CheckNodeMemoryPressure": _conditions,
    "CheckNodePIDPressure": _conditions,
    "CheckNodeUnschedulable": _cordoned,
    "EvenPodsSpread": _spread,
    "MatchNodeSelector": _selector,
    "PodFitsHost": _host,
    "PodFitsHostPorts": _ports,
    "PodFitsResources": _resources,
    "PodToleratesNodeTaints": _taints,
}
