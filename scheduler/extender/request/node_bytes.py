"""Recognises the nodes of full bodies instead of decoding them, while the body is still arriving. No Django.

kube-scheduler sends every node whole, in an order that differs from call to call, and hardly any of them has changed.
Finding where a node ends means scanning all of it; comparing it with the last text under its UID takes a third of that
time, and gives the same bytes object, which can serve as a key for more. Because it is compared as it arrives, a body of
many megabytes is never in memory as a whole, and the comparison is done when its last byte arrives.

Only the nodes are read here, with the members in any order and any white space. The rest of the body is left to the
decoder, with a mark in place of the nodes; so is the whole body if its nodes can't be recognised.
"""

import re
import secrets
import struct
from collections.abc import Sequence
from threading import Lock
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.cluster.nesting import end_of

_NODES = b'"Nodes"'
_NO_NODES = b'"Nodes":null'
# A NodeList up to its first item. The decoder finds out whether it is the body's own: see `Body.around`.
_START = re.compile(rb'"Nodes"\s*:\s*\{[^\[\]]{0,300}?"items"\s*:\s*\[\s*(?=[{\]])')
_MOST_START = 400
# The members that identify nodes; the first one present is used. Only speed depends on it.
_MARKERS = re.compile(rb'"uid"\s*:\s*"'), re.compile(rb'"name"\s*:\s*"')
_MOST_VALUE = 300
# The length of a UID.
_USUAL_VALUE = 36
_VALUE = struct.Struct(f"{_USUAL_VALUE}s")
# How far from the start of a node that member is searched for.
_FAR = 32 << 10
# The text after a node: a comma and another node, or the end of the list.
_BEHIND = re.compile(rb"(\s*,\s*)\{|\s*\]")
_MOST_SPACE = 1000
# Replaces the nodes for the decoder; no body can contain it.
MARK = secrets.token_hex().encode().join([b'"', b'"'])

# Bytes that are read at a time: they are compared while the processor's cache has them.
_WINDOW = 512 << 10
_LEAST_READ = 64 << 10

# In one body, twenty times what Kubernetes supports (kubernetes.io/docs/setup/best-practices/cluster-large: 5,000).
MAX_NODES = 100_000
_NO_NODE = "nodes are objects with a comma between"
_check = msgspec.json.Decoder(msgspec.Raw).decode
# The only way that msgspec tells where a value ends: the first byte after it, counted from 1.
_TRAILING = re.compile(r"JSON is malformed: trailing characters \(byte (\d+)\)")
_TRUNCATED = "Input data was truncated"


class SentNodes:
    """The nodes of a body, in order, each as it was sent.

    For each of thousands of nodes, only a number in an array is read: following that many objects through memory
    takes longer than deciding.

    Args:
        texts: the texts of nodes; it only grows.
        numbers: the nodes' indices in it.
    """

    def __init__(self, texts: list[bytes], numbers: npt.NDArray[np.intp]) -> None:
        self.texts = texts
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def at(self, positions: npt.NDArray[np.intp] | None = None) -> list[bytes]:
        """Return the nodes at these positions; all without any."""
        numbers = self.numbers if positions is None else self.numbers[positions]
        return list(map(self.texts.__getitem__, numbers.tolist()))


class Body(NamedTuple):
    """A body whose nodes were recognised.

    Attributes:
        before: the text before the nodes.
        nodes: the nodes.
        gap: the text between each two nodes.
        behind: the text after the nodes.
    """

    before: bytes
    nodes: SentNodes
    gap: bytes
    behind: bytes

    def around(self) -> bytes:
        """Return the body with `MARK` in place of the nodes.

        If a decoder finds the mark as the only item of the NodeList, the recognised nodes are its items:
        the rest of the body is the same, and each node is an object.
        """
        return self.before + MARK + self.behind

    def whole(self) -> bytes:
        """Return the body as it was sent."""
        return self.before + self.gap.join(self.nodes.at()) + self.behind


# The memory of a kept node beside its text: the object, its dict and list entries. `{"":0}` takes forty times its text.
_BESIDE_TEXT = 250


class InternedNodes:
    """Nodes as they were sent, each under a number of its own. Threads may share it.

    A node that has changed gets a new number; the text under its old number stays, because a body in progress may
    refer to it.
    """

    def __init__(self) -> None:
        # By the UID, or by the other member that identifies nodes.
        self.number_under: dict[bytes, int] = {}
        self.all: list[bytes] = []
        self.live_bytes = 0
        self.stale_bytes = 0
        self._lock = Lock()

    def keep(self, key: bytes, node: bytes) -> int:
        """Keep a node in place of the former one under its key; returns its number."""
        with self._lock:
            before = self.number_under.get(key)
            stale = 0 if before is None else len(self.all[before]) + _BESIDE_TEXT
            self.stale_bytes += stale
            self.live_bytes += len(node) + _BESIDE_TEXT - stale
            if before is None and key is not node:
                self.live_bytes += len(key)
            number = len(self.all)
            self.all.append(node)
            self.number_under[key] = number  # last: other threads look it up at any moment
            return number

    def renewed(self) -> "InternedNodes":
        """Return the nodes that aren't stale, under other numbers."""
        new = InternedNodes()
        with self._lock:
            for key, number in self.number_under.items():
                new.keep(key, self.all[number])
        return new


class KnownNodes:
    """The nodes as they were last sent. Threads may share it.

    Args:
        most_bytes: the limit of everything kept, overhead included; beyond it, all nodes are forgotten and learnt anew.
        most_stale_bytes: how much of that may belong to nodes that have changed since.
    """

    def __init__(self, most_bytes: int = 300_000_000, most_stale_bytes: int = 50_000_000) -> None:
        self._most_bytes = most_bytes
        self._most_stale_bytes = most_stale_bytes
        self._texts = InternedNodes()

    def texts(self) -> InternedNodes:
        """Return the nodes that a body is compared with, from its first byte to its last."""
        texts = self._texts
        if texts.live_bytes > self._most_bytes:
            self._texts = texts = InternedNodes()
        elif texts.stale_bytes > self._most_stale_bytes:
            self._texts = texts = texts.renewed()
        return texts

    def intern(self, nodes: Sequence[bytes]) -> SentNodes:
        """Keep nodes that nobody recognised, each under its own text."""
        texts = self.texts()
        numbers = [
            texts.keep(node, node) if (number := texts.number_under.get(node)) is None else number for node in nodes
        ]
        return SentNodes(texts.all, np.array(numbers, dtype=np.intp))


class Reading:
    """A body while it arrives: `space` to put bytes into, `filled` once they are there, `end` when no more come.

    Args:
        known: the nodes that were sent before.
        size: of the body in bytes; 0 if unknown.
    """

    def __init__(self, known: KnownNodes, size: int = 0) -> None:
        self._texts = known.texts()
        self._buffer = bytearray(min(size + 1, _WINDOW) if size else _LEAST_READ)
        # The end of the received bytes in the buffer.
        self._until = 0
        # The start of the bytes that aren't recognised yet.
        self._at = 0
        # Bytes that were searched in vain aren't searched again.
        self._looked_until = 0
        # The text before the first node; empty until that is found.
        self._before = b""
        self._numbers: list[int] = []
        # The text between the first two nodes; it has to be the same between all.
        self._gap = b""
        # The text before the value that identifies nodes; empty until the first node shows it.
        self._marker = b""
        # This many bytes from a node's start did not reach its end.
        self._too_few = 0
        # Whether the list of nodes has ended.
        self._is_closed = False
        self._is_usual = True

    def space(self) -> memoryview:
        """Return the memory for the next bytes. Release it before any other call."""
        if self._at and len(self._buffer) - self._until < _LEAST_READ:
            self._drop_what_is_recognised()
        if self._until == len(self._buffer):
            self._buffer.extend(bytes(max(len(self._buffer), _LEAST_READ)))
        return memoryview(self._buffer)[self._until :]

    def _drop_what_is_recognised(self) -> None:
        rest = self._buffer[self._at : self._until]
        self._buffer[: len(rest)] = rest
        self._at, self._until = 0, len(rest)

    def filled(self, size: int) -> None:
        """Process this many bytes that were put into the space."""
        self._until += size
        self._go_on(is_all=False)

    def end(self) -> Body | bytes:
        """Return the body with its nodes recognised; or the body as it is, if its nodes weren't found."""
        self._too_few = 0  # no more bytes will come
        self._go_on(is_all=True)
        rest = bytes(memoryview(self._buffer)[self._at : self._until])
        if not self._before:
            return rest
        nodes = SentNodes(self._texts.all, np.array(self._numbers, dtype=np.intp))
        body = Body(self._before, nodes, self._gap, rest)
        if self._is_usual and self._is_closed:
            return body
        return body._replace(behind=(self._gap if self._numbers and not self._is_closed else b"") + rest).whole()

    def _go_on(self, *, is_all: bool) -> None:
        if not self._is_usual or self._is_closed:
            return
        try:
            if self._before or self._find_start(is_all=is_all):
                self._cut(is_all=is_all)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self._is_usual = False
        if len(self._numbers) > MAX_NODES:
            self._is_usual = False

    def _find_start(self, *, is_all: bool) -> bool:
        """Look for the start of the nodes."""
        find, until = self._buffer.find, self._until
        found = find(_NODES, self._looked_until, until)
        while found >= 0:
            start = _START.match(self._buffer, found, until)
            if start is not None:
                self._at = start.end()
                self._before = bytes(self._buffer[: self._at])
                return True
            if self._buffer.startswith(_NO_NODES, found):
                self._is_usual = False  # names come, and searching them all takes as long as reading them
                return False
            if until - found < _MOST_START and not is_all:
                self._looked_until = found
                return False
            found = find(_NODES, found + 1, until)
        self._looked_until = max(self._looked_until, until - len(_NODES))
        return False

    def _cut(self, *, is_all: bool) -> None:
        """Cut off nodes; a node is complete when the text after it has arrived.

        An object shows where it ends, so a node that is known, or that decodes, is cut at the right place.

        Raises:
            msgspec.DecodeError: the list contains something other than nodes.
        """
        texts, buffer, at, until = self._texts.all, self._buffer, self._at, self._until
        if not self._marker and not self._find_marker(is_all=is_all):
            return
        find, begins, add = buffer.find, buffer.startswith, self._numbers.append
        number_of, gap, marker, size = self._texts.number_under.get, self._gap, self._marker, len(self._marker)
        # A gap of one byte, the usual case, is compared as a number, which takes half as long as a method call.
        comma = gap[0] if len(gap) == 1 else -1
        # The offset of the identifying value in the last node: the same in most nodes, if their names have one length.
        far = 0
        # A struct takes half as long as a slice of the buffer, but can't end behind it.
        value_in, last = _VALUE.unpack_from, len(buffer) - _USUAL_VALUE
        while at < until:
            # Most values are UIDs, all of one length. The comparison shows whether the text is that node's.
            number = number_of(value_in(buffer, at + far)[0]) if at + far <= last else None
            if number is None or not begins(text := texts[number], at):
                start = find(marker, at, at + _FAR) + size
                number = number_of(bytes(buffer[start : start + _USUAL_VALUE])) if start != at + far else None
                far = start - at
                if number is None or not begins(text := texts[number], at):
                    self._at = at
                    number = self._number_at(start)
                    if number is None:
                        return
                    text = texts[number]
            end = at + len(text)
            if end + 1 < until and buffer[end] == comma:
                at = end + 1
                add(number)
                continue
            if gap and end + len(gap) < until and begins(gap, end):
                at = end + len(gap)
                add(number)
                continue
            self._at = at
            if not self._look_behind(end):
                return
            add(number)
            at, gap = self._at, self._gap
            comma = gap[0] if len(gap) == 1 else -1
            if self._is_closed:
                break
        self._at = at

    def _number_at(self, start: int) -> int | None:
        """Return the number of the next node; `start` is where its identifying value begins. None if its end hasn't arrived yet.

        Raises:
            msgspec.DecodeError: no node begins there.
        """
        # If no value ends here, as in `{}`, the key must be short as well: it is copied and kept.
        stop = self._buffer.find(b'"', start, start + _MOST_VALUE)
        key = bytes(self._buffer[start : stop if stop >= 0 else start + _MOST_VALUE])
        number = self._texts.number_under.get(key)
        if number is not None and self._buffer.startswith(self._texts.all[number], self._at):
            return number
        return self._learn(key)

    def _find_marker(self, *, is_all: bool) -> bool:
        if self._buffer.startswith(b"]", self._at):
            self._is_closed = True
            return False
        end = min(self._at + _FAR, self._until)
        if end == self._until and not is_all:
            return False
        found = [marker.search(self._buffer, self._at, end) for marker in _MARKERS]
        self._marker = next((match[0] for match in found if match), b"{")
        return True

    def _look_behind(self, end: int) -> bool:
        """Read on after a node that ends there. Return False if the text after it hasn't arrived yet.

        Raises:
            msgspec.DecodeError: neither another node nor the end of the list follows.
        """
        behind = _BEHIND.match(self._buffer, end, self._until)
        if behind is None:
            rest = bytes(self._buffer[end : min(self._until, end + _MOST_SPACE)]).strip()
            if rest not in {b"", b","} or self._until - end >= _MOST_SPACE:
                raise msgspec.DecodeError(_NO_NODE)
            return False
        gap = behind[1]
        if gap is None:
            self._is_closed = True
            self._at = end
        elif gap == (self._gap or gap):
            self._gap = gap
            self._at = end + len(gap)
        else:
            raise msgspec.DecodeError(_NO_NODE)
        return True

    def _learn(self, key: bytes) -> int | None:
        """Find the end of the next object, and keep it; None if its end hasn't arrived yet.

        Raises:
            msgspec.DecodeError: no object begins there.
        """
        at, until = self._at, self._until
        if not self._buffer.startswith(b"{", at):
            raise msgspec.DecodeError(_NO_NODE)
        if until - at < 2 * self._too_few:
            return None  # scanning a large object again with each window would take quadratic time
        try:
            with memoryview(self._buffer) as view, view[at:until] as rest:
                _check(rest)
        except msgspec.DecodeError as error:
            trailing = _TRAILING.fullmatch(str(error))
            if trailing:
                self._too_few = 0
                return self._texts.keep(key, bytes(self._buffer[at : at + int(trailing[1]) - 1]).rstrip())
            if str(error) != _TRUNCATED:
                raise
        except RecursionError:
            text = bytes(memoryview(self._buffer)[at:until])
            if end := end_of(text):
                self._too_few = 0
                return self._texts.keep(key, text[:end])
        self._too_few = until - at
        return None
