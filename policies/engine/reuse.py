"""Deciding on identical Pods one after another: the parts of the answer that can't have changed are reused. Pure.

`Judge.judge` returns what `scheduling.judge` returns, to the byte. Where the Pod requests the same as an earlier one, under the same
rules, and only the Pods on a few nodes have changed since, the scope that a rule declares (`rule.Scope`) decides:

- a rule that reads a node's own fields keeps its answer;
- a rule that reads a node and its Pods is evaluated only on the nodes that changed;
- any other rule is evaluated on all nodes again, and so is one that reads the time or fields in which identical Pods may differ.

Where this changes which nodes are feasible, the whole answer is computed anew.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from operator import itemgetter
from typing import NamedTuple

import msgspec
import numpy as np

from policies.engine.decision import NOT_EVALUATED, Answer, CompiledRuleSet, FilterColumn, ScoreColumn, to_points
from policies.engine.errors import DeadlineError
from policies.engine.objects.lineage import names_between
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.pod_spec import slim_spec
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.rule import Cycle, Filter, Scope, Score
from policies.engine.scheduling import judge
from policies.engine.status import PASSED

_MOST_KEPT = 16
# The position of a node that isn't among those asked about.
_NOWHERE = -1
_MOST_CHANGED = 64
# Columns of the table that nobody uses are dropped in the end (`lineage.STEPS_KEPT`), and then have to be made anew.
_MOST_IN_A_ROW = 200


def signature(pod: Pod) -> Hashable:
    """Return the fields of a Pod that built-ins read. Its JSON is left out: a rule that reads JSON declares so (`pod_paths`)."""
    spec, owner = pod.json.get("spec") or {}, pod.metadata.controller
    # The claims of ephemeral volumes are called after the Pod and belong to it, which then is like no other.
    own = (pod.name, pod.uid) if any(volume.ephemeral is not None for volume in pod.spec.volumes or ()) else ()
    claims = bool(spec.get("resourceClaims"))
    return pod.traits, claims, own, owner, pod.is_best_effort, msgspec.msgpack.encode(slim_spec(pod.spec))


class _Asked:
    """The nodes on which a filter was evaluated, as rows of the table, and its results: `codes` as in Verdicts."""

    def __init__(self, column: FilterColumn, rows: Rows) -> None:
        asked = column.codes != NOT_EVALUATED
        every = bool(asked.all())
        self.rows = rows if every else rows[asked]
        self.codes = column.codes if every else column.codes[asked]


class _Kept(NamedTuple):
    """An answer, and the inputs that it was computed from. `asked` is parallel to the filters."""

    rule_set: CompiledRuleSet
    snapshot: Snapshot
    rows: Rows
    answer: Answer
    again: int
    asked: Sequence[_Asked]


class Judge:
    """Judges Pods one after another. For one thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()

    def judge(self, rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows) -> Answer:
        """Return what `scheduling.judge` returns. Results are shared between calls: callers must not change them."""
        key = (id(rule_set), signature(cycle.pod))
        kept = self._kept.pop(key, None)
        answer = _again_in_time(kept, rule_set, cycle, rows) if kept is not None else None
        if kept is not None and answer is not None:
            self._kept[key] = kept._replace(snapshot=cycle.snapshot, answer=answer, again=kept.again + 1)
            return answer
        answer = judge(rule_set, cycle, rows)
        if not cycle.snapshot.nominated and not answer.missed:
            asked = [_Asked(column, rows) for column in answer.filters]
            self._kept[key] = _Kept(rule_set, cycle.snapshot, rows, answer, 0, asked)
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return answer


def _scope(made: Filter | Score) -> Scope:
    """Return the scope of a rule, if the rule can't distinguish identical Pods."""
    return Scope.CLUSTER if made.pod_paths or made.reads_now else made.scope


def _again_in_time(kept: _Kept, rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows) -> Answer | None:
    """Return what `_again` returns; None, too, when time was up meanwhile."""
    try:
        return _again(kept, rule_set, cycle, rows)
    except DeadlineError:
        return None


def _again(kept: _Kept, rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows) -> Answer | None:
    """Return the answer, based on an earlier one; None when it has to be computed anew."""
    if kept.rule_set is not rule_set or kept.again >= _MOST_IN_A_ROW or not _are_same(kept.rows, rows):
        return None
    changed = _changed(kept.snapshot, cycle.snapshot)
    if changed is None:
        return None
    small = _Small(cycle, kept, changed)
    if not small.is_feasible or not _filters_agree(small):
        return None
    answer = Answer.about(cycle.table, rows)
    answer.filters, answer.refusal, answer.refusals = kept.answer.filters, kept.answer.refusal, kept.answer.refusals
    answer.scored = kept.answer.scored
    _score(small, answer)
    return answer


def _are_same(one: Rows, other: Rows) -> bool:
    return one is other or np.array_equal(one, other)


def _changed(before: Snapshot, after: Snapshot) -> dict[str, NodeInfo] | None:
    """Return the nodes whose Pods changed; None when something else changed, too."""
    if (
        before.table.row_of is not after.table.row_of
        or before.namespaces is not after.namespaces
        or before.objects is not after.objects
        or before.nominated
        or after.nominated
    ):
        return None
    names = names_between(before.step, after.step)
    if names is None or len(names) > _MOST_CHANGED:
        return None
    changed: dict[str, NodeInfo] = {}
    for name in sorted(names):
        old, new = before.node(name), after.node(name)
        if old is None or new is None or old.node is not new.node:
            return None
        if old is not new:
            changed[name] = new
    return changed


class _Small:
    """The nodes that changed, as a Snapshot of their own, and their positions in the earlier answer."""

    def __init__(self, cycle: Cycle, kept: _Kept, changed: dict[str, NodeInfo]) -> None:
        self.whole = cycle
        self.kept = kept
        table = cycle.table
        asked = kept.rows
        # kube-scheduler names nodes in an order of its own, which a recorded Decision keeps.
        place_of = np.full(len(table), _NOWHERE, dtype=np.intp)
        place_of[asked] = np.arange(len(asked))
        found = ((int(place_of[table.row_of[name]]), info) for name, info in changed.items())
        among = sorted((place for place in found if place[0] != _NOWHERE), key=itemgetter(0))
        self.positions = np.array([position for position, _ in among], dtype=np.intp)
        snapshot = Snapshot(
            {info.name: info for _, info in among}, cycle.snapshot.namespaces, objects=cycle.snapshot.objects
        )
        self.cycle = Cycle(pod=cycle.pod, snapshot=snapshot, now=cycle.now, params=cycle.params)
        self.rows = snapshot.table.all_rows()

    @property
    def is_feasible(self) -> bool:
        """Whether all of them were feasible."""
        return bool((self.kept.answer.refusal[self.positions] == PASSED).all())


def _filters_agree(small: _Small) -> bool:
    """Return whether every filter gives the same results as before."""
    answer = small.kept.answer
    columns = zip(small.kept.rule_set.filters, answer.filters, small.kept.asked, strict=True)
    for (rule, made), column, asked in columns:
        if column.faults:
            return False
        if _scope(made) is Scope.NODE_AND_PODS and rule.mode == "enforce":
            if (made.filter(small.cycle, small.rows).codes != PASSED).any():
                return False
        elif _scope(made) is not Scope.NODE and not _says_the_same(made, small, column, asked):
            return False
    return True


def _says_the_same(made: Filter, small: _Small, column: FilterColumn, asked: _Asked) -> bool:
    verdicts = made.filter(small.whole, asked.rows)
    if verdicts.codes is asked.codes:
        return True  # the shared codes of a rule that passes all nodes
    if verdicts.faults or verdicts.statuses != column.statuses or not np.array_equal(verdicts.codes, asked.codes):
        return False
    asked.codes = verdicts.codes
    return True


def _score(small: _Small, answer: Answer) -> None:
    """Score as `decision.run_scores` does."""
    before = small.kept.answer
    at = np.searchsorted(answer.scored, small.positions)
    answer.totals = before.totals.copy()
    weights = 0
    for (rule, made), column in zip(small.kept.rule_set.scores, before.scores, strict=True):
        found = _column(made, small, column, at)
        answer.scores.append(found)
        if rule.mode == "enforce":
            weights += rule.weight
            if found.raw is not column.raw:
                answer.totals += rule.weight * (found.raw - column.raw)
    answer.points = to_points(answer.totals, weights)


def _column(made: Score, small: _Small, before: ScoreColumn, at: Rows) -> ScoreColumn:
    if _scope(made) is Scope.NODE or not len(before.raw):
        return before
    # Evaluation faults are counted over all nodes, so a rule that has any is evaluated on all of them.
    if _scope(made) is Scope.NODE_AND_PODS and not before.faults:
        given, faults = made.score_with_faults(small.cycle, small.rows) if len(small.rows) else (None, {})
        if given is None:
            return before
        if not faults:
            raw = before.raw.copy()
            raw[at] = given
            return ScoreColumn(before.rule, raw)
    whole, faults = made.score_with_faults(small.whole, small.kept.rows[small.kept.answer.scored])
    if whole is None:
        return before if not before.raw.any() else ScoreColumn(before.rule, np.zeros_like(before.raw), faults)
    return ScoreColumn(before.rule, whole, faults)
