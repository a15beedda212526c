"""Legal holds are proved by the AuditEvents of their making and lifting: what was done to them past Berth is named."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from policies.models import AuditEvent
from policies.models.audit import first_id_at
from policies.publishing import audit, record_event
from scheduler.history.holds import lift_hold, make_hold
from scheduler.history.pruning import Retention, prune
from scheduler.ledger.events import append_events
from scheduler.models import Decision, LegalHold
from tests.ledgers import AT, Ledgered, faults, plant_event

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)

pytestmark = pytest.mark.django_db


@pytest.fixture
def held(ledgered: Ledgered) -> Ledgered:
    """Three holds, of which the second was lifted."""
    ledgered.record(4)
    for namespace in ("shop", "bank"):
        make_hold(by="ann", now=AT, reason=f"case of {namespace}", pod_namespace=namespace)
    make_hold(by="ann", now=AT, reason="case of tea", pod_namespace="tea", pod_uid="u", until_at=AT)
    lift_hold(number=LegalHold.objects.get(pod_namespace="bank").pk, by="ben", now=AT, reason="closed")
    append_events(timezone.now())
    ledgered.sign()
    return ledgered


def test_holds_that_nobody_touched_are_as_they_were_noted(held: Ledgered) -> None:
    assert faults(held.verify()) == []


def test_a_hold_that_a_process_lifts_whose_clock_is_behind_is_as_it_was_noted(
    held: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "time_ordered_id", lambda now: first_id_at(now - HOUR))
    lift_hold(number=the("shop").pk, by="ben", now=AT, reason="closed")
    append_events(timezone.now())
    assert faults(held.verify()) == []


def the(namespace: str) -> LegalHold:
    return LegalHold.objects.get(pod_namespace=namespace)


def change(namespace: str, **fields: object) -> None:
    LegalHold.objects.filter(pod_namespace=namespace).update(**fields)


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (lambda: the("shop").delete(), "was removed: an AuditEvent says that ann made it: case of shop"),
        (lambda: the("bank").delete(), "was removed: an AuditEvent says that ann made it: case of bank"),
        (lambda: change("shop", pod_namespace="other"), "is not what was noted when ann made it: it was changed"),
        (lambda: change("shop", until_at=AT), "is not what was noted when ann made it: it was changed"),
        (lambda: change("shop", reason="none"), "is not what was noted when ann made it: it was changed"),
        (lambda: change("shop", made_by="eve"), "is not what was noted when ann made it: it was changed"),
        (lambda: change("shop", lifted_at=AT), "was lifted, and no AuditEvent says by whom"),
        (lambda: change("bank", lifted_by="eve"), "is not what was noted when ben lifted it: it was changed"),
        (lambda: change("bank", lift_reason="none"), "is not what was noted when ben lifted it: it was changed"),
        (lambda: change("bank", lifted_at=AT - HOUR), "is not what was noted when ben lifted it: it was changed"),
        (lambda: change("shop", made_at=AT - HOUR), "is not what was noted when ann made it: it was changed"),
        (lambda: change("tea", until_at=AT + SECOND), "is not what was noted when ann made it: it was changed"),
        (
            lambda: change("tea", pod_namespace="tea, UID u", pod_uid=""),
            "is not what was noted when ann made it: it was changed",
        ),
        (lambda: change("shop", lifted_by="eve"), "is in force, and says who lifted it or why: it was changed"),
        (lambda: change("shop", lift_reason="none"), "is in force, and says who lifted it or why: it was changed"),
        (lambda: change("bank", lifted_at=None), "is in force, and an AuditEvent says that it was lifted"),
        (
            lambda: LegalHold.objects.create(reason="x", pod_namespace="all", made_by="eve", made_at=AT),
            "was planted: no AuditEvent says that it was made",
        ),
    ],
)  # fmt: skip
def test_what_was_done_to_a_hold_past_berth_is_named(held: Ledgered, do: Callable[[], object], said: str) -> None:
    do()
    (found,) = faults(held.verify())
    assert found.endswith(said)


def test_a_hold_of_which_an_earlier_version_noted_words_alone_is_as_it_was_noted(
    ledgered: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_columns(*arguments: Any, more: dict[str, Any], **others: Any) -> Any:
        return record_event(*arguments, more={"holds": more["holds"]} if "holds" in more else {}, **others)

    monkeypatch.setattr("scheduler.history.holds.record_event", without_columns)
    made = make_hold(by="ann", now=AT, reason="case of shop", pod_namespace="shop")
    lift_hold(number=made.pk, by="ben", now=AT, reason="closed")
    append_events(timezone.now())
    assert faults(ledgered.verify()) == []
    change("shop", lift_reason="none")
    assert len(faults(ledgered.verify())) == 1


def test_a_lifting_that_only_an_unlogged_event_tells_of_is_named(held: Ledgered) -> None:
    hold, now = the("shop"), timezone.now()
    plant_event(
        "hold.lift", made_at=now - timedelta(days=2), says_at=now + timedelta(days=36_500), by="ben",
        thing_kind="LegalHold", thing_name=str(hold.pk), reason="closed",
    )  # fmt: skip
    change("shop", lifted_by="ben", lifted_at=AT, lift_reason="closed")
    assert any("was lifted, and no AuditEvent says by whom" in said for said in faults(held.verify()))


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is noted from now on be noted two hours after the holds."""
    monkeypatch.setattr(audit, "time_ordered_id", lambda now: first_id_at(now + 2 * HOUR))


def without_row(number: int) -> None:
    LegalHold.objects.filter(pk=number).delete()


@pytest.mark.parametrize(
    "hide",
    [
        lambda: change("shop", lifted_at=AT, lifted_by="eve"),
        lambda: change("shop", pod_name="other"),
        lambda: change("shop", from_at=AT + HOUR),
        lambda: without_row(the("shop").pk),
    ],
)
def test_a_hold_that_was_hidden_while_retention_deleted_what_it_keeps_is_named_once_it_is_back(
    held: Ledgered, monkeypatch: pytest.MonkeyPatch, hide: Callable[[], object]
) -> None:
    later(monkeypatch)
    hold, days = the("shop"), AT + timedelta(days=400)
    Decision.objects.filter(ledger_index=0).update(pod_namespace="shop")
    prune(Retention(days=30, details_days=0), days)
    assert Decision.objects.get().ledger_index == 0
    Decision.objects.update(pod_namespace="default")
    assert faults(held.verify()) == []
    Decision.objects.update(pod_namespace="shop")
    hide()
    prune(Retention(days=30, details_days=0), days)
    assert not Decision.objects.exists()
    hold.save()
    append_events(timezone.now())
    (said,) = faults(held.verify())
    event = AuditEvent.objects.filter(kind="prune").latest("pk")
    assert said == (
        f"events: legal hold {hold.pk} was in force, and not as ann made it when retention deleted rows or details, as AuditEvent "
        f"{event.pk} says: it was hidden or changed meanwhile"
    )


def test_a_hold_may_be_made_and_lifted_around_what_retention_deletes(
    held: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention = Retention(days=30, details_days=0)
    later(monkeypatch)
    lift_hold(number=the("shop").pk, by="ben", now=AT, reason="closed")
    prune(retention, AT + timedelta(days=400))
    held.record(2)
    held.sign()
    make_hold(by="ann", now=AT, reason="case of shop", pod_namespace="shop")
    prune(retention, AT + timedelta(days=400))
    append_events(timezone.now())
    assert AuditEvent.objects.filter(kind="prune").count() > 2
    assert faults(held.verify()) == []
