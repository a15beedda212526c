"""What processes leave behind that were killed, and shippers that have a fault."""

from pathlib import Path

import pytest

from scheduler.decisions.shipping import Shipper
from scheduler.decisions.stream import STREAM, DecisionStream
from scheduler.models import Checkpoint, DeadLetter
from tests.component.decisions.real_history import RealHistory, make_entry, record, sequences
from tests.recording import History
from tests.stack import eventually

pytestmark = pytest.mark.django_db


class TestTheDead:
    def test_what_a_killed_process_left_is_shipped_by_the_next_one_and_then_deleted(
        self, tmp_path: Path, stream: DecisionStream
    ) -> None:
        dead = RealHistory(tmp_path, stream, "dead")
        record(dead, 5)
        with dead.spool.segments.path(1).open("ab") as file:
            file.write(b"half of a record")
        dead.die()

        next_one = RealHistory(tmp_path, stream, "next")
        next_one.settle()
        assert sequences() == [1, 2, 3, 4, 5]
        assert bytes(DeadLetter.objects.get().data) == b"half of a record"
        assert not Checkpoint.objects.get(writer="dead").has_ended
        next_one.shipper._house_kept_at = -1e9
        next_one.shipper.step()
        assert not dead.spool.segments.folder.exists()
        assert next_one.spool.others_bytes == 0
        next_one.spool.close()

    @pytest.mark.usefixtures("one_record_an_entry")
    def test_also_its_last_record_where_redis_loses_it(self, tmp_path: Path, stream: DecisionStream) -> None:
        dead = RealHistory(tmp_path, stream, "dead")
        record(dead, 3)
        dead.die()
        next_one = RealHistory(tmp_path, stream, "next")
        next_one.ship()
        stream._redis.xdel(STREAM, stream.read(3)[2].id)
        for _ in range(5):
            next_one.settle()
        assert sequences() == [1, 2, 3]
        assert not dead.spool.segments.folder.exists()
        next_one.spool.close()

    def test_a_writer_that_never_wrote_is_swept_away(self, tmp_path: Path, stream: DecisionStream) -> None:
        RealHistory(tmp_path, stream, "dead").die()
        next_one = RealHistory(tmp_path, stream, "next")
        next_one.ship()
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["next"]
        next_one.spool.close()

    def test_nothing_is_deleted_before_it_is_stored(self, tmp_path: Path, stream: DecisionStream) -> None:
        real_history = RealHistory(tmp_path, stream)
        for _ in range(3):
            record(real_history, 1)
            real_history.spool.rotate()
        real_history.shipper._house_kept_at = -1e9
        real_history.ship()
        assert real_history.spool.segments.numbers() == [1, 2, 3]
        real_history.settle()
        real_history.shipper._house_kept_at = -1e9
        real_history.shipper.step()
        assert real_history.spool.segments.numbers() == [3]
        assert real_history.spool.size_bytes == real_history.spool.segments.total_bytes()
        real_history.spool.close()


def test_a_fault_of_a_file_does_not_end_the_shipper(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    real_history = History(tmp_path)
    calls: list[int] = []

    def fail_once() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("the disk coughed")

    shipper = Shipper(real_history.spool, real_history.stream, checkpoints=lambda _writers: {}, before=fail_once)
    shipper.start()
    real_history.recorder.record(make_entry())
    eventually(lambda: real_history.stream.entries, what="the record is shipped")
    shipper.stop(20)
    assert "can't be shipped; Berth tries again" in caplog.text
    assert "Redis" not in caplog.text
    assert len(real_history.stream.entries) == 1
    real_history.spool.close()
