"""Snapshots as documents: a complete one in parts, and the changes between two. JSON; Nodes as received, Pods typed.

A Pod that is only counted is kept without its JSON, so its typed part is written. If that alone wouldn't count
the same (a Pod that is being resized), its counted resources are written beside it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.objects.cluster_kinds import TYPES, ClusterObject
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.heartbeat import Piece
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod, PodObject
from policies.engine.objects.requests import Counted, counted
from policies.engine.objects.resources import Resources
from policies.engine.objects.snapshot import Snapshot
from policies.engine.selectors import Labels
from scheduler.decisions.masking import NO_MASKS, Found, Masks

_Amounts = dict[str, int]
# Stands for a missing member; the encoder of a struct omits this very object.
NOTHING = msgspec.Raw()
# The most equal bytes that are written within a piece, instead of starting a new piece behind them.
_GAP_BYTES = 16
# The number of bytes that are written where a text grew or shrank, before the rest is compared again.
_RESYNC_BYTES = 32
# A node of which more than one byte in this many differs is written whole.
_MOST_SHARE = 4


class StoredPod(msgspec.Struct, omit_defaults=True):
    """A Pod: its JSON, or its typed part. `counted` has its counted resources, plain and with defaults."""

    json: msgspec.Raw = NOTHING
    typed: msgspec.Raw = NOTHING
    counted: tuple[_Amounts, _Amounts] | None = None


class NodeChange(msgspec.Struct, omit_defaults=True):
    """The change of a node: its JSON or a patch of it, if that changed, and the Pods that replace `taken` ones from `start` on.

    `patch` has places in the JSON's text, in order: how many bytes to remove there, and which to insert.
    """

    node: msgspec.Raw = NOTHING
    start: int = 0
    taken: int = 0
    pods: list[StoredPod] = []
    patch: list[Piece] = []


class ObjectsChange(msgspec.Struct, omit_defaults=True):
    """The change of the other objects: the known kinds, and for each object the old and the new one; null for none."""

    known: list[str] = []
    changes: dict[str, list[tuple[msgspec.Raw, msgspec.Raw]]] = {}


class Change(msgspec.Struct, omit_defaults=True, kw_only=True):
    """The change from one Snapshot to another; a part of a complete Snapshot is a change from an empty one.

    Attributes:
        nodes: by name; None for a deleted node. Each stands for a new NodeInfo.
        names_number: the number of the list of names in their new order, if nodes came or went; 0 if not.
        namespaces: labels by name; None for a deleted namespace.
        objects: None if they didn't change. `without_objects`: there are none.
        nominated: the complete value, if it changed.
        masked: what was masked in this change.
    """

    nodes: dict[str, NodeChange | None] = {}
    names_number: int = 0
    namespaces: dict[str, dict[str, str] | None] = {}
    objects: ObjectsChange | None = None
    without_objects: bool = False
    nominated: dict[str, list[StoredPod]] | None = None
    masked: list[str] = []


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Change).decode
_decode_typed = msgspec.json.Decoder(PodObject).decode


def encode_change(change: Change) -> bytes:
    """Encode a change."""
    return _encode(change)


def decode_change(data: bytes) -> Change:
    """Decode a change.

    Raises:
        msgspec.DecodeError: the data is no change.
    """
    return _decode(data)


def _store_pod(pod: Pod, masks: Masks, found: Found) -> StoredPod:
    """Return a Pod to store: every rule treats the one that `load_pod` returns alike, except for masked parts."""
    written = masks.pod(pod, found)
    if pod.json:
        return StoredPod(json=msgspec.Raw(_encode(written)))
    requests, nonzero = pod.requests, pod.nonzero_requests
    again = counted(pod.spec, pod.parsed.status)
    same = again.requests.amounts == requests.amounts and again.nonzero.amounts == nonzero.amounts
    beside = None if same else (dict(requests.amounts), dict(nonzero.amounts))
    return StoredPod(typed=msgspec.Raw(_encode(written)), counted=beside)


def load_pod(stored: StoredPod) -> Pod:
    """Make the Pod.

    Raises:
        msgspec.DecodeError, ObjectError: it can't be read.
    """
    if stored.json:
        return Pod.from_json(msgspec.json.decode(stored.json))
    known = Counted(*map(Resources, stored.counted)) if stored.counted else None
    return Pod.counting(_decode_typed(stored.typed), known)


def change_between(before: Snapshot, after: Snapshot, names: Iterable[str], masks: Masks = NO_MASKS) -> Change:
    """Return the change from one Snapshot to another, to be written; `names` are the nodes that may differ."""
    change, found = Change(), set[str]()
    for name in names:
        old, new = before.node(name), after.node(name)
        if new is None:
            if old is not None:
                change.nodes[name] = None
        elif new is not old:
            change.nodes[name] = _node_change(old, new, masks, found)
    if after.namespaces is not before.namespaces:
        change.namespaces = _labels_change(before.namespaces, after.namespaces, masks, found)
    if after.objects is not before.objects:
        change.without_objects = after.objects is None
        if after.objects is not None:
            change.objects = _objects_change(before.objects, after.objects, masks, found)
    if after.nominated is not before.nominated:
        change.nominated = _stored(after.nominated, masks, found)
    change.masked = sorted(found)
    return change


def _stored(nominated: Mapping[str, Sequence[Pod]], masks: Masks, found: Found) -> dict[str, list[StoredPod]]:
    return {name: [_store_pod(pod, masks, found) for pod in pods] for name, pods in nominated.items()}


def is_empty(change: Change) -> bool:
    """Return whether a change is empty."""
    return (
        not change.nodes
        and not change.namespaces
        and not change.without_objects
        and change.objects is None
        and change.nominated is None
    )


def _node_change(old: NodeInfo | None, new: NodeInfo, masks: Masks, found: Found) -> NodeChange:
    """Return how a node changed, without the Pods that the beginnings and the ends of both lists have in common."""
    old_pods = old.pods if old else ()
    new_pods = new.pods
    shorter = min(len(old_pods), len(new_pods))
    start = shorter if new_pods[:shorter] == old_pods else 0  # usually one was appended; Pods are equal by identity
    while start < shorter and old_pods[start] is new_pods[start]:
        start += 1
    same_end = 0
    while same_end < shorter - start and old_pods[-1 - same_end] is new_pods[-1 - same_end]:
        same_end += 1
    node, patch = _text_change(old.node if old else None, new.node, masks, found)
    pods = [_store_pod(pod, masks, found) for pod in new_pods[start : len(new_pods) - same_end]]
    return NodeChange(node, start, len(old_pods) - start - same_end, pods, patch)


def _text_change(old: Node | None, new: Node, masks: Masks, found: Found) -> tuple[msgspec.Raw, list[Piece]]:
    """Return the JSON, or a patch: most changes are a heartbeat, a few bytes of thousands."""
    if old is new:
        return NOTHING, []
    # Heartbeats change no member that can be masked. A text in which something is masked has its members in other places.
    if old is not None and not masks.change(new.metadata) and (patch := new.heartbeat_since(old)) is not None:
        return NOTHING, patch
    text = masks.text(new.text, found)
    patch = patch_between(masks.text(old.text, found), text) if old else None
    return (msgspec.Raw(text), []) if patch is None else (NOTHING, patch)


def patch_between(old: bytes, new: bytes) -> list[Piece] | None:
    """Return the patch from one text to another; None if it would be large.

    Texts of different lengths are assumed to differ in length at the first difference: a resourceVersion has one more digit.
    """
    longer = len(new) - len(old)
    patch: list[Piece] = []
    begin = 0
    if longer:
        first = int(next(iter(_differences(old[: len(new)], new[: len(old)])), min(len(old), len(new))))
        begin = min(first + _RESYNC_BYTES + max(longer, 0), len(new), len(old) + longer)
        if begin - longer < first:
            return None
        patch.append((first, begin - longer - first, new[first:begin]))
    differing = _differences(old[begin - longer :], new[begin:])
    if len(differing) > len(new) // _MOST_SHARE:
        return None
    start, end = 0, -_GAP_BYTES
    for place in (differing + begin).tolist():
        if place >= end + _GAP_BYTES:
            if end >= 0:
                patch.append((start, end - start, new[start:end]))
            start = place
        end = place + 1
    if end >= 0:
        patch.append((start, end - start, new[start:end]))
    return patch


def _differences(one: bytes, other: bytes) -> npt.NDArray[np.intp]:
    return np.flatnonzero(np.frombuffer(one, np.uint8) != np.frombuffer(other, np.uint8))


def patched(old: bytes, patch: Iterable[Piece]) -> bytes:
    """Return the text with the patch applied."""
    text = bytearray(old)
    for start, taken, piece in patch:
        text[start : start + taken] = piece
    return bytes(text)


def _labels_change(
    before: Mapping[str, Labels], after: Mapping[str, Labels], masks: Masks, found: Found
) -> dict[str, dict[str, str] | None]:
    changed: dict[str, dict[str, str] | None] = {
        name: masks.labels(labels, found) for name, labels in after.items() if before.get(name) != labels
    }
    return changed | {name: None for name in before if name not in after}


def _objects_change(before: ClusterObjects | None, after: ClusterObjects, masks: Masks, found: Found) -> ObjectsChange:
    def written(each: ClusterObject | None) -> msgspec.Raw:
        return msgspec.Raw(_encode(each and masks.typed(each, found)))

    differing = after.differences(before or ClusterObjects.unknown())
    changes = {kind: [(written(old), written(new)) for old, new in pairs] for kind, pairs in differing.items()}
    return ObjectsChange(sorted(after.known), changes)


class Rebuilt:
    """A Snapshot that is rebuilt from the parts of a complete one, and from later changes in their order.

    Raises:
        msgspec.DecodeError, ObjectError, KeyError: a part can't be read.
    """

    def __init__(self, parts: Iterable[bytes]) -> None:
        self.snapshot = Snapshot({})
        # All that was ever masked in it.
        self.masked: Found = set()
        first, *others = map(_decode, parts)
        for part in others:
            first.nodes |= part.nodes
            self.masked.update(part.masked)
        self.apply(first)

    def apply(self, change: Change, names: Sequence[str] | None = None) -> None:
        """Apply a change.

        Args:
            change: the next change of the Snapshot.
            names: all nodes in their new order, if nodes came or went.

        Raises:
            msgspec.DecodeError, ObjectError, KeyError: the change can't be read, or doesn't fit the Snapshot.
        """
        last = self.snapshot
        self.masked.update(change.masked)
        changed: dict[str, NodeInfo | None] = {
            name: None if node is None else self._node_info(name, node) for name, node in change.nodes.items()
        }
        namespaces = self._namespaces(change)
        objects, nominated = self._read_objects(change), self._nominated(change)
        if names is None:
            self.snapshot = last.changed(changed, namespaces, objects=objects, nominated=nominated)
        else:
            infos = {**last.nodes, **changed}
            ordered = {name: info for name in names if (info := infos[name]) is not None}
            self.snapshot = Snapshot(
                ordered,
                last.namespaces if namespaces is None else namespaces,
                nominated=last.nominated if nominated is None else nominated,
            )
        self.snapshot.objects = objects

    def _node_info(self, name: str, change: NodeChange) -> NodeInfo:
        known = self.snapshot.nodes.get(name)
        pods = list(known.pods if known else ())
        pods[change.start : change.start + change.taken] = map(load_pod, change.pods)
        if change.node:
            # As text: later patches give places in the text.
            return NodeInfo(Node.from_text(bytes(change.node)), tuple(pods))
        node = self.snapshot.nodes[name].node
        return NodeInfo(Node.from_text(patched(node.text, change.patch)) if change.patch else node, tuple(pods))

    def _namespaces(self, change: Change) -> Mapping[str, Labels] | None:
        if not change.namespaces:
            return None
        merged = {**self.snapshot.namespaces, **change.namespaces}
        return {name: labels for name, labels in merged.items() if labels is not None}

    def _read_objects(self, change: Change) -> ClusterObjects | None:
        if change.without_objects:
            return None
        if change.objects is None:
            return self.snapshot.objects
        read = {
            kind: [tuple(msgspec.json.decode(raw, type=TYPES[kind] | None) for raw in pair) for pair in pairs]
            for kind, pairs in change.objects.changes.items()
        }
        objects = self.snapshot.objects or ClusterObjects.unknown()
        return objects.changed(read, known=frozenset(change.objects.known))  # type: ignore[arg-type] # pairs are pairs

    def _nominated(self, change: Change) -> Mapping[str, Sequence[Pod]] | None:
        if change.nominated is None:
            return None
        return {name: [load_pod(pod) for pod in pods] for name, pods in change.nominated.items()}


def whole(
    snapshot: Snapshot, part_bytes: int, between: Callable[[], None] = lambda: None, masks: Masks = NO_MASKS
) -> Iterator[bytes]:
    """Iterate over a complete Snapshot as changes from an empty one, in parts of about this many bytes; nodes in their order.

    `between` is called between any two nodes: a caller that writes a large cluster can give way to other work there.
    """
    first = change_between(Snapshot({}), Snapshot({}, snapshot.namespaces, objects=snapshot.objects), (), masks)
    masked = set(first.masked)
    if snapshot.nominated:
        first.nominated = _stored(snapshot.nominated, masks, masked)
    first.masked = sorted(masked)
    yield _encode(first)
    part: dict[str, NodeChange | None] = {}
    size, masked = 0, set()
    for name, info in snapshot.nodes.items():
        change = part[name] = _node_change(None, info, masks, masked)
        size += len(change.node) + sum(len(pod.typed) + len(pod.json) for pod in change.pods)
        between()
        if size >= part_bytes:
            yield _encode(Change(nodes=part, masked=sorted(masked)))
            part, size, masked = {}, 0, set()
    if part:
        yield _encode(Change(nodes=part, masked=sorted(masked)))
