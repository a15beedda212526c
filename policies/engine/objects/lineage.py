"""Which Snapshot follows from which, and what changed in between, without comparing them.

Each change of nodes is a step that names them. Steps form a tree: a Snapshot with a promised Pod on it branches off the
live one. From any two Snapshots of one tree it can be told which nodes may differ, at a cost of what changed.
"""

from collections.abc import Iterable

# Steps that are kept, at least; twice as many at most.
_KEPT = 1024


class Step:
    """A place in the tree: the nodes that changed with it, and the step before.

    `root` is the same for all steps of one tree.
    """

    __slots__ = ("before", "names", "number", "root")

    def __init__(self, names: Iterable[str] = (), before: "Step | None" = None) -> None:
        self.names = tuple(names)
        self.before = before
        self.number: int = before.number + 1 if before else 0
        self.root: object = before.root if before else object()
        if self.number and self.number % _KEPT == 0:
            self._forget()

    def _forget(self) -> None:
        """Let go of what lies far behind. Who stands there still compares the Snapshots themselves."""
        at = self
        while at.before is not None and self.number - at.number < _KEPT:
            at = at.before
        at.before = None


def names_between(one: Step, other: Step) -> set[str] | None:
    """Return the nodes that may differ between two places; None when that isn't known any more."""
    names: set[str] = set()
    left: Step | None = one
    right: Step | None = other
    while left is not right:
        if left is None or right is None:
            return None
        if left.number > right.number:
            names.update(left.names)
            left = left.before
        elif left.number < right.number:
            names.update(right.names)
            right = right.before
        else:
            names.update(left.names, right.names)
            left, right = left.before, right.before
    return names if left is not None else None
