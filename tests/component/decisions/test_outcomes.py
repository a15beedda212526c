"""Where Pods went that nobody saw: found by asking the API server, of which a stand-in in memory answers here."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from scheduler.admin.decision_page import outcome_of
from scheduler.cluster.errors import APINotFoundError, APIUnavailableError
from scheduler.decisions import outcomes
from scheduler.decisions.outcomes import AWAY_SECONDS, MOST_READ, OLD, REST_FACTOR, YOUNG, Finder, open_pods
from scheduler.decisions.record import read_outcome
from scheduler.decisions.storing import note_outcomes
from scheduler.models import Decision
from scheduler.models import Outcome as OutcomeRow
from tests.many_decisions import analyze, fill
from tests.plans import indexes_of
from tests.recording import outcome_of as outcome_of_pod

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
LATER = NOON + timedelta(minutes=1)


class Cluster:
    """What a Finder asks of the API server. `pods`: by namespace and name, each with UID and node."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], tuple[str, str]] = {}
        self.annotations: dict[str, dict[str, str]] = {}
        self.scheduler = "default-scheduler"
        self.asked: list[str] = []
        self.listed = self.listed_whole = 0
        self.fails_after: int | None = None

    def put(self, name: str, *, node: str = "", uid: str = "", namespace: str = "default") -> None:
        self.pods[namespace, name] = (uid or f"uid-{name}", node)

    def annotate(self, name: str, decision: str) -> None:
        self.annotations[name] = {"berth/decision": decision}

    def list_pages(self, *, path: str, query: Mapping[str, str] | None = None) -> Iterator[bytes]:
        assert (path, query) in (("/api/v1/pods", None), ("/api/v1/pods", {"fieldSelector": "spec.nodeName="}))
        self.listed += query is not None
        self.listed_whole += query is None
        found = [self._pod(*key) for key, (_, node) in self.pods.items() if query is None or not node]
        for start in range(0, len(found) + 1, 2):  # pages of two
            if query is None and self.fails_after is not None and start >= self.fails_after:
                raise APIUnavailableError("connection refused")
            yield msgspec.json.encode({"metadata": {}, "items": found[start : start + 2]})

    def get(self, *, path: str) -> bytes:
        self.asked.append(path)
        if self.fails_after is not None and len(self.asked) > self.fails_after:
            raise APIUnavailableError("connection refused")
        _, _, _, _, namespace, _, name = path.split("/")
        if (namespace, name) not in self.pods:
            raise APINotFoundError(path)
        return msgspec.json.encode(self._pod(namespace, name))

    def _pod(self, namespace: str, name: str) -> Any:
        uid, node = self.pods[namespace, name]
        metadata = {"uid": uid, "annotations": self.annotations.get(name)}
        spec = {"schedulerName": self.scheduler} | ({"nodeName": node} if node else {})
        return {"metadata": metadata, "spec": spec}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def look(cluster: Cluster, now: datetime = LATER) -> int:
    """Look, and once more when what no longer waited at the first look is left to nobody else any more."""
    client: Any = cluster
    finder, seconds = Finder(client, clock=lambda: now), [0.0]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(outcomes.time, "monotonic", lambda: seconds[0])
        assert finder.look() == 0
        seconds[0] += YOUNG.total_seconds()
        return finder.look()


def decide(name: str, *, at: datetime = NOON, **fields: Any) -> Decision:
    common: dict[str, Any] = {"verb": "filter", "pod_namespace": "default", "pod_uid": f"uid-{name}", "revision": 1}
    number = Decision.objects.count() + 1
    return Decision.objects.create(at=at, process="p", sequence=number, pod_name=name, **common | fields)


def outcome(name: str) -> set[tuple[str, datetime | None]]:
    return set(Decision.objects.filter(pod_uid=f"uid-{name}").values_list("placed_on", "placed_at"))


OPEN = {("", None)}


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind", "schedule"])
def test_a_pod_that_was_bound_while_nobody_watched_has_its_node(cluster: Cluster, verb: str) -> None:
    decide("web", verb=verb)
    cluster.put("web", node="n1")
    assert look(cluster) == 1
    assert outcome("web") == {("n1", LATER)}


def test_what_is_found_is_a_record_with_the_decision_that_the_binding_names_where_it_is_about_this_pod(
    cluster: Cluster,
) -> None:
    own, other = decide("own", verb="bind"), decide("other")
    for name in ("own", "other", "copy"):
        cluster.put(name, node="n1")
    decide("copy")
    cluster.annotate("own", str(own.pk))
    cluster.annotate("copy", str(other.pk))
    decide("gone")
    assert look(cluster) == 4
    rows = {row.pod_name: row for row in OutcomeRow.objects.all()}
    assert {name: (row.kind, row.node_name, row.decision) for name, row in rows.items()} == {
        "own": ("bound", "n1", own.pk),
        "other": ("bound", "n1", None),
        "copy": ("bound", "n1", None),
        "gone": ("gone", "", None),
    }
    found = read_outcome(bytes(rows["own"].body))
    assert (found.pod_uid, found.by, found.at) == ("uid-own", "default-scheduler", LATER)
    assert (rows["own"].sequence, rows["own"].process[:7]) == (0, "worker@")


def test_a_pod_whose_schedulers_name_holds_what_no_database_takes_has_its_outcome(cluster: Cluster) -> None:
    decide("web")
    cluster.put("web", node="n1")
    cluster.scheduler = "mine\0"
    assert look(cluster) == 1
    assert [row.by for row in OutcomeRow.objects.all()] == ["mine"]


def test_every_decision_about_the_pod_has_it_and_no_other(cluster: Cluster) -> None:
    for verb in ("filter", "prioritize"):
        decide("web", verb=verb)
    decide("db")
    cluster.put("web", node="n1")
    cluster.put("db")
    assert look(cluster) == 1
    assert outcome("web") == {("n1", LATER)}
    assert outcome("db") == OPEN


def test_a_pod_that_waits_stays_open_and_is_not_read_by_itself(cluster: Cluster) -> None:
    for number in range(5):
        decide(f"web-{number}")
        cluster.put(f"web-{number}")
    assert look(cluster) == 0
    assert cluster.asked == []
    assert set(Decision.objects.values_list("placed_on", "placed_at")) == OPEN


def test_of_a_pod_that_is_gone_nothing_is_guessed(cluster: Cluster) -> None:
    decision = decide("web")
    assert look(cluster) == 1
    assert outcome("web") == {("", LATER)}
    decision.refresh_from_db()
    assert outcome_of(decision) == "the Pod is gone and was never seen on a node; noticed 2026-05-01 12:01:00 UTC"


def test_a_pod_made_again_under_the_same_name_is_another_one(cluster: Cluster) -> None:
    decide("web")
    cluster.put("web", node="n2", uid="uid-of-the-next")
    assert look(cluster) == 1
    assert outcome("web") == {("", LATER)}


def test_both_pods_of_a_name_have_what_became_of_each(cluster: Cluster) -> None:
    decide("web")
    decide("web", pod_uid="uid-of-the-next")
    cluster.put("web", node="n2", uid="uid-of-the-next")
    assert look(cluster) == 2
    assert outcome("web") == {("", LATER)}
    assert outcome("of-the-next") == {("n2", LATER)}


@pytest.mark.parametrize("given", ["", "..", "a/b", "UPPER", "a b"])
@pytest.mark.parametrize("field", ["pod_namespace", "pod_name"])
def test_a_name_that_no_pod_has_is_never_asked_for(cluster: Cluster, field: str, given: str) -> None:
    row = decide("web")
    Decision.objects.filter(pk=row.pk).update(**{field: given})
    assert look(cluster) == 1
    assert cluster.asked == []
    assert outcome("web") == {("", LATER)}


def test_what_was_decided_before_the_clock_was_set_back_is_looked_for_at_once(cluster: Cluster) -> None:
    decide("tomorrow", at=LATER + timedelta(days=1))
    decide("soon", at=LATER + YOUNG + timedelta(seconds=1))
    # A clock of another machine may be ahead by so much: it may still be about to be bound.
    decide("now", at=LATER + YOUNG)
    assert sorted(pod.name for pod in open_pods(LATER)) == ["soon", "tomorrow"]


def test_what_is_young_is_left_to_who_answered_and_what_is_old_is_left(cluster: Cluster) -> None:
    decide("young", at=LATER - YOUNG + timedelta(seconds=1))
    decide("old", at=LATER - OLD - timedelta(seconds=1))
    decide("ripe", at=LATER - YOUNG)
    assert [pod.name for pod in open_pods(LATER)] == ["ripe"]


@pytest.mark.parametrize("node", ["n1", ""])
def test_what_became_of_a_pod_that_waited_for_long_is_left_to_who_saw_it_for_as_long(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    """The first record of an event is kept: this one wouldn't name the Decision, which is in transit, or say that nobody saw the end."""
    client: Any = cluster
    finder, seconds = Finder(client, clock=lambda: LATER), [0.0]
    monkeypatch.setattr(outcomes.time, "monotonic", lambda: seconds[0])
    decide("web", at=LATER - timedelta(minutes=5))
    cluster.put("web")
    assert finder.look() == 0
    seconds[0] = 100.0
    cluster.pods.clear()
    if node:
        cluster.put("web", node=node)
    for passed in (0.0, 2.0, YOUNG.total_seconds() - 0.1):
        seconds[0] = 100.0 + passed
        assert (finder.look(), cluster.asked) == (0, [])
    seconds[0] = 100.0 + YOUNG.total_seconds()
    assert finder.look() == 1
    assert outcome("web") == {(node, LATER)}


def test_nothing_is_asked_of_the_api_server_while_no_outcome_is_open(cluster: Cluster) -> None:
    decide("web", placed_on="n1", placed_at=NOON)
    decide("gone", placed_at=NOON)
    assert look(cluster) == 0
    assert cluster.listed == 0


def test_a_decision_of_a_process_whose_clock_lags_by_a_day_is_looked_after(cluster: Cluster) -> None:
    decide("web", at=LATER - timedelta(days=1) - YOUNG)
    cluster.put("web", node="n1")
    assert look(cluster) == 1
    assert outcome("web") == {("n1", LATER)}


def test_a_second_look_finds_nothing_more(cluster: Cluster) -> None:
    decide("web")
    cluster.put("web", node="n1")
    assert [look(cluster), look(cluster, LATER + timedelta(hours=1))] == [1, 0]
    assert outcome("web") == {("n1", LATER)}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "MOST_READ", 3)
    monkeypatch.setattr(outcomes, "MOST_STORED", 2)


@pytest.mark.usefixtures("few")
def test_of_more_pods_than_are_read_one_by_one_a_list_of_all_says_at_once_what_became(cluster: Cluster) -> None:
    own = decide("own", verb="bind")
    cluster.put("own", node="n1")
    cluster.annotate("own", str(own.pk))
    for number in range(5):
        decide(f"never-was-{number}")
    decide("waits")
    cluster.put("waits")
    decide("again")
    cluster.put("again", node="n2", uid="another")
    assert (look(cluster), look(cluster)) == (7, 0)
    assert (cluster.asked, cluster.listed_whole) == ([], 1)
    assert outcome("own") == {("n1", LATER)}
    assert outcome("waits") == OPEN
    rows = OutcomeRow.objects.values_list("pod_name", "kind", "decision")
    assert set(rows) == {
        ("own", "bound", own.pk),
        ("again", "gone", None),
        *((f"never-was-{number}", "gone", None) for number in range(5)),
    }


@pytest.mark.usefixtures("few")
def test_a_list_that_ends_in_the_middle_says_nothing_of_any_pod(cluster: Cluster) -> None:
    for number in range(5):
        decide(f"web-{number}")
        cluster.put(f"web-{number}", node="n1")
    cluster.fails_after = 2
    assert look(cluster) == 0
    assert set(Decision.objects.values_list("placed_on", "placed_at")) == OPEN
    cluster.fails_after = None
    assert look(cluster) == 5


def test_whose_decisions_bindings_name_is_asked_once_for_all_of_them(cluster: Cluster) -> None:
    def asked(count: int, prefix: str) -> int:
        for number in range(count):
            name = f"{prefix}-{number}"
            cluster.put(name, node="n1")
            cluster.annotate(name, str(decide(name, verb="bind").pk))
        with CaptureQueriesContext(connection) as queries:
            assert look(cluster) == count
        return sum(each["sql"].startswith("SELECT") for each in queries)

    asked(1, "first")  # which begins the log
    assert asked(1, "one") == asked(20, "many")


def test_five_hundred_pods_are_read_one_by_one() -> None:
    assert MOST_READ == 500


def test_pods_that_wait_take_no_part_of_that_number(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcomes, "MOST_READ", 2)
    for number in range(9):
        decide(f"waits-{number}")
        cluster.put(f"waits-{number}")
    for number in range(2):
        decide(f"bound-{number}")
        cluster.put(f"bound-{number}", node="n1")
    assert look(cluster) == 2
    assert (len(cluster.asked), cluster.listed_whole) == (2, 0)


def test_what_was_found_before_the_api_server_went_away_is_kept(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b", "c"):
        decide(name)
        cluster.put(name, node="n1")
    cluster.fails_after = 1
    assert look(cluster) == 1
    assert "outcomes of Pods can't be looked up yet: connection refused" in caplog.text
    cluster.fails_after = None
    assert look(cluster) == 2
    assert set(Decision.objects.values_list("placed_on", flat=True)) == {"n1"}


def test_an_api_server_that_is_away_is_left_alone_for_a_while(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = cluster
    finder, seconds = Finder(client, clock=lambda: LATER), [0.0]
    monkeypatch.setattr(outcomes.time, "monotonic", lambda: seconds[0])
    decide("web")
    cluster.put("web", node="n1")
    assert (finder.look(), cluster.listed) == (0, 1)
    cluster.fails_after = 0
    seconds[0] = ripe = YOUNG.total_seconds()
    assert (finder.look(), cluster.listed) == (0, 2)
    cluster.fails_after = None
    seconds[0] = ripe + AWAY_SECONDS - 1
    assert (finder.look(), cluster.listed) == (0, 2)
    seconds[0] = ripe + AWAY_SECONDS
    assert (finder.look(), cluster.listed) == (1, 3)


def test_a_look_that_took_long_is_followed_by_a_rest_of_several_times_that(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = cluster
    finder, seconds = Finder(client, clock=lambda: LATER), [100.0]
    monkeypatch.setattr(outcomes.time, "monotonic", lambda: seconds[0])
    listing = cluster.list_pages

    def slow(**asked: Any) -> Iterator[bytes]:
        seconds[0] += 3.0
        return listing(**asked)

    monkeypatch.setattr(cluster, "list_pages", slow)
    decide("web")
    cluster.put("web")
    assert (finder.look(), cluster.listed) == (0, 1)
    seconds[0] = 103.0 + REST_FACTOR * 3.0 - 0.1
    assert (finder.look(), cluster.listed) == (0, 1)
    seconds[0] += 0.2
    assert (finder.look(), cluster.listed) == (0, 2)


def test_a_node_that_was_seen_is_not_taken_back_when_the_pod_is_gone() -> None:
    decide("web", placed_on="n1", placed_at=NOON, placed_best=True)
    note_outcomes([outcome_of_pod("web", "", LATER, kind="gone")])
    assert list(Decision.objects.values_list("placed_on", "placed_at", "placed_best")) == [("n1", NOON, True)]


def test_a_node_that_comes_late_takes_the_place_of_gone() -> None:
    decide("web", placed_at=NOON)
    note_outcomes([outcome_of_pod("web", "n1", LATER)])
    assert outcome("web") == {("n1", LATER)}


def test_the_open_ones_are_found_by_an_index_of_them_alone() -> None:
    decide("web")
    if connection.vendor == "postgresql":
        # Among a few rows the planner takes any index.
        fill(1, 5_000, rows=5_000, until=NOON, days=0.01, body_bytes=100)
        analyze()
    rows = Decision.objects.filter(placed_at=None, at__gt=NOON - OLD, at__lte=NOON).order_by()
    plan = rows.values_list("pod_uid", "pod_namespace", "pod_name").distinct().explain()
    assert any(name in plan for name in indexes_of("decision_open"))
