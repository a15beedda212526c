"""The claims of a Pod, and their volumes.

Sources: k8s.io/client-go v0.36.3 listers (the texts of what isn't found) and component-helpers v0.36.3
storage/volume/helpers.go, storage/ephemeral/ephemeral.go.
"""

from policies.engine.objects.cluster_kinds import PersistentVolume, PersistentVolumeClaim, StorageClass
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.pod import Pod


class NotFoundError(LookupError):
    """An object that a Pod needs isn't there; the message is kube-scheduler's."""


def claim_of(objects: ClusterObjects, pod: Pod, name: str) -> PersistentVolumeClaim:
    """Return a claim of the Pod's namespace.

    Raises:
        NotFoundError: there is none of this name.
    """
    claim = objects.claims.get((pod.namespace, name))
    if claim is None:
        message = f'persistentvolumeclaim "{name}" not found'
        raise NotFoundError(message)
    return claim


def volume_of(objects: ClusterObjects, name: str) -> PersistentVolume:
    """Return a volume.

    Raises:
        NotFoundError: there is none of this name.
    """
    volume = objects.volumes.get(name)
    if volume is None:
        message = f'persistentvolume "{name}" not found'
        raise NotFoundError(message)
    return volume


def class_of(objects: ClusterObjects, name: str) -> StorageClass:
    """Return a storage class.

    Raises:
        NotFoundError: there is none of this name.
    """
    found = objects.storage_classes.get(name)
    if found is None:
        message = f'storageclass.storage.k8s.io "{name}" not found'
        raise NotFoundError(message)
    return found


def claim_names(pod: Pod) -> list[str]:
    """Return the names of the claims that a Pod's volumes name, in order."""
    volumes = pod.spec.volumes or ()
    return [volume.persistent_volume_claim.claim_name for volume in volumes if volume.persistent_volume_claim]
