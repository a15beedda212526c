"""A scheduling cycle as Decisions of verb `schedule`: the enforced one, then one for each rule set in mode shadow."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from policies.engine.decision import Answer, CompiledRuleSet
from policies.engine.ruleset import Assignment
from scheduler.binder.cycle import Judged, Placement, judge_shadow
from scheduler.decisions.divergence import compare, placed, would_be
from scheduler.decisions.record import Entry, NodesEntry, notes_of_suspensions
from scheduler.serving.shadows import GiveWay, Shadows, subject_of

_VERB = "schedule"


def cycle_entry(placement: Placement, seconds: float, notes: Mapping[str, Any]) -> Entry:
    """Return the record of a cycle.

    Args:
        placement: the cycle's result.
        seconds: how long the cycle took.
        notes: further facts: the chosen node, what preemption did.
    """
    error = placement.refusal.reason if placement.refusal else ""
    return _entry(
        placement, placement.enforced, error=error, notes=notes, duration_microseconds=int(seconds * 1_000_000)
    )


def shadow_entry(
    placement: Placement, assignment: Assignment, rule_set: CompiledRuleSet, answered: str, give_way: GiveWay
) -> Entry:
    """Decide by a rule set in mode shadow; return the record of that.

    Args:
        placement: the cycle's result.
        assignment: the Assignment of the rule set.
        rule_set: the rule set, with the default filters.
        answered: the id of the enforced Decision.
        give_way: called between evaluations.
    """
    judged = judge_shadow(placement, assignment, rule_set, give_way)
    is_inside = placement.enforced is not None and placement.enforced.assignment is assignment
    return _entry(
        placement,
        judged,
        mode="shadow",
        notes={"answered": answered, "inside": is_inside},
        divergence=_divergence(placement, judged.answer, is_inside=is_inside),
    )


def offer_shadows(shadows: Shadows, placement: Placement, answered: str) -> None:
    """Queue the evaluation of rule sets in mode shadow, once a cycle is over.

    Args:
        shadows: evaluates them.
        placement: the cycle's result.
        answered: the id of the enforced Decision.
    """
    # Without room, nothing is prepared only to be dropped: when many Pods arrive at once, most shadows are dropped.
    if placement.shadows and not shadows.has_room:
        shadows.pass_over(placement.revision, _VERB, placement.shadows)
        return
    for assignment, rule_set in placement.shadows:
        subject = subject_of(placement.revision, assignment, rule_set, _VERB)
        shadows.offer(subject, partial(shadow_entry, placement, assignment, rule_set, answered))


def _divergence(placement: Placement, answer: Answer, *, is_inside: bool) -> str:
    if placement.enforced is None:
        return ""
    chosen = np.flatnonzero(placement.rows == placement.row)
    real = placed(placement.enforced.answer, int(chosen[0]) if len(chosen) else -1)
    return compare(real, would_be(answer, is_inside=is_inside, is_exact=True))


def _entry(placement: Placement, judged: Judged | None, **more: Any) -> Entry:
    common: dict[str, Any] = {"verb": _VERB, "pod": placement.pod, "now": placement.now} | more
    common |= {"revision": placement.revision, "draws": placement.draws}
    common["notes"] = {**common.get("notes", {}), **notes_of_suspensions(placement.suspended_by)}
    if judged is None:
        return Entry(**common)
    if judged.answer.missed:
        common["notes"]["missed"] = judged.answer.missed
    return NodesEntry(
        **common,
        assignment=judged.assignment,
        rule_set=judged.rule_set,
        snapshot=placement.snapshot,
        names=placement.snapshot.table.names,
        rows=placement.rows,
        answer=judged.answer,
    )
