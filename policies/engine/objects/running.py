"""A Pod on a node as Kubernetes JSON, rebuilt from the typed fields that are kept of it: expressions see it as `victim`.

A Pod from a full request body is written the same way, so that an expression gives the same answer for the same Pod
whatever its source. Empty fields are left out, as the API server does. Field names: k8s.io/api v0.36.3 core/v1 types.go.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from policies.engine.objects.metadata import OwnerReference
from policies.engine.objects.pod import Pod
from policies.engine.objects.pod_spec import Container

# Type -> field -> type, of all fields that `running_json` writes; spelled as in `kubernetes_schema.TYPES`.
FIELDS: Mapping[str, dict[str, str]] = {
    "victim": {"metadata": "victim.metadata", "spec": "victim.spec", "status": "victim.status"},
    "victim.metadata": {
        "annotations": "map:string",
        "deletionTimestamp": "string",
        "labels": "map:string",
        "name": "string",
        "namespace": "string",
        "ownerReferences": "list:victim.metadata.ownerReferences",
        "uid": "string",
    },
    "victim.metadata.ownerReferences": {
        "apiVersion": "string",
        "controller": "bool",
        "kind": "string",
        "name": "string",
        "uid": "string",
    },
    "victim.spec": {
        "containers": "list:victim.spec.containers",
        "initContainers": "list:victim.spec.containers",
        "nodeName": "string",
        "nodeSelector": "map:string",
        "priority": "int",
        "priorityClassName": "string",
        "schedulerName": "string",
    },
    "victim.spec.containers": {
        "image": "string",
        "name": "string",
        "resources": "victim.spec.containers.resources",
        "restartPolicy": "string",
    },
    "victim.spec.containers.resources": {"requests": "map:string"},
    "victim.status": {"phase": "string", "qosClass": "string", "startTime": "string"},
}

# Type -> the Kubernetes type that it is a part of.
ORIGINS: Mapping[str, str] = {
    "victim": "Pod",
    "victim.metadata": "ObjectMeta",
    "victim.metadata.ownerReferences": "OwnerReference",
    "victim.spec": "PodSpec",
    "victim.spec.containers": "Container",
    "victim.spec.containers.resources": "ResourceRequirements",
    "victim.status": "PodStatus",
}


def running_json(pod: Pod) -> dict[str, Any]:
    """Return the JSON of a Pod on a node, with the fields of `FIELDS`."""
    metadata, spec, status = pod.parsed.metadata, pod.spec, pod.parsed.status
    return {
        "metadata": _present(
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            labels=pod.labels,
            annotations=metadata.annotations,
            deletionTimestamp=metadata.deletion_timestamp,
            ownerReferences=[_owner(owner) for owner in metadata.owner_references or ()],
        ),
        "spec": _present(
            nodeName=spec.node_name,
            schedulerName=spec.scheduler_name,
            priority=spec.priority,
            priorityClassName=spec.priority_class_name,
            nodeSelector=spec.node_selector,
            containers=_containers(spec.containers or ()),
            initContainers=_containers(spec.init_containers or ()),
        ),
        "status": _present(phase=status.phase, startTime=status.start_time, qosClass=status.qos_class),
    }


def _containers(containers: Iterable[Container]) -> list[dict[str, Any]]:
    return [
        _present(
            name=container.name,
            image=container.image,
            restartPolicy=container.restart_policy,
            resources=_present(requests=container.requests),
        )
        for container in containers
    ]


def _owner(owner: OwnerReference) -> dict[str, Any]:
    return _present(
        apiVersion=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid, controller=owner.controller
    )


def _present(**members: Any) -> dict[str, Any]:
    """Leave out empty values. Numbers, true and false are kept: 0 is a priority."""
    return {name: value for name, value in members.items() if value or isinstance(value, int)}
