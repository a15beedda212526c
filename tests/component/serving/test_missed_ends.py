"""Pods that ended while no process watched."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from policies.engine.objects.pod import Pod
from scheduler.decisions.record import Outcome
from scheduler.models import PlacedPod
from scheduler.serving.outcomes import STORED_WITHIN, UNWATCHED, MissedEnds
from tests.builders import make_pod

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


class Live:
    def __init__(self, *names: str) -> None:
        self.synced = True
        self._pods = [Pod.from_json(make_pod(name, nodeName="n1")) for name in names]

    def pods(self) -> list[Pod]:
        return self._pods


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
