"""A cluster of one Pod, for canaries: takes a Pod, lets it be looked at, and does in between what a test says."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec

from scheduler.cluster.errors import APIConflictError, APIError, APINotFoundError

Looked = Callable[[dict[str, Any]], None]
_UID = "canary-uid"


class OnePodCluster:
    """What the API server does with a canary.

    Args:
        on_look: called with the Pod before each look at it; may change it.
        priority: what admission gives a Pod without a class.
        refuse: raised by the creation.
    """

    def __init__(
        self, on_look: Looked | None = None, *, priority: int = 0, refuse: APIError | None = None,
        classes: list[dict[str, Any]] | None = None, left_over: list[dict[str, Any]] | None = None,
        delete_fails: int = 0,
    ) -> None:  # fmt: skip
        self.on_look = on_look
        self.priority = priority
        self.refuse = refuse
        self.classes = classes or []
        self.left_over = left_over or []
        self.delete_fails = delete_fails
        self.pod: dict[str, Any] | None = None
        self.created: list[dict[str, Any]] = []
        self.deleted: list[str] = []

    def post(self, *, path: str, body: bytes) -> bytes:
        pod = msgspec.json.decode(body)
        if self.refuse is not None:
            raise self.refuse
        name = pod["spec"].get("priorityClassName", "")
        chosen = next((each for each in self.classes if each["metadata"]["name"] == name), None)
        pod["spec"]["priority"] = chosen["value"] if chosen else self.priority
        pod["spec"]["preemptionPolicy"] = (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority")
        if "dryRun" not in urlsplit(path).query:
            pod["metadata"]["uid"] = _UID
            pod["status"] = {}
            self.pod = pod
            self.created.append(pod)
        return msgspec.json.encode(pod)

    def get(self, *, path: str, query: dict[str, str] | None = None) -> bytes:
        if path.endswith("/pods"):
            return msgspec.json.encode({"items": self.left_over})
        if path.endswith("/priorityclasses"):
            return msgspec.json.encode({"items": self.classes})
        if self.pod is not None and self.on_look is not None:
            self.on_look(self.pod)
        if self.pod is None:
            message = "no such Pod"
            raise APINotFoundError(message, status=404)
        return msgspec.json.encode(self.pod)

    def delete(self, *, path: str, body: bytes | None = None) -> bytes:
        if self.delete_fails:
            self.delete_fails -= 1
            message = "the API server is busy"
            raise APIConflictError(message, status=409)
        self.deleted.append(path.rpartition("/")[2])
        self.pod = None
        return b"{}"
