"""Finds the causes of the difference between two answers about a Pod, by deciding again with single inputs exchanged.

An answer's inputs are the Pod, the rules, the cluster, and the time if rules read it. An input that alone turns the first answer
into the second caused the difference; an input that is necessary for the second answer contributed to it.
"""

from collections.abc import Mapping
from datetime import datetime
from itertools import combinations
from typing import NamedTuple

import msgspec
from django.utils.text import capfirst

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.errors import ObjectError
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.rule import Cycle
from policies.engine.scheduling import judge
from policies.wording import listed
from scheduler.decisions.matrix import passing
from scheduler.decisions.rebuilding import ReplayError, Snapshots, recorded_body_of
from scheduler.decisions.record import Body
from scheduler.decisions.replay import Replays
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import OPENING_VERBS, Decision

POD, RULES, CLUSTER, TIME = "the Pod", "the rules", "the cluster", "the time"
# Instead of RULES, between two Decisions of one Revision: after a change of the Pod's labels, say.
ASSIGNMENT = "the Assignment that took it"
# Instead of RULES, where both answers are by the same version and params: a Pause or an Exemption began or ended.
OUT_OF_FORCE = "a Pause or an Exemption that began or ended"


class Causes(msgspec.Struct, frozen=True, kw_only=True):
    """The causes of a difference. `alone`: inputs that each suffice alone; `needed`: inputs that are necessary.

    `fault` says why the causes can't be found; the others are empty then.
    """

    sentence: str = ""
    alone: list[str] = []
    needed: list[str] = []
    fault: str = ""


class _Verdict(NamedTuple):
    """The parts of an answer that are compared."""

    passing: frozenset[str]
    best: str


class _Side(NamedTuple):
    """The inputs of an answer. Without a rule set every node passes."""

    pod: Pod
    rule_set: CompiledRuleSet | None
    snapshot: Snapshot
    rows: Rows
    now: datetime


def causes_of(before: Decision, after: Decision, limit: TimeLimit) -> Causes:
    """Return the causes of the difference between two answers about a Pod, the older one first."""
    if before.verb not in OPENING_VERBS or before.verb != after.verb:
        return Causes(fault=f"a {before.verb} and a {after.verb} answer different questions")
    replays, snapshots = Replays(), Snapshots()
    try:
        old, new = _side_of(before, replays, snapshots), _side_of(after, replays, snapshots)
        scores = bool(before.best and after.best)
        # Each factor doubles the number of decisions for a page, so those that can't differ are left out.
        rules = [_rules_of(before, after, old, new)] if old.rule_set is not new.rule_set else []
        factors = (POD, *rules, CLUSTER, *([TIME] if _reads_now(old) or _reads_now(new) else []))
        verdicts: dict[tuple[str, ...], _Verdict] = {
            taken: _verdict(before.verb, _mixed(old, new, taken), limit, with_best=scores)
            for number in range(len(factors) + 1)
            for taken in combinations(factors, number)
        }
    except (ReplayError, ObjectError, ValueError) as error:
        return Causes(fault=f"it can't be decided anew: {error}")
    return _told(verdicts, factors)


def _rules_of(before: Decision, after: Decision, old: _Side, new: _Side) -> str:
    """Return the factor for different rules: RULES that were published since, another ASSIGNMENT of the same Revision, or OUT_OF_FORCE."""
    if before.revision == after.revision and before.assignment != after.assignment:
        return ASSIGNMENT
    return OUT_OF_FORCE if _published(old) == _published(new) else RULES


def _published(side: _Side) -> tuple[object, ...]:
    """Return which version with which params decided; its rules are all in force, or some of them."""
    found = side.rule_set
    return () if found is None else (found.name, found.version, found.overrides)


def _reads_now(side: _Side) -> bool:
    return side.rule_set is not None and any(
        made.reads_now for _, made in (*side.rule_set.filters, *side.rule_set.scores)
    )


def _told(verdicts: Mapping[tuple[str, ...], _Verdict], factors: tuple[str, ...]) -> Causes:
    """Return the causes that follow from the verdicts; each key has the inputs that were taken from the second answer."""
    first, second = verdicts[()], verdicts[factors]
    if first == second:
        return Causes(sentence="Decided anew, both give the same nodes.")
    alone = [factor for factor in factors if verdicts[factor,] == second]
    needed = [factor for factor in factors if verdicts[tuple(each for each in factors if each != factor)] != second]
    if len(alone) == 1:
        sentence = f"It was {alone[0]}: with nothing else changed, the answer is the new one."
    elif alone:
        sentence = f"{listed(alone)} changed, and each alone would have made the difference."
    else:
        least: list[tuple[str, ...]] = []
        for taken in sorted(verdicts, key=len):
            if verdicts[taken] == second and not any({*each} <= {*taken} for each in least):
                least.append(taken)
        sentence = f"It took several changes together: {', or '.join(map(listed, least))}."
    return Causes(sentence=capfirst(sentence), alone=alone, needed=needed)


def _side_of(decision: Decision, replays: Replays, snapshots: Snapshots) -> _Side:
    """Return the inputs of a Decision.

    Raises:
        ReplayError, ObjectError, ValueError: an input is missing, or can't be read.
    """
    body = recorded_body_of(decision)
    _check(decision, body)
    pod = Pod.from_json(msgspec.json.decode(body.pod))
    snapshot = snapshots.of(decision, body)
    rule_set = replays.rule_set_of(decision, body, snapshot) if body.answer is not None else None
    rows = body.order.rows()
    return _Side(pod, rule_set, snapshot, rows[rows >= 0], decision.at)


def _check(decision: Decision, body: Body) -> None:
    """Refuse a Decision that wasn't made by rules alone.

    Raises:
        ReplayError: the Decision wasn't made by rules alone.
    """
    message = ""
    if decision.error:
        message = f"no rule was asked: {decision.error}"
    elif body.notes.get("missed"):
        message = "an answer wasn't finished in time"
    elif not decision.chain:
        message = "an answer refers to no Snapshot: no Assignment took the Pod then"
    if message:
        raise ReplayError(message)


def _mixed(old: _Side, new: _Side, taken: tuple[str, ...]) -> _Side:
    """Return the old side with some inputs of the new one; the candidate nodes are exchanged with the cluster."""

    def side(factor: str) -> _Side:
        return new if factor in taken else old

    rules = new if not {RULES, ASSIGNMENT, OUT_OF_FORCE}.isdisjoint(taken) else old
    return side(CLUSTER)._replace(pod=side(POD).pod, rule_set=rules.rule_set, now=side(TIME).now)


def _verdict(verb: str, side: _Side, limit: TimeLimit, *, with_best: bool) -> _Verdict:
    if side.rule_set is None:
        return _Verdict(frozenset(side.snapshot.table.infos[row].name for row in side.rows.tolist()), "")
    params = side.rule_set.params
    cycle = Cycle(pod=side.pod, snapshot=side.snapshot, now=side.now, params=params, give_way=limit.give_way)
    if verb == "schedule":
        answer = judge(side.rule_set, cycle, side.rows)
    else:
        answer = decide(side.rule_set, cycle, side.rows, filtering=True, scoring=with_best)
    if answer.missed:
        raise ReplayError(limit.over)
    return _Verdict(frozenset(passing(answer)), answer.best if with_best else "")
