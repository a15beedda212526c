"""Wire JSON to engine objects. No Django.

Nodes of full bodies are the same from call to call, so a decoded Node is kept under the hash of the bytes it came
from: hashing costs a hundredth of decoding.
"""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock

import msgspec
import xxhash

from policies.engine.errors import ObjectError, QuantityError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from scheduler.wire import WireError, decode_json

_TOO_DEEP = "lists and objects are nested too deeply"
"""No Kubernetes object is: its schema ends. The decoder's own limit lies above what reading by recursion can take."""


def read_pod(raw: msgspec.Raw) -> Pod:
    """Make a Pod of its JSON.

    Raises:
        WireError: it isn't a Pod.
    """
    try:
        return Pod.from_json(decode_json(raw))
    except ObjectError as error:
        raise WireError(_without_content(error, "Pod")) from error
    except RecursionError as error:
        message = f"Pod: {_TOO_DEEP}"
        raise WireError(message) from error


def _without_content(error: ObjectError, kind: str) -> str:
    """Keep the body out of the answer: the engine quotes a quantity that it can't read, for authors of documents."""
    return f"{kind}: a quantity in it can't be read" if isinstance(error.__cause__, QuantityError) else str(error)


class NodeCache:
    """Nodes of full bodies by the hash of their bytes. Keeps the `size` that were used last."""

    def __init__(self, size: int = 40_000) -> None:
        self._size = size
        self._nodes: OrderedDict[int, Node] = OrderedDict()
        self._lock = Lock()

    def read(self, items: Sequence[msgspec.Raw]) -> list[Node]:
        """Make Nodes of their JSON, in order.

        Raises:
            WireError: one isn't a Node, or has no name.
        """
        keys = [xxhash.xxh3_128_intdigest(item) for item in items]
        with self._lock:
            nodes = [self._recall(key) for key in keys]
        read = [node or _read_node(item, index) for index, (node, item) in enumerate(zip(nodes, items, strict=True))]
        with self._lock:
            self._nodes.update(zip(keys, read, strict=True))
            while len(self._nodes) > self._size:
                self._nodes.popitem(last=False)
        return read

    def _recall(self, key: int) -> Node | None:
        node = self._nodes.get(key)
        if node is not None:
            self._nodes.move_to_end(key)
        return node


def _read_node(item: msgspec.Raw, index: int) -> Node:
    try:
        node = Node.from_json(decode_json(item))
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
