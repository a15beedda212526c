"""Who did what, as auditors read it: the list, an event, REST and the command; who may see what; and that a page of many asks no more."""

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from policies import publishing
from policies.audit_words import KINDS, sentence_of
from policies.models import AuditEvent, ChangeEvent
from policies.models.audit import time_ordered_id
from policies.origin import Origin, coming_from
from policies.publishing import AuditKind
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import change_url, get, opened, publish, text_of

pytestmark = pytest.mark.django_db

PAGE, REST = "/admin/policies/audit/", "/api/v1/events"


@pytest.fixture
def history(auditor: Client) -> AuditEvent:
    """A rule set that was published from somewhere, an Assignment in a Change; the newest event."""
    with coming_from(Origin(door="rest", address="192.0.2.7", request_id="req-0000-1")):
        publish(make_rule_set("web"))
    opened(make_assignment("all", "web"))
    event = AuditEvent.objects.first()
    assert event is not None
    return event


def published() -> AuditEvent:
    return AuditEvent.objects.get(kind="change.publish")


def kinds(client: Client, **asked: Any) -> list[str]:
    return [row["kind"] for row in client.get(REST, asked).json()["results"]]


def test_the_list_says_who_did_what_newest_first_and_from_where(auditor: Client, history: AuditEvent) -> None:
    text = text_of(get(auditor, PAGE))
    assert text.index("ops opened a Change") < text.index("ops published a Change")
    assert "192.0.2.7" in text


def test_addresses_are_shown_to_auditors_alone(operator: Client, history: AuditEvent) -> None:
    event = published()
    for path in (PAGE, f"{PAGE}{event.pk}/", REST, f"{REST}/{event.pk}"):
        assert "192.0.2.7" not in get(operator, path).content.decode(), path
    assert "hidden: only Auditors may see addresses" in text_of(get(operator, f"{PAGE}{event.pk}/"))
    assert operator.get(PAGE, {"address": "192.0.2.7"}).status_code == 400
    assert operator.get(REST, {"address": "192.0.2.7"}).status_code == 400


def test_nobody_sees_it_without_a_role(client: Client, history: AuditEvent) -> None:
    for path in (PAGE, f"{PAGE}{history.pk}/"):
        assert client.get(path)["Location"].startswith("/admin/login/")
    assert client.get(REST).status_code == 401


def test_an_event_is_a_sentence_with_both_sides_and_ways_on(auditor: Client, history: AuditEvent) -> None:
    event = published()
    page = get(auditor, f"{PAGE}{event.pk}/")
    text = text_of(page)
    assert f"ops published Change {event.change} (all), which made Revision 1." in text
    assert "RuleSet web none: it is new" in text
    assert "Address 192.0.2.7" in text
    html = page.content.decode()
    assert change_url("change", event.change) in html
    assert change_url("revision", 1) in html
    assert f"{PAGE}?request=req-0000-1" in html
    assert "tampered" not in text
    assert 'method="post"' not in html.split('id="main"')[-1].replace('id="language', "")


def test_a_row_that_was_changed_past_the_triggers_says_so(auditor: Client, history: AuditEvent) -> None:
    columns = {field.attname: getattr(history, field.attname) for field in AuditEvent._meta.fields}
    forged = AuditEvent.objects.create(**columns | {"id": time_ordered_id(timezone.now())})
    assert "This row was tampered with" in text_of(get(auditor, f"{PAGE}{forged.pk}/"))
    assert auditor.get(f"{REST}/{forged.pk}").json()["is_as_written"] is False


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"kind": "change.publish"}, ["change.publish"]),
        ({"kind": "change."}, ["change.open", "change.publish", "change.open"]),
        ({"door": "rest"}, ["change.publish", "change.open"]),
        ({"request": "req-0000-1", "kind": "change.open"}, ["change.open"]),
        ({"thing": "RuleSet/web"}, ["change.publish", "change.open"]),
        ({"thing": "Assignment/all"}, ["change.open"]),
        ({"revision": "1"}, ["change.publish"]),
        ({"by": "nobody"}, []),
        ({"address": "192.0.2.7", "limit": "1"}, ["change.publish"]),
        ({"from": "2026-01-01", "to": "2099-01-01", "kind": "change.publish"}, ["change.publish"]),
        ({"to": "2026-01-01"}, []),
    ],
)
def test_events_are_narrowed_by(auditor: Client, history: AuditEvent, asked: dict[str, str], found: list[str]) -> None:
    assert kinds(auditor, **asked) == found
    page = get(auditor, f"{PAGE}?{'&'.join(f'{name}={value}' for name, value in asked.items())}")
    assert [line["row"].kind for line in page.context["rows"]] == found


@pytest.mark.parametrize(
    "asked",
    [
        {"nonsense": "1"},
        {"kind__regex": "."},
        {"door": "window"},
        {"kind": "nonsense"},
        {"kind": "nonsense."},
        {"change": "-1"},
        {"revision": "1e9"},
        {"thing": "web"},
        {"from": "soon"},
        {"limit": "0"},
        {"before": "7"},
        {"by": "x" * 501},
    ],
)
def test_what_is_no_filter_or_no_value_is_refused(auditor: Client, asked: dict[str, str]) -> None:
    (name,) = asked
    assert [each["path"] for each in auditor.get(REST, asked).json()["faults"]] == [name]
    assert auditor.get(REST, asked).status_code == 400
    response = auditor.get(PAGE, asked)
    assert response.status_code == 400
    assert "Not a valid search" in text_of(response)


def test_a_kind_that_there_is_none_of_is_refused_with_those_that_there_are(auditor: Client) -> None:
    (fault,) = auditor.get(REST, {"kind": "publish"}).json()["faults"]
    assert fault["message"].startswith("'publish' is none of account.change, ")
    assert {"change.publish", "pause"} <= set(fault["message"].replace(",", "").split())
    for kind in KINDS:
        assert auditor.get(REST, {"kind": kind}).status_code == 200


def test_pages_follow_each_other_back_and_forth_without_counting(auditor: Client, history: AuditEvent) -> None:
    for number in range(7):
        publishing.record_event(AuditKind.EXPORT, by="ops", reason=str(number))
    first = auditor.get(REST, {"kind": "export", "limit": 3}).json()
    second = auditor.get(first["next"]).json()
    third = auditor.get(second["next"]).json()
    reasons = [[row["reason"] for row in page["results"]] for page in (first, second, third)]
    assert reasons == [["6", "5", "4"], ["3", "2", "1"], ["0"]]
    assert (first["previous"], third["next"]) == (None, None)
    assert auditor.get(third["previous"]).json()["results"] == second["results"]
    assert auditor.get(REST, {"limit": 5_000}).status_code == 200
    with CaptureQueriesContext(connection) as asked:
        get(auditor, PAGE)
    counted = [query["sql"] for query in asked.captured_queries if "COUNT(" in query["sql"].upper()]
    assert not [sql for sql in counted if "policies_auditevent" in sql]


def test_a_page_asks_as_much_of_ten_events_as_of_a_hundred(auditor: Client, history: AuditEvent) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            get(auditor, f"{REST}?kind=export&limit=100")
        return len(asked.captured_queries)

    for _ in range(10):
        publishing.record_event(AuditKind.EXPORT, by="ops")
    few = queries()
    for _ in range(90):
        publishing.record_event(AuditKind.EXPORT, by="ops")
    assert queries() == few


def test_what_was_done_here_is_linked_from_the_things_own_pages(auditor: Client, history: AuditEvent) -> None:
    event = published()
    links = {
        change_url("change", event.change): f"thing=Change%2F{event.change}",
        change_url("revision", 1): f"change={event.change}",
    }
    for page, query in links.items():
        assert f"{PAGE}?{query}" in get(auditor, page).content.decode(), page


def test_every_kind_has_its_words(auditor: Client) -> None:
    for kind in {*KINDS, *(f"change.{act}" for act in ChangeEvent.Act.values)}:
        event = publishing.record_event(kind, by="ops", thing=("RuleSet", "web"), change=7, revision=None)
        assert kind not in auditor.get(f"{REST}/{event.pk}").json()["sentence"].split()


def test_the_command_writes_lines_for_people_and_documents_for_programs(history: AuditEvent) -> None:
    said = run("--thing", "RuleSet/web").splitlines()
    assert [line[20:] for line in said] == [
        f"ops published Change {published().change} (all), which made Revision 1, over REST",
        f"ops opened Change {published().change} (all), over REST: tested",
    ]
    (found,) = map(json.loads, run("--kind", "change.publish", "--output", "json").splitlines())
    assert (found["ok"], found["by"], found["address"], found["revision"]) == (True, "ops", "192.0.2.7", 1)
    assert len(run("--limit", "1").splitlines()) == 1
    assert run("--since", "2099-01-01") == ""
    with pytest.raises(CommandError, match=r"^--since: 'soon' is neither a day nor a time"):
        run("--since", "soon")
    with pytest.raises(CommandError, match=r"^--until: 'late' is neither a day nor a time"):
        run("--until", "late")
    with pytest.raises(CommandError, match=r"^--limit: must be 0"):
        run("--limit", "-5")


@pytest.mark.parametrize("body", [b"{cut off", b'{"by": "\xff"}', b'{"id": "1"}'])
def test_an_event_whose_record_is_damaged_is_shown_by_its_columns_and_hides_no_other(
    auditor: Client, history: AuditEvent, body: bytes
) -> None:
    damaged = AuditEvent.objects.get(pk=history.pk)
    damaged.pk, damaged.body, damaged.by = time_ordered_id(timezone.now()), body, "mallory"
    damaged.save(force_insert=True)
    lines = run().splitlines()
    assert len(lines) == AuditEvent.objects.count()
    assert lines[0][20:].startswith("mallory opened Change")
    first, *others = map(json.loads, run("--output", "json").splitlines())
    assert (first["ok"], first["id"], first["by"]) == (False, str(damaged.pk), "mallory")
    assert all(each["ok"] for each in others)
    for path in (PAGE, f"{PAGE}{damaged.pk}/", REST, f"{REST}/{damaged.pk}"):
        assert get(auditor, path).status_code == 200, path


def test_an_event_of_an_unknown_kind_is_shown_whatever_the_kind_is(auditor: Client, history: AuditEvent) -> None:
    unknown = AuditEvent.objects.get(pk=history.pk)
    unknown.pk, unknown.kind = time_ordered_id(timezone.now()), "web{0}{hook}"
    unknown.save(force_insert=True)
    for path in (PAGE, f"{PAGE}{unknown.pk}/", REST, f"{REST}/{unknown.pk}"):
        assert "web{0}{hook}" in get(auditor, path).content.decode(), path
    assert "ops did web{0}{hook} to Change" in text_of(get(auditor, f"{PAGE}{unknown.pk}/"))


def test_an_event_of_marked_things_lists_them(auditor: Client, history: AuditEvent) -> None:
    publishing.claim(keys=[("RuleSet", "web")], keeper=publishing.Keeper("shop"), by="ops")
    event = AuditEvent.objects.get(kind="claim")
    page = get(auditor, f"{PAGE}{event.pk}/")
    assert "RuleSet web its content stayed as it was" in text_of(page)
    assert f"{PAGE}?thing=RuleSet%2Fweb" in page.content.decode()


@pytest.mark.parametrize(
    "more",
    [
        {"things": [{"name": "web"}, 7, "web", None, {"kind": ["RuleSet"], "name": "web"}]},
        {"things": 7},
        {"things": None},
        {"changed": ["name", 3, ["x"]], "values": {"name": "web", "3": [1, 2, 3]}},
        {"changed": ["name"], "values": ["name"]},
        {"changed": 7},
        {"added": 7},
        {"removed": [1, None]},
    ],
)
@pytest.mark.parametrize("kind", ["change.publish", "role.change"])
def test_an_event_with_members_of_another_form_is_shown(auditor: Client, more: dict[str, Any], kind: str) -> None:
    event = publishing.record_event(kind, by="ops", thing=("Role", "web"), digests=("", "0" * 64), more=more)
    for path in (PAGE, f"{PAGE}{event.pk}/", REST, f"{REST}/{event.pk}"):
        assert get(auditor, path).status_code == 200, path
    assert run("--limit", "1")


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("events", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "name", "says"),
    [
        ("Documents", "", "ann exported documents"),
        ("evidence", "archive 3: Pod default/web", "ann exported evidence of archive 3: Pod default/web"),
    ],
)
def test_an_export_says_what_was_taken_along(kind: str, name: str, says: str) -> None:
    event = AuditEvent(kind="export", by="ann", door="admin", thing_kind=kind, thing_name=name)
    assert sentence_of(event, {}) == says
