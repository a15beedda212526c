"""Previews: the results of a draft of a rule set for one Pod, node by node, beside the live version's; and a test made from them."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from django.conf import settings

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet, decide
from policies.engine.errors import DeadlineError, ObjectError, QuantityError
from policies.engine.explain import explain_node
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.placed import NOWHERE
from policies.engine.objects.pod import Pod
from policies.engine.objects.resources import CPU
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle, Scope
from policies.engine.ruleset import Assignment
from policies.manifests import not_a_pod
from policies.wording import counted
from scheduler.cluster.client import ASK_TIMEOUT_SECONDS, PENDING_SELECTOR, Client
from scheduler.cluster.errors import APIError
from scheduler.decisions.beside import Both, Judged, side_by_side
from scheduler.decisions.masking import MASKED, Found, Masks
from scheduler.decisions.reading import read_decision, recorded
from scheduler.decisions.time_limit import SECONDS, TimeLimit
from scheduler.scenario import Rules

# The most Pods on the page of waiting Pods.
_MOST_PENDING = 200
# The most nodes and Pods in a test.
MOST_NODES, MOST_PODS = 8, 50
_MOST_SAID, _MOST_NAMED = 6, 3
_NOW = re.compile(r"\bnow\b")
_NAMESPACE = re.compile(r"\bnamespaceObject\b")
_SELECTS_NAMESPACES = b'"namespaceSelector"'

NOT_IN_IT = "Only the rule set's own rules are asked: what the scheduler itself refuses isn't in it, unless the rule set says it, too"


class PreviewError(Exception):
    """The preview can't be computed; the message says why, and what to do."""


class Side(msgspec.Struct, frozen=True):
    """The results of one version of the rule set. `name` is the version in words."""

    name: str
    version: int
    judged: Judged


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a draft for a Pod, and those of the live version; None if no version is live.

    Attributes:
        pod: namespace/name.
        sentences: the findings, the most important first.
        both: the results by groups of nodes that both sides treat alike.
        test: as in a document: this Pod, a few of the nodes, and the draft's results for them; empty when time was up.
        notes: what the test omits, in sentences.
        why: the result of each rule of the draft for the requested node.
    """

    pod: str
    draft: Side
    live: Side | None
    both: list[Both]
    sentences: list[str]
    test: Mapping[str, Any]
    notes: list[str]
    why: list[str]


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Item(msgspec.Struct):
    metadata: _Metadata


class _List(msgspec.Struct):
    items: list[_Item] | None = None


def pending_pods(client: Client) -> list[str]:
    """Return the Pods of the cluster without a node, by namespace/name; at most as many as a page can offer.

    Raises:
        PreviewError: the API server is unavailable, or refuses.
    """
    query = {"fieldSelector": PENDING_SELECTOR, "limit": str(_MOST_PENDING)}
    try:
        body = client.get(path="/api/v1/pods", query=query, timeout_seconds=ASK_TIMEOUT_SECONDS)
        found = msgspec.json.decode(body, type=_List).items or []
    except (APIError, msgspec.DecodeError) as error:
        message = f"Pods that wait can't be listed: {str(error).removesuffix('.')}"
        raise PreviewError(message) from error
    return sorted(f"{each.metadata.namespace}/{each.metadata.name}" for each in found)


def pod_of_decision(key: str) -> dict[str, Any]:
    """Return a Decision's Pod, as Kubernetes JSON.

    Raises:
        PreviewError: the Decision doesn't exist (any more), or can't be read.
    """
    row = recorded().filter(pk=key).first()
    if row is None:
        message = f"no Decision has the id {key}"
        raise PreviewError(message)
    try:
        read = read_decision(row)
        found: dict[str, Any] = msgspec.json.decode(read.pod, type=dict[str, Any])
    except (ValueError, msgspec.DecodeError) as error:
        message = f"the Pod of Decision {key} can't be read: {error}"
        raise PreviewError(message) from error
    if read.missing:
        message = f"the Pod of Decision {key} is unknown: {read.missing}"
        raise PreviewError(message)
    return found


def preview(
    json: Mapping[str, Any], name: str, rules: Rules, snapshot: Snapshot, at: datetime | None = None, *, why: str = ""
) -> Preview:
    """Return the results of a Change's draft of a rule set for a Pod, and those of the live version.

    A running Pod is tried as if it were created again: without its node, and not counted there itself.

    Args:
        json: the Pod.
        name: the rule set's.
        rules: the live rules, and those with the Change.
        snapshot: the cluster.
        at: the time that rules see; by default now.
        why: a node for which each rule's result is returned; empty for none.

    Raises:
        PreviewError: the JSON is no Pod, or the rule set doesn't exist.
    """
    pod = _created_again(json)
    snapshot = _without(snapshot, pod)
    drafted = rules.drafted or rules.live
    if name not in drafted.rule_sets:
        message = f"Change {rules.change} has no rule set {name}" if rules.drafted else f"no rule set {name} is live"
        raise PreviewError(message)
    limit = TimeLimit()
    cycle = Cycle(pod=pod, snapshot=snapshot, now=at or datetime.now(UTC), give_way=limit.give_way)
    by = f"Change {rules.change}" if rules.drafted else "what is live"
    draft = _side(by, drafted, name, cycle, limit)
    live = None
    if rules.drafted and name in rules.live.rule_sets:
        # On a branch of its own: each side has the columns that it reads.
        apart = Cycle(pod=pod, snapshot=snapshot.branched({}), now=cycle.now, give_way=limit.give_way)
        live = _side("what is live", rules.live, name, apart, limit)
    both = side_by_side(draft.judged, live.judged if live else None)
    test, notes = _test(drafted.rule_sets[name], _given(drafted, name, cycle), cycle, both)
    return Preview(
        pod=f"{pod.namespace}/{pod.name}",
        draft=draft,
        live=live,
        both=both,
        sentences=[*_compared(draft, live), *_refusals(draft), *_who_gets_it(drafted, name, cycle)],
        test=test,
        notes=notes,
        why=_why(why, drafted, name, cycle) if why else [],
    )


def _created_again(json: Mapping[str, Any]) -> Pod:
    if fault := not_a_pod(json):
        raise PreviewError(fault)
    try:
        pod = Pod.from_json(_without_node(json))
        _ = pod.is_best_effort  # read here, for its faults: nothing else reads the limits before the rules do
    except (ObjectError, QuantityError) as error:
        raise PreviewError(str(error)) from error
    return pod


def _without_node(json: Mapping[str, Any]) -> dict[str, Any]:
    spec = json.get("spec")
    if not isinstance(spec, dict):
        return dict(json)  # it may be no Pod
    return {**json, "spec": {key: value for key, value in spec.items() if key != "nodeName"}}


def _without(snapshot: Snapshot, pod: Pod) -> Snapshot:
    """Return the Snapshot with a Pod on no node."""
    row = snapshot.table.placed().row_of(pod.uid) if pod.uid else NOWHERE
    if row == NOWHERE:
        return snapshot
    info = snapshot.table.infos[row]
    return snapshot.branched({info.name: NodeInfo(info.node, [each for each in info.pods if each.uid != pod.uid])})


def _why(node: str, revision: CompiledRevision, name: str, cycle: Cycle) -> list[str]:
    """Return the result of each rule of the draft for one node, and what would change the result."""
    rule_set = _given(revision, name, cycle) or revision.rule_sets[name]
    try:
        return [each.sentence for each in explain_node(rule_set, cycle, node).rules]
    except ObjectError:
        return [f"The cluster has no node {node}"]
    except DeadlineError:
        return [f"Time was up after {SECONDS:.0f} s, before each rule was asked about {node}"]


def _side(title: str, revision: CompiledRevision, name: str, cycle: Cycle, limit: TimeLimit) -> Side:
    rule_set = _given(revision, name, cycle) or revision.rule_sets[name]
    return Side(title, rule_set.version, Judged.of(_decided(rule_set, cycle, deadline=limit.is_up)))


def _given(revision: CompiledRevision, name: str, cycle: Cycle) -> CompiledRuleSet | None:
    """Return the rule set by the Pod's Assignment, as if nothing were suspended; None if no Assignment chooses this one."""
    chosen = revision.choose(cycle.pod, cycle.snapshot, cycle.now).enforced
    if chosen is None or chosen[0].rule_set != name:
        chosen = _would_give(revision, name, cycle)
    return chosen[1] if chosen else None


def _would_give(revision: CompiledRevision, name: str, cycle: Cycle) -> tuple[Assignment, CompiledRuleSet] | None:
    """Return the Assignment and the rule set that the Pod would get if nothing were suspended; None if nothing is, or it gets another."""
    if not revision.choose(cycle.pod, cycle.snapshot, cycle.now).suspended_by:
        return None
    whole = msgspec.structs.replace(revision.revision, pauses=[], exemptions=[])
    chosen = CompiledRevision(whole, former=revision).choose(cycle.pod, cycle.snapshot, cycle.now).enforced
    return chosen if chosen and chosen[0].rule_set == name else None


def _who_gets_it(revision: CompiledRevision, name: str, cycle: Cycle) -> list[str]:
    """Return which Assignment chooses the rule set for the Pod, and what Pauses and Exemptions exclude from the results."""
    choice = revision.choose(cycle.pod, cycle.snapshot, cycle.now)
    would = _would_give(revision, name, cycle)
    tried = f"{name} is tried on it all the same{f', as Assignment {would[0].name} would give it' if would else ''}"
    if choice.enforced is None:
        by = ", ".join(f"{each.kind} {each.name}" for each in choice.suspended_by)
        said = "No Assignment gives this Pod a rule set"
        if by:
            said = f"What Assignments would give this Pod is out of force by {by}"
        return [f"{said}: {tried}{', with its own params' if by and not would else ''}"]
    assignment, rule_set = choice.enforced
    if rule_set.name != name:
        return [f"Assignment {assignment.name} gives this Pod rule set {rule_set.name}: {tried}"]
    rules = [
        f"Rule {each.target.rule} isn't asked: it is out of force for this Pod by {each.kind} {each.name}"
        for each in choice.suspended_by
        if each.target.name == name and each.target.rule
    ]
    return [f"Assignment {assignment.name} gives this Pod the rule set", *rules]


def _compared(draft: Side, live: Side | None) -> list[str]:
    said = [_says(side) for side in (draft, live) if side]
    if live is None:
        return said if draft.name == "what is live" else [*said, "Nothing of it is live: there is nothing beside it"]
    was, now = live.judged.feasible, draft.judged.feasible
    allowed, refused = sorted(now - was), sorted(was - now)
    if allowed:
        said.append(f"By the draft {counted(len(allowed), 'node')} more may be used: {_some(allowed)}")
    if refused:
        said.append(f"By the draft {counted(len(refused), 'node')} may be used no more: {_some(refused)}")
    if draft.judged.best != live.judged.best:
        said.append(f"The winner changes: {live.judged.best or 'none'} → {draft.judged.best or 'none'}")
    if not allowed and not refused and draft.judged.best == live.judged.best:
        said.append(
            "Both let the same nodes pass, and the same one wins"
            if draft.judged.best
            else "Both let the same nodes pass"
        )
    return said


def _says(side: Side) -> str:
    judged = side.judged
    said = f"By {side.name}, {len(judged.feasible):,} of {counted(len(judged.names), 'node')} {'passes' if len(judged.feasible) == 1 else 'pass'}"
    if judged.missed:
        return f"{said}. Time was up after {SECONDS:.0f} s: {', '.join(judged.missed)} weren't asked about every node"
    if judged.best:
        ties = f", as good as {counted(judged.ties, 'node')} more" if judged.ties else ""
        return f"{said}; {judged.best} wins with {judged.points} of 10 points{ties}"
    return (
        said
        if judged.scored or not judged.feasible
        else f"{said}; it has no scores{' that count' if judged.matrix.scores else ''}, so the scheduler's own choose among them"
    )


def _refusals(side: Side) -> list[str]:
    found = side.judged.refusals
    said = [
        f"{each.rule} refuses {counted(len(each.nodes), 'node')}: {each.reason or each.code} ({_some(each.nodes)})"
        for each in found[:_MOST_SAID]
    ]
    more = len(found) - _MOST_SAID
    return [*said, f"{more} more refusals stand in the matrix"] if more > 0 else said


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _test(
    rule_set: CompiledRuleSet, given: CompiledRuleSet | None, cycle: Cycle, both: Sequence[Both]
) -> tuple[dict[str, Any], list[str]]:
    """Return a test of a few nodes, if possible one of each group, with the results for these alone; empty when time is up.

    Tests run with the rule set's own params and all of its rules; `given` is the rule set by the Pod's Assignment.
    """
    pod = cycle.pod
    # A test is published and kept, so it holds no value that the history must not hold.
    masks, masked = Masks(annotations=settings.BERTH.mask_annotations, labels=settings.BERTH.mask_labels), Found()
    sample = _sampled(rule_set, pod, cycle.snapshot, both, lambda json: masks.json(json, masked))
    labels = {
        name: masks.labels(found, masked) for name, found in _namespaces(rule_set, pod, sample, cycle.snapshot).items()
    }
    small = Snapshot.of(map(Node.from_json, sample.nodes), map(Pod.from_json, sample.pods), labels)
    # In whole seconds, as the test has it.
    now = cycle.now.replace(microsecond=0)
    alone = Cycle(pod=Pod.from_json(sample.pod), snapshot=small, now=now, give_way=cycle.give_way)
    answer = _decided(rule_set, alone)
    as_given = answer if given is None or given is rule_set else _decided(given, alone)
    as_sampled = _decided(given or rule_set, _with_all_members(sample, alone, pod, labels, masks))
    if as_sampled.missed:  # the test is worth more than the note
        as_sampled = as_given
    if answer.missed or as_given.missed:
        return {}, [f"There is no test of it: time was up after {SECONDS:.0f} s"]
    test: dict[str, Any] = {"name": _name(pod, answer.best, answer.feasible), "pod": sample.pod, "nodes": sample.nodes}
    test |= {"pods": sample.pods} if sample.pods else {}
    namespaces = [{"metadata": {"name": name, "labels": found}} for name, found in labels.items()]
    test |= {"namespaces": namespaces} if namespaces else {}
    test |= {"now": now.strftime("%Y-%m-%dT%H:%M:%SZ")} if _mentions(_NOW, rule_set) else {}
    test["expect"] = _expected(answer)
    whole = {name for each in both if each.draft.feasible for name in each.nodes}
    notes = [*_left_out(sample, set(as_sampled.feasible), whole), *_said_without_members(as_given, as_sampled)]
    return test, [*notes, *_said_otherwise(answer, as_given), *_said_masked(masked)]


def _with_all_members(
    sample: "_Sample", alone: Cycle, pod: Pod, labels: Mapping[str, Mapping[str, str]], masks: Masks
) -> Cycle:
    """Return the cycle of a test with all members of the Pod and the nodes alone, also those that the test leaves out."""
    nodes = [Node.from_json(masks.json(info.node.json, Found())) for info in sample.infos]
    whole = Snapshot.of(nodes, map(Pod.from_json, sample.pods), labels)
    return Cycle(
        pod=Pod.from_json(masks.json(pod.json, Found())), snapshot=whole, now=alone.now, give_way=alone.give_way
    )


class _Sample(NamedTuple):
    """The contents of a test: nodes with as many of their Pods as there is room for, and the Pod itself."""

    infos: Sequence[NodeInfo]
    nodes: Sequence[dict[str, Any]]
    pods: Sequence[dict[str, Any]]
    pod: dict[str, Any]
    counts: bool


def _sampled(
    rule_set: CompiledRuleSet,
    pod: Pod,
    snapshot: Snapshot,
    both: Sequence[Both],
    mask: Callable[[dict[str, Any]], dict[str, Any]],
) -> _Sample:
    infos = [info for name in _chosen(both) if (info := snapshot.node(name)) is not None]
    counts = any(made.scope is not Scope.NODE for _, made in (*rule_set.filters, *rule_set.scores))
    pods = [_placed(each, info) for info in infos for each in info.pods][:MOST_PODS] if counts else []
    nodes = [_slim_node(info.node.json) for info in infos]
    return _Sample(infos, [*map(mask, nodes)], [*map(mask, pods)], mask(_slim_pod(pod.json)), counts)


def _namespaces(rule_set: CompiledRuleSet, pod: Pod, sample: _Sample, snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """Return the labels of the namespaces in a test; nothing where neither a rule nor the Pod's affinity reads any."""
    affinity = msgspec.json.encode((pod.json.get("spec") or {}).get("affinity"))
    if not _mentions(_NAMESPACE, rule_set) and _SELECTS_NAMESPACES not in affinity:
        return {}
    names = sorted({pod.namespace, *(each["metadata"]["namespace"] for each in sample.pods)})
    return {name: dict(snapshot.namespace_labels(name)) for name in names}


def _expected(answer: Answer) -> dict[str, Any]:
    """Return a test's expectations from an answer."""
    expect: dict[str, Any] = {"feasible": sorted(answer.feasible)}
    expect |= {"best": answer.best} if answer.best else {}
    reasons = {name: status.reason for name, status in answer.refused()}
    return expect | ({"reasons": dict(sorted(reasons.items()))} if reasons else {})


def _said_without_members(as_given: Answer, as_sampled: Answer) -> list[str]:
    """Return a sentence about the nodes that the rules judge by members that the test leaves out; nothing where there are none."""
    best = {as_given.best, as_sampled.best} if as_given.best != as_sampled.best else set()
    others = sorted((set(as_given.feasible) ^ set(as_sampled.feasible)) | best - {""})
    if not others:
        return []
    said = (
        f"The rules judge {_some(others)} by members that the test leaves out, such as env and args of containers or addresses of "
        "nodes: what it expects isn't what they say"
    )
    return [said]


def _said_otherwise(answer: Answer, as_given: Answer) -> list[str]:
    """Return the nodes for which the rule set alone has another result than by the Pod's Assignment."""
    others = set(answer.feasible) ^ set(as_given.feasible)
    if answer.best != as_given.best:
        others |= {answer.best, as_given.best} - {""}
    if not others:
        return []
    said = (
        f"The test uses the rule set's own params and all of its rules, which say something else of {_some(sorted(others))} than "
        "with what the Pod's Assignment gives and what is out of force for it"
    )
    return [said]


def _decided(rule_set: CompiledRuleSet, cycle: Cycle, deadline: Callable[[], bool] | None = None) -> Answer:
    """Return the rule set's Answer about all nodes of a cycle, with its params."""
    own = Cycle(pod=cycle.pod, snapshot=cycle.snapshot, now=cycle.now, params=rule_set.params, give_way=cycle.give_way)
    return decide(rule_set, own, own.table.all_rows(), deadline=deadline)


def _left_out(sample: _Sample, feasible: set[str], whole: set[str]) -> list[str]:
    said = []
    known = sum(len(info.pods) for info in sample.infos) if sample.counts else 0
    if known > len(sample.pods):
        said.append(f"The test holds {len(sample.pods)} of {known:,} Pods on these nodes")
    differing = sorted({info.name for info in sample.infos} & (feasible ^ whole))
    if differing:
        said.append(
            f"On these nodes alone the rules say something else than on the whole cluster of {_some(differing)}: "
            "the test expects what they say on these"
        )
    return said


def _said_masked(masked: Found) -> list[str]:
    """Return a sentence about the names whose values are masked in the test; nothing where none is."""
    return [f"The test holds “{MASKED}” as the value of {', '.join(sorted(masked))}"] if masked else []


def _chosen(both: Sequence[Both]) -> list[str]:
    """Return the nodes of a test: the best ones, then one of each group, different results first."""
    winners = [each.nodes[0] for each in both if each.draft.best or (each.live is not None and each.live.best)]
    return list(dict.fromkeys([*winners, *(each.nodes[0] for each in both)]))[:MOST_NODES]


def _name(pod: Pod, best: str, feasible: Sequence[str]) -> str:
    if best:
        return f"{pod.name} goes to {best}"
    return f"{pod.name} may use {_some(sorted(feasible))}" if feasible else f"{pod.name} finds no node"


def _mentions(name: re.Pattern[str], rule_set: CompiledRuleSet) -> bool:
    spec = rule_set.source.spec
    return any(name.search(rule.expression) for rule in (*spec.filters, *spec.scores))


_NOISE = ("managedFields", "resourceVersion", "uid", "generation", "selfLink", "generateName")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
# Members of a container that may be secret, and that rules seldom read.
_OF_CONTAINERS = (
    *("env", "envFrom", "command", "args", "volumeMounts", "livenessProbe", "readinessProbe", "startupProbe"),
    *("lifecycle", "terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy"),
)
# Members of a node's status that rules seldom read, and images, which are many.
_OF_STATUS = ("images", "addresses", "daemonEndpoints", "volumesInUse", "volumesAttached")
_TOKENS = "kube-api-access-"


def _metadata(json: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in (json.get("metadata") or {}).items() if key not in _NOISE}
    annotations = {key: value for key, value in (found.get("annotations") or {}).items() if key != _LAST_APPLIED}
    found.pop("annotations", None)
    return found | ({"annotations": annotations} if annotations else {})


def _slim_pod(json: Mapping[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in (json.get("spec") or {}).items() if key != "nodeName"}
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        if isinstance(spec.get(kind), list):
            spec[kind] = [_slim_container(each) for each in spec[kind]]
    if isinstance(spec.get("volumes"), list):
        spec["volumes"] = [each for each in spec["volumes"] if not str(each.get("name", "")).startswith(_TOKENS)]
        if not spec["volumes"]:
            del spec["volumes"]
    return {"metadata": _metadata(json), "spec": spec}


def _slim_container(json: Any) -> Any:
    if not isinstance(json, dict):
        return json  # rules don't read ephemeral containers, so nobody has checked them
    return {key: value for key, value in json.items() if key not in _OF_CONTAINERS}


def _slim_node(json: Mapping[str, Any]) -> dict[str, Any]:
    status = {key: value for key, value in (json.get("status") or {}).items() if key not in _OF_STATUS}
    if isinstance(status.get("conditions"), list):
        status["conditions"] = [
            {"type": each.get("type"), "status": each.get("status")} for each in status["conditions"]
        ]
    return {"metadata": _metadata(json), "spec": json.get("spec") or {}, "status": status}


def _placed(pod: Pod, info: NodeInfo) -> dict[str, Any]:
    """Return a Pod on a node as JSON with the parts that rules count: labels, and requests."""
    asked = {
        name: f"{amount}m" if name == CPU else str(amount) for name, amount in pod.requests.amounts.items() if amount
    }
    container: dict[str, Any] = {"name": "main"} | ({"resources": {"requests": asked}} if asked else {})
    spec: dict[str, Any] = {"nodeName": info.name, "containers": [container]}
    if pod.spec.priority:
        spec["priority"] = pod.spec.priority
    return {"metadata": {"name": pod.name, "namespace": pod.namespace, "labels": dict(pod.labels)}, "spec": spec}
