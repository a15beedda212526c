"""The claims of a Pod, and their volumes.

Sources: k8s.io/client-go v0.36.3 listers (the messages for missing objects) and component-helpers v0.36.3
storage/volume/helpers.go, storage/ephemeral/ephemeral.go.
"""

from typing import TypeVar

from policies.engine.objects.cluster_kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.pod import Pod

_Object = TypeVar("_Object")


class NotFoundError(LookupError):
    """An object that a Pod needs isn't there; the message is kube-scheduler's."""


def claim_of(objects: ClusterObjects, pod: Pod, name: str) -> PersistentVolumeClaim:
    """Return a claim of the Pod's namespace.

    Raises:
        NotFoundError: there is none of this name.
    """
    return _found(objects.claims.get((pod.namespace, name)), "persistentvolumeclaim", name)


def volume_of(objects: ClusterObjects, name: str) -> PersistentVolume:
    """Return a volume.

    Raises:
        NotFoundError: there is none of this name.
    """
    return _found(objects.volumes.get(name), "persistentvolume", name)


def class_of(objects: ClusterObjects, name: str) -> StorageClass:
    """Return a storage class.

    Raises:
        NotFoundError: there is none of this name.
    """
    return _found(objects.storage_classes.get(name), "storageclass.storage.k8s.io", name)


def _found(value: _Object | None, kind: str, name: str) -> _Object:
    if value is None:
        message = f'{kind} "{name}" not found'
        raise NotFoundError(message)
    return value


def claim_names(pod: Pod) -> list[str]:
    """Return the names of the claims that a Pod's volumes name, in order."""
    volumes = pod.spec.volumes or ()
    return [volume.persistent_volume_claim.claim_name for volume in volumes if volume.persistent_volume_claim]
