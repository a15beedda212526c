"""The log of what changed: which state follows from which, and what may differ between two, without comparing them.

Each change is a step that names what it changed. Steps form a tree: a Snapshot with an assumed Pod on it branches off the
live one. From any two places of one tree it can be told what may differ, at a cost of what changed. Snapshots and columns
keep their place in the log of nodes, ClusterObjects theirs in one of their own.
"""

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# Steps that are kept, at least; twice as many at most.
STEPS_KEPT = 1024


class Step(Generic[K]):
    """A place in the tree: what changed with it, and the step before.

    `root` is the same for all steps of one tree. Of the names, `heartbeats` are those that nothing but a heartbeat changed.
    """

    __slots__ = ("before", "heartbeats", "names", "number", "root")

    def __init__(
        self, names: Iterable[K] = (), before: "Step[K] | None" = None, *, heartbeats: Collection[K] = ()
    ) -> None:
        self.names = tuple(names)
        self.heartbeats = heartbeats
        self.before = before
        self.number: int = before.number + 1 if before else 0
        self.root: object = before.root if before else object()
        # Now and then, not each time: the walk back then costs one step for each that was made.
        if self.number and self.number % STEPS_KEPT == 0:
            self._forget()

    def _forget(self) -> None:
        """Let go of what lies far behind. Who stands there still compares the states themselves, or begins anew."""
        at = self
        while at.before is not None and self.number - at.number < STEPS_KEPT:
            at = at.before
        at.before = None


def names_between(one: Step[K], other: Step[K], *, heartbeats: bool = True) -> set[K] | None:
    """Return what may differ between two places; None when that isn't known any more.

    Args:
        one: a place.
        other: another one.
        heartbeats: whether also what nothing but a heartbeat changed.
    """
    names: set[K] = set()
    left: Step[K] | None = one
    right: Step[K] | None = other
    # Whichever lies further from the root goes back, so that both meet where the branches parted.
    while left is not right:
        if left is None or right is None:
            return None
        if left.number > right.number:
            names.update(_names(left, heartbeats=heartbeats))
            left = left.before
        elif left.number < right.number:
            names.update(_names(right, heartbeats=heartbeats))
            right = right.before
        else:
            names.update(_names(left, heartbeats=heartbeats), _names(right, heartbeats=heartbeats))
            left, right = left.before, right.before
    return names if left is not None else None


def _names(step: Step[K], *, heartbeats: bool) -> Iterable[K]:
    if heartbeats or not step.heartbeats:
        return step.names
    return [name for name in step.names if name not in step.heartbeats]
