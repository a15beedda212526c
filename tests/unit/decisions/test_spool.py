"""The spool: what was appended is on disk, whole or not at all; what is corrupt harms nothing before it."""

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.decisions.frames import Kind, frame
from scheduler.decisions.segments import Position, Segments, take, take_over_the_dead
from scheduler.decisions.spool import Spool, SpoolFullError

PLENTY = 1 << 30
BASE_DIR = Path(__file__).resolve().parents[3]


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    made = Spool(tmp_path / "spool", "writer", max_bytes=PLENTY, segment_bytes=200, sync_seconds=0)
    made.open()
    yield made
    made.close()


def read_all(segments: Segments) -> list[bytes]:
    found = []
    for number in segments.numbers():
        at = Position(number)
        while (batch := segments.read(at)).frames:
            found += [each.payload for each in batch.frames]
            at = batch.end
    return found


class TestAppend:
    def test_frames_are_numbered_and_read_back_in_order_over_segments(self, spool: Spool) -> None:
        texts = [b"record %d" % number for number in range(50)]
        for text in texts:
            spool.append([(Kind.DECISION, [text])])
        assert read_all(spool.segments) == texts
        assert len(spool.segments.numbers()) > 5
        assert spool.segments.first_sequence(1) == 1
        assert spool.next_sequence == 51
        assert spool.size_bytes == spool.segments.total_bytes()

    def test_all_that_was_appended_is_given_to_the_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        saved: dict[int, int] = {}
        give = os.fdatasync

        def give_and_note(descriptor: int) -> None:
            give(descriptor)
            found = os.fstat(descriptor)
            saved[found.st_ino] = found.st_size

        monkeypatch.setattr(os, "fdatasync", give_and_note)
        spool = Spool(tmp_path, "writer", max_bytes=PLENTY, segment_bytes=200, sync_seconds=0)
        spool.open()
        for _ in range(20):
            spool.append([(Kind.DECISION, [b"x" * 50])])
        spool.close()
        files = [spool.segments.path(number).stat() for number in spool.segments.numbers()]
        assert len(files) > 5
        assert saved == {file.st_ino: file.st_size for file in files}

    def test_the_disk_is_given_records_while_the_process_can_open_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced = threading.Event()
        monkeypatch.setattr(os, "fdatasync", lambda _: synced.set())
        spool = Spool(tmp_path, "writer", max_bytes=PLENTY, sync_seconds=0)
        spool.open()
        spool.append([(Kind.DECISION, [b"first"])])
        assert synced.wait(10)

        def refuse(*_: object) -> int:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        try:
            with monkeypatch.context() as patched:
                for name in ("dup", "open"):
                    patched.setattr(os, name, refuse)
                synced.clear()
                spool.append([(Kind.DECISION, [b"second"])])
                assert synced.wait(10)
        finally:
            spool.close()

    def test_a_record_larger_than_a_segment_has_one_of_its_own(self, spool: Spool) -> None:
        for size in (10, 5_000_000, 10):
            spool.append([(Kind.DECISION, [bytes(size)])])
        assert [len(payload) for payload in read_all(spool.segments)] == [10, 5_000_000, 10]
        assert spool.segments.numbers() == [1, 2, 3]

    def test_several_frames_stand_together(self, spool: Spool) -> None:
        many = [(Kind.DELTA, [b"x"])] * 600  # more buffers than one call of the system takes
        spool.append(many)
        spool.append([(Kind.DECISION, [b"y"])])
        assert read_all(spool.segments) == [b"x"] * 600 + [b"y"]
        assert spool.next_sequence == 602

    def test_threads_at_once_leave_no_gap(self, spool: Spool) -> None:
        def append() -> None:
            for _ in range(200):
                spool.append([(Kind.DECISION, [b"some text"])])

        threads = [threading.Thread(target=append) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        sequences = []
        for number in spool.segments.numbers():
            sequences += [each.sequence for each in spool.segments.read(Position(number)).frames]
        assert sequences == list(range(1, 801))

    def test_after_the_end_nothing_is_taken(self, tmp_path: Path) -> None:
        spool = Spool(tmp_path, "w", max_bytes=PLENTY)
        with pytest.raises(SpoolFullError, match="closed"):
            spool.append([(Kind.DECISION, [b"x"])])
        spool.open()
        spool.close()
        with pytest.raises(SpoolFullError, match="closed"):
            spool.append([(Kind.DECISION, [b"x"])])


class TestLimits:
    def test_the_limit_holds_to_the_byte_and_ends_with_what_is_deleted(self, tmp_path: Path) -> None:
        one = sum(map(len, frame(Kind.DECISION, 1, [b"x" * 100])))
        spool = Spool(tmp_path, "w", max_bytes=3 * one, segment_bytes=one)
        spool.open()
        for _ in range(3):
            spool.append([(Kind.DECISION, [b"x" * 100])])
        with pytest.raises(SpoolFullError, match="limit"):
            spool.append([(Kind.DECISION, [b""])])
        assert spool.next_sequence == 4
        spool.forget(1)
        spool.append([(Kind.DECISION, [b"x" * 100])])
        spool.forget(4)  # the one that is being written stays
        assert spool.segments.numbers() == [2, 3, 4]
        spool.close()

    def test_a_segment_that_was_cut_or_deleted_takes_up_nothing_once_it_is_forgotten(self, spool: Spool) -> None:
        for _ in range(4):
            spool.append([(Kind.DECISION, [b"x" * 190])])
        os.truncate(spool.segments.path(1), 10)
        spool.segments.path(2).unlink()
        for number in (1, 2, 2):
            spool.forget(number)
        assert spool.size_bytes == spool.segments.total_bytes()

    def test_what_others_left_counts(self, spool: Spool) -> None:
        spool.others_bytes = PLENTY
        with pytest.raises(SpoolFullError):
            spool.append([(Kind.DECISION, [b"x"])])

    def test_a_share_of_the_room_is_kept_for_others(self, tmp_path: Path) -> None:
        spool = Spool(tmp_path, "w", max_bytes=1000)
        spool.open()
        with pytest.raises(SpoolFullError):
            spool.append([(Kind.BASE, [bytes(600)])], share=0.5)
        spool.append([(Kind.DECISION, [bytes(600)])])
        spool.close()

    def test_a_short_write_is_taken_back(self, tmp_path: Path) -> None:
        """A file may not grow beyond a limit of the system: the first write is short, the next one fails."""
        program = """
import resource, sys
from pathlib import Path
from scheduler.decisions.frames import Kind
from scheduler.decisions.segments import Position
from scheduler.decisions.spool import Spool, SpoolFullError
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
spool = Spool(Path(sys.argv[1]), "w", max_bytes=1 << 30)
spool.open()
spool.append([(Kind.DECISION, [bytes(9_000)])])
for _ in range(3):
    try:
        spool.append([(Kind.DECISION, [bytes(5_000)])])
    except SpoolFullError as error:
        assert "File too large" in str(error), error
    else:
        raise AssertionError("there was no limit")
assert spool.segments.size(1) == spool.written.offset, spool.segments.size(1)
spool.append([(Kind.DECISION, [bytes(500)])])
assert [len(each.payload) for each in spool.segments.read(Position(1)).frames] == [9_000, 500]
spool.close()
"""
        subprocess.run([sys.executable, "-c", program, str(tmp_path / "spool")], check=True, cwd=BASE_DIR)

    def test_where_a_half_written_record_cannot_be_taken_back_the_segment_ends(
        self, spool: Spool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise OSError("no")

        spool.append([(Kind.DECISION, [b"first"])])
        with monkeypatch.context() as patch:
            patch.setattr(os, "writev", lambda descriptor, buffers: os.write(descriptor, b"half"))
            patch.setattr(os, "ftruncate", fail)
            real_write = os.write
            calls: list[int] = []

            def write(descriptor: int, data: bytes) -> int:
                calls.append(1)
                if len(calls) > 1:
                    raise OSError("no space")
                return real_write(descriptor, data)

            patch.setattr(os, "write", write)
            with pytest.raises(SpoolFullError, match="no space"):
                spool.append([(Kind.DECISION, [b"second"])])
        spool.append([(Kind.DECISION, [b"third"])])
        assert spool.segments.numbers() == [1, 2]
        first = spool.segments.read(Position(1), end=spool.written)
        assert [each.payload for each in first.frames] == [b"first"]
        assert spool.segments.read(first.end, end=spool.written).broken
        assert [each.payload for each in spool.segments.read(Position(2)).frames] == [b"third"]


class TestReading:
    def test_up_to_a_corrupt_end_anything_is_read_whatever_the_place(self, spool: Spool) -> None:
        texts = [b"record %d" % number for number in range(4)]
        ends = []
        for text in texts:
            spool.append([(Kind.DECISION, [text])])
            ends.append(spool.written.offset)
        whole = spool.segments.path(1).read_bytes()
        for end in range(len(whole) + 1):
            spool.segments.path(1).write_bytes(whole[:end])
            batch = spool.segments.read(Position(1))
            complete = sum(each <= end for each in ends)
            assert [each.payload for each in batch.frames] == texts[:complete]
            rest = spool.segments.read(batch.end)
            assert rest.frames == []
            assert rest.broken == (end not in {0, *ends})

    def test_not_more_is_read_than_asked_but_one_frame_at_least(self, spool: Spool) -> None:
        for _ in range(3):
            spool.append([(Kind.DECISION, [b"12345"])])
        for most in (1, 30):
            batch = spool.segments.read(Position(1), most_bytes=most)
            assert (len(batch.frames), batch.broken) == (1, False)
        assert len(spool.segments.read(Position(1), most_bytes=50).frames) == 2

    def test_what_is_being_written_is_not_looked_at(self, spool: Spool) -> None:
        spool.append([(Kind.DECISION, [b"12345"])])
        with spool.segments.path(1).open("ab") as file:
            file.write(b"half of a frame")
        assert spool.segments.read(spool.written, end=spool.written).broken is False


class TestOwners:
    def test_a_living_writer_is_left_alone(self, spool: Spool) -> None:
        assert take_over_the_dead(spool.root, but=set()) == []

    def test_a_dead_writer_is_taken_over_once(self, tmp_path: Path) -> None:
        spool = Spool(tmp_path, "w", max_bytes=PLENTY)
        spool.open()
        spool.append([(Kind.DECISION, [b"x"])])
        spool.close()
        (dead,) = take_over_the_dead(tmp_path, but=set())
        assert read_all(dead.segments) == [b"x"]
        assert take_over_the_dead(tmp_path, but=set()) == []
        dead.give_back()
        (dead,) = take_over_the_dead(tmp_path, but=set())
        dead.delete()
        assert [path.name for path in tmp_path.iterdir()] == ["lock"]

    def test_a_killed_process_gives_its_lock_back(self, tmp_path: Path) -> None:
        program = """
import os, sys
from pathlib import Path
from scheduler.decisions.frames import Kind
from scheduler.decisions.spool import Spool
spool = Spool(Path(sys.argv[1]), "w", max_bytes=1 << 30)
spool.open()
spool.append([(Kind.DECISION, [b"answered"])])
os.kill(os.getpid(), 9)
"""
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False, cwd=BASE_DIR)
        assert done.returncode == -9
        (dead,) = take_over_the_dead(tmp_path, but=set())
        assert read_all(dead.segments) == [b"answered"]
        dead.give_back()

    def test_no_name_is_used_twice(self, spool: Spool) -> None:
        with pytest.raises(FileExistsError):
            Spool(spool.root, "writer", max_bytes=PLENTY).open()
        assert take(spool.segments.folder) is None
