"""One scheduling cycle: from a Pod, a Revision and a Snapshot to a node, or to the reason for none. Pure: time is an argument."""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from datetime import datetime

import msgspec
import numpy as np

from policies.engine.decision import NOT_IN_TIME, Answer, Choice, CompiledRevision, CompiledRuleSet, decide
from policies.engine.failures import Conditions, choose_fallback
from policies.engine.filters.node_resources import each_lacking
from policies.engine.objects.cluster_kinds import DISRUPTION_BUDGETS
from policies.engine.objects.node import Path
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.pauses import Suspension
from policies.engine.reuse import Judge
from policies.engine.rule import NAMESPACE, NODE, Cycle, Filter, go_on
from policies.engine.ruleset import Assignment
from policies.engine.scheduling import default_profile, judge, pick, with_default_filters
from policies.engine.status import PASSED, Code, Status
from policies.engine.time_rules import next_change

_NO_NODES = "no nodes available to schedule pods"
RESERVED = "node(s) are reserved for another scheduler"

# What preemption reads, whatever the rules are.
BUDGETS = frozenset({DISRUPTION_BUDGETS})

# The most rule sets that are cached beside the whole ones: variants without the rules that are suspended for a Pod.
_MOST_VARIANTS = 64

# The field that the kubelet rewrites at each heartbeat.
_HEARTBEAT: Path = ("status", "conditions")


class Judged(msgspec.Struct, frozen=True):
    """A rule set's answer for a Pod."""

    assignment: Assignment | None
    rule_set: CompiledRuleSet
    answer: Answer


class Placement(msgspec.Struct, kw_only=True):
    """The result of a cycle.

    Attributes:
        rows: the nodes that could be used, as rows of the Snapshot's table.
        enforced: the rule set that decided, with its answer; None when the rule set refuses to decide for now, see `refusal`.
        row: the row of the node that the Pod gets; -1 when there is none.
        refusal: why nothing was decided: a dependency is unavailable, and the rule set's choice for that case is to refuse.
        shadows: the rule sets to evaluate as well, wholly or partly in mode shadow, see `judge_shadow`.
        draws: the canaries' draws for the Pod, as in `Choice`.
        suspended_by: the suspensions of rules that would otherwise apply to the Pod.
        decision: the id under which the cycle is recorded; "" before it is.
    """

    pod: Pod
    snapshot: Snapshot
    revision: CompiledRevision
    rows: Rows
    now: datetime
    enforced: Judged | None = None
    row: int = -1
    refusal: Status | None = None
    shadows: list[tuple[Assignment, CompiledRuleSet]] = []
    draws: list[tuple[Assignment, int]] = []
    suspended_by: list[Suspension] = []
    decision: str = ""

    @property
    def node(self) -> str:
        """The node that the Pod gets; "" when there is none."""
        return self.snapshot.table.names[self.row] if self.row >= 0 else ""

    @property
    def node_uid(self) -> str:
        """The UID of that node: a later node may have the same name."""
        return self.snapshot.table.infos[self.row].node.parsed.metadata.uid if self.row >= 0 else ""


class Profile:
    """A Revision as this scheduler applies it: each rule set runs after the default set's filters. For one thread."""

    def __init__(self, revision: CompiledRevision) -> None:
        self.revision = revision
        self._with_default_filters: dict[Hashable, CompiledRuleSet] = {
            name: with_default_filters(rule_set) for name, rule_set in revision.rule_sets.items()
        }
        self._most_kept = len(revision.rule_sets) + len(revision.revision.assignments) + _MOST_VARIANTS
        self.reads = always_read() | revision.reads
        self.node_paths = _node_paths_of(revision)
        self._judge = Judge()

    def of(self, rule_set: CompiledRuleSet) -> CompiledRuleSet:
        """Return one of the Revision's rule sets with the default filters: the same object each time, while few are in use."""
        key = rule_set.key
        if key not in self._with_default_filters:  # with an Assignment's params, or without rules that are out of force
            while len(self._with_default_filters) >= self._most_kept:
                del self._with_default_filters[next(reversed(self._with_default_filters))]
            self._with_default_filters[key] = with_default_filters(rule_set)
        return self._with_default_filters[key]

    def counts_pods(self, pod: Pod, snapshot: Snapshot, now: datetime) -> bool:
        """Return whether filters that count Pods are enforced on a Pod."""
        enforced = self.revision.choose(pod, snapshot, now).enforced
        return enforced is not None and bool(enforced[1].only_counting().filters)

    def warm(self, pod: Pod, snapshot: Snapshot, *, now: datetime) -> None:
        """Make the columns that new rule sets read: otherwise the first decision on a big cluster takes seconds."""
        for rule_set in [default_profile(), *map(self.of, self.revision.to_warm)]:
            cycle = Cycle(pod=pod, snapshot=snapshot, now=now, params=rule_set.params)
            decide(rule_set, cycle, snapshot.table.all_rows(), whole=True)

    def place(  # noqa: PLR0913 - what it looks at, and how
        self,
        pod: Pod,
        snapshot: Snapshot,
        rows: Rows,
        *,
        now: datetime,
        after: str = "",
        conditions: Conditions | None = None,
        nominated: str = "",
        denied: Collection[str] = (),
        give_way: Callable[[], None] = go_on,
    ) -> Placement:
        """Decide on one Pod. Its nominated node is tried first; nodes that denied its binding are tried last.

        Args:
            pod: the Pod, with its JSON.
            snapshot: the cluster, with the Pods that are being bound on their nodes, and with `nominated`.
            rows: the nodes that may be used.
            now: the current time.
            after: the node that was picked last, see `pick`.
            conditions: the dependencies that are unavailable; None when all are available.
            nominated: the name of the Pod's nominated node; "" for none. As in kube-scheduler v1.36.3
                (schedule_one.go, evaluateNominatedNode).
            denied: the names of the nodes that denied the Pod's binding. kube-scheduler would go on trying the best of them.
            give_way: as for a Cycle. Where it ends a rule, the rule set's `failures.deadline` decides.
        """
        row_of = snapshot.table.row_of
        rest = rows[~np.isin(rows, [row_of.get(name, -1) for name in denied])] if denied else rows
        own = rest[rest == row_of.get(nominated, -1)]
        for some in (own, rest):
            if 0 < len(some) < len(rows):
                placement = self._place(pod, snapshot, some, give_way, now=now, after=after, conditions=conditions)
                if placement.row >= 0:
                    return placement
        return self._place(pod, snapshot, rows, give_way, now=now, after=after, conditions=conditions)

    def _place(
        self,
        pod: Pod,
        snapshot: Snapshot,
        rows: Rows,
        give_way: Callable[[], None],
        *,
        now: datetime,
        after: str,
        conditions: Conditions | None,
    ) -> Placement:
        choice = self.revision.choose(pod, snapshot, now)
        placement = Placement(
            pod=pod, snapshot=snapshot, revision=self.revision, rows=rows, now=now, draws=choice.draws
        )
        placement.suspended_by = choice.suspended_by
        assignment, rule_set = None, default_profile()
        if choice.enforced is not None:
            assignment, own = choice.enforced
            action, cause = choose_fallback(own.failures, conditions) if conditions else ("decide", "")
            if action == "refuse":
                placement.refusal = Status(Code.UNSCHEDULABLE, cause)
                return placement
            if action == "decide":
                rule_set = self.of(own).enforced
        cycle = Cycle(pod=pod, snapshot=snapshot, now=now, params=rule_set.params, give_way=give_way)
        answer = self._judge.judge(rule_set, cycle, rows)
        placement.enforced = Judged(assignment, rule_set, answer)
        position = pick(answer, cycle, rows, after=after, is_default_profile=rule_set is default_profile())
        if position is not None:
            placement.row = int(rows[position])
        placement.shadows = [(assignment, self.of(own)) for assignment, own in _shadows_of(choice, rule_set)]
        return placement


def _node_paths_of(revision: CompiledRevision) -> frozenset[Path]:
    """Return the node fields that enforced filters and victims rules read.

    Those that each heartbeat changes are left out: they would retry all Pods.
    """
    paths: set[Path] = set()
    for rule_set in revision.rule_sets.values():
        paths.update(*(made.node_paths for rule, made in rule_set.filters if rule.mode == "enforce"))
        paths.update(*(made.expression.reads["node"] for rule, made in rule_set.victims if rule.mode == "enforce"))
    return frozenset(path for path in paths if path[: len(_HEARTBEAT)] != _HEARTBEAT[: len(path)])


def _shadows_of(choice: Choice, decided: CompiledRuleSet) -> Iterable[tuple[Assignment, CompiledRuleSet]]:
    """Iterate over the rule sets to evaluate after a cycle: those in mode shadow, and the deciding one if it has shadow rules."""
    yield from choice.shadows
    if choice.enforced is None or decided is default_profile():
        return
    rule_set = choice.enforced[1]
    if rule_set.enforced is not rule_set:
        yield choice.enforced


def judge_shadow(
    placement: Placement, assignment: Assignment, rule_set: CompiledRuleSet, give_way: Callable[[], None]
) -> Judged:
    """Return what a rule set in mode shadow would have answered in this cycle. Takes as long as the rule set does."""
    cycle = Cycle(
        pod=placement.pod, snapshot=placement.snapshot, now=placement.now, params=rule_set.params, give_way=give_way
    )
    return Judged(assignment, rule_set, judge(rule_set, cycle, placement.rows))


def always_read() -> frozenset[str]:
    """Return the kinds of objects that every Revision reads, besides Nodes, Pods and Namespaces."""
    return default_profile().reads | BUDGETS


def requeued_by(placement: Placement) -> frozenset[str]:
    """Return the events that can help an unschedulable Pod: those of `rule`, kinds by name, and a recovered dependency."""
    # A label change on its Namespace may put the Pod under another Assignment.
    always = frozenset({NODE, NAMESPACE})
    if placement.refusal is not None:
        return always | {placement.refusal.reason}
    if placement.enforced is None:
        return always
    refusals = _refusals(placement.enforced)
    helping = [made.helped_by(refusals[key]) for key, made in _refusing(placement.enforced).items()]
    return always.union(*helping, *(made.requeued_by for made in _refusing_unasked(placement.enforced)))


def opens_at(placement: Placement) -> datetime | None:
    """Return when time alone may help an unschedulable Pod; None when it can't."""
    moments = [_rules_change_at(placement), placement.revision.suspensions_end_at(placement.now)]
    return min((moment for moment in moments if moment is not None), default=None)


def _rules_change_at(placement: Placement) -> datetime | None:
    if placement.enforced is None:
        return None
    rule_set = placement.enforced.rule_set
    rules = frozenset(key for key, made in _refusing(placement.enforced).items() if made.reads_now)
    if not rules:
        return None
    cycle = Cycle(pod=placement.pod, snapshot=placement.snapshot, now=placement.now, params=rule_set.params)
    return next_change(rule_set, cycle, placement.rows, rules=rules)


def message_of(placement: Placement) -> str:
    """Return why a Pod is unschedulable, as kube-scheduler v1.36.3 words it (framework/types.go, FitError.Error)."""
    total = len(placement.snapshot.table)
    if not total:
        return f"0/0 nodes are available: {_NO_NODES}."
    if placement.refusal is not None:
        counts = Counter({placement.refusal.reason: len(placement.rows)})
    else:
        counts = _counts_of(placement.enforced.answer) if placement.enforced else Counter()
    if len(placement.rows) < total:
        counts[RESERVED] += total - len(placement.rows)
    texts = sorted(f"{number} {reason}" for reason, number in counts.items())
    return f"0/{total} nodes are available: {', '.join(texts)}."


def _counts_of(answer: Answer) -> Counter[str]:
    counts: Counter[str] = Counter()
    numbers = np.bincount(answer.refusal[answer.refusal != PASSED], minlength=len(answer.refusals)).tolist()
    for status, number in zip(answer.refusals, numbers, strict=True):
        if number:
            for reason in each_lacking(status.reason):
                counts[reason] += number
    return counts


def _refusing(judged: Judged) -> dict[str, Filter]:
    """Return the enforced filters that refused any node, by their keys."""
    refusing = _refusals(judged)
    return {rule.key: made for rule, made in judged.rule_set.filters if rule.key in refusing}


def _refusing_unasked(judged: Judged) -> Iterable[Filter]:
    """Iterate over the enforced filters that weren't evaluated in time, if their nodes are refused for that."""
    if NOT_IN_TIME in judged.answer.refusals:
        missed = judged.answer.missed
        yield from (made for rule, made in judged.rule_set.filters if rule.mode == "enforce" and rule.key in missed)


def _refusals(judged: Judged) -> dict[str, list[Status]]:
    """Return what each enforced filter that refused any node refused nodes with, by its key."""
    found: dict[str, list[Status]] = {}
    for column in judged.answer.filters:
        codes = np.unique(column.codes[column.codes >= 0])
        if column.rule.mode == "enforce" and len(codes):
            found.setdefault(column.rule.key, []).extend(column.statuses[code] for code in codes)
    return found
