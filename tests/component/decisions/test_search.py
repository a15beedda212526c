"""What Decisions are narrowed by, the same way in the admin and over REST, and pages that nobody counts."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from urllib.parse import urlencode

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from policies import publishing
from policies.parameters import SearchError
from scheduler.admin.decision_list import verdict_of
from scheduler.decisions import grouping, search
from scheduler.decisions.reading import recorded
from scheduler.decisions.search import BY_NAME, FILTERS, parse_search
from scheduler.decisions.traffic import traffic_now
from scheduler.models import Decision
from tests.builders import make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import opened, text_of

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
_KEY = re.compile(r"/admin/scheduler/decision/([0-9a-f-]{36})/change/")
LIST, REST = "/admin/scheduler/decision/", "/api/v1/decisions"


def ago(**of: float) -> datetime:
    return NOW - timedelta(**of)


def names(found: search.Page) -> list[str]:
    return [row.pod_name for row in found.rows]


def find(**given: str) -> list[str]:
    return sorted(names(parse_search(given, NOW).page()))


@pytest.fixture
def some() -> None:
    """Four Decisions, each with something of its own."""
    make_decision(
        pod_name="web-1",
        at=ago(minutes=5),
        owner_kind="Deployment",
        owner_name="web",
        refused_by="\nteam\nroom\n",
        placed_on="n1",
        placed_best=True,
    )
    make_decision(
        pod_name="night-7",
        at=ago(hours=2),
        pod_namespace="batch",
        owner_kind="Job",
        owner_name="night",
        pod_uid="uid-7",
        feasible=0,
        best="",
        top_reason="no room left",
        refused_by="\nroom\n",
        verb="schedule",
    )
    make_decision(
        pod_name="db-0",
        at=ago(days=1),
        rule_set="data",
        rule_set_version=4,
        assignment="db",
        best="n9",
        placed_on="n3",
        placed_best=False,
        feasible=3,
    )
    make_decision(pod_name="old", at=ago(days=40), mode="shadow", divergence="agreed", error="too late", revision=9)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ["db-0", "night-7", "old", "web-1"]),
        ({"q": "IGHT"}, ["night-7"]),
        ({"q": "shop/b"}, ["db-0", "web-1"]),
        ({"q": "uid-7"}, ["night-7"]),
        ({"owner": "web"}, ["web-1"]),
        ({"owner": "deployment/web"}, ["web-1"]),
        ({"owner": "Job/web"}, []),
        ({"pod_namespace": "batch"}, ["night-7"]),
        ({"node": "n1"}, ["old", "web-1"]),
        ({"node": "n3"}, ["db-0"]),
        ({"placed_on": "n1"}, ["web-1"]),
        ({"best": "n9"}, ["db-0"]),
        ({"refused_by": "room"}, ["night-7", "web-1"]),
        ({"refused_by": "room,team"}, ["web-1"]),
        ({"refused_by": "room,"}, ["night-7", "web-1"]),
        ({"refused_by": "roo"}, []),
        ({"refused_by": "Room"}, []),
        ({"reason": "ROOM"}, ["night-7"]),
        ({"top_reason": "no room left"}, ["night-7"]),
        ({"top_reason": "no room"}, []),
        ({"rule_set": "data", "rule_set_version": "4"}, ["db-0"]),
        ({"revision": "9"}, ["old"]),
        ({"verb": "schedule"}, ["night-7"]),
        ({"answer": "none"}, ["night-7"]),
        ({"answer": "all"}, ["db-0"]),
        ({"answer": "error"}, ["old"]),
        ({"refused": "true"}, ["night-7"]),
        ({"missed": "true"}, ["db-0"]),
        ({"missed": "false"}, ["web-1"]),
        ({"mode": "shadow", "divergence": "agreed"}, ["old"]),
        ({"assignment": "db"}, ["db-0"]),
        ({"span": "15m"}, ["web-1"]),
        ({"span": "day"}, ["db-0", "night-7", "web-1"]),
        ({"span": "yesterday"}, ["db-0"]),
        ({"from": "2026-03-04", "to": "2026-03-04"}, ["db-0"]),
        ({"from": "2026-03-05T11:50"}, ["web-1"]),
        ({"to": "2026-02-01T00:00:00+02:00"}, ["old"]),
        ({"span": "yesterday", "node": "n9", "rule_set": "data"}, ["db-0"]),
        ({"verb": "", "q": ""}, ["db-0", "night-7", "old", "web-1"]),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("some")
def test_decisions_are_narrowed_to_what_matches_each_given_field(given: dict[str, str], found: list[str]) -> None:
    assert find(**given) == found


def test_who_published_and_who_approved_the_revision_narrows() -> None:
    change = opened(make_rule_set(), by="alice")
    revision = publishing.publish_change(change=change, by="alice", expected_digest=change.digest)
    change.events.create(act="approve", by="erin", at=NOW, digest=change.digest)
    change.events.create(act="reject", by="carol", at=NOW, digest=change.digest)
    change.events.create(act="approve", by="carol", at=NOW, digest=change.digest)
    change.events.create(act="approve", by="dave", at=NOW, digest="of what it was before")
    make_decision(pod_name="by-alice", revision=revision.number)
    make_decision(pod_name="before", revision=0)
    assert find(publisher="alice") == find(approver="carol") == ["by-alice"]
    assert find(publisher="carol") == find(approver="alice") == find(approver="dave") == find(approver="erin") == []


# A value of each filter that finds something, and not all: of `some`, or of what `published` adds.
VALUES = {
    "q": "night", "pod_namespace": "batch", "owner": "web", "node": "n3", "refused_by": "team", "reason": "room", "top_reason": "no room left", "answer": "none",
    "missed": "true", "verb": "schedule", "rule_set": "data", "rule_set_version": "4", "assignment": "db", "revision": "9",
    "publisher": "alice", "approver": "carol", "mode": "shadow", "divergence": "agreed", "best": "n9", "placed_on": "n1",
    "pod_name": "db-0", "pod_uid": "uid-7", "refused": "true", "process": "extender@other:1:1",
}  # fmt: skip


@pytest.fixture
def published() -> None:
    change = opened(make_rule_set(), by="alice")
    revision = publishing.publish_change(change=change, by="alice", expected_digest=change.digest)
    change.events.create(act="approve", by="carol", at=NOW, digest=change.digest)
    make_decision(pod_name="by-alice", revision=revision.number + 100, process="extender@other:1:1")
    Decision.objects.filter(pod_name="by-alice").update(revision=revision.number)


@pytest.mark.usefixtures("some", "published")
def test_the_list_and_rest_find_the_same_by_each_filter_and_its_url_can_be_handed_on(
    auditor: Client, operator: Client
) -> None:
    assert set(VALUES) == set(BY_NAME), "a filter is new: give it a value"
    everything = {str(key) for key in Decision.objects.values_list("pk", flat=True)}
    asked = [{name: value} for name, value in VALUES.items()]
    asked += [
        {"rule_set": "data", "best": "n9"},
        {"from": "2026-03-04", "to": "2026-03-04"},
        {"to": "2026-03-05T11:50"},
    ]
    for given in asked:
        url = f"{LIST}?{urlencode(given)}"
        pages = [set(_KEY.findall(each.get(url).content.decode())) for each in (auditor, operator)]
        over_rest = {row["id"] for row in auditor.get(REST, given).json()["results"]}
        assert pages == [over_rest, over_rest], given
        assert over_rest, given
        assert over_rest < everything, given


@pytest.mark.parametrize(
    "given",
    [
        {"pod_name__regex": "a"},
        {"revision": "two"},
        {"revision": "99999999999"},
        {"verb": "look"},
        {"answer": "maybe"},
        {"divergence": "nonsense"},
        {"span": "century"},
        {"from": "tomorrow"},
        {"to": "2026-13-01"},
        {"before": "x"},
        {"before": "2026-01-01T00:00:00Z~1"},
        {"before": "2026-01-01T00:00:00Z~-1~x"},
        {"limit": "0"},
        {"limit": "x"},
        {"offset": "10"},
        {"q": "x" * 501},
    ],
)
def test_what_is_no_filter_and_no_value_is_refused_by_name(given: dict[str, str], auditor: Client) -> None:
    with pytest.raises(SearchError) as caught:
        parse_search(given, NOW)
    assert set(caught.value.faults) == set(given)
    answer = auditor.get(REST, given)
    assert (answer.status_code, {each["path"] for each in answer.json()["faults"]}) == (400, set(given))
    page = auditor.get(LIST, given)
    assert page.status_code == 400
    assert "Not a valid search" in text_of(page)
    # That there is none isn't known, and the field with the fault stands in sight.
    assert "No Decision yet" not in text_of(page)
    assert '<details class="berth-details" open>' in page.content.decode()


def test_a_time_that_ends_before_it_begins_is_a_fault_and_no_empty_answer(auditor: Client) -> None:
    for path in (LIST, REST, "/admin/policies/audit/", "/api/v1/events"):
        answer = auditor.get(path, {"from": "2026-11-28", "to": "2026-11-27"})
        assert answer.status_code == 400, path
        assert "ends before it begins" in answer.content.decode(), path
        assert auditor.get(path, {"from": "2026-11-28", "to": "2026-11-28"}).status_code == 200, path


def test_all_faults_are_told_at_once_and_times_and_places_stand_once() -> None:
    place = "2026-01-01T00:00:00.000000Z"
    given = {"nope": "1", "revision": "x", "span": "day", "from": "2026-01-01", "before": place, "after": place}
    with pytest.raises(SearchError) as caught:
        parse_search(given, NOW)
    assert set(caught.value.faults) == {"nope", "revision", "span", "after"}


def many(number: int) -> None:
    """Decisions of one moment, of two processes, some with the same number."""
    for index in range(number):
        make_decision(pod_name=f"p{index}", sequence=index // 2, process=f"e{index % 2}", at=NOW)


def walk(client: Client, url: str, way: str) -> Iterator[list[str]]:
    while url:
        found = client.get(url).json()
        yield [row["id"] for row in found["results"]]
        url = found[way]


def test_pages_hold_each_decision_once_in_one_order_however_many_come_meanwhile(auditor: Client) -> None:
    many(11)
    first = auditor.get(f"{REST}?limit=4").json()
    make_decision(pod_name="newer", at=NOW + timedelta(seconds=1))
    rest = list(walk(auditor, first["next"], "next"))
    found = [row["id"] for row in first["results"]] + [key for page in rest for key in page]
    assert [len(page) for page in rest] == [4, 3]
    assert len(set(found)) == len(found) == 11
    last = auditor.get(first["next"]).json()["previous"]
    back = list(walk(auditor, last, "previous"))
    assert [row for page in back[::-1] for row in page][1:] == found[:4]


def test_from_a_page_behind_the_newest_one_the_way_back_begins_with_that(auditor: Client) -> None:
    many(3)
    newest = parse_search({}, NOW).page().rows[0]
    beyond = parse_search({"after": str(search.key_of(newest))}, NOW).page()
    assert beyond.rows == []
    back = parse_search({"before": str(beyond.older)}, NOW).page()
    assert [row.pk for row in back.rows] == [row.pk for row in parse_search({}, NOW).page().rows]


@pytest.mark.parametrize(
    "moment", ["9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999998Z", "0001-01-01T00:00:00Z"]
)
def test_a_place_at_the_end_of_all_time_is_one_whose_links_lead_on(moment: str, auditor: Client) -> None:
    for url in (REST, LIST):
        assert auditor.get(url, {"after": moment}).status_code == 200, url
    found = auditor.get(REST, {"after": moment, "q": "nobody"}).json()
    assert found["results"] == []
    if found["next"]:
        assert auditor.get(found["next"]).status_code == 200


def test_no_page_counts_and_none_reads_a_body(auditor: Client) -> None:
    many(60)
    for url in (f"{REST}?limit=20", LIST, f"{LIST}?q=p1&node=n1"):
        with CaptureQueriesContext(connection) as queries:
            assert auditor.get(url).status_code == 200
        asked = [query["sql"] for query in queries if "scheduler_decision" in query["sql"]]
        assert not any("COUNT(" in sql or '"body"' in sql for sql in asked)
        assert len(queries) <= 10, [query["sql"][:90] for query in queries]


def test_what_no_index_leads_to_is_looked_for_in_steps(auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 10)
    for index in range(35):
        make_decision(pod_name="wanted" if index in {0, 34} else "other", at=NOW - timedelta(minutes=index))
    first = auditor.get(f"{REST}?q=wanted").json()
    assert len(first["results"]) == 1
    assert first["looked_until"] is not None
    found = [key for page in walk(auditor, first["next"], "next") for key in page]
    assert found == [str(Decision.objects.get(at=NOW - timedelta(minutes=34)).pk)]
    page = auditor.get(f"{LIST}?q=wanted")
    assert "Search further back" in text_of(page)


@pytest.mark.parametrize("place", ["before", "after"])
def test_steps_that_grow_leave_nothing_out_and_show_nothing_twice(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setattr(search, "LOOKED_AT_FIRST", 2)
    monkeypatch.setattr(search, "LONG_SECONDS", 3_600)
    monkeypatch.setattr(search, "STEP_SECONDS", 3_600)
    for index in range(40):
        # Some at the same moment, and more of these than a step looks at.
        make_decision(
            pod_name=f"web-{index}" if index % 3 else "other",
            at=ago(minutes=index if index > 8 else 0),
            sequence=index + 1,
        )
    edge = {"before": NOW + timedelta(hours=1), "after": ago(days=1)}[place].isoformat()
    found = parse_search({"q": "web", place: edge, "limit": "100"}, NOW).page()
    assert sorted(names(found)) == sorted(f"web-{index}" for index in range(40) if index % 3)
    assert [row.at for row in found.rows] == sorted((row.at for row in found.rows), reverse=True)
    assert found.looked_until is None
    few = parse_search({"q": "web", place: edge, "limit": "5"}, NOW).page()
    assert names(few) == (names(found)[:5] if place == "before" else names(found)[-5:])


@pytest.mark.parametrize(("seconds", "steps"), [(3_600, (2, 4, 8, 6)), (0, 10 * (2,))])
def test_steps_grow_only_where_rows_come_fast(
    monkeypatch: pytest.MonkeyPatch, seconds: float, steps: tuple[int, ...]
) -> None:
    monkeypatch.setattr(search, "LOOKED_AT_FIRST", 2)
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 20)
    monkeypatch.setattr(search, "LONG_SECONDS", 3_600)
    monkeypatch.setattr(search, "STEP_SECONDS", seconds)
    many(30)
    with CaptureQueriesContext(connection) as asked:
        page = parse_search({"q": "none of them"}, NOW).page()
    # Each step asks how far it goes, and then for what is in it.
    assert len(asked) == 2 * len(steps)
    assert page.rows == []
    assert page.looked_until == NOW


@pytest.mark.parametrize("way", ["next", "previous"])
def test_pages_get_past_more_rows_of_one_moment_than_a_page_looks_at(
    auditor: Client, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 5)
    for index in range(23):
        make_decision(
            pod_name="wanted" if index in {0, 11, 22} else "other", sequence=index // 2, process=f"e{index % 2}", at=NOW
        )
    edge = {"next": "", "previous": f"&after={ago(days=1):%Y-%m-%dT%H:%M:%SZ}"}[way]
    pages = list(islice(walk(auditor, f"{REST}?q=wanted{edge}", way), 20))
    assert len(pages) == 5
    rows = Decision.objects.filter(pod_name="wanted").order_by("-at", "-sequence", "-id")
    found = [key for page in (pages if way == "next" else pages[::-1]) for key in page]
    assert found == [str(row.pk) for row in rows]


def test_a_page_that_takes_long_says_how_far_it_came(auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "LOOKED_AT_FIRST", 4)
    monkeypatch.setattr(search, "LONG_SECONDS", -1)
    for index in range(30):
        make_decision(pod_name="wanted" if index in {1, 29} else "other", at=NOW - timedelta(minutes=index))
    first = auditor.get(f"{REST}?q=wanted").json()
    assert ([row["pod_name"] for row in first["results"]], first["looked_until"][:16]) == (
        ["wanted"],
        "2026-03-05T11:57",
    )
    rest = [key for page in walk(auditor, first["next"], "next") for key in page]
    assert rest == [str(Decision.objects.get(at=ago(minutes=29)).pk)]


def test_a_list_that_looked_not_far_enough_leads_to_the_pod_of_exactly_that_name(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 3)
    many(12)
    make_decision(pod_name="mine", pod_namespace="shop", at=ago(days=100))
    for asked, narrowed in (
        ("mine", {"pod_name": "mine"}),
        ("shop/mine", {"pod_name": "mine", "pod_namespace": "shop"}),
    ):
        page = auditor.get(LIST, {"q": asked, "verb": "filter"})
        assert "Find exactly this name" in text_of(page)
        assert page.context["by_name"] == "?" + urlencode({"verb": "filter", **narrowed})
        assert [row["row"].pod_name for row in auditor.get(LIST + page.context["by_name"]).context["rows"]] == ["mine"]
    assert "Find exactly" not in text_of(auditor.get(LIST, {"reason": "none of them"}))


def test_a_filter_that_leads_an_index_needs_no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 3)
    many(12)
    make_decision(
        pod_name="mine", pod_namespace="elsewhere", owner_kind="Job", owner_name="web", feasible=0, at=ago(days=100)
    )
    for led in ({"owner": "Job/web"}, {"pod_name": "mine"}, {"pod_namespace": "elsewhere"}, {"answer": "none"}):
        found = parse_search({**led, "verb": "filter"}, NOW).page()
        assert (names(found), found.looked_until) == (["mine"], None), led


@pytest.mark.usefixtures("some")
def test_active_filters_are_chips_that_can_be_taken_away_also_those_of_links(auditor: Client) -> None:
    page = auditor.get(LIST, {"verb": "filter", "process": "extender@a:1:1", "span": "day", "missed": "true"})
    chips = {chip.title: chip for chip in page.context["narrowing"].chips}
    assert {title: chip.text for title, chip in chips.items()} == {
        "time": "day", "verb": "filter", "process": "extender@a:1:1", "best missed": "yes",
    }  # fmt: skip
    assert "verb=" not in chips["verb"].url
    assert "process=extender%40a%3A1%3A1" in chips["verb"].url
    assert auditor.get(LIST + chips["process"].url).status_code == 200


@pytest.mark.usefixtures("some")
def test_times_that_are_typed_take_the_place_of_a_span(auditor: Client) -> None:
    page = auditor.get(LIST, {"span": "15m", "from": "2026-03-04", "to": "2026-03-04"})
    assert [each["row"].pod_name for each in page.context["rows"]] == ["db-0"]
    assert {chip.title for chip in page.context["narrowing"].chips} == {"from", "to"}


def test_a_list_that_follows_asks_for_its_rows_until_it_is_stopped(auditor: Client) -> None:
    make_decision()
    page = auditor.get(f"{LIST}?verb=filter&live=1")
    assert page.context["poll"] == "?verb=filter&live=1&rows=1"
    rows = auditor.get(LIST + page.context["poll"]).content.decode()
    assert "<form" not in rows
    assert 'hx-trigger="every 2s"' in rows
    stopped = auditor.get(LIST + page.context["stop_url"]).content.decode()
    assert 'hx-trigger="every 2s"' not in stopped


def test_the_schema_has_every_filter(auditor: Client) -> None:
    schema: Any = auditor.get("/api/schema/", headers={"Accept": "application/vnd.oai.openapi+json"}).json()
    described = {each["name"] for each in schema["paths"]["/api/v1/decisions"]["get"]["parameters"]}
    assert {*BY_NAME, "span", "from", "to", "before", "after", "limit"} <= described
    assert all(each.help for each in FILTERS)


def test_what_found_no_node_is_the_same_for_lists_groups_and_homes_hour() -> None:
    make_decision(pod_name="none", pod_uid="1", feasible=0)
    make_decision(pod_name="some", pod_uid="2", feasible=1)
    make_decision(pod_name="broke", pod_uid="3", feasible=0, error="too late")
    make_decision(pod_name="unasked", pod_uid="4", nodes=0, feasible=0)
    assert find(answer="none") == ["none"]
    groups = grouping.grouped(recorded(), "pod")
    assert [each.row.pod_name for each in groups if each.refused] == ["none"]
    verdicts = {row.pod_name: verdict_of(row)["text"] for row in recorded()}
    assert [name for name, text in verdicts.items() if text.startswith("none of")] == ["none"]
    assert verdicts["unasked"] == "no node to ask about"
    assert traffic_now(datetime.now(UTC)).refused == 1
