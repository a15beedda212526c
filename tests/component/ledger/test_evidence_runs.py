"""Archives that people ask for in the admin: made by a worker, taken by whoever may, and each of that is an event."""

import re
import sqlite3
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import msgspec
import psycopg
import pytest
from django.conf import settings
from django.db import DataError, OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from psycopg.errors import AdminShutdown, ConnectionException, DiskFull

from policies.models import AuditEvent
from policies.publishing import silence
from scheduler.evidence import runs, selection
from scheduler.evidence.runs import run_waiting
from scheduler.ledger.logs import DECISIONS
from scheduler.ledger.note import Signer
from scheduler.models import EvidenceExport, EvidencePiece, LedgerTile
from tests.archives import check
from tests.ledgers import SIGNER, Ledgered, resign

pytestmark = pytest.mark.django_db
PAGE, START, ROWS = (f"/admin/scheduler/evidence/{name}" for name in ("", "start/", "rows/"))


@pytest.fixture
def ledger(ledgered: Ledgered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledgered:
    key = tmp_path / "key"
    key.write_text(SIGNER.private_text())
    key.chmod(0o600)
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, ledger_key_file=str(key)))
    ledgered.record(40)
    ledgered.sign()
    return ledgered


def asked(client: Client, **case: str) -> EvidenceExport:
    answer = client.post(START, case)
    assert answer.status_code == 302, answer.content
    return EvidenceExport.objects.latest("pk")


def taken(client: Client, row: EvidenceExport) -> Any:
    return client.post(f"/admin/scheduler/evidence/{row.pk}/download/")


def events() -> list[tuple[str, str]]:
    found = AuditEvent.objects.filter(kind="export").order_by("at", "pk")
    return list(found.values_list("by", "thing_name"))


def test_an_auditor_asks_for_an_archive_takes_it_and_berth_verify_proves_it(
    ledger: Ledgered, auditor: Client, tmp_path: Path
) -> None:
    row = asked(auditor)
    assert "waiting for a worker" in auditor.get(ROWS).content.decode()
    assert taken(auditor, row).status_code == 302
    run_waiting()
    row.refresh_from_db()
    assert (row.state, row.fault) == ("done", "")
    answer = taken(auditor, row)
    data = b"".join(answer.streaming_content)
    assert (answer["Content-Type"], answer["Content-Length"]) == ("application/x-tar", str(len(data)))
    path = tmp_path / "e.tar"
    path.write_bytes(data)
    faults, logs = check(path)
    assert faults == []
    rows = {log["log"]: log["rows"] for log in logs}
    assert (rows["decisions"], rows["outcomes"], sum(rows.values())) == (40, 13, row.rows)
    assert events() == [("auditor", "everything"), ("auditor", f"archive {row.pk}: everything")]


def test_each_piece_of_an_archive_is_read_when_its_turn_has_come(
    ledger: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_PIECE_BYTES", 4096)
    row = asked(auditor)
    run_waiting()
    row.refresh_from_db()
    pieces = runs.take(row, by="auditor")
    with CaptureQueriesContext(connection) as captured:
        size = len(next(pieces)) + len(next(pieces))
    assert (size, len(captured)) == (8192, 2)
    assert size + sum(map(len, pieces)) == row.bytes


def test_an_archive_asks_the_database_for_some_rows_at_a_time(
    ledger: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "CHUNK", 16)
    asked(auditor)
    with CaptureQueriesContext(connection) as captured:
        run_waiting()
    bodies = [each["sql"] for each in captured if '"scheduler_decision"."body"' in each["sql"]]
    assert len(bodies) == 3  # of 40 Decisions


def test_a_case_narrows_what_is_in_it(ledger: Ledgered, auditor: Client) -> None:
    row = asked(auditor, pod_namespace="default", pod_name="nobody", first="2026-01-01T00:00")
    run_waiting()
    row.refresh_from_db()
    assert (row.state, row.pod_name) == ("done", "nobody")
    assert events() == [("auditor", "from 2026-01-01 00:00:00 UTC, Pod default/nobody")]
    assert "Pod default/nobody" in auditor.get(PAGE).content.decode()


@pytest.mark.parametrize("role", ["operator", "approver"])
def test_nobody_but_auditors_exports(
    ledger: Ledgered, auditor: Client, role: str, request: pytest.FixtureRequest
) -> None:
    row = asked(auditor)
    run_waiting()
    other = request.getfixturevalue(role)
    page = other.get(PAGE).content.decode()
    assert "Only Auditors can export" in page
    assert "evidence-form" not in page
    assert "Download" not in page
    assert other.post(START).status_code == 403
    assert taken(other, row).status_code == 403
    assert EvidenceExport.objects.count() == 1


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ({"first": "2026-01-02T00:00", "until": "2026-01-01T00:00"}, "The end is before the start."),
        ({"first": "2999-01-01T00:00"}, "The time begins in the future: it is 20"),
        ({"change": "0"}, "greater than or equal to 1"),
        ({"change": "99"}, "There is no Change 99."),
        ({"first": "yesterday"}, "Enter a valid date/time."),
        ({"pod_name": "x" * 254}, "at most 253 characters"),
        ({"pod_name": "shop/web-1"}, "have no “/”: give the namespace"),
        ({"pod_namespace": "shop\u202e"}, "U+202E, which displays it in another order: remove it."),
        ({"pod_uid": "a\u200bb"}, "U+200B, which is invisible"),
    ],
)
def test_a_faulty_case_is_refused_and_said(auditor: Client, case: dict[str, str], says: str) -> None:
    answer = auditor.post(START, case)
    assert says in answer.content.decode()
    assert not EvidenceExport.objects.exists()
    assert events() == []


def test_one_archive_at_a_time_for_each_person(ledger: Ledgered, auditor: Client) -> None:
    asked(auditor)
    assert "is still being made" in auditor.post(START).content.decode()
    assert len(events()) == 1


def test_without_the_ledgers_key_it_says_what_to_do(auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, ledger_key_file=""))
    row = asked(auditor)
    run_waiting()
    row.refresh_from_db()
    assert row.state == "failed"
    assert "Give the worker BERTH_LEDGER_KEY_FILE" in auditor.get(PAGE).content.decode()


def test_one_that_is_too_large_ends_and_leaves_nothing(
    ledger: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MOST_BYTES", 20_000)
    monkeypatch.setattr(runs, "_PIECE_BYTES", 5_000)
    row = asked(auditor)
    run_waiting()
    row.refresh_from_db()
    assert (row.state, row.fault) == ("failed", runs.TOO_LARGE)
    assert not EvidencePiece.objects.exists()


def test_one_whose_worker_was_killed_is_begun_anew_and_whole(
    ledger: Ledgered, auditor: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "_PIECE_BYTES", 5_000)
    row = asked(auditor)
    run_waiting()
    left = row.pieces.count()
    assert left > 3
    now = timezone.now()
    # As the killed one left it: half of the pieces, and nobody who shows that he lives.
    row.pieces.filter(number__gt=left // 2).delete()
    EvidenceExport.objects.update(state="running", ended_at=None, heartbeat_at=now)
    run_waiting()
    row.refresh_from_db()
    assert row.state == "running"  # it may still live
    EvidenceExport.objects.update(heartbeat_at=now - timedelta(minutes=2))
    run_waiting()
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("done", 2)
    path = tmp_path / "e.tar"
    path.write_bytes(b"".join(taken(auditor, row).streaming_content))
    assert check(path)[0] == []


@pytest.mark.django_db(transaction=True)
def test_one_with_a_long_step_is_not_taken_for_dead(
    ledger: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, beats = runs.export, []

    def with_a_long_query(*args: Any, **options: Any) -> Any:
        before = timezone.now() - timedelta(minutes=2)
        EvidenceExport.objects.update(heartbeat_at=before)
        deadline = monotonic() + 30
        while not beats and monotonic() < deadline:
            sleep(0.05)
            beats.extend(EvidenceExport.objects.filter(heartbeat_at__gt=before))
        return original(*args, **options)

    monkeypatch.setattr(silence, "_BEAT_SECONDS", 0.1)
    monkeypatch.setattr(runs, "export", with_a_long_query)
    row = asked(auditor)
    run_waiting()
    row.refresh_from_db()
    assert (row.state, len(beats)) == ("done", 1)


@pytest.mark.parametrize("days", [-1, 1])
def test_a_worker_whose_clock_is_wrong_takes_no_other_for_dead(
    ledger: Ledgered, auditor: Client, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = asked(auditor)
    run_waiting()
    EvidenceExport.objects.update(state="running", ended_at=None, heartbeat_at=timezone.now())
    right = timezone.now
    monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(days=days))
    run_waiting()
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("running", 1)


def test_one_that_was_taken_for_dead_ends_nothing(
    ledger: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = asked(auditor)
    original = runs.export

    def taken_over(*args: Any, **options: Any) -> Any:
        EvidenceExport.objects.filter(pk=row.pk).update(attempts=7)
        return original(*args, **options)

    monkeypatch.setattr(runs, "export", taken_over)
    run_waiting()
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("running", 7)
    assert not row.pieces.filter(attempt=7).exists()


def test_a_damaged_ledger_is_said_to_whoever_asked(ledger: Ledgered, auditor: Client) -> None:
    LedgerTile.objects.filter(log=DECISIONS, level=0).update(hashes=b"")
    row = asked(auditor)
    run_waiting()
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("failed", 1)
    assert row.fault.startswith("The ledger is damaged, and proves nothing: ")


def test_a_checkpoint_that_a_stranger_signed_proves_nothing(ledger: Ledgered, auditor: Client) -> None:
    resign(DECISIONS, Signer("berth", bytes(32)))
    row = asked(auditor)
    run_waiting()
    row.refresh_from_db()
    assert row.state == "failed"
    assert "signed by none of the known keys" in row.fault


def test_one_that_fails_again_and_again_is_given_up(auditor: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_args: Any, **_options: Any) -> Any:
        raise SystemExit

    monkeypatch.setattr(runs, "export", killed)
    row = asked(auditor)
    for _ in range(3):
        with pytest.raises(SystemExit):
            run_waiting()
        EvidenceExport.objects.update(heartbeat_at=timezone.now() - timedelta(minutes=2))
    run_waiting()
    row.refresh_from_db()
    assert row.state == "failed"
    assert "its connection to the database, ended each time" in row.fault


def test_an_archive_is_kept_for_a_week(ledger: Ledgered, auditor: Client) -> None:
    row = asked(auditor)
    run_waiting()
    EvidenceExport.objects.update(ended_at=timezone.now() - timedelta(days=8))
    assert "no longer kept" in auditor.get(PAGE).content.decode()
    run_waiting()
    assert not EvidencePiece.objects.exists()
    assert taken(auditor, row).status_code == 302
    assert "Ask for it again" in auditor.get(PAGE).content.decode()


def test_the_list_asks_again_only_while_one_is_being_made(ledger: Ledgered, auditor: Client) -> None:
    assert "hx-get" not in auditor.get(ROWS).content.decode()
    asked(auditor)
    assert 'hx-trigger="every 1s"' in auditor.get(ROWS).content.decode()
    run_waiting()
    assert not re.search("hx-get", auditor.get(ROWS).content.decode())


@pytest.mark.parametrize("cause", [AdminShutdown, ConnectionException, psycopg.OperationalError])
def test_an_archive_is_begun_again_when_the_database_went_away(
    ledger: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch, cause: type[Exception]
) -> None:
    row = asked(auditor)
    with monkeypatch.context() as away:
        away.setattr(runs, "export", raising(cause()))
        with pytest.raises(OperationalError):
            run_waiting()
    row.refresh_from_db()
    assert row.state == "running"
    EvidenceExport.objects.update(heartbeat_at=timezone.now() - timedelta(hours=1))
    run_waiting()
    row.refresh_from_db()
    assert (row.state, row.attempts) == ("done", 2)


@pytest.mark.parametrize("cause", [DiskFull(), psycopg.DataError(), sqlite3.OperationalError()])
def test_an_archive_fails_where_the_database_refuses_it(
    ledger: Ledgered, auditor: Client, monkeypatch: pytest.MonkeyPatch, cause: Exception
) -> None:
    row = asked(auditor)
    monkeypatch.setattr(runs, "export", raising(cause))
    run_waiting()
    row.refresh_from_db()
    assert (row.state, row.fault) == ("failed", "in the server's words")


def raising(cause: Exception) -> Callable[..., None]:
    """What meets an error of the database, as Django raises it."""

    def fails(*_: Any, **__: Any) -> None:
        error = DataError if isinstance(cause, psycopg.DataError) else OperationalError
        raise error("in the server's words") from cause

    return fails
