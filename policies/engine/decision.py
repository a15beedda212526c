"""Deciding: which nodes a Pod may use, and how good they are.

Everything here is a pure function of its arguments: the same input gives the same answer for the extender, the
binding loop, tests inside documents, simulation and replay.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policies.engine.cycle import Cycle, Filter, Score
from policies.engine.errors import Fault
from policies.engine.filters.expression import ExpressionFilter
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Numbers, Rows
from policies.engine.ruleset import Assignment, FilterRule, Match, Revision, RuleSet, RuleSetTest, ScoreRule
from policies.engine.scores.expression import ExpressionScore
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.engine.selectors import Labels, LabelSelector, Requirement, matches_labels
from policies.engine.status import PASSED, Status
from policies.engine.validation import make_builtin

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
"""What `now` is in a test that doesn't say."""

_MAX_POINTS = 10


class CompiledRuleSet:
    """A rule set ready to decide with. Rules that are off are left out; shadow ones are evaluated and don't count."""

    def __init__(self, rule_set: RuleSet) -> None:
        self.name = rule_set.name
        self.version = rule_set.version
        self.params = rule_set.spec.params
        self.filters: list[tuple[FilterRule, Filter]] = [
            (rule, _make_filter(rule)) for rule in rule_set.spec.filters if rule.mode != "off"
        ]
        self.scores: list[tuple[ScoreRule, Score]] = [
            (rule, _make_score(rule)) for rule in rule_set.spec.scores if rule.mode != "off"
        ]
        made: list[object] = [made for _, made in self.filters] + [made for _, made in self.scores]
        self.counts_pods = any(
            isinstance(rule, ExpressionFilter | ExpressionScore) and rule.expression.counts_pods for rule in made
        )
        """Whether an answer depends on Pods that were placed a moment ago."""
        self.reads = frozenset[str]().union(*(reads_of(rule) for rule in made))
        """The kinds of objects that the rules read besides Nodes, Pods and Namespaces."""


def reads_of(rule: object) -> frozenset[str]:
    """Give the kinds of objects that a rule reads besides Nodes, Pods and Namespaces: its `reads`, none without."""
    found: frozenset[str] = getattr(rule, "reads", frozenset())
    return found


def _make_filter(rule: FilterRule) -> Filter:
    made: Filter = make_builtin(BUILTIN_FILTERS, rule) if rule.builtin else ExpressionFilter(rule)
    return made


def _make_score(rule: ScoreRule) -> Score:
    made: Score = make_builtin(BUILTIN_SCORES, rule) if rule.builtin else ExpressionScore(rule)
    return made


NOT_EVALUATED = -2
"""Among the codes of a FilterColumn: the rule wasn't asked about the node, another one had refused it."""


class FilterColumn(NamedTuple):
    """What one filter rule said, in the order asked: `codes` as in Verdicts, or NOT_EVALUATED.

    `faults` says on how many nodes it could not be evaluated, by message.
    """

    rule: FilterRule
    codes: npt.NDArray[np.int32]
    statuses: list[Status]
    faults: Mapping[str, int] = {}

    def at(self, position: int) -> Status | None:
        """Give the status of one node; None for success and where the rule wasn't asked."""
        code = int(self.codes[position])
        return None if code < 0 else self.statuses[code]


class ScoreColumn(NamedTuple):
    """What one score rule gave, 0..100, beside `Answer.scored`."""

    rule: ScoreRule
    raw: Numbers
    faults: Mapping[str, int] = {}


class Answer:
    """The outcome for one Pod. `names` are the nodes in the order asked; the lists of positions refer to it.

    Attributes:
        filters: what each filter rule said.
        refusal: per node the enforced refusal, as a position in `refusals`; -1 where the node is feasible.
        refusals: the statuses of refusals, each once.
        scored: the positions that were scored.
        scores: what each score rule gave.
        totals: sum(weight x raw) beside `scored`: exact, what the binding loop ranks by.
        points: the same on the extender's scale, 0..10.
    """

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.filters: list[FilterColumn] = []
        self.refusal = np.full(len(names), PASSED, dtype=np.int32)
        self.refusals: list[Status] = []
        self.scored: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self.scores: list[ScoreColumn] = []
        self.totals: Numbers = np.empty(0, dtype=np.int64)
        self.points: Numbers = np.empty(0, dtype=np.int64)

    @property
    def feasible(self) -> list[str]:
        """The names of the nodes that no enforced rule refuses, in the order asked."""
        names = self.names
        return [names[position] for position in np.flatnonzero(self.refusal == PASSED).tolist()]

    @property
    def feasible_count(self) -> int:
        """How many nodes are feasible."""
        return int((self.refusal == PASSED).sum())

    def refused(self) -> Iterator[tuple[str, Status]]:
        """Give the refused nodes, in the order asked, each with its refusal."""
        for position in np.flatnonzero(self.refusal != PASSED).tolist():
            yield self.names[position], self.refusals[self.refusal[position]]

    @property
    def best(self) -> str:
        """The feasible node with the highest total; of equals the first by name. Empty when none was scored."""
        feasible = self.refusal[self.scored] == PASSED
        if not self.scores or not feasible.any():
            return ""
        highest = self.totals[feasible].max()
        best: list[int] = self.scored[feasible & (self.totals == highest)].tolist()
        return min(self.names[position] for position in best)

    def top_reason(self) -> str:
        """The reason that refused the most nodes; of equals the first by text. Empty when none was refused."""
        counts: Counter[str] = Counter()
        for code, number in enumerate(np.bincount(self.refusal[self.refusal != PASSED]).tolist()):
            counts[self.refusals[code].reason] += number
        return min(counts, key=lambda reason: (-counts[reason], reason)) if counts else ""


def decide(
    rule_set: CompiledRuleSet,
    cycle: Cycle,
    rows: Rows,
    *,
    filtering: bool = True,
    scoring: bool = True,
    whole: bool = False,
) -> Answer:
    """Filter the nodes, then score the feasible ones.

    Args:
        rule_set: the rules.
        cycle: the Pod, the Snapshot and the moment.
        rows: the nodes asked about, as rows of the Snapshot's table.
        filtering: False takes all nodes for feasible, as /prioritize does.
        scoring: False leaves the scores out.
        whole: evaluate every rule on every node, and score (and normalise over) all of them.

    Returns:
        The Answer, in the order of `rows`.
    """
    infos = cycle.table.infos
    answer = Answer([infos[row].name for row in rows.tolist()])
    if filtering:
        run_filters(rule_set, cycle, rows, answer, whole=whole)
    if scoring:
        answer.scored = np.arange(len(rows)) if whole else np.flatnonzero(answer.refusal == PASSED)
        run_scores(rule_set, cycle, rows[answer.scored], answer)
    return answer


def run_filters(rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows, answer: Answer, *, whole: bool = False) -> None:
    """Run the filters in order; a node that one has refused isn't asked about again unless `whole`."""
    remaining = np.arange(len(rows))
    for rule, made in rule_set.filters:
        verdicts = made.filter(cycle, rows[remaining])
        codes = np.full(len(rows), NOT_EVALUATED, dtype=np.int32)
        codes[remaining] = verdicts.codes
        answer.filters.append(FilterColumn(rule, codes, verdicts.statuses, verdicts.faults))
        if rule.mode != "enforce":
            continue
        newly = (codes >= 0) & (answer.refusal == PASSED)
        answer.refusal[newly] = codes[newly] + len(answer.refusals)
        answer.refusals += verdicts.statuses
        if not whole:
            remaining = np.flatnonzero(answer.refusal == PASSED)


def run_scores(rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows, answer: Answer) -> None:
    """Score these rows and add up: sum(weight x raw), and 0..10 rounded half up.

    A score that gives None (kube-scheduler's Skip) has nothing to say of this Pod: 0 for every node.
    """
    weights = 0
    answer.totals = np.zeros(len(rows), dtype=np.int64)
    for rule, made in rule_set.scores:
        faults: Mapping[str, int] = {}
        if isinstance(made, ExpressionScore):
            raw, faults = made.score_with_faults(cycle, rows)
        else:
            given = made.score(cycle, rows) if len(rows) else None
            raw = np.zeros(len(rows), dtype=np.int64) if given is None else given
        answer.scores.append(ScoreColumn(rule, raw, faults))
        if rule.mode == "enforce":
            weights += rule.weight
            answer.totals = answer.totals + rule.weight * raw
    answer.points = to_points(answer.totals, weights)


def to_points(totals: Numbers, weights: int) -> Numbers:
    """Give sum(weight x score) / sum(weight) as whole numbers 0..10, rounded half up. No weights: 0.

    A negative or absurd request can lead a built-in out of 0..100, as it does kube-scheduler's plugin (whose cycle fails
    then); what goes out is cut to 0..10.
    """
    scale = 100 // _MAX_POINTS * max(weights, 1)
    points = (2 * totals + scale) // (2 * scale) if weights else np.zeros_like(totals)
    return np.clip(points, 0, _MAX_POINTS)


class CompiledMatch:
    """An Assignment's match, ready to ask."""

    def __init__(self, match: Match) -> None:
        self._match = match
        self._pod_selector = _selector(match.pod_selector.match_labels, match.pod_selector.match_expressions)
        space = match.namespace_selector
        self._namespace_selector = _selector(space.match_labels, space.match_expressions)

    def takes(self, pod: Pod, namespace_labels: Labels) -> bool:
        """Tell whether everything that the match asks holds for the Pod."""
        return self.may_take(pod) and matches_labels(self._namespace_selector, namespace_labels)

    def may_take(self, pod: Pod) -> bool:
        """Tell the same without looking at the labels of the Pod's namespace."""
        match = self._match
        return (
            (not match.scheduler_names or (pod.spec.scheduler_name or "default-scheduler") in match.scheduler_names)
            and (not match.namespaces or pod.namespace in match.namespaces)
            and (not match.priority_class_names or pod.spec.priority_class_name in match.priority_class_names)
            and matches_labels(self._pod_selector, pod.labels)
        )


def _selector(labels: dict[str, str], expressions: list[dict[str, Any]]) -> LabelSelector:
    return LabelSelector(match_labels=labels, match_expressions=[Requirement(**entry) for entry in expressions])


class Choice:
    """What applies to a Pod: the enforced Assignment with its rule set, and the shadow ones before it."""

    def __init__(self) -> None:
        self.enforced: tuple[Assignment, CompiledRuleSet] | None = None
        self.shadows: list[tuple[Assignment, CompiledRuleSet]] = []


class CompiledRevision:
    """A Revision ready to decide with. It never changes: a process swaps the whole of it.

    Raises:
        ExpressionError, msgspec.ValidationError: a rule can't be compiled (written by a newer Berth).
        KeyError: an Assignment names a rule set that isn't in the Revision.
    """

    def __init__(self, revision: Revision) -> None:
        self.revision = revision
        self.number = revision.number
        self.rule_sets = {rule_set.name: CompiledRuleSet(rule_set) for rule_set in revision.rule_sets}
        self.counts_pods = any(rule_set.counts_pods for rule_set in self.rule_sets.values())
        self.reads = frozenset[str]().union(*(rule_set.reads for rule_set in self.rule_sets.values()))
        ordered = sorted(revision.assignments, key=lambda assignment: (assignment.order, assignment.name))
        self._assignments = [
            (assignment, CompiledMatch(assignment.match), self.rule_sets[assignment.rule_set]) for assignment in ordered
        ]

    def choose(self, pod: Pod, snapshot: Snapshot) -> Choice:
        """Find what applies to a Pod: the first Assignment in order that takes it; shadow ones don't end the search."""
        choice = Choice()
        namespace_labels = snapshot.namespace_labels(pod.namespace)
        for assignment, match, rule_set in self._assignments:
            if not match.takes(pod, namespace_labels):
                continue
            if assignment.mode == "enforce":
                choice.enforced = (assignment, rule_set)
                break
            choice.shadows.append((assignment, rule_set))
        return choice

    def may_take(self, pod: Pod) -> bool:
        """Tell whether any Assignment takes the Pod, whatever the labels of its namespace."""
        return any(match.may_take(pod) for _, match, _ in self._assignments)


def run_tests(rule_set: RuleSet) -> list[Fault]:
    """Run the tests inside a rule set. Gives a fault for each expectation that isn't met; empty when all hold."""
    compiled = CompiledRuleSet(rule_set)
    faults: list[Fault] = []
    for index, test in enumerate(rule_set.spec.tests):
        answer = _run_test(compiled, test)
        faults += [
            Fault(f"spec.tests[{index}].expect.{member}", f"{test.name}: expected {expected!r}, got {found!r}")
            for member, expected, found in _compare(test, answer)
        ]
    return faults


def _run_test(compiled: CompiledRuleSet, test: RuleSetTest) -> Answer:
    snapshot = Snapshot.of(map(Node.from_json, test.nodes), map(Pod.from_json, test.pods))
    now = datetime.fromisoformat(test.now) if test.now else EPOCH
    cycle = Cycle(pod=Pod.from_json(test.pod), snapshot=snapshot, now=now, params=compiled.params)
    return decide(compiled, cycle, snapshot.table.all_rows())


def _compare(test: RuleSetTest, answer: Answer) -> list[tuple[str, object, object]]:
    expect = test.expect
    differences: list[tuple[str, object, object]] = []
    if expect.feasible is not None and sorted(expect.feasible) != sorted(answer.feasible):
        differences.append(("feasible", sorted(expect.feasible), sorted(answer.feasible)))
    if expect.best is not None and expect.best != answer.best:
        differences.append(("best", expect.best, answer.best))
    reasons = {name: status.reason for name, status in answer.refused()}
    for name, reason in (expect.reasons or {}).items():
        if reasons.get(name) != reason:
            differences.append((f"reasons.{name}", reason, reasons.get(name, "feasible")))
    return differences
