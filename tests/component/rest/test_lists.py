"""What all lists and errors of REST have alike: pages by keys, chosen fields, nothing unknown, problem details, limits, ids."""

import base64
import json
import re
from datetime import UTC, datetime

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.cache import cache
from django.test import Client

from policies import publishing
from policies.models import ChangeEdit, Revision
from scheduler.models import Backtest, ShadowCount
from tests.architecture.tracked import ROOT
from tests.builders import TEAM_FILTER, make_exemption, make_pause, make_priority_class, make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import publish_all
from tests.component.rest.asking import API, ask, told
from tests.component.rest.world import World, schema
from tests.conftest import HTTPSClient
from tests.tokens import bearer, secret_of

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def classes(db: None) -> list[str]:
    """Seven PriorityClasses, two of one value each: their order has ties."""
    values = [1000, 2000, 2000, 3000, 4000, 4000, 5000]
    names = [f"c{number}" for number in range(len(values))]
    edits = [publishing.Edit.of(make_priority_class(name, value)) for name, value in zip(names, values, strict=True)]
    change = publishing.open_change(title="t", edits=edits, by="ops")
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    return names


def test_pages_follow_each_other_there_and_back(auditor: Client, classes: list[str]) -> None:
    whole = [each["name"] for each in told(ask(auditor, "get", "/priority-classes"))["results"]]
    assert sorted(whole) == classes
    path: str | None = "/priority-classes?limit=2"
    seen, back = [], ""
    while path:
        page = told(ask(auditor, "get", path))
        seen += [each["name"] for each in page["results"]]
        back, path = page["previous"], page["next"] and page["next"].partition("/api/v1")[2]
    assert seen == whole
    page = told(ask(auditor, "get", back.partition("/api/v1")[2]))
    assert [each["name"] for each in page["results"]] == whole[4:6]
    page = told(ask(auditor, "get", page["previous"].partition("/api/v1")[2]))
    assert [each["name"] for each in page["results"]] == whole[2:4]


def test_pages_of_pauses_and_exemptions_go_back_as_they_came(auditor: Client) -> None:
    names = [f"p{number}" for number in range(5)]
    rule_sets = [make_rule_set(name, filters=[TEAM_FILTER]) for name in ("web", *names)]
    pauses = [make_pause(name, f"RuleSet/{name}") for name in names]
    publish_all(*rule_sets, *pauses, *map(make_exemption, names))
    for path in ("/pauses", "/exemptions"):
        pages, link = [], f"{API}{path}?limit=2"
        while link:
            page = told(ask(auditor, "get", link.partition(API)[2]))
            pages.append([each["name"] for each in page["results"]])
            link = page["next"]
        assert [name for page in pages for name in page] == names
        back, link = pages[-1:], page["previous"]
        while link:
            page = told(ask(auditor, "get", link.partition(API)[2]))
            back.append([each["name"] for each in page["results"]])
            link = page["previous"]
        assert back == pages[::-1], path


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=x", "limit=-1", "cursor=x", "cursor=W10", "cursor=WyJiIiwieCJd", "offset=1"]
)
def test_what_is_no_page_is_refused(auditor: Client, query: str) -> None:
    problem = told(ask(auditor, "get", f"/revisions?{query}"), 400)
    assert [each["path"] for each in problem["faults"]] == [query.partition("=")[0]]


def test_a_limit_beyond_the_largest_page_gives_the_largest_and_the_refusal_says_so(auditor: Client) -> None:
    told(ask(auditor, "get", "/revisions?limit=1001"))
    told(ask(auditor, "get", "/pauses?limit=1001"))
    for path in ("/revisions", "/pauses"):
        problem = told(ask(auditor, "get", f"{path}?limit=0"), 400)
        assert problem["faults"][0]["message"] == "must be a whole number from 1; more than 1000 counts as 1000"


@pytest.mark.parametrize("way", [[], {}, None, 1, "x"])
def test_a_cursor_that_goes_no_way_is_refused(auditor: Client, way: object) -> None:
    cursor = base64.urlsafe_b64encode(json.dumps([way, 1]).encode()).decode().rstrip("=")
    problem = told(ask(auditor, "get", f"/revisions?cursor={cursor}"), 400)
    assert [each["path"] for each in problem["faults"]] == ["cursor"]


@pytest.mark.parametrize("path", ["/revisions?limit=1&limit=2", "/priority-classes?fields=name&fields=value"])
def test_a_parameter_that_is_given_twice_is_refused(auditor: Client, path: str) -> None:
    problem = told(ask(auditor, "get", path), 400)
    assert [each["message"] for each in problem["faults"]] == ["is given more than once"]


def test_fields_that_are_wanted_come_alone(auditor: Client, classes: list[str]) -> None:
    page = told(ask(auditor, "get", "/priority-classes?fields=name,value&limit=1"))
    assert [set(each) for each in page["results"]] == [{"name", "value"}]
    assert set(told(ask(auditor, "get", f"/priority-classes/{classes[0]}?fields=value"))) == {"value"}
    unknown = told(ask(auditor, "get", "/priority-classes?fields=name,colour"), 400)
    assert "'colour' is not a field" in unknown["faults"][0]["message"]


def test_the_request_that_the_docs_name_has_the_members_that_it_asks_for(auditor: Client) -> None:
    (path,) = re.findall(r"`GET (/rule-sets\?fields=\S+)`", (ROOT / "docs" / "rest.md").read_text())
    publish_all(*(make_rule_set(name, filters=[TEAM_FILTER]) for name in ("team-a-web", "team-b-web")))

    (found,) = told(ask(auditor, "get", path))["results"]

    assert (found["name"], set(found)) == ("team-a-web", {"name", "description"})


def test_every_error_is_problem_details(auditor: Client, client: Client) -> None:
    for who, method, path, status in (
        (client, "get", "/revisions", 401),
        (auditor, "get", "/nowhere", 404),
        (auditor, "get", "/revisions/1", 404),
        (auditor, "delete", "/revisions", 405),
        (auditor, "get", "/revisions?a=%00", 400),
        (auditor, "get", "/revisions?colour=red", 400),
    ):
        response = ask(who, method, path)
        assert response["Content-Type"] == "application/problem+json", path
        problem = told(response, status)
        assert set(problem) == {"type", "title", "status", "detail", "faults"}
        assert problem["status"] == status
        assert problem["detail"], path


def test_who_sends_no_token_reads_how_to_send_one(client: Client) -> None:
    answer = ask(client, "get", "/revisions")
    assert "Authorization: Bearer TOKEN" in told(answer, 401)["detail"]
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_a_request_keeps_the_id_that_it_was_given(auditor: Client) -> None:
    response = ask(auditor, "get", "/revisions", **{"X-Request-Id": "of-a-proxy-1"})
    assert response["X-Request-Id"] == "of-a-proxy-1"
    assert ask(auditor, "get", "/nowhere")["X-Request-Id"]


def test_who_writes_without_end_is_told_to_wait(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, rest_writes_per_minute=2))
    for _ in range(2):
        told(ask(operator, "post", "/changes", {"title": "mine"}), 201)
    response = ask(operator, "post", "/changes", {"title": "mine"})
    assert told(response, 429)["title"] == "Too Many Requests"
    assert int(response["Retry-After"]) > 0
    told(ask(operator, "get", "/changes"))
    cache.clear()


def test_an_account_writes_no_more_often_by_making_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.clear()
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, rest_writes_per_minute=1))
    ann = User.objects.create_user("ann", is_staff=True)
    ann.groups.add(Group.objects.get(name="Operator"))
    programs = [HTTPSClient(headers=bearer(secret_of(ann))) for _ in range(2)]
    session = HTTPSClient()
    session.force_login(ann)
    # Who floods by a program keeps out no person, not even its owner.
    statuses = [ask(who, "post", "/changes", {"title": "mine"}).status_code for who in (*programs, session)]
    assert statuses == [201, 429, 201]
    cache.clear()


def test_a_session_needs_its_token_against_forgery(operator: Client) -> None:
    operator.handler.enforce_csrf_checks = True
    response = ask(operator, "post", "/changes", {"title": "mine"})
    assert told(response, 403)["detail"].startswith("CSRF")
    assert not Revision.objects.exists()


@pytest.mark.parametrize(
    "url",
    [
        "/changes?state=",
        "/changes?author=",
        "/decisions?verb=filter&rule_set=",
        "/events?kind=",
        "/shadows?rule_set=",
        "/rule-sets?name=",
        "/rule-sets?limit=",
        "/export?change=",
        "/export?name=web&name=",
        "/pods/shop/web?uid=",
    ],
)
def test_an_empty_parameter_counts_as_none_and_is_refused(auditor: Client, url: str) -> None:
    name = url.rpartition("&")[2].rpartition("?")[2].rstrip("=")
    assert told(ask(auditor, "get", url), 400)["detail"] == f"{name}: is empty: give it a value, or leave it out"


def test_pods_that_nothing_owns_are_asked_for_by_an_empty_owner(auditor: Client) -> None:
    told(ask(auditor, "get", "/pending?owner_name=&owner_kind="))


def test_each_row_of_a_list_names_the_url_of_itself(auditor: Client) -> None:
    world = World()
    make_decision()
    Backtest.objects.create(change=world.change, revision=1, edits=[], asked_at=AT, until=AT)
    ShadowCount.objects.create(
        revision=1, assignment="try", rule_set="web", rule_set_version=1, verb="filter", number=1
    )
    keys = {
        "changes": "number",
        "revisions": "number",
        "events": "id",
        "decisions": "id",
        "backtests": "id",
        "shadows": "id",
    }
    for path, key in keys.items():
        row = told(ask(auditor, "get", f"/{path}"))["results"][0]
        assert told(ask(auditor, "get", f"/{path}/{row[key]}"))[key] == row[key]


def test_what_is_stored_and_cant_be_read_is_answered_as_the_schema_declares(auditor: Client) -> None:
    world = World()
    decision = make_decision(body=b"damaged")
    backtest = Backtest.objects.create(
        change=world.change, revision=1, edits=[], state="done", result=b"damaged", asked_at=AT, until=AT
    )
    ChangeEdit.objects.filter(change=world.change).update(document='{"kind": "of a later version"')
    for path, key in (
        ("/decisions/{id}", decision.pk),
        ("/backtests/{id}", backtest.pk),
        ("/export", f"?change={world.change.pk}"),
    ):
        url = re.sub(r"\{\w+\}", str(key), path) if "{" in path else path + key
        told(ask(auditor, "get", url), 409)
        assert "409" in schema()["paths"][API + path]["get"]["responses"]


def test_a_change_with_damaged_edits_is_shown_with_what_is_wrong_with_each(auditor: Client) -> None:
    world = World()
    edits = ChangeEdit.objects.filter(change=world.change)
    edits.update(document='{"kind": "of a later version"')
    assert publishing.Kind.ASSIGNMENT in {each.kind for each in edits}
    shown = told(ask(auditor, "get", f"/changes/{world.change.pk}"))
    assert all("can't be read" in each["changes"][0] for each in shown["edits"])
    assert told(ask(auditor, "get", "/changes"))["results"]
