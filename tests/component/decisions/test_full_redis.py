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
