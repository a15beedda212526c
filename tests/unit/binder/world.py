"""A binding loop whose watches, clock, dispatcher and API server are the test's."""

from typing import Any

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.objects.cluster_kinds import LabelledMetadata
from policies.engine.objects.namespace import Namespace
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Revision
from scheduler.binder import api_calls as api_calls_module
from scheduler.binder import loop as loop_module
from scheduler.binder.actions import Condition, Event
from scheduler.binder.cycle import Placement
from scheduler.binder.loop import Loop
from scheduler.binder.queue import State
from scheduler.cluster.bind import Outcome
from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import APIRequest
from scheduler.cluster.errors import APIError
from scheduler.cluster.kinds import Seen
from scheduler.cluster.live import CORE_KINDS, LiveSnapshot
from scheduler.cluster.reflection import Changes, Reflection
from tests.builders import make_node, make_pod

HUGE = {"cpu": "100"}
ONE = {"cpu": "1"}


class Dispatcher:
    def __init__(self) -> None:
        self.requests: list[APIRequest] = []

    def send(self, request: APIRequest) -> None:
        self.requests.append(request)


class World:
    """A loop whose watches, clock, dispatcher and API server are the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
        self.now = 100.0
        self.leading = True
        self.dispatcher = Dispatcher()
        self.events: list[Event] = []
        self.conditions: list[tuple[str, Condition]] = []
        self.outcome = Outcome.BOUND
        self.looked: list[str] = []
        self.recorded: list[tuple[str, str]] = []
        self.notes: list[dict[str, Any]] = []
        self.live = LiveSnapshot(Client.connect(None))
        self.loop = Loop(
            client=Client.connect(None),
            live=self.live,
            scheduler_names=["berth"],
            leads=lambda: self.leading,
            dispatcher=self.dispatcher,  # type: ignore[arg-type]
            post=self.events.append,
            record=self._record,
            clock=lambda: self.now,
            **more,
        )
        # Its clock stands still: nothing comes while it waits.
        monkeypatch.setattr(loop_module, "_IDLE_SECONDS", 0.001)
        monkeypatch.setattr(api_calls_module, "write_condition", self._write)
        monkeypatch.setattr(api_calls_module, "bind", self._bind)
        monkeypatch.setattr(api_calls_module, "look_up", self._bind)
        self.live._listed |= CORE_KINDS
        self.loop.serve(CompiledRevision(Revision(number=0)))
        self._nodes: Reflection[Node] = Reflection()
        self._namespaces: Reflection[Namespace] = Reflection()
        self._pods = self.live._pods._reflection
        self._version = 0
        self.written = True
        self.failure: APIError | None = None

    def _write(self, _client: Client, pod: Pod, condition: Condition) -> bool:
        self.conditions.append((pod.name, condition))
        if self.failure is not None:
            raise self.failure
        return self.written

    def _record(self, placement: Placement, _seconds: float, notes: dict[str, Any]) -> str:
        self.recorded.append((placement.pod.name, placement.node))
        self.notes.append(notes)
        return f"decision-{len(self.recorded)}"

    def _bind(self, _client: Client, target: Any, *, timeout_seconds: float) -> Outcome:
        self.looked.append(target.name)
        return self.outcome

    def node(self, name: str, *, deleted: bool = False, status: Any = None, uid: str = "", **more: Any) -> None:
        self._version += 1
        json = make_node(name, **more)
        json["metadata"]["uid"] = uid
        json["status"] |= status or {}
        node = Node.from_json(json)
        change = self._nodes.on_event(Seen(name, str(self._version), node, deleted))
        assert change is not None
        self.live._on_nodes(Changes([change]))

    def pod(
        self,
        name: str,
        *,
        node: str = "",
        deleted: bool = False,
        deleting: bool = False,
        status: Any = None,
        annotations: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        self._version += 1
        json = make_pod(name, **more)
        json["metadata"]["annotations"] = annotations or {}
        json["metadata"]["resourceVersion"] = str(self._version)
        json["status"] = status or {}
        if deleting:
            json["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        if node:
            json["spec"]["nodeName"] = node
        change = self._pods.on_event(Seen(f"uid-{name}", str(self._version), Pod.from_json(json), deleted))
        assert change is not None
        self.live._on_pods(Changes([change]))

    def namespace(self, name: str, **labels: str) -> None:
        self._version += 1
        found = Namespace(LabelledMetadata(name=name, labels=labels))
        change = self._namespaces.on_event(Seen(name, str(self._version), found))
        assert change is not None
        self.live._on_namespaces(Changes([change]))

    def turn(self, turns: int = 1) -> None:
        """Let the deciding thread go round, and the others do what they were given."""
        for _ in range(turns):
            self.loop._heard.set()
            self.loop._turn()
            calls = self.loop._api_calls
            for work in (calls._counted_work, calls._work):
                while not work.empty():
                    task = work.get()
                    assert task is not None
                    task()

    def answer(self, status: int = 201, body: bytes = b"", *, retry_after_seconds: float = 0.0) -> None:
        """Answer all bindings that were sent."""
        requests, self.dispatcher.requests = self.dispatcher.requests, []
        for request in requests:
            if request.ready():
                request.retry_after_seconds = retry_after_seconds
                request.done(status, body)
        self.turn()

    def state(self, name: str) -> State | None:
        waiting = self.loop._queue.get(f"uid-{name}")
        return waiting.state if waiting else None

    def on(self, node: str) -> list[str]:
        return [pod.name for pod in self.live.snapshot().nodes[node].pods]
