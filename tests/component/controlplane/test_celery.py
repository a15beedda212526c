"""A task leaves its connection to the database to the next one of its thread, but for one that is broken or too old."""

import time

import pytest
from celery.fixups.django import DjangoWorkerFixup
from celery.signals import task_postrun, task_prerun
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

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
