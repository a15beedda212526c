"""Lists over many things: a page asks for what it shows, by as many queries and rows however much there is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import cycle
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.db.models.sql.compiler import SQLCompiler
from django.test import Client
from django.test.utils import CaptureQueriesContext

from policies import compiler
from policies.engine.ruleset import Revision
from policies.models import Assignment, Change, ChangeEvent, GateSetting, ReviewSetting, RuleSet, RuleSetVersion
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import text_of
from tests.component.revisions import store_revision

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 1, 1, tzinfo=UTC)
# How many versions each rule set has.
VERSIONS = 4
# More than a page shows, and twice as much.
MANY, MORE = 110, 220


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
    """Make Changes that are in review, and whose review somebody was asked for, each other one of two people."""
    reviewers = [reviewer(name) for name in ("carol", "dave")]
    changes = [
        Change(title=f"c {number}", state="in_review", base=0, digest=f"{number}", opened_by="alice", moved_at=NOW)
        for number in range(first, last)
    ]
    Change.objects.bulk_create(changes)
    made = Change.objects.filter(digest__in=[change.digest for change in changes])
    ChangeEvent.objects.bulk_create(
        ChangeEvent(change=change, act=act, by="alice", digest=change.digest, at=NOW)
        for change in made
        for act in ("open", "submit")
    )
    ChangeEvent.objects.bulk_create(
        ChangeEvent(
            change=change, act="ask", by="alice", whom=asked.username, whom_user=asked, digest=change.digest, at=NOW
        )
        for change, asked in zip(made, cycle(reviewers), strict=False)
    )


def reviewer(name: str) -> User:
    user, _ = User.objects.get_or_create(username=name)
    user.groups.add(Group.objects.get(name="Approver"))
    return user


def test_the_list_of_changes(operator: Client, counting: Callable[[], Any]) -> None:
    page = "/admin/policies/change/"
    make_changes(0, MANY)
    operator.get(page)
    with counting() as few:
        shown = operator.get(page).content.decode()
    assert min(shown.count("carol"), shown.count("dave")) >= 25
    make_changes(MANY, MORE)
    with counting() as many:
        operator.get(page)
    assert (many.queries, many.rows) == (few.queries, few.rows)
    assert few.queries < 20


def make_rule_sets(first: int, last: int) -> None:
    """Publish rule sets, each with some versions and two Assignments; what was there before is live no more."""
    made = {name: make_rule_set(name) for name in (f"set-{number:04}" for number in range(first, last))}
    RuleSet.objects.bulk_create(RuleSet(name=name) for name in made)
    rows = {row.name: row for row in RuleSet.objects.all()}
    RuleSetVersion.objects.bulk_create(
        RuleSetVersion(
            rule_set=rows[name],
            number=number,
            state="published" if number == VERSIONS else "superseded",
            published_at=NOW,
            published_by="alice",
            **compiler.version_fields(content),
        )
        for name, content in made.items()
        for number in range(1, VERSIONS + 1)
    )
    given = [make_assignment(f"{name}-{part}", name, order=part) for name in made for part in range(2)]
    Assignment.objects.bulk_create(
        Assignment(name=each.name, **compiler.assignment_fields(each, rule_set=rows[each.rule_set])) for each in given
    )
    number = 1 if not first else 2
    store_revision(Revision(number=number, rule_sets=list(made.values()), assignments=given))


@pytest.mark.parametrize(
    "page",
    [
        "/admin/policies/ruleset/?which=all",
        "/admin/policies/rulesetversion/",
        "/admin/policies/assignment/",
        "/admin/scheduler/decision/",
        "/api/v1/rule-sets",
        "/api/v1/assignments",
    ],
)
def test_a_list_asks_no_more_queries_for_many_rows_than_for_few(
    page: str, operator: Client, counting: Callable[[], Any]
) -> None:
    make_rule_sets(0, MANY)
    operator.get(page)
    with counting() as few:
        assert operator.get(page).status_code == 200
    make_rule_sets(MANY, MORE)
    operator.get(page)  # what is live is read once by a process
    with counting() as many:
        operator.get(page)
    # Rows that aren't live are asked about less.
    assert many.queries <= few.queries
    assert many.rows <= few.rows
    assert few.queries < 20


@pytest.mark.parametrize(
    ("page", "make"),
    [
        ("reviewsetting", lambda: ReviewSetting(rule_set="web", approvals=1, set_by="root", set_at=NOW)),
        (
            "gatesetting",
            lambda: GateSetting(rule_set="web", check_name="tests", level="warning", set_by="root", set_at=NOW),
        ),
    ],
)
def test_the_list_of_settings_asks_as_much_for_many_and_says_which_holds(
    page: str, make: Callable[[], Any], operator: Client, counting: Callable[[], Any]
) -> None:
    make().save()
    with counting() as few:
        operator.get(f"/admin/policies/{page}/")
    type(make()).objects.bulk_create(make() for _ in range(9))
    with counting() as many:
        shown = text_of(operator.get(f"/admin/policies/{page}/"))
    assert (shown.count("replaced"), shown.count("holds")) == (9, 1)
    assert many.queries == few.queries


def test_the_first_page_names_some_changes_and_leads_to_the_others(
    operator: Client, counting: Callable[[], Any]
) -> None:
    make_changes(0, MANY)
    operator.get("/admin/")
    with counting() as few:
        shown = operator.get("/admin/").content.decode()
    assert f"{MANY - 20} more" in shown
    make_changes(MANY, MORE)
    with counting() as many:
        operator.get("/admin/")
    assert (many.queries, many.rows) == (few.queries, few.rows)
