"""What waits for Berth's own scheduler, in the admin and by REST."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from scheduler.models import BinderState

pytestmark = pytest.mark.django_db
PAGE = "/admin/scheduler/queue/"


def state(**fields: Any) -> BinderState:
    now = datetime.now(UTC)
    waiting = {
        "namespace": "shop",
        "name": "web-1",
        "uid": "u1",
        "scheduler": "berth",
        "priority": 7,
        "state": "backoff",
        "attempts": 3,
        "since": (now - timedelta(minutes=5)).isoformat(),
        "until": (now + timedelta(hours=9)).isoformat(),
        "nominated": "n7",
        "message": "0/3 nodes are available: 3 Insufficient cpu.",
    }
    made = {
        "identity": "berth-binder@h:1",
        "process": "binder@h:1:1",
        # Ahead: a machine that is busy may take longer for the page than a process may be silent.
        "heartbeat_at": now + timedelta(minutes=5),
        "leads": True,
        "holder": "berth-binder@h:1",
        "scheduler_names": ["berth"],
        "counts": {"active": 0, "backoff": 4},
        "pods": [waiting],
    }
    return BinderState.objects.create(**(made | fields))


def text(client: Client) -> str:
    answer = client.get(PAGE)
    assert answer.status_code == 200
    return answer.content.decode()


def test_one_more_pod_that_waits_is_one_and_of_many_each_thousand_is_marked(auditor: Client) -> None:
    for number, words in ((1, "1 more is waiting."), (4000, "4,000 more are waiting.")):
        BinderState.objects.all().delete()
        state(counts={"backoff": number + 1})
        assert words in text(auditor)


def test_the_page_shows_each_pod_that_waits_with_its_state_reason_and_nominated_node(auditor: Client) -> None:
    state()

    shown = text(auditor)

    assert "shop/web-1" in shown
    assert "backoff, retry in 8 h" in shown
    assert "0/3 nodes are available: 3 Insufficient cpu." in shown
    assert 'href="/admin/scheduler/nodes/n7/">n7</a>' in shown
    assert "3 more are waiting." in shown
    assert "berth-binder@h:1 schedules the Pods of berth" in shown
    # On a phone each number says what it counts.
    assert '<td data-label="overcommits found">' in shown


def test_the_page_says_when_time_alone_may_let_a_pod_pass(auditor: Client) -> None:
    now = datetime.now(UTC)
    pod = {
        **state().pods[0],
        "state": "unschedulable",
        "until": None,
        "opens_at": (now + timedelta(hours=9)).isoformat(),
    }
    BinderState.objects.update(pods=[pod])
    assert "unschedulable, time alone may let it pass in 8 h" in text(auditor)


def test_the_page_says_when_nobody_schedules(auditor: Client) -> None:
    state(leads=False, holder="someone-else")

    shown = text(auditor)

    assert "No scheduler is active" in shown
    assert "on standby; the Lease is held by someone-else" in shown


def test_a_leader_that_is_silent_counts_as_none(auditor: Client) -> None:
    state(heartbeat_at=datetime.now(UTC) - timedelta(minutes=1))

    shown = text(auditor)

    assert "No scheduler is active" in shown
    assert "last heartbeat 1 min ago" in shown


def test_the_page_names_overcommitted_nodes(auditor: Client) -> None:
    state(overcommitted=["n1", "n2"], overcommits=5)

    assert "n1, n2. Another scheduler bound Pods to the same nodes" in text(auditor)


def test_nobody_sees_the_queue_without_an_account(client: Client) -> None:
    assert client.get(PAGE).status_code == 302


def test_rest_gives_the_queue_of_the_one_that_leads_first(operator: Client, client: Client) -> None:
    state(identity="b", leads=False, pods=[])
    state(identity="a")

    answer = operator.get("/api/v1/scheduler/queue").json()

    assert [(row["identity"], row["leads"]) for row in answer["results"]] == [("a", True), ("b", False)]
    assert answer["results"][0]["pods"][0]["name"] == "web-1"
    assert operator.get("/api/v1/scheduler/queue/b").json()["pods"] == []
