"""On which node each Pod is, by its uid."""

from collections.abc import Iterable, Mapping, Sequence

from policies.engine.objects.copy_on_write_list import CopyOnWriteList
from policies.engine.objects.node import NodeInfo

NOWHERE = -1
_MAX_PATCHES = 1024

_Uids = tuple[str, ...]


class Placed:
    """The row of each Pod's node. Pods without a uid are left out. Never changes.

    There are very many Pods, so those that moved are kept separately until there are many.
    """

    def __init__(self, rows: Mapping[str, int], patches: Mapping[str, int], uids: CopyOnWriteList[_Uids]) -> None:
        self._rows = rows
        self._patches = patches
        self._uids = uids

    @classmethod
    def of(cls, infos: Iterable[NodeInfo]) -> "Placed":
        """Read all nodes."""
        return cls._made([_uids_of(info) for info in infos])

    @classmethod
    def _made(cls, uids: Sequence[_Uids]) -> "Placed":
        return cls({uid: row for row, found in enumerate(uids) for uid in found}, {}, CopyOnWriteList(uids))

    def row_of(self, uid: str) -> int:
        """Return the row of the node that a Pod is on, NOWHERE when it's on none."""
        found = self._patches.get(uid)
        return self._rows.get(uid, NOWHERE) if found is None else found

    def renewed(self, infos: Sequence[NodeInfo], rows: Iterable[int]) -> "Placed":
        """Return the places after reading these rows again."""
        now = {row: _uids_of(infos[row]) for row in rows}
        patches = dict(self._patches)
        for row in now:
            # First all that left, then all that came: a Pod may have moved from one of these rows to another.
            patches.update((uid, NOWHERE) for uid in self._uids[row] if self.row_of(uid) == row)
        for row, found in now.items():
            patches.update(dict.fromkeys(found, row))
        uids = self._uids.changed(now)
        return Placed(self._rows, patches, uids) if len(patches) <= _MAX_PATCHES else Placed._made(uids.listed())

    def moved(self, sources: Sequence[int]) -> "Placed":
        """Return the places for renumbered rows: each new row gets the Pods of the old row `sources[row]`; -1 gets none."""
        return Placed._made([() if old < 0 else self._uids[old] for old in sources])


def _uids_of(info: NodeInfo) -> _Uids:
    return tuple(pod.uid for pod in info.pods if pod.uid)
