"""What passed a check in this process, so that the same content isn't checked a second time."""

from collections import OrderedDict


class Passed:
    """The digests of contents that passed a check: the most recently used ones. Threads may use it at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, digest: bytes) -> bool:
        try:
            self._digests.move_to_end(digest)
        except KeyError:
            return False
        return True

    def add(self, digest: bytes) -> None:
        """Remember that this content passed."""
        self._digests[digest] = None
        while len(self._digests) > self._most:
            self._digests.popitem(last=False)
