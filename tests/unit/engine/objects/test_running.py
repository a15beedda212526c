"""Pods on nodes as expressions see them: the same JSON from the typed part as Kubernetes' own has."""

from typing import Any

import msgspec
import pytest

from policies.engine.cel.kubernetes_schema import TYPES
from policies.engine.objects.pod import Pod, PodObject
from policies.engine.objects.running import FIELDS, ORIGINS, running_json

FULL: dict[str, Any] = {
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "uid": "u1",
        "labels": {"app": "web"},
        "annotations": {"example.com/a-rather-long-name-of-an-annotation": "x"},
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u2", "controller": True}
        ],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "example.org/web:1",
                "resources": {"requests": {"cpu": "1"}},
                "restartPolicy": "Always",
            }
        ],
        "initContainers": [{"name": "init", "image": "example.org/init:1", "restartPolicy": "Always"}],
        "nodeName": "n1",
        "nodeSelector": {"disk": "ssd"},
        "priority": 0,
        "priorityClassName": "low",
        "schedulerName": "berth",
    },
    "status": {"phase": "Running", "qosClass": "Burstable", "startTime": "2026-01-01T00:00:00Z"},
}


def kept(json: dict[str, Any]) -> Pod:
    """Make a Pod as the watch keeps it."""
    pod = Pod(msgspec.convert(json, PodObject))
    assert pod.requests is not None  # counting lets go of what only counting needs
    return pod


def leaves(kind: str) -> set[str]:
    """Return the paths to everything that the schema of victims has."""
    found = set()
    for name, field in FIELDS[kind].items():
        inner = field.removeprefix("list:")
        found |= {f"{name}.{leaf}" for leaf in leaves(inner)} if inner in FIELDS else {name}
    return found


def paths(json: Any) -> set[str]:
    if isinstance(json, list):
        return set().union(*map(paths, json))
    if not isinstance(json, dict):
        return {""}
    return {f"{name}.{path}".strip(".") for name, value in json.items() for path in paths(value)}


@pytest.mark.parametrize("made", [kept, Pod.from_json], ids=["kept by the watch", "of a full body"])
def test_everything_that_the_schema_has_is_there_as_kubernetes_has_it(made: Any) -> None:
    assert running_json(made(FULL)) == FULL


def test_the_schema_is_what_is_written_and_a_part_of_kubernetes_own() -> None:
    maps = {"labels", "annotations", "nodeSelector", "requests"}
    written = {".".join(path.split(".")[: i + 1]) for path in paths(FULL) for i in range(path.count(".") + 1)}
    assert {path for path in leaves("victim") if path.split(".")[-1] not in maps} <= written
    for kind, fields in FIELDS.items():
        assert set(fields) <= set(TYPES[ORIGINS[kind]])


def test_a_pod_without_anything_has_a_namespace_and_nothing_empty() -> None:
    empty = {"metadata": {"namespace": "default"}, "spec": {}, "status": {}}
    assert running_json(kept({})) == empty
    sparse = {"metadata": {"labels": {}, "annotations": {}, "ownerReferences": []}, "spec": {"containers": []}}
    assert running_json(Pod.from_json(sparse)) == empty


def test_pods_of_one_owner_share_it() -> None:
    one, other = kept(FULL), kept(FULL)
    assert one.parsed.metadata.owner_references is other.parsed.metadata.owner_references
