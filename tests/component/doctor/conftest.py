"""Parts of Berth that are well, for tests that break one of them."""

from typing import Any

import pytest

from controlplane.celery import app
from scheduler.cluster.client import Client
from scheduler.decisions.stream import DecisionStream
from scheduler.doctor import records
from tests.component.doctor.checkups import Cluster, make_process


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(Client, "connect", lambda *_args, **_options: made)
    return made


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of Decisions that wait in Redis, look by look; the last one stays."""
    numbers = [0]
    monkeypatch.setattr(DecisionStream, "length", lambda _self: numbers.pop(0) if len(numbers) > 1 else numbers[0])
    monkeypatch.setattr(DecisionStream, "refusal", lambda _self: "")
    monkeypatch.setattr(DecisionStream, "eviction_policy", lambda _self: "noeviction")
    monkeypatch.setattr(records, "_INGEST_LOOK_SECONDS", 0.0)
    return numbers


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    answers = [{"celery@a": {"ok": "pong"}}]
    monkeypatch.setattr(app.control, "ping", lambda **_: answers)
    return answers


@pytest.fixture
def healthy(cluster: Cluster, waiting: list[int], workers: list[dict[str, Any]]) -> None:
    make_process()
