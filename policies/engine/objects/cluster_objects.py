"""The objects of a cluster besides Nodes, Pods and Namespaces, by name, and how they change.

The cost of a change depends on its size, and not on the number of objects: see `PersistentMap`.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from policies.engine.errors import ObjectError
from policies.engine.objects.cluster_kinds import (
    ALL_KINDS,
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
    CSINode,
    Owner,
    PersistentVolume,
    PersistentVolumeClaim,
    PlainOwner,
    PodDisruptionBudget,
    StorageClass,
    VolumeAttachment,
)
from policies.engine.objects.lineage import Step
from policies.engine.objects.metadata import convert_object
from policies.engine.objects.persistent_map import PersistentMap

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

# Namespace and name.
Name = tuple[str, str]

Json = Iterable[Mapping[str, Any]]
# An object before and after a change; None where it didn't exist, or no longer exists.
Change = tuple[ClusterObject | None, ClusterObject | None]

# The members that `ClusterObjects.from_json` reads.
MEMBERS: Mapping[str, str] = {
    "persistentVolumeClaims": "persistent_volume_claims",
    "persistentVolumes": "persistent_volumes",
    "storageClasses": "storage_classes",
    "csiNodes": "csi_nodes",
    "volumeAttachments": "volume_attachments",
    "services": "services",
    "replicationControllers": "replication_controllers",
    "replicaSets": "replica_sets",
    "statefulSets": "stateful_sets",
    "podDisruptionBudgets": "pod_disruption_budgets",
}

# The most names of one change that the log holds.
_MAX_NAMES = 1_000


class ClusterObjects:
    """The objects of the known kinds, by name. Never changes.

    A kind that isn't known has no objects here, which doesn't mean that the cluster has none: rules that need the kind leave
    the check to kube-scheduler, see `Snapshot.knowing`.

    Each argument is a list of decoded Kubernetes JSON; namespaced objects without a namespace are in `default`. All kinds
    are known then, and a list that isn't given counts as empty.

    Attributes:
        known: the kinds that are known.
        attachments: by the name of the node, then by their own name.
        services, disruption_budgets: by namespace, then by name, in no certain order.
        step: its place in the log of changes to the volumes of nodes: the names of claims that changed or whose volumes
            changed, and of nodes whose CSINode or attached volumes changed. A new log begins when these names are too many.

    Raises:
        ObjectError: a field has the wrong type; the message says which.
    """

    def __init__(  # noqa: PLR0913 - one for each kind
        self,
        *,
        persistent_volume_claims: Json = (),
        persistent_volumes: Json = (),
        storage_classes: Json = (),
        csi_nodes: Json = (),
        volume_attachments: Json = (),
        services: Json = (),
        replication_controllers: Json = (),
        replica_sets: Json = (),
        stateful_sets: Json = (),
        pod_disruption_budgets: Json = (),
    ) -> None:
        lists = {
            CLAIMS: persistent_volume_claims,
            VOLUMES: persistent_volumes,
            STORAGE_CLASSES: storage_classes,
            CSI_NODES: csi_nodes,
            ATTACHMENTS: volume_attachments,
            SERVICES: services,
            REPLICATION_CONTROLLERS: replication_controllers,
            REPLICA_SETS: replica_sets,
            STATEFUL_SETS: stateful_sets,
            DISRUPTION_BUDGETS: pod_disruption_budgets,
        }
        self._clear()
        self._follow({kind: [(None, found) for found in _read(json, kind)] for kind, json in lists.items()}, ALL_KINDS)

    @classmethod
    def from_json(cls, json: Mapping[str, Any]) -> "ClusterObjects":
        """Read the lists `persistentVolumeClaims`, `persistentVolumes`, `storageClasses` and so on of one object.

        Raises:
            ObjectError: a field has the wrong type; the message says which.
        """
        return cls(**{argument: json.get(member) or () for member, argument in MEMBERS.items()})

    @classmethod
    def unknown(cls) -> "ClusterObjects":
        """Return the state in which no kind is known."""
        nothing = object.__new__(cls)
        nothing._clear()
        return nothing

    def changed(
        self, changes: Mapping[str, Iterable[Change]], *, known: frozenset[str] | None = None
    ) -> "ClusterObjects":
        """Return the objects after these changes.

        Args:
            changes: kind -> its changes in their order. Changes of kinds that aren't known are ignored.
            known: the kinds that are known from now on; None for the same kinds. The objects of all others are dropped.
        """
        after = object.__new__(ClusterObjects)
        # Everything is shared at first; `_follow` replaces the parts that change, and modifies nothing in place.
        vars(after).update(vars(self))
        after._follow(changes, self.known if known is None else known)
        return after

    def differences(self, before: "ClusterObjects") -> dict[str, list[Change]]:
        """Return the changes with which `before.changed(…, known=self.known)` gives this state. Shared parts cost nothing."""
        found: dict[str, list[Change]] = {}
        for kind in sorted(self.known):
            attribute = _PLACES[kind].attribute
            old, new = getattr(before, attribute), getattr(self, attribute)
            changes = [change for key in new.differing(old) for change in _between(old.get(key), new.get(key))]
            if changes:
                found[kind] = changes
        return found

    def _clear(self) -> None:
        self.known: frozenset[str] = frozenset()
        self.claims: PersistentMap[Name, PersistentVolumeClaim] = PersistentMap()
        self.volumes: PersistentMap[str, PersistentVolume] = PersistentMap()
        self.storage_classes: PersistentMap[str, StorageClass] = PersistentMap()
        self.csi_nodes: PersistentMap[str, CSINode] = PersistentMap()
        self.attachments: PersistentMap[str, Mapping[str, VolumeAttachment]] = PersistentMap()
        self.services: PersistentMap[str, Mapping[str, PlainOwner]] = PersistentMap()
        self.replication_controllers: PersistentMap[Name, PlainOwner] = PersistentMap()
        self.replica_sets: PersistentMap[Name, Owner] = PersistentMap()
        self.stateful_sets: PersistentMap[Name, Owner] = PersistentMap()
        self.disruption_budgets: PersistentMap[str, Mapping[str, PodDisruptionBudget]] = PersistentMap()
        # Volume -> the claims bound to it and the nodes that it is attached to.
        self._users: PersistentMap[str, tuple[Name | str, ...]] = PersistentMap()
        self.step: Step[Name | str] = Step()

    def _follow(self, changes: Mapping[str, Iterable[Change]], known: frozenset[str]) -> None:
        """Become the next state. Only allowed before this object is shared."""
        same = known == self.known
        self._give_up(self.known - known)
        self.known = known
        listed = {kind: list(found) for kind, found in changes.items() if kind in known}
        for kind, found in listed.items():
            place = _PLACES[kind]
            setattr(self, place.attribute, place.put(getattr(self, place.attribute), found, place.key))
        self._note_users(listed)
        concerned = self._concerned(listed) if same else None
        self.step = Step(concerned, self.step) if concerned is not None else Step()

    def _give_up(self, kinds: Iterable[str]) -> None:
        for kind in kinds:
            setattr(self, _PLACES[kind].attribute, PersistentMap())
            if kind in {CLAIMS, ATTACHMENTS}:
                others = {volume: _users_besides(kind, users) for volume, users in self._users.items()}
                self._users = self._users.changed(others)

    def _note_users(self, changes: Mapping[str, Iterable[Change]]) -> None:
        users: dict[str, tuple[Name | str, ...]] = {}
        for before, after in (*changes.get(CLAIMS, ()), *changes.get(ATTACHMENTS, ())):
            for found, counts in ((before, False), (after, True)):
                volume, user = _use_of(found)
                if volume:
                    # Several changes in one response may concern the same volume.
                    others = users[volume] if volume in users else self._users.get(volume, ())
                    left = tuple(other for other in others if other != user)
                    users[volume] = (*left, user) if counts else left
        if users:
            self._users = self._users.changed({volume: found or None for volume, found in users.items()})

    def _concerned(self, changes: Mapping[str, list[Change]]) -> set[Name | str] | None:
        if sum(map(len, changes.values())) > _MAX_NAMES or changes.get(STORAGE_CLASSES):
            return None
        names: set[Name | str] = {
            *_keys(changes.get(CLAIMS, ()), _name),
            *_keys(changes.get(CSI_NODES, ()), _plain_name),
        }
        names.update(node for node, _ in _keys(changes.get(ATTACHMENTS, ()), _node_and_name))
        for volume in _keys(changes.get(VOLUMES, ()), _plain_name):
            names.update(self._users.get(volume, ()))
        return names


def _between(old: Any, new: Any) -> Iterator[Change]:
    """Iterate over the changes of the value under one key: of an object, or of a group of objects by name."""
    if not isinstance(old, Mapping) and not isinstance(new, Mapping):
        yield old, new
        return
    before, after = old or {}, new or {}
    for name in {**before, **after}:
        if before.get(name) is not after.get(name):
            yield before.get(name), after.get(name)


def _users_besides(kind: str, users: Iterable[Name | str]) -> tuple[Name | str, ...] | None:
    """Return the users of a volume of the other kind: claims are identified by name and namespace, nodes by name."""
    return tuple(user for user in users if isinstance(user, tuple) != (kind == CLAIMS)) or None


def differs(before: ClusterObject, after: ClusterObject) -> bool:
    """Return whether two versions of an object differ in a field that rules read."""
    metadata = msgspec.structs.replace(after.metadata, resource_version=before.metadata.resource_version)
    return bool(msgspec.structs.replace(after, metadata=metadata) != before)


def _read(json: Json, kind: str) -> Iterator[ClusterObject]:
    type_ = TYPES[kind]
    for index, item in enumerate(json):
        try:
            yield convert_object(item, type_)
        except msgspec.ValidationError as error:
            message = f"{type_.__name__} {index}: {error}"
            raise ObjectError(message) from error


def _name(found: ClusterObject) -> Name:
    return found.metadata.namespace or "default", found.metadata.name


def _plain_name(found: ClusterObject) -> str:
    return found.metadata.name


def _node_and_name(found: ClusterObject) -> Name:
    return (found.spec.node_name if isinstance(found, VolumeAttachment) else ""), found.metadata.name


def _use_of(found: ClusterObject | None) -> tuple[str, Name | str]:
    """Return the volume of a claim or an attachment, "" for none, and the user of the volume."""
    if isinstance(found, PersistentVolumeClaim):
        return found.spec.volume_name, _name(found)
    if isinstance(found, VolumeAttachment):
        return found.spec.source.persistent_volume_name or "", found.spec.node_name
    return "", ""


def _effects(changes: Iterable[Change], key: Callable[[ClusterObject], K]) -> Iterator[tuple[K, ClusterObject | None]]:
    """Iterate over the keys that change, with their new values; None for removed ones."""
    for before, after in changes:
        if before is not None and (after is None or key(before) != key(after)):
            yield key(before), None
        if after is not None:
            yield key(after), after


def _keys(changes: Iterable[Change], key: Callable[[ClusterObject], K]) -> Iterator[K]:
    return (found for found, _ in _effects(changes, key))


def _put(
    kept: PersistentMap[Any, ClusterObject], changes: Iterable[Change], key: Callable[[ClusterObject], Any]
) -> PersistentMap[Any, ClusterObject]:
    return kept.changed(dict(_effects(changes, key)))


def _put_in_groups(
    kept: PersistentMap[str, Mapping[str, ClusterObject]],
    changes: Iterable[Change],
    key: Callable[[ClusterObject], Name],
) -> PersistentMap[str, Mapping[str, ClusterObject]]:
    groups: dict[str, dict[str, ClusterObject]] = {}
    for (group, name), found in _effects(changes, key):
        members = groups.get(group)
        if members is None:
            # A copy, since earlier states share the old one; made once for all changes of the response.
            members = groups[group] = dict(kept.get(group, {}))
        if found is None:
            members.pop(name, None)
        else:
            members[name] = found
    return kept.changed({group: members or None for group, members in groups.items()})


class _Place(NamedTuple):
    """Where the objects of a kind are kept, and by which key."""

    attribute: str
    put: Callable[..., Any]
    key: Callable[[ClusterObject], Any]


_PLACES: Mapping[str, _Place] = {
    CLAIMS: _Place("claims", _put, _name),
    VOLUMES: _Place("volumes", _put, _plain_name),
    STORAGE_CLASSES: _Place("storage_classes", _put, _plain_name),
    CSI_NODES: _Place("csi_nodes", _put, _plain_name),
    ATTACHMENTS: _Place("attachments", _put_in_groups, _node_and_name),
    SERVICES: _Place("services", _put_in_groups, _name),
    REPLICATION_CONTROLLERS: _Place("replication_controllers", _put, _name),
    REPLICA_SETS: _Place("replica_sets", _put, _name),
    STATEFUL_SETS: _Place("stateful_sets", _put, _name),
    DISRUPTION_BUDGETS: _Place("disruption_budgets", _put_in_groups, _name),
}
