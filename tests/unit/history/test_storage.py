"""What the history will take up is reckoned from two samples and the settings."""

from datetime import UTC, datetime, timedelta

import pytest

from scheduler.history.pruning import Retention
from scheduler.history.storage import forecast, in_words, size_in_words
from scheduler.models import StorageSample

AT = datetime(2026, 11, 18, tzinfo=UTC)


def sample(hours: float, decisions: int, **fields: int) -> StorageSample:
    base = {
        "rows": decisions,
        "decision_bytes": decisions * 2_000,
        "detail_bytes": 1_500,
        "journal_bytes": decisions * 500,
    }
    return StorageSample(at=AT + timedelta(hours=hours), decisions=decisions, **base | fields)


def test_at_todays_rate_the_days_that_are_kept_need_so_much() -> None:
    found = forecast(sample(12, 1_500_000), sample(0, 1_000_000), Retention(30, 0))
    assert (found.per_day, found.bytes_each, found.details_each) == (1_000_000, 500, 2_000)
    assert found.bytes == 30 * 1_000_000 * 2_500
    assert in_words(found) == "at today's rate, 1,000,000 Decisions a day, 30 days need 75 GB"


def test_details_that_are_kept_for_less_need_less() -> None:
    # As it is when 30 days of Decisions are there, the last 3 with details.
    newest = sample(
        24,
        31_000_000,
        rows=30_000_000,
        decision_bytes=30_000_000 * 500 + 3_000_000 * 1_500,
        journal_bytes=3_000_000 * 500,
    )
    found = forecast(newest, sample(0, 30_000_000), Retention(30, 3))
    assert (found.bytes_each, found.details_each) == (500, 2_000)
    assert found.bytes == 30 * 1_000_000 * 500 + 3 * 1_000_000 * 2_000


def test_what_is_kept_for_ever_is_reckoned_for_thirty_days() -> None:
    assert forecast(sample(1, 10), sample(0, 5), Retention(0, 0)).days == 30


def test_a_history_without_anything_needs_nothing() -> None:
    found = forecast(sample(1, 0), sample(0, 0), Retention(30, 0))
    assert (found.per_day, found.bytes) == (0, 0)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_000, "1.0 kB"),
        (1_500, "1.5 kB"),
        (10 * 10**9, "10 GB"),
        (410 * 10**9, "410 GB"),
        (2 * 10**12, "2.0 TB"),
        (64 * 10**6, "64 MB"),
    ],
)
def test_sizes_are_said_as_people_say_them(size: int, words: str) -> None:
    assert size_in_words(size) == words
