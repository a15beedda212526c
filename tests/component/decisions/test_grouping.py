"""Decisions grouped by Pod, rule, reason and node: each number leads to the Decisions that it counts, and no page counts in the database."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from scheduler.decisions import grouping
from scheduler.decisions.grouping import WAYS, grouped
from scheduler.decisions.search import parse_search
from scheduler.models import Decision
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import get, text_of

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
LIST = "/admin/scheduler/decision/"


@pytest.fixture
def some() -> None:
    """Four Decisions about three Pods."""
    for minutes, fields in enumerate(
        [
            {"pod_name": "a", "pod_uid": "1", "refused_by": "\nteam\nroom\n", "best": "n1"},
            {"pod_name": "a", "pod_uid": "1", "refused_by": "\nteam\n", "best": "", "feasible": 0},
            {"pod_name": "b", "pod_uid": "2", "refused_by": "\nteam\n", "best": "n2", "top_reason": "no room"},
            {"pod_name": "c", "pod_uid": "", "refused_by": "", "best": "n1", "top_reason": ""},
        ]
    ):
        make_decision(at=NOW - timedelta(minutes=minutes), **fields)


def counts(way: str) -> list[tuple[str, int, int, int]]:
    rows = list(Decision.objects.all())
    return [
        ("/".join(each.narrows.values()), each.decisions, each.refused, len(each.pods)) for each in grouped(rows, way)
    ]


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize(
    ("way", "found"),
    [
        ("pod", [("1", 2, 1, 1), ("2", 1, 0, 1), ("shop/c", 1, 0, 1)]),
        ("rule", [("team", 3, 1, 2), ("room", 1, 0, 1)]),
        ("reason", [("another team", 2, 1, 1), ("no room", 1, 0, 1)]),
        ("node", [("n1", 2, 0, 2), ("n2", 1, 0, 1)]),
    ],
)
def test_decisions_that_are_alike_are_one_group(way: str, found: list[Any]) -> None:
    assert counts(way) == found


@pytest.mark.usefixtures("some")
@pytest.mark.parametrize("way", WAYS)
def test_the_number_of_a_group_leads_to_its_decisions_within_what_was_narrowed(way: str, auditor: Client) -> None:
    page = get(auditor, f"{LIST}?verb=filter&group={way}")
    assert page.context["groups"]
    for each in page.context["groups"]:
        listed = get(auditor, LIST + each["url"])
        assert len(listed.context["rows"]) == each["group"].decisions
        assert "verb=filter" in each["url"]
        assert "group=" not in each["url"]


@pytest.mark.usefixtures("some")
def test_groups_of_rules_within_a_rule_lead_to_decisions_that_both_refused(auditor: Client) -> None:
    page = get(auditor, f"{LIST}?refused_by=room&group=rule")
    found = {each["name"]: (each["group"].decisions, each["url"]) for each in page.context["groups"]}
    assert found == {"room": (1, "?refused_by=room"), "team": (1, "?refused_by=room%2Cteam")}
    for number, url in found.values():
        assert len(get(auditor, LIST + url).context["rows"]) == number


@pytest.mark.usefixtures("some")
def test_a_pod_and_a_node_of_a_group_lead_to_their_pages(auditor: Client) -> None:
    assert 'href="/admin/scheduler/pods/shop/a/' in get(auditor, f"{LIST}?group=pod").content.decode()
    assert 'href="/admin/scheduler/nodes/n1/' in get(auditor, f"{LIST}?group=node").content.decode()


@pytest.mark.usefixtures("some")
def test_the_way_of_grouping_is_kept_by_the_form_and_taken_away_by_its_chip(auditor: Client) -> None:
    page = get(auditor, f"{LIST}?group=rule&verb=filter")
    assert '<input type="hidden" name="group" value="rule">' in page.content.decode()
    assert page.context["list_url"] == "?verb=filter"
    assert "rows" in get(auditor, f"{LIST}?verb=filter").context


def test_what_is_no_way_of_grouping_is_said(auditor: Client) -> None:
    page = auditor.get(f"{LIST}?group=colour")
    assert page.status_code == 400
    assert "none of pod, rule, reason, node" in text_of(page)


@pytest.mark.usefixtures("some")
def test_a_search_that_finds_nothing_says_so_as_the_list_does(auditor: Client) -> None:
    assert "Nothing matches" in text_of(get(auditor, f"{LIST}?group=rule&pod_uid=nobody"))
    assert "No group" in text_of(get(auditor, f"{LIST}?group=rule&pod_name=c&pod_namespace=shop"))


@pytest.mark.usefixtures("some")
def test_older_decisions_are_grouped_on_the_next_page(auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "MAX_LIMIT", 2)
    page = get(auditor, f"{LIST}?group=node")
    assert [(each["name"], each["group"].decisions) for each in page.context["groups"]] == [("n1", 1)]
    older = get(auditor, LIST + page.context["older"])
    assert [(each["name"], each["group"].decisions) for each in older.context["groups"]] == [("n1", 1), ("n2", 1)]


@pytest.mark.usefixtures("some")
def test_groups_are_made_of_one_query_that_counts_nothing_and_reads_no_body() -> None:
    with CaptureQueriesContext(connection) as captured:
        grouping.groups_of(parse_search({}, NOW), "rule")
    (query,) = captured.captured_queries
    assert "COUNT" not in query["sql"]
    assert '"body"' not in query["sql"]


def test_a_reason_leads_to_its_own_decisions_and_not_to_those_of_a_reason_that_has_it_in_it(auditor: Client) -> None:
    for name, reason in (("a", "node is full"), ("b", "node is full of GPUs"), ("c", "Node is full")):
        make_decision(pod_name=name, top_reason=reason, feasible=0)
    groups = get(auditor, f"{LIST}?group=reason").context["groups"]
    found = {each["name"]: get(auditor, LIST + each["url"]).context["rows"] for each in groups}
    named = {reason: [each["row"].pod_name for each in rows] for reason, rows in found.items()}
    assert named == {"node is full": ["a"], "node is full of GPUs": ["b"], "Node is full": ["c"]}
