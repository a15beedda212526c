"""The log of changes: which state follows from which, and what may differ between two states, without comparing them.

Each change is a step that names what it changed. Steps form a tree: a Snapshot with an assumed Pod on it branches off the
live one. The log can tell what may differ between any two steps of one tree, at a cost proportional to the changes. Snapshots
and columns hold their step in the log of nodes; ClusterObjects have a log of their own.
"""

from collections.abc import Collection, Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# The least number of steps that are kept; at most twice as many are.
STEPS_KEPT = 1024


class Step(Generic[K]):
    """A step in the tree: what it changed, and the step before.

    `root` is the same for all steps of one tree. `heartbeats` are the names that only a heartbeat changed.
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
        # Only now and then: so the walk back costs, on average, one step for each new step.
        if self.number and self.number % STEPS_KEPT == 0:
            self._forget()

    def _forget(self) -> None:
        """Forget old steps. A holder of a forgotten step has to compare the states themselves, or begin anew."""
        at = self
        while at.before is not None and self.number - at.number < STEPS_KEPT:
            at = at.before
        at.before = None


def names_between(one: Step[K], other: Step[K], *, heartbeats: bool = True) -> set[K] | None:
    """Return the names that may differ between two steps; None when that is no longer known.

    Args:
        one: a step.
        other: another step.
        heartbeats: whether to include names that only a heartbeat changed.
    """
    names: set[K] = set()
    left: Step[K] | None = one
    right: Step[K] | None = other
    # The step further from the root goes back, so that both meet where the branches parted.
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
