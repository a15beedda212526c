"""Verifying all of the ledger from its page: a worker does it slice by slice, another goes on where one ended, and it finds what the command finds."""

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.test import Client
from django.utils import timezone

from policies.models import AuditEvent
from scheduler.evidence import verifications
from scheduler.evidence import verify as verify_module
from scheduler.evidence.verifications import GIVEN_UP, NO_KEY, run_waiting
from scheduler.models import Decision, LedgerCheckpoint, Verification
from tests.component.pages import get, text_of
from tests.ledgers import Ledgered, without_triggers

pytestmark = pytest.mark.django_db
PAGE = "/admin/scheduler/ledger/"


def press(client: Client) -> str:
    """Press the button; return what the page says then."""
    return text_of(client.post(f"{PAGE}verify/", follow=True))


def said(client: Client) -> str:
    return text_of(get(client, f"{PAGE}verification/"))


@pytest.fixture
def sliced(ledgered: Ledgered, monkeypatch: pytest.MonkeyPatch) -> Ledgered:
    """A ledger of three stretches, each of which is a slice."""
    monkeypatch.setattr(verify_module, "STEP", 256)
    monkeypatch.setattr(verifications, "SLICE_SECONDS", 0.0)
    ledgered.record(600)
    ledgered.sign()
    return ledgered


@pytest.mark.parametrize("role", ["auditor", "operator", "approver"])
def test_whoever_sees_the_ledger_has_it_verified_and_is_told_what_was_found(
    role: str, ledgered: Ledgered, request: pytest.FixtureRequest
) -> None:
    ledgered.record(30)
    ledgered.sign()
    client = request.getfixturevalue(role)
    assert "The whole ledger has never been verified from here." in text_of(get(client, PAGE))
    assert f"Requested by {role} 0 s ago ; waiting for a worker." in press(client)
    run_waiting()
    assert f"requested by {role} : nothing was changed, inserted, removed or truncated. 40 rows proved" in said(client)
    assert AuditEvent.objects.filter(kind="verify", by=role).count() == 1


def test_it_finds_what_the_command_finds(ledgered: Ledgered, auditor: Client) -> None:
    ledgered.record(30)
    ledgered.sign()
    press(auditor)
    without_triggers()
    Decision.objects.filter(ledger_index=7).update(best="elsewhere")
    run_waiting()
    row = Verification.objects.get()
    assert row.is_sound is False
    assert "the history differs from what was recorded" in said(auditor)
    faults = [fault for report in ledgered.verify() for fault in report.faults]
    assert faults
    assert [fault for report in row.reports for fault in report["faults"]] == faults
    assert all(" ".join(fault.split()) in said(auditor) for fault in faults)


def test_it_goes_on_slice_by_slice_shows_how_far_it_is_and_reads_no_stretch_twice(
    sliced: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, int]] = []
    real = verify_module.LogVerifier._leaves

    def leaves(self: Any, start: int, until: int) -> bytes:
        read.append((self._source.log, start))
        return real(self, start, until)

    monkeypatch.setattr(verify_module, "read_apart", _read_none_ahead)
    monkeypatch.setattr(verify_module.LogVerifier, "_leaves", leaves)
    press(auditor)
    run_waiting()
    assert "256 of 800 leaves. You may leave this page." in said(auditor)
    for _ in range(8):
        run_waiting()
    assert Verification.objects.get().is_sound is True
    assert "800 rows proved" in said(auditor)
    assert read == [("decisions", 0), ("decisions", 256), ("decisions", 512), ("outcomes", 0)]


def test_what_is_asked_at_the_end_of_a_log_is_asked_once_however_many_slices_there_are(
    sliced: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = verify_module.LogVerifier._check_places
    monkeypatch.setattr(
        verify_module.LogVerifier, "_check_places", lambda self: (asked.append("places"), real(self))[1]
    )
    press(auditor)
    for _ in range(9):
        run_waiting()
    assert Verification.objects.get().is_sound is True
    assert asked == ["places"]


def test_a_fault_is_told_once_however_many_slices_there_are(sliced: Ledgered, auditor: Client) -> None:
    without_triggers()
    Decision.objects.filter(ledger_index__in=[3, 300]).update(best="elsewhere")
    LedgerCheckpoint.objects.update(note="not what was signed")
    press(auditor)
    for _ in range(9):
        run_waiting()
    found = [fault for report in Verification.objects.get().reports for fault in report["faults"]]
    assert len(found) == len(set(found))
    assert found == [fault for report in sliced.verify() for fault in report.faults]


def test_another_worker_takes_over_from_a_dead_one_and_three_deaths_are_enough(
    sliced: Ledgered, auditor: Client
) -> None:
    press(auditor)
    run_waiting()
    row = Verification.objects.get()
    for deaths in range(3):
        died = timezone.now() - timedelta(seconds=61)
        Verification.objects.update(heartbeat_at=died, holder=f"dead {deaths}")
        run_waiting()
        row.refresh_from_db()
        assert row.state == ("failed" if deaths == 2 else "running")
    assert row.fault == GIVEN_UP
    assert GIVEN_UP in said(auditor)


def test_who_was_taken_for_dead_writes_nothing_any_more(
    sliced: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = verifications.verify_each

    def taken_over(*given: Any, **more: Any) -> Any:
        Verification.objects.update(holder="another", progress={}, done=0)
        return real(*given, **more)

    monkeypatch.setattr(verifications, "verify_each", taken_over)
    press(auditor)
    run_waiting()
    row = Verification.objects.get()
    assert (row.holder, row.done, row.progress) == ("another", 0, {})


def test_a_second_one_is_not_begun_while_one_is_under_way(sliced: Ledgered, auditor: Client) -> None:
    press(auditor)
    assert "A verification is already running" in press(auditor)
    assert Verification.objects.count() == 1


def test_without_a_key_it_says_what_to_do(ledgered: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, ledger_key_file=""))
    press(auditor)
    run_waiting()
    assert NO_KEY in said(auditor)


def _read_none_ahead(_processes: int, _rows: int) -> Any:
    return nullcontext(lambda _log, spans: (None for _ in spans))
