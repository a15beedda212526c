"""Nodes of full bodies, recognised instead of decoded, while the body still comes in. No Django.

kube-scheduler sends every node whole, in an order that differs from call to call, and hardly any of them has changed.
Finding where a node ends means to scan all of it; comparing it with what stood under its name the last time takes a
third of that, and gives the very same bytes object, under which more can be kept. Compared as it arrives, a body of
many megabytes never stands in memory as a whole, and the comparison is done when its last byte comes.

This is a reading of one spelling, kube-scheduler's own. Whatever differs from it is left to a real decoder.
"""

from threading import Lock
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

_START = b',"Nodes":{"metadata":{},"items":['
# Searched for first: a short text is found, or not found, several times as fast.
_START_OF_MEMBER = b',"Nodes":'
_END = b']},"NodeNames":null}'
_NEXT = b',{"metadata":{"name":"'
_BEFORE_NAME = len(_NEXT) - 1
# Kubernetes' names have at most 253 characters. What is longer is cut: two nodes under one key cost time, no more.
_MOST_NAME = 300

# Bytes that are read at a time: they are compared while the processor's cache has them.
_WINDOW = 512 << 10
_LEAST_READ = 64 << 10

_COMMA, _CLOSING = b",]"
_NO_NODE = "nodes are objects with a comma between"


class SentNodes:
    """The nodes of a body, in order, each as it was sent.

    What is looked at for each of thousands of nodes is a number in an array: following as many objects all over the
    memory takes longer than deciding.

    Args:
        texts: where the nodes stand; it only grows.
        numbers: their places in it.
    """

    def __init__(self, texts: list[bytes], numbers: npt.NDArray[np.intp]) -> None:
        self.texts = texts
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, texts: list[bytes]) -> "SentNodes":
        """Make it of nodes that nobody has recognised."""
        return cls(texts, np.arange(len(texts)))

    def at(self, positions: npt.NDArray[np.intp] | None = None) -> list[bytes]:
        """Return the nodes at these positions; all without any."""
        numbers = self.numbers if positions is None else self.numbers[positions]
        return list(map(self.texts.__getitem__, numbers.tolist()))


class Body(NamedTuple):
    """What a body holds: the Pod, and the nodes."""

    pod: msgspec.Raw
    nodes: SentNodes


class _PodAlone(msgspec.Struct, forbid_unknown_fields=True):
    Pod: msgspec.Raw


_decode_pod = msgspec.json.Decoder(_PodAlone).decode
_check = msgspec.json.Decoder(msgspec.Raw).decode


class InternedNodes:
    """Nodes as they were sent, each under a number of its own. Threads may share it.

    A node that has changed gets another number; what stood under the first stays, for a body may be in hand that
    refers to it.
    """

    def __init__(self) -> None:
        # By what the node begins with: up to its name's end.
        self.number_under: dict[bytes, int] = {}
        self.all: list[bytes] = []
        self.live_bytes = 0
        self.stale_bytes = 0
        self._lock = Lock()

    def keep(self, key: bytes, node: bytes) -> int:
        """Keep a node instead of what stood under its key; returns its number."""
        with self._lock:
            before = self.number_under.get(key)
            stale = 0 if before is None else len(self.all[before])
            self.stale_bytes += stale
            self.live_bytes += len(node) - stale
            number = len(self.all)
            self.all.append(node)
            self.number_under[key] = number  # last: other threads look it up at any moment
            return number

    def renewed(self) -> "InternedNodes":
        """Return the same without what is stale, under other numbers."""
        new = InternedNodes()
        with self._lock:
            for key, number in self.number_under.items():
                new.keep(key, self.all[number])
        return new


class KnownNodes:
    """The nodes as they were last sent. Threads may share it.

    Args:
        most_bytes: what is kept in all; beyond it all is forgotten, and learnt anew.
        most_stale_bytes: how much of that may be of nodes that have changed since.
    """

    def __init__(self, most_bytes: int = 300_000_000, most_stale_bytes: int = 50_000_000) -> None:
        self._most_bytes = most_bytes
        self._most_stale_bytes = most_stale_bytes
        self._texts = InternedNodes()

    def texts(self) -> InternedNodes:
        """Return what a body is compared with from its first byte to its last."""
        texts = self._texts
        if texts.live_bytes > self._most_bytes:
            self._texts = texts = InternedNodes()
        elif texts.stale_bytes > self._most_stale_bytes:
            self._texts = texts = texts.renewed()
        return texts


class Reading:
    """One body on its way in: `space` to put bytes into, `filled` when they are there, `end` when no more come.

    Args:
        known: the nodes that were sent before.
        size: of the body in bytes, as far as it is known.
    """

    def __init__(self, known: KnownNodes, size: int = 0) -> None:
        self._texts = known.texts()
        self._buffer = bytearray(min(size + 1, _WINDOW) if size else _LEAST_READ)
        # Where what has come ends in the buffer.
        self._until = 0
        # Where what isn't recognised yet begins.
        self._at = 0
        # What was searched in vain isn't searched again.
        self._looked_until = 0
        # What stood before the first node; empty until that was found.
        self._before = b""
        self._pod = msgspec.Raw()
        self._numbers: list[int] = []
        # Whether the last node that was cut off had no comma behind it.
        self._is_closed = False
        self._is_usual = True

    def space(self) -> memoryview:
        """Return the memory that the next bytes belong into. Release it before anything else is asked."""
        if self._at and len(self._buffer) - self._until < _LEAST_READ:
            self._drop_what_is_recognised()
        if self._until == len(self._buffer):
            self._buffer.extend(bytes(max(len(self._buffer), _LEAST_READ)))
        return memoryview(self._buffer)[self._until :]

    def _drop_what_is_recognised(self) -> None:
        rest = self._buffer[self._at : self._until]
        self._buffer[: len(rest)] = rest
        self._looked_until = max(0, self._looked_until - self._at)
        self._at, self._until = 0, len(rest)

    def filled(self, size: int) -> None:
        """Take notice of so many bytes that were put into the space."""
        self._until += size
        if self._is_usual:
            self._go_on(self._until, is_all=False)

    def end(self) -> Body | bytes:
        """Return what the body holds; or the body as it is, where it isn't spelled as kube-scheduler spells it."""
        end = self._until - len(_END)
        if self._is_usual and self._before and self._at <= end and self._buffer.startswith(_END, end):
            self._go_on(end, is_all=True)
            # Nothing may be left, and a comma goes before a node.
            if self._is_usual and self._at == end and (self._is_closed or not self._numbers):
                return Body(self._pod, SentNodes(self._texts.all, np.array(self._numbers, dtype=np.intp)))
        consumed = b"".join([self._texts.all[number] + b"," for number in self._numbers])
        consumed = consumed[:-1] if self._is_closed else consumed
        return self._before + consumed + bytes(memoryview(self._buffer)[self._at : self._until])

    def _go_on(self, until: int, *, is_all: bool) -> None:
        try:
            if self._before or self._find_start():
                self._cut(until, is_all=is_all)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._is_usual = False

    def _find_start(self) -> bool:
        """Look for where nodes begin.

        Raises:
            msgspec.DecodeError: what stands before isn't a Pod alone.
        """
        find, until = self._buffer.find, self._until
        start = find(_START_OF_MEMBER, self._looked_until, until)
        while start >= 0 and not self._buffer.startswith(_START, start, until):
            start = find(_START_OF_MEMBER, start + 1, until)
        self._looked_until = max(0, until - len(_START))
        if start < 0:
            return False
        # That this is an object shows that the start stands at the top of the body, not inside the Pod.
        self._pod = _decode_pod(bytes(self._buffer[:start]) + b"}").Pod
        self._at = self._looked_until = start + len(_START)
        self._before = bytes(self._buffer[: self._at])
        return True

    def _cut(self, until: int, *, is_all: bool) -> None:
        """Cut off nodes, up to `until`; a node is whole when what stands behind it is there, or `is_all` says so.

        An object shows where it ends, so one that is known, or decodes, is cut where it has to be.

        Raises:
            msgspec.DecodeError: something else than nodes stands there.
        """
        number_of, texts, buffer, at = self._texts.number_under.get, self._texts.all, self._buffer, self._at
        find, begins, add = buffer.find, buffer.startswith, self._numbers.append
        with memoryview(buffer) as view:
            while at < until and not self._is_closed:
                # Go writes the name first: what stands before its closing quote differs from node to node.
                quote = find(b'"', at + _BEFORE_NAME, at + _MOST_NAME)
                key = view[at : quote if quote >= 0 else at + _MOST_NAME].tobytes()
                number = number_of(key)
                if number is None or not begins(texts[number], at):
                    number = self._learn(key, at, until, is_all=is_all)
                    if number is None:
                        return
                end = at + len(texts[number])
                if end >= until and not is_all:
                    return
                if end < until and buffer[end] == _COMMA:
                    self._at = at = end + 1
                elif end == until or (end < until and buffer[end] == _CLOSING):
                    self._at = at = end
                    self._is_closed = True
                else:
                    raise msgspec.DecodeError(_NO_NODE)
                add(number)

    def _learn(self, key: bytes, at: int, until: int, *, is_all: bool) -> int | None:
        """Find a node's end: before the next that begins, if what stands there is one object; None if it isn't there.

        Raises:
            msgspec.DecodeError: it is not.
        """
        following = self._buffer.find(_NEXT, max(at, self._looked_until), until)
        if following < 0 and not is_all:
            self._looked_until = max(at, until - len(_NEXT))
            return None
        node = bytes(self._buffer[at : following if following >= 0 else until])
        if not node.startswith(b"{"):
            raise msgspec.DecodeError(_NO_NODE)
        _check(node)
        return self._texts.keep(key, node)
