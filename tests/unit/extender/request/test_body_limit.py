"""A call's body on its way in, and the callers' rates."""

from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.extender.identity import Bucket
from scheduler.extender.request.body_limit import BODY, IncomingBody
from scheduler.http_server.body import Budget, put
from scheduler.http_server.head import RefusedError
from scheduler.http_server.server import MOST_CONNECTIONS

LIMIT = 10


def read(room: Budget, sent: bytes, *, length: int | None = None, keep: bool = True, leave: int = 0) -> Any:
    """The body that the views see, and what still holds its room."""
    body = IncomingBody(room, length, limit_bytes=LIMIT, keep=keep, leave=leave)
    try:
        put(sent, body)
    except RefusedError:
        body.close()
        raise
    environ: dict[str, Any] = {}
    body.end(environ)
    assert environ["CONTENT_LENGTH"] == str(len(sent))
    return environ[BODY], body


@pytest.mark.parametrize("size", [0, 1, LIMIT])
@pytest.mark.parametrize("knows_length", [True, False])
def test_a_body_within_the_limit_is_given_whole(size: int, knows_length: bool) -> None:
    sent = b"x" * size
    assert read(Budget(100), sent, length=size if knows_length else None)[0] == sent


@pytest.mark.parametrize("length", [25, None])
def test_a_body_over_the_limit_is_read_and_not_given_and_takes_no_room(length: int | None) -> None:
    room = Budget(LIMIT)
    assert read(room, b"x" * 25, length=length)[0] is None
    room.take(LIMIT)


def test_a_body_without_end_is_refused() -> None:
    with pytest.raises(RefusedError, match="Too Large"):
        read(Budget(100), b"x" * 41)


def test_nothing_is_held_of_a_body_that_is_refused_anyway() -> None:
    assert read(Budget(0), b"x" * 20, keep=False)[0] is None


MEBIBYTE = 1 << 20


def unfinished(room: Budget, size: int, *, leave: int) -> IncomingBody:
    body = IncomingBody(room, 64 * MEBIBYTE, limit_bytes=64 * MEBIBYTE, keep=True, leave=leave)
    put(bytes(size), body)
    return body


def test_however_much_large_bodies_of_strangers_hold_each_connection_has_room_for_a_small_call() -> None:
    room = Budget(256 * MEBIBYTE)
    with ExitStack() as held:
        for _ in range(2):
            held.callback(unfinished(room, 48 * MEBIBYTE, leave=128 * MEBIBYTE).close)
        with pytest.raises(RefusedError, match="Unavailable"):
            unfinished(room, MEBIBYTE, leave=128 * MEBIBYTE)
        for _ in range(MOST_CONNECTIONS - 2):
            held.callback(unfinished(room, 65_536, leave=128 * MEBIBYTE).close)
        # Who was answered before has the other half.
        held.callback(unfinished(room, 64 * MEBIBYTE, leave=0).close)
        held.callback(unfinished(room, 64 * MEBIBYTE, leave=0).close)


def test_bodies_that_take_up_the_room_keep_others_out_until_they_are_done() -> None:
    room = Budget(15)
    _, first = read(room, b"x" * 10)
    with pytest.raises(RefusedError, match="Unavailable"):
        read(room, b"y" * 10)
    assert read(room, b"z" * 5)[0] == b"zzzzz"
    first.close()
    first.close()
    assert read(room, b"y" * 10)[0] == b"y" * 10


def test_strangers_leave_room_for_those_who_are_known() -> None:
    room = Budget(22)
    assert read(room, b"x" * 10, leave=10)[0] == b"x" * 10
    with pytest.raises(RefusedError):
        read(room, b"x" * 2, leave=10)
    assert read(room, b"x" * 10)[0] == b"x" * 10


class TestBucket:
    def test_one_second_s_calls_may_come_at_once(self) -> None:
        bucket = Bucket()
        assert [bucket.take(per_second=3, now=0) for _ in range(4)] == [True, True, True, False]

    def test_a_bucket_fills_with_time_and_not_over_its_brim(self) -> None:
        bucket = Bucket()
        for _ in range(3):
            bucket.take(per_second=3, now=0)
        assert not bucket.take(per_second=3, now=0.3)
        assert bucket.take(per_second=3, now=0.7)
        assert [bucket.take(per_second=3, now=1000) for _ in range(4)] == [True, True, True, False]

    def test_less_than_a_call_a_second_is_still_a_call_now_and_then(self) -> None:
        bucket = Bucket()
        assert bucket.take(per_second=0.5, now=0)
        assert not bucket.take(per_second=0.5, now=1)
        assert bucket.take(per_second=0.5, now=2)

    @given(
        st.floats(0.1, 1000),
        st.lists(st.floats(0, 5), max_size=200),
    )
    def test_never_more_calls_than_the_rate_allows(self, per_second: float, pauses: list[float]) -> None:
        bucket, now, taken = Bucket(), 0.0, 0
        for pause in pauses:
            now += pause
            taken += bucket.take(per_second=per_second, now=now)
        assert taken <= max(per_second, 1) + now * per_second + 1e-6
