"""Kubernetes JSON as the API server sends it, for the tests of this folder."""

from typing import Any

import msgspec


def pod_json(
    name: str, *, node: str = "", version: str = "1", uid: str = "", phase: str = "Running", cpu: str = "100m"
) -> dict[str, Any]:
    """Return a Pod's JSON; its UID is its name's unless it is given."""
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "resourceVersion": version,
            "labels": {"app": name},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": phase},
    }


def node_json(name: str, *, version: str = "1") -> dict[str, Any]:
    """Return a Node's JSON."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "labels": {"host": name},
        },
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }


def namespace_json(name: str, *, version: str = "1", labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Namespace's JSON."""
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": version, "labels": labels or {}}}


def claim_json(name: str, *, volume: str = "", version: str = "1", namespace: str = "default") -> dict[str, Any]:
    """Return a PersistentVolumeClaim's JSON, with the status that changes all the time."""
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": version},
        "spec": {"volumeName": volume} if volume else {},
        "status": {"capacity": {"storage": f"{version}Gi"}},
    }


def service_json(name: str, *, selector: dict[str, str]) -> dict[str, Any]:
    """Return a Service's JSON."""
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": {"selector": selector},
    }


def list_json(items: list[dict[str, Any]], *, version: str = "10", token: str = "") -> bytes:
    """Return a list object with these items."""
    metadata = {"resourceVersion": version} | ({"continue": token} if token else {})
    return msgspec.json.encode({"kind": "List", "metadata": metadata, "items": items})


def event_json(type_: str, object_: dict[str, Any]) -> bytes:
    """Return a line of a watch, without its line feed."""
    return msgspec.json.encode({"type": type_, "object": object_})


def status_json(code: int, reason: str = "", **details: object) -> dict[str, Any]:
    """Return a Status, as refusals and ERROR events carry it."""
    return {
        "kind": "Status",
        "code": code,
        "reason": reason,
        "message": f"because {reason}",
        "details": details,
    }
