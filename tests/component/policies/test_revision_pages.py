"""The pages of a Revision: what it holds in a few lines, long lists page by page, the document as a file."""

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from policies import publishing
from policies.admin import revisions
from policies.models import Change, Part, Revision, RevisionPart
from policies.publishing import Kind
from policies.publishing.parts import NOTHING
from tests.builders import TEAM_FILTER, make_assignment, make_priority_class, make_rule_set
from tests.component.pages import change_url, confirmed, get, publish, publish_all, text_of
from tests.ledgers import without_triggers

pytestmark = pytest.mark.django_db


def publish_many(count: int) -> Revision:
    names = [f"set-{number:04}" for number in range(count)]
    assignments = [make_assignment(f"of-{name[4:]}", name, order=count - int(name[4:])) for name in names]
    return publish_all(*(make_rule_set(name, filters=[TEAM_FILTER]) for name in names), *assignments)


def test_a_small_revision_shows_all_that_it_holds(auditor: Client) -> None:
    publish(make_rule_set("web"))
    publish(make_rule_set("batch"))
    page = text_of(get(auditor, change_url("revision", 2)))
    assert "batch version 1 web version 1" in page
    assert '"ruleSets"' in page
    assert "All" not in page.split("Rule sets")[-1].split("Document")[0]


def test_what_a_revision_holds_leads_to_its_pages(auditor: Client) -> None:
    publish_all(make_rule_set("web"), make_assignment("all", "web"), make_priority_class("batch"))
    for path in (change_url("revision", 1), "/admin/policies/revision/1/list/rule-sets/"):
        assert '<li><a class="berth-link" href="/admin/scheduler/versions/web/1/">web</a> version 1</li>' in html(
            auditor, path
        )
    page = html(auditor, change_url("revision", 1))
    assert '<li><a class="berth-link" href="/admin/policies/assignment/?q=all">all</a>: order' in page
    assert (
        '<li><a class="berth-link" href="/admin/scheduler/priority-classes/batch/">batch</a> version 1: value' in page
    )


def html(client: Client, path: str) -> str:
    return get(client, path).content.decode()


def test_a_big_revision_shows_the_first_lines_and_where_the_rest_is(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revisions, "_SHOWN_BYTES", 5_000)
    publish_many(40)
    response = get(auditor, change_url("revision", 1))
    page = text_of(response)
    assert "set-0019 version 1" in page
    assert "set-0020 version 1" not in page.split("Rule sets")[-1]
    assert "All 40 lines" in page
    assert len(response.content) < 100_000
    assert '"ruleSets"' not in page


def test_a_big_revisions_page_asks_no_more_of_the_database_than_a_small_ones(auditor: Client) -> None:
    publish_many(1)
    publish_many(25)
    get(auditor, change_url("revision", 1))
    asked = []
    for number in (1, 2):
        with CaptureQueriesContext(connection) as captured:
            get(auditor, change_url("revision", number))
        asked.append(len(captured))
    assert asked[1] <= asked[0]


def test_a_page_reads_what_a_revision_holds_once(auditor: Client) -> None:
    publish_many(25)
    get(auditor, change_url("revision", 1))
    with CaptureQueriesContext(connection) as captured:
        get(auditor, change_url("revision", 1))
    asked = [query["sql"] for query in captured if "policies_revisionpart" in query["sql"]]
    # Of each of five lists a page and how many there are; the size of the document, and the document itself; what differs.
    assert len(asked) <= 13, asked


def test_the_database_sorts_and_pages_what_a_revision_holds() -> None:
    assignments = [make_assignment(f"a{order}", "web", order=order) for order in (300, 5, 100)]
    classes = [make_priority_class(name, value=value) for name, value in (("low", 0), ("high", 9), ("least", -5))]
    publish_all(*(make_rule_set(name, filters=[TEAM_FILTER]) for name in ("web", "batch")), *assignments, *classes)
    with CaptureQueriesContext(connection) as captured:
        page, number = publishing.parts_of(1, Kind.ASSIGNMENT, 1, 3), publishing.numbers_of(1)[Kind.ASSIGNMENT]
    assert ([each.name for each in page], number) == (["a100", "a300"], 3)
    assert any("LIMIT 2 OFFSET 1" in query["sql"] for query in captured)
    assert [each.name for each in publishing.parts_of(1, Kind.PRIORITY_CLASS, 0, 9)] == ["high", "low", "least"]
    assert [each.name for each in publishing.parts_of(1, Kind.RULE_SET, 0, 9)] == ["batch", "web"]


def test_a_list_goes_on_page_by_page_in_the_order_that_decides(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revisions, "_ON_A_PAGE", 20)
    publish_many(30)
    first = text_of(get(auditor, "/admin/policies/revision/1/list/assignments/"))
    assert "1 to 20 of 30" in first
    assert first.index("of-0029 : order 1,") < first.index("of-0028 : order 2,")
    assert "of-0009" not in first
    second = text_of(get(auditor, "/admin/policies/revision/1/list/assignments/?page=2"))
    assert "21 to 30 of 30" in second
    assert "of-0000 : order 30" in second


@pytest.mark.parametrize("which", ["changes", "rule-sets", "assignments", "priority-classes"])
@pytest.mark.parametrize("page", ["", "?page=1", "?page=x", "?page=-3", "?page=99"])
def test_every_list_has_a_page(auditor: Client, which: str, page: str) -> None:
    publish(make_rule_set("web"))
    get(auditor, f"/admin/policies/revision/1/list/{which}/{page}")


def test_the_list_of_revisions_shows_a_few_changes_of_each(auditor: Client) -> None:
    publish_many(12)
    page = text_of(get(auditor, "/admin/policies/revision/"))
    assert "rule set set-0000 version 1 published" in page
    assert "set-0009" not in page
    assert "; and 21 more" in page


def test_the_document_cuts_no_expression(auditor: Client) -> None:
    expression = " || ".join(f"node.metadata.name == 'n{number}'" for number in range(40)) + " || true"
    publish(make_rule_set("web", filters=[{"name": "f", "expression": expression}]))
    document = json.loads(get(auditor, "/admin/policies/revision/1/document/").content)
    assert document["ruleSets"][0]["spec"]["filters"][0]["expression"] == expression


def test_the_document_comes_as_a_file(auditor: Client) -> None:
    made = publish_many(3)
    response = get(auditor, "/admin/policies/revision/1/document/")
    assert response.headers["Content-Disposition"] == 'attachment; filename="revision-1.json"'
    assert response.content.decode() == publishing.document_text(made)


@pytest.mark.parametrize(
    "path", ["2/list/changes/", "1/list/secrets/", "2/document/"], ids=["no Revision", "no list", "no document"]
)
def test_what_is_not_there_is_not_found(auditor: Client, path: str) -> None:
    publish(make_rule_set("web"))
    assert auditor.get(f"/admin/policies/revision/{path}").status_code == 404


@pytest.mark.parametrize("path", ["1/list/changes/", "1/document/"])
def test_who_may_not_see_revisions_sees_no_list_of_them(client: Client, django_user_model: Any, path: str) -> None:
    publish(make_rule_set("web"))
    client.force_login(django_user_model.objects.create(username="guest", is_staff=True))
    assert client.get(f"/admin/policies/revision/{path}").status_code == 403


def test_the_list_names_a_roll_back_and_counts_what_a_line_has_no_room_for(operator: Client) -> None:
    publish(make_rule_set())
    publish_all(*(make_rule_set(f"more-{number}") for number in range(5)))
    confirmed(operator, "/admin/policies/revision/1/roll_back/", "too much at once")
    text = text_of(get(operator, "/admin/policies/revision/"))
    assert (
        "Roll back to Revision 1: rule set more-0 archived; rule set more-1 archived; rule set more-2 archived; and 2 more"
        in text
    )


def hold_what_a_newer_berth_wrote(since: int, until: int | None) -> None:
    without_triggers()  # which refuse what isn't written together with the Revision
    newer = '{"name":[],"order":{"after":"all"},"value":"high"}'
    for kind in Kind:
        part = Part.objects.create(digest=f"{kind:0>64}", document=newer)
        RevisionPart.objects.create(kind=kind, name="newer", part=part, since_id=since, until_id=until)


@pytest.fixture
def taken_back() -> None:
    """Publish a rule set; in Revision 2 beside things of a newer Berth, which took them back before it was downgraded."""
    publish(make_rule_set("web"))
    publish(make_rule_set("data"))
    publish(make_rule_set("batch"))
    hold_what_a_newer_berth_wrote(2, 3)


def test_where_a_newer_berth_published_what_is_live_every_page_says_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(make_rule_set("web"))
    hold_what_a_newer_berth_wrote(1, None)
    monkeypatch.setattr(publishing.revisions, "_read", NOTHING)  # a process that starts now
    operator.raise_request_exception = False
    said = "Revision 1 was published by a newer version of Berth than this one: start that version again."
    for path in ("/admin/", "/admin/policies/change/", "/api/v1/pauses"):
        answer = operator.get(path)
        assert answer.status_code == 503
        assert said in answer.content.decode()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (change_url("revision", 2), "newer: can't be read: a newer version of Berth wrote it"),
        (change_url("revision", 2), "Pause newer Not compared: Pause newer can't be read: a newer version of Berth"),
        (change_url("revision", 2), "RuleSet data Full YAML diff: "),
        ("/admin/policies/revision/2/list/assignments/", "newer: can't be read: a newer version of Berth wrote it"),
        ("/admin/policies/compare/?kind=Revision&before=1&after=2", "Pause newer can't be read: a newer version of"),
        ("/admin/policies/compare/?kind=Revision&before=1&after=2", "rule set data rule set data version 1 published"),
        ("/admin/policies/revision/2/roll_back/", "Revision 2 can't be read: a newer version of Berth wrote it."),
    ],
)
@pytest.mark.usefixtures("taken_back")
def test_a_revision_that_holds_what_a_newer_berth_wrote_is_shown(operator: Client, path: str, said: str) -> None:
    assert said in text_of(get(operator, path))


@pytest.mark.usefixtures("taken_back")
def test_the_document_has_what_a_newer_berth_wrote_as_it_is(auditor: Client) -> None:
    document = json.loads(get(auditor, "/admin/policies/revision/2/document/").content)
    assert [each["order"] for each in document["assignments"]] == [{"after": "all"}]


@pytest.mark.usefixtures("taken_back")
def test_a_change_made_on_what_a_newer_berth_wrote_is_shown(operator: Client) -> None:
    change = publishing.open_change(
        title="Mine", edits=[publishing.Edit.of(make_assignment("all", "web"))], by="tests", reason=""
    )
    Change.objects.filter(pk=change.pk).update(base=2)
    assert "Mine" in text_of(get(operator, change_url("change", change.pk)))
