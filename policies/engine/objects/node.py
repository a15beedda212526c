"""Nodes as the engine reads them, and the Pods on them.

Field names and meaning: k8s.io/api v0.36.3 core/v1 types.go; NodeInfo: kube-scheduler v1.36.3 framework/types.go.
"""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from operator import is_
from sys import intern
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from msgspec import structs

from policies.engine.errors import ObjectError, QuantityError
from policies.engine.objects.heartbeat import MEMBERS, Heartbeat, Piece
from policies.engine.objects.metadata import AnnotatedMetadata, Int64, convert_object, decode_object
from policies.engine.objects.pod import Pod
from policies.engine.objects.resources import CPU, MEMORY, PODS, Resources
from policies.engine.quantity import Text

# The path of a value inside Kubernetes JSON: ("metadata", "labels", "team").
Path = tuple[str, ...]
_PLAIN_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# Marks a missing member. (None is a value: JSON's null.)
MISSING = object()


class Trace(NamedTuple):
    """How far a path leads into a JSON value, and the value there.

    `depth` is the number of steps that could be taken; `value` is the value after them: the one that the path names at full
    depth, MISSING where an object has no such member, or a value that isn't an object and so has no members.
    `token` is equal for equal traces and can be hashed.
    """

    token: Hashable
    depth: int
    value: object


def spelled(root: str, path: Path) -> str:
    """Write a path as in an expression: node.metadata.labels['example.com/kind']."""
    return root + "".join(f".{step}" if _PLAIN_STEP.fullmatch(step) else f"['{step}']" for step in path)


def spelled_label(key: str) -> str:
    """Write the label of a node as in an expression."""
    return spelled("node", ("metadata", "labels", key))


def trace(json: object, path: Path) -> Trace:
    """Follow a path into decoded JSON."""
    for depth, key in enumerate(path):
        if not isinstance(json, dict):
            return Trace((depth, _token(json)), depth, json)
        if key not in json:
            return Trace((depth, MISSING), depth, MISSING)
        json = json[key]
    return Trace((len(path), _token(json)), len(path), json)


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


def find_text(json: bytes, path: Path) -> tuple[int, bytes | msgspec.Raw | None]:
    """Follow a path into JSON text, decoding no more than the names on the way.

    Returns:
        How many steps could be taken, and the text there; None where an object has no such member.
    """
    found: bytes | msgspec.Raw = json
    for depth, key in enumerate(path):
        try:
            members = _MEMBERS.decode(found)
        except msgspec.ValidationError:
            return depth, found
        if key not in members:
            return depth, None
        found = members[key]
    return len(path), found


def trace_text(json: bytes, path: Path) -> Trace:
    """Follow a path into JSON text, with the same result as `trace` on the decoded value."""
    depth, found = find_text(json, path)
    if found is None:
        return Trace((depth, MISSING), depth, MISSING)
    value = msgspec.json.decode(found)
    return Trace((depth, _token(value)), depth, value)


def _token(value: object) -> Hashable:
    if isinstance(value, str):
        return value
    return type(value), msgspec.json.encode(value, order="sorted")


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A taint: it keeps Pods that don't tolerate it off the node."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    """The part of NodeSpec that rules read."""

    unschedulable: bool = False
    taints: list[Taint] | None = None


class NodeCondition(msgspec.Struct, frozen=True, gc=False):
    """A condition of a Node; `status` is True, False or Unknown."""

    type: str = ""
    status: str = ""


class ContainerImage(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """An image that a node has."""

    names: list[str] | None = None
    size_bytes: Int64 = 0


class NodeStatus(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """The part of NodeStatus that rules read."""

    allocatable: dict[str, Text] | None = None
    capacity: dict[str, Text] | None = None
    conditions: list[NodeCondition] | None = None
    declared_features: list[str] | None = None
    images: list[ContainerImage] | None = None


class NodeObject(msgspec.Struct, frozen=True, gc=False):
    """A Node as it is decoded from Kubernetes JSON; unknown members are ignored."""

    metadata: AnnotatedMetadata = AnnotatedMetadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ImageSizes(dict[str, int]):
    """The size in bytes of each image of a node, by every name that it has. Read-only."""

    __slots__ = ("__weakref__",)


# Members that are maps with arbitrary keys.
_NAMED_FREELY = frozenset({("metadata", "labels"), ("metadata", "annotations"), ("status", "allocatable")})


class Node:
    """One version of a Node. It never changes, so values computed from it are cached.

    The JSON that expressions see is kept decoded, or as text where there are very many Nodes: decoded JSON takes four
    times as much memory.

    Attributes:
        content: the same object in all versions that differ only for expressions and for rules about images.
    """

    def __init__(self, parsed: NodeObject, json: dict[str, Any] | bytes) -> None:
        self.parsed = parsed
        self.name = parsed.metadata.name
        self.labels = parsed.metadata.labels or {}
        self.content = object()
        self._json = json
        self._traces: dict[Path, Trace] = {}

    @classmethod
    def from_json(cls, json: object) -> "Node":
        """Make a Node of decoded Kubernetes JSON.

        Raises:
            ObjectError: a field has the wrong type; the message says which.
        """
        if not isinstance(json, dict):
            message = f"a Node is an object, not {type(json).__name__}"
            raise ObjectError(message)
        try:
            node = cls(convert_object(json, NodeObject), json)
            _ = node.allocatable
        except (msgspec.ValidationError, QuantityError) as error:
            message = f"Node: {error}"
            raise ObjectError(message) from error
        return node

    @classmethod
    def from_text(cls, json: bytes) -> "Node":
        """Make a Node of the text of Kubernetes JSON, and keep the text.

        Raises:
            ObjectError: a field has the wrong type; the message says which.
            msgspec.DecodeError: the text isn't JSON.
        """
        try:
            node = cls(_slim(decode_object(json, _NODE)), json)
            _ = node.allocatable
        except (msgspec.ValidationError, QuantityError) as error:
            message = f"Node: {error}"
            raise ObjectError(message) from error
        return node

    def after_heartbeat(self, text: bytes) -> "Node | None":
        """Return the version of this Node with another text, where only a heartbeat lies between; the two share all decoded fields.

        None where more differs, or where this isn't certain.
        """
        old, heartbeat = self._json, self._heartbeat
        version = heartbeat.version_in(old, text) if heartbeat is not None and isinstance(old, bytes) else None
        if version is None:
            return None
        metadata = structs.replace(self.metadata, resource_version=text[version].decode())
        # Copied first, in one step of the interpreter: another thread may be adding to it.
        traces = {path: found for path, found in self._traces.copy().items() if path[:2] in _NAMED_FREELY}
        node = object.__new__(Node)
        node.__dict__ |= self.__dict__ | {
            "parsed": structs.replace(self.parsed, metadata=metadata),
            "_json": text,
            "_traces": traces,
        }
        if len(old) != len(text):
            del node.__dict__["_heartbeat"]  # positions after the version have moved
        return node

    def heartbeat_since(self, before: "Node") -> list[Piece] | None:
        """Return the pieces of text that differ from another version of this Node, in order.

        None unless it is known, without comparing the texts, that only heartbeats lie between.
        """
        # Shared by `after_heartbeat` alone, and only where the texts have the same length.
        heartbeat: Heartbeat | None = self.__dict__.get("_heartbeat")
        is_shared = heartbeat is before.__dict__.get("_heartbeat")
        return list(heartbeat.pieces_between(before.text, self.text)) if heartbeat and is_shared else None

    def sharing(self, other: "Node") -> "Node":
        """Return this Node, sharing the decoded fields of another one where they are equal."""
        if self.content is other.content or self.parsed != other.parsed:
            return self
        node = Node(other.parsed, self._json)
        node.content, node.labels, node.allocatable = other.content, other.labels, other.allocatable
        return node

    @cached_property
    def _heartbeat(self) -> Heartbeat | None:
        metadata, status = self.metadata, self.parsed.status
        names = set().union(*(each or () for each in (metadata.labels, metadata.annotations, status.allocatable)))
        return Heartbeat.of(self.text, metadata.resource_version) if names.isdisjoint(MEMBERS) else None

    @property
    def json(self) -> dict[str, Any]:
        """The Kubernetes JSON, read-only. Where it is kept as text it is decoded on each access: see `trace`."""
        decoded: dict[str, Any] = msgspec.json.decode(self._json) if isinstance(self._json, bytes) else self._json
        return decoded

    @property
    def text(self) -> bytes:
        """The Kubernetes JSON as text."""
        return self._json if isinstance(self._json, bytes) else msgspec.json.encode(self._json)

    @property
    def metadata(self) -> AnnotatedMetadata:
        """The metadata of the Node."""
        return self.parsed.metadata

    @cached_property
    def allocatable(self) -> Resources:
        """The allocatable resources. Without `status.allocatable`, nothing, as in kube-scheduler."""
        return Resources.of(self.parsed.status.allocatable)

    @cached_property
    def images(self) -> Mapping[str, int]:
        """The size in bytes of each image, by every name that it has.

        Versions of a Node, and Nodes, that have the same images in the same text share one: most changes of a Node are
        the kubelet's heartbeat.
        """
        if not isinstance(self._json, bytes):
            return _sizes(self.parsed.status.images)
        _, text = find_text(self._json, ("status", "images"))
        key = blake2b(text or b"", digest_size=16).digest()
        shared = _SHARED_IMAGES.get(key)
        if shared is None:
            shared = _SHARED_IMAGES[key] = _sizes(decode_object(text, _IMAGES) if text else None)
        return shared

    def has_condition(self, kind: str) -> bool:
        """Return whether a condition's status is True; of several conditions of a type the last one counts."""
        found = [condition.status for condition in self.parsed.status.conditions or () if condition.type == kind]
        return bool(found) and found[-1] == "True"

    def trace(self, path: Path) -> Trace:
        """Follow a path into the node's JSON. Kept per node version: rules read the same few paths."""
        found = self._traces.get(path)
        if found is None:
            json = self._json
            found = self._traces[path] = trace_text(json, path) if isinstance(json, bytes) else trace(json, path)
        return found


_NODE = msgspec.json.Decoder(NodeObject)
_IMAGES = msgspec.json.Decoder(list[ContainerImage] | None)
# By digest of the text; weak references, so that images are freed with the last node that has them.
_SHARED_IMAGES: WeakValueDictionary[bytes, ImageSizes] = WeakValueDictionary()


def _sizes(images: Iterable[ContainerImage] | None) -> ImageSizes:
    return ImageSizes({intern(name): image.size_bytes for image in images or () for name in image.names or ()})


def _slim(parsed: NodeObject) -> NodeObject:
    """Drop images, which are read from the text when they are needed; share labels, which are the same on many nodes."""
    metadata = parsed.metadata
    labels = {intern(key): intern(value) for key, value in (metadata.labels or {}).items()}
    return structs.replace(
        parsed,
        metadata=structs.replace(metadata, labels=labels),
        status=structs.replace(parsed.status, images=None, capacity=None),
    )


class NodeInfo:
    """A Node with the live Pods on it, and the resources that they use. Made anew when either changes."""

    def __init__(self, node: Node, pods: Sequence[Pod] = ()) -> None:
        self.node = node
        self.name = node.name
        # A tuple from which nothing is left out is kept as it is, so that holders can compare it by identity.
        self.pods = pods if isinstance(pods, tuple) and all(pod.is_live for pod in pods) else _live(pods)

    def joined(self, pods: Iterable[Pod]) -> "NodeInfo":
        """Return the same node with more Pods on it. Cached values of the existing Pods aren't computed anew."""
        more = _live(pods)
        joined = NodeInfo(self.node)
        joined.pods = (*self.pods, *more)
        if "requested" in self.__dict__:
            joined.requested = _sum((self.requested, *(pod.requests for pod in more)))
        if "nonzero_requested" in self.__dict__:
            joined.nonzero_requested = _sum((self.nonzero_requested, *(pod.nonzero_requests for pod in more)))
        return joined

    def with_node(self, node: Node) -> "NodeInfo":
        """Return another version of the node with the same Pods on it, whose cached values aren't computed anew."""
        info = NodeInfo(node)
        # Copied in one step of the interpreter: another thread may be caching a value.
        info.__dict__ |= self.__dict__ | {"node": node}
        info.__dict__.pop("usage", None)
        return info

    @cached_property
    def requested(self) -> Resources:
        """The sum of the Pods' requests."""
        return _sum(pod.requests for pod in self.pods)

    @cached_property
    def nonzero_requested(self) -> Resources:
        """The sum of the Pods' requests, with the defaults that scores count."""
        return _sum(pod.nonzero_requests for pod in self.pods)

    def is_heartbeat_of(self, before: "NodeInfo") -> bool:
        """Return whether this is another version of the node with the same content, and the same Pods on it."""
        if self.node is before.node or self.node.content is not before.node.content:
            return False
        return len(self.pods) == len(before.pods) and all(map(is_, self.pods, before.pods))

    @cached_property
    def usage(self) -> dict[str, dict[str, int]]:
        """The value that expressions see as `usage`: cpu in millicores, memory in bytes, pods, and any other resource."""
        allocatable = dict(self.node.allocatable.amounts)
        requested = {name: self.requested.get(name) for name in (CPU, MEMORY)} | self.requested.amounts
        requested[PODS] = len(self.pods)
        for name in requested:
            allocatable.setdefault(name, 0)
        free = {name: amount - requested.get(name, 0) for name, amount in allocatable.items()}
        return {"allocatable": allocatable, "requested": requested, "free": free}


def _live(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    return tuple(pod for pod in pods if pod.is_live)


def _sum(amounts: Iterable[Resources]) -> Resources:
    total = Resources({})
    for amount in amounts:
        total.add(amount)
    return total
