"""Which Pods have no node, and what holds each, as a worker keeps it."""

from datetime import datetime
from typing import Any

import pytest
from django.db import OperationalError

from scheduler.cluster.errors import error_of_answer
from scheduler.models import PendingLook, PendingPod
from scheduler.pending import following
from scheduler.pending.following import Follower
from scheduler.pending.listing import pending, summary_of_pending
from tests.builders import make_assignment
from tests.component.decisions.test_story import AT, Asking, pod, rules, snapshot
from tests.component.pages import publish_all
from tests.component.pending.cluster import NOON, Cluster
from tests.recording import History, outcome_of

pytestmark = pytest.mark.django_db


def test_pods_of_every_scheduler_are_kept_as_long_as_they_wait() -> None:
    cluster = Cluster()
    cluster.add("a", "0/3 nodes are available: 3 Insufficient cpu.")
    other = cluster.add("b", scheduler="berth", job="night")
    rows = cluster.follow()
    assert {name: (row.scheduler_name, row.reason) for name, row in rows.items()} == {
        "a": ("default-scheduler", "Insufficient cpu"),
        "b": ("berth", "no scheduler has tried it yet"),
    }
    assert (rows["b"].owner_kind, rows["b"].owner_name) == ("Job", "night")
    del cluster.pods[other]
    cluster.add("a", "0/3 nodes are available: 3 Insufficient memory.")
    rows = cluster.follow()
    assert {name: row.reason for name, row in rows.items()} == {"a": "Insufficient memory"}


def test_a_pod_with_texts_that_no_database_stores_keeps_the_others_none_the_less() -> None:
    cluster = Cluster()
    cluster.add("a", "0/3 nodes are available: 3 Insufficient cpu.")
    cluster.add("b", scheduler="night\0shift")
    cluster.add("c", scheduler="s" * 9_000, job="j\0ob")
    rows = cluster.follow()
    assert {name: row.scheduler_name for name, row in rows.items()} == {
        "a": "default-scheduler",
        "b": "nightshift",
        "c": "s" * 253,
    }
    assert rows["c"].owner_name == "job"


def test_berths_rule_is_named_by_the_newest_decision_and_a_later_one_takes_its_place(history: History) -> None:
    publish_all(rules("data"), make_assignment("all", "team", match={}))
    asking, cluster = Asking(history), Cluster()
    asked = pod()
    first = asking.filter(asked, snapshot(n1="web", n2="ops"))
    history.settle()
    cluster.add("web-1", "0/2 nodes are available: 2 another team.", uid="u1", at=AT)
    row = cluster.follow()["web-1"]
    assert (str(row.decision), row.rule, row.reason) == (first, "team", "another team")
    assert (row.nodes, row.feasible, row.rule_set, row.assignment) == (2, 0, "team", "all")
    second = asking.filter(asked, snapshot(n1="web", n2="ops", n3="web"))
    history.settle()
    row = cluster.follow()["web-1"]
    assert (str(row.decision), row.nodes) == (second, 3)


def test_a_pod_whose_outcome_was_seen_since_does_not_count(history: History) -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.add(name, "0/1 nodes are available: 1 x.")
    cluster.follow()
    history.recorder.record_outcome(outcome_of("a", "n1", NOON))
    history.settle()
    assert [row.name for row in pending()] == ["b"]
    assert summary_of_pending(NOON).total == 1


def test_while_the_api_server_is_away_what_was_known_stays_and_pages_can_say_so() -> None:
    cluster = Cluster()
    cluster.add("a")
    cluster.follow()
    cluster.away = True
    cluster.pods.clear()
    assert list(cluster.follow()) == ["a"]
    look = PendingLook.objects.get()
    assert "connection refused" in look.fault
    assert look.looked_at is not None
    cluster.away = False
    assert cluster.follow() == {}
    assert PendingLook.objects.get().fault == ""


def test_a_follower_rests_after_a_fault() -> None:
    cluster = Cluster()
    follower = Follower(cluster)  # type: ignore[arg-type]
    cluster.away = True
    assert follower.look() == 0
    cluster.away = False
    cluster.add("a")
    assert follower.look() == 0
    assert not PendingPod.objects.exists()


def test_what_waits_unchanged_costs_the_same_however_much_it_is(django_assert_max_num_queries: Any) -> None:
    cluster = Cluster()
    for number in range(300):
        cluster.add(f"p{number}", "0/1 nodes are available: 1 x.")
    cluster.follow()
    with django_assert_max_num_queries(10):
        cluster.follow()


def test_of_very_many_changes_in_one_look_none_is_forgotten(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_READ", 1)
    publish_all(rules("data"), make_assignment("all", "team", match={}))
    asking, cluster = Asking(history), Cluster()
    for name in ("a", "b", "c"):
        asking.filter(pod(uid=name), snapshot(n1="web", n2="ops"))
        cluster.add(name, "0/2 nodes are available: 2 another team.", uid=name, at=AT)
    history.settle()
    for _ in range(3):
        cluster.follow()
    assert {row.rule for row in cluster.follow().values()} == {"team"}
    for name in ("a", "b", "c"):
        cluster.add(name, "0/2 nodes are available: 2 Insufficient cpu.", uid=name, at=AT)
    for _ in range(3):
        rows = cluster.follow()
    assert {name: row.reason for name, row in rows.items()} == dict.fromkeys("abc", "Insufficient cpu")


def test_pods_without_decisions_are_up_to_date_after_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_READ", 1)
    cluster = Cluster()
    for name in ("a", "b", "c"):
        cluster.add(name)
    cluster.follow()
    for name in ("a", "b", "c"):
        cluster.add(name, "0/2 nodes are available: 2 Insufficient cpu.")
    rows = cluster.follow()
    assert {name: row.reason for name, row in rows.items()} == dict.fromkeys("abc", "Insufficient cpu")


def test_pods_that_are_tried_all_the_time_do_not_keep_others_from_being_read(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST_READ", 1)
    publish_all(rules("data"), make_assignment("all", "team", match={}))
    asking, cluster = Asking(history), Cluster()
    for name in ("a", "b"):
        cluster.add(name, uid=name, at=AT)
    for _ in range(3):
        for name in ("a", "b"):
            asking.filter(pod(uid=name), snapshot(n1="web", n2="ops"))
        history.settle()
        rows = cluster.follow()
    assert all(row.rule == "team" for row in rows.values())


def test_a_look_that_ends_before_its_decisions_are_read_is_made_up_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.add("a")
    cluster.follow()
    cluster.add("a", "0/2 nodes are available: 2 Insufficient cpu.")
    with monkeypatch.context() as patched:
        patched.setattr(following, "_newest", _ends)
        with pytest.raises(OperationalError):
            cluster.follow()
    assert cluster.follow()["a"].reason == "Insufficient cpu"


def _ends(_since: datetime | None) -> dict[str, None]:
    message = "terminating connection"
    raise OperationalError(message)


def test_a_fault_with_bytes_that_no_database_stores_is_kept_without_them() -> None:
    cluster = Cluster()
    cluster.fault = error_of_answer(status=502, body=b"\x1f\x8b\x08\0\0\0", retry_after=None, context="GET /x")
    cluster.away = True
    cluster.follow()
    assert PendingLook.objects.get().fault.startswith("GET /x: 502 :")
