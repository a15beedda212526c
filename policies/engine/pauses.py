"""What is out of force for a Pod at a moment: a Pause concerns all Pods, an Exemption some. Pure.

A rule that is out of force is skipped for the Pod: it refuses no node and gives no score. An Assignment that is out of force is
skipped, so that the next one may take the Pod. A rule set that is out of force decides nothing for the Pods that its Assignments
take, as if no Assignment took them. A Pause of everything does this for all rule sets.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec

from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Exemption, ExemptPods, Pause, RuleSet
from policies.engine.selectors import LabelSelector, Requirement, matches_labels

EVERYTHING = "everything"
RULE_SET = "RuleSet"
ASSIGNMENT = "Assignment"

# Controllers that create the owners of their Pods; the owners' names begin with the controller's.
_BETWEEN = {"Deployment": "ReplicaSet", "CronJob": "Job"}


class Target(NamedTuple):
    """The target of a Pause or an Exemption. `rule` is empty for the whole rule set."""

    kind: str
    name: str = ""
    rule: str = ""

    @classmethod
    def parse(cls, text: str) -> "Target":
        """Read a target as documents write it; an invalid one names nothing."""
        kind, _, rest = text.partition("/")
        name, _, rule = rest.partition("/")
        return cls(kind, name, rule)

    def __str__(self) -> str:
        return "/".join(filter(None, self))


class Suspension(NamedTuple):
    """A Pause or an Exemption, compiled.

    Attributes:
        kind: Pause or Exemption.
        until: when it ends; None for one that doesn't end by itself.
        pods: the Pods that it concerns; None for all Pods.
    """

    kind: str
    name: str
    target: Target
    until: datetime | None
    pods: Sequence["_Pods"] | None = None

    def concerns(self, pod: Pod, now: datetime) -> bool:
        """Return whether it is in force for a Pod at a moment."""
        if self.until is not None and self.until <= now:
            return False
        return self.pods is None or any(each.has(pod) for each in self.pods)


class _Pods:
    """The Pods of one entry of an Exemption."""

    def __init__(self, entry: ExemptPods) -> None:
        self._entry = entry
        selector = entry.selector
        self._selector = (
            LabelSelector(
                match_labels=selector.match_labels,
                match_expressions=[Requirement(**each) for each in selector.match_expressions],
            )
            if selector
            else None
        )

    def has(self, pod: Pod) -> bool:
        entry = self._entry
        return (
            pod.namespace == entry.namespace
            and entry.name in ("", pod.name)
            and (entry.owner is None or is_owned_by(pod, entry.owner.kind, entry.owner.name))
            and (self._selector is None or matches_labels(self._selector, pod.labels))
        )


class Suspensions:
    """The Pauses and Exemptions of a Revision."""

    def __init__(self, pauses: Iterable[Pause], exemptions: Iterable[Exemption]) -> None:
        self._of_all = [
            Suspension("Pause", each.name, Target.parse(each.target), ends_at(each.until)) for each in pauses
        ]
        # Exemptions by namespace: for a Pod only those of its own are evaluated.
        self._by_namespace: dict[str, list[Suspension]] = {}
        for each in exemptions:
            pods: dict[str, list[_Pods]] = {}
            for entry in each.pods:
                pods.setdefault(entry.namespace, []).append(_Pods(entry))
            for namespace, listed in pods.items():
                found = Suspension("Exemption", each.name, Target.parse(each.target), ends_at(each.until), listed)
                self._by_namespace.setdefault(namespace, []).append(found)

    def __iter__(self) -> Iterator[Suspension]:
        yield from self._of_all
        for found in self._by_namespace.values():
            yield from found

    def of(self, pod: Pod, now: datetime) -> "OutOfForce | None":
        """Return what is out of force for a Pod at a moment; None when nothing is."""
        found = [each for each in self._of_all if each.concerns(pod, now)]
        found += [each for each in self._by_namespace.get(pod.namespace, ()) if each.concerns(pod, now)]
        return OutOfForce(found) if found else None

    def gives_back_after(self, moment: datetime) -> bool:
        """Return whether an Assignment comes back into force by itself after a moment: another rule set then decides on its Pods."""
        return any(each.target.kind == ASSIGNMENT and each.until and each.until > moment for each in self._of_all)

    def next_end(self, after: datetime) -> datetime | None:
        """Return when the next of them ends by itself; None when none does."""
        return min((each.until for each in self if each.until is not None and each.until > after), default=None)


class OutOfForce:
    """What is out of force for one Pod, and the Pause or Exemption that causes it."""

    def __init__(self, suspensions: Iterable[Suspension]) -> None:
        self._by: dict[Target, Suspension] = {}
        self._rules: dict[str, dict[str, Suspension]] = {}
        for each in suspensions:
            self._by.setdefault(each.target, each)
            if each.target.rule:
                self._rules.setdefault(each.target.name, {}).setdefault(each.target.rule, each)

    def everything(self) -> Suspension | None:
        """Return the Pause that puts everything out of force."""
        return self._by.get(Target(EVERYTHING))

    def assignment(self, name: str) -> Suspension | None:
        """Return the Pause that puts an Assignment out of force."""
        return self._by.get(Target(ASSIGNMENT, name))

    def rule_set(self, name: str) -> Suspension | None:
        """Return the Pause or Exemption that puts a whole rule set out of force."""
        return self._by.get(Target(RULE_SET, name))

    def rules(self, rule_set: str) -> dict[str, Suspension]:
        """Return the Pauses and Exemptions that put rules of a rule set out of force, by the rule's key."""
        return self._rules.get(rule_set, {})


def without_rules(rule_set: RuleSet, keys: Collection[str]) -> RuleSet:
    """Return the document of a rule set without the rules of these names."""
    left = {
        kind: [rule for rule in getattr(rule_set.spec, kind) if rule.key not in keys]
        for kind in ("filters", "scores", "victims")
    }
    return msgspec.structs.replace(rule_set, spec=msgspec.structs.replace(rule_set.spec, **left))


def is_owned_by(pod: Pod, kind: str, name: str) -> bool:
    """Return whether a workload owns a Pod: as its controller, or as a Deployment or CronJob through the object in between.

    These derive the name of the ReplicaSet or Job from their own (kubernetes v1.36.3 pkg/controller/deployment/sync.go,
    pkg/controller/cronjob/utils.go), so the Pod alone is enough to tell.
    """
    found = pod.metadata.controller
    if found is None:
        return False
    if (found.kind, found.name) == (kind, name):
        return True
    if found.kind != _BETWEEN.get(kind):
        return False
    start, _, last = found.name.rpartition("-")
    return start == name and (last == pod.labels.get("pod-template-hash") if kind == "Deployment" else last.isdecimal())


def in_force(pauses: Iterable[Pause], now: datetime) -> list[Pause]:
    """Return the Pauses that haven't ended at a moment."""
    return [each for each in pauses if (end := ends_at(each.until)) is None or end > now]


def paused_assignments(pauses: Iterable[Pause], now: datetime) -> set[str]:
    """Return the names of the Assignments that are out of force at a moment, each by a Pause of its own."""
    targets = (Target.parse(each.target) for each in in_force(pauses, now))
    return {target.name for target in targets if target.kind == ASSIGNMENT}


def ends_at(until: str) -> datetime | None:
    """Return when a Pause or an Exemption ends; None for one that doesn't end by itself."""
    return datetime.fromisoformat(until) if until else None
