"""A database that can't hold every text is found before anything is refused by it."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from controlplane import checks
from scheduler.doctor.encoding import narrow_encoding

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def narrow() -> Iterator[Any]:
    """A connection to a database in LATIN1."""
    if connection.vendor != "postgresql":
        pytest.skip("SQLite has UTF-8 alone")
    name = "narrow_texts"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    other = connection.copy()
    other.settings_dict = {**connection.settings_dict, "NAME": name}
    yield other
    other.close()
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name}")


def test_migrate_refuses_an_encoding_that_lacks_characters_and_says_what_to_do(
    narrow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "connections", {"default": narrow})
    [found] = checks.check_encoding(databases=["default"])
    assert (found.id, found.msg) == (
        "berth.E005",
        "The database's encoding is LATIN1, which hasn't all characters: texts with others are refused.",
    )
    assert "ENCODING 'UTF8' TEMPLATE template0" in str(found.hint)


def test_the_database_of_these_tests_is_not_blamed() -> None:
    assert not narrow_encoding(connection)
