"""Writing to SQLite in the middle of reading."""

from contextlib import nullcontext

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL has cursors of its own"),
]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_an_iterator_has_an_open_query_only_in_a_transaction(in_transaction: bool) -> None:
    with transaction.atomic() if in_transaction else nullcontext():
        assert connection.features.can_use_chunked_reads == in_transaction


def test_rows_are_written_between_two_that_are_read_whoever_else_writes() -> None:
    Group.objects.bulk_create(Group(name=f"team {letter}") for letter in "abc")
    names = iter(Group.objects.filter(name__startswith="team").order_by("name").iterator(chunk_size=1))
    assert next(names).name == "team a"
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("UPDATE auth_group SET name = 'of another process' WHERE name = 'team b'")
    finally:
        other.close()
    Group.objects.create(name="d")
    assert [group.name for group in names] == ["team b", "team c"]
