"""Whether the params that Assignments give are those of their rule sets: asked of what would be live together."""

from collections.abc import Iterable

import msgspec

from policies import checking
from policies.engine import ruleset as engine
from policies.engine.errors import Fault


def changed_params_faults(before: engine.Revision, after: engine.Revision) -> list[Fault]:
    """Return what is wrong with the params of Assignments that changed, or whose rule sets did."""
    old = {each.name: each for each in before.rule_sets}
    moved = {each.name for each in after.rule_sets if old.get(each.name) != each}
    known = {each.name: each for each in before.assignments}
    asked = [each for each in after.assignments if each.rule_set in moved or known.get(each.name) != each]
    return params_faults(asked, after.rule_sets)


def params_faults(assignments: Iterable[engine.Assignment], rule_sets: Iterable[engine.RuleSet]) -> list[Fault]:
    """Return what is wrong with the params of Assignments, each fault with the name of its Assignment in front.

    An Assignment whose rule set isn't among these is passed over: that is a fault of its own.
    """
    by_name = {each.name: each for each in rule_sets}
    return [
        msgspec.structs.replace(fault, path=f"{each.name}: {fault.path}")
        for each in assignments
        if each.params and each.rule_set in by_name
        for fault in checking.params_faults(each, by_name[each.rule_set])
    ]
