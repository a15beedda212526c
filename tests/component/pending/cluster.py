"""A cluster of Pods that wait, and who follows it."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from scheduler.cluster.errors import APIError, APIUnavailableError
from scheduler.models import PendingPod
from scheduler.pending.following import Follower
from tests.builders import make_pod

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Cluster:
    """What a Follower asks of the API server, from memory: Pods without a node, by UID."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.away = False
        self.fault: APIError = APIUnavailableError("connection refused")

    def list_pages(self, *, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        assert (path, query) == ("/api/v1/pods", {"fieldSelector": "spec.nodeName=,status.phase=Pending"})
        if self.away:
            raise self.fault
        yield msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": list(self.pods.values())})

    def add(
        self, name: str, message: str = "", *, uid: str = "", scheduler: str = "default-scheduler", at: datetime = NOON,
        job: str = "", **more: Any,
    ) -> str:  # fmt: skip
        """Let a Pod wait; with a message it was tried and not placed."""
        made = make_pod(name, uid=uid, schedulerName=scheduler, **more)
        metadata = made["metadata"]
        metadata["creationTimestamp"] = f"{at:%Y-%m-%dT%H:%M:%SZ}"
        if job:
            metadata["ownerReferences"] = [
                {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": job, "controller": True}
            ]
        condition = {
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastTransitionTime": f"{at + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}",
        }  # fmt: skip
        made["status"] = {"phase": "Pending"} | ({"conditions": [condition]} if message else {})
        self.pods[metadata["uid"]] = made
        return str(metadata["uid"])

    def follow(self, at: datetime = NOON + timedelta(minutes=4)) -> dict[str, PendingPod]:
        """Look once; returns what is known then, by the Pods' names."""
        Follower(self, clock=lambda: at).look()  # type: ignore[arg-type]
        return {row.name: row for row in PendingPod.objects.all()}
