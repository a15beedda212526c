"""Pods that ended while no process watched."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from policies.engine.objects.pod import Pod
from scheduler.cluster.kinds import NODES, PODS
from scheduler.cluster.reflection import Change, Changes
from scheduler.decisions.record import UNWATCHED, Outcome
from scheduler.models import PlacedPod
from scheduler.serving.outcomes import STORED_WITHIN, MissedEnds
from tests.builders import make_pod

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Live:
    def __init__(self, *names: str) -> None:
        self.synced = True
        self._pods = [Pod.from_json(make_pod(name, nodeName="n1")) for name in names]

    def pods(self) -> list[Pod]:
        return self._pods

    def observe(self, callback: Callable[[str, Changes[Any]], None]) -> None:
        self.tell = callback

    def list_pods(self) -> None:
        changes = [Change("added", pod.uid, pod, None, "1") for pod in self._pods]
        self.tell(NODES.name, Changes([], replaced=True))
        self.tell(PODS.name, Changes(changes, replaced=True))

    def end(self, name: str) -> None:
        (ended,) = (pod for pod in self._pods if pod.name == name)
        self._pods.remove(ended)
        self.tell(PODS.name, Changes([Change("deleted", ended.uid, ended, ended, "2")]))


class Recorder:
    def __init__(self) -> None:
        self.kept: list[Outcome] = []

    def record_outcome(self, outcome: Outcome) -> None:
        self.kept.append(outcome)


def place(name: str, *, at: datetime = NOON - timedelta(days=1)) -> None:
    PlacedPod.objects.create(uid=f"uid-{name}", namespace="default", name=name, node_name="n1", bound_at=at)


def test_a_pod_that_is_not_there_any_more_has_ended_and_each_is_said_once() -> None:
    for name in ("gone", "there"):
        place(name)
    place("bound a moment ago", at=NOON + timedelta(seconds=1))
    live, recorder, moments = Live("there"), Recorder(), [NOON]
    parts: Any = (live, recorder)
    ends = MissedEnds(*parts, clock=lambda: moments[0])
    live.list_pods()
    ends.look()
    assert recorder.kept == []
    moments[0] += STORED_WITHIN
    live.synced = False
    ends.look()
    assert recorder.kept == []
    live.synced = True
    for _ in range(2):
        ends.look()
    (end,) = recorder.kept
    assert (end.kind, end.pod_uid, end.node_name, end.reason) == ("ended", "uid-gone", "n1", UNWATCHED)


def test_a_pod_that_was_listed_and_ended_since_was_watched_though_its_end_is_not_stored_yet() -> None:
    place("ends")
    live, recorder, moments = Live("ends"), Recorder(), [NOON]
    parts: Any = (live, recorder)
    ends = MissedEnds(*parts, clock=lambda: moments[0])
    live.list_pods()
    live.end("ends")
    moments[0] += STORED_WITHIN
    ends.look()
    assert recorder.kept == []
