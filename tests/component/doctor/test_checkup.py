"""What doctor says of each part: well, broken, away."""

import re
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.db import DatabaseError, connection, transaction
from prometheus_client import generate_latest

from controlplane.celery import app
from policies import publishing
from policies.models import ClusterPriorityClass, PriorityClassLook, PriorityClassReplacement
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIUnavailableError
from scheduler.decisions.missing import note_numbered
from scheduler.decisions.stream import DecisionStream, StreamError
from scheduler.doctor import checkup, database, processes, records, scheduler_file, suspensions
from scheduler.doctor.checkup import Checkup, check, configured_verbs, known
from scheduler.doctor.parts import Part
from scheduler.doctor.suspensions import SUSPENSIONS
from scheduler.models import Caller, Checkpoint, DecisionGap, PendingLook, Process
from scheduler.priority_classes.reconcile import look
from scheduler.tasks import announce_exemptions
from tests.builders import make_assignment, make_exemption, make_pause, make_priority_class, make_rule_set
from tests.component.decisions.real_history import Server
from tests.component.pages import publish_all
from tests.priority_server import PriorityServer
from tests.unit.doctor.cases import berth

pytestmark = pytest.mark.django_db


class Cluster:
    """An API server that answers doctor's questions. `refused` are verbs that the account lacks."""

    refused: tuple[str, ...] = ()
    account = "kubernetes-admin"
    is_away = False

    def get(self, *, path: str, **_: Any) -> bytes:
        if self.is_away:
            message = f"GET {path}: connection refused"
            raise APIUnavailableError(message)
        return b'{"gitVersion": "v1.36.3"}'

    def list_pages(self, **_: Any) -> Iterator[bytes]:
        if not self.is_away:
            yield b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    def post(self, *, path: str, body: bytes) -> bytes:
        if path.endswith("/selfsubjectreviews"):
            return msgspec.json.encode({"status": {"userInfo": {"username": self.account}}})
        verb = msgspec.json.decode(body)["spec"]["resourceAttributes"]["verb"]
        return msgspec.json.encode({"status": {"allowed": verb not in self.refused}})


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(Client, "connect", lambda *_args, **_options: made)
    return made


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of Decisions that wait in Redis, look by look; the last one stays."""
    numbers = [0]
    monkeypatch.setattr(DecisionStream, "length", lambda _self: numbers.pop(0) if len(numbers) > 1 else numbers[0])
    monkeypatch.setattr(DecisionStream, "refusal", lambda _self: "")
    monkeypatch.setattr(DecisionStream, "eviction_policy", lambda _self: "noeviction")
    monkeypatch.setattr(records, "_INGEST_LOOK_SECONDS", 0.0)
    return numbers


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    answers = [{"celery@a": {"ok": "pong"}}]
    monkeypatch.setattr(app.control, "ping", lambda **_: answers)
    return answers


@pytest.fixture
def healthy(cluster: Cluster, waiting: list[int], workers: list[dict[str, Any]]) -> None:
    make_process()


def make_process(name: str = "a", **fields: Any) -> Process:
    now = datetime.now(UTC)
    usual = {"role": "extender", "host": name, "pid": 1, "revision": 0, "snapshot_age_seconds": 1.5}
    return Process.objects.create(id=name, **{**usual, "started_at": now, "heartbeat_at": now, **fields})


def set_environment(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **fields))


def set_clock(monkeypatch: pytest.MonkeyPatch, *, ahead: timedelta) -> None:
    """Set doctor's clock, and leave the database's."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + ahead

    for module in (checkup, database, processes):
        monkeypatch.setattr(module, "datetime", Clock)


def part(found: Checkup, name: str) -> Part:
    return next(each for each in found.parts if each.name.startswith(name))


@pytest.mark.usefixtures("healthy")
def test_when_everything_works_nothing_is_an_error() -> None:
    found = check()
    assert found.ok
    assert {each.name: each.state for each in found.parts} == {
        "database": "ok", "schema": "ok", "extender": "ok", "beat": "unknown", "Revision": "warning", "Snapshot": "ok",
        "kube-scheduler": "unknown", "Redis": "ok", "worker": "ok", "Changes": "ok", "Pauses": "ok", "history": "ok", "Decisions": "ok", "ledger": "ok", "Assignments": "ok", "PriorityClasses": "ok", "API server": "ok", "rights": "ok",
        "Storage": "unknown", "disk": "ok", "configuration": "unknown",
    }  # fmt: skip


@pytest.mark.usefixtures("healthy")
def test_everything_that_is_not_well_says_what_to_do() -> None:
    assert [each.name for each in check().parts if each.state != "ok" and not each.remedy] == []


@pytest.mark.usefixtures("healthy")
def test_assignments_are_not_praised_where_there_is_none() -> None:
    assert part(check(), "Assignments").says == "none is published"
    publish_all(make_rule_set("web"), make_assignment())
    assert part(check(), "Assignments").says.startswith("each took a Pod")


def start_in(monkeypatch: pytest.MonkeyPatch, role: str, name: str, namespace: str) -> Process:
    with monkeypatch.context() as patched:
        set_environment(patched, lease_namespace=namespace)
        publishing.record_start(name, role)
    return make_process(name, role=role)


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize("role", ["extender", "binder"])
def test_processes_of_a_role_that_look_for_their_lease_in_several_namespaces_are_an_error(
    role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_in(monkeypatch, role, "one", "berth")
    second = start_in(monkeypatch, role, "two", "kube-system")
    said = part(check(quick=True), "Leases")
    assert said.state == "error"
    assert said.says.startswith(f"{role}s look in berth (one) and kube-system (two): ")
    second.delete()
    assert "Leases" not in {each.name for each in check(quick=True).parts}


@pytest.mark.usefixtures("healthy")
def test_an_extender_and_a_binder_need_no_lease_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    start_in(monkeypatch, "extender", "one", "berth")
    start_in(monkeypatch, "binder", "two", "kube-system")
    assert "Leases" not in {each.name for each in check(quick=True).parts}


@pytest.mark.usefixtures("healthy")
class TestDecisions:
    """Of those that were answered: is every one in the history?"""

    def lose(self, ago: timedelta) -> None:
        at = datetime.now(UTC) - ago
        DecisionGap.objects.create(process="a", first=3, last=7, reason="no room in the spool", at=at)

    def test_a_writer_that_vanished_is_an_error_even_where_nothing_swept(self) -> None:
        note_numbered("extender@gone:7:x", 49, datetime.now(UTC) - timedelta(minutes=1))
        found = check(quick=True)
        said = part(found, "Decisions")
        assert (said.state, said.says) == ("error", "49 of processes that are gone are not stored")
        assert "state folder (BERTH_STATE_DIR) of extender@gone:7:x" in said.remedy
        assert not found.ok

    def test_what_is_lost_is_said_beside_what_may_still_arrive(self) -> None:
        note_numbered("gone", 49, datetime.now(UTC) - timedelta(minutes=1))
        self.lose(timedelta(hours=25))
        said = part(check(quick=True), "Decisions")
        assert said.state == "error"
        assert said.says.startswith("49 of processes that are gone are not stored; 5 are lost, the last on ")
        assert said.remedy.endswith("The admin's page Decision gaps shows their numbers and the reasons.")

    def test_one_that_lives_and_has_not_shipped_yet_is_none(self) -> None:
        note_numbered("a", 49, datetime.now(UTC) - timedelta(minutes=1))
        assert part(check(quick=True), "Decisions").state == "ok"

    def test_it_is_content_again_when_they_are_stored(self) -> None:
        note_numbered("gone", 49, datetime.now(UTC) - timedelta(minutes=1))
        Checkpoint.objects.filter(writer="gone").update(next_decision=50)
        assert part(check(quick=True), "Decisions").says == "none is lost"

    def test_a_loss_of_today_is_an_error(self) -> None:
        self.lose(timedelta(hours=23))
        found = check(quick=True)
        assert part(found, "Decisions").state == "error"
        assert part(found, "Decisions").says.startswith("5 are lost, the last on ")
        assert not found.ok

    def test_an_older_loss_is_a_warning_for_nothing_brings_it_back(self) -> None:
        self.lose(timedelta(hours=25))
        found = check(quick=True)
        assert (part(found, "Decisions").state, found.ok) == ("warning", True)


class TestPauses:
    def test_what_is_paused_has_ended_or_ends_soon_is_said(self, caplog: pytest.LogCaptureFixture) -> None:
        publish_all(make_rule_set("web"))
        publishing.pause(target="everything", by="eve", reason="storm")
        publish_all(make_pause(until="2020-01-01T00:00:00Z"))
        soon = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
        publish_all(make_exemption(until=soon.isoformat()))
        found = part(check(), "Pauses")
        assert found.state == "warning"
        ends = f"Exemption cart of team cart ends at {soon:%Y-%m-%d %H:%M} UTC"
        assert found.says == (
            f"everything is paused by eve: storm; the pause of rule set web has ended; {ends}: rule set web passes over its "
            "Pods until then"
        )
        announce_exemptions()
        assert ends in caplog.text
        ends_at = partial(SUSPENSIONS.get_sample_value, "berth_suspension_ends_at_seconds")
        assert ends_at({"kind": "Exemption", "name": "cart"}) == soon.timestamp()
        assert ends_at({"kind": "Pause", "name": "everything"}) == 0

    def test_an_exemption_that_has_ended_passes_over_nothing_any_more(self) -> None:
        publish_all(make_rule_set("web"))
        publish_all(make_exemption(until="2020-01-01T00:00:00Z"))
        ended = "Exemption cart of team cart ended at 2020-01-01 00:00 UTC: rule set web decides about its Pods again"
        assert part(check(quick=True), "Pauses").says == ended

    def test_metrics_go_on_without_the_database(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def away(_now: datetime) -> None:
            raise DatabaseError

        monkeypatch.setattr(suspensions, "suspended", away)
        assert generate_latest(SUSPENSIONS) == b""


@pytest.mark.usefixtures("healthy")
class TestProcesses:
    def test_none(self) -> None:
        Process.objects.all().delete()
        assert part(check(quick=True), "extender").state == "error"

    def test_one_that_is_silent(self) -> None:
        make_process("killed", heartbeat_at=datetime.now(UTC) - timedelta(minutes=1))
        assert part(check(quick=True), "extender").state == "warning"

    def test_the_role_of_a_silent_one_is_said(self) -> None:
        make_process("killed", role="binder", heartbeat_at=datetime.now(UTC) - timedelta(minutes=1))
        assert part(check(quick=True), "extender").says == "1 extender reports, 1 binder silent"

    def test_they_report_by_the_databases_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        set_clock(monkeypatch, ahead=timedelta(days=1))
        assert part(check(quick=True), "extender").state == "ok"

    @pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has this machine's clock")
    @pytest.mark.parametrize(("ahead", "side"), [(timedelta(days=1), "ahead of"), (timedelta(days=-1), "behind")])
    def test_a_clock_that_differs_from_the_databases_is_a_warning_that_says_by_how_much(
        self, ahead: timedelta, side: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_clock(monkeypatch, ahead=ahead)
        found = part(check(quick=True), "clock")
        assert (found.state, f"{side} the database's" in found.says) == ("warning", True)

    def test_each_role_is_counted(self) -> None:
        make_process("b")
        make_process("binds", role="binder")
        assert part(check(quick=True), "extender").says == "2 extenders and 1 binder report"

    @pytest.mark.parametrize(("is_asked", "state"), [(False, "warning"), (True, "error")])
    def test_a_binder_does_not_stand_in_for_an_extender(self, is_asked: bool, state: str) -> None:
        Process.objects.update(role="binder")
        if is_asked:
            Caller.objects.create(identity="kube", verb="filter", process="a", last_at=datetime.now(UTC))
        found = part(check(quick=True), "extender")
        assert (found.state, found.says) == (state, "none reports; 1 binder reports")
        assert found.remedy.startswith("Start it if kube-scheduler asks Berth")

    def test_one_that_serves_another_revision(self) -> None:
        make_process("behind", revision=7)
        found = part(check(quick=True), "Revision")
        assert found.state == "error"
        assert "behind pid 1 serves 7" in found.says

    @pytest.mark.parametrize("age", [None, 121.0])
    def test_one_that_does_not_see_the_cluster(self, age: float | None) -> None:
        make_process("blind", snapshot_age_seconds=age)
        assert part(check(quick=True), "Snapshot").state == "error"

    def test_who_called_last_is_named(self) -> None:
        at = datetime.now(UTC) - timedelta(seconds=30)
        for verb in ("filter", "prioritize"):
            Caller.objects.create(identity="system:kube-scheduler", verb=verb, process="a", last_at=at)
        found = part(check(quick=True), "kube-scheduler")
        assert (found.state, "system:kube-scheduler called 30 s ago" in found.says) == ("ok", True)

    def test_calls_of_long_ago_prove_nothing_of_now(self) -> None:
        now = datetime.now(UTC)
        for verb, ago in (("filter", timedelta(seconds=30)), ("bind", timedelta(days=12))):
            Caller.objects.create(identity="kube", verb=verb, process="a", last_at=now - ago)
        found = part(check(quick=True), "kube-scheduler")
        assert (found.state, found.says) == ("ok", "kube called 30 s ago; verbs seen: filter, bind (12 d ago)")
        Caller.objects.filter(verb="filter").update(last_at=now - timedelta(days=2))
        found = part(check(quick=True), "kube-scheduler")
        assert found.state == "unknown"
        assert "kube called 2 d ago; verbs seen: filter (2 d ago), bind (12 d ago)" in found.says
        assert "canary" in found.remedy


class TestHistory:
    def test_redis_that_is_away(
        self, cluster: Cluster, workers: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(_self: DecisionStream) -> int:
            message = "connection refused"
            raise StreamError(message)

        monkeypatch.setattr(DecisionStream, "length", away)
        found = check()
        assert part(found, "Redis").state == "error"
        assert "worker" not in {each.name for each in found.parts}

    @pytest.mark.usefixtures("cluster", "workers")
    def test_a_redis_that_has_no_memory_left_refuses_writes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server = Server(tmp_path, "--maxmemory", "1")
        server.start()
        set_environment(monkeypatch, redis_url=server.url)
        found = part(check(quick=True), "Redis")
        server.kill()
        assert (found.state, "maxmemory" in found.remedy) == ("error", True)
        assert found.says == "answers, but refuses writes: command not allowed when used memory > 'maxmemory'."

    @pytest.mark.usefixtures("healthy")
    def test_no_worker(self, workers: list[dict[str, Any]]) -> None:
        workers.clear()
        assert part(check(), "worker").state == "error"

    @pytest.mark.usefixtures("healthy")
    def test_a_binder_that_answers_is_no_worker(self, workers: list[dict[str, Any]]) -> None:
        workers.append({"binder@a": {"ok": "pong"}})
        assert part(check(), "worker").says == "1 answers"
        workers.pop(0)
        assert part(check(), "worker").state == "error"

    @pytest.mark.usefixtures("healthy")
    @pytest.mark.parametrize(("minutes", "state"), [(0, "ok"), (2, "ok"), (4, "error")])
    @pytest.mark.parametrize("field", ["looked_at", "fault_at"])
    def test_a_beat_whose_ticks_no_longer_come(self, field: str, minutes: int, state: str) -> None:
        PendingLook.objects.create(**{field: datetime.now(UTC) - timedelta(minutes=minutes)})
        found = part(check(quick=True), "beat")
        assert (found.state, "Do beat and the worker run?" in found.remedy) == (state, state == "error")

    @pytest.mark.usefixtures("healthy")
    def test_decisions_on_their_way_are_no_fault(self, waiting: list[int]) -> None:
        waiting[:] = [40, 3]
        assert part(check(), "history").state == "ok"

    @pytest.mark.usefixtures("healthy")
    def test_decisions_that_do_not_move_are(self, waiting: list[int]) -> None:
        waiting[:] = [40, 40]
        found = part(check(), "history")
        assert (found.state, "doesn't decrease" in found.says) == ("warning", True)

    @pytest.mark.usefixtures("healthy")
    def test_very_many_are(self, waiting: list[int]) -> None:
        waiting[:] = [200_000, 100_000]
        assert part(check(), "history").state == "warning"

    @pytest.mark.usefixtures("healthy")
    def test_the_spool_is_counted(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        set_environment(monkeypatch, state_dir=tmp_path)
        (tmp_path / "spool" / "writer").mkdir(parents=True)
        (tmp_path / "spool" / "writer" / "1").write_bytes(b"x" * 2**20)
        assert "1.0 MiB of Decisions in 1 file of the spool" in part(check(quick=True), "disk").says

    @pytest.mark.usefixtures("healthy")
    def test_a_file_that_is_shipped_meanwhile_is_left_out(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def usage(_folder: Path) -> Any:
            (tmp_path / "spool" / "writer" / "3").unlink()
            return disk

        set_environment(monkeypatch, state_dir=tmp_path)
        disk = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(records.shutil, "disk_usage", usage)
        (tmp_path / "spool" / "writer").mkdir(parents=True)
        (tmp_path / "spool" / "writer" / "1").write_bytes(b"x" * 2**20)
        (tmp_path / "spool" / "writer" / "2").symlink_to("gone")  # listed, and not there
        (tmp_path / "spool" / "writer" / "3").touch()
        assert "1.0 MiB of Decisions in 1 file of the spool" in part(check(quick=True), "disk").says

    @pytest.mark.usefixtures("healthy")
    def test_a_spool_that_cannot_be_read_is_a_warning_beside_the_free_space(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        def refuse(_folder: Path, onerror: Callable[[OSError], None]) -> Iterator[Any]:
            onerror(PermissionError(13, "Permission denied", str(tmp_path / "spool")))
            yield from ()

        set_environment(monkeypatch, state_dir=tmp_path)
        monkeypatch.setattr(records.os, "walk", refuse)
        found = part(check(quick=True), "disk")
        assert found.state == "warning"
        assert "GiB free" in found.says
        assert found.says.endswith(f"{tmp_path}/spool can't be read: Permission denied")
        assert "let this account read the spool" in found.remedy.lower()

    @pytest.mark.usefixtures("healthy")
    @pytest.mark.parametrize(("used", "free", "state"), [(95, 0, "warning"), (91, 4, "warning"), (85, 10, "ok")])
    def test_a_disk_is_full_though_a_part_is_kept_for_root(
        self, used: int, free: int, state: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        set_environment(monkeypatch, state_dir=tmp_path)
        usage = SimpleNamespace(total=100, used=used, free=free)
        monkeypatch.setattr(records.shutil, "disk_usage", lambda _: usage)
        assert part(check(quick=True), "disk").state == state

    @pytest.mark.usefixtures("healthy")
    def test_a_state_folder_that_is_not_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        set_environment(monkeypatch, state_dir=tmp_path / "none")
        assert part(check(quick=True), "disk").state == "error"


class TestCluster:
    @pytest.mark.usefixtures("healthy")
    def test_an_api_server_that_is_away(self, cluster: Cluster) -> None:
        cluster.is_away = True
        found = check()
        assert part(found, "API server").state == "error"
        assert not found.ok

    @pytest.mark.usefixtures("healthy")
    @pytest.mark.parametrize(("verb", "state"), [("list", "error"), ("patch", "warning"), ("create", "warning")])
    def test_rights_that_are_missing(self, cluster: Cluster, verb: str, state: str) -> None:
        cluster.refused = (verb,)
        found = part(check(), "rights")
        assert (found.state, f" {verb} " in found.says) == (state, True)

    @pytest.mark.usefixtures("healthy")
    def test_an_account_of_one_process_is_asked_what_that_process_needs(self, cluster: Cluster) -> None:
        cluster.account, cluster.refused = "system:serviceaccount:berth:berth-worker", ("update",)
        assert part(check(), "rights").says == "this account may do what the worker needs"


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize(("policy", "state"), [("allkeys-lru", "warning"), ("noeviction", "ok"), ("", "ok")])
def test_a_redis_that_may_throw_records_away_is_not_called_well(
    monkeypatch: pytest.MonkeyPatch, policy: str, state: str
) -> None:
    monkeypatch.setattr(DecisionStream, "eviction_policy", lambda _self: policy)
    assert part(check(quick=True), "Redis").state == state


@pytest.mark.usefixtures("healthy")
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no standby")
def test_a_database_that_takes_no_writes_is_not_called_well() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL transaction_read_only = on")
        found = check(quick=True)
        transaction.set_rollback(True)  # which takes the mode back
    assert "standby" in part(found, "writes").says
    assert not found.ok


@pytest.mark.usefixtures("healthy")
@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no roles")
def test_tables_that_this_role_may_not_read_are_named_and_nothing_breaks_off() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("CREATE ROLE stranger")
        cursor.execute("GRANT SELECT ON django_migrations TO stranger")
        cursor.execute("SET LOCAL ROLE stranger")
        found = check(quick=True)
        transaction.set_rollback(True)
    assert re.fullmatch(r"this role may not read \d\d tables, auth_group among them", part(found, "tables").says)
    assert part(found, "schema").state == "ok"
    assert {"extender", "Revision"}.isdisjoint({each.name for each in found.parts})


@pytest.mark.usefixtures("healthy")
def test_a_database_that_is_away_hides_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_args: Any, **_options: Any) -> None:
        message = "connection refused\nmore"
        raise DatabaseError(message)

    monkeypatch.setattr(connection, "cursor", away)
    monkeypatch.setattr(connection, "close", lambda: None)
    found = check(quick=True)
    assert part(found, "database").state == "error"
    assert part(found, "API server").state == "ok"
    assert {"extender", "Revision", "Snapshot"}.isdisjoint({each.name for each in found.parts})


@pytest.mark.usefixtures("healthy")
class TestConfiguration:
    def write(self, folder: Path, text: str) -> Path:
        path = folder / "scheduler.yaml"
        path.write_text(text)
        return path

    def test_its_findings_come_with_it(self, tmp_path: Path) -> None:
        found = check(scheduler_config=self.write(tmp_path, berth("nodeCacheCapable: false")), quick=True)
        assert part(found, "configuration").state == "error"
        assert "node-cache-capable-false" in {each.id for each in found.findings}
        assert not found.ok

    def test_the_one_that_is_set_is_looked_at(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        path = self.write(tmp_path, berth("prioritizeVerb: prioritize, weight: 150, bindVerb: bind"))
        set_environment(monkeypatch, scheduler_config=str(path))
        assert part(check(quick=True), "configuration").state == "ok"
        assert configured_verbs() == ("filter", "prioritize", "bind")

    def test_without_one_the_usual_verbs_are_wanted(self) -> None:
        assert configured_verbs() == ("filter", "prioritize")

    def test_one_that_is_missing_is_an_error(self, tmp_path: Path) -> None:
        assert part(check(scheduler_config=tmp_path / "none", quick=True), "configuration").state == "error"

    def test_a_deadline_that_is_set_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Set:
            extender_bind = "127.0.0.1:8010"
            extender_deadline_seconds = 4.0
            extender_secret_path = ""

        monkeypatch.setattr(settings, "BERTH", Set())
        assert known().deadline_seconds == 4.0

    def test_rules_that_cannot_be_read_are_unknown(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def away() -> None:
            raise DatabaseError

        monkeypatch.setattr(checkup, "current_revision", away)
        assert known().refuses is None


class _Answers(BaseHTTPRequestHandler):
    code = 200

    def do_GET(self) -> None:
        self.send_response(self.code)
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Stay silent."""


@pytest.fixture(params=[200])
def server(request: pytest.FixtureRequest) -> Iterator[HTTPServer]:
    handler = type("Answers", (_Answers,), {"code": request.param})
    made = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.usefixtures("healthy")
class TestAddress:
    def look(self, folder: Path, url: str, members: str = "") -> Part:
        (folder / "scheduler.yaml").write_text(berth(members, url))
        return part(check(scheduler_config=folder / "scheduler.yaml"), "address")

    @pytest.mark.parametrize(("server", "state"), [(200, "ok"), (403, "ok"), (308, "error")], indirect=["server"])
    def test_what_answers_there_is_told(self, tmp_path: Path, server: HTTPServer, state: str) -> None:
        assert self.look(tmp_path, f"http://127.0.0.1:{server.server_port}").state == state

    def test_nothing_there_is_a_warning(self, tmp_path: Path, server: HTTPServer) -> None:
        assert self.look(tmp_path, "http://127.0.0.1:1").state == "warning"

    def test_a_ca_that_is_elsewhere_is_a_warning(self, tmp_path: Path) -> None:
        assert self.look(tmp_path, "https://127.0.0.1:1", "tlsConfig: {caFile: /nowhere}").state == "warning"

    def test_a_server_is_checked_by_the_ca(self, tmp_path: Path, server: HTTPServer) -> None:
        certificate = make_certificate(tmp_path, days=90)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        url = f"https://127.0.0.1:{server.server_port}"
        assert self.look(tmp_path, url, f"tlsConfig: {{caFile: {certificate}}}").state == "ok"
        assert self.look(tmp_path, url).state == "warning"


def make_certificate(folder: Path, *, days: int) -> Path:
    path = folder / "certificate.pem"
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-subj", "/CN=any", "-addext", "subjectAltName=IP:127.0.0.1", "-days", str(days)]
    subprocess.run([*new, *names, "-keyout", folder / "key.pem", "-out", path], check=True, capture_output=True)
    path.write_text(path.read_text() + (folder / "key.pem").read_text())
    return path


@pytest.mark.usefixtures("healthy")
class TestCertificates:
    def look(self, folder: Path, name: str) -> Part:
        (folder / "scheduler.yaml").write_text(berth(f"tlsConfig: {{caFile: {name}}}", "https://berth.example"))
        return part(check(scheduler_config=folder / "scheduler.yaml", quick=True), "certificate")

    @pytest.mark.parametrize(("days", "state"), [(90, "ok"), (20, "warning")])
    def test_its_end_is_told(self, tmp_path: Path, days: int, state: str) -> None:
        assert self.look(tmp_path, str(make_certificate(tmp_path, days=days))).state == state

    def test_one_that_has_ended_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(scheduler_file, "expires_at", lambda _pem: datetime.now(UTC).timestamp() - 86_400)
        assert self.look(tmp_path, str(make_certificate(tmp_path, days=1))).state == "error"

    def test_one_on_another_machine_is_unknown(self, tmp_path: Path) -> None:
        assert self.look(tmp_path, str(tmp_path / "none.pem")).state == "unknown"

    def test_what_is_no_certificate_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "a.pem").write_text("word")
        assert self.look(tmp_path, str(tmp_path / "a.pem")).state == "error"


@pytest.mark.usefixtures("healthy")
def test_priority_classes_that_differ_in_the_cluster_are_named() -> None:
    edit = publishing.Edit.of(make_priority_class("batch", 1000))
    change = publishing.open_change(title="tested", edits=[edit], by="ops")
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    assert part(check(), "PriorityClasses").state == "unknown"
    server = PriorityServer()
    look(server)
    assert part(check(), "PriorityClasses").says == "1 in the cluster as published"
    server.have("batch", description="theirs")
    PriorityClassLook.objects.update(next_at=datetime.now(UTC) - timedelta(seconds=1))
    look(server)
    found = part(check(), "PriorityClasses")
    assert (found.state, found.says) == ("warning", "batch is drifted")
    assert found.remedy


@pytest.mark.usefixtures("healthy")
def test_a_priority_class_that_is_gone_in_the_middle_of_its_replacement_is_an_error() -> None:
    now = datetime.now(UTC)
    PriorityClassLook.objects.create(held_until=now, next_at=now)
    ClusterPriorityClass.objects.create(name="batch", state="refused", present=False, looked_at=now, changed_at=now)
    PriorityClassReplacement.objects.create(
        name="batch", version=2, value_before=1, value=2, uid="u", former="{}", started_at=now
    )
    found = part(check(), "PriorityClasses")
    assert (found.state, found.says) == ("error", "batch: deleted in order to be created again, but not created yet")


@pytest.mark.usefixtures("healthy")
def test_a_cluster_whose_priority_classes_cant_be_read_is_an_error() -> None:
    now = datetime.now(UTC)
    PriorityClassLook.objects.create(held_until=now, next_at=now, error="403 Forbidden")
    assert part(check(), "PriorityClasses").says == "the cluster can't be read: 403 Forbidden"
