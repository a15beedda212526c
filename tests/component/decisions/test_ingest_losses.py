"""What Redis loses is sent again, and what nobody has any more is a gap."""

import shutil
from pathlib import Path

import pytest
import redis
from prometheus_client import generate_latest

from scheduler.decisions.ingest import ingest
from scheduler.decisions.metrics import GAPS
from scheduler.decisions.record import Outcome
from scheduler.decisions.segments import take_over_the_dead
from scheduler.decisions.stream import STREAM, DecisionStream, StreamError
from scheduler.metrics import SPOOL_LOST
from scheduler.models import Checkpoint, DeadLetter, DecisionGap
from tests.component.decisions.real_history import (
    AT,
    RealHistory,
    Server,
    gaps,
    record,
    sequences,
)
from tests.moving_address import MovingAddress
from tests.recording import PLENTY

pytestmark = pytest.mark.django_db


class TestLosses:
    @pytest.mark.usefixtures("one_record_an_entry")
    def test_an_entry_that_redis_lost_is_sent_again(self, real_history: RealHistory, stream: DecisionStream) -> None:
        record(real_history, 10)
        real_history.ship()
        stream._redis.xdel(STREAM, stream.read(10)[4].id)
        ingest(stream)
        assert sequences() == [1, 2, 3, 4]
        real_history.settle()
        assert sequences() == list(range(1, 11))

    def test_an_entry_of_many_records_that_redis_lost_is_sent_again(
        self, real_history: RealHistory, stream: DecisionStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("scheduler.decisions.stream.MOST_IN_ENTRY", 4)
        record(real_history, 10)
        real_history.ship()
        arrived = stream.read(10)
        assert len({each.id for each in arrived}) == stream.length() == 3
        stream._redis.xdel(STREAM, arrived[4].id)
        ingest(stream)
        assert sequences() == [1, 2, 3, 4]
        real_history.settle()
        assert sequences() == list(range(1, 11))

    @pytest.mark.usefixtures("one_record_an_entry")
    def test_the_last_entry_that_redis_lost_is_sent_again_though_nothing_comes_behind_it(
        self, real_history: RealHistory, stream: DecisionStream, caplog: pytest.LogCaptureFixture
    ) -> None:
        record(real_history, 3)
        real_history.ship()
        stream._redis.xdel(STREAM, stream.read(3)[2].id)
        real_history.settle()
        assert sequences() == [1, 2, 3]
        assert "has lost the last records of extender@test" in caplog.text

    def test_what_is_stored_is_not_sent_again(
        self, real_history: RealHistory, stream: DecisionStream, caplog: pytest.LogCaptureFixture
    ) -> None:
        real_history.settle()
        record(real_history, 3)
        real_history.settle()
        for _ in range(3):
            real_history.shipper._asked_at = real_history.shipper._house_kept_at = -1e9
            assert not real_history.shipper.step()
        assert "sent again" not in caplog.text

    def test_a_wiped_redis_gets_all_again_that_is_not_stored(
        self, real_history: RealHistory, stream: DecisionStream
    ) -> None:
        record(real_history, 5)
        real_history.settle()
        record(real_history, 5)
        real_history.ship()
        stream._redis.flushall()
        real_history.settle()
        assert sequences() == list(range(1, 11))

    def test_a_redis_that_follows_another_one_is_left_for_that_one(
        self, tmp_path: Path, server: Server, real_history: RealHistory
    ) -> None:
        (tmp_path / "next").mkdir()
        following = Server(tmp_path / "next")
        following.start()
        with MovingAddress(server.port) as address:
            real_history.stream = real_history.shipper._stream = DecisionStream(f"redis://127.0.0.1:{address.port}/0")
            record(real_history, 3)
            real_history.settle()
            address.to = following.port
            redis.Redis(port=server.port).replicaof("127.0.0.1", following.port)
            record(real_history, 3)
            real_history.settle()
        following.kill()
        assert sequences() == list(range(1, 7))

    @pytest.mark.usefixtures("one_record_an_entry")
    def test_a_redis_that_went_back_in_time_gets_again_what_it_lost(
        self, real_history: RealHistory, stream: DecisionStream
    ) -> None:
        record(real_history, 10)
        real_history.ship()
        for each in stream.read(10)[6:]:
            stream._redis.xdel(STREAM, each.id)
        stream.set_shipped("extender@test", 7)
        real_history.settle()
        assert sequences() == list(range(1, 11))

    def test_without_the_database_a_wiped_redis_gets_all_that_is_on_disk(
        self, real_history: RealHistory, stream: DecisionStream
    ) -> None:
        record(real_history, 5)
        real_history.ship()
        real_history.shipper._checkpoints = lambda _writers: None
        stream._redis.flushall()
        record(real_history, 1)
        real_history.shipper._asked_at = -1e9
        real_history.ship()
        real_history.ship()
        assert len(stream.read(20)) >= 6
        real_history.settle()
        assert sequences() == [1, 2, 3, 4, 5, 6]

    def test_asking_whether_redis_takes_writes_writes_nothing(self, server: Server, stream: DecisionStream) -> None:
        with redis.Redis.from_url(server.url) as broker:
            assert (stream.refusal(), broker.dbsize()) == ("", 0)
            broker.replicaof("127.0.0.1", "1")
            assert "read only replica" in stream.refusal()
            broker.replicaof("NO", "ONE")
            broker.config_set("maxmemory", "1")
            assert "maxmemory" in stream.refusal()
            broker.config_set("maxmemory", "0")
            broker.acl_setuser("default", enabled=True, commands=["-setrange"])
            assert stream.refusal() == ""

    def test_redis_away_is_an_error_of_ours_and_nothing_is_lost(
        self, server: Server, real_history: RealHistory, stream: DecisionStream, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO", "berth.decisions")
        record(real_history, 1)
        real_history.ship()
        server.kill()
        for call in (
            lambda: ingest(stream),
            lambda: stream.append("w", [], 0),
            stream.length,
            stream.eviction_policy,
            stream.refusal,
            lambda: stream.finish([b"1-0"]),
            lambda: stream.take_wanted("w"),
            lambda: stream.set_shipped("w", 1),
            lambda: stream.forget("w"),
        ):
            with pytest.raises(StreamError):
                call()
        record(real_history, 5)
        assert real_history.shipper.step() is False
        assert real_history.shipper.step() is False

        server.start()
        real_history.settle()
        assert sequences() == [1, 2, 3, 4, 5, 6]
        messages = [entry.getMessage().partition(":")[0] for entry in caplog.records]
        assert messages.count("Redis unreachable, records wait on disk") == 1
        assert messages.count("Redis reachable again") == 1

    def test_more_than_redis_should_hold_waits_on_disk(
        self, real_history: RealHistory, stream: DecisionStream, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("scheduler.decisions.shipping.MOST_IN_REDIS", 10)
        monkeypatch.setattr("scheduler.decisions.shipping._BATCH_BYTES", 1000)
        record(real_history, 100)
        for _ in range(100):
            real_history.shipper._asked_at = -1e9
            real_history.shipper.step()
        assert 10 <= stream.length() < 20
        real_history.settle()
        assert sequences() == list(range(1, 101))

    def test_a_policy_that_throws_entries_away_is_warned_of(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        server = Server(tmp_path, "--maxmemory-policy", "allkeys-lru")
        server.start()
        real_history = RealHistory(tmp_path / "spool", DecisionStream(server.url))
        real_history.ship()
        assert "maxmemory-policy is allkeys-lru, and must be noeviction" in caplog.text
        real_history.spool.close()
        server.kill()


class TestGaps:
    def test_what_was_lost_for_want_of_room_is_in_the_table(self, real_history: RealHistory) -> None:
        record(real_history, 2)
        real_history.spool._max_bytes = 0
        record(real_history, 3)
        real_history.spool._max_bytes = PLENTY
        real_history.recorder._full_until = 0
        record(real_history, 1)
        real_history.settle()
        assert sequences() == [1, 2, 6]
        gap = DecisionGap.objects.get()
        assert (gap.process, gap.first, gap.last, gap.decisions) == ("extender@test", 3, 5, 3)
        assert gap.reason == "no room in the spool"

    def test_a_number_that_is_missing_between_two_is_a_gap_and_counted(self, real_history: RealHistory) -> None:
        record(real_history, 2)
        real_history.recorder._sequence = 7
        record(real_history, 1)
        real_history.settle()
        assert list(DecisionGap.objects.values_list("first", "last")) == [(3, 7)]
        assert "berth_decisions_lost_total 5.0" in generate_latest(GAPS).decode()

    def test_the_end_says_how_many_there_were(self, real_history: RealHistory) -> None:
        record(real_history, 2)
        real_history.recorder._sequence = 4
        real_history.recorder._write_end()
        real_history.settle()
        assert list(DecisionGap.objects.values_list("first", "last")) == [(3, 4)]
        assert Checkpoint.objects.get(writer="extender@test").has_ended


class TestALostFolder:
    """What a process does whose folder is deleted while it runs: noticed, counted, and it goes on."""

    def lose(self, real_history: RealHistory) -> None:
        shutil.rmtree(real_history.spool.segments.folder)

    def test_what_was_not_shipped_is_a_gap_and_what_comes_then_is_stored(self, real_history: RealHistory) -> None:
        record(real_history, 2)
        real_history.settle()
        record(real_history, 3)
        self.lose(real_history)
        before = SPOOL_LOST._value.get()
        real_history.recorder._mend()
        real_history.settle()
        assert gaps() == [(3, 5)]
        record(real_history, 2)
        real_history.settle()
        assert sequences() == [1, 2, 6, 7]
        assert gaps() == [(3, 5)]
        assert SPOOL_LOST._value.get() == before + 1
        assert not DeadLetter.objects.exists()

    def test_where_all_was_shipped_nothing_is_missing(self, real_history: RealHistory) -> None:
        record(real_history, 2)
        real_history.settle()
        self.lose(real_history)
        real_history.recorder._mend()
        record(real_history, 1)
        real_history.settle()
        assert (sequences(), gaps()) == ([1, 2, 3], [])

    def test_a_deleted_file_alone_is_noticed_too(self, real_history: RealHistory) -> None:
        record(real_history, 2)
        real_history.spool.segments.delete(1)
        real_history.recorder._mend()
        record(real_history, 1)
        real_history.settle()
        assert (sequences(), gaps()) == ([3], [(1, 2)])

    def test_a_deleted_file_without_decisions_is_told_as_a_dead_letter(self, real_history: RealHistory) -> None:
        record(real_history, 1)
        real_history.settle()
        real_history.spool.rotate()
        for uid in ("a", "b"):
            real_history.recorder.record_outcome(
                Outcome(kind="deleted", pod_uid=uid, pod_namespace="d", pod_name=uid, node_name="", at=AT)
            )
        real_history.spool.segments.delete(2)
        real_history.spool.rotate()
        record(real_history, 1)
        real_history.settle()
        assert (sequences(), gaps()) == ([1, 2], [])
        letter = DeadLetter.objects.get()
        assert (letter.writer, bytes(letter.data)) == ("extender@test", b"")
        first = letter.sequence
        assert letter.reason == f"records {first} to {first + 1} are missing: their file is gone, or was cut off"

    def test_who_comes_next_does_not_take_the_new_folder_from_its_writer(
        self, tmp_path: Path, real_history: RealHistory, stream: DecisionStream
    ) -> None:
        self.lose(real_history)
        real_history.recorder._mend()
        assert take_over_the_dead(real_history.spool.root, but=set()) == []

    def test_nothing_is_begun_anew_while_all_is_there(self, real_history: RealHistory) -> None:
        record(real_history, 1)
        assert not real_history.spool.is_lost()
        real_history.spool.rotate()
        assert not real_history.spool.is_lost()
