"""Wire JSON to engine objects. No Django.

Nodes of full bodies are the same from call to call, so a decoded Node is kept under the bytes it came from.
"""

import re
from collections.abc import Sequence
from threading import Lock
from typing import cast

import msgspec

from policies.engine.errors import ObjectError, QuantityError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from scheduler.extender.request.wire import WireError, decode_json, pieces

# No Kubernetes object is: its schema ends. The decoder's own limit lies above what reading by recursion can take.
_TOO_DEEP = "lists and objects are nested too deeply"
# A Pod's JSON. The API server takes no larger object (k8s.io/apiserver v0.36.3 pkg/server/config.go, MaxRequestBodyBytes), and etcd
# keeps none of more than half of it.
MAX_POD_BYTES = 3 * 2**20
# Commas and opening brackets in a Pod: there are as many values. Each takes some 100 bytes when it is read, up to forty times
# its text. A Pod of 300 containers has 30,000.
MAX_POD_PIECES = 150_000
# Where the name of a Node mostly stands.
_NAME = re.compile(rb'"name"\s*:\s*"([a-z0-9.-]+)"')
_FAR = 300
# A Pod of fewer bytes can't have too many values to be borne.
_FEW_BYTES = 100_000
# Longer ones Kubernetes doesn't take (RFC 1123's subdomains). They are kept as keys after the call.
MAX_NAME_LENGTH = 253
# What a Pod takes beside its text: itself, and each of its values.
_POD_BYTES = 2_000
_PIECE_BYTES = 100


def read_pod(raw: msgspec.Raw) -> Pod:
    """Make a Pod of its JSON.

    Raises:
        WireError: it isn't a Pod, or larger than any.
    """
    _check_size(raw)
    try:
        pod = Pod.from_json(decode_json(raw))
    except ObjectError as error:
        raise WireError(_without_content(error, "Pod")) from error
    except RecursionError as error:
        message = f"Pod: {_TOO_DEEP}"
        raise WireError(message) from error
    if max(len(pod.uid), len(pod.name), len(pod.namespace)) > MAX_NAME_LENGTH:
        message = f"Pod: its name, namespace or uid has more than {MAX_NAME_LENGTH} characters"
        raise WireError(message)
    return pod


def kept_bytes(raw: msgspec.Raw | bytes) -> int:
    """Return about what a Pod takes as long as it is kept, by its JSON."""
    text = bytes(raw)
    return _POD_BYTES + len(text) + _PIECE_BYTES * pieces(text)


def _check_size(raw: msgspec.Raw) -> None:
    size = len(memoryview(raw))
    if size <= _FEW_BYTES:
        return
    if size > MAX_POD_BYTES:
        message = f"Pod: {size:,} bytes; at most {MAX_POD_BYTES:,} are read, and Kubernetes takes no more"
        raise WireError(message)
    if pieces(bytes(raw)) > MAX_POD_PIECES:
        message = f"Pod: more than {MAX_POD_PIECES:,} values, by its commas and brackets"
        raise WireError(message)


def _without_content(error: ObjectError, kind: str) -> str:
    """Keep the body out of the answer: the engine quotes a quantity that it can't read, for authors of documents."""
    return f"{kind}: a quantity in it can't be read" if isinstance(error.__cause__, QuantityError) else str(error)


class NodeCache:
    """Nodes of full bodies by their bytes: of each name the version that came last, of at most `size` names.

    `scheduler.extender.request.wire` gives the same object for bytes that it has seen before: Python has its hash, and compares nothing.
    """

    def __init__(self, size: int = 40_000) -> None:
        self._size = size
        self._nodes: dict[bytes, Node] = {}
        self._latest: dict[str, bytes] = {}
        self._lock = Lock()

    def read(self, items: Sequence[bytes]) -> list[Node]:
        """Make Nodes of their JSON, in order.

        Raises:
            WireError: one isn't a Node, or has no name.
        """
        nodes = list(map(self._nodes.get, items))
        if None in nodes:
            for index, item in enumerate(items):
                nodes[index] = nodes[index] or self._learn(item, index)
        return cast("list[Node]", nodes)

    def read_one(self, item: bytes, index: int) -> Node:
        """Make a Node of its JSON; `index` is its place in the body.

        Raises:
            WireError: it isn't a Node, or has no name.
        """
        return self._nodes.get(item) or self._learn(item, index)

    def share(self, item: bytes, known: Node) -> None:
        """Let a Node that was read from this text share what was read of the same version elsewhere."""
        with self._lock:
            node = self._nodes.get(item)
            if node is not None:
                self._nodes[item] = node.sharing(known)

    def _learn(self, item: bytes, index: int) -> Node:
        node = self._after_heartbeat(item) or _read_node(item, index)
        with self._lock:
            if len(self._latest) >= self._size and node.name not in self._latest:
                self._nodes.clear()
                self._latest.clear()
            self._nodes.pop(self._latest.get(node.name, b""), None)
            self._nodes[item] = node
            self._latest[node.name] = item
        return node

    def _after_heartbeat(self, item: bytes) -> Node | None:
        """Return the Node where nothing but a heartbeat is new since it came last."""
        # The name may stand elsewhere, and this be another's: then more differs.
        named = _NAME.search(item, 0, _FAR)
        before = self._nodes.get(self._latest.get(named[1].decode("ascii", "replace"), b"")) if named else None
        return before.after_heartbeat(item) if before is not None else None


def _read_node(item: bytes, index: int) -> Node:
    decode_json(item)  # what no rule has read yet shall be JSON too, when one reads it
    try:
        node = Node.from_text(item)
    except ObjectError as error:
        message = f"Nodes.items[{index}]: {_without_content(error, 'Node')}"
        raise WireError(message) from error
    except RecursionError as error:
        message = f"Nodes.items[{index}]: {_TOO_DEEP}"
        raise WireError(message) from error
    if not node.name:
        message = f"Nodes.items[{index}] has no name"
        raise WireError(message)
    return node
