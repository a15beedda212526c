"""A Redis without memory refuses writes, and goes on by itself: what is stored leaves it, and the worker hears of what is left."""

import pytest
import redis

from scheduler.decisions.ingest import ingest
from scheduler.decisions.stream import STREAM, DecisionStream
from tests.component.decisions.real_history import RealHistory, Server, record, sequences

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("one_record_an_entry")
def test_entries_behind_a_lost_one_leave_a_full_redis_and_are_sent_again(
    real_history: RealHistory, server: Server, stream: DecisionStream
) -> None:
    record(real_history, 300)
    real_history.ship()
    stream._redis.xdel(STREAM, stream.read(300)[4].id)
    with redis.Redis.from_url(server.url) as broker:
        broker.config_set("maxmemory", str(broker.info("memory")["used_memory"] - 100))
        assert stream.refusal()
        ingest(stream)
        assert (sequences(), stream.length()) == ([1, 2, 3, 4], 0)
        broker.config_set("maxmemory", "0")
    real_history.settle()
    assert sequences() == list(range(1, 301))


def test_records_leave_a_redis_room_for_the_ticks_that_have_them_stored(
    real_history: RealHistory, server: Server, stream: DecisionStream
) -> None:
    with redis.Redis.from_url(server.url) as broker:
        for _ in range(400):  # so that a quarter is much more than a batch
            broker.rpush("of others", b"x" * 10_000)
        broker.config_set("maxmemory", str(broker.info("memory")["used_memory"] + 1_700_000))
        for count in [100] * 40 + [1] * 30:
            record(real_history, count)
            real_history.ship()
        assert real_history.recorder.depth.records > 0
        broker.rpush("ingest", b"x" * 100_000)  # Celery's, with its connections
        assert stream.refusal() == ""
        broker.delete("of others")
        real_history.settle()
    assert sequences() == list(range(1, 4_031))


def test_one_that_others_have_filled_takes_a_batch_whenever_it_has_none(
    real_history: RealHistory, server: Server, stream: DecisionStream
) -> None:
    with redis.Redis.from_url(server.url) as broker:
        broker.set("of others", b"x" * 8_000_000)
        broker.config_set("maxmemory", str(broker.info("memory")["used_memory"] + 2_000_000))
        record(real_history, 1_000)
        real_history.settle()
    assert sequences() == list(range(1, 1_001))


def test_a_redis_that_may_not_be_asked_for_its_memory_takes_records(
    real_history: RealHistory, server: Server, stream: DecisionStream
) -> None:
    with redis.Redis.from_url(server.url) as broker:
        broker.config_set("maxmemory", "1000000000")
        broker.acl_setuser("default", enabled=True, commands=["-info"])
    record(real_history, 10)
    real_history.settle()
    record(real_history, 10)
    real_history.ship()
    real_history.settle()
    assert sequences() == list(range(1, 21))
