"""What PostgreSQL does about a client that is gone, or stands still, inside a transaction."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.db.backends.base.base import BaseDatabaseWrapper

from controlplane import lost_clients
from controlplane.lost_clients import network_limits
from tests.stack import eventually

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite's clients are on one machine"),
]

TAKE = "SELECT pg_try_advisory_xact_lock(20261130)"


@contextmanager
def another_session(options: str = "") -> Iterator[BaseDatabaseWrapper]:
    other = connection.copy()
    if options:
        other.settings_dict["OPTIONS"] = {**other.settings_dict["OPTIONS"], "options": options}
    try:
        yield other
    finally:
        other.close()


def asked(session: BaseDatabaseWrapper, query: str) -> object:
    with session.cursor() as cursor:
        cursor.execute(query)
        return cursor.fetchone()[0]


def test_a_client_that_stands_still_in_a_transaction_loses_its_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_clients, "IDLE_SECONDS", 3)
    with another_session() as frozen:
        frozen.set_autocommit(False)
        asked(frozen, TAKE)
        assert not asked(connection, TAKE)
        eventually(lambda: asked(connection, TAKE), seconds=20, what="the lock")


@pytest.mark.parametrize(
    ("options", "limit"), [("", "5min"), ("-c idle_in_transaction_session_timeout=7s", "7s")], ids=["berth", "own"]
)
def test_each_connection_has_a_limit_that_an_administrator_may_set(options: str, limit: str) -> None:
    with another_session(options) as session:
        assert asked(session, "SHOW idle_in_transaction_session_timeout") == limit


def test_each_connection_says_how_long_its_client_waits() -> None:
    said: list[Any] = []

    def note(execute: Any, query: str, values: Any, *more: Any) -> Any:
        said.append(values)
        return execute(query, values, *more)

    with another_session() as session, session.execute_wrapper(note):
        session.settings_dict["OPTIONS"] = {**session.settings_dict["OPTIONS"], "tcp_user_timeout": 7000}
        session.connect()
    assert said[-1][-2:] == ["tcp_user_timeout", "7000"]


def test_postgresql_waits_for_a_client_as_long_as_the_client_waits_for_it() -> None:
    assert network_limits({"keepalives_idle": "-1", "tcp_user_timeout": 20_000, "connect_timeout": 5}) == {
        "tcp_keepalives_idle": "0",
        "tcp_user_timeout": "20000",
    }
