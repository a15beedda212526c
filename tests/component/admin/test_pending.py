"""Pending Pods: on Home, on their own page, on the page of a Pod and of a workload, and by REST."""

import html
import io
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from django.core.management import call_command
from django.test import Client

from policies.audit_words import sentence_of
from policies.models import AuditEvent
from policies.publishing.audit import said_by
from scheduler.models import BinderState, Decision, PendingPod, PlacedPod, WaitingPod, Wake
from scheduler.pending.holding import GATED, GATES_LEFT
from tests.builders import make_assignment, make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.decisions.test_story import AT, Asking, pod, rules, snapshot
from tests.component.pages import get, publish_all, text_of
from tests.component.pending.cluster import Cluster
from tests.recording import History, outcome_of

pytestmark = pytest.mark.django_db
PAGE, REST = "/admin/scheduler/pending/", "/api/v1/pending"
TEAM = "0/2 nodes are available: 2 another team."
CPU = "0/2 nodes are available: 2 Insufficient cpu."


@pytest.fixture
def waiting(history: History) -> str:
    """A Pod of kube-scheduler's that a rule keeps from both nodes, one that has no room, and one of Berth's; the Decision."""
    publish_all(rules("data"), make_assignment("all", "team", match={}))
    key = Asking(history).filter(pod(), snapshot(n1="web", n2="ops", n3="ops"))
    history.settle()
    cluster = Cluster()
    cluster.add("web-1", TEAM, uid="u1", job="night", at=AT)
    cluster.add("big", CPU, at=AT)
    cluster.add("mine", CPU, scheduler="berth", at=AT)
    cluster.follow(datetime.now(UTC))
    return key


def text(client: Client, path: str) -> str:
    return text_of(get(client, path))


def row_of_pending(uid: str, **columns: Any) -> None:
    """Keep a Pod that waits, as a worker does."""
    PendingPod.objects.create(
        **({"uid": uid, "namespace": "default", "name": uid, "created_at": AT, "since": AT} | columns)
    )


def place_others(number: int) -> None:
    """Place other Pods, now."""
    for index in range(number):
        make_decision(pod_name=f"other-{index}", pod_uid=f"other-{index}", placed_on="n1", placed_at=datetime.now(UTC))


def test_home_begins_with_what_is_pending_though_300_other_pods_were_placed_since(
    auditor: Client, waiting: str, django_assert_max_num_queries: Any
) -> None:
    assert waiting
    place_others(300)
    with django_assert_max_num_queries(40):
        shown = get(auditor, "/admin/")
    assert "3 Pods are Pending, the longest for" in text_of(shown)
    assert "2 of them are held by their scheduler: “Insufficient cpu”" in text_of(shown)
    assert shown.content.index(b'id="pending-pods"') < shown.content.index(b'id="health"')


def test_home_says_so_when_no_pod_is_pending_and_when_nobody_has_looked(auditor: Client) -> None:
    assert "It isn't known yet which Pods are Pending" in text(auditor, "/admin/")
    assert "No Pod is Pending" not in text(auditor, "/admin/scheduler/pending/")
    Cluster().follow(datetime.now(UTC))
    assert "✓ No Pod is Pending." in text(auditor, "/admin/")


def test_pods_are_grouped_by_what_holds_them_and_a_group_unfolds(auditor: Client, waiting: str) -> None:
    shown = text(auditor, PAGE)
    assert "1 of berth" in shown
    assert "2 of default-scheduler" in shown
    assert "2 Pods the scheduler: “Insufficient cpu”" in shown
    assert "1 Pod rule team : “another team”" in shown
    unfolded = get(auditor, f"{PAGE}?rule=team&reason={quote('another team')}")
    assert "1 Pod, longest waiting first" in text_of(unfolded)
    assert "default/web-1" in text_of(unfolded)
    assert f"/admin/scheduler/decision/{waiting}/change/" in unfolded.content.decode()
    assert "0 of 3 nodes" in text_of(unfolded)
    assert "default/big" not in text_of(unfolded)
    assert [(name, url) for name, _value, url in unfolded.context["asked"]] == [
        ("rule", f"{PAGE}?reason=another+team"),
        ("reason", f"{PAGE}?rule=team"),
    ]


def test_a_way_to_group_that_there_is_none_of_is_refused_with_those_that_there_are(auditor: Client) -> None:
    answer = auditor.get(f"{PAGE}?by=colour")
    assert answer.status_code == 400
    assert "'colour' is none of reason, owner" in html.unescape(text_of(answer))
    assert get(auditor, f"{PAGE}?by=").status_code == 200


@pytest.mark.parametrize("asked", ["?owner=night", "?namespace=default&resaon=x", "?reason=" + "x" * 501])
def test_what_is_no_filter_of_pending_pods_is_refused_and_shows_no_pods(
    auditor: Client, waiting: str, asked: str
) -> None:
    assert waiting
    answer = auditor.get(PAGE + asked)
    assert (answer.status_code, "Not a valid search" in text_of(answer)) == (400, True)
    assert "pending-groups" not in answer.content.decode()
    assert "pending-pods-table" not in answer.content.decode()


def test_pods_are_grouped_by_whose_they_are_and_narrowed_by_their_scheduler(auditor: Client, waiting: str) -> None:
    assert waiting
    shown = get(auditor, f"{PAGE}?by=owner")
    assert "/admin/scheduler/workloads/default/Job/night/" in shown.content.decode()
    assert "default: Pods without an owner" in text_of(shown)
    berths = text(auditor, f"{PAGE}?scheduler_name=berth")
    assert "scheduler: berth ×" in berths
    assert "another team" not in berths.partition("Pods Held by")[2]


def test_a_workloads_numbers_lead_to_its_own_decisions(auditor: Client) -> None:
    now = datetime.now(UTC)
    owner: dict[str, Any] = {
        "owner_kind": "Job",
        "owner_name": "night",
        "verb": "filter",
        "feasible": 0,
        "best": "",
        "at": now,
    }
    for namespace in ("default", "other"):
        made = {**owner, "pod_namespace": namespace}
        make_decision(pod_name=f"full-{namespace}", top_reason="no room", **made)
        make_decision(pod_name=f"late-{namespace}", top_reason="", error="no Snapshot", **made)
    page = get(auditor, "/admin/scheduler/workloads/default/Job/night/")
    assert "2 of 2 answers since midnight UTC allowed no node" in text_of(page)
    listed = {reason: text(auditor, url) for reason, number, url in page.context["reasons"] if number == 1}
    for reason, pod_name, other in (("no room", "full", "late"), ("no Snapshot", "late", "full")):
        assert f"/{pod_name}-default" in listed[reason]
        assert f"/{other}-default" not in listed[reason]
    listed |= {name: text(auditor, page.context[name]) for name in ("refusals", "decisions")}
    for name in ("refusals", "decisions"):
        assert "/full-default" in listed[name]
        assert "/late-default" in listed[name]
    assert "-other" not in "".join(listed.values())


def test_a_workload_says_how_many_of_its_pods_wait_where_it_shows_fewer(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.admin.workloads._MOST_WAITING", 2)
    for number in range(5):
        row_of_pending(f"u{number}", owner_kind="Job", owner_name="night")
    shown = text(auditor, "/admin/scheduler/workloads/default/Job/night/")
    assert "5 of its Pods are Pending" in shown
    assert "There are more" in shown


def test_workloads_of_one_name_in_other_namespaces_or_of_another_kind_are_counted_each(auditor: Client) -> None:
    for number, (namespace, kind) in enumerate(
        [("shop", "Job"), ("shop", "Job"), ("shop", "Deployment"), ("test", "Job")]
    ):
        row_of_pending(f"u{number}", namespace=namespace, owner_kind=kind, owner_name="web")
    (group,) = auditor.get(f"{REST}?limit=0").json()["groups"]
    assert (group["pods"], group["owners"]) == (4, 3)


@pytest.mark.parametrize("other", ["another team", "zone is full"])
def test_a_workload_is_not_said_to_be_held_by_a_rule_for_the_reason_of_another(auditor: Client, other: str) -> None:
    row_of_pending("u1", owner_kind="Job", owner_name="web", rule="team", reason="another team")
    row_of_pending("u2", owner_kind="Job", owner_name="web", rule="", reason=other)
    (group,) = auditor.get(f"{REST}?limit=0&by=owner").json()["groups"]
    assert (group["pods"], group["reasons"], group["rule"], group["reason"]) == (2, 2, "team", "another team")
    assert "2 different things" in text(auditor, f"{PAGE}?by=owner")


def test_pods_that_were_bound_or_are_gone_do_not_show(auditor: Client, waiting: str, history: History) -> None:
    assert waiting
    now = datetime.now(UTC)
    history.recorder.record_outcome(outcome_of("big", "n1", now))
    history.recorder.record_outcome(outcome_of("mine", "", now, kind="gone"))
    history.settle()
    shown = text(auditor, PAGE)
    assert "1 Pod is Pending" in shown
    assert "Insufficient cpu" not in shown


def test_one_of_two_pods_is_held_and_not_are(auditor: Client, waiting: str, history: History) -> None:
    assert waiting
    history.recorder.record_outcome(outcome_of("mine", "", datetime.now(UTC), kind="gone"))
    history.settle()
    assert "1 of them is held by" in text(auditor, PAGE)


def test_a_thousand_pods_take_as_many_queries_as_ten_and_come_in_pages(
    auditor: Client, django_assert_max_num_queries: Any
) -> None:
    cluster = Cluster()
    for number in range(300):
        cluster.add(f"p{number:03}", CPU, at=AT, job=f"job-{number % 120}")
    cluster.follow(datetime.now(UTC))
    for path in (PAGE, f"{PAGE}?by=owner", f"{PAGE}?rule=&reason={quote('Insufficient cpu')}&p=2"):
        with django_assert_max_num_queries(20):
            shown = text(auditor, path)
        assert "300 Pods are Pending" in shown
    assert "Page 2 of 6" in shown
    assert "All of them are held by their scheduler" in shown


def test_when_a_pod_is_tried_next_is_taken_from_the_queue_and_from_what_is_requeued(
    auditor: Client, waiting: str
) -> None:
    assert waiting
    now = datetime.now(UTC)
    queued = {"uid": "uid-mine", "state": "backoff", "until": (now + timedelta(minutes=50)).isoformat()}
    BinderState.objects.create(identity="b", process="b", heartbeat_at=now, leads=True, pods=[queued])
    WaitingPod.objects.create(uid="uid-big", namespace="default", name="big", created_at=AT, cause="revision")
    shown = text(auditor, f"{PAGE}?rule=&reason={quote('Insufficient cpu')}")
    assert "at once: Berth asks for it, because of a new Revision" in shown
    assert re.search(r"history yet in \d+ s\b", shown)


def test_a_page_says_when_the_cluster_was_last_seen_and_why_not_since(auditor: Client) -> None:
    cluster = Cluster()
    cluster.add("a", CPU)
    cluster.follow(datetime.now(UTC) - timedelta(hours=2))
    assert "As of 2 h ago. That is outdated: check on the page Doctor that a worker is running" in text(auditor, PAGE)
    cluster.away = True
    cluster.follow(datetime.now(UTC))
    assert "The cluster can't be listed (connection refused)" in text(auditor, PAGE)
    assert "1 Pod is Pending" in text(auditor, "/admin/")


@pytest.mark.usefixtures("waiting")
def test_the_page_of_a_pod_says_what_holds_it_what_was_tried_and_asks_about_any_node(
    auditor: Client, waiting: str
) -> None:
    shown = get(auditor, "/admin/scheduler/pods/default/web-1/")
    said = text_of(shown)
    assert "! Pending for" in said
    assert "held by rule team: “another team”" in said
    assert "It waits: 3 refused by team (“another team”)." in said
    body = shown.content.decode()
    assert f'action="/admin/scheduler/decision/{waiting}/change/#why"' in body
    assert f'action="/admin/scheduler/decision/{waiting}/replay/"' in body
    assert f'hx-get="/admin/scheduler/decision/{waiting}/remedies/"' in body
    assert "/admin/scheduler/workloads/default/Job/night/" in body


def test_the_page_of_a_pod_names_a_rules_reason_whole_beside_what_holds_it(auditor: Client, history: History) -> None:
    licence = "the licence is for 4 nodes, 4 are used"
    filters = [{"name": "licence", "expression": "false", "reason": licence}]
    publish_all(make_rule_set("team", filters=filters), make_assignment("all", "team", match={}))
    Asking(history).filter(pod(), snapshot(n1="web", n2="ops"))
    history.settle()
    cluster = Cluster()
    cluster.add("web-1", f"0/5 nodes are available: 2 {licence}, 3 Insufficient cpu.", uid="u1", at=AT)
    cluster.follow(datetime.now(UTC))
    said = text(auditor, "/admin/scheduler/pods/default/web-1/")
    assert f"held by its scheduler: “Insufficient cpu” ; also: {licence}." in said


def test_a_pod_that_berth_was_not_asked_about_has_a_page_as_long_as_it_waits(auditor: Client, waiting: str) -> None:
    assert waiting
    shown = text(auditor, "/admin/scheduler/pods/default/big/")
    assert "Its scheduler says: 0/2 nodes are available: 2 Insufficient cpu." in shown
    assert "No Decision about it is recorded" in shown
    assert "held by its scheduler: “Insufficient cpu”" in shown
    assert "Last attempt: by its scheduler; Berth wasn't asked." in shown
    assert auditor.get("/admin/scheduler/pods/default/nobody/").status_code == 404


def test_a_pod_that_has_the_name_of_one_that_is_gone_is_told_and_not_that_one(auditor: Client, waiting: str) -> None:
    assert waiting
    PendingPod.objects.all().delete()
    row_of_pending("u2", name="web-1", scheduler_name="default-scheduler", condition=GATED, reason=GATES_LEFT)
    shown = get(auditor, "/admin/scheduler/pods/default/web-1/")
    said = text_of(shown)
    assert "held by scheduling gates that haven't been removed" in said
    assert "No Decision about it is recorded" in said
    assert "3 refused by team" not in said
    assert 'href="/admin/scheduler/pods/default/web-1/?uid=u1"' in shown.content.decode()
    story = auditor.get("/api/v1/pods/default/web-1").json()
    assert (story["uid"], story["uids"], story["attempts"]) == ("u2", ["u2", "u1"], [])
    former = auditor.get("/api/v1/pods/default/web-1?uid=u1").json()
    assert (former["uid"], former["pending"]) == ("u1", None)
    assert "3 refused by team" in text(auditor, "/admin/scheduler/pods/default/web-1/?uid=u1")


def test_rest_tells_of_a_pod_that_waits_and_that_berth_was_not_asked_about(auditor: Client, waiting: str) -> None:
    assert waiting
    story = auditor.get("/api/v1/pods/default/big").json()
    assert story["now"] == "It waits for default-scheduler, and no Decision about it is recorded: Insufficient cpu"
    assert (story["pending"]["reason"], story["attempts"], story["remedies"]) == ("Insufficient cpu", [], None)
    missing = auditor.get("/api/v1/pods/default/nobody")
    assert missing.status_code == 404
    assert missing.json()["detail"] == "no Decision about default/nobody is recorded, and no Pod of that name waits"


def test_a_pod_of_berths_own_scheduler_is_not_said_to_be_another_ones(auditor: Client, waiting: str) -> None:
    assert waiting
    shown = text(auditor, "/admin/scheduler/pods/default/mine/")
    assert "held by Berth's own scheduler: “Insufficient cpu”" in shown
    assert "Last attempt: by Berth's own scheduler; its Decision hasn't reached the history yet." in shown
    assert "No Decision about it is recorded yet." in shown
    assert "Berth wasn't asked" not in shown
    assert "Berth wasn't asked" not in text(auditor, GROUP).partition("default/mine")[2].partition("default/")[0]


@pytest.mark.parametrize("by", ["reason", "owner"])
@pytest.mark.parametrize(
    ("message", "scheduler", "condition", "held", "tried"),
    [
        (CPU, "berth", "Unschedulable", "the scheduler: “Insufficient cpu”", "no Decision is in the history yet"),
        (CPU, "other", "Unschedulable", "the scheduler: “Insufficient cpu”", "Berth wasn't asked"),
        ("", "other", "", "an unknown reason: no scheduler has tried yet", "not yet"),
        ("is blocked", "other", "SchedulingGated", "scheduling gates that haven't been removed", "not yet"),
    ],
    ids=["of Berth's own scheduler", "of another one", "not tried", "gated"],
)
def test_a_group_without_a_decision_says_what_is_known_of_its_tries(
    auditor: Client, by: str, message: str, scheduler: str, condition: str, held: str, tried: str
) -> None:
    cluster = Cluster()
    uid = cluster.add("one", message, scheduler=scheduler)
    for each in cluster.pods[uid]["status"].get("conditions", ()):
        each["reason"] = condition
    cluster.follow(datetime.now(UTC))
    page = html.unescape(get(auditor, f"{PAGE}?by={by}").content.decode())
    cells = re.findall(r'data-label="(?:Held by|Last attempt)">(.*?)</td>', page)
    assert [re.sub(r"<[^>]+>", "", cell) for cell in cells] == [held, tried]


def test_what_would_let_a_pod_run_is_said_from_its_own_snapshot(auditor: Client, waiting: str) -> None:
    shown = text(auditor, f"/admin/scheduler/decision/{waiting}/remedies/")
    assert "Without rule team (“another team”) 3 nodes would be allowed: n1, n2 and n3." in shown
    assert "On n1, n2 and n3, rule team: it is true on no node." in shown


def test_where_several_rules_refuse_every_node_the_nearest_is_named(auditor: Client, history: History) -> None:
    has = [{"name": name, "expression": f"has(node.metadata.labels.{name})", "reason": f"no {name}"} for name in "ab"]
    publish_all(make_rule_set("two", filters=has), make_assignment("all", "two", match={}))
    key = Asking(history).filter(pod(), snapshot(n1="web"))
    history.settle()
    shown = text(auditor, f"/admin/scheduler/decision/{key}/remedies/")
    assert "No single rule keeps it waiting: the node is refused by 2 rules or more." in shown
    assert "Nearest is n1, refused by a and b." in shown


def test_without_its_snapshot_only_what_is_recorded_is_said(auditor: Client) -> None:
    row = make_decision(feasible=0)
    shown = text(auditor, f"/admin/scheduler/decision/{row.pk}/remedies/")
    assert "Only as far as it is recorded" in shown


def test_any_node_is_answered_for_also_one_that_nobody_asked_about(auditor: Client, history: History) -> None:
    publish_all(rules("data"), make_assignment("all", "team", match={}))
    key = Asking(history).filter(pod(), snapshot(n1="web", n2="ops"))
    history.settle()
    said = text(auditor, f"/admin/scheduler/decision/{key}/change/?why=n2")
    assert "Results for n2 , and what would change them" in said
    assert "Berth wasn't asked about n9" in text(auditor, f"/admin/scheduler/decision/{key}/change/?why=n9")


def test_a_workload_has_its_pods_by_state_where_they_run_its_rules_and_todays_refusals(
    auditor: Client, waiting: str, django_assert_max_num_queries: Any
) -> None:
    assert waiting
    now = datetime.now(UTC)
    named = {"owner_kind": "Job", "owner_name": "night", "pod_namespace": "default", "assignment": "all"}
    make_decision(pod_name="web-2", pod_uid="u2", placed_on="n3", placed_at=now, at=now, **named)
    make_decision(pod_name="web-3", pod_uid="u3", feasible=0, at=now, top_reason="no room", **named)
    PlacedPod.objects.create(uid="u2", namespace="default", name="web-2", node_name="n3", bound_at=now)
    with django_assert_max_num_queries(20):
        shown = text(auditor, "/admin/scheduler/workloads/default/Job/night/")
    assert "1 of its Pods is Pending, 1 is on 1 node, as far as Berth knows." in shown
    assert "1 of 2 answers since midnight UTC allowed no node." in shown
    assert "1 time, mostly because: no room" in shown
    assert "rule set web v1 , by Assignment all" in shown
    assert f"web-2 on n3 since {now:%Y-%m-%d %H:%M:%S} UTC" in shown
    assert auditor.get("/admin/scheduler/workloads/default/Job/nobody/").status_code == 404


def test_rest_says_the_same_in_pages_and_refuses_what_it_does_not_know(auditor: Client, waiting: str) -> None:
    found = auditor.get(REST).json()
    assert (found["total"], found["schedulers"]) == (3, {"default-scheduler": 2, "berth": 1})
    assert (found["held_most_by"]["rule"], found["held_most_by"]["reason"]) == ("", "Insufficient cpu")
    assert [(group["rule"], group["pods"]) for group in found["groups"]] == [("", 2), ("team", 1)]
    mine = auditor.get(f"{REST}?rule=team").json()["pods"]
    assert [(each["name"], each["decision"], each["nodes"]) for each in mine] == [("web-1", waiting, 3)]
    first = auditor.get(f"{REST}?limit=2").json()
    rest = auditor.get(first["next"]).json()
    assert [len(each["pods"]) for each in (first, rest)] == [2, 1]
    assert len({each["uid"] for each in first["pods"] + rest["pods"]}) == 3
    assert rest["next"] is None
    assert auditor.get(rest["previous"]).json()["pods"] == first["pods"]
    owners = auditor.get(f"{REST}?by=owner&limit=0").json()
    assert {(group["kind"], group["name"], group["pods"]) for group in owners["groups"]} == {
        ("", "", 2),
        ("Job", "night", 1),
    }
    for query, faults in (
        ("colour=blue", ["colour"]),
        ("limit=many&by=colour", ["by", "limit"]),
        ("cursor=x", ["cursor"]),
    ):
        refused = auditor.get(f"{REST}?{query}")
        assert refused.status_code == 400
        assert sorted(fault["path"] for fault in refused.json()["faults"]) == faults


def test_a_refused_limit_of_pending_pods_names_the_limits_of_this_list(auditor: Client) -> None:
    (fault,) = auditor.get(f"{REST}?limit=many").json()["faults"]
    assert fault["message"] == "must be a whole number; 0 returns only groups, more than 1000 counts as 1000"


def test_a_pod_that_is_placed_meanwhile_takes_no_other_from_the_next_page(auditor: Client, waiting: str) -> None:
    everybody = [each["uid"] for each in auditor.get(REST).json()["pods"]]
    first = auditor.get(f"{REST}?limit=1").json()
    PendingPod.objects.filter(uid=everybody[0]).delete()
    assert [each["uid"] for each in auditor.get(first["next"]).json()["pods"]] == everybody[1:2]


def test_rest_and_the_command_line_say_what_would_let_a_pod_run(auditor: Client, waiting: str) -> None:
    story = auditor.get("/api/v1/pods/default/web-1").json()
    assert (story["pending"]["rule"], story["pending"]["decision"]) == ("team", waiting)
    said = "Without rule team (“another team”) 3 nodes would be allowed: n1, n2 and n3."
    assert said in story["remedies"]["sentences"]
    out = io.StringIO()
    call_command("explain", "web-1", stdout=out)
    assert f"What would let the Pod run:\n- {said}" in out.getvalue()
    out = io.StringIO()
    call_command("explain", "web-1", "--output", "json", stdout=out)
    assert json.loads(out.getvalue())["remedies"]["rules"] == {"team": ["n1", "n2", "n3"]}


@pytest.mark.parametrize("path", [PAGE, REST, "/admin/scheduler/workloads/a/b/c/", "/admin/scheduler/pods/a/b/"])
def test_who_has_no_role_sees_none_of_it(client: Client, path: str) -> None:
    assert client.get(path).status_code in {302, 401, 403}


def test_looking_at_what_waits_writes_nothing(auditor: Client, waiting: str) -> None:
    before = (Decision.objects.count(), PendingPod.objects.count())
    for path in (PAGE, f"{PAGE}?by=owner", f"/admin/scheduler/decision/{waiting}/remedies/", REST):
        get(auditor, path)
        assert auditor.post(path).status_code in {403, 405}
    assert (Decision.objects.count(), PendingPod.objects.count()) == before


def wake_form(client: Client, path: str) -> dict[str, str] | None:
    """Return what the form that wakes would send; None where the page has none."""
    body = get(client, path).content.decode()
    form = re.search(r'<form method="post" id="wake" action="([^"]+)">(.*?)</form>', body, re.DOTALL)
    if form is None:
        return None
    fields = re.findall(r'<input type="hidden" name="(?!csrf)(\w+)" value="([^"]*)">', form[2])
    return {"action": form[1], **{name: html.unescape(value) for name, value in fields}}


def wake_by(client: Client, path: str) -> str:
    """Press the button that wakes; return what is said then."""
    form = wake_form(client, path)
    assert form is not None
    return text_of(client.post(form.pop("action"), form, follow=True))


def leading(*pods: str) -> BinderState:
    now = datetime.now(UTC)
    queued = [{"uid": uid, "state": "backoff", "until": (now + timedelta(seconds=9)).isoformat()} for uid in pods]
    return BinderState.objects.create(identity="b", process="p", heartbeat_at=now, leads=True, pods=queued)


GROUP = f"{PAGE}?rule=&reason={quote('Insufficient cpu')}"


def test_an_operator_wakes_a_group_and_is_told_which_pods_cannot_be_woken_and_why(
    operator: Client, waiting: str
) -> None:
    assert waiting
    mine = PendingPod.objects.get(name="mine")
    leading(mine.uid)
    assert "Some of them can't be woken: default-scheduler keeps a queue of its own" in text(operator, GROUP)
    page = get(operator, GROUP).content
    assert page.index(b'id="wake"') < page.index(b'id="pending-pods-table"')
    said = wake_by(operator, GROUP)
    assert "1 Pod is retried within a second." in said
    assert "1 can't be woken: default-scheduler keeps a queue of its own" in said
    assert "at once: somebody asked for it" in said
    assert list(Wake.objects.values_list("uid", flat=True)) == [mine.uid]


def test_waking_is_an_act_that_the_audit_trail_has_once_with_what_was_woken(operator: Client, waiting: str) -> None:
    assert waiting
    wake_by(operator, GROUP)
    (event,) = AuditEvent.objects.filter(kind="wake")
    said = said_by(event)
    assert (said.by, said.thing_kind, said.thing_name) == (
        "operator",
        "Pods",
        "rule none, reason Insufficient cpu",
    )
    assert said.more == {"pods": 1, "first": ["default/mine"]}
    assert sentence_of(event, said.more) == "operator had Pods rule none, reason Insufficient cpu retried at once"


def test_a_pod_is_woken_from_its_own_page(operator: Client, waiting: str) -> None:
    assert waiting
    said = wake_by(operator, "/admin/scheduler/pods/default/mine/")
    assert "1 Pod is retried as soon as a scheduler becomes leader: there is none now, see Queue." in said
    assert "Next attempt: at once: somebody asked for it" in said


def test_a_pod_of_kube_scheduler_has_no_such_button_and_its_page_says_why(operator: Client, waiting: str) -> None:
    assert waiting
    path = "/admin/scheduler/pods/default/web-1/"
    assert wake_form(operator, path) is None
    assert "It can't be woken: default-scheduler keeps a queue of its own" in text(operator, path)
    assert "None of them can't be woken" not in text(operator, f"{PAGE}?rule=team")
    uid = PendingPod.objects.get(name="web-1").uid
    said = text_of(operator.post(f"{path}wake/", {"uid": uid}, follow=True))
    assert "1 can't be woken: default-scheduler keeps a queue of its own" in said


def test_a_gated_pod_can_not_be_woken_for_its_gates_whoever_schedules_it(operator: Client, waiting: str) -> None:
    assert waiting
    PendingPod.objects.filter(name="web-1").update(condition=GATED)
    said = text(operator, "/admin/scheduler/pods/default/web-1/")
    assert "It can't be woken: scheduling gates keep it back until whoever set them takes them off." in said
    assert "keeps a queue of its own" not in said
    assert not Wake.objects.exists()
    assert not AuditEvent.objects.filter(kind="wake").exists()


def test_a_gated_pod_is_not_woken(operator: Client) -> None:
    cluster = Cluster()
    uid = cluster.add("gated", "Scheduling is blocked due to non-empty scheduling gates", scheduler="berth", at=AT)
    cluster.pods[uid]["status"]["conditions"][0]["reason"] = "SchedulingGated"
    cluster.follow(datetime.now(UTC))
    path = "/admin/scheduler/pods/default/gated/"
    assert wake_form(operator, path) is None
    assert "scheduling gates keep it back" in text(operator, path)


@pytest.mark.parametrize("role", ["auditor", "approver"])
def test_who_may_not_wake_has_no_button_and_is_refused(role: str, waiting: str, request: pytest.FixtureRequest) -> None:
    assert waiting
    client = request.getfixturevalue(role)
    assert wake_form(client, GROUP) is None
    assert client.post(f"{PAGE}wake/", {"rule": ""}).status_code == 403
    assert client.post("/admin/scheduler/pods/default/mine/wake/", {}).status_code == 403
    assert not Wake.objects.exists()


def test_pods_that_are_placed_by_now_are_nothing_to_wake(operator: Client) -> None:
    said = text_of(operator.post(f"{PAGE}wake/", {"rule": "team"}, follow=True))
    assert "Nothing to wake: none of these Pods is still Pending." in said
