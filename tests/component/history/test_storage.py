"""How much the history takes up, and what it will: compared with what PostgreSQL says once it is there."""

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from django.db import connection

from scheduler.decisions.storing import insert
from scheduler.history.partitions import make_ahead
from scheduler.history.pruning import Retention
from scheduler.history.storage import forecast, sample, samples_now, weigh
from scheduler.models import Checkpoint, Decision

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no statistics that can be old"),
]

MONDAY = datetime(2031, 1, 6, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def empty() -> None:
    """Rows of other tests were taken back, and their pages stayed."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE scheduler_decision, scheduler_outcome, scheduler_snapshotpart, scheduler_nodenames")


def stored(first: int, until: int) -> None:
    """Store Decisions with these numbers, of which no two are alike."""
    random = Random(first)
    rows = [
        Decision(
            at=MONDAY + timedelta(seconds=number), process="p", sequence=number, verb="filter", pod_namespace="shop",
            pod_name=f"web-{number}", pod_uid=f"uid-{number}", revision=1, body=random.randbytes(random.randint(900, 3_100)),
        )
        for number in range(first, until)
    ]  # fmt: skip
    assert insert(Decision, rows) == []
    Checkpoint.objects.update_or_create(writer="p", defaults={"next_decision": until, "at": MONDAY})


def analyze() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE scheduler_decision")


def test_rows_are_reckoned_right_long_after_statistics_were_made() -> None:
    make_ahead(MONDAY)
    stored(1, 201)
    analyze()
    stored(201, 4_001)
    assert weigh()[2] == pytest.approx(4_000, rel=0.1)


def test_a_forecast_is_what_it_comes_to() -> None:
    make_ahead(MONDAY)
    sample(MONDAY)
    stored(1, 301)
    analyze()
    stored(301, 2_001)
    sample(MONDAY + DAY / 4)
    newest, before = samples_now()
    assert newest is not None
    assert before is not None
    found = forecast(newest, before, Retention(days=1, details_days=0))
    assert found.per_day == 8_000
    stored(2_001, 8_001)
    decision_bytes, journal_bytes, _rows = weigh()
    # So few rows weigh little more than the empty indexes of five partitions, which don't grow with them.
    assert found.bytes == pytest.approx(decision_bytes + journal_bytes, rel=0.3)
