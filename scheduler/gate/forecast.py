"""What another Revision would do to the Pods that are there: to those that wait, and to those that run. Pure.

Not modelled: what admission would change of new Pods, other schedulers' and other extenders' choices, and Pods that would be made.
"""

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime

import msgspec
import numpy as np

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle, Scope
from policies.engine.scheduling import default_profile, with_default_filters
from policies.engine.status import PASSED


class Waiting(msgspec.Struct, frozen=True, rename="camel"):
    """A Pod that waits and for which other nodes would do: how many do now, how many it gains and loses."""

    pod: str
    nodes: int
    gained: int
    lost: int

    @property
    def is_left_with_none(self) -> bool:
        """Whether no node would do any more."""
        return self.nodes > 0 and self.nodes + self.gained == self.lost


class Refused(msgspec.Struct, frozen=True, rename="camel"):
    """A Pod that runs where a rule of its own would refuse it. It isn't moved; made anew, it couldn't come back there."""

    pod: str
    node: str
    rule: str
    reason: str


class Taken(msgspec.Struct, frozen=True, rename="camel"):
    """How many Pods another rule set would apply to, or not any more. The rule set is "" for those that no Assignment takes."""

    rule_set: str
    gained: int
    lost: int


class Forecast(msgspec.Struct, frozen=True, rename="camel"):
    """What would change, for how many Pods were looked at on how many nodes."""

    nodes: int
    pods: int
    waiting: list[Waiting]
    refused: list[Refused]
    taken: list[Taken]

    @property
    def left_with_none(self) -> list[Waiting]:
        """The Pods that wait and for which no node would do any more."""
        return [each for each in self.waiting if each.is_left_with_none]


def forecast(
    before: CompiledRevision, after: CompiledRevision, snapshot: Snapshot, pods: Iterable[Pod], now: datetime
) -> Forecast:
    """Decide on each Pod by both Revisions, on one Snapshot.

    Args:
        before: what is live.
        after: what would be.
        snapshot: the cluster, with the Pods that are on nodes.
        pods: all Pods; those that ended are passed over.
        now: the moment that rules about time see.
    """
    sides = (_Side(before), _Side(after))
    waiting: list[Waiting] = []
    refused: list[Refused] = []
    moved: dict[str, list[int]] = {}
    count = 0
    for pod in pods:
        if not pod.is_live:
            continue
        count += 1
        one, other = (side.rule_set_of(pod, snapshot, now) for side in sides)
        if _name(one) != _name(other):
            moved.setdefault(_name(one), [0, 0])[1] += 1
            moved.setdefault(_name(other), [0, 0])[0] += 1
        if one is other:
            continue
        if not pod.spec.node_name:
            waiting += _compare(
                pod, [side.profile(found) for side, found in zip(sides, (one, other), strict=True)], snapshot, now
            )
        elif other is not None:
            refused += _refusal(pod, one, other, snapshot, now)
    taken = [Taken(name, gained, lost) for name, (gained, lost) in sorted(moved.items())]
    return Forecast(len(snapshot.table.names), count, waiting, refused, taken)


class _Side:
    """A Revision, with kube-scheduler's own filters beside its rules."""

    def __init__(self, revision: CompiledRevision) -> None:
        self._revision = revision
        self._profiles: dict[Hashable, CompiledRuleSet] = {}

    def rule_set_of(self, pod: Pod, snapshot: Snapshot, now: datetime) -> CompiledRuleSet | None:
        chosen = self._revision.choose(pod, snapshot, now).enforced
        return chosen[1] if chosen else None

    def profile(self, rule_set: CompiledRuleSet | None) -> CompiledRuleSet:
        if rule_set is None:
            return default_profile()
        if rule_set.key not in self._profiles:
            self._profiles[rule_set.key] = with_default_filters(rule_set)
        return self._profiles[rule_set.key]


def _name(rule_set: CompiledRuleSet | None) -> str:
    return rule_set.name if rule_set else ""


def _compare(pod: Pod, profiles: Sequence[CompiledRuleSet], snapshot: Snapshot, now: datetime) -> list[Waiting]:
    was, will = (_asked(profile, pod, snapshot, now).refusal == PASSED for profile in profiles)
    gained, lost = int(np.count_nonzero(will & ~was)), int(np.count_nonzero(was & ~will))
    if not gained and not lost:
        return []
    return [Waiting(_named(pod), int(np.count_nonzero(was)), gained, lost)]


def _refusal(
    pod: Pod, one: CompiledRuleSet | None, other: CompiledRuleSet, snapshot: Snapshot, now: datetime
) -> list[Refused]:
    """Return what a rule set says of the node that a Pod is on, as if it weren't there yet; nothing new of what held already."""
    node = snapshot.node(pod.spec.node_name)
    if node is None:
        return []
    without = snapshot
    if any(made.scope != Scope.NODE for rule_set in (one, other) if rule_set for _, made in rule_set.filters):
        rest = NodeInfo(node.node, [each for each in node.pods if each.uid != pod.uid])
        without = snapshot.branched({pod.spec.node_name: rest})
    answer = _asked(other, pod, without, now, [pod.spec.node_name])
    if answer.refusal[0] == PASSED:
        return []
    if one is not None and _asked(one, pod, without, now, [pod.spec.node_name]).refusal[0] != PASSED:
        return []
    status = answer.refusals[answer.refusal[0]]
    # By what was said of this node: two rules may refuse in the same words.
    rule = next(column.rule.key for column in answer.filters if column.at(0) is not None)
    return [Refused(_named(pod), pod.spec.node_name, rule, status.reason)]


def _asked(
    rule_set: CompiledRuleSet, pod: Pod, snapshot: Snapshot, now: datetime, names: Sequence[str] | None = None
) -> Answer:
    table = snapshot.table
    rows = table.all_rows() if names is None else np.array([table.row_of[name] for name in names])
    cycle = Cycle(pod=pod, snapshot=snapshot, now=now, params=rule_set.params)
    return decide(rule_set.enforced, cycle, rows, scoring=False)


def _named(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"
