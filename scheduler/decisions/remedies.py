"""Finds what would let a refused Pod run, by evaluating each rule for each node on the Decision's own Snapshot.

If that Snapshot was pruned, or it takes too long, the result contains only what the record itself shows.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from policies.engine.decision import NOT_IN_TIME, Answer, CompiledRuleSet, decide
from policies.engine.errors import DeadlineError, ExpressionError, ObjectError
from policies.engine.explain import explain_node
from policies.engine.objects.pod import Pod
from policies.engine.rule import Cycle
from policies.engine.scheduling import judge
from policies.wording import counted, listed
from scheduler.decisions.explaining import named
from scheduler.decisions.matrix import Refusal, passing, refusals_of
from scheduler.decisions.near_misses import NearMisses, near_misses_of
from scheduler.decisions.reading import Read, read_decision
from scheduler.decisions.rebuilding import ReplayError, Snapshots
from scheduler.decisions.record import read_body
from scheduler.decisions.replay import Replays
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import OPENING_VERBS, Decision


class Remedies(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """What would help, in sentences.

    Attributes:
        sentences: the whole text.
        rules: the rules that alone keep the Pod from some nodes: rule -> the nodes.
        nearest: the nodes that the fewest rules refuse -> the conditions that would satisfy each rule, if the rule can name them.
        fault: why the result is limited to the record, or there is none.
    """

    sentences: list[str]
    rules: dict[str, list[str]] = {}
    nearest: dict[str, list[str]] = {}
    fault: str = ""


def remedies_of(decision: Decision) -> Remedies:
    """Return what would let a Decision's Pod run."""
    if decision.verb not in OPENING_VERBS or decision.mode != "enforce":
        return Remedies(
            sentences=[], fault=f"a Decision of {decision.verb} refuses no node by itself: look at the filter before it"
        )
    if decision.error:
        return Remedies(sentences=[f"No rule was asked: {decision.error}."])
    try:
        recorded = read_decision(decision)
    except ValueError as error:
        return Remedies(sentences=[], fault=f"the body of the Decision can't be read: {error}")
    if not decision.rule_set:
        return Remedies(sentences=["No rule of Berth's decided: no Assignment took the Pod, or all was out of force."])
    if recorded.missing:
        return Remedies(sentences=[], fault=f"what would help isn't known: {recorded.missing}")
    limit = TimeLimit()
    try:
        decided = _whole(decision, limit)
        misses = near_misses_of(decided.answer)
        full = {each.rule: decided.full_without(each) for each in misses.alone}
        helping = {near.node: decided.explained(near.node) for near in misses.nearest}
    except DeadlineError:
        return _as_recorded(recorded, limit.over)
    except (ReplayError, ObjectError, ExpressionError, ValueError) as error:
        return _as_recorded(recorded, str(error))
    beside, others = _refused_beside(recorded, misses.allowed)
    said, alone = _alone_beside(misses.alone, full)
    return _told(
        msgspec.structs.replace(misses, allowed=others, alone=alone),
        helping,
        [*_unknown(recorded), *beside, *said],
        fault="",
    )


def _as_recorded(recorded: Read, why: str) -> Remedies:
    late = [each.nodes for each in refusals_of(recorded.answer) if each.reason == NOT_IN_TIME.reason]
    beside = [f"There was no time to ask all rules about {named(sorted(nodes))}." for nodes in late]
    return _told(
        near_misses_of(recorded.answer),
        {},
        [*_unknown(recorded), *beside],
        fault=f"Only as far as it is recorded: {why}.",
    )


def _unknown(recorded: Read) -> list[str]:
    """Return a sentence about the nodes that Berth didn't know: no rule keeps the Pod from these."""
    if not recorded.unknown:
        return []
    return [
        f"Berth hadn't seen {named([*recorded.unknown])} yet when it was asked: once its watch has, its rules decide there, too."
    ]


def _refused_beside(recorded: Read, allowed: list[str]) -> tuple[list[str], list[str]]:
    """Return sentences about why nodes that no rule refuses were refused anyway, and the nodes that weren't refused.

    The reasons are Pods nominated to a node, with which Berth's own scheduler evaluates it once more, or lack of time.
    """
    said, left = [], list(allowed)
    for each in refusals_of(recorded.answer):
        refused = set(each.nodes)
        nodes = [name for name in left if name in refused]
        if not nodes:
            continue
        left = [name for name in left if name not in refused]
        if each.reason == NOT_IN_TIME.reason:
            said.append(f"There was no time for all rules. Asked again, they let it onto {named(nodes)}.")
        else:
            said.append(
                f"Without the Pods nominated there {counted(len(nodes), 'node')} would be allowed, {named(nodes)}: "
                f"beside these Pods, rule {each.rule} refuses {'it' if len(nodes) == 1 else 'them'} (“{each.reason or each.code}”)."
            )
    return said, left


class _Decided(NamedTuple):
    """A Decision that was decided again: its rules, their input, and every rule's verdict on every node."""

    verb: str
    rule_set: CompiledRuleSet
    cycle: Cycle
    answer: Answer

    def explained(self, node: str) -> list[str]:
        """Return what would help on a node, rule by rule.

        Raises:
            DeadlineError: it takes too long.
        """
        rules = explain_node(self.rule_set, self.cycle, node).rules
        helping = [each for each in rules if each.kind == "filter" and each.mode == "enforce" and each.remedy]
        return [f"rule {each.rule}: {each.remedy.rstrip('.')}" for each in helping]

    def full_without(self, alone: Refusal) -> list[str]:
        """Return the nodes that only one rule refuses, but that the Pods nominated there would block even without the rule.

        Raises:
            DeadlineError: it takes too long.
        """
        if self.verb != "schedule" or not self.cycle.snapshot.nominated:
            return []
        found = judge(self.rule_set.without([alone.rule]), self.cycle, self.cycle.table.rows(alone.nodes))
        if found.missed:
            raise DeadlineError
        passes = passing(found)
        return [name for name in alone.nodes if name not in passes]


def _alone_beside(alone: Sequence[Refusal], full: Mapping[str, Sequence[str]]) -> tuple[list[str], list[Refusal]]:
    """Split the nodes that one rule alone refuses: sentences about those that stay refused without it, and the others.

    Args:
        alone: the rules that alone refuse some nodes.
        full: rule -> the nodes that the Pods nominated to them keep from the Pod all the same.
    """
    said, left = [], []
    for each in alone:
        nodes = [name for name in each.nodes if name not in full[each.rule]]
        if nodes:
            left.append(msgspec.structs.replace(each, nodes=nodes))
        if taken := full[each.rule]:
            said.append(
                f"Without rule {each.rule} (“{each.reason or each.code}”) and without the Pods nominated there "
                f"{counted(len(taken), 'node')} would be allowed: {named([*taken])}."
            )
    return said, left


def _whole(decision: Decision, limit: TimeLimit) -> _Decided:
    """Return every rule's verdict on every candidate node.

    Raises:
        ReplayError, ObjectError, ExpressionError, ValueError: an input is missing, or can't be read.
        DeadlineError: it takes too long.
    """
    body = read_body(bytes(decision.body))
    if body.answer is None:
        message = "no rule was asked"
        raise ReplayError(message)
    snapshot = Snapshots().of(decision, body)
    rule_set = Replays().rule_set_of(decision, body, snapshot)
    pod = Pod.from_json(msgspec.json.decode(body.pod))
    cycle = Cycle(pod=pod, snapshot=snapshot, now=decision.at, params=rule_set.params, give_way=limit.give_way)
    rows = body.order.rows()
    answer = decide(rule_set, cycle, rows[rows >= 0], scoring=False, whole=True)
    if answer.missed:
        raise DeadlineError
    return _Decided(decision.verb, rule_set, cycle, answer)


def _told(misses: NearMisses, help_of: dict[str, list[str]], beside: Sequence[str] = (), *, fault: str) -> Remedies:
    said = [*beside]
    if misses.allowed:
        said.append(
            f"Berth's rules let it onto {named(misses.allowed)}: what keeps it from there is its scheduler's own filters, or the "
            "binding. kubectl describe pod has its words."
        )
    said += [
        f"Without rule {each.rule} (“{each.reason or each.code}”) {counted(len(each.nodes), 'node')} would be allowed: "
        f"{named(each.nodes)}."
        for each in misses.alone
    ]
    if not misses.alone and not misses.allowed and not beside and misses.nodes and misses.is_whole:
        said.append(
            f"No single rule keeps it waiting: {'the node' if misses.nodes == 1 else f'each of the {misses.nodes:,} nodes'} is refused "
            f"by {misses.fewest} rules or more."
        )
    said += [
        f"Nearest is {near.node}, refused by {listed(rule for rule, _ in near.refusals)}."
        for near in misses.nearest
        if misses.fewest > 1
    ]
    nodes_of: dict[str, list[str]] = {}
    for node, helping in help_of.items():
        for remedy in helping:
            nodes_of.setdefault(remedy, []).append(node)
    said += [f"On {named(nodes)}, {remedy}." for remedy, nodes in nodes_of.items()]
    if not misses.nodes and not beside:
        said.append("Berth was asked about no node: its scheduler's own filters had refused them all.")
    return Remedies(
        sentences=said,
        rules={each.rule: each.nodes for each in misses.alone},
        nearest=help_of or {near.node: [] for near in misses.nearest},
        fault=fault,
    )
