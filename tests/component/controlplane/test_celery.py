"""A task leaves its connection to the database to the next one of its thread, but for one that is broken or too old. A worker waits for
Redis for as long as it is away.
"""

import time

import pytest
from celery.fixups.django import DjangoWorkerFixup
from celery.signals import task_postrun, task_prerun
from django.conf import settings
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper
from kombu import Connection

from controlplane.celery import app

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was closed of connections that are open."""
    connection.ensure_connection()
    aliases: list[str] = []
    monkeypatch.setattr(BaseDatabaseWrapper, "close", lambda self: aliases.append(self.alias))
    return aliases


def run_a_task() -> None:
    """Do what a worker does around a task."""
    around = DjangoWorkerFixup(app)
    task_prerun.send(sender=None)
    around.close_database()
    task_postrun.send(sender=None)
    around.close_database()


def test_a_connection_is_kept_for_the_next_task(closed: list[str]) -> None:
    for _ in range(100):
        run_a_task()
    assert closed == []


def test_a_connection_that_broke_is_not(closed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "errors_occurred", True)
    monkeypatch.setattr(connection, "is_usable", lambda: False)
    run_a_task()
    assert set(closed) == {connection.alias}


def test_nor_one_that_is_older_than_the_setting_allows(closed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "close_at", time.monotonic())
    run_a_task()
    assert set(closed) == {connection.alias}


class EnoughError(Exception):
    """There were more attempts than Celery makes by itself."""


def test_redis_may_be_away_for_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker, and the binder, would end once all attempts were made."""
    monkeypatch.setattr("kombu.utils.functional.sleep", lambda _seconds: None)
    waits: list[float] = []

    def note(_error: Exception, interval: float) -> None:
        waits.append(interval)
        if len(waits) > 150:
            raise EnoughError

    with Connection("redis://127.0.0.1:1/0") as connection, pytest.raises(EnoughError):
        connection.ensure_connection(note, app.conf.broker_connection_max_retries)
    assert max(waits) == 30


@pytest.mark.parametrize(
    "path", ["controlplane/up.py", "docker-compose.yml", "deploy/kubernetes/base/worker.yaml", "docs/architecture.md"]
)
def test_no_worker_listens_to_others_whose_messages_nothing_reads(path: str) -> None:
    """Celery's gossip can't be closed while Redis is away, and may leave a traceback."""
    text = (settings.BASE_DIR / path).read_text()
    assert "ingest,ops" in text
    for option in ("--without-heartbeat", "--without-mingle", "--without-gossip"):
        assert option in text
