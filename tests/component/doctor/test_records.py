"""What doctor says of the way of Decisions into the history: Redis, the worker, the spool, what is lost."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scheduler.decisions.missing import note_numbered
from scheduler.decisions.stream import DecisionStream, StreamError
from scheduler.doctor import records
from scheduler.doctor.checkup import check
from scheduler.models import Checkpoint, DecisionGap
from tests.component.decisions.real_history import Server
from tests.component.doctor.checkups import Cluster, part, set_environment

pytestmark = pytest.mark.django_db


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

    def test_a_decision_of_a_live_process_that_has_not_shipped_it_yet_is_not_lost(self) -> None:
        note_numbered("a", 49, datetime.now(UTC) - timedelta(minutes=1))
        assert part(check(quick=True), "Decisions").state == "ok"

    def test_decisions_that_are_stored_later_are_no_longer_lost(self) -> None:
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


class TestHistory:
    def test_a_redis_that_is_away_is_an_error_and_no_worker_is_asked(
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
    def test_no_worker_that_answers_is_an_error(self, workers: list[dict[str, Any]]) -> None:
        workers.clear()
        assert part(check(), "worker").state == "error"

    @pytest.mark.usefixtures("healthy")
    def test_a_binder_that_answers_is_no_worker(self, workers: list[dict[str, Any]]) -> None:
        workers.append({"binder@a": {"ok": "pong"}})
        assert part(check(), "worker").says == "1 answers"
        workers.pop(0)
        assert part(check(), "worker").state == "error"

    @pytest.mark.usefixtures("healthy")
    def test_decisions_on_their_way_are_no_fault(self, waiting: list[int]) -> None:
        waiting[:] = [40, 3]
        assert part(check(), "history").state == "ok"

    @pytest.mark.usefixtures("healthy")
    def test_decisions_that_do_not_move_are_a_warning(self, waiting: list[int]) -> None:
        waiting[:] = [40, 40]
        found = part(check(), "history")
        assert (found.state, "doesn't decrease" in found.says) == ("warning", True)

    @pytest.mark.usefixtures("healthy")
    def test_very_many_decisions_that_wait_are_a_warning(self, waiting: list[int]) -> None:
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
    def test_a_state_folder_that_is_not_there_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        set_environment(monkeypatch, state_dir=tmp_path / "none")
        assert part(check(quick=True), "disk").state == "error"


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize(("policy", "state"), [("allkeys-lru", "warning"), ("noeviction", "ok"), ("", "ok")])
def test_a_redis_that_may_throw_records_away_is_not_called_well(
    monkeypatch: pytest.MonkeyPatch, policy: str, state: str
) -> None:
    monkeypatch.setattr(DecisionStream, "eviction_policy", lambda _self: policy)
    assert part(check(quick=True), "Redis").state == state
