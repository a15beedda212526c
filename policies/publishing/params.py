"""Checks that the params of Assignments match their rule sets, in the state that would be live."""

import hashlib
from collections.abc import Iterable

import msgspec

from policies import checking
from policies.checking.passed import Passed
from policies.engine import ruleset as engine
from policies.engine.errors import Fault

# Params that passed: a Change is checked when it is sent to review and when it is published, and thirty Assignments may have the
# same params.
_passed = Passed(most=10_000)


def changed_params_faults(before: engine.Revision, after: engine.Revision) -> list[Fault]:
    """Return the faults of the params of Assignments that changed, or whose rule sets did."""
    old = {each.name: each for each in before.rule_sets}
    moved = {each.name for each in after.rule_sets if old.get(each.name) != each}
    known = {each.name: each for each in before.assignments}
    asked = [each for each in after.assignments if each.rule_set in moved or known.get(each.name) != each]
    return params_faults(asked, after.rule_sets)


def params_faults(assignments: Iterable[engine.Assignment], rule_sets: Iterable[engine.RuleSet]) -> list[Fault]:
    """Return the faults of the params of Assignments, each prefixed with the name of its Assignment.

    An Assignment whose rule set isn't among these is skipped: that is reported as a separate fault.
    """
    giving = [each for each in assignments if each.params]
    named = {each.rule_set for each in giving}
    by_name = {each.name: (each, engine.encode(each)) for each in rule_sets if each.name in named}
    return [
        msgspec.structs.replace(fault, path=f"{each.name}: {fault.path}")
        for each in giving
        if each.rule_set in by_name
        for fault in _faults(each, *by_name[each.rule_set])
    ]


def _faults(assignment: engine.Assignment, rule_set: engine.RuleSet, encoded: bytes) -> list[Fault]:
    digest = hashlib.sha256(encoded + msgspec.json.encode(assignment.params, order="sorted")).digest()
    if digest in _passed:
        return []
    faults = checking.params_faults(assignment, rule_set)
    if not faults:
        _passed.add(digest)
    return faults
