"""With a database of its own for reading, pages and REST ask that one for the history, and write nothing there."""

import copy
import re
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.conf import settings
from django.db import OperationalError, connection, connections
from django.test import Client

from policies.models import Revision, RuleSetVersion
from scheduler.decisions import replica
from scheduler.decisions.record import Outcome
from scheduler.doctor import checkup
from scheduler.models import Decision
from tests.admin_pages import paths
from tests.component.decisions.test_story import AT, asking, pod, rules, snapshot
from tests.component.pages import publish_all, text_of
from tests.conftest import HTTPSClient

__all__ = ["asking"]

pytestmark = pytest.mark.django_db

# Tables that grow with each Pod: what pages show of them comes from the replica.
_HISTORY = re.compile(r"\"?scheduler_(decision|outcome|snapshotpart|nodenames)\b")
_TOLD = ("/change/", "/pods/default/web-1/", "/nodes/n1/", "/Job/night/")
# What holds a Pod now is joined to its end, where it has one.
_NOW = "scheduler_pendingpod"
# Who asks about the machine's own room, the ledger's proof of a row, or how the pruning stands, asks the database itself.
_OWN = ("/admin/scheduler/storage/", "/admin/scheduler/ledger/", "/admin/scheduler/doctor/")
_READS = ("SELECT", "SAVEPOINT", "RELEASE", "SET ", "PRAGMA", "EXPLAIN")


class Sides:
    """What each of the two databases was asked."""

    def __init__(self) -> None:
        self.primary: list[str] = []
        self.replica: list[str] = []

    def note(self, asked: list[str]) -> Any:
        def wrapper(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
            asked.append(sql)
            return execute(sql, params, many, context)

        return wrapper

    @property
    def strays(self) -> list[str]:
        """Reads of the history from the primary, and writes to the replica."""
        found = [sql[:200] for sql in self.primary if _HISTORY.search(sql) and _NOW not in sql]
        return found + [sql[:200] for sql in self.replica if not sql.lstrip(" (\n").upper().startswith(_READS)]


@pytest.fixture
def sides(monkeypatch: pytest.MonkeyPatch, django_db_blocker: Any) -> Iterator[Sides]:
    """Two aliases of one connection, so that both see what the test has stored, and each notes what it is asked."""
    replica = copy.copy(connection._connections[connection._alias])
    replica.alias, replica.execute_wrappers = "replica", []
    monkeypatch.setattr(settings, "HISTORY_DATABASE", "replica")
    monkeypatch.setitem(connections.settings, "replica", connection.settings_dict)
    connections["replica"] = replica
    made = Sides()
    with ExitStack() as stack:
        stack.enter_context(connection.execute_wrapper(made.note(made.primary)))
        stack.enter_context(replica.execute_wrapper(made.note(made.replica)))
        yield made
    del connections["replica"]


@pytest.fixture
def story(history: Any, asking: Any) -> list[Decision]:
    """A Pod that was refused, then let through by other rules, and its end."""
    asking.filter(pod(), snapshot(n1="web", n2="web"))
    publish_all(rules("web"))
    asking.filter(pod(), snapshot(n1="web", n2="web", n3="data"))
    asking.bind(pod())
    history.recorder.record_outcome(
        Outcome(pod_uid="u1", pod_namespace="default", pod_name="web-1", node_name="n1", at=AT)
    )
    history.settle()
    return list(Decision.objects.filter(verb="filter").order_by("at"))


def pieces(found: list[Decision]) -> list[str]:
    """Return pages, pieces of pages and REST's paths that tell about Decisions."""
    before, after = (row.pk for row in found)
    decision = f"/admin/scheduler/decision/{after}"
    return [
        *(f"{decision}/{piece}/" for piece in ("change", f"beside/{before}", "nodes", "raw", "remedies", "shadows")),
        f"/admin/scheduler/difference/{before}/{after}/", "/admin/scheduler/pods/default/web-1/",
        "/admin/scheduler/nodes/n1/", "/admin/scheduler/workloads/default/Job/night/",
        "/admin/scheduler/decision/?rule_set=team", "/admin/scheduler/decision/?group=rule", "/admin/scheduler/decision/?q=web",
        "/admin/scheduler/decision/?publisher=operator", "/admin/search/?q=web-1", "/admin/scheduler/shadows/",
        "/api/v1/decisions", "/api/v1/decisions?owner=night&verb=filter", f"/api/v1/decisions/{after}", "/api/v1/status",
        "/api/v1/pods/default/web-1",
    ]  # fmt: skip


def test_the_history_is_read_from_the_replica_alone(superuser: Client, sides: Sides, story: list[Decision]) -> None:
    asked = {**paths(), **{path: path for path in pieces(story)}}
    strays: dict[str, list[str]] = {}
    answers: dict[str, int] = {}
    for name, path in asked.items():
        if path.startswith(_OWN):
            continue
        sides.primary.clear()
        sides.replica.clear()
        answers[name] = superuser.get(path).status_code
        if sides.strays:
            strays[name] = sides.strays
    assert strays == {}
    assert sum(code == 200 for code in answers.values()) > 60


def test_a_replay_from_a_page_reads_the_replica_and_writes_nothing_there(
    superuser: Client, sides: Sides, story: list[Decision]
) -> None:
    sides.primary.clear()
    answer = superuser.post(f"/admin/scheduler/decision/{story[1].pk}/replay/")
    assert answer.status_code == 200
    assert sides.strays == []


@pytest.fixture
def superuser(django_user_model: Any) -> Client:
    client = HTTPSClient()
    client.force_login(django_user_model.objects.create_superuser("root"))
    return client


@pytest.fixture
def away(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take the replica away."""

    def refuse(*_: Any) -> None:
        raise OperationalError("connection failed")

    monkeypatch.setattr(connections["replica"], "is_usable", lambda: False)
    with connections["replica"].execute_wrapper(refuse):
        yield


@pytest.mark.usefixtures("story", "away")
def test_pages_that_say_more_than_the_history_say_the_rest_while_the_replica_is_away(superuser: Client) -> None:
    version, revision = RuleSetVersion.objects.latest("pk"), Revision.objects.latest("pk")
    said = "can't be reached"
    pages = {
        "/admin/": "Published rule sets",
        "/admin/policies/ruleset/": "team",
        "/admin/policies/assignment/": "team",
        f"/admin/policies/rulesetversion/{version.pk}/change/": "node",
        f"/admin/policies/revision/{revision.pk}/change/": "Processes that serve it",
    }
    for path, rest in pages.items():
        text = text_of(superuser.get(path))
        assert said in text, path
        assert rest in text, path
    rule_set = superuser.get(f"/admin/policies/ruleset/{version.rule_set.pk}/change/")
    assert (rule_set.status_code, "refused nodes in" in text_of(rule_set)) == (200, False)


def test_a_replica_that_is_away_is_named_and_what_needs_it_not_is_answered(
    superuser: Client, sides: Sides, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OperationalError("connection failed")

    superuser.raise_request_exception = False
    replica = connections["replica"]
    is_usable = True
    monkeypatch.setattr(replica, "is_usable", lambda: is_usable)
    with replica.execute_wrapper(refuse):
        assert (
            superuser.get("/admin/scheduler/decision/").status_code == 500
        )  # it is there, and something else is wrong
        is_usable = False
        for path in ("/admin/scheduler/decision/", "/api/v1/decisions"):
            answer = superuser.get(path)
            assert answer.status_code == 503
            assert "BERTH_HISTORY_DATABASE_URL" in answer.content.decode()
        assert superuser.get("/admin/policies/audit/").status_code == 200
    assert sides.strays == []


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no replicas")
@pytest.mark.parametrize(("seconds", "said"), [("75.0", True), ("3.0", False), ("NULL", False)])
def test_a_replica_that_is_far_behind_is_said_to_be_so_where_it_is_read_and_by_doctor(
    superuser: Client, sides: Sides, story: list[Decision], monkeypatch: pytest.MonkeyPatch, seconds: str, said: bool
) -> None:
    monkeypatch.setattr(replica, "_BEHIND", f"SELECT {seconds}::float8")
    pages = ("/admin/", "/admin/scheduler/decision/", *(path for path in pieces(story) if path.endswith(_TOLD)))
    assert len(pages) == 6
    for page in pages:
        assert ("is 1 min behind" in text_of(superuser.get(page))) is said, page
    told = [part.says for part in checkup.check(quick=True).parts if part.name == "replica"]
    assert told == ["is 1 min behind" if said else "pages read the history from it"]
    assert sides.replica


def test_what_is_not_found_may_be_newer_than_a_replica_that_lags(
    auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = "/admin/scheduler/decision/0190a5c3-0000-7000-8000-000000000001/change/"
    said = "Or it isn't there yet: the history database is 2 min behind."
    assert said not in text_of(auditor.get(path))
    monkeypatch.setattr(replica, "_seconds_behind", lambda: 120.0)
    assert said in text_of(auditor.get(path))
    assert said not in text_of(auditor.get("/admin/policies/ruleset/9999999/change/"))
