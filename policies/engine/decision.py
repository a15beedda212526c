"""Deciding: which nodes a Pod may use, and how good they are.

Everything here is a pure function of its arguments: the same input gives the same answer for the extender, the
binding loop, tests inside documents, simulation and replay.
"""

import copy
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.assignments import FILED_TOGETHER, MatchIndex
from policies.engine.cel import TOO_LARGE
from policies.engine.errors import DeadlineError, ExpressionError, Fault
from policies.engine.filters.expression import ExpressionFilter
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects.namespace import Namespace
from policies.engine.objects.node import Node
from policies.engine.objects.owners import draw, owner_kinds_of
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Numbers, Rows, Table
from policies.engine.params import key_of, overridden
from policies.engine.pauses import OutOfForce, Suspension, Suspensions
from policies.engine.rule import Cycle, Filter, Score
from policies.engine.ruleset import (
    Assignment,
    Failures,
    FilterRule,
    LabelMatch,
    Match,
    Revision,
    RuleSet,
    RuleSetTest,
    ScoreRule,
    VictimRule,
    encode,
)
from policies.engine.scores.expression import ExpressionScore
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.engine.selectors import Labels, LabelSelector, Requirement, matches_labels
from policies.engine.status import PASSED, Code, Status, Verdicts
from policies.engine.validation import make_builtin
from policies.engine.victims import CompiledVictimRule, protected_pods

# The `now` of a test that doesn't set it.
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

# The refusal of nodes that rules had not evaluated when the deadline passed.
NOT_IN_TIME = Status(Code.ERROR, "rules could not be evaluated in time")

_MAX_POINTS = 10

# Variants of a rule set, each without the rules that are out of force for a Pod. Pod labels select the variant, so their number
# needs a limit.
_MOST_VARIANTS = 64
# Params of Assignments whose columns are made before a Revision is served: each takes up to a tenth of a second on 5,000 nodes.
_MOST_WARMED = 32


class CompiledRuleSet:
    """A compiled rule set. Rules that are off are left out; shadow rules are evaluated, but don't count.

    Attributes:
        params: the value that expressions see as `params`.
        overrides: the params that an Assignment set; empty where all are the rule set's own.
        key: distinguishes it, within a Revision, from the same rule set with other params.
        counts_pods: whether an answer depends on Pods that were placed a moment ago.
        reads: the kinds of objects that the rules read besides Nodes, Pods and Namespaces.
        joins_params: whether its columns of nodes depend on params.
    """

    def __init__(self, rule_set: RuleSet) -> None:
        self.name = rule_set.name
        self.version = rule_set.version
        self.source = rule_set
        self.params: Mapping[str, Any] = rule_set.spec.params
        self.overrides: Mapping[str, Any] = {}
        self.key: Hashable = rule_set.name
        self.failures = rule_set.spec.failures
        self.victims: list[tuple[VictimRule, CompiledVictimRule]] = [
            (rule, CompiledVictimRule(rule, self.failures)) for rule in rule_set.spec.victims if rule.mode != "off"
        ]
        self.take(
            [(rule, _make_filter(rule, self.failures)) for rule in rule_set.spec.filters if rule.mode != "off"],
            [(rule, _make_score(rule)) for rule in rule_set.spec.scores if rule.mode != "off"],
        )

    def take(self, filters: Sequence[tuple[FilterRule, Filter]], scores: Sequence[tuple[ScoreRule, Score]]) -> None:
        """Use these filters and scores from now on."""
        self.filters, self.scores = list(filters), list(scores)
        made: list[Filter | Score] = [*(made for _, made in filters), *(made for _, made in scores)]
        self.counts_pods = any(rule.counts_pods for rule in made)
        self.reads = frozenset[str]().union(*(rule.reads for rule in made))
        self.joins_params = any(rule.joins_params for rule in made)
        # Whether any of the filters, and whether any of the scores, is in mode shadow.
        self._shadows = tuple(any(rule.mode == "shadow" for rule, _ in rules) for rules in (filters, scores))
        # Its variants without some rules, by key.
        self._left: dict[Hashable, CompiledRuleSet] = {}
        self._enforced: CompiledRuleSet | None = None
        if any(self._shadows):
            self._enforced = copy.copy(self)
            self._enforced.take(
                [(rule, made) for rule, made in filters if rule.mode == "enforce"],
                [(rule, made) for rule, made in scores if rule.mode == "enforce"],
            )

    def with_params(self, overrides: Mapping[str, Any]) -> "CompiledRuleSet":
        """Return the rule set with other params in place of some of its own. The compiled rules are shared."""
        found = copy.copy(self)
        found.overrides = overrides
        found.params = overridden(self.params, overrides)
        found.key = key_of(self.name, overrides)
        if self._enforced is not None:
            found._enforced = self._enforced.with_params(overrides)  # noqa: SLF001 - its own kind
        return found

    @property
    def enforced(self) -> "CompiledRuleSet":
        """The rule set without filters and scores in mode shadow: the rules that decide the answer."""
        return self._enforced or self

    def has_shadows(self, *, scoring: bool) -> bool:
        """Return whether any of its scores, or else of its filters, is in mode shadow."""
        return self._shadows[scoring]

    def without(self, keys: Collection[str]) -> "CompiledRuleSet":
        """Return the rule set without the rules of these names; the same object for the same ones, as long as few are asked for."""
        out = frozenset(key for key in keys if key in self.keys())
        if not out:
            return self
        key = (self.key, out)
        found = self._left.get(key)
        if found is None:
            found = copy.copy(self)
            found.key = key
            found.victims = [(rule, made) for rule, made in self.victims if rule.key not in out]
            found.take(
                [(rule, made) for rule, made in self.filters if rule.key not in out],
                [(rule, made) for rule, made in self.scores if rule.key not in out],
            )
            # All at once: threads share them, and what one would pick to drop, another may have dropped meanwhile.
            if len(self._left) >= _MOST_VARIANTS:
                self._left.clear()
            self._left[key] = found
        return found

    def keys(self) -> set[str]:
        """Return the names of its rules."""
        return {rule.key for rules in (self.filters, self.scores, self.victims) for rule, _ in rules}

    def only_counting(self) -> "CompiledRuleSet":
        """Return the rule set with nothing but its enforced filters that count Pods: they are evaluated again at binding."""
        counting = copy.copy(self)
        counting.take([(rule, made) for rule, made in self.filters if rule.mode == "enforce" and made.counts_pods], [])
        return counting


def _make_filter(rule: FilterRule, failures: Failures) -> Filter:
    return make_builtin(BUILTIN_FILTERS, rule) if rule.builtin else ExpressionFilter(rule, failures)


def _make_score(rule: ScoreRule) -> Score:
    return make_builtin(BUILTIN_SCORES, rule) if rule.builtin else ExpressionScore(rule)


# A code of FilterColumn: the rule wasn't evaluated on the node, since another rule had refused it.
NOT_EVALUATED = -2


class FilterColumn(NamedTuple):
    """What one filter rule said, in the order asked: `codes` as in Verdicts, or NOT_EVALUATED.

    `faults` says on how many nodes it could not be evaluated, by message. `is_silent` says that it passed every node that no
    earlier rule had refused, so its codes follow from theirs.
    """

    rule: FilterRule
    codes: npt.NDArray[np.int32]
    statuses: list[Status]
    faults: Mapping[str, int] = {}
    is_silent: bool = False

    def at(self, position: int) -> Status | None:
        """Return the status of one node; None for success and where the rule wasn't evaluated."""
        code = int(self.codes[position])
        return None if code < 0 else self.statuses[code]


class ScoreColumn(NamedTuple):
    """What one score rule gave, 0..100, beside `Answer.scored`."""

    rule: ScoreRule
    raw: Numbers
    faults: Mapping[str, int] = {}


class Answer:
    """The outcome for one Pod: positions refer to the nodes in the order asked.

    Args:
        names: the names of the nodes.
        rows: which of `names` were asked about, in which order. None for all of them in their own order.

    Attributes:
        filters: the result of each filter rule.
        refusal: per node the enforced refusal, as a position in `refusals`; -1 where the node is feasible.
        refusals: the statuses of the rules that refused a node.
        scored: the positions that were scored.
        scores: the result of each score rule.
        totals: sum(weight x raw) beside `scored`: exact, what the binding loop ranks by.
        points: the same on the extender's scale, 0..10.
        missed: the names of the rules, filters first, that weren't evaluated before the deadline.
    """

    def __init__(self, names: Sequence[str], rows: Rows | None = None) -> None:
        self._names = names
        self._rows = rows
        self.filters: list[FilterColumn] = []
        self.refusal = np.full(len(names) if rows is None else len(rows), PASSED, dtype=np.int32)
        self.refusals: list[Status] = []
        self.scored: npt.NDArray[np.intp] = np.empty(0, dtype=np.intp)
        self.scores: list[ScoreColumn] = []
        self.totals: Numbers = np.empty(0, dtype=np.int64)
        self.points: Numbers = np.empty(0, dtype=np.int64)
        self.missed: list[str] = []

    @property
    def timed_out(self) -> bool:
        """Whether the deadline passed before every rule was evaluated."""
        return bool(self.missed)

    @property
    def met_too_large(self) -> bool:
        """Whether the Pod or a node was too large for a rule to be evaluated."""
        columns: list[FilterColumn | ScoreColumn] = [*self.filters, *self.scores]
        return any(TOO_LARGE in message for column in columns for message in column.faults)

    @classmethod
    def about(cls, table: Table, rows: Rows) -> "Answer":
        """Make an empty answer about some rows of a table."""
        return cls(table.names, None if rows is table.all_rows() else rows)

    @cached_property
    def names(self) -> list[str]:
        """The nodes in the order asked. The list is made on first use: on a big cluster that takes longer than a rule."""
        return list(self._names) if self._rows is None else self._named(np.arange(len(self._rows)))

    def name_at(self, position: int) -> str:
        """Return the name of one node."""
        return self._names[position if self._rows is None else int(self._rows[position])]

    def _named(self, positions: npt.NDArray[np.intp]) -> list[str]:
        names = self._names
        rows = positions if self._rows is None else self._rows[positions]
        return [names[row] for row in rows.tolist()]

    @property
    def feasible(self) -> list[str]:
        """The names of the nodes that no enforced rule refuses, in the order asked."""
        return self._named(np.flatnonzero(self.refusal == PASSED))

    @property
    def feasible_count(self) -> int:
        """How many nodes are feasible."""
        return int(np.add.reduce(self.refusal == PASSED))

    def refused(self) -> Iterator[tuple[str, Status]]:
        """Iterate over the refused nodes, in the order asked, each with its refusal."""
        positions = np.flatnonzero(self.refusal != PASSED)
        for name, code in zip(self._named(positions), self.refusal[positions].tolist(), strict=True):
            yield name, self.refusals[code]

    @cached_property
    def are_best(self) -> npt.NDArray[np.bool_]:
        """Whether no other node has more points, for each node that was scored. There must be one."""
        return np.asarray(self.points == np.maximum.reduce(self.points))

    @property
    def is_ranked(self) -> bool:
        """Whether any score counts: those in mode shadow don't."""
        return any(column.rule.mode == "enforce" for column in self.scores)

    @property
    def best(self) -> str:
        """The feasible node with the highest total; of equals the first by name. Empty when none was scored, or no score counts."""
        feasible = self.refusal[self.scored] == PASSED
        if not self.is_ranked or not feasible.any():
            return ""
        highest = self.totals[feasible].max()
        return min(self._named(self.scored[feasible & (self.totals == highest)]))

    def top_reason(self) -> str:
        """Return the reason that refused the most nodes; of equals the first by text. Empty when none was refused."""
        if len(self.refusals) == 1:
            return self.refusals[0].reason if np.logical_or.reduce(self.refusal != PASSED) else ""
        counts: dict[str, int] = {}
        for code, number in enumerate(np.bincount(self.refusal[self.refusal != PASSED]).tolist()):
            if number:
                reason = self.refusals[code].reason
                counts[reason] = counts.get(reason, 0) + number
        return min(counts, key=lambda reason: (-counts[reason], reason)) if counts else ""


def decide(
    rule_set: CompiledRuleSet,
    cycle: Cycle,
    rows: Rows,
    *,
    filtering: bool = True,
    scoring: bool = True,
    whole: bool = False,
    deadline: Callable[[], bool] | None = None,
) -> Answer:
    """Filter the nodes, then score the feasible ones.

    Args:
        rule_set: the rules.
        cycle: the Pod, the Snapshot and the moment.
        rows: the nodes asked about, as rows of the Snapshot's table.
        filtering: False takes all nodes for feasible, as /prioritize does.
        scoring: False leaves the scores out.
        whole: evaluate every rule on every node, and score (and normalise over) all of them.
        deadline: says whether time is up. It is called once before each rule, until it returns true. The rule set's
            `failures.deadline` then decides on nodes that an enforced filter has not evaluated, and scores that were not
            evaluated count 0. A rule inside which the cycle's `give_way` raises DeadlineError counts as not evaluated.

    Returns:
        The Answer, in the order of `rows`.
    """
    answer = Answer.about(cycle.table, rows)
    if filtering:
        run_filters(rule_set, cycle, rows, answer, whole=whole, deadline=deadline)
    if scoring:
        answer.scored = np.arange(len(rows)) if whole or not filtering else (answer.refusal == PASSED).nonzero()[0]
        scored = rows if len(answer.scored) == len(rows) else rows[answer.scored]
        run_scores(rule_set, cycle, scored, answer, deadline=deadline)
    return answer


def stop_before(number: int) -> Callable[[], bool]:
    """Return a deadline that passes after so many rules: with it a replay stops where the Decision did."""
    left = iter(range(number))
    return lambda: next(left, None) is None


def _is_up(deadline: Callable[[], bool] | None, answer: Answer) -> bool:
    return deadline is not None and (answer.timed_out or deadline())


def run_filters(
    rule_set: CompiledRuleSet,
    cycle: Cycle,
    rows: Rows,
    answer: Answer,
    *,
    whole: bool = False,
    deadline: Callable[[], bool] | None = None,
) -> None:
    """Run the filters in order; a node that one has refused isn't asked about again unless `whole`."""
    remaining: Rows | None = None  # all
    asked = rows
    all_pass: npt.NDArray[np.int32] | None = None  # the codes of a rule that passes all the remaining nodes
    for index, (rule, made) in enumerate(rule_set.filters):
        verdicts = None if deadline is not None and deadline() else _filtered(made, cycle, asked)
        if verdicts is None:
            _miss_filters(rule_set, index, answer)
            return
        codes = verdicts.codes
        if remaining is not None:
            if not verdicts.all_pass:
                codes = _spread(codes, remaining, len(rows))
            elif all_pass is None:
                codes = all_pass = _spread(codes, remaining, len(rows))
            else:
                codes = all_pass
        is_silent = verdicts.all_pass and not whole
        answer.filters.append(FilterColumn(rule, codes, verdicts.statuses, verdicts.faults, is_silent))
        if verdicts.all_pass or rule.mode != "enforce":
            continue
        if not (verdicts.statuses and np.logical_or.reduce(verdicts.codes != PASSED)):
            continue
        before = len(answer.refusals)
        answer.refusals += verdicts.statuses
        newly = codes >= 0
        if whole:
            newly &= answer.refusal == PASSED
        answer.refusal[newly] = codes[newly] + before
        if not whole:
            remaining = (answer.refusal == PASSED).nonzero()[0]
            asked = rows[remaining]
            all_pass = None


def _filtered(made: Filter, cycle: Cycle, rows: Rows) -> Verdicts | None:
    """Evaluate a filter; None when time was up before it had ended."""
    try:
        cycle.give_way()
        return made.filter(cycle, rows)
    except DeadlineError:
        return None


def _spread(codes: npt.NDArray[np.int32], remaining: Rows, size: int) -> npt.NDArray[np.int32]:
    """Return the codes of the evaluated nodes, spread to their places among all nodes. Callers must not write to them."""
    spread = np.full(size, NOT_EVALUATED, dtype=np.int32)
    spread[remaining] = codes
    spread.flags.writeable = False
    return spread


def _miss_filters(rule_set: CompiledRuleSet, index: int, answer: Answer) -> None:
    """Leave out the filters from this one on. Where an enforced one is left out, `failures` decides whether the nodes pass."""
    missed = [rule for rule, _ in rule_set.filters[index:]]
    unasked = np.full(len(answer.refusal), NOT_EVALUATED, dtype=np.int32)
    answer.filters += [FilterColumn(rule, unasked, []) for rule in missed]
    answer.missed += [rule.key for rule in missed]
    if rule_set.failures.deadline == "refuse" and any(rule.mode == "enforce" for rule in missed):
        answer.refusal[answer.refusal == PASSED] = len(answer.refusals)
        answer.refusals.append(NOT_IN_TIME)


def run_scores(
    rule_set: CompiledRuleSet,
    cycle: Cycle,
    rows: Rows,
    answer: Answer,
    *,
    deadline: Callable[[], bool] | None = None,
) -> None:
    """Score these rows and add up: sum(weight x raw), and 0..10 rounded half up.

    A score that gives None (kube-scheduler's Skip) has nothing to say of this Pod: 0 for every node.
    """
    weights = 0
    answer.totals = np.zeros(len(rows), dtype=np.int64)
    nothing = np.zeros(len(rows), dtype=np.int64)
    nothing.flags.writeable = False
    for rule, made in rule_set.scores:
        found = None if _is_up(deadline, answer) else _scored(made, cycle, rows)
        if found is None:
            answer.missed.append(rule.key)
        given, faults = found or (None, {})
        raw = nothing if given is None else given
        answer.scores.append(ScoreColumn(rule, raw, faults))
        if rule.mode == "enforce":
            weights += rule.weight
            if raw is not nothing:
                answer.totals += rule.weight * raw
    answer.points = to_points(answer.totals, weights)


def _scored(made: Score, cycle: Cycle, rows: Rows) -> tuple[Numbers | None, Mapping[str, int]] | None:
    """Evaluate a score; None when time was up before it had ended."""
    try:
        cycle.give_way()
        return made.score_with_faults(cycle, rows) if len(rows) else (None, {})
    except DeadlineError:
        return None


def to_points(totals: Numbers, weights: int) -> Numbers:
    """Return sum(weight x score) / sum(weight) as whole numbers 0..10, rounded half up. No weights: 0.

    A negative or absurd request can take a built-in's score out of 0..100. kube-scheduler's plugin does the same, and its
    cycle then fails; here the result is clamped to 0..10.
    """
    scale = 100 // _MAX_POINTS * max(weights, 1)
    points = (2 * totals + scale) // (2 * scale) if weights else np.zeros_like(totals)
    return np.minimum(np.maximum(points, 0), _MAX_POINTS)  # np.clip takes five times as long to begin


class CompiledMatch:
    """An Assignment's match, compiled."""

    def __init__(self, match: Match) -> None:
        self._match = match
        self._pod_selector = _selector(match.pod_selector.match_labels, match.pod_selector.match_expressions)
        space = match.namespace_selector
        self._namespace_selector = _selector(space.match_labels, space.match_expressions)

    def takes(self, pod: Pod, namespace_labels: Labels) -> bool:
        """Return whether the Pod meets every requirement of the match."""
        return self.may_take(pod) and matches_labels(self._namespace_selector, namespace_labels)

    def may_take(self, pod: Pod) -> bool:
        """Return whether the Pod meets the requirements on the Pod itself; those on its namespace's labels aren't evaluated."""
        match = self._match
        return (
            (not match.scheduler_names or (pod.spec.scheduler_name or "default-scheduler") in match.scheduler_names)
            and (not match.namespaces or pod.namespace in match.namespaces)
            and (not match.priority_class_names or pod.spec.priority_class_name in match.priority_class_names)
            and (not match.owner_kinds or any(kind in match.owner_kinds for kind in owner_kinds_of(pod)))
            and matches_labels(self._pod_selector, pod.labels)
        )


def _selector(labels: dict[str, str], expressions: list[dict[str, Any]]) -> LabelSelector:
    return LabelSelector(match_labels=labels, match_expressions=[Requirement(**entry) for entry in expressions])


class Choice:
    """What applies to a Pod: the enforced Assignment with its rule set, and the shadow ones before it.

    `taken_by` is the Assignment whose turn it is, also where a Pause or an Exemption leaves it no rule set to enforce.
    `draws` are those of mode canary that match it, each with the number that its workload drew there.
    `suspended_by` is what has any of it out of force: the rule sets are without the rules that are.
    """

    def __init__(self) -> None:
        self.enforced: tuple[Assignment, CompiledRuleSet] | None = None
        self.taken_by: Assignment | None = None
        self.shadows: list[tuple[Assignment, CompiledRuleSet]] = []
        self.draws: list[tuple[Assignment, int]] = []
        self.suspended_by: list[Suspension] = []

    def left_of(self, assignment: Assignment, rule_set: CompiledRuleSet, out: OutOfForce) -> CompiledRuleSet | None:
        """Return what is left of a rule set, noting why it isn't all; None where nothing of it is in force."""
        if (found := out.rule_set(assignment.rule_set)) is not None:
            self.suspended_by.append(found)
            return None
        rules = out.rules(assignment.rule_set)
        left = rule_set.without(rules)
        if left is not rule_set:
            keys = rule_set.keys()
            self.suspended_by += [each for key, each in rules.items() if key in keys and each not in self.suspended_by]
        return left


class FiledAssignments:
    """The Assignments of a Revision in their order, compiled. The next Revision shares them where none changes."""

    def __init__(self, ordered: list[Assignment], pause: Callable[[], None]) -> None:
        self._ordered = ordered
        self._matches: list[CompiledMatch] = []
        for number, assignment in enumerate(ordered):
            if number % FILED_TOGETHER == 0:
                pause()
            self._matches.append(CompiledMatch(assignment.match))
        self._index = MatchIndex([assignment.match for assignment in ordered], pause)

    def holds(self, ordered: list[Assignment]) -> bool:
        """Return whether these are the Assignments, the very objects or equal ones."""
        return self._ordered == ordered

    def taking(self, pod: Pod, namespace_labels: Labels) -> Iterator[Assignment]:
        """Iterate, in order, over the Assignments that take the Pod."""
        for position in self._index.candidates(pod, namespace_labels):
            if self._matches[position].takes(pod, namespace_labels):
                yield self._ordered[position]

    def able_to_take(self, pod: Pod) -> list[Assignment]:
        """Return, in order, the Assignments that take the Pod with some labels of its namespace."""
        pairs = zip(self._ordered, self._matches, strict=True)
        return [assignment for assignment, match in pairs if match.may_take(pod)]


def _compiled(rule_set: RuleSet) -> CompiledRuleSet:
    """Compile a rule set. The message of a fault names the rule set, since the message may stand in a log."""
    try:
        return CompiledRuleSet(rule_set)
    except (ExpressionError, msgspec.ValidationError, KeyError) as error:
        message = f"rule set {rule_set.name}: {error}"
        raise ExpressionError(message) from error


class CompiledRevision:
    """A compiled Revision. It never changes: a process replaces it as a whole.

    Raises:
        ExpressionError: a rule can't be compiled (written by a newer Berth); names the rule set.
        KeyError: an Assignment names a rule set that isn't in the Revision.
    """

    def __init__(
        self,
        revision: Revision,
        *,
        former: "CompiledRevision | None" = None,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """Compile what changed since a former Revision.

        Args:
            revision: what is published.
            former: the Revision before; its compiled rule sets and Assignments are reused where they haven't changed.
            pause: called after each rule set that was compiled, and now and then while Assignments are filed.
        """
        self.revision = revision
        self.number = revision.number
        known = former.rule_sets if former else {}
        self.rule_sets: dict[str, CompiledRuleSet] = {}
        # Rule sets that haven't decided yet and need columns of their own: new ones, and those with new params.
        self.to_warm: list[CompiledRuleSet] = []
        for rule_set in revision.rule_sets:
            found = known.get(rule_set.name)
            if found is None or (found.source is not rule_set and found.source != rule_set):
                found = _compiled(rule_set)
                self.to_warm.append(found)
                pause()
            self.rule_sets[rule_set.name] = found
        # Rule sets with the params of Assignments: one for all Assignments that set the same params.
        self._variants: dict[Hashable, CompiledRuleSet] = {}
        self._given: dict[str, CompiledRuleSet] = {}
        self.reads = frozenset[str]().union(*(rule_set.reads for rule_set in self.rule_sets.values()))
        ordered = sorted(revision.assignments, key=lambda assignment: (assignment.order, assignment.name))
        for assignment in ordered:
            if assignment.rule_set not in self.rule_sets:
                raise KeyError(assignment.rule_set)
            if assignment.params:
                self._given[assignment.name] = self._variant(assignment, former)
        filed: FiledAssignments | None = former.filed if former else None
        self.filed: FiledAssignments = filed if filed and filed.holds(ordered) else FiledAssignments(ordered, pause)
        has_suspensions = revision.pauses or revision.exemptions
        self.suspensions = Suspensions(revision.pauses, revision.exemptions) if has_suspensions else None

    @cached_property
    def digest(self) -> str:
        """The digest that the Revision is stored under; for one that isn't stored, the digest of its document."""
        return self.revision.digest or sha256(encode(self.revision)).hexdigest()

    def choose(self, pod: Pod, snapshot: Snapshot, now: datetime) -> Choice:
        """Find what applies to a Pod: the first Assignment in order that takes it; shadow ones don't end the search.

        `now` is the moment that rules see: it decides which Pauses and Exemptions are in force.
        """
        return self._choose(self.filed.taking(pod, snapshot.namespace_labels(pod.namespace)), pod, now)

    def possible(self, pod: Pod, now: datetime) -> list[tuple[Assignment, CompiledRuleSet] | None]:
        """Return all that can be enforced on a Pod while the labels of its namespace aren't known; None stands for no rules."""
        able, found = self.filed.able_to_take(pod), []
        while True:
            choice = self._choose(able, pod, now)
            found.append(choice.enforced)
            if choice.taken_by is None or choice.taken_by.match.namespace_selector == LabelMatch():
                return found
            able = able[able.index(choice.taken_by) + 1 :]

    def _choose(self, taking: Iterable[Assignment], pod: Pod, now: datetime) -> Choice:
        choice = Choice()
        out = self.suspensions.of(pod, now) if self.suspensions else None
        if out is not None and (everything := out.everything()) is not None:
            choice.suspended_by.append(everything)
            return choice
        for assignment in taking:
            if out is not None and (paused := out.assignment(assignment.name)) is not None:
                choice.suspended_by.append(paused)
                continue
            if assignment.mode == "canary":
                drawn = draw(assignment.name, pod)
                choice.draws.append((assignment, drawn))
                if drawn >= assignment.percent:
                    continue
            whole = self._given.get(assignment.name) or self.rule_sets[assignment.rule_set]
            rule_set = choice.left_of(assignment, whole, out) if out else whole
            found = (assignment, rule_set) if rule_set is not None else None
            if assignment.mode != "shadow":
                choice.enforced, choice.taken_by = found, assignment
                break
            choice.shadows += [found] if found else []
        return choice

    def suspensions_end_at(self, after: datetime) -> datetime | None:
        """Return when the next Pause or Exemption ends by itself; None when none does."""
        return self.suspensions.next_end(after) if self.suspensions else None

    def _variant(self, assignment: Assignment, former: "CompiledRevision | None") -> CompiledRuleSet:
        key, rule_set = key_of(assignment.rule_set, assignment.params), self.rule_sets[assignment.rule_set]
        if key not in self._variants:
            known = former._variants.get(key) if former else None  # noqa: SLF001 - its own kind
            # The same object where nothing changed: callers tell by its identity that earlier answers still hold.
            is_same = known is not None and known.source is rule_set.source
            self._variants[key] = known if known and is_same else rule_set.with_params(assignment.params)
            if not is_same and rule_set.joins_params and len(self._variants) <= _MOST_WARMED:
                self.to_warm.append(self._variants[key])
        return self._variants[key]


def run_tests(rule_set: RuleSet) -> list[Fault]:
    """Run the tests inside a rule set. Returns a fault for each expectation that isn't met; empty when all hold."""
    if not rule_set.spec.tests:
        return []
    compiled = CompiledRuleSet(rule_set)
    faults: list[Fault] = []
    for index, test in enumerate(rule_set.spec.tests):
        cycle = _cycle_of(compiled, test)
        answer = decide(compiled, cycle, cycle.table.all_rows())
        faults += [
            Fault(f"spec.tests[{index}].expect.{member}", f"{test.name}: {said}")
            for member, said in [*_compare(test, answer), *_compare_protected(compiled, cycle, test)]
        ]
    return faults


def _cycle_of(compiled: CompiledRuleSet, test: RuleSetTest) -> Cycle:
    metadata = [Namespace.from_json(each).metadata for each in test.namespaces]
    namespaces = {each.name: each.labels or {} for each in metadata}
    snapshot = Snapshot.of(map(Node.from_json, test.nodes), map(Pod.from_json, test.pods), namespaces)
    now = datetime.fromisoformat(test.now) if test.now else EPOCH
    return Cycle(pod=Pod.from_json(test.pod), snapshot=snapshot, now=now, params=compiled.params)


def _compare(test: RuleSetTest, answer: Answer) -> list[tuple[str, str]]:
    """Return the members of the expectation that aren't met, each with a sentence."""
    expect = test.expect
    found: list[tuple[str, str]] = []
    if expect.feasible is not None and sorted(expect.feasible) != sorted(answer.feasible):
        found.append(("feasible", f"should pass: {_listed(expect.feasible)}; passes: {_listed(answer.feasible)}"))
    if expect.best is not None and expect.best != answer.best:
        found.append(("best", f"best should be {expect.best or 'none'}, and is {answer.best or 'none'}"))
    reasons = {name: status.reason for name, status in answer.refused()}
    for name, reason in (expect.reasons or {}).items():
        if reasons.get(name) != reason:
            does = f"is refused by “{reasons[name]}”" if name in reasons else "isn't refused"
            found.append((f"reasons.{name}", f"{name} should be refused by “{reason}”, and {does}"))
    return found


def _compare_protected(compiled: CompiledRuleSet, cycle: Cycle, test: RuleSetTest) -> list[tuple[str, str]]:
    if test.expect.protected is None:
        return []
    expected, found = sorted(test.expect.protected), protected_pods(compiled.victims, cycle)
    said = f"should be protected: {_listed(expected)}; protected: {_listed(found)}"
    return [("protected", said)] if expected != found else []


def _listed(names: Sequence[str]) -> str:
    return ", ".join(sorted(names)) or "none"
