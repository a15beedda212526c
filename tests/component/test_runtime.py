"""The list of processes that an extender keeps itself on."""

from datetime import UTC, datetime, timedelta

import pytest

from scheduler.extender.runtime import FORGET_SECONDS, Runtime
from scheduler.models import Process

pytestmark = pytest.mark.django_db


def make_process(name: str, *, silent_seconds: float) -> None:
    at = datetime.now(UTC) - timedelta(seconds=silent_seconds)
    Process.objects.create(id=name, role="extender", host="h", pid=1, started_at=at, beat_at=at)


def test_processes_that_were_killed_long_ago_are_taken_off_the_list() -> None:
    make_process("dead", silent_seconds=FORGET_SECONDS + 60)
    make_process("silent for a moment", silent_seconds=60)

    Runtime()._forget_the_dead()

    assert list(Process.objects.values_list("id", flat=True)) == ["silent for a moment"]


def test_a_process_puts_itself_on_the_list_and_takes_itself_off() -> None:
    runtime = Runtime()
    runtime._beat()
    assert list(Process.objects.values_list("id", "role")) == [(runtime.process_id, "extender")]
    runtime._leave()
    assert not Process.objects.exists()
