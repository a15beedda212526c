"""Decides recorded Decisions again by other rules, each with its own Snapshot and time, and compares the answers."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.reuse import Judge
from policies.engine.rule import Cycle
from policies.engine.scheduling import default_profile, find_best, with_default_filters
from scheduler.backtest.compare import Difference, Recorded, compare
from scheduler.backtest.results import ChunkResult, Line, line_of, moments_of
from scheduler.decisions.rebuilding import ReplayError, Snapshots, pod_of, recorded_body_of
from scheduler.decisions.record import Body
from scheduler.decisions.replay import not_recorded
from scheduler.models import Decision

_NOWHERE = np.empty(0, dtype=np.intp)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

_NOT_READ = "they can't be read"
PRUNED = "their details were pruned, as BERTH_RETENTION_DETAILS_DAYS says"
NO_SNAPSHOT = "the Snapshot that they were made on isn't there, or can't be read: pruned, or never stored"
_NOT_KEPT = "no Assignment took the Pod then, or what applied to it was paused, so that its nodes were not kept; a rule set would apply to it"
GONE = "they were pruned while the backtest ran"
_IN_PART = "time was up then before all rules were asked"
STEPPED_BACK = "the rule set chose to step back for the default set, and what was away then is not recorded"
# Replays decide these again by their recorded rules; the effect of other rules on the Pod shows in its /filter.
_OTHER_VERBS = {
    "bind": "a bind asks again what counts Pods, and nothing else",
    "preempt": "a preempt asks about kube-scheduler's own candidates, which other rules would have changed",
}
OTHERS_NOT_ASKED = (
    "a node had been made free for the Pod and took it; the rules refuse that, and of the others nothing was asked"
)
DENIED_NOT_ASKED = "nodes had denied the Pod's binding; the rules refuse all others, and of these nothing was asked"
_UNKNOWN_KINDS = "the rules read what was not recorded: {}"


class UndecidedError(Exception):
    """A Decision can't be decided again exactly; the message says why, and is the same for all of a kind."""


class _Last(NamedTuple):
    """The last answer: /prioritize comes a moment after /filter for the same Pod, on the same Snapshot."""

    rule_set: CompiledRuleSet
    pod: Pod
    snapshot: Snapshot
    rows: Rows
    answer: Answer

    def holds(self, rule_set: CompiledRuleSet, pod: Pod, snapshot: Snapshot, rows: Rows) -> bool:
        """Return whether the answer to this input is the same: the input is, and no rule reads the time."""
        return (
            self.rule_set is rule_set
            and self.pod is pod
            and self.snapshot is snapshot
            and np.array_equal(self.rows, rows)
            and not any(made.reads_now for _, made in (*rule_set.filters, *rule_set.scores))
        )


class _Side:
    """A Revision, and its answers about Pods. Equal Pods are decided on once where possible."""

    def __init__(self, revision: CompiledRevision) -> None:
        self.revision = revision
        self._judge = Judge()
        self._last: _Last | None = None
        self._profiles: dict[int, tuple[CompiledRuleSet, CompiledRuleSet]] = {}

    def rule_set_for(self, decision: Decision, pod: Pod, snapshot: Snapshot) -> CompiledRuleSet | None:
        """Return the rules for a Pod; None if none apply, so that all nodes pass."""
        chosen = self.revision.choose(pod, snapshot, decision.at).enforced
        if decision.verb != "schedule":
            return chosen[1].enforced if chosen else None
        return self._profile(chosen[1]) if chosen else default_profile()

    def _profile(self, rule_set: CompiledRuleSet) -> CompiledRuleSet:
        # The rule set is kept in the value, so that no other one can get its id.
        if id(rule_set) not in self._profiles:
            self._profiles[id(rule_set)] = (rule_set, with_default_filters(rule_set).enforced)
        return self._profiles[id(rule_set)][1]

    def answer(
        self, rule_set: CompiledRuleSet, decision: Decision, pod: Pod, snapshot: Snapshot, rows: Rows, *, scoring: bool
    ) -> Answer:
        """Return the rules' answer."""
        last = self._last
        if last is not None and last.holds(rule_set, pod, snapshot, rows):
            return last.answer
        cycle = Cycle(pod=pod, snapshot=snapshot, now=decision.at, params=rule_set.params)
        if snapshot.nominated and decision.verb != "schedule":
            return decide(rule_set, cycle, rows, scoring=scoring)
        answer = self._judge.judge(rule_set, cycle, rows)
        self._last = _Last(rule_set, pod, snapshot, rows, answer)
        return answer


class Decider:
    """Decides recorded Decisions again. They cost least in the order of their sequences.

    Args:
        live: the Revision that was live when the backtest was requested.
        wanted: that Revision with the edits.
        answers_as_then: whether that Revision still answers as it did: none of its Pauses and Exemptions was left out.
    """

    def __init__(self, live: CompiledRevision, wanted: CompiledRevision, *, answers_as_then: bool = True) -> None:
        self._live, self._wanted = _Side(live), _Side(wanted)
        self._answers_as_then = answers_as_then
        self._snapshots = Snapshots()
        self._pod: tuple[bytes, Pod] | None = None

    def chunk(self, decisions: Iterable[Decision], on_step: Callable[[], None] = lambda: None) -> ChunkResult:
        """Decide all of these.

        Args:
            decisions: of one writer, in their order.
            on_step: called before each.
        """
        found = ChunkResult(lines=[], undecided={})
        moments = []
        for decision in decisions:
            on_step()
            try:
                line = self.line_of(decision)
            except UndecidedError as error:
                why = str(error)
                found.undecided[why] = found.undecided.get(why, 0) + 1
                continue
            found.decided += 1
            moments.append(_microseconds(decision))
            if line is not None:
                found.lines.append(line)
        found.moments = moments_of(moments)
        return found

    def line_of(self, decision: Decision) -> Line | None:
        """Return how a Decision would differ; None if it wouldn't.

        Raises:
            UndecidedError: the Decision can't be decided again exactly.
        """
        if not decision.body:
            raise UndecidedError(PRUNED)
        try:
            body = recorded_body_of(decision)
            pod = self._pod_of(body)
        except ReplayError as error:
            raise UndecidedError(_NOT_READ) from error
        if why := not_recorded(decision, body) or _OTHER_VERBS.get(decision.verb):
            raise UndecidedError(why)
        if body.notes.get("missed"):
            raise UndecidedError(_IN_PART)
        if _stepped_back(decision):
            raise UndecidedError(STEPPED_BACK)
        if body.answer is None:
            return self._line_of_passed(decision, body, pod)
        snapshot = self._snapshot(decision, body)
        try:
            rows, then = body.order.rows(), Recorded(body.answer, _best_of_then(decision, body))
        except ValueError as error:
            raise UndecidedError(_NOT_READ) from error
        rows = rows[rows >= 0]
        if len(rows) != then.size:
            raise UndecidedError(_NOT_READ)
        if len(rows) and rows.max() >= len(snapshot.table):
            raise UndecidedError(NO_SNAPSHOT)
        asked = (decision, pod, snapshot, rows, then, _denied_rows(body, snapshot))
        found, rule_set = self._difference(self._wanted, *asked)
        if found is None:
            return None
        return _line(decision, found, rule_set, live=self._is_live_already(found, *asked))

    def _is_live_already(self, found: Difference, decision: Decision, *asked: Any) -> bool:
        """Return whether the live Revision would answer the same: then the edits aren't the cause."""
        # Between /filter and /prioritize, another Pod may have taken a node's room: the same rules refuse the node then.
        is_of_live = self._answers_as_then and decision.revision == self._live.revision.number
        if is_of_live and not (decision.verb == "prioritize" and found.lost):
            return False
        try:
            return self._difference(self._live, decision, *asked)[0] == found
        except UndecidedError:
            return False

    def _pod_of(self, body: Body) -> Pod:
        """Return the Pod; the same object as for the Decision before if its JSON is the same."""
        if self._pod is None or self._pod[0] != body.pod:
            self._pod = (body.pod, pod_of(body))
        return self._pod[1]

    def _snapshot(self, decision: Decision, body: Body) -> Snapshot:
        try:
            return self._snapshots.of(decision, body)
        except ReplayError as error:
            raise UndecidedError(NO_SNAPSHOT) from error

    def _difference(
        self,
        side: _Side,
        decision: Decision,
        pod: Pod,
        snapshot: Snapshot,
        rows: Rows,
        then: Recorded,
        denied: Rows,
    ) -> tuple[Difference | None, str]:
        """Return how a side differs from the recorded answer, and the name of its rule set."""
        rule_set = side.rule_set_for(decision, pod, snapshot)
        answer, best = None, _NOWHERE
        if rule_set is not None:
            _check_reads(rule_set, snapshot)
            answer = side.answer(rule_set, decision, pod, snapshot, rows, scoring=decision.verb != "filter")
            if not answer.feasible_count and then.passed.any():
                for why, others in _left_out(decision, snapshot, rows, denied):
                    _check_others(side.answer(rule_set, decision, pod, snapshot, others, scoring=False), why)
            best = _best(answer, rule_set, decision, pod, snapshot, rows, then)
            # A node that was made free for the Pod goes before all others.
            if len(first := _not_denied(rows, denied)) and _made_free(decision, snapshot).isdisjoint(
                rows[best].tolist()
            ):
                best_of_first = self._best_of_first(side, rule_set, decision, pod, snapshot, rows, first)
                best = best_of_first if len(best_of_first) else best

        def place_of(name: str) -> int | None:
            row = snapshot.table.row_of.get(name)
            return None if row is None else next(iter(np.flatnonzero(rows == row).tolist()), None)

        is_ranking = decision.verb == "prioritize"
        with_points = is_ranking or (then.ranks and answer is not None and bool(answer.scores))
        found = compare(then, answer, place_of, best, best_alone=is_ranking, with_points=with_points)
        return found, rule_set.name if rule_set else ""

    def _best_of_first(
        self,
        side: _Side,
        rule_set: CompiledRuleSet,
        decision: Decision,
        pod: Pod,
        snapshot: Snapshot,
        rows: Rows,
        first: Rows,
    ) -> Rows:
        """Return where the best of the nodes stand that are asked before those that had denied the Pod's binding; empty for none."""
        answer = side.answer(rule_set, decision, pod, snapshot, rows[first], scoring=True)
        cycle = Cycle(pod=pod, snapshot=snapshot, now=decision.at, params=rule_set.params)
        return first[find_best(answer, cycle, rows[first], is_default_profile=rule_set is default_profile())]

    def _line_of_passed(self, decision: Decision, body: Body, pod: Pod) -> Line | None:
        """Decide for a Pod that no Assignment took: it still passes everywhere, or its nodes would have to be known."""
        snapshot = Snapshot({}, {pod.namespace: body.namespace_labels or {}})
        if self._wanted.revision.choose(pod, snapshot, decision.at).enforced is not None:
            raise UndecidedError(_NOT_KEPT)
        return None


def _best(
    answer: Answer,
    rule_set: CompiledRuleSet,
    decision: Decision,
    pod: Pod,
    snapshot: Snapshot,
    rows: Rows,
    then: Recorded,
) -> Rows:
    """Return the positions of the best nodes; for Berth's own scheduler, the nodes of which the Pod gets one."""
    if decision.verb == "schedule":
        made_free = _made_free(decision, snapshot)
        # A freed node that passed in the record had denied the binding: it had been evaluated with all others.
        free = [place for place in answer.scored.tolist() if int(rows[place]) in made_free and not then.passed[place]]
        if free:
            return np.array(free, dtype=np.intp)
        cycle = Cycle(pod=pod, snapshot=snapshot, now=decision.at, params=rule_set.params)
        return find_best(answer, cycle, rows, is_default_profile=rule_set is default_profile())
    ranks = answer.scores and len(answer.scored)
    return answer.scored[answer.totals == answer.totals.max()] if ranks else _NOWHERE


def _stepped_back(decision: Decision) -> bool:
    """Return whether the default set decided in place of the Pod's rule set: during an outage, by its `failures`."""
    return decision.verb == "schedule" and bool(decision.assignment) and not decision.rule_set_version


def _best_of_then(decision: Decision, body: Body) -> str:
    """Return the node that the Pod got, if one scheduler both ranks and chooses; else the best node."""
    got = str(body.notes.get("node") or "")
    return got or decision.best if decision.verb == "schedule" else decision.best or got


def _left_out(decision: Decision, snapshot: Snapshot, rows: Rows, denied: Rows) -> Iterable[tuple[str, Rows]]:
    """Iterate over groups of nodes to evaluate if the rules refuse all candidates, each with the reason it was left out."""
    if len(rows) == 1 and len(snapshot.table) > 1 and int(rows[0]) in _made_free(decision, snapshot):
        yield OTHERS_NOT_ASKED, snapshot.table.all_rows()
    elif len(left := np.setdiff1d(denied, rows)):
        yield DENIED_NOT_ASKED, left


def _made_free(decision: Decision, snapshot: Snapshot) -> set[int]:
    """Return the rows of the Pod's nominated nodes: Berth's own scheduler prefers them to all others."""
    if decision.verb != "schedule":
        return set()
    row_of = snapshot.table.row_of
    coming = ((row_of.get(name), pods) for name, pods in snapshot.nominated.items())
    return {row for row, pods in coming if row is not None and any(pod.uid == decision.pod_uid for pod in pods)}


def _denied_rows(body: Body, snapshot: Snapshot) -> Rows:
    """Return the nodes that had denied the Pod's binding: they are evaluated only if no other node is feasible."""
    found = (snapshot.table.row_of.get(name) for name in body.notes.get("denied", ()))
    return np.array([row for row in found if row is not None], dtype=np.intp)


def _not_denied(rows: Rows, denied: Rows) -> Rows:
    """Return where the other nodes stand, if some that had denied the Pod's binding were asked about with them; else nothing."""
    others = ~np.isin(rows, denied)
    return _NOWHERE if others.all() else np.flatnonzero(others)


def _check_others(answer: Answer, why: str) -> None:
    if answer.feasible_count:
        raise UndecidedError(why)


def _check_reads(rule_set: CompiledRuleSet, snapshot: Snapshot) -> None:
    known = snapshot.objects.known if snapshot.objects is not None else frozenset[str]()
    if missing := sorted(rule_set.reads - known):
        raise UndecidedError(_UNKNOWN_KINDS.format(", ".join(missing)))


def _line(decision: Decision, found: Difference, rule_set: str, *, live: bool) -> Line:
    return line_of(
        found,
        pod=f"{decision.pod_namespace}/{decision.pod_name}",
        uid=decision.pod_uid,
        decision=str(decision.pk),
        at_microseconds=_microseconds(decision),
        verb=decision.verb,
        rule_set=decision.rule_set if found.of_then else rule_set,
        live=live,
    )


def _microseconds(decision: Decision) -> int:
    return (decision.at - _EPOCH) // _MICROSECOND
