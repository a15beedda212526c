"""The binder's process."""

from types import SimpleNamespace
from typing import Any

import pytest
from celery.worker.consumer.heart import Heart

from controlplane.celery import app


def test_the_loop_that_hears_sigterm_writes_no_heartbeats_to_redis_which_may_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}

    class Worker:
        exitcode = 0

        def __init__(self, **options: Any) -> None:
            given.update(options)

        def start(self) -> None:
            """Nothing runs here."""

    # Set, so that the import doesn't set it for all tests.
    monkeypatch.setenv("BERTH_ROLE", "worker")
    monkeypatch.setattr(app, "Worker", Worker)
    from controlplane.binder import main

    assert main() == 0
    assert (given["without_heartbeat"], given["queues"]) == (True, ["binder"])
    consumer = SimpleNamespace(heart=None)
    assert not Heart(consumer, without_heartbeat=given["without_heartbeat"]).enabled
