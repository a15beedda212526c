"""A pooler that lends one session to several clients is found, and one that pools by session isn't blamed."""

from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError

from controlplane import checks, starts
from scheduler.doctor import database, pooling

SERVERS_PID = 10


class Client:
    """What is asked of a connection; behind it stands a session, and perhaps a pooler, which makes up process ids."""

    vendor = "postgresql"

    def __init__(self, *, pid: int, session: dict[str, str], others: dict[str, str]) -> None:
        self.connection = SimpleNamespace(info=SimpleNamespace(backend_pid=pid))
        self._session, self._others = session, others
        self._found: Any = None

    def copy(self) -> "Client":
        return Client(pid=12, session=self._others, others=self._others)

    def close(self) -> None:
        """Do nothing."""

    def cursor(self) -> Any:
        return self

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def execute(self, query: str, params: tuple[str] | None) -> None:
        if params:
            self._session["mark"] = params[0]
        self._found = SERVERS_PID if "pid" in query else self._session.get("mark")

    def fetchone(self) -> tuple[Any]:
        return (self._found,)


def by_session() -> Any:
    return Client(pid=11, session={}, others={})


def by_transaction() -> Any:
    shared: dict[str, str] = {}
    return Client(pid=11, session=shared, others=shared)


class Away(dict[str, str]):
    def get(self, *_: object) -> Any:
        raise DatabaseError


def test_a_pooler_by_transaction_is_found() -> None:
    assert pooling.is_shared(by_transaction())


def test_a_pooler_by_session_is_not_blamed() -> None:
    assert not pooling.is_shared(by_session())


def test_postgresql_itself_is_asked_once() -> None:
    direct: Any = Client(pid=SERVERS_PID, session=Away(), others=Away())
    assert not pooling.shares_sessions(direct)


def test_a_database_that_goes_away_is_not_blamed() -> None:
    assert not pooling.is_shared(Client(pid=11, session=Away(), others={}))  # type: ignore[arg-type]


def test_sqlite_has_no_pooler() -> None:
    assert not pooling.is_shared(SimpleNamespace(vendor="sqlite"))  # type: ignore[arg-type]


def test_migrate_refuses_a_pooler_by_transaction_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "connections", {"default": by_transaction(), "history": by_session()})
    found = checks.check_pooler(databases=["history", "default"])
    assert [each.id for each in found] == ["berth.E004"]
    assert "pool_mode=session" in str(found[0].hint)
    assert checks.check_pooler() == []


def test_the_doctor_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "connection", by_transaction())
    (found,) = database.pooler()
    assert (found.name, found.state) == ("pooler", "error")


def test_a_start_is_told_in_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(starts, "written", lambda *_: True)
    monkeypatch.setattr(starts, "connection", by_session())
    starts._until_written("worker")
    assert caplog.text == ""
    monkeypatch.setattr(starts, "connection", by_transaction())
    starts._until_written("worker")
    assert "pool_mode=session" in caplog.text
