"""BodyBudget for bodies, and the callers' rates."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.extender.identity import Buckets
from scheduler.extender.request.body_limit import BodyBudget, CrowdedError
from scheduler.extender.request.node_bytes import KnownNodes, Reading

LIMIT = 10


@pytest.mark.parametrize("size", [0, 1, LIMIT])
def test_a_body_within_the_limit_is_given_whole(size: int) -> None:
    sent = b"x" * size
    with BodyBudget(100).body(io.BytesIO(sent), Reading(KnownNodes()), limit_bytes=LIMIT, keep=True) as body:
        assert body == sent


def test_a_body_over_the_limit_is_not_given_and_read_to_its_end() -> None:
    source = io.BytesIO(b"x" * 25)
    with BodyBudget(100).body(source, Reading(KnownNodes()), limit_bytes=LIMIT, keep=True) as body:
        assert body is None
        assert source.read() == b""


def test_of_a_body_without_end_only_some_is_read() -> None:
    source = io.BytesIO(b"x" * 1000)
    with BodyBudget(100).body(source, Reading(KnownNodes()), limit_bytes=LIMIT, keep=True):
        assert source.tell() < 1000


def test_nothing_is_held_of_a_body_that_is_refused_anyway() -> None:
    source = io.BytesIO(b"x" * 20)
    with BodyBudget(0).body(source, Reading(KnownNodes()), limit_bytes=LIMIT, keep=False) as body:
        assert (body, source.read()) == (None, b"")


def test_bodies_that_take_up_the_room_keep_others_out_until_they_are_done() -> None:
    room = BodyBudget(15)
    with room.body(io.BytesIO(b"x" * 10), Reading(KnownNodes()), limit_bytes=LIMIT, keep=True):
        with (
            pytest.raises(CrowdedError),
            room.body(io.BytesIO(b"y" * 10), Reading(KnownNodes()), limit_bytes=LIMIT, keep=True),
        ):
            pass
        with room.body(io.BytesIO(b"z" * 5), Reading(KnownNodes()), limit_bytes=LIMIT, keep=True) as body:
            assert body == b"zzzzz"
    with room.body(io.BytesIO(b"y" * 10), Reading(KnownNodes()), limit_bytes=LIMIT, keep=True) as body:
        assert body == b"y" * 10


def test_a_body_that_breaks_off_gives_its_room_back() -> None:
    class Breaking(io.BytesIO):
        def readinto(self, space: Any, /) -> int:
            if self.tell():
                raise TimeoutError
            return super().readinto(space[:5])

    room = BodyBudget(LIMIT)
    with (
        pytest.raises(TimeoutError),
        room.body(Breaking(b"x" * 10), Reading(KnownNodes()), limit_bytes=LIMIT, keep=True),
    ):
        pass
    with room.body(io.BytesIO(b"x" * 10), Reading(KnownNodes()), limit_bytes=LIMIT, keep=True) as body:
        assert body == b"x" * LIMIT


class TestBuckets:
    def test_one_second_s_calls_may_come_at_once(self) -> None:
        buckets = Buckets()
        assert [buckets.take("a", per_second=3, now=0) for _ in range(4)] == [True, True, True, False]

    def test_a_bucket_fills_with_time_and_not_over_its_brim(self) -> None:
        buckets = Buckets()
        for _ in range(3):
            buckets.take("a", per_second=3, now=0)
        assert not buckets.take("a", per_second=3, now=0.3)
        assert buckets.take("a", per_second=3, now=0.7)
        assert [buckets.take("a", per_second=3, now=1000) for _ in range(4)] == [True, True, True, False]

    def test_callers_do_not_drink_from_each_other_s_bucket(self) -> None:
        buckets = Buckets()
        assert buckets.take("a", per_second=1, now=0)
        assert buckets.take("b", per_second=1, now=0)
        assert not buckets.take("a", per_second=1, now=0)

    def test_less_than_a_call_a_second_is_still_a_call_now_and_then(self) -> None:
        buckets = Buckets()
        assert buckets.take("a", per_second=0.5, now=0)
        assert not buckets.take("a", per_second=0.5, now=1)
        assert buckets.take("a", per_second=0.5, now=2)

    @given(
        st.floats(0.1, 1000),
        st.lists(st.floats(0, 5), max_size=200),
    )
    def test_never_more_calls_than_the_rate_allows(self, per_second: float, pauses: list[float]) -> None:
        buckets, now, taken = Buckets(), 0.0, 0
        for pause in pauses:
            now += pause
            taken += buckets.take("a", per_second=per_second, now=now)
        assert taken <= max(per_second, 1) + now * per_second + 1e-6
