"""Lists over many things: a page asks for what it shows, by as many queries and rows however much there is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.db.models.sql.compiler import SQLCompiler
from django.test import Client
from django.test.utils import CaptureQueriesContext

from policies.models import Change, ChangeEvent

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 1, tzinfo=UTC)
# More than a page shows, and three times as much.
MANY, MORE = 60, 180


class Asked:
    """What a page asked of the database: how many queries, and how many rows they brought."""

    def __init__(self) -> None:
        self.queries = 0
        self.rows = 0


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    results_iter = SQLCompiler.results_iter

    @contextmanager
    def count() -> Iterator[Asked]:
        asked = Asked()

        def counted(self: SQLCompiler, *arguments: Any, **named: Any) -> Iterator[Any]:
            for row in results_iter(self, *arguments, **named):
                asked.rows += 1
                yield row

        with monkeypatch.context() as patched, CaptureQueriesContext(connection) as captured:
            patched.setattr(SQLCompiler, "results_iter", counted)
            yield asked
        asked.queries = len(captured)

    return count


def make_changes(first: int, last: int) -> None:
    """Make Changes that are in review, and whose review somebody was asked for."""
    changes = [
        Change(title=f"c {number}", state="in_review", base=0, digest=f"{number}", opened_by="alice", moved_at=NOW)
        for number in range(first, last)
    ]
    Change.objects.bulk_create(changes)
    made = Change.objects.filter(digest__in=[change.digest for change in changes])
    ChangeEvent.objects.bulk_create(
        ChangeEvent(
            change=change, act=act, by="alice", whom="carol" if act == "ask" else "", digest=change.digest, at=NOW
        )
        for change in made
        for act in ("open", "submit", "ask")
    )


def test_the_list_of_changes(operator: Client, counting: Callable[[], Any]) -> None:
    page = "/admin/policies/change/"
    make_changes(0, MANY)
    operator.get(page)
    with counting() as few:
        shown = operator.get(page).content.decode()
    assert shown.count("carol") >= 50
    make_changes(MANY, MORE)
    with counting() as many:
        operator.get(page)
    assert (many.queries, many.rows) == (few.queries, few.rows)
    assert few.queries < 20
