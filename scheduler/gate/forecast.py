"""Forecasts the effect of another Revision on existing Pods, both waiting and running. Pure.

Not modelled: preemption, changes that admission would make to new Pods, other schedulers' and other extenders' choices, and Pods
that would be created.

Pods that are equal in everything the rules read are decided on once (`Gathered`). For the running ones among them, all their nodes
are decided at once, with one of these Pods removed from each node, unless a rule reads the Pods of other nodes.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.node import NodeInfo, trace
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.reuse import signature
from policies.engine.rule import Cycle, Filter, Scope, Score
from policies.engine.scheduling import as_kube_scheduler, default_profile, judge, usable_rows, with_default_filters
from policies.engine.selectors import Labels
from policies.engine.status import PASSED

Forecasted = TypeVar("Forecasted")

# The default time for deciding on Pods; Pods that are left then are only counted.
DECIDING_SECONDS = 60.0

# The annotation of a kubelet's mirror Pods, which represent static Pods (k8s.io/api v0.36.3 core/v1 annotation_key_constants.go).
_MIRROR = "kubernetes.io/config.mirror"

# Called with the number of decided groups of Pods, and the number of all groups.
Progress = Callable[[int, int], None]


class Waiting(msgspec.Struct, frozen=True, rename="camel"):
    """A waiting Pod with a change in its feasible nodes: how many there are now, and how many it gains and loses."""

    pod: str
    nodes: int
    gained: int
    lost: int

    @property
    def is_left_with_none(self) -> bool:
        """Whether no node would be feasible any more."""
        return self.nodes > 0 and self.nodes + self.gained == self.lost


class Refused(msgspec.Struct, frozen=True, rename="camel"):
    """A Pod that runs on a node that one of its rules would refuse. It isn't moved; if recreated, it couldn't return there."""

    pod: str
    node: str
    rule: str
    reason: str


class Taken(msgspec.Struct, frozen=True, rename="camel"):
    """How many Pods a rule set gains or loses. The rule set is "" for Pods that no Assignment takes."""

    rule_set: str
    gained: int
    lost: int


class Handed(msgspec.Struct, frozen=True, rename="camel"):
    """How many Pods move from one Assignment to another; each name is "" for none."""

    before: str
    after: str
    pods: int


class Shadowed(msgspec.Struct, frozen=True, rename="camel"):
    """How many further Pods an Assignment in mode shadow would evaluate. This has no effect on them."""

    assignment: str
    rule_set: str
    pods: int


class Shifted(msgspec.Struct, frozen=True, rename="camel"):
    """A waiting Pod for which another node would be the best one, by the rules' own scores."""

    pod: str
    before: str
    after: str


class Forecast(msgspec.Struct, frozen=True, rename="camel"):
    """The changes, with the number of Pods and nodes that were examined."""

    nodes: int
    pods: int
    waiting: list[Waiting]
    refused: list[Refused]
    taken: list[Taken]
    shifted: list[Shifted] = []
    handed: list[Handed] = []
    # Pods that there was no time for.
    waiting_left_out: int = 0
    running_left_out: int = 0
    shadowed: list[Shadowed] = []

    @property
    def left_with_none(self) -> list[Waiting]:
        """The waiting Pods for which no node would be feasible any more."""
        return [each for each in self.waiting if each.is_left_with_none]


class OwnScheduler(msgspec.Struct, frozen=True):
    """The configuration of Berth's own scheduler: its scheduler names, and the label of the nodes that it uses, if any."""

    names: frozenset[str] = frozenset()
    node_label: tuple[str, str] | None = None


_NO_SCHEDULER = OwnScheduler()


class _Alike:
    """Pods that no rule of either side can distinguish, except by their node."""

    def __init__(self, pod: Pod, one: CompiledRuleSet | None, other: CompiledRuleSet | None) -> None:
        self.pod, self.one, self.other = pod, one, other
        self.waiting: list[tuple[int, str]] = []
        # By node: each Pod's index among all Pods, its name and UID.
        self.running: dict[str, list[tuple[int, str, str]]] = {}

    @property
    def many_running(self) -> int:
        """How many of these Pods run."""
        return sum(map(len, self.running.values()))


class Gathered:
    """Pods, grouped as they arrive: of a Pod that equals an earlier one, only the name is kept."""

    def __init__(
        self,
        before: CompiledRevision,
        after: CompiledRevision,
        namespaces: Mapping[str, Labels],
        now: datetime,
        own: OwnScheduler = _NO_SCHEDULER,
    ) -> None:
        self._sides, self.now, self.own = (before, after), now, own
        self._namespaces = Snapshot({}, namespaces)
        self._paths: dict[int, list[tuple[str, ...]]] = {}
        self._selected: dict[Hashable, list[Labels] | None] = {}
        self.groups: dict[Hashable, _Alike] = {}
        # Nominated Pods by node name: first those of other schedulers, then those of Berth's own scheduler.
        self.nominated: tuple[dict[str, list[Pod]], dict[str, list[Pod]]] = ({}, {})
        self.moved: dict[str, list[int]] = {}
        # By the names of the Assignments before and after.
        self.handed: Counter[tuple[str, str]] = Counter()
        # By the names of the Assignment in mode shadow and of its rule set.
        self.shadowed: Counter[tuple[str, str]] = Counter()
        self.count = 0

    def add(self, pod: Pod) -> None:
        """Add a Pod. A terminated Pod is skipped, and so is one that was deleted before it got a node."""
        if not pod.is_live or (pod.is_deleting and not pod.spec.node_name):
            return
        self.count += 1
        choices = [side.choose(pod, self._namespaces, self.now) for side in self._sides]
        if choices[1].shadows:
            known, then = ({(each.name, each.rule_set) for each, _ in choice.shadows} for choice in choices)
            self.shadowed.update(then - known)
        found = [choice.enforced for choice in choices]
        one, other = (each[1] if each else None for each in found)
        # A paused rule set decides nothing, and its Assignments still take their Pods.
        was, will = (choice.taken_by.name if choice.taken_by else "" for choice in choices)
        if was != will:
            self.handed[was, will] += 1
        if _name(one) != _name(other):
            self.moved.setdefault(_name(one), [0, 0])[1] += 1
            self.moved.setdefault(_name(other), [0, 0])[0] += 1
        node, nominated = pod.spec.node_name, "" if pod.spec.node_name else pod.parsed.status.nominated_node_name
        if nominated:
            self.nominated[pod.spec.scheduler_name in self.own.names].setdefault(nominated, []).append(pod)
        # No scheduler tries a Pod that has schedulingGates; once they are removed, the same rules apply to it.
        if not node and pod.is_gated:
            return
        # A running Pod without a rule set is refused by none; nor is a static Pod, which is recreated without a scheduler.
        if one is other or (node and (other is None or _MIRROR in (pod.parsed.metadata.annotations or ()))):
            return
        bare = _unbound(pod) if node else pod
        read = (*self._read_by(one, bare), *self._read_by(other, bare))
        counted = self._counted((one, other), bare, read) if node else None
        # A node is reserved for a Pod that is nominated to it, so the reservation must not refuse that Pod itself.
        alone = pod.uid if nominated else ""
        key = (id(one), id(other), _all_of(pod, bare) if counted is None else counted, alone, *read)
        alike = self.groups.get(key)
        if alike is None:
            alike = self.groups[key] = _Alike(bare, one, other)
        if node:
            alike.running.setdefault(node, []).append((self.count, _named(pod), pod.uid))
        else:
            alike.waiting.append((self.count, _named(pod)))

    def _counted(
        self, sides: tuple[CompiledRuleSet | None, ...], pod: Pod, read: tuple[Hashable, ...]
    ) -> Hashable | None:
        """Return what distinguishes a running Pod, besides the fields that rules declare to read; None if any field may matter.

        If rules read only nodes and counts of Pods by labels, it is whether this Pod itself is counted.
        """
        key = (*map(id, sides), pod.namespace, read)
        if key not in self._selected:
            self._selected[key] = self._selected_by(sides, pod)
        selected = self._selected[key]
        if selected is None:
            return None
        return pod.namespace if selected else "", *(labels.items() <= pod.labels.items() for labels in selected)

    def _selected_by(self, sides: tuple[CompiledRuleSet | None, ...], pod: Pod) -> list[Labels] | None:
        found: list[Labels] = []
        for side in filter(None, sides):
            cycle = Cycle(pod=pod, snapshot=self._namespaces, now=self.now, params=side.params)
            for _, rule in side.enforced.filters:
                selected = rule.selected(cycle)
                if selected is None:
                    return None
                found += selected
        return found

    def _read_by(self, rule_set: CompiledRuleSet | None, pod: Pod) -> Iterable[Hashable]:
        if rule_set is None:
            return ()
        paths = self._paths.get(id(rule_set))
        if paths is None:
            asked = rule_set.enforced
            made: list[Filter | Score] = [*(rule for _, rule in asked.filters), *(rule for _, rule in asked.scores)]
            paths = sorted({path for rule in made for path in rule.pod_paths or ()})
            self._paths[id(rule_set)] = paths
        return [trace(pod.json, path).token for path in paths]


def forecast(
    gathered: Gathered,
    snapshot: Snapshot,
    on_progress: Progress = lambda _done, _total: None,
    is_up: Callable[[], bool] = lambda: False,
) -> Forecast:
    """Decide on the gathered Pods by both Revisions, on one Snapshot. The largest groups of equal Pods come first.

    Args:
        gathered: the Pods, see `Gathered.add`.
        snapshot: the cluster, with the Pods that are on nodes.
        on_progress: called as the work proceeds.
        is_up: returns whether the time is up; from then on, Pods are only counted.
    """
    asked, found = _Asked(snapshot, gathered), _Found()
    total = len(gathered.groups)
    for done, (alike, beside) in enumerate(asked.in_rounds(gathered.groups.values())):
        on_progress(done, total)
        if is_up():
            found.leave_out(alike)
            continue
        if alike.waiting:
            found.note_waiting(alike, asked.compare(alike))
        if alike.running:
            refused, missed = asked.refusals(alike, beside, partial(on_progress, done, total), is_up)
            found.refused += refused
            found.running_left_out += missed
    return Forecast(
        nodes=len(snapshot.table.names),
        pods=gathered.count,
        waiting=_in_order(found.waiting),
        refused=_in_order(found.refused),
        taken=[Taken(name, gained, lost) for name, (gained, lost) in sorted(gathered.moved.items())],
        shifted=_in_order(found.shifted),
        handed=[Handed(*names, pods) for names, pods in sorted(gathered.handed.items())],
        waiting_left_out=found.waiting_left_out,
        running_left_out=found.running_left_out,
        shadowed=[Shadowed(*names, pods) for names, pods in sorted(gathered.shadowed.items())],
    )


class _Compared(NamedTuple):
    """How many nodes are feasible, gained and lost; the best node before and after if it changes."""

    nodes: int
    gained: int
    lost: int
    before: str = ""
    after: str = ""


class _Found:
    """The findings about Pods so far, each with its index among all, and the number of Pods that there was no time for."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, Waiting]] = []
        self.refused: list[tuple[int, Refused]] = []
        self.shifted: list[tuple[int, Shifted]] = []
        self.waiting_left_out = self.running_left_out = 0

    def leave_out(self, alike: _Alike) -> None:
        """Count Pods that are not decided on any more."""
        self.waiting_left_out += len(alike.waiting)
        self.running_left_out += alike.many_running

    def note_waiting(self, alike: _Alike, compared: _Compared) -> None:
        """Note for waiting Pods the comparison that was made for one of them."""
        if compared.gained or compared.lost:
            numbers = (compared.nodes, compared.gained, compared.lost)
            self.waiting += [(place, Waiting(name, *numbers)) for place, name in alike.waiting]
        if compared.before and compared.after:
            sides = (compared.before, compared.after)
            self.shifted += [(place, Shifted(name, *sides)) for place, name in alike.waiting]


class _Asked:
    """One Snapshot and one time, at which rule sets are evaluated for Pods."""

    def __init__(self, snapshot: Snapshot, gathered: Gathered) -> None:
        self._snapshot = snapshot
        self._now = gathered.now
        self._own = gathered.own
        # With each scheduler's own nominated Pods: no scheduler knows of another's.
        self._with_nominated = tuple(snapshot.changed({}, nominated=each) for each in gathered.nominated)
        self._profiles: dict[tuple[int, bool], CompiledRuleSet] = {}

    def compare(self, alike: _Alike) -> _Compared:
        """Return what changes for Pods that wait, with their scheduler's own filters beside the rules, on the nodes that it uses."""
        is_own = alike.pod.spec.scheduler_name in self._own.names
        rows = usable_rows(self._snapshot.table, self._own.node_label if is_own else None)
        snapshot = self._with_nominated[is_own]
        if snapshot.nominated and not is_own:
            # kube-scheduler's own filters reserve these nodes; an extender gets only the nodes that pass them.
            kept = judge(self._profile(None, is_own=False), self._cycle(default_profile(), alike.pod, snapshot), rows)
            rows, snapshot = rows[kept.refusal == PASSED], self._snapshot
        one, other = (
            judge(profile.enforced, self._cycle(profile, alike.pod, snapshot), rows)
            for profile in (self._profile(rule_set, is_own=is_own) for rule_set in (alike.one, alike.other))
        )
        was, will = one.refusal == PASSED, other.refusal == PASSED
        nodes, gained, lost = (int(np.count_nonzero(each)) for each in (was, will & ~was, was & ~will))
        return _Compared(nodes, gained, lost, *_shift(one, other))

    def in_rounds(self, groups: Iterable[_Alike]) -> Iterator[tuple[_Alike, Snapshot]]:
        """Iterate over groups, roughly the largest first, each with a Snapshot in which to evaluate its nodes.

        If its rules read the Pods on a node, one of its Pods is removed from each node in that Snapshot. Groups without a common
        node share a Snapshot: changes on other nodes don't affect such rules. Groups whose rules read other nodes come last.
        """
        rounds: dict[int, list[_Alike]] = {}
        free: dict[str, int] = {}
        last: list[_Alike] = []
        for alike in sorted(groups, key=_most_first):
            reach = self._reach(alike) if alike.running else Scope.NODE
            if reach is Scope.CLUSTER:
                last.append(alike)
                continue
            number = max((free.get(name, 1) for name in alike.running), default=0) if reach is not Scope.NODE else 0
            free |= dict.fromkeys(alike.running, number + 1) if number else {}
            rounds.setdefault(number, []).append(alike)
        for number, together in sorted(rounds.items()):
            snapshot = self._without_one(together) if number else self._snapshot
            yield from ((alike, snapshot) for alike in together)
        yield from ((alike, self._snapshot) for alike in last)

    def _without_one(self, groups: Iterable[_Alike]) -> Snapshot:
        """Return the Snapshot in which a Pod of each group isn't on each of its nodes."""
        changes = {
            name: self._without(name, found[0][2])
            for alike in groups
            for name, found in alike.running.items()
            if name in self._snapshot.table.row_of
        }
        return self._snapshot.branched(changes)

    def refusals(
        self, alike: _Alike, beside: Snapshot, on_progress: Callable[[], None], is_up: Callable[[], bool]
    ) -> tuple[list[tuple[int, Refused]], int]:
        """Return running Pods that their rules would refuse but don't refuse now; and the number that there was no time for."""
        names = [name for name in alike.running if name in self._snapshot.table.row_of]
        if self._reach(alike) is not Scope.CLUSTER:
            return self._refused(alike, names, beside), 0
        found: list[tuple[int, Refused]] = []
        for place, name in enumerate(names):
            on_progress()
            if is_up():
                return found, sum(len(alike.running[left]) for left in names[place:])
            alone = self._snapshot.branched({name: self._without(name, alike.running[name][0][2])})
            found += self._refused(alike, [name], alone)
        return found, 0

    def _reach(self, alike: _Alike) -> Scope:
        """Return the widest scope of both sides' rules for such a Pod."""
        made = [rule for side in (alike.one, alike.other) if side for _, rule in side.enforced.filters]
        around = [rule for rule in made if rule.looks_around(alike.pod, self._snapshot, ())]
        if around:
            return Scope.CLUSTER
        return Scope.NODE if all(rule.scope is Scope.NODE for rule in made) else Scope.NODE_AND_PODS

    def _refused(self, alike: _Alike, names: list[str], snapshot: Snapshot) -> list[tuple[int, Refused]]:
        """Return the new refusals on these nodes, in a Snapshot with one of the Pods removed from each."""
        if alike.other is None:
            return []
        answer = self._decided(alike.other, alike.pod, snapshot, _rows(snapshot, names))
        positions = np.flatnonzero(answer.refusal != PASSED)
        now = [names[position] for position in positions]
        before = self._decided(alike.one, alike.pod, snapshot, _rows(snapshot, now)) if alike.one and now else None
        found = []
        for index, position in enumerate(positions.tolist()):
            if before is not None and before.refusal[index] != PASSED:
                continue
            # By this node's verdict: two rules may have the same reason.
            rule = next(column.rule.key for column in answer.filters if column.at(position) is not None)
            reason = answer.refusals[answer.refusal[position]].reason
            node = names[position]
            found += [(place, Refused(name, node, rule, reason)) for place, name, _ in alike.running[node]]
        return found

    def _without(self, name: str, uid: str) -> NodeInfo:
        info = self._snapshot.table.infos[self._snapshot.table.row_of[name]]
        return NodeInfo(info.node, [each for each in info.pods if each.uid != uid])

    def _profile(self, rule_set: CompiledRuleSet | None, *, is_own: bool) -> CompiledRuleSet:
        key = (id(rule_set), is_own)
        if key not in self._profiles:
            profile = default_profile() if rule_set is None else with_default_filters(rule_set)
            self._profiles[key] = profile if is_own else as_kube_scheduler(profile)
        return self._profiles[key]

    def _decided(self, rule_set: CompiledRuleSet, pod: Pod, snapshot: Snapshot, rows: Rows) -> Answer:
        return decide(rule_set.enforced, self._cycle(rule_set, pod, snapshot), rows, scoring=False)

    def _cycle(self, rule_set: CompiledRuleSet, pod: Pod, snapshot: Snapshot) -> Cycle:
        return Cycle(pod=pod, snapshot=snapshot, now=self._now, params=rule_set.params)


def _rows(snapshot: Snapshot, names: Sequence[str]) -> Rows:
    return np.array([snapshot.table.row_of[name] for name in names], dtype=np.intp)


def _shift(one: Answer, other: Answer) -> tuple[str, str]:
    """Return the best node before and after; empty if it stays among the best, or one side has no scores."""
    if not one.best or not other.best or not len(other.scored):
        return "", ""
    place = np.flatnonzero(other.scored == list(one.names).index(one.best))
    if len(place) and other.totals[place[0]] == other.totals.max():
        return "", ""
    return one.best, other.best


def _unbound(pod: Pod) -> Pod:
    """Return a running Pod as if it were recreated: without its node."""
    parsed = msgspec.structs.replace(pod.parsed, spec=msgspec.structs.replace(pod.spec, node_name=""))
    spec = {name: value for name, value in (pod.json.get("spec") or {}).items() if name != "nodeName"}
    return Pod(parsed, {**pod.json, "spec": spec})


def _all_of(pod: Pod, bare: Pod) -> Hashable:
    """Return the fields that built-ins read of a Pod, and its resource usage, which is in its status during a resize."""
    return signature(bare), *(tuple(found.amounts.items()) for found in (pod.requests, pod.nonzero_requests))


def _most_first(alike: _Alike) -> int:
    return -len(alike.waiting) - alike.many_running


def _in_order(found: list[tuple[int, Forecasted]]) -> list[Forecasted]:
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def _name(rule_set: CompiledRuleSet | None) -> str:
    return rule_set.name if rule_set else ""


def _named(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}"
