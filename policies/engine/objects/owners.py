"""The workload of a Pod, as far as the Pod itself shows it, and the number that a workload draws in a canary."""

from hashlib import sha256

from policies.engine.objects.metadata import Metadata, OwnerReference
from policies.engine.objects.pod import Pod

# The owner kind of a Pod without a controller.
NO_OWNER = "none"
DEPLOYMENT = "Deployment"
_HASH_LABEL = "pod-template-hash"


def owner_kinds_of(pod: Pod) -> tuple[str, ...]:
    """Return the kind of a Pod's controller, then Deployment if one controls that and the Pod shows it."""
    owner = pod.metadata.controller
    if owner is None:
        return (NO_OWNER,)
    return (owner.kind, DEPLOYMENT) if deployment_of(pod) else (owner.kind,)


def deployment_of(pod: Pod) -> str:
    """Return the name of a Pod's Deployment; "" where the Pod shows none.

    A Deployment names its ReplicaSets by its own name and the hash that it labels their Pods with (Kubernetes v1.36.3
    pkg/controller/deployment/sync.go, getNewReplicaSet).
    """
    owner = pod.metadata.controller
    return deployment_behind(owner, pod.metadata) if owner else ""


def deployment_behind(owner: OwnerReference, metadata: Metadata) -> str:
    """Return the name of the Deployment behind a Pod's controller; "" where the Pod's metadata show none."""
    if owner.kind != "ReplicaSet":
        return ""
    ending = f"-{(metadata.labels or {}).get(_HASH_LABEL, '')}"
    return owner.name[: -len(ending)] if len(ending) > 1 and owner.name.endswith(ending) else ""


def workload_of(pod: Pod) -> str:
    """Return the identity that Pods of one workload share: a Deployment's name, so that a rollout changes nothing, or the owner's UID.

    A Pod without a controller is its own workload.
    """
    if name := deployment_of(pod):
        return f"{DEPLOYMENT}/{pod.namespace}/{name}"
    owner = pod.metadata.controller
    if owner is None:
        return pod.uid or f"Pod/{pod.namespace}/{pod.name}"
    return owner.uid or f"{owner.kind}/{pod.namespace}/{owner.name}"


def has_drawn(pod: Pod) -> bool:
    """Return whether a Pod's draw is stable: a Deployment's depends on names, any other on a UID, which a Pod in a file lacks."""
    owner = pod.metadata.controller
    return bool(deployment_of(pod) or (owner.uid if owner else pod.uid))


def draw(assignment: str, pod: Pod) -> int:
    """Return the number that a Pod's workload draws in the canary of an Assignment: 0 to 99, the same at any time and in any process.

    Each Assignment has a draw of its own. With one draw for all, the same workloads would be first in every canary.
    """
    digest = sha256(f"{assignment}\n{workload_of(pod)}".encode()).digest()
    return int.from_bytes(digest[:8]) % 100
