"""The checks of the gate. Each looks at one effect of a Change, and returns what it found.

To add a check, add a function like these, a line in `CHECKS`, and its name with its level in
`controlplane.env.GATE_CHECKS`. Nothing else knows the checks by name.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from policies import checking
from policies.engine.cel import MAX_RULE_SET_MILLISECONDS, cost_of
from policies.engine.cel import Result as Gives
from policies.engine.conflicts import conflicts
from policies.engine.documents import document_of
from policies.engine.errors import Fault, RuleSetError
from policies.engine.pauses import ASSIGNMENT, EVERYTHING, RULE_SET, Target, in_force, paused_assignments
from policies.engine.ruleset import Assignment, Pause, Revision, RuleSet
from policies.publishing import Edit, Result, checked_rule_sets, misfits
from policies.publishing.gates import FOUND, PASSED, UNKNOWN
from policies.wording import counted, percentage
from scheduler.backtest.compare import Kind
from scheduler.backtest.results import Result as Backtested
from scheduler.gate.forecast import Forecast, Handed, Shadowed, Waiting

# The most lines of a result.
MOST_LINES = 50

# Singular and plural.
_NONE = ("a Pod that waits would be left with no node", "Pods that wait would be left with no node")
_REFUSED = ("a Pod runs where its rules would refuse it", "Pods run where their rules would refuse them")
_TAKEN = ("a rule set gains or loses Pods", "rule sets gain or lose Pods")
_BEST = ("a Pod that waits would have another best node", "Pods that wait would have another best node")

_PAUSED = ("a Pause leaves out what the Change is about", "Pauses leave out what the Change is about")

_NONE_THEN = ("a Pod would have got no node", "Pods would have got no node")
_BACKTESTED = "every Pod would have kept a node"

# A rule set that uses more than this share of the cost limit is reported as costly.
_COSTLY_SHARE = 0.5


class Question(msgspec.Struct):
    """The input of the checks.

    Attributes:
        before: the live Revision.
        after: the Revision after the Change.
        edits: the Change's edits.
        forecast: the effect on existing Pods; None if it isn't known.
        unknown: why it isn't known.
        backtest: what the newest backtest of these edits found; None if that isn't known.
        no_backtest: why it isn't known.
        now: the moment; Pauses end.
    """

    before: Revision
    after: Revision
    edits: Sequence[Edit]
    forecast: Forecast | None = None
    unknown: str = ""
    backtest: Backtested | None = None
    no_backtest: str = "no backtest of these edits has ended: run one"
    now: datetime = msgspec.field(default_factory=lambda: datetime.now(UTC))

    @property
    def rule_sets(self) -> list[RuleSet]:
        """The edited rule sets, as they would become."""
        return [edit.value for edit in self.edits if isinstance(edit.value, RuleSet)]


_MISSING = "has no published version, and gets none here"
_REMOVED = "would no longer be live; give this Assignment another one first"


def documents(question: Question) -> Result:
    """Whether each document can be read, what it names is there, params fit, and PriorityClasses go together."""
    others = [edit for edit in question.edits if edit.value is not None and not isinstance(edit.value, RuleSet)]
    read: list[Any] = [
        *zip(question.rule_sets, checked_rule_sets([document_of(each) for each in question.rule_sets]), strict=True),
        *zip(others, checking.read_each((document_of(each.value), "") for each in others if each.value), strict=True),
    ]
    faults = [line for each, found in read if isinstance(found, RuleSetError) for line in _of(each.name, found.faults)]
    names = {each.name for each in question.after.rule_sets}
    removed = {each.name for each in question.before.rule_sets} - names
    faults += [
        f"Assignment {each.name}: rule set {each.rule_set} {_REMOVED if each.rule_set in removed else _MISSING}"
        for each in question.after.assignments
        if each.rule_set not in names
    ]
    # Publishing would refuse these. The live state may have changed since the Change was sent to review.
    faults = faults or [str(fault) for fault in misfits(list(question.edits), question.before)]
    defaults = [each.name for each in question.after.priority_classes if each.global_default]
    if len(defaults) > 1:
        faults.append(
            f"PriorityClasses {', '.join(defaults)}: each would be the global default, and Kubernetes allows only one; "
            "take it away from the others, in the same Change"
        )
    return _result(
        "documents", faults, "no faults in the documents", ("a fault in the documents", "faults in the documents")
    )


def tests(question: Question) -> Result:
    """Whether the tests in the rule sets pass."""
    tested = zip(question.rule_sets, checking.run_tests_of_each(question.rule_sets), strict=True)
    faults = [line for each, found in tested for line in _of(each.name, found)]
    number = sum(len(each.spec.tests) for each in question.rule_sets)
    return _result(
        "tests",
        faults,
        ("1 test holds" if number == 1 else f"{number} tests hold") if number else "no tests",
        ("an expectation of a test doesn't hold", "expectations of tests don't hold"),
    )


def cost(question: Question) -> Result:
    """Whether a rule set comes near the cost limit."""
    found = []
    for each in question.rule_sets:
        share = _milliseconds(each) / MAX_RULE_SET_MILLISECONDS
        if share > _COSTLY_SHARE:
            found.append(
                f"rule set {each.name} takes {percentage(share, decimals=0)} of what the expressions of one may take"
            )
    return _result("cost", found, "no rule set is costly", ("a rule set is costly", "rule sets are costly"))


def assignments(question: Question) -> Result:
    """Whether Assignments conflict that didn't before."""
    about = {edit.name for edit in question.edits if edit.kind == "Assignment"}
    found_after = conflicts(question.after.assignments, about)
    was = conflicts(question.before.assignments, about | {each.name for each in found_after})
    paused_before = paused_assignments(question.before.pauses, question.now)
    # An Assignment that got no Pod before loses none; but one that this Change edits may be meant to get some.
    unreached = {each.name for each in was if each.kind == "never reached" and each.other not in paused_before} - about
    new = [each for each in found_after if each not in was and each.name not in unreached]
    paused = paused_assignments(question.after.pauses, question.now)
    lines, found = [each.sentence(paused) for each in new], [each._asdict() for each in new]
    return _result(
        "assignments",
        lines,
        "no Assignment stands in another's way",
        ("an Assignment stands in another's way", "Assignments stand in another's way"),
        found,
    )


def left_with_none(question: Question) -> Result:
    """Whether a waiting Pod would have no node left."""
    none = _forecast(question).left_with_none
    lines = [f"{each.pod} waits, and would be left with no node: {each.nodes:,} would do now" for each in none]
    others = [each for each in _forecast(question).waiting if not each.is_left_with_none]
    passed = "every Pod that waits keeps a node"
    if others:
        passed += f"; {counted(len(others), 'Pod')} could use other nodes than now"
    result = _result("left-with-none", lines, passed, _NONE, none)
    if not none:
        result = msgspec.structs.replace(result, lines=_cut([_other_nodes(each) for each in others]))
    return _with_left_out(result, _forecast(question).waiting_left_out)


def _other_nodes(each: Waiting) -> str:
    return f"{each.pod} waits: {counted(each.nodes, 'node')} would do now, {each.gained:,} more and {each.lost:,} less then"


def refused(question: Question) -> Result:
    """Whether a Pod runs where its rules would refuse it."""
    found = _forecast(question).refused
    lines = [f"{each.pod} runs on {each.node}, which {each.rule} would refuse: {each.reason}" for each in found]
    passed = "every Pod that runs could run where it is"
    return _with_left_out(_result("refused", lines, passed, _REFUSED, found), _forecast(question).running_left_out)


def taken(question: Question) -> Result:
    """Whether rule sets gain or lose Pods."""
    found = _forecast(question).taken
    lines = [
        f"{f'rule set {each.rule_set}' if each.rule_set else 'no rule set'}: {counted(each.gained, 'Pod')} more, {each.lost:,} less"
        for each in found
    ]
    result = _result("taken", lines, "every Pod keeps its rule set", _TAKEN, found)
    # Moves between Assignments come first, since they explain those between rule sets; they are no findings themselves.
    handed = [_handed(each) for each in _forecast(question).handed]
    shadowed = [_shadowed(each) for each in _forecast(question).shadowed]
    # All rule sets are in `found`, since each has a level of its own (`publishing.with_found`). The sentence doesn't count Pods that
    # no Assignment takes: these have no rule set.
    named = sum(bool(each.rule_set) for each in found)
    says = _said(named, _TAKEN) if named else result.says
    lines = _cut([*handed, *shadowed, *lines])
    return msgspec.structs.replace(result, says=says, lines=lines, found=msgspec.to_builtins(found))


def _shadowed(each: Shadowed) -> str:
    many = counted(each.pods, "Pod")
    return f"Assignment {each.assignment} would only shadow {many}: what rule set {each.rule_set} says of them is recorded, and not done"


def _handed(each: Handed) -> str:
    many = counted(each.pods, "Pod")
    if not each.after:
        return f"{many} that Assignment {each.before} takes now would be taken by none"
    before = f"that Assignment {each.before} takes now" if each.before else "that no Assignment takes now"
    return f"Assignment {each.after} would take {many} {before}"


def _best_node(question: Question) -> Result:
    """Whether another node would be the best one for a waiting Pod."""
    found = _forecast(question).shifted
    lines = [f"{each.pod} waits: {each.after} would be its best node, in place of {each.before}" for each in found]
    passed = "every Pod that waits keeps its best node"
    return _with_left_out(_result("best-node", lines, passed, _BEST, found), _forecast(question).waiting_left_out)


def pauses(question: Question) -> Result:
    """Whether a Pause keeps edited things out of the forecast, which then doesn't show what happens once the Pause ends."""
    lines = [
        f"{what} is out of force by Pause {each.name}{f' until {each.until}' if each.until else ''}: what the gate says of Pods leaves it out"
        for each in in_force(question.after.pauses, question.now)
        if (what := _left_out_by(each, question))
    ]
    return _result("pauses", lines, "nothing of it is paused", _PAUSED)


def _left_out_by(pause: Pause, question: Question) -> str:
    """Return the target of a Pause, in words, if the Pause keeps edits out of the forecast; empty if it doesn't.

    It does if its target is edited, is the rule set of an edited Assignment, or is an Assignment of an edited rule set.
    """
    kind, name, rule = Target.parse(pause.target)
    rule_sets = {each.name for each in question.rule_sets}
    assigned = [edit.value for edit in question.edits if isinstance(edit.value, Assignment)]
    if kind == EVERYTHING:
        return EVERYTHING if rule_sets or assigned else ""
    if kind == RULE_SET and name in rule_sets.union(each.rule_set for each in assigned):
        return f"rule {rule} of rule set {name}" if rule else f"rule set {name}"
    giving = {each.name for each in question.after.assignments if each.rule_set in rule_sets}
    if kind == ASSIGNMENT and name in giving.union(each.name for each in assigned):
        return f"Assignment {name}"
    return ""


def backtest(question: Question) -> Result:
    """Whether Pods would have got no node, according to the newest backtest of these edits."""
    found = question.backtest
    if found is None:
        return Result("backtest", UNKNOWN, question.no_backtest)
    none = [line for line in found.pods if line.kind is Kind.NO_NODE]
    result = _result("backtest", [line.sentence for line in none], _BACKTESTED, _NONE_THEN, none)
    number = found.pods_of(Kind.NO_NODE)
    said = result.says if number <= 1 else f"{number:,} {_NONE_THEN[1]}"
    says = f"{said}, by the backtest over {found.decided:,} Decisions, on Revision {found.revision}"
    if result.verdict == PASSED and not found.decided:
        return msgspec.structs.replace(
            result, verdict=UNKNOWN, says="the backtest of these edits had no Decision to decide"
        )
    return msgspec.structs.replace(result, says=says, count=number)


# The checks in their order; True marks those that need the cluster's state.
CHECKS: Mapping[str, tuple[bool, Callable[[Question], Result]]] = {
    "documents": (False, documents),
    "tests": (False, tests),
    "cost": (False, cost),
    "assignments": (False, assignments),
    "left-with-none": (True, left_with_none),
    "refused": (True, refused),
    "taken": (True, taken),
    "best-node": (True, _best_node),
    "pauses": (False, pauses),
    "backtest": (False, backtest),
}


def look(check: str, question: Question) -> Result:
    """Return a check's result."""
    asks_cluster, of = CHECKS[check]
    if asks_cluster and question.forecast is None:
        return Result(check, UNKNOWN, f"{check} could not look at the cluster: {question.unknown}")
    return of(question)


def _forecast(question: Question) -> Forecast:
    assert question.forecast is not None  # noqa: S101 - `look` has asked
    return question.forecast


def _result(check: str, lines: Sequence[str], passed: str, found: tuple[str, str], items: Sequence[Any] = ()) -> Result:
    """Return a result: `found` is its text in the singular and in the plural."""
    if not lines:
        return Result(check, PASSED, passed)
    says = _said(len(lines), found)
    return Result(check, FOUND, says, _cut(lines), msgspec.to_builtins(items[:MOST_LINES]), len(lines))


def _said(number: int, found: tuple[str, str]) -> str:
    return found[0] if number == 1 else f"{number:,} {found[1]}"


def _with_left_out(result: Result, number: int) -> Result:
    """Return a result that gives the number of Pods that there was no time for."""
    if not number:
        return result
    says = f"{result.says}; there was no time for {counted(number, 'Pod')}"
    verdict = UNKNOWN if result.verdict == PASSED else result.verdict
    return msgspec.structs.replace(result, says=says, verdict=verdict)


def _cut(lines: Sequence[str]) -> list[str]:
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([f"and {more:,} more"] if more > 0 else [])]


def _of(name: str, faults: Iterable[Fault]) -> list[str]:
    return [f"{name}: {fault}" for fault in faults]


def _milliseconds(rule_set: RuleSet) -> float:
    """Return the time in milliseconds that all expressions of a rule set may take in one decision."""
    spec = rule_set.spec
    rules = [(rule, Gives.BOOLEAN) for rule in spec.filters] + [(rule, Gives.NUMBER) for rule in spec.scores]
    return sum(
        cost_of(rule.expression, gives, spec.params).milliseconds()
        for rule, gives in rules
        if rule.expression and rule.mode != "off"
    )
