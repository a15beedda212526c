"""Converts wire JSON to engine objects. No Django.

Nodes of full bodies are the same from call to call, so a decoded Node is cached under the bytes it was decoded from.
"""

import re
from collections.abc import Sequence
from threading import Lock
from typing import cast

import msgspec

from policies.engine.errors import ObjectError, QuantityError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from scheduler.cluster.nesting import bounded
from scheduler.extender.request.wire import WireError, decode_json, pieces

# The limit of a Pod's JSON. The API server accepts no larger object (k8s.io/apiserver v0.36.3 pkg/server/config.go,
# MaxRequestBodyBytes), and etcd stores no object of more than half of it.
MAX_POD_BYTES = 3 * 2**20
# The limit of commas and opening brackets in a Pod, which equals its number of values. Each takes some 100 bytes when decoded,
# up to forty times its text. A Pod of 300 containers has 30,000.
MAX_POD_PIECES = 150_000
# The usual place of a Node's name.
_NAME = re.compile(rb'"name"\s*:\s*"([a-z0-9.-]+)"')
_FAR = 300
# A Pod of fewer bytes can't have too many values.
_FEW_BYTES = 100_000
# Kubernetes accepts no longer name (RFC 1123's subdomains). Names are kept as keys after the call.
MAX_NAME_LENGTH = 253
# The memory of a Pod beside its text: of the object itself, and of each of its values.
_POD_BYTES = 2_000
_PIECE_BYTES = 100


def read_pod(raw: msgspec.Raw) -> Pod:
    """Make a Pod from its JSON.

    Raises:
        WireError: the JSON isn't a Pod, is larger than any Pod can be, or has a name that Kubernetes doesn't take.
    """
    _check_size(raw)
    try:
        pod = Pod.from_json(decode_json(raw))
    except ObjectError as error:
        raise WireError(_without_content(error, "Pod")) from error
    if fault := _fault_of_names(pod.uid, pod.name, pod.namespace):
        message = f"Pod: its name, namespace or uid {fault}"
        raise WireError(message)
    return pod


def kept_bytes(raw: msgspec.Raw | bytes) -> int:
    """Return the approximate memory of a Pod while it is kept, estimated from its JSON."""
    text = bytes(raw)
    return _POD_BYTES + len(text) + _PIECE_BYTES * pieces(text)


def _fault_of_names(*names: str) -> str:
    """Return why these can't be names in Kubernetes, nor be stored in a Decision; "" if they can."""
    if max(map(len, names)) > MAX_NAME_LENGTH:
        return f"has more than {MAX_NAME_LENGTH} characters"
    return "holds NUL" if any("\0" in name for name in names) else ""


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
    """Keep the body out of the answer: the engine's messages, written for authors of documents, quote unreadable quantities."""
    return f"{kind}: a quantity in it can't be read" if isinstance(error.__cause__, QuantityError) else str(error)


class NodeCache:
    """Nodes of full bodies by their bytes: the latest version for each name, for at most `size` names.

    For bytes seen before, `scheduler.extender.request.wire` returns the same bytes object: Python has its hash, and compares nothing.
    """

    def __init__(self, size: int = 40_000) -> None:
        self._size = size
        self._nodes: dict[bytes, Node] = {}
        self._latest: dict[str, bytes] = {}
        self._lock = Lock()

    def read(self, items: Sequence[bytes]) -> list[Node]:
        """Make Nodes from their JSON, in order.

        Raises:
            WireError: an item isn't a Node, or has no name that Kubernetes takes.
        """
        nodes = list(map(self._nodes.get, items))
        if None in nodes:
            for index, item in enumerate(items):
                nodes[index] = nodes[index] or self._learn(item, index)
        return cast("list[Node]", nodes)

    def read_one(self, item: bytes, index: int) -> Node:
        """Make a Node from its JSON; `index` is its place in the body.

        Raises:
            WireError: the item isn't a Node, or has no name that Kubernetes takes.
        """
        return self._nodes.get(item) or self._learn(item, index)

    def share(self, item: bytes, known: Node) -> None:
        """Let the Node decoded from this text share the values already decoded from the same version elsewhere."""
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
        """Return the Node if only a heartbeat has changed since its last version."""
        # This may be another member's name, and not the Node's: then more than a heartbeat differs.
        named = _NAME.search(item, 0, _FAR)
        before = self._nodes.get(self._latest.get(named[1].decode("ascii", "replace"), b"")) if named else None
        return before.after_heartbeat(item) if before is not None else None


def _read_node(sent: bytes, index: int) -> Node:
    item = bounded(sent)  # its managedFields have any depth that its author likes
    decode_json(item)  # parts that no rule has read yet must be valid JSON too, for when one reads them
    try:
        node = Node.from_text(item)
    except ObjectError as error:
        message = f"Nodes.items[{index}]: {_without_content(error, 'Node')}"
        raise WireError(message) from error
    if not node.name:
        message = f"Nodes.items[{index}] has no name"
        raise WireError(message)
    if fault := _fault_of_names(node.name):
        message = f"Nodes.items[{index}]: its name {fault}"
        raise WireError(message)
    return node
