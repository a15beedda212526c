"""The verdict of kube-scheduler's own filter plugins on a cluster's final state: `plugins placements` of deploy/localcluster.

It is independent of Berth: the program reads the API server's lists, and a watch's records and events of the run.
It assumes that nothing was removed meanwhile: if Pods were deleted, a Pod that fitted when it was bound
(topology spread, Pod affinity) may not fit any more.
"""

import json
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from scheduler.cluster.client import Client, LineStream
from scheduler.cluster.errors import APIError
from tests.differential.plugins import answer_all
from tests.stack import eventually

Json = dict[str, Any]

PODS = "/api/v1/pods"
# The program's input: member of the state -> path of the API server.
LISTS = {
    "nodes": "/api/v1/nodes",
    "pods": PODS,
    "namespaces": "/api/v1/namespaces",
    "persistentVolumeClaims": "/api/v1/persistentvolumeclaims",
    "persistentVolumes": "/api/v1/persistentvolumes",
    "storageClasses": "/apis/storage.k8s.io/v1/storageclasses",
    "csiNodes": "/apis/storage.k8s.io/v1/csinodes",
    "volumeAttachments": "/apis/storage.k8s.io/v1/volumeattachments",
    "services": "/api/v1/services",
    "replicationControllers": "/api/v1/replicationcontrollers",
    "replicaSets": "/apis/apps/v1/replicasets",
    "statefulSets": "/apis/apps/v1/statefulsets",
}

_EVENTS = "/apis/events.k8s.io/v1/events"
_AGAIN_SECONDS = 0.2


@dataclass(frozen=True)
class Findings:
    """The program's findings about a state. Lists are empty if all is well."""

    # How many Pods of the checked schedulers are on nodes.
    placed: int
    # How many of their Pods wait: without gates, not being deleted.
    waiting: int
    # `{"pod", "node", "plugins": {plugin: {"code", "reasons"}}}`; no plugin: there is no such node.
    misplaced: list[Json] = field(default_factory=list)
    # `{"pod", "nodes": all it was seen on, "scheduled": events}`.
    bound_twice: list[Json] = field(default_factory=list)
    # `{"pod", "nodes": some that it would fit on now}`.
    left: list[Json] = field(default_factory=list)
    # UIDs of Pods that were created and aren't there.
    lost: list[str] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, list[Any]]:
        """The faults by kind; empty if all is well."""
        kinds = {"misplaced": self.misplaced, "bound twice": self.bound_twice, "left": self.left, "lost": self.lost}
        return {kind: found for kind, found in kinds.items() if found}


def check(program: Path, state: Json) -> Findings:
    """Let the program check a state.

    Args:
        program: the result of `tests.differential.plugins.build`.
        state: lists of Kubernetes objects by the names in LISTS, and optionally `schedulerNames` (all if empty),
            `created` (UIDs that have to be there), `seen` (`{"uid", "node"}`), `events` (events.k8s.io/v1).

    Raises:
        ValueError: the program can't read the state.
    """
    [answer] = answer_all(program, [state], "placements")
    if "error" in answer:
        raise ValueError(answer["error"])
    renamed = {"boundTwice": "bound_twice"}
    return Findings(**{renamed.get(name, name): value for name, value in answer.items()})


def items(client: Client, path: str, *, field_selector: str = "") -> list[Json]:
    """Read all objects of a list."""
    query = {"fieldSelector": field_selector} if field_selector else {}
    found: list[Json] = []
    for page in client.list_pages(path=path, query=query):
        found += msgspec.json.decode(page)["items"] or ()
    return found


def read_state(
    client: Client, *, scheduler_names: Iterable[str], created: Iterable[str] = (), history: "History | None" = None
) -> Json:
    """Read the state of a cluster from its API server, events included."""
    state: Json = {name: items(client, path) for name, path in LISTS.items()}
    state["events"] = items(client, _EVENTS, field_selector="reason=Scheduled")
    state["schedulerNames"] = list(scheduler_names)
    state["created"] = list(created)
    state["seen"] = history.seen() if history else []
    return state


class History(threading.Thread):
    """Watches all Pods and records all nodes of each, across breaks of the watch and restarts of the API server."""

    def __init__(self, client: Client) -> None:
        super().__init__(name="history", daemon=True)
        self._client = client
        self._nodes: dict[str, dict[str, float]] = {}
        self._created: dict[str, float] = {}
        self._enough = threading.Event()
        self._stream: LineStream | None = None
        self.restarts = -1

    def run(self) -> None:
        while not self._enough.is_set():
            self.restarts += 1
            try:
                self._follow(self._list())
            except APIError:
                time.sleep(_AGAIN_SECONDS)

    def stop(self) -> None:
        """End the watch."""
        self._enough.set()
        if self._stream is not None:
            self._stream.abort()
        self.join()

    def _list(self) -> str:
        answer = msgspec.json.decode(self._client.get(path=PODS))
        for pod in answer["items"]:
            self._note(pod)
        return str(answer["metadata"]["resourceVersion"])

    def _follow(self, version: str) -> None:
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "3600"}
        self._stream = self._client.stream(path=PODS, query=query, read_timeout=3600)
        if self._enough.is_set():
            self._stream.abort()
        for line in self._stream:
            event = json.loads(line)
            if event["type"] == "ERROR":
                self._stream.close()
                return
            self._note(event["object"])

    def _note(self, pod: Json) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName", "")
        now = time.monotonic()
        self._created.setdefault(uid, now)
        if node:
            self._nodes.setdefault(uid, {}).setdefault(node, now)

    def seen(self) -> list[Json]:
        """Return all records, in the program's format."""
        return [{"uid": uid, "node": node} for uid, nodes in list(self._nodes.items()) for node in list(nodes)]

    def bound_at(self) -> dict[str, float]:
        """When each Pod was first seen on a node, by UID; seconds of the monotonic clock."""
        return {uid: min(nodes.values()) for uid, nodes in list(self._nodes.items())}

    def created_at(self, uid: str) -> float:
        """When a Pod was first seen; seconds of the monotonic clock."""
        return self._created[uid]


def settled(
    program: Path, client: Client, history: History, names: list[str], created: list[str], *, seconds: float
) -> Findings:
    """Wait until none of these schedulers' waiting Pods would fit, so that nothing more will happen."""

    def look() -> Findings | None:
        state = read_state(client, scheduler_names=names, created=created, history=history)
        latest.append(check(program, state))
        return None if latest[-1].left else latest[-1]

    latest: list[Findings] = []
    try:
        return eventually(look, seconds=seconds, every=1.0)
    except AssertionError:
        return latest[-1]  # the test says which Pods were left
