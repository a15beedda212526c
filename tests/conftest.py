"""Fixtures of all tests: a state directory and a database of their own, and clients of the three roles."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.test import Client

from controlplane.sign_in_form import TURNS
from controlplane.tally import UNKNOWN


@pytest.fixture(scope="session", autouse=True)
def state_dir() -> Iterator[Path]:
    """Keep the tests out of the checkout's .berth."""
    with tempfile.TemporaryDirectory(prefix="berth-tests-") as folder:
        before = settings.BERTH
        settings.BERTH = msgspec.structs.replace(before, state_dir=Path(folder))
        yield Path(folder)
        settings.BERTH = before


@pytest.fixture(scope="session")
def django_db_modify_db_settings(state_dir: Path) -> None:
    """Put SQLite's test database into a file, which threads share as processes do."""
    from django.db import connections

    database = connections["default"].settings_dict
    if database["ENGINE"].endswith("sqlite3"):
        database["TEST"]["NAME"] = str(state_dir / "tests.sqlite3")


@pytest.fixture(scope="session", autouse=True)
def _flush_past_triggers() -> Iterator[None]:
    """Let the flush after a transactional test empty tables with triggers that refuse deletion (PostgreSQL truncates)."""
    original = DatabaseWrapper.ops_class.sql_flush

    def sql_flush(self: Any, style: Any, tables: list[str], **options: Any) -> list[str]:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
            triggers = cursor.fetchall()
        dropped = [f"DROP TRIGGER {name}" for name, _sql in triggers]
        return [*dropped, *original(self, style, tables, **options), *(sql for _name, sql in triggers)]

    DatabaseWrapper.ops_class.sql_flush = sql_flush
    yield
    DatabaseWrapper.ops_class.sql_flush = original


@pytest.fixture(autouse=True)
def _forget_failures() -> None:
    """Reset the counts of failed sign-ins: all tests have one address, and run within a minute."""
    UNKNOWN.forget()
    TURNS.forget()


class HTTPSClient(Client):
    """Django's test client, like a browser that uses HTTPS."""

    def request(self, **request: Any) -> Any:
        return super().request(**{**request, "wsgi.url_scheme": "https"})


def _client_of(role: str) -> HTTPSClient:
    user = User.objects.create(username=role.lower(), is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    client = HTTPSClient()
    client.force_login(user)
    return client


@pytest.fixture
def client() -> HTTPSClient:
    """Return a client that isn't signed in."""
    return HTTPSClient()


@pytest.fixture
def operator(db: None) -> HTTPSClient:
    """Return the client of somebody who edits and, where no review is required, publishes."""
    return _client_of("Operator")


@pytest.fixture
def approver(db: None) -> HTTPSClient:
    """Return the client of somebody who publishes and doesn't edit."""
    return _client_of("Approver")


@pytest.fixture
def auditor(db: None) -> HTTPSClient:
    """Return the client of somebody who only reads."""
    return _client_of("Auditor")
