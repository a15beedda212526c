"""The answers beside a Decision's own: those of its shadows, and that of the other side of a canary.

The other side is decided on the Decision's own Snapshot, as if the draw had gone the other way.
"""

from datetime import timedelta

import msgspec

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet
from policies.engine.ruleset import Assignment, RuleSet
from policies.engine.scheduling import default_profile, with_default_filters
from scheduler.decisions.divergence import Divergence, compare, given, placed, settled, would_be
from scheduler.decisions.reading import answered_of, recorded
from scheduler.decisions.rebuilding import ReplayError, pod_of, recorded_body_of
from scheduler.decisions.record import Body
from scheduler.decisions.replay import Replays
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import Decision

# A shadow is evaluated for the call of its answer, so the times of both are at most this far apart.
_BESIDE = timedelta(seconds=60)
_MOST_BESIDE = 20
_CHOOSING = ("filter", "prioritize", "schedule")


class OtherSide(msgspec.Struct, frozen=True, kw_only=True):
    """The answer if the Pod's workload had been on the other side of a canary.

    Attributes:
        canary: the name of the Assignment.
        takes: whether the canary would have taken the Pod.
        assignment: the Assignment that would have taken the Pod; empty for none.
        rule_set: its rule set, with its version.
        divergence: how its answer differs from the recorded one; None if that is unknown.
        fault: why the other side can't be decided.
    """

    canary: str
    takes: bool
    assignment: str = ""
    rule_set: str = ""
    version: int = 0
    divergence: Divergence | None = None
    fault: str = ""


def shadows_beside(decision: Decision) -> list[Decision]:
    """Return the shadows that were evaluated for an answer."""
    near = recorded().filter(
        pod_uid=decision.pod_uid, mode="shadow", process=decision.process, verb=decision.verb,
        at__gte=decision.at - _BESIDE, at__lte=decision.at + _BESIDE,
    )  # fmt: skip
    return [shadow for shadow in near[:_MOST_BESIDE] if answered_of(shadow) == str(decision.pk)]


def other_sides(decision: Decision) -> list[OtherSide]:
    """Return the other side of each canary that drew a number for a Decision's Pod."""
    try:
        body = recorded_body_of(decision)
    except ReplayError:
        return []  # which canaries drew isn't known then either
    replays = Replays(TimeLimit())
    drawn = sorted((body.notes.get("canaries") or {}).items())
    return [_other_side(replays, decision, body, name, takes=said["drawn"] >= said["percent"]) for name, said in drawn]


def _other_side(replays: Replays, decision: Decision, body: Body, canary: str, *, takes: bool) -> OtherSide:
    try:
        real = _replayed(replays, decision)
        taking, rule_set, answer = _decided(
            replays, decision, body, _drawn_otherwise(replays, decision, body, canary, takes=takes)
        )
    except ReplayError as error:
        return OtherSide(canary=canary, takes=takes, fault=str(error))
    return OtherSide(
        canary=canary,
        takes=takes,
        assignment=taking.name if taking else "",
        rule_set=rule_set.name,
        version=rule_set.version,
        divergence=_diverged(decision, real, answer),
    )


def _replayed(replays: Replays, decision: Decision) -> Answer:
    """Return the recorded answer, replayed: the input for the other side must reproduce it."""
    if decision.verb not in _CHOOSING:
        message = f"a Decision of {decision.verb} chooses no node: look at the one before it"
        raise ReplayError(message)
    found = replays.replay(decision)
    if not found.ok:
        message = f"decided anew, what was answered differs: {'; '.join(found.differences)}"
        raise ReplayError(message)
    if found.answer is None:
        message = "no Assignment took the Pod, and a Snapshot is only recorded where one does"
        raise ReplayError(message)
    return found.answer


def _drawn_otherwise(replays: Replays, decision: Decision, body: Body, canary: str, *, takes: bool) -> CompiledRevision:
    """Return the Decision's Revision with a canary for all workloads, or for none."""
    compiled = replays.revision_of(decision, body)
    percent = 100 if takes else 0
    assignments = [
        msgspec.structs.replace(each, percent=percent) if each.name == canary else each
        for each in compiled.revision.assignments
    ]
    return CompiledRevision(msgspec.structs.replace(compiled.revision, assignments=assignments), former=compiled)


def _decided(
    replays: Replays, decision: Decision, body: Body, revision: CompiledRevision
) -> tuple[Assignment | None, CompiledRuleSet, Answer]:
    """Return the Assignment that takes the Pod under a Revision, with the answer of its rule set."""
    snapshot = replays.snapshots.of(decision, body)
    assignment, rule_set = revision.choose(pod_of(body), snapshot, decision.at).enforced or (None, None)
    if masked := replays.masked(decision, body, rule_set):
        raise ReplayError(masked)
    if decision.verb == "schedule":
        rule_set = with_default_filters(rule_set).enforced if rule_set else default_profile()
    asked = rule_set.enforced if rule_set else CompiledRuleSet(RuleSet(name=""))
    return assignment, asked, replays.decide_again(decision, body, snapshot, asked)


def _diverged(decision: Decision, real: Answer, other: Answer) -> Divergence:
    """Return how the other answer differs, for the Pod's node if it is known."""
    side = would_be(other, is_inside=False, is_exact=decision.verb == "schedule")
    got = real.names.index(decision.placed_on) if decision.placed_on in real.names else -1
    if decision.verb == "schedule" and got >= 0:
        return compare(placed(real, got), side)
    found = compare(given(real, len(real.names)), side)
    return settled(side, got) if found == Divergence.OPEN and got >= 0 else found
