"""Pods that people want tried at once reach the process that leads, and nobody else."""

from datetime import UTC, datetime

import pytest

from scheduler.binder.runtime import MOST_WOKEN, Runtime
from scheduler.models import Wake

pytestmark = pytest.mark.django_db


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    made = Runtime(identity="test")
    monkeypatch.setattr(made.elector, "leads", lambda: True)
    return made


def ask(*uids: str) -> None:
    Wake.objects.bulk_create(Wake(uid=uid, asked_at=datetime.now(UTC)) for uid in uids)


def woken_by(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a heartbeat go by; return the Pods that it woke."""
    found: list[str] = []
    monkeypatch.setattr(runtime.loop, "wake", found.extend)
    runtime._write_state()
    return found


def test_who_leads_tries_the_pods_once(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("u1", "u2")
    assert woken_by(runtime, monkeypatch) == ["u1", "u2"]
    assert woken_by(runtime, monkeypatch) == []


def test_who_stands_by_leaves_them_to_who_leads(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    ask("u1")
    monkeypatch.setattr(runtime.elector, "leads", lambda: False)
    assert woken_by(runtime, monkeypatch) == []
    assert Wake.objects.count() == 1


def test_what_is_too_many_for_a_heartbeat_is_left_to_the_next(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(*(f"u{number:04}" for number in range(MOST_WOKEN + 1)))
    assert len(woken_by(runtime, monkeypatch)) == MOST_WOKEN
    assert woken_by(runtime, monkeypatch) == [f"u{MOST_WOKEN:04}"]
