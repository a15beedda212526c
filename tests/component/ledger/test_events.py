"""AuditEvents in the ledger: logged a moment after the act, in the order of their ids, each once."""

from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from policies.models import AuditEvent
from policies.models.audit import _Clock, first_id_at
from policies.publishing.audit import Kind, record_event
from scheduler.ledger.events import append_events
from scheduler.ledger.logs import EVENTS
from scheduler.ledger.tree import ProofError, leaf_hash
from scheduler.models import LedgerHead, LedgerLeaf
from tests.ledgers import Ledgered, faults, log_of, plant_event, without_triggers
from tests.unit.ledger.test_tree import root_of

pytestmark = pytest.mark.django_db


def act(number: int) -> AuditEvent:
    return record_event(Kind.EXPORT, by="auditor", thing=("Revision", str(number)))


def test_each_event_is_a_leaf_over_its_body(ledgered: Ledgered) -> None:
    events = [act(number) for number in range(3)]
    assert append_events(timezone.now()) == 3
    assert append_events(timezone.now()) == 0
    events.append(act(3))
    assert append_events(timezone.now()) == 1
    assert list(LedgerLeaf.objects.order_by("index").values_list("row", flat=True)) == [str(each.pk) for each in events]
    assert bytes(LedgerHead.objects.get(log=EVENTS).root) == root_of([leaf_hash(bytes(each.body)) for each in events])


def test_many_events_are_logged_in_batches(ledgered: Ledgered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.ledger.events.BATCH", 4)
    for number in range(10):
        act(number)
    assert append_events(timezone.now()) == 10
    assert log_of(ledgered.verify(), EVENTS).proved == 10


def test_a_log_whose_leaves_are_newer_than_its_head_takes_nothing_until_they_are_gone(ledgered: Ledgered) -> None:
    events = [act(number) for number in range(3)]
    append_events(timezone.now())
    events.append(act(3))
    LedgerLeaf.objects.create(log=EVENTS, index=3, row=str(events[3].pk))
    with pytest.raises(ProofError, match="a row of scheduler_ledgerleaf claims leaf 3, and the log events has only 3"):
        append_events(timezone.now())
    assert faults(ledgered.verify()) == ["events: a row claims leaf 3, and the log has only 3"]
    LedgerLeaf.objects.filter(index__gte=3).delete()
    assert append_events(timezone.now()) == 1
    assert faults(ledgered.verify()) == []


@pytest.mark.parametrize("kept", [0, 2])
def test_a_log_whose_leaves_are_older_than_its_head_logs_no_event_a_second_time(ledgered: Ledgered, kept: int) -> None:
    for number in range(3):
        act(number)
    append_events(timezone.now())
    newest = list(LedgerLeaf.objects.filter(index__gte=kept))
    LedgerLeaf.objects.filter(index__gte=kept).delete()
    with pytest.raises(ProofError, match="leaf 2 of the log events has no row in scheduler_ledgerleaf"):
        append_events(timezone.now())
    LedgerLeaf.objects.bulk_create(newest)
    assert append_events(timezone.now()) == 0
    assert faults(ledgered.verify()) == []


def test_an_event_that_was_done_later_than_the_next_one_is_logged_too(ledgered: Ledgered) -> None:
    late = act(1)
    AuditEvent.objects.bulk_create([])
    body, key = bytes(late.body), late.pk
    act(2)
    without_triggers()
    AuditEvent.objects.filter(pk=key).delete()
    assert append_events(timezone.now()) == 1
    late.pk = key
    late.save(force_insert=True)
    assert append_events(timezone.now()) == 1
    assert LedgerLeaf.objects.get(index=1).row == str(key)
    assert bytes(AuditEvent.objects.get(pk=key).body) == body


NOW = timezone.now()


@pytest.mark.parametrize(
    "says_at", [NOW - timedelta(days=2), NOW + timedelta(days=36_500)], ids=["old", "of the future"]
)
def test_an_event_whose_id_is_too_old_to_be_logged_is_named_whatever_time_it_says(
    ledgered: Ledgered, says_at: datetime
) -> None:
    act(1)
    append_events(timezone.now())
    planted = plant_event("export", made_at=NOW - timedelta(days=2), says_at=says_at)
    assert append_events(timezone.now()) == 0
    (said,) = faults(ledgered.verify())
    assert "1 rows have no leaf, and only 0 are older than the log" in said
    assert str(planted.pk) in said


@pytest.mark.parametrize("days", [-9, 9])
def test_an_event_that_says_another_time_than_its_id_is_named(ledgered: Ledgered, days: int) -> None:
    planted = plant_event("export", made_at=NOW, says_at=NOW + timedelta(days=days))
    append_events(timezone.now())
    (said,) = faults(ledgered.verify())
    assert f"AuditEvent {planted.pk}" in said
    assert "its id was made at" in said


@pytest.mark.parametrize("is_logged_by", ["right", "ahead"])
def test_events_of_a_clock_that_is_right_are_logged_after_those_of_one_that_is_ahead(
    ledgered: Ledgered, monkeypatch: pytest.MonkeyPatch, is_logged_by: str
) -> None:
    now = timezone.now() - timedelta(hours=3)
    tomorrow = now + timedelta(days=1)
    # Each process keeps its own ids from going back; these are of three.
    for began in (now, tomorrow, now + timedelta(minutes=1)):
        monkeypatch.setattr("policies.models.audit._clock", _Clock())
        monkeypatch.setattr(timezone, "now", lambda began=began: began)
        act(began.minute)
        append_events(tomorrow if is_logged_by == "ahead" else began)
    monkeypatch.undo()
    assert LedgerLeaf.objects.filter(log=EVENTS).count() == 3
    assert faults(ledgered.verify()) == []


def test_changed_removed_and_planted_events_are_found(ledgered: Ledgered) -> None:
    events = [act(number) for number in range(6)]
    append_events(timezone.now())
    ledgered.sign()
    assert faults(ledgered.verify()) == []
    without_triggers()
    AuditEvent.objects.filter(pk=events[1].pk).update(by="nobody")
    AuditEvent.objects.filter(pk=events[5].pk).update(body=b'{"by": "\xff"}')
    AuditEvent.objects.filter(pk=events[2].pk).update(body=bytes(events[3].body))
    AuditEvent.objects.filter(pk=events[4].pk).delete()
    LedgerLeaf.objects.filter(index=3).update(row="no id")
    planted = AuditEvent.objects.get(pk=events[0].pk)
    long_ago = timezone.now() - timedelta(days=1)
    planted.pk, planted.at = first_id_at(long_ago), long_ago
    planted.save(force_insert=True)
    said = "\n".join(faults(ledgered.verify()))
    assert f"leaf 1: AuditEvent {events[1].pk}" in said
    assert f"leaf 2: AuditEvent {events[2].pk}" in said
    assert "leaf 3: there is no row for it" in said
    assert "leaf 4: there is no row for it" in said
    assert f"leaf 5: AuditEvent {events[5].pk}" in said
    assert "1 rows have no leaf, and only 0 are older than the log" in said
