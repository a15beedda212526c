"""The kinds of objects that are watched, and how their JSON is decoded.

Each object is decoded once, directly to the fields that rules read; for Nodes the text is kept too, because expressions may
read any field. An object that can't be decoded is left out and logged; it must not stop the others.
Source of lists, events and bookmarks: k8s.io/apimachinery v0.36.3 pkg/apis/meta/v1.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from policies.engine.errors import ObjectError, QuantityError
from policies.engine.objects.cluster_kinds import (
    ATTACHMENTS,
    CLAIMS,
    CSI_NODES,
    DISRUPTION_BUDGETS,
    REPLICA_SETS,
    REPLICATION_CONTROLLERS,
    SERVICES,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    TYPES,
    VOLUMES,
    ClusterObject,
    NamedMetadata,
)
from policies.engine.objects.metadata import decode_object
from policies.engine.objects.namespace import Namespace
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Metadata, Pod, PodObject
from scheduler.cluster.errors import APIError, APIUnavailableError, APIUnreadableError, StatusObject, error_of_status

logger = logging.getLogger("berth.cluster")


class Kept(Protocol):
    """An object that a watch keeps: a Pod, a Node, a Namespace or another kind."""

    @property
    def metadata(self) -> Metadata | NamedMetadata:
        """The object's own."""


T = TypeVar("T", bound=Kept)


class Page(msgspec.Struct, Generic[T], frozen=True):
    """One page of a list. `objects` maps key -> object; `continue_token` is "" on the last page."""

    objects: dict[str, T]
    resource_version: str
    continue_token: str = ""


class Seen(msgspec.Struct, Generic[T], frozen=True):
    """An ADDED, MODIFIED or DELETED event.

    `object` is None when it couldn't be decoded; `deleted` is then True: such an object counts nowhere.
    """

    key: str
    resource_version: str
    object: T | None = None
    deleted: bool = False


class Bookmark(msgspec.Struct, frozen=True):
    """All events up to this resourceVersion were sent."""

    resource_version: str


class Refusal(msgspec.Struct, frozen=True):
    """An ERROR event: the watch is over."""

    error: APIError


class _ListMeta(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _RawList(msgspec.Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[msgspec.Raw] | None = None


class _RawEvent(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


class _AnyObject(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()


_RAW_LIST = msgspec.json.Decoder(_RawList)
_RAW_EVENT = msgspec.json.Decoder(_RawEvent)
_STATUS = msgspec.json.Decoder(StatusObject)
_ANY_OBJECT = msgspec.json.Decoder(_AnyObject)


class Kind(Generic[T]):
    """A kind of object: where it is listed, how it is decoded, and its key.

    Args:
        name: plural, as in the path; for logs.
        path: of the collection.
        query: parameters of every list and watch.
        read: JSON of one object -> object. Raises msgspec.ValidationError, ObjectError or QuantityError.
        key: an object's metadata -> its key.
    """

    def __init__(
        self,
        *,
        name: str,
        path: str,
        read: Callable[[msgspec.Raw], T],
        key: Callable[[Any], str],
        query: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.path = path
        self.query = dict(query or {})
        self.key = key
        self._read = read

    def read_page(self, page: bytes) -> Page[T]:
        """Read a page of a list.

        Raises:
            APIUnavailableError: the bytes are no list.
        """
        try:
            raw = _RAW_LIST.decode(page)
        except msgspec.DecodeError as error:
            message = f"list of {self.name}: {error}"
            raise APIUnavailableError(message) from error
        if not raw.metadata.resource_version:
            # Every list has one. If a proxy's `{}` were taken for an empty list, all objects would be gone.
            message = f"list of {self.name}: the answer has no resourceVersion, so it is none"
            raise APIUnavailableError(message)
        objects: dict[str, T] = {}
        for item in raw.items or ():
            object_ = self._read_or_none(item)
            if object_ is not None:
                objects[self.key(object_.metadata)] = object_
        return Page(objects, raw.metadata.resource_version, raw.metadata.continue_)

    def read_event(self, line: bytes) -> Seen[T] | Bookmark | Refusal:
        """Read a line of a watch.

        Raises:
            APIUnreadableError: the line isn't an event.
        """
        try:
            event = _RAW_EVENT.decode(line)
            if event.type == "ERROR":
                return Refusal(error_of_status(_STATUS.decode(event.object), context=f"watch of {self.name}"))
            if event.type == "BOOKMARK":
                return Bookmark(_ANY_OBJECT.decode(event.object).metadata.resource_version)
            object_ = self._read_or_none(event.object)
            metadata = object_.metadata if object_ else _ANY_OBJECT.decode(event.object).metadata
        except msgspec.DecodeError as error:
            message = f"watch of {self.name}: {error}"
            raise APIUnreadableError(message) from error
        deleted = event.type == "DELETED" or object_ is None
        return Seen(self.key(metadata), metadata.resource_version, object_, deleted)

    def _read_or_none(self, raw: msgspec.Raw) -> T | None:
        try:
            return self._read(raw)
        except (msgspec.ValidationError, UnicodeDecodeError, ObjectError, QuantityError):
            # Its name alone: the text has values of labels and annotations, which may be masked in the history.
            logger.exception("object_unreadable kind=%s object=%s", self.name, _name_in(raw))
            return None


def _name_in(raw: msgspec.Raw) -> str:
    """Return an object's namespace and name; `?` where not even these can be read."""
    try:
        metadata = _ANY_OBJECT.decode(raw).metadata
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "?"
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_POD = msgspec.json.Decoder(PodObject)
_NAMESPACE = msgspec.json.Decoder(Namespace)


def _read_node(raw: msgspec.Raw) -> Node:
    return Node.from_text(_without_managed_fields(raw))


def _without_managed_fields(raw: msgspec.Raw) -> bytes:
    """Return the JSON without managedFields, which may be a third of it; kube-scheduler v1.36.3 scheduler.go drops them as well."""
    members = _MEMBERS.decode(raw)
    try:
        metadata = _MEMBERS.decode(members.get("metadata", b"{}"))
    except msgspec.ValidationError:
        return bytes(raw)  # The error is reported when the JSON is decoded.
    if "managedFields" in metadata:
        del metadata["managedFields"]
        members["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    # A copy, because the encoder's own buffer is half as large again: it allocates in advance.
    return bytes(memoryview(msgspec.json.encode(members)))


def _read_pod(raw: msgspec.Raw) -> Pod:
    pod = Pod(decode_object(raw, _POD))
    # Computed here, where an error leaves out one Pod, and not in the middle of a decision.
    _ = pod.requests, pod.nonzero_requests
    return pod


def _name(metadata: Metadata | NamedMetadata) -> str:
    return metadata.name


def _full_name(metadata: Metadata | NamedMetadata) -> str:
    return f"{metadata.namespace}/{metadata.name}"


def _uid(metadata: Metadata) -> str:
    return metadata.uid


NODES: Kind[Node] = Kind(name="nodes", path="/api/v1/nodes", read=_read_node, key=_name)

PODS: Kind[Pod] = Kind(
    name="pods",
    path="/api/v1/pods",
    # As kube-scheduler v1.36.3 scheduler.go (NewInformerFactory): the server itself says "deleted" when a
    # Pod ends.
    query={"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"},
    read=_read_pod,
    key=_uid,
)

NAMESPACES: Kind[Namespace] = Kind(
    name="namespaces", path="/api/v1/namespaces", read=lambda raw: decode_object(raw, _NAMESPACE), key=_name
)


def _read_by(decoder: msgspec.json.Decoder[ClusterObject]) -> Callable[[msgspec.Raw], ClusterObject]:
    return lambda raw: decode_object(raw, decoder)


_PATHS: Mapping[str, str] = {
    CLAIMS: "/api/v1",
    VOLUMES: "/api/v1",
    SERVICES: "/api/v1",
    REPLICATION_CONTROLLERS: "/api/v1",
    STORAGE_CLASSES: "/apis/storage.k8s.io/v1",
    CSI_NODES: "/apis/storage.k8s.io/v1",
    ATTACHMENTS: "/apis/storage.k8s.io/v1",
    REPLICA_SETS: "/apis/apps/v1",
    STATEFUL_SETS: "/apis/apps/v1",
    DISRUPTION_BUDGETS: "/apis/policy/v1",
}

# The kinds that are watched only if rules read them, by name.
OBJECTS: Mapping[str, Kind[ClusterObject]] = {
    name: Kind(name=name, path=f"{path}/{name}", read=_read_by(msgspec.json.Decoder(TYPES[name])), key=_full_name)
    for name, path in _PATHS.items()
}
