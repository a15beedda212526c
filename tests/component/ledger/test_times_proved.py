"""The times of AuditEvents, beside those at which the ledger was signed: what was planted at another time is named."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from django.utils import timezone

from policies.models.audit import _Clock
from policies.publishing.audit import Kind, record_event
from scheduler.ledger import events
from scheduler.ledger.checkpoints import sign_checkpoints
from scheduler.ledger.events import append_events
from tests.archives import check, exported, packed
from tests.ledgers import Ledgered, faults, plant_event

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
# Archives are made at the time that it is.
NOW = timezone.now() - 60 * DAY


class Clock:
    """The clock of all that acts, logs and signs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    @contextmanager
    def at(self, at: datetime) -> Iterator[None]:
        with self._monkeypatch.context() as patched:
            patched.setattr("policies.models.audit._clock", _Clock())  # each process keeps its ids from going back
            patched.setattr(timezone, "now", lambda: at)
            yield

    def act(self, at: datetime) -> None:
        with self.at(at):
            record_event(Kind.EXPORT, by="auditor", thing=("Revision", "1"))

    def log(self, at: datetime) -> None:
        with self.at(at):
            append_events(at)
            sign_checkpoints(at)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, ledgered: Ledgered) -> Clock:
    """A ledger with few events: those of a month are among its newest leaves."""
    clock = Clock(monkeypatch)
    for days in (30, 10, 5, 1):
        clock.act(NOW - days * DAY)
        clock.log(NOW - days * DAY)
    return clock


def test_events_of_a_quiet_month_are_at_their_places(clock: Clock, ledgered: Ledgered) -> None:
    assert faults(ledgered.verify()) == []


@pytest.mark.parametrize(("days", "when"), [(-20, "later than"), (20, "before")])
def test_an_event_that_was_planted_at_another_time_is_named(
    clock: Clock, ledgered: Ledgered, tmp_path: Path, days: int, when: str
) -> None:
    planted = plant_event("export", made_at=NOW + days * DAY, says_at=NOW + days * DAY, by="carol")
    clock.log(NOW)
    (said,) = faults(ledgered.verify())
    assert f"AuditEvent {planted.pk} (export by carol at " in said
    assert f"and was logged {when} the checkpoint over " in said
    assert said.endswith("it was planted, or a clock was days wrong")
    (fault,), _logs = check(packed(exported(), tmp_path / "e.tar"))
    assert f"({planted.pk} export) was made at " in fault
    assert fault.endswith("it was planted, or a clock was days wrong")


def test_what_nobody_logged_for_days_is_no_fault_where_it_is_signed_half_way(
    clock: Clock, ledgered: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days in (-0.9, -0.8, 21, 22, 23, 24):
        clock.act(NOW + days * DAY)
    monkeypatch.setattr(events, "BATCH", 2)
    later = NOW + 40 * DAY
    while events._append_batch(later):
        with clock.at(later):
            sign_checkpoints(later)
    assert faults(ledgered.verify()) == []
    assert check(packed(exported(), tmp_path / "e.tar"))[0] == []


@pytest.mark.parametrize("years", [-30, 30])
def test_events_are_at_their_places_though_the_clock_of_who_signs_is_years_wrong(
    clock: Clock, ledgered: Ledgered, tmp_path: Path, years: int
) -> None:
    for hours in range(3):
        clock.act(NOW + timedelta(hours=hours))
        append_events(NOW)
        sign_checkpoints(NOW + years * 365 * DAY)
    assert faults(ledgered.verify()) == []
    assert check(packed(exported(), tmp_path / "e.tar"))[0] == []


def test_an_event_whose_id_has_a_time_that_no_calendar_has_is_named(clock: Clock, ledgered: Ledgered) -> None:
    event = plant_event("export", made_at=UUID(int=(1 << 48) - 1 << 80), says_at=NOW)
    clock.log(NOW)
    (said,) = faults(ledgered.verify())
    assert f"AuditEvent {event.pk}" in said
    assert said.endswith(f"its id was made at a time that no calendar has, and it says {NOW}")
