"""Every page, for three roles: who sees what, and who may change what."""

import datetime
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from policies import publishing
from policies.models import Assignment, Change, Revision, RuleSet, RuleSetVersion
from scheduler.decisions.record import store_json
from scheduler.decisions.shipping import Depth
from scheduler.models import Caller, DeadLetter, Decision, DecisionGap, Process
from scheduler.serving.process import Heartbeat
from tests.builders import TEAM_FILTER, make_assignment, make_pod, make_rule_set
from tests.component.pages import (
    change_url,
    confirmed,
    edit_page,
    form_data,
    get,
    opened,
    publish,
    publish_all,
    text_of,
)

LISTS = [
    "/admin/",
    "/admin/policies/ruleset/",
    "/admin/policies/rulesetversion/",
    "/admin/policies/assignment/",
    "/admin/policies/revision/",
    "/admin/scheduler/decision/",
    "/admin/scheduler/process/",
    "/admin/scheduler/decisiongap/",
    "/admin/scheduler/deadletter/",
]


def make_decision(**fields: Any) -> Decision:
    body = {
        "pod": make_pod(),
        "nodes": ["n1", "n2", "n3"],
        "filters": [
            {"rule": "team", "statuses": [{"code": "Unschedulable", "reason": "another team"}], "verdicts": [-1, 0, 0]},
            {"rule": "room", "statuses": [], "verdicts": [-1, -2, -2]},
        ],
        "scores": [{"rule": "short", "weight": 2, "raw": [80, None, None]}],
        "totals": [8, None, None],
    }
    defaults = {
        "at": timezone.now(), "process": "extender@a:1:1", "sequence": Decision.objects.count() + 1, "verb": "filter",
        "pod_namespace": "shop", "pod_name": "web-1", "pod_uid": "uid-1", "revision": 1, "rule_set": "web",
        "rule_set_version": 1, "nodes": 3, "feasible": 1, "best": "n1", "top_reason": "another team",
        "duration_microseconds": 1500, "body": store_json(body),
    }  # fmt: skip
    return Decision.objects.create(**{**defaults, **fields})


def make_process(**fields: Any) -> Process:
    now = timezone.now()
    defaults = {"id": "extender@a:1:1", "role": "extender", "host": "a", "pid": 1, "revision": 1, "revision_at": now}
    return Process.objects.create(**{**defaults, "started_at": now, "heartbeat_at": now, **fields})


@pytest.fixture
def published(db: None) -> RuleSetVersion:
    publish(make_rule_set(filters=[TEAM_FILTER]))
    publish_all(make_assignment())
    make_decision()
    make_process()
    return RuleSetVersion.objects.get()


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("role", ["operator", "approver", "auditor"])
def test_every_list_shows_itself_empty_and_filled(role: str, path: str, request: pytest.FixtureRequest) -> None:
    client = request.getfixturevalue(role)
    get(client, path)
    request.getfixturevalue("published")
    get(client, path)


@pytest.mark.parametrize("path", LISTS[1:])
@pytest.mark.django_db
def test_nobody_sees_a_page_without_logging_in(client: Client, path: str) -> None:
    assert client.get(path)["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("role", ["operator", "approver", "auditor"])
def test_every_thing_has_a_page(role: str, published: RuleSetVersion, request: pytest.FixtureRequest) -> None:
    client = request.getfixturevalue(role)
    for model, key in (
        ("ruleset", published.rule_set_id),
        ("rulesetversion", published.pk),
        ("assignment", Assignment.objects.get().pk),
        ("revision", 1),
        ("decision", Decision.objects.get().pk),
        ("process", "extender_40a_3A1_3A1"),
    ):
        get(client, change_url(model, key))


def test_empty_lists_say_what_to_do(operator: Client) -> None:
    text = text_of(get(operator, "/admin/policies/ruleset/"))
    assert "No rule set yet" in text
    assert "Add rule set" in text
    assert "Add the first rule set" in text_of(get(operator, "/admin/"))


def test_an_auditor_has_no_button_that_changes_anything(auditor: Client, published: RuleSetVersion) -> None:
    change = opened(make_rule_set("batch"))
    for path in (
        change_url("ruleset", published.rule_set_id),
        change_url("rulesetversion", published.pk),
        change_url("change", change.pk),
        change_url("assignment", Assignment.objects.get().pk),
        change_url("revision", 1),
        *LISTS,
    ):
        page = get(auditor, path)
        main = page.content.decode().split('id="main"')[-1]
        for word in ("/edit/", "Archive", "discard", "Roll back to this", 'name="_save"', "/add/"):
            assert word not in main, (path, word)


@pytest.mark.parametrize("role", ["approver", "auditor"])
def test_who_may_not_edit_is_refused(role: str, published: RuleSetVersion, request: pytest.FixtureRequest) -> None:
    client = request.getfixturevalue(role)
    assignment = change_url("assignment", Assignment.objects.get().pk)
    assert client.post("/admin/policies/ruleset/add/", {"name": "x"}).status_code == 403
    assert client.post(edit_page("web"), {}).status_code == 403
    assert client.post(assignment, {}).status_code == 403
    assert client.get(f"/admin/policies/ruleset/{published.rule_set_id}/edit/").status_code == 403


def test_an_auditor_cannot_publish_or_roll_back(auditor: Client, published: RuleSetVersion) -> None:
    for path in ("revision/1/roll_back/", f"ruleset/{published.rule_set_id}/archive/"):
        assert auditor.post(f"/admin/policies/{path}", {"reason": "x"}).status_code == 403, path
    assert Revision.objects.count() == 2


def test_where_review_is_required_an_edit_goes_live_once_somebody_else_approved_it(
    operator: Client, approver: Client, published: RuleSetVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))
    data = form_data(get(operator, edit_page("web"))) | {"description": "ticket 7"}
    assert "Send to review" in text_of(operator.post(edit_page("web"), data, follow=True))
    change = Change.objects.get(state="draft")
    publishing.submit_change(change=change, by="ops", expected_digest=change.digest)
    review = f"/admin/policies/change/{change.pk}/change/"
    assert "Publish: It needs 1 more approval" in text_of(get(operator, review))
    act = f"/admin/policies/change/{change.pk}/act/"
    seen = {name: get(approver, review).context["form"][name].value() for name in ("digest", "revision")}
    assert "not approve Changes" in text_of(operator.post(act, seen | {"act": "approve"}))
    assert "Your approval is recorded" in text_of(approver.post(act, seen | {"act": "approve"}, follow=True))
    assert "Revision 3 was made" in text_of(operator.post(act, seen | {"act": "publish"}, follow=True))
    assert [each.description for each in publishing.current_revision().rule_sets] == ["ticket 7"]


def test_editing_leads_to_the_form_in_the_one_change_that_edits_it(operator: Client, published: RuleSetVersion) -> None:
    path = f"/admin/policies/ruleset/{published.rule_set_id}/edit/"
    assert operator.get(path)["Location"] == edit_page("web")
    change = opened(make_rule_set("web"))
    assert operator.get(path)["Location"] == edit_page("web", change)
    opened(make_rule_set("web"))
    assert operator.get(path)["Location"] == edit_page("web")


def test_rolling_back_shows_changes_and_does_it(operator: Client, published: RuleSetVersion) -> None:
    page = "/admin/policies/revision/1/roll_back/"
    assert "Assignment all-web removed" in text_of(get(operator, page))
    assert "Revision 3 was made" in confirmed(operator, page, "wrong Pods")
    assert publishing.current_revision().assignments == []


def test_the_live_revision_has_no_way_back_to_itself(operator: Client, published: RuleSetVersion) -> None:
    assert "Roll back to this" not in text_of(get(operator, change_url("revision", 2)))
    assert operator.get("/admin/policies/revision/2/roll_back/").status_code == 403


def test_an_assignment_is_written_as_kubectl_writes_selectors(operator: Client, published: RuleSetVersion) -> None:
    page = "/admin/policies/assignment/add/"
    data = form_data(get(operator, page)) | {
        "name": "gpu", "rule_set": published.rule_set_id, "order": 5, "namespaces": "ml, research",
        "pod_selector": "app=train,gpu, tier in (a, b), !legacy, zone!=x", "policies_assignment_save_and_publish": "",
    }  # fmt: skip
    said = text_of(operator.post(page, data, follow=True))
    assert "Assignment gpu added" in said
    row = Assignment.objects.get(name="gpu")
    assert row.namespaces == ["ml", "research"]
    assert row.pod_selector["matchLabels"] == {"app": "train"}
    assert [each["operator"] for each in row.pod_selector["matchExpressions"]] == [
        "Exists",
        "In",
        "DoesNotExist",
        "NotIn",
    ]
    shown = form_data(get(operator, change_url("assignment", row.pk)))["pod_selector"]
    assert shown == "app=train,gpu,tier in (a,b),!legacy,zone notin (x)"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("pod_selector", "app=a,,", "isn't a label selector"),
        ("pod_selector", "a=1,a=2", "two values at once"),
        ("order", "-5", "must be 0 to 1000000"),
        ("name", "Web", "lower-case"),
    ],
)
def test_a_faulty_assignment_is_said_at_its_field(
    operator: Client, published: RuleSetVersion, field: str, value: str, said: str
) -> None:
    page = "/admin/policies/assignment/add/"
    data = form_data(get(operator, page)) | {"name": "new", "rule_set": published.rule_set_id, field: value}
    response = operator.post(page, data)
    assert said in " ".join(response.context["adminform"].form.errors[field])


def test_the_list_says_which_edits_are_not_live(operator: Client, published: RuleSetVersion) -> None:
    assert "not live yet" not in text_of(get(operator, "/admin/policies/assignment/"))
    change = opened(make_assignment(order=3))
    text = text_of(get(operator, "/admin/policies/assignment/"))
    assert f"1 edit in open Changes, not live yet all-web edited by ops in {change}: tested" in text


def test_the_notice_of_open_edits_names_ten_and_asks_no_more_for_more(
    operator: Client, published: RuleSetVersion
) -> None:
    names = [f"new-{number:02}" for number in range(12)]
    for number, name in enumerate(names):
        opened(make_assignment(name, order=number + 3), title=name)
    page = "/admin/policies/assignment/"
    get(operator, page)
    with CaptureQueriesContext(connection) as asked:
        text = text_of(get(operator, page))
    assert "12 edits in open Changes, not live yet" in text
    assert all(f"{name} edited by ops" in text for name in names[:10])
    assert "new-10" not in text
    assert "and 2 more: see the open Changes" in text
    by_name = [each["sql"] for each in asked if '"policies_assignment"."name" IN' in each["sql"]]
    assert len(by_name) == 1


def test_a_decision_is_a_matrix_of_nodes_and_rules(auditor: Client, published: RuleSetVersion) -> None:
    text = text_of(get(auditor, change_url("decision", Decision.objects.get().pk)))
    assert "shop/web-1 may use 1 of 3 nodes. The best is n1." in text
    assert "★ n1 ✓ 80 8" in text
    assert "n2 and 1 like it why? ✗ another team · ·" in text
    assert "1 rule passed every node: room." in text


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("answered", "said"),
    [
        ({}, "A shadow, which decides nothing: shop/web-1 may use 1 of 3 nodes."),
        ({"feasible": 0}, "A shadow, which decides nothing: shop/web-1 may use none of 3 nodes"),
        ({"error": "too late"}, "A shadow, which decides nothing: the question about shop/web-1 couldn't be answered"),
        (
            {"nodes": 0, "feasible": 0},
            "A shadow, which decides nothing: there was no node to ask about for shop/web-1.",
        ),
    ],
)
def test_the_answer_of_a_shadow_is_not_said_to_be_the_pods(
    auditor: Client, answered: dict[str, Any], said: str
) -> None:
    shadow = make_decision(mode="shadow", **answered)
    assert said in text_of(get(auditor, change_url("decision", shadow.pk)))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", 3), ("verb=bind", 1), ("answer=none", 1), ("answer=error", 1), ("rule_set=web", 3), ("revision=2", 1),
        ("pod_namespace=shop", 2), ("q=web-1", 2), ("q=uid-9", 1), ("q=batch/nig", 1), ("q=nothing", 0),
        ("assignment=all", 0), ("pod_uid=uid-9", 1),
    ],
)  # fmt: skip
def test_decisions_are_found_by_the_parameters_of_the_url(auditor: Client, query: str, found: int) -> None:
    make_decision()
    make_decision(verb="bind", error="gone", revision=2)
    make_decision(pod_namespace="batch", pod_name="night", pod_uid="uid-9", feasible=0)
    response = get(auditor, f"/admin/scheduler/decision/?{query}")
    assert len(response.context["rows"]) == found


@pytest.mark.parametrize("path", ["decision/", "pods/shop/web-1/", "decision/{}/change/"])
def test_thousands_of_nodes_are_separated(auditor: Client, path: str) -> None:
    decision = make_decision(nodes=5_000, feasible=3_428)
    assert b"3,428 of 5,000 nodes" in auditor.get(f"/admin/scheduler/{path.format(decision.pk)}").content


def test_a_list_of_decisions_leaves_bodies_in_the_database(auditor: Client, django_assert_max_num_queries: Any) -> None:
    for _ in range(5):
        make_decision()
    with django_assert_max_num_queries(12) as queries:
        get(auditor, "/admin/scheduler/decision/")
    assert not any('"body"' in query["sql"] for query in queries.captured_queries)


def test_lost_decisions_are_said_above_the_list(auditor: Client) -> None:
    assert "not in the history" not in text_of(get(auditor, "/admin/scheduler/decision/"))
    now = timezone.now()
    for first, last in ((3, 5), (9, 9)):
        DecisionGap.objects.create(process="extender@a:1:1", first=first, last=last, reason="no room", at=now)
    assert "4 Decisions were answered and are not in the history" in text_of(get(auditor, "/admin/scheduler/decision/"))
    assert "extender@a:1:1 3 to 5 3 no room" in text_of(get(auditor, "/admin/scheduler/decisiongap/"))


@pytest.mark.django_db
def test_lost_and_missing_decisions_are_in_the_metrics_of_the_admin(client: Client) -> None:
    """They are counted from the table: a restart of any process forgets nothing."""
    now = timezone.now()
    for process, may_return in (("extender@a:1:1", False), ("extender@b:2:2", True)):
        DecisionGap.objects.create(process=process, first=3, last=5, reason="", at=now, may_return=may_return)
    lines = client.get("/metrics").content.decode().splitlines()
    assert "berth_decisions_lost_total 3.0" in lines
    assert "berth_decisions_missing 3.0" in lines


def test_records_dead_letter_are_listed_with_their_size(auditor: Client) -> None:
    DeadLetter.objects.create(writer="w", sequence=7, reason="it was corrupt", data=b"12345", at=timezone.now())
    assert "w 7 5 it was corrupt" in text_of(get(auditor, "/admin/scheduler/deadletter/"))


@pytest.mark.parametrize(
    ("best", "shown", "sentence"),
    [
        (True, "n1 ★", "n1, one of the best by the last answer"),
        (False, "n1 ☆", "n1, not one of the best by the last answer"),
        (None, "n1", "n1"),
    ],
)
def test_a_decision_shows_where_its_pod_ended_up(auditor: Client, best: bool | None, shown: str, sentence: str) -> None:
    row = make_decision(placed_on="n1", placed_at=timezone.now(), placed_best=best, best="")
    assert f"1 of 3 nodes another team {shown} web v1" in text_of(get(auditor, "/admin/scheduler/decision/"))
    assert f"Placed on {sentence} " in text_of(get(auditor, f"/admin/scheduler/decision/{row.pk}/change/"))


def test_a_process_says_what_waits_in_its_spool(auditor: Client) -> None:
    live: Any = type("Live", (), {"synced": False})()
    depth = Depth(records=1_203, bytes=3 << 20)
    heartbeat = Heartbeat(
        "extender",
        live=live,
        served=lambda: (0, None),
        numbered=lambda: 0,
        spooled=lambda: depth,
        more=lambda: None,
    )
    heartbeat.write()
    assert "1,203 to send, 3.1 MB" in text_of(get(auditor, "/admin/scheduler/process/"))


def test_a_silent_process_is_marked(auditor: Client) -> None:
    make_process(heartbeat_at=timezone.now() - datetime.timedelta(minutes=5))
    assert "! silent" in text_of(get(auditor, "/admin/scheduler/process/"))


def test_home_says_who_serves_the_revision(operator: Client, published: RuleSetVersion) -> None:
    assert "Revision 2 is served by 0 of 1 process" in text_of(get(operator, "/admin/"))
    Process.objects.update(revision=2)
    text = text_of(get(operator, "/admin/"))
    assert "Revision 2 is served by 1 of 1 process" in text
    assert f"processes since {Process.objects.get().revision_at:%Y-%m-%d %H:%M} UTC" not in text
    assert f"1 of 1 process since {Process.objects.get().revision_at:%Y-%m-%d %H:%M} UTC" in text
    assert "Decisions, last hour 1" in text


def test_home_says_who_called_last_and_what_is_lost(operator: Client, published: RuleSetVersion) -> None:
    text = text_of(get(operator, "/admin/"))
    assert "No calls yet" in text
    assert "No Decision is lost." in text
    now = timezone.now()
    Caller.objects.create(identity="kube-scheduler", verb="filter", process="extender@a:1:1", last_at=now)
    DecisionGap.objects.create(at=now, process="extender@a:1:1", first=3, last=1204, reason="disk full")
    text = text_of(get(operator, "/admin/"))
    assert "Last call: filter by kube-scheduler" in text
    assert "1,202 Decisions lost or missing" in text


def test_home_measures_each_verb_of_the_last_hour(operator: Client, published: RuleSetVersion) -> None:
    make_decision(feasible=0, duration_microseconds=4_000)
    make_decision(verb="prioritize", duration_microseconds=500)
    make_decision(mode="shadow")
    make_decision(at=timezone.now() - datetime.timedelta(hours=2))
    page = get(operator, "/admin/")
    text = text_of(page)
    assert "filter At most 2 in 1/60 of the time range 2 below 0.01 1.5 ms 4.0 ms ✗ 1 (50.0 %) 0" in text
    assert "prioritize At most 1 in 1/60 of the time range 1 below 0.01 0.5 ms 0.5 ms 0 (0.0 %) 0" in text
    assert page.content.count(b'<svg class="berth-spark"') == 2
    (link,) = re.findall(r'href="([^"]*verb=prioritize[^"]*)"', page.content.decode())
    assert [each["row"].verb for each in get(operator, link.replace("&amp;", "&")).context["rows"]] == ["prioritize"]


def _write_status(state_dir: Path, content: str) -> None:
    (state_dir / "cluster").mkdir(exist_ok=True)
    (state_dir / "cluster" / "status.json").write_text(content)


@pytest.fixture
def _no_cluster(state_dir: Path) -> Any:
    yield
    (state_dir / "cluster" / "status.json").unlink(missing_ok=True)


@pytest.mark.usefixtures("_no_cluster")
def test_home_shows_the_cluster_while_it_builds(operator: Client, state_dir: Path) -> None:
    assert b"cluster-status" not in get(operator, "/admin/").content
    status = {"phase": "building", "step": "kubernetes", "message": "compiling", "done": 3, "total": 8}
    _write_status(state_dir, json.dumps(status))
    page = get(operator, "/admin/").content
    assert b'<progress value="3" max="8" aria-label=' in page
    assert b'http-equiv="refresh"' in page
    _write_status(state_dir, json.dumps({"phase": "failed", "message": "no space left"}))
    page = get(operator, "/admin/").content
    assert b"no space left" in page
    assert b'http-equiv="refresh"' not in page
    _write_status(state_dir, '{"phase": "rea')
    get(operator, "/admin/")
    _write_status(state_dir, json.dumps({"phase": "ready"}))
    assert b"cluster-status" not in get(operator, "/admin/").content


def test_next_steps_lead_from_nothing_to_an_assignment(operator: Client) -> None:
    change = opened(make_rule_set())
    assert "nothing is published" in text_of(get(operator, "/admin/"))
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    assert "no Assignment gives it to any Pod" in text_of(get(operator, "/admin/"))
    publish_all(make_assignment())
    assert b"next-step" not in get(operator, "/admin/").content


def test_pages_of_ours_have_no_inline_script() -> None:
    root = settings.BASE_DIR
    for template in [*root.glob("*/templates/**/*.html")]:
        text = template.read_text()
        assert "<script>" not in text, template
        assert "onclick" not in text, template


def test_search_finds_rule_sets_by_their_expressions(operator: Client, published: RuleSetVersion) -> None:
    publish(make_rule_set("batch"))
    response = get(operator, "/admin/policies/ruleset/?q=metadata.labels.team")
    assert [str(row) for row in response.context["cl"].result_list] == ["web"]
    assert RuleSet.objects.count() == 2


@pytest.mark.parametrize("key", ["1.2.-3", "x", "9" * 25, ""])
def test_a_form_begins_without_what_can_be_no_rows_key(operator: Client, key: str) -> None:
    assert get(operator, f"/admin/policies/assignment/add/?rule_set={key}").status_code == 200


def test_a_form_begins_with_the_rule_set_that_a_link_gives(operator: Client, published: RuleSetVersion) -> None:
    form = get(operator, f"/admin/policies/assignment/add/?rule_set={published.rule_set_id}").context["adminform"].form
    assert form["rule_set"].value() == str(published.rule_set_id)
