"""When what failed is tried again."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from scheduler.webhooks.pace import MOST_ATTEMPTS, rest_after, retry_after


@given(st.integers(1, MOST_ATTEMPTS - 1), st.floats(0, 1))
def test_it_waits_twice_as_long_each_time_up_to_an_hour_and_by_chance(attempts: int, chance: float) -> None:
    after = retry_after(attempts, chance)
    whole = timedelta(seconds=min(3600, 5 * 2 ** (attempts - 1)))
    assert after is not None
    assert whole / 2 <= after <= whole


@given(st.integers(1, MOST_ATTEMPTS - 1), st.floats(0, 1), st.floats(0, allow_nan=False))
def test_a_receiver_that_asks_for_time_gets_it_up_to_the_longest_pause(
    attempts: int, chance: float, asked: float
) -> None:
    for pause, longest in ((retry_after, 3600.0), (rest_after, 300.0)):
        without, after = pause(attempts, chance), pause(attempts, chance, asked)
        assert without is not None
        assert after == max(without, timedelta(seconds=min(asked, longest)))


def test_it_gives_up_after_a_night() -> None:
    waits = [retry_after(attempts, 0.5) for attempts in range(1, MOST_ATTEMPTS)]
    assert timedelta(hours=8) < sum(filter(None, waits), timedelta()) < timedelta(hours=16)
    assert retry_after(MOST_ATTEMPTS, 0.5) is None


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_a_webhook_that_fails_for_long_is_asked_every_few_minutes_all_the_same(failures: int, chance: float) -> None:
    assert rest_after(failures, chance) <= timedelta(minutes=5)
