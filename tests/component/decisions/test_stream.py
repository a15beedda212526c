"""The stream of records in Redis: how far it says a writer is, and what it says of a Redis that refuses it."""

from pathlib import Path

import pytest
import redis

from scheduler.decisions.frames import Kind
from scheduler.decisions.stream import Answer, DecisionStream, Shipment, StreamError
from tests.component.decisions.real_history import serving

RECORD = Shipment(writer="w", segment=1, offset=9, sequence=1, kind=Kind.OUTCOME, data=b"hunter2")


def test_who_only_asks_how_far_a_writer_is_changes_nothing(stream: DecisionStream) -> None:
    assert stream.append("w", [], 0) == Answer(None, 0)
    assert stream.append("w", [], 0) == Answer(None, 0)
    stream.append("w", [RECORD], 2)
    assert stream.append("w", [], 0) == Answer(2, 1)
    assert stream.append("w", [], 0) == Answer(2, 1)


def test_a_refused_record_is_told_by_its_cause_and_not_by_its_bytes(tmp_path: Path) -> None:
    with serving(tmp_path) as server, redis.Redis.from_url(server.url) as client:
        client.acl_setuser("default", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-xadd"])
        with pytest.raises(StreamError) as refused:
            DecisionStream(server.url).append("w", [RECORD], 2)
    assert "xadd" in str(refused.value)
    assert "hunter2" not in str(refused.value)
    assert "Command #" not in str(refused.value)
