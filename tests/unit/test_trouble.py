"""What is logged of an operation that is retried."""

import pytest

from scheduler import trouble
from scheduler.trouble import Trouble


def test_a_fault_is_news_once_until_its_text_changes_or_it_ends() -> None:
    redis = Trouble()
    assert [redis.is_news(text) for text in ("away", "away", "refused", "away")] == [True, False, True, True]
    redis.end()
    assert redis.is_news("away")


def test_a_fault_that_lasts_is_news_again_after_five_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([1000.0, 1299.0, 1300.0, 1301.0])
    monkeypatch.setattr(trouble.time, "monotonic", lambda: next(clock))
    redis = Trouble()
    said = [redis.is_news("away") for _ in range(4)]
    assert said == [True, False, True, False]


@pytest.mark.parametrize("text", ["away", ""])
def test_trouble_lasts_from_a_failed_attempt_to_the_next_that_succeeds(text: str) -> None:
    redis = Trouble()
    assert (redis.is_ongoing, redis.end()) == (False, False)
    redis.is_news(text)
    assert (redis.is_ongoing, redis.end()) == (True, True)
    assert (redis.is_ongoing, redis.end()) == (False, False)
