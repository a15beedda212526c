"""The parts of a Node's JSON text that a kubelet's heartbeat changes: most new versions of a Node differ in nothing else."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MEMBERS = frozenset({"resourceVersion", "lastHeartbeatTime"})
# As Go writes them.
_VERSION, _TIME = b'"resourceVersion":"', b'"lastHeartbeatTime":"'
# The character before a member; a backslash means that the quote is part of another member's name.
_BEFORE = b"{,"
# Without quotes and backslashes: other characters don't move the end of a string.
_is_plain = re.compile(rb"[0-9TZ:.+-]*").fullmatch

# The difference between two texts in one place: where it begins, the number of bytes to remove, and the bytes to insert.
Piece = tuple[int, int, bytes]


class Heartbeat(NamedTuple):
    """The positions in a text of the values that a heartbeat changes.

    Attributes:
        version: of the resourceVersion.
        all: of the resourceVersion and the times, in order.
    """

    version: slice
    all: Sequence[slice]

    @classmethod
    def of(cls, text: bytes, version: str) -> "Heartbeat | None":
        """Find these positions in the text of a Node in which no map has a key of these names.

        None where another member than the Node's own version is called resourceVersion, or white space stands around it.
        """
        versions = list(_values(_VERSION, text))
        if [text[each] for each in versions] != [version.encode()]:
            return None
        places = [*versions, *_values(_TIME, text)]
        return cls(versions[0], sorted(places, key=lambda place: place.start))

    def version_in(self, old: bytes, new: bytes) -> slice | None:
        """Return where the version stands in a new text; None where it differs from the old one elsewhere than in these places.

        A version may have more digits than the one before; times always have the same length.
        """
        at = moved = 0
        version = self.version
        for place in self.all:
            start = place.start + moved
            if old[at : place.start] != new[at + moved : start]:
                return None
            if place == self.version:
                moved = len(new) - len(old)
                version = slice(start, place.stop + moved)
            if not _is_plain(new, start, place.stop + moved):
                return None
            at = place.stop
        return version if old[at:] == new[at + moved :] else None

    def pieces_between(self, old: bytes, new: bytes) -> Iterator[Piece]:
        """Yield where the values in these places differ between two texts that have the same places."""
        for place in self.all:
            one, other = old[place], new[place]
            if one != other:
                # As numbers, because that takes a tenth of comparing byte by byte.
                differing = int.from_bytes(one, "big") ^ int.from_bytes(other, "big")
                equal_end = ((differing & -differing).bit_length() - 1) // 8
                size = (differing.bit_length() + 7) // 8 - equal_end
                stop = place.stop - equal_end
                yield stop - size, size, new[stop - size : stop]


def _values(member: bytes, text: bytes) -> Iterator[slice]:
    at = text.find(member)
    while at >= 0:
        start = at + len(member)
        stop = text.index(b'"', start)
        if text[at - 1] in _BEFORE:
            yield slice(start, stop)
        at = text.find(member, stop)
