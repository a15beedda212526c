"""Nodes of full bodies, recognised instead of decoded. No Django.

kube-scheduler sends every node whole, in an order that differs from call to call, and hardly any of them has changed.
Finding where a node ends means to scan all of it; comparing it with what stood under its name the last time takes a
third of that, and gives the very same bytes object, under which more can be kept.

This is a reading of one spelling, kube-scheduler's own. Whatever differs from it is left to a real decoder.
"""

from threading import Lock
from typing import NamedTuple

import msgspec

_START = b',"Nodes":{"metadata":{},"items":['
_END = b']},"NodeNames":null}'
_NEXT = b',{"metadata":{"name":"'
_BEFORE_NAME = len(_NEXT) - 1
_MOST_NAME = 300
"""Kubernetes' names have at most 253 characters. What is longer is cut: two nodes under one key cost time, no more."""

_COMMA = ord(",")


class Body(NamedTuple):
    """What a body holds: the Pod, and the nodes, each as it was sent."""

    pod: msgspec.Raw
    nodes: list[bytes]


class _PodAlone(msgspec.Struct, forbid_unknown_fields=True):
    Pod: msgspec.Raw


_decode_pod = msgspec.json.Decoder(_PodAlone).decode
_check = msgspec.json.Decoder(msgspec.Raw).decode


class KnownNodes:
    """The bytes of each node as it was last sent. Threads may share it.

    Args:
        most_bytes: what is kept in all; beyond it all is forgotten, and learnt anew.
    """

    def __init__(self, most_bytes: int = 300_000_000) -> None:
        self._most_bytes = most_bytes
        self._kept_bytes = 0
        self._known: dict[bytes, bytes] = {}
        self._lock = Lock()

    def read(self, body: bytes) -> Body | None:
        """Read a body with full nodes; None where it isn't spelled as kube-scheduler spells it, or is no JSON."""
        start = body.find(_START) if body.endswith(_END) else -1
        if start < 0:
            return None
        try:
            # That this is an object shows that the start stands at the top of the body, not inside the Pod.
            pod = _decode_pod(body[:start] + b"}").Pod
            nodes = self._nodes(body, start + len(_START), len(body) - len(_END))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return None if nodes is None else Body(pod, nodes)

    def _nodes(self, body: bytes, at: int, end: int) -> list[bytes] | None:
        """Cut at commas. An object shows where it ends, so one that is known, or decodes, is cut where it has to be."""
        known, find, begins = self._known, body.find, body.startswith
        nodes: list[bytes] = []
        while at < end:
            # Go writes the name first: what stands before its closing quote differs from node to node.
            quote = find(b'"', at + _BEFORE_NAME, at + _MOST_NAME)
            key = body[at : quote if quote >= 0 else at + _MOST_NAME]
            node = known.get(key)
            if node is None or not begins(node, at):
                node = self._learn(key, body, at, end)
            nodes.append(node)
            at += len(node)
            if at < end and body[at] != _COMMA:
                return None
            at += 1
        # Behind the last node one comma too many was skipped, which isn't there; an empty list has none.
        return nodes if at == end + bool(nodes) else None

    def _learn(self, key: bytes, body: bytes, at: int, end: int) -> bytes:
        """Find a node's end: before the next that begins, if what stands there is one object.

        Raises:
            msgspec.DecodeError: it is not.
        """
        following = body.find(_NEXT, at, end)
        node = body[at : following if following >= 0 else end]
        if not node.startswith(b"{"):
            message = "a node is an object"
            raise msgspec.DecodeError(message)
        _check(node)
        with self._lock:
            self._kept_bytes += len(key) + len(node) - len(self._known.get(key, b""))
            if self._kept_bytes > self._most_bytes:
                self._known.clear()
                self._kept_bytes = len(key) + len(node)
            self._known[key] = node
        return node
