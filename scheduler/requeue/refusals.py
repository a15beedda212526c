"""Whether a recorded refusal of a waiting Pod could have changed by now. Pure.

Three things can change a refusal without a cluster event on which kube-scheduler retries by itself: another
Revision, time, and labels of the Pod's Namespace.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.decision import NOT_IN_TIME, Answer, CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.node import Path, trace
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.rule import NAMESPACE, Cycle, Filter, Scope, go_on
from policies.engine.status import PASSED
from policies.engine.time_rules import next_change, time_filters
from scheduler.cluster.texts import moment

Cause = Literal["", "revision", "time", "namespace"]
# A filter's key, its verdict for each node (negative unless it refused), and the verdicts' reasons.
_Verdicts = tuple[str, npt.NDArray[Any], list[str]]


class ListedPod(msgspec.Struct, frozen=True, kw_only=True):
    """A Pod that kube-scheduler could place nowhere.

    Attributes:
        message: the message of the condition PodScheduled, with the reasons of all nodes.
        refused_at: since when the condition is False.
        json: the Pod's JSON from the API server.
    """

    uid: str
    namespace: str
    name: str
    created_at: datetime
    resource_version: str
    message: str
    refused_at: datetime
    json: dict[str, Any]


class _Condition(msgspec.Struct, rename="camel"):
    type: str = ""
    status: str = ""
    message: str = ""
    last_transition_time: str | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    namespace: str
    uid: str
    creation_timestamp: datetime
    resource_version: str = ""
    deletion_timestamp: str | None = None


class _WaitingObject(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


def waiting_pods(pods: Iterable[dict[str, Any]]) -> list[ListedPod]:
    """Return the Pods that were tried and not placed, and that aren't being deleted; `pods` have no node.

    Raises:
        msgspec.ValidationError: an item isn't a Pod as the API server returns it.
    """
    read = ((json, msgspec.convert(json, _WaitingObject)) for json in pods)
    return [found for json, pod in read if (found := _waiting(json, pod)) is not None]


def _waiting(json: dict[str, Any], pod: _WaitingObject) -> ListedPod | None:
    metadata = pod.metadata
    conditions = pod.status.conditions or []
    tried = next((found for found in conditions if found.type == "PodScheduled" and found.status == "False"), None)
    if tried is None or metadata.deletion_timestamp is not None:
        return None
    return ListedPod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        created_at=metadata.creation_timestamp,
        resource_version=metadata.resource_version,
        message=tried.message,
        refused_at=moment(tried.last_transition_time or "") or metadata.creation_timestamp,
        json=json,
    )


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Which nodes were refused to a Pod, when and by what.

    Attributes:
        params: the params of its Assignment.
        nodes_by_rule: key of a filter -> the nodes that it refused, each node under the first filter that did.
        reasons: the texts that were sent to kube-scheduler.
    """

    at: datetime
    revision: int
    rule_set: str
    version: int
    params: Mapping[str, Any] = {}
    nodes_by_rule: Mapping[str, Sequence[str]]
    reasons: frozenset[str]

    @property
    def nodes(self) -> list[str]:
        """The nodes that were refused."""
        return [name for names in self.nodes_by_rule.values() for name in names]

    def is_told_in(self, message: str) -> bool:
        """Return whether a condition's message has one of the reasons; otherwise other rules refuse the Pod now."""
        return any(reason in message for reason in self.reasons if reason)


def recorded_refusal(
    answer: Answer, *, at: datetime, revision: int, rule_set: str, version: int, params: Mapping[str, Any]
) -> Refusal:
    """Return the refusal in a Decision of /filter.

    Args:
        answer: the recorded answer.
        at: when the Decision was made.
        revision: its Revision.
        rule_set: its rule set.
        version: of the rule set.
        params: the params of the Assignment.
    """
    about = {"at": at, "revision": revision, "rule_set": rule_set, "version": version, "params": params}
    return _refusal(answer, **about)


def repeated_refusal(
    pod: Pod, revision: CompiledRevision, snapshot: Snapshot, at: datetime, give_way: Callable[[], None] = go_on
) -> Refusal | None:
    """Recompute the refusal of a Pod whose Decision isn't recorded; None if no Assignment takes the Pod.

    `give_way` is as for a Cycle: rules that it ends refuse nothing.
    """
    chosen = revision.choose(pod, snapshot, at).enforced
    if chosen is None:
        return None
    rule_set = chosen[1].enforced
    cycle = Cycle(pod=pod, snapshot=snapshot, now=at, params=rule_set.params, give_way=give_way)
    answer = decide(rule_set, cycle, snapshot.table.all_rows(), scoring=False)
    return _refusal(
        answer,
        at=at,
        revision=revision.number,
        rule_set=rule_set.name,
        version=rule_set.version,
        params=rule_set.overrides,
    )


def _refusal(answer: Answer, **fields: Any) -> Refusal:
    """Make a refusal from an answer's verdicts."""
    nodes_by_rule: dict[str, list[str]] = {}
    reasons: set[str] = set()
    names = answer.names
    columns = [
        (column.rule.key, column.codes, [status.reason for status in column.statuses])
        for column in answer.filters
        if column.rule.mode == "enforce"
    ]
    asked = np.ones(len(names), dtype=np.bool_)
    for (rule, codes, texts), places in _first_refusals(asked, columns):
        nodes_by_rule[rule] = [names[place] for place in places.tolist()]
        reasons.update(texts[code] for code in np.unique(codes[places]).tolist())
    if unasked := [name for name, status in answer.refused() if status == NOT_IN_TIME]:
        # Other rules may be evaluated in time: the first one that wasn't refuses the rest, as in the history.
        nodes_by_rule[next((rule for rule, _, _ in columns if rule in answer.missed), "")] = unasked
        reasons.add(NOT_IN_TIME.reason)
    return Refusal(nodes_by_rule=nodes_by_rule, reasons=frozenset(reasons), **fields)


def _first_refusals(asked: npt.NDArray[np.bool_], columns: Iterable[_Verdicts]) -> Iterator[tuple[_Verdicts, Rows]]:
    """Iterate over the columns that are the first to refuse a node, with the positions of these nodes among the candidates."""
    left = asked.copy()
    for column in columns:
        places = np.flatnonzero(left & (column[1] >= 0))
        left[places] = False
        if len(places):
            yield column, places


class Judgement(msgspec.Struct, frozen=True):
    """The judgement on a refusal: a cause to requeue the Pod now, or the time to look again, or neither."""

    cause: Cause = ""
    next_at: datetime | None = None

    def or_at(self, moment: datetime | None) -> "Judgement":
        """Return this judgement with a latest time to look again; None for no such time."""
        moments = [each for each in (self.next_at, moment) if each is not None]
        return msgspec.structs.replace(self, next_at=min(moments, default=None))


class Judge:
    """Judges refusals by one Revision, on one Snapshot, at one time. Pods that look alike to the rules are decided once.

    `begin` returns each cycle's `give_way`: a Pod that can't be judged in time is requeued. `relabelled` has the Namespaces
    whose labels changed, each with the time until which refusals may still come from the former labels.
    """

    def __init__(
        self,
        revision: CompiledRevision,
        snapshot: Snapshot,
        now: datetime,
        begin: Callable[[], Callable[[], None]] = lambda: go_on,
        relabelled: Mapping[str, datetime] | None = None,
    ) -> None:
        self.revision = revision
        self.snapshot = snapshot
        self._now = now
        self._begin = begin
        self._relabelled = relabelled or {}
        self._paths: dict[Hashable, list[Path] | None] = {}
        self._answers: dict[Hashable, Answer] = {}
        self._moments: dict[Hashable, datetime | None] = {}

    def outcome(self, pod: Pod, refusal: Refusal) -> Judgement:
        """Return the judgement on a refusal.

        If another rule set, version or params apply now, the Pod is decided again at once. If they are the same, only time or labels
        of its Namespace can have changed: the Pod is decided again once a rule that refused it can have changed.
        """
        if not refusal.nodes_by_rule:
            return Judgement()
        ends_at = self.revision.suspensions_end_at(refusal.at)
        found = self._outcome(pod, refusal, has_ended=ends_at is not None and ends_at <= self._now)
        return found if found.cause else found.or_at(self.revision.suspensions_end_at(self._now))

    def _outcome(self, pod: Pod, refusal: Refusal, *, has_ended: bool) -> Judgement:
        """Return the judgement, without suspensions that will end by themselves. `has_ended`: whether a Pause has ended since."""
        chosen = self.revision.choose(pod, self.snapshot, self._now).enforced
        until = self._relabelled.get(pod.namespace)
        is_relabelled = until is not None and refusal.at <= until
        since: Cause = "revision" if refusal.revision < self.revision.number else "time" if has_ended else ""
        # Labels come first: the effect of a Revision was examined when it was new.
        cause: Cause = "namespace" if is_relabelled else since
        if chosen is None:
            return Judgement(cause)
        rule_set = chosen[1].enforced
        rows = {rule: self._rows(names) for rule, names in refusal.nodes_by_rule.items()}
        asked = (rule_set.name, rule_set.version, rule_set.overrides)
        is_same = asked == (refusal.rule_set, refusal.version, refusal.params)
        if not is_same or not rule_set.keys().issuperset(refusal.nodes_by_rule):
            # Under the same Revision, other rules apply only after a change of the Pod or its namespace, or the end of a Pause.
            return self._again(rule_set, pod, rows, cause) if cause else Judgement()
        if is_relabelled and any(NAMESPACE in made.requeued_by for made in _refusing(rule_set, refusal)):
            return self._again(rule_set, pod, rows, "namespace")
        then = self._next(rule_set, pod, rows, refusal.at)
        if then is None or then > self._now:
            return Judgement(next_at=then)
        return self._again(rule_set, pod, rows, "time")

    def _rows(self, names: Sequence[str]) -> Rows:
        rows = self.snapshot.table.rows(names)
        return rows[rows >= 0]

    def _again(self, rule_set: CompiledRuleSet, pod: Pod, refused: Mapping[str, Rows], cause: Cause) -> Judgement:
        look = self._look(rule_set, pod)
        answer = self._answer(rule_set, pod, look)
        asked = np.zeros(len(answer.names), dtype=np.bool_)
        asked[np.concatenate(list(refused.values()))] = True
        # If there was no time to judge, the scheduler decides.
        if answer.missed or (answer.refusal[asked] == PASSED).any():
            return Judgement(cause)
        key = (look, asked.tobytes())
        if look is None or key not in self._moments:
            columns: list[_Verdicts] = [(column.rule.key, column.codes, []) for column in answer.filters]
            rows = {column[0]: places for column, places in _first_refusals(asked, columns)}
            self._moments[key] = self._next(rule_set, pod, rows, self._now)
        return Judgement(next_at=self._moments[key])

    def _answer(self, rule_set: CompiledRuleSet, pod: Pod, look: Hashable) -> Answer:
        answer = self._answers.get(look)
        if answer is None:
            cycle = Cycle(
                pod=pod, snapshot=self.snapshot, now=self._now, params=rule_set.params, give_way=self._begin()
            )
            answer = decide(rule_set, cycle, self.snapshot.table.all_rows(), scoring=False)
            if look is not None:
                self._answers[look] = answer
        return answer

    def _look(self, rule_set: CompiledRuleSet, pod: Pod) -> Hashable:
        """Return the values that the rules read of a Pod; None if these are unknown."""
        if rule_set.key not in self._paths:
            self._paths[rule_set.key] = _paths(rule_set)
        paths = self._paths[rule_set.key]
        return None if paths is None else (rule_set.key, *(trace(pod.json, path).token for path in paths))

    def _next(self, rule_set: CompiledRuleSet, pod: Pod, refused: Mapping[str, Rows], at: datetime) -> datetime | None:
        """Return the next time after `at` when one of the refusing rules can change."""
        cycle = Cycle(pod=pod, snapshot=self.snapshot, now=at, params=rule_set.params)
        asked = [(rule, refused[rule]) for rule in time_filters(rule_set) if rule in refused]
        moments = [next_change(rule_set, cycle, rows, rules={rule}) for rule, rows in asked]
        return min((moment for moment in moments if moment is not None), default=None)


def _paths(rule_set: CompiledRuleSet) -> list[Path] | None:
    """Return all paths that the filters read of a Pod; None if a built-in or a count reads more."""
    paths: set[Path] = set()
    for _, made in rule_set.filters:
        if made.pod_paths is None or made.counts_pods:
            return None
        paths |= made.pod_paths
    return sorted(paths)


def _refusing(rule_set: CompiledRuleSet, refusal: Refusal) -> Iterator[Filter]:
    """Iterate over the filters that refused a node."""
    return (made for rule, made in rule_set.filters if rule.key in refusal.nodes_by_rule)


def goes_by_namespaces(revision: CompiledRevision) -> bool:
    """Return whether labels of Pods' Namespaces matter: in an enforced filter, or in which Assignment takes a Pod."""
    selectors = (assignment.match.namespace_selector for assignment in revision.revision.assignments)
    return any(found.match_labels or found.match_expressions for found in selectors) or any(
        NAMESPACE in made.requeued_by
        for rule_set in revision.rule_sets.values()
        for _, made in rule_set.enforced.filters
    )


def reads_pods(revision: CompiledRevision) -> bool:
    """Return whether enforced filters may read the Pods on nodes, or the free resources."""
    return any(
        made.scope is not Scope.NODE
        for rule_set in revision.rule_sets.values()
        for _, made in rule_set.enforced.filters
    )


# How long after the end of a Pause refusals by the next Assignments are still examined: Decisions arrive late.
_LATE = timedelta(minutes=1)


def timed_rule_sets(revision: CompiledRevision, now: datetime) -> list[str]:
    """Return the rule sets with an enforced filter that reads `now`; all, while a paused Assignment will return by itself."""
    if revision.suspensions and revision.suspensions.gives_back_after(now - _LATE):
        return list(revision.rule_sets)
    return [name for name, rule_set in revision.rule_sets.items() if time_filters(rule_set)]
