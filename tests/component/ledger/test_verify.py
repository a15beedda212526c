"""Verifying a database: what is untouched or pruned by a rule is proved, and whatever was changed is found and named."""

import itertools
import shutil
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import msgspec
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from policies.models import AuditEvent
from policies.models.audit import first_id_at
from policies.publishing import audit, record_event
from scheduler.decisions.frames import Kind as FrameKind
from scheduler.decisions.reading import exact_bytes
from scheduler.decisions.record import AS_JSON, AS_RECORD, make_compressor, payload_of, split
from scheduler.decisions.record import Outcome as Seen
from scheduler.evidence import pruned
from scheduler.evidence.sound import read_stretch
from scheduler.evidence.verify import Progress
from scheduler.history import pruning
from scheduler.history.holds import make_hold
from scheduler.history.late import Late
from scheduler.history.partitions import make_ahead
from scheduler.history.pruning import Retention, prune
from scheduler.ledger.checkpoints import sign, sign_checkpoints, tree_head
from scheduler.ledger.deletions import Deletion, deletions, note_deleted
from scheduler.ledger.events import append_events
from scheduler.ledger.logs import DECISIONS, EVENTS, OUTCOMES
from scheduler.ledger.note import Signer
from scheduler.ledger.tree import HASH_BYTES, leaf_hash
from scheduler.management.commands import verify as verify_command
from scheduler.models import (
    Checkpoint,
    DeadLetter,
    Decision,
    DecisionGap,
    LedgerCheckpoint,
    LedgerHead,
    LedgerLeaf,
    LedgerPruned,
    LedgerTile,
    Outcome,
)
from tests.ledgers import (
    AT,
    SIGNER,
    Ledgered,
    faults,
    hidden_beginning,
    log_of,
    rebuild,
    resign,
    unnoticed,
    without_triggers,
)

pytestmark = pytest.mark.django_db

ROWS = 300


@pytest.fixture
def history(ledgered: Ledgered) -> Ledgered:
    for count in (7, 120, 100, ROWS - 227):
        ledgered.record(count)
        ledgered.sign()
    return ledgered


def test_what_is_untouched_is_proved(history: Ledgered) -> None:
    reports = history.verify()
    assert faults(reports) == []
    decisions, outcomes = log_of(reports), log_of(reports, OUTCOMES)
    assert (decisions.size, decisions.proved, decisions.checkpoints, decisions.signed_size) == (ROWS, ROWS, 8, ROWS)
    assert (outcomes.size, outcomes.proved, outcomes.without_row) == (ROWS // 3, ROWS // 3, 0)


def test_a_run_goes_on_from_where_the_one_before_got(history: Ledgered) -> None:
    progress: dict[str, Progress] = {}
    history.verify(progress=progress)
    history.record(30)
    history.sign()
    reports = history.verify(progress=progress)
    assert faults(reports) == []
    assert log_of(reports).proved == ROWS + 30
    Decision.objects.filter(ledger_index=ROWS + 3).update(pod_name="other")
    history.record(1)
    before = {log: Progress(next=each.next, tiles=each.tiles, numbers=each.numbers) for log, each in progress.items()}
    assert faults(history.verify(progress=before)) == []  # what was proved before isn't read again
    assert "column pod_name" in faults(history.verify())[0]


def test_a_run_that_goes_on_compares_what_was_signed_since_over_the_same_leaves(history: Ledgered) -> None:
    progress: dict[str, Progress] = {}
    assert log_of(history.verify(progress=progress)).checkpoints == 8
    history.signer = Signer("berth", bytes(32))
    history.sign()
    keys = [SIGNER.verifier, history.signer.verifier]
    for _ in range(2):
        assert log_of(history.verify(progress=progress, keys=keys)).checkpoints == 10
    of_another_tree = LedgerHead(log=DECISIONS, size=ROWS, root=bytes(32))
    note = SIGNER.sign(tree_head(SIGNER.verifier.name, of_another_tree, AT).text())
    LedgerCheckpoint.objects.create(log=DECISIONS, size=ROWS, note=note, at=AT)
    said = faults(history.verify(progress=progress, keys=keys))
    assert [f"has another root for the first {ROWS} leaves" in each for each in said] == [True]


def test_a_run_that_read_more_than_the_log_has_says_so_and_reads_from_the_beginning(history: Ledgered) -> None:
    later = {
        log: Progress(next=ROWS + 60, tiles=[], numbers={"extender@a": (900, 350)}) for log in (DECISIONS, OUTCOMES)
    }
    reports = history.verify(progress=later)
    assert faults(reports) == [
        f"{log}: an earlier run read {ROWS + 60} leaves, and the log has only {size}: it was cut off or rolled back"
        for log, size in ((DECISIONS, ROWS), (OUTCOMES, ROWS // 3))
    ]
    assert (log_of(reports).proved, log_of(reports).proved_before) == (ROWS, 0)


def test_pruned_rows_and_details_leave_the_rest_proved(history: Ledgered) -> None:
    Decision.objects.filter(ledger_index__lt=100).delete()
    Decision.objects.filter(ledger_index__range=(100, 149)).update(body=b"")
    assert "leaf 0: there is no row for it, and no rule of retention deleted it" in faults(history.verify())[0]
    LedgerPruned.objects.create(log=DECISIONS, first=0, until=100, rule="Decisions of 30 days", at=AT)
    LedgerPruned.objects.create(log=DECISIONS, first=100, until=150, what="details", rule="details of 7 days", at=AT)
    report = log_of(history.verify())
    assert report.faults == []
    assert (report.proved, report.without_row, report.checkpoints) == (ROWS - 150, 150, 8)
    assert [(each.rule, each.deleted) for each in report.pruned] == [
        ("Decisions of 30 days", 100),
        ("details of 7 days", 50),
    ]


def test_a_row_that_no_rule_took_is_missed_between_rows_that_one_did(history: Ledgered) -> None:
    held, last = Decision.objects.get(ledger_index=40), Decision.objects.get(ledger_index=99)
    make_hold(by="auditor", now=AT, reason="case 7", pod_uid=held.pod_uid)
    prune(Retention(days=0, details_days=1), last.at + timedelta(days=1, hours=1))
    report = log_of(history.verify())
    emptied = Decision.objects.filter(body=b"").count()
    assert (report.faults, report.without_row) == ([], emptied)
    assert emptied > 40
    Decision.objects.filter(pk=held.pk).update(body=b"")
    (said,) = faults(history.verify())
    assert f"leaf 40: Decision {held.pk} " in said
    assert "has lost its body, and no rule of retention deleted it" in said
    Decision.objects.filter(pk=held.pk).delete()
    said, *_ = faults(history.verify())
    assert said == "decisions: leaf 40: there is no row for it, and no rule of retention deleted it"


def test_what_retention_deletes_is_signed_and_what_somebody_deletes_is_missed_whatever_he_writes(
    history: Ledgered,
) -> None:
    sign_checkpoints(AT)
    prune(Retention(days=0, details_days=1), AT + timedelta(days=400))
    (of_details,) = log_of(history.verify()).pruned
    assert (of_details.rule, of_details.deleted, of_details.leaves) == ("details are kept for 1 days", ROWS, ROWS)
    # Who can write rows, and has no key.
    LedgerPruned.objects.create(log=DECISIONS, first=200, until=210, rule="Decisions of 30 days", at=AT)
    planted = Deletion(DECISIONS, "rows", 210, 220, "Decisions of 30 days", AT)
    forger = Signer("berth", bytes(32))
    for note in (f"berth/deleted\n{planted.line}", forger.sign(f"berth/deleted\n{planted.line}")):
        record_event("prune", by="", more={"note": note})
    Decision.objects.filter(ledger_index__range=(200, 219)).delete()
    said = faults(history.verify())
    row = LedgerPruned.objects.get()
    assert said[0] == (
        f"decisions: row {row.pk} of LedgerPruned says that rows of 200 to 209 were deleted by a rule (Decisions of 30 days), and no key "
        "that is trusted signed that: it was planted"
    )
    assert "leaf 200: there is no row for it, and no rule of retention deleted it" in said[1]
    assert sum("AuditEvent" in each and "says that rows of 210 to 219" in each for each in said) == 2


def test_what_is_planted_while_the_first_signed_deletions_are_hidden_is_named_once_they_are_back(
    history: Ledgered,
) -> None:
    sign_checkpoints(AT)
    Decision.objects.filter(ledger_index__lt=50).delete()
    note_deleted([Deletion(DECISIONS, "rows", 0, 50, "of 30 days", AT)], {})
    append_events(timezone.now())
    with hidden_beginning():
        LedgerPruned.objects.create(log=DECISIONS, first=200, until=210, rule="Decisions of 30 days", at=AT)
        sign_checkpoints(AT)  # a worker does, a minute later, and takes over what was planted
        append_events(timezone.now())
        LedgerPruned.objects.all().delete()
        Decision.objects.filter(ledger_index__range=(200, 209)).delete()
    first, second = AuditEvent.objects.filter(kind="prune.begin").order_by("pk")
    said = faults(history.verify())
    assert said[0] == (
        f"decisions: AuditEvent {second.pk} says that rows of 200 to 209 were deleted by a rule (Decisions of 30 days), and deletions of "
        f"before they were signed had been taken over already, by AuditEvent {first.pk}: it was planted"
    )
    assert "leaf 200: there is no row for it, and no rule of retention deleted it" in said[1]
    assert not any("0 to 49" in each for each in said)  # it repeats what a rule did delete


def test_of_two_first_signed_deletions_those_with_the_first_leaf_count_whatever_clocks_said(history: Ledgered) -> None:
    sign_checkpoints(AT)
    with hidden_beginning():
        LedgerPruned.objects.create(log=DECISIONS, first=0, until=9, rule="Decisions of 30 days", at=AT)
        sign_checkpoints(AT)
    _former, later = AuditEvent.objects.filter(kind="prune.begin").order_by("pk")
    for index, event in enumerate(AuditEvent.objects.order_by("-pk")):
        LedgerLeaf.objects.create(log=EVENTS, index=index, row=str(event.pk))
    found, planted = deletions([SIGNER.verifier])
    assert ([(each.first, each.until) for each in found], planted) == ([(0, 9)], [])
    LedgerLeaf.objects.filter(row=later.pk).update(index=99)
    found, (claim, _row) = deletions([SIGNER.verifier])[0], sorted(deletions([SIGNER.verifier]).planted)
    assert (found, claim.where) == ([], f"AuditEvent {later.pk}")


def test_what_was_deleted_before_deletions_were_signed_counts_once_the_key_signed_it(history: Ledgered) -> None:
    Decision.objects.filter(ledger_index__lt=100).delete()
    LedgerPruned.objects.create(log=DECISIONS, first=0, until=100, rule="Decisions of 30 days", at=AT)
    sign_checkpoints(AT)
    report = log_of(history.verify())
    assert (report.faults, report.pruned[0].deleted) == ([], 100)
    LedgerPruned.objects.all().delete()
    assert faults(history.verify()) == []
    LedgerPruned.objects.create(log=DECISIONS, first=0, until=101, rule="Decisions of 30 days", at=AT)
    assert "rows of 0 to 100" in faults(history.verify())[0]


@pytest.fixture
def pruned_history(history: Ledgered) -> Ledgered:
    """Return a history of which retention deleted the first Decisions and outcomes."""
    sign_checkpoints(AT)
    last = Decision.objects.get(ledger_index=99)
    prune(Retention(days=30, details_days=0), last.at + timedelta(days=30, milliseconds=500))
    assert not Decision.objects.filter(ledger_index=10).exists()
    assert not Outcome.objects.filter(ledger_index=3).exists()
    return history


def test_a_row_without_a_body_that_was_planted_where_retention_deleted_one_is_named(pruned_history: Ledgered) -> None:
    assert faults(pruned_history.verify()) == []
    row = Decision.objects.latest("ledger_index")
    row.pk, row.body, row.ledger_index, row.pod_uid, row.placed_on = uuid.uuid4(), b"", 10, "invented", ""
    row.sequence = 1
    row.save(force_insert=True)
    other = Outcome.objects.latest("ledger_index")
    other.pk, other.body, other.ledger_index, other.pod_uid = None, b"", 3, "invented"
    other.save(force_insert=True)
    said = faults(pruned_history.verify())
    assert any(f"leaf 10: Decision {row.pk}" in each and "has lost its body, and no rule" in each for each in said)
    assert any(f"leaf 3: outcome {other.pk} " in each and "its body can't be read" in each for each in said)


def test_a_row_is_planted_though_the_details_of_its_place_were_deleted_before_all_of_it(history: Ledgered) -> None:
    sign_checkpoints(AT)
    last = Decision.objects.get(ledger_index=99)
    for retention in (Retention(days=0, details_days=1), Retention(days=30, details_days=1)):
        prune(retention, last.at + timedelta(days=30, milliseconds=500))
    assert faults(history.verify()) == []
    row = Decision.objects.latest("ledger_index")
    row.pk, row.body, row.ledger_index, row.pod_uid, row.placed_on = uuid.uuid4(), b"", 10, "invented", ""
    row.sequence = 1
    row.save(force_insert=True)
    (said,) = faults(history.verify())
    assert f"leaf 10: Decision {row.pk} " in said
    assert "has no body, and retention deleted the whole row: it was planted" in said


def test_nothing_is_deleted_that_could_not_be_signed_any_more(history: Ledgered, tmp_path: Path) -> None:
    sign_checkpoints(AT)
    (tmp_path / "ledger_key").unlink()
    long_after = AT + timedelta(days=400)
    prune(Retention(days=0, details_days=1), long_after)
    assert not Decision.objects.filter(body=b"").exists()
    assert faults(history.verify()) == []


def prune_once_deletions_are_read(monkeypatch: pytest.MonkeyPatch, retention: Retention) -> None:
    """Let retention come between a run's first reading of deletions and its reading of rows."""
    read = pruned.deletions

    def read_before_the_rule_comes(keys: Any) -> Any:
        found = read(keys)
        monkeypatch.setattr(pruned, "deletions", read)
        prune(retention, AT + timedelta(days=400))
        return found

    monkeypatch.setattr(pruned, "deletions", read_before_the_rule_comes)


def test_what_retention_deletes_while_a_run_reads_is_no_fault(
    history: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    sign_checkpoints(AT)
    prune_once_deletions_are_read(monkeypatch, Retention(days=0, details_days=1))
    report = log_of(history.verify())
    assert (report.faults, report.without_row) == ([], ROWS)


def test_numbers_of_rows_that_retention_deletes_while_a_run_reads_are_not_missed(
    history: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Decision.objects.get(ledger_index=100)
    make_hold(by="auditor", now=AT, reason="case 7", pod_uid=held.pod_uid)
    prune_once_deletions_are_read(monkeypatch, Retention(days=30, details_days=0))
    report = log_of(history.verify())
    assert (report.faults, report.proved) == ([], 1)


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere nobody writes beside who prunes")
@pytest.mark.parametrize("retention", [Retention(days=30, details_days=0), Retention(days=0, details_days=1)])
@pytest.mark.parametrize("what", ["Decisions", "a hold"])
def test_what_comes_while_a_run_prunes_is_not_pruned_with_what_was_noted(
    ledgered: Ledgered, monkeypatch: pytest.MonkeyPatch, retention: Retention, what: str
) -> None:
    """A writer that was away stores old Decisions, or somebody holds some, between the note and the deletion."""
    if retention.days:
        make_ahead(AT)  # its week goes as a partition; elsewhere rows go one by one
    ledgered.record(30)
    ledgered.sign()
    held, note = Decision.objects.get(ledger_index=9), pruning.note_deleted

    def come() -> None:
        if what == "Decisions":
            ledgered.record(6, at=AT + timedelta(seconds=5))
            ledgered.sign()
        else:
            make_hold(by="auditor", now=AT, reason="case 7", pod_uid=held.pod_uid)
        connection.close()

    def note_and_come(deleted: Any, holds: Any) -> None:
        monkeypatch.setattr(pruning, "note_deleted", note)
        note(deleted, holds)
        beside = Thread(target=come)
        beside.start()
        beside.join()

    monkeypatch.setattr(pruning, "note_deleted", note_and_come)
    prune(retention, AT + timedelta(days=400))
    assert faults(ledgered.verify()) == []
    kept = set(Decision.objects.exclude(body=b"").values_list("pk", flat=True))
    assert kept == ({held.pk} if what == "a hold" else set())


def test_rows_of_before_the_ledger_are_counted_and_no_more_of_them(ledgered: Ledgered) -> None:
    Decision.objects.create(process="old", sequence=1, at=AT, verb="filter", revision=1)
    ledgered.record(3)
    ledgered.sign()
    reports = ledgered.verify()
    assert faults(reports) == []
    assert log_of(reports).unlogged == 1
    Decision.objects.create(process="old", sequence=2, at=AT, verb="filter", revision=1)
    assert "2 rows have no leaf, and only 1 are older than the log; the newest is" in faults(ledgered.verify())[0]


@pytest.fixture
def upgraded(ledgered: Ledgered) -> Ledgered:
    """Return a history whose first 20 Decisions are older than the ledger; those of the same writers a month later are in it."""
    without_triggers()
    ledgered.record(20)
    for model in (Decision, Outcome):
        model.objects.update(ledger_index=None)
    LedgerHead.objects.all().delete()
    LedgerTile.objects.all().delete()
    ledgered._number = 30 * 86_400
    ledgered.record(20)
    ledgered.sign()
    return ledgered


@pytest.mark.parametrize("seconds", [10, 86_400], ids=["some of them", "all of them"])
def test_rows_of_before_the_ledger_are_pruned_without_a_fault(upgraded: Ledgered, seconds: int) -> None:
    assert faults(upgraded.verify()) == []
    assert prune(Retention(days=30, details_days=0), AT + timedelta(days=30, seconds=seconds))
    assert Decision.objects.filter(ledger_index=None).exists() == (seconds == 10)
    assert faults(upgraded.verify()) == []
    Decision.objects.filter(ledger_index=1).delete()
    assert "leaf 1: there is no row for it" in faults(upgraded.verify())[0]


def test_rows_of_before_the_ledger_stay_older_than_it_where_a_clock_is_set_back(upgraded: Ledgered) -> None:
    upgraded._number = -3 * 86_400  # three days before the rows of before the ledger
    upgraded.record(5)
    upgraded.sign()
    assert faults(upgraded.verify()) == []
    Decision.objects.filter(ledger_index=None).update(at=AT + timedelta(days=31))
    assert "and the log began at 2026-01-31 00:00:" in faults(upgraded.verify())[0]


@pytest.mark.parametrize("how", ["planted", "changed"])
def test_a_row_without_a_leaf_that_is_newer_than_the_ledger_is_named(upgraded: Ledgered, how: str) -> None:
    row = Decision.objects.filter(ledger_index=None).latest("at")
    if how == "planted":
        prune(Retention(days=30, details_days=0), AT + timedelta(days=60))
        row.pk, row.pod_uid, row.placed_on = uuid.uuid4(), "invented", ""
    row.at = AT + timedelta(days=31)
    row.save(force_insert=how == "planted")
    (said,) = [each for each in faults(upgraded.verify()) if str(row.pk) in each]
    assert "has no leaf and is of 2026-02-01" in said
    assert "and the log began at 2026-01-31 00:00:" in said


def test_a_writer_of_before_the_ledger_that_wrote_nothing_since_misses_nothing(upgraded: Ledgered) -> None:
    Checkpoint.objects.create(writer="extender@old", next_decision=11, at=AT)
    assert faults(upgraded.verify()) == []


def test_numbers_that_are_missing_for_a_known_reason_are_no_fault(ledgered: Ledgered) -> None:
    ledgered.record(4)
    Checkpoint.objects.filter(writer="extender@a").update(next_decision=5)
    assert "number 3 of extender@a was stored and is missing" in faults(ledgered.verify())[0]
    DecisionGap.objects.create(process="extender@a", first=3, last=3, reason="no room", at=AT)
    refused = msgspec.msgpack.encode({"process": "extender@a", "sequence": 4, "verb": "bind"})
    DeadLetter.objects.create(writer="extender@a", sequence=4, reason="refused", data=refused, at=AT)
    assert faults(ledgered.verify()) == []


def test_a_decision_that_could_not_be_read_is_told_by_its_own_number(ledgered: Ledgered) -> None:
    ledgered.record(4)
    Checkpoint.objects.filter(writer="extender@a").update(next_decision=4)
    head, body = split(exact_bytes(Decision.objects.get(process="extender@a", sequence=2)))
    head.sequence = 3
    data = b"".join(payload_of(head.encode(), body[:-20]))
    DeadLetter.objects.create(
        writer="extender@a", segment=1, sequence=9, kind=FrameKind.DECISION, reason="unread", data=data, at=AT
    )
    assert faults(ledgered.verify()) == []


@pytest.mark.parametrize("kind", [FrameKind.OUTCOME, FrameKind.CORRUPT, FrameKind.DECISION, 0])
def test_a_dead_letter_of_another_record_excuses_no_missing_decision(ledgered: Ledgered, kind: int) -> None:
    ledgered.record(4)
    Checkpoint.objects.filter(writer="extender@a").update(next_decision=4)
    outcome = msgspec.msgpack.encode({"process": "extender@a", "sequence": 3, "kind": "bound"})
    other = exact_bytes(Decision.objects.get(process="extender@a", sequence=2))
    data = {0: outcome, FrameKind.DECISION: other}.get(kind, b"no record")
    DeadLetter.objects.create(writer="extender@a", sequence=3, kind=kind, reason="unread", data=data, at=AT)
    assert "number 3 of extender@a was stored and is missing" in faults(ledgered.verify())[0]


def test_what_says_how_far_a_writer_is_stored_is_missed_and_isnt_set_back(ledgered: Ledgered) -> None:
    ledgered.record(9)
    rows = Checkpoint.objects.filter(writer="extender@a")
    assert rows.get().next_decision == 5
    rows.update(next_decision=4)
    assert faults(ledgered.verify()) == [
        "decisions: the Checkpoint of extender@a says that number 4 comes next, and number 4 is stored: it was changed"
    ]
    rows.delete()
    progress: dict[str, Progress] = {}
    (said,) = faults(ledgered.verify(progress=progress))
    assert (
        said == "decisions: the Checkpoint of extender@a, which says how far it is stored, is missing: it was removed"
    )
    assert faults(ledgered.verify(progress=progress)) == [said]  # by a run that goes on, too


def test_a_checkpoint_whose_column_says_another_size_is_named(ledgered: Ledgered) -> None:
    ledgered.record(3)
    ledgered.sign()
    LedgerCheckpoint.objects.filter(log=DECISIONS).update(size=2)
    assert "says 3 leaves, and its column 2" in faults(ledgered.verify())[0]


def test_a_leaf_of_a_log_that_there_isnt_is_named(ledgered: Ledgered) -> None:
    LedgerLeaf.objects.create(log="others", index=0, row="1")
    assert faults(ledgered.verify()) == ["decisions: a row of LedgerLeaf is of a log that there isn't: 'others'"]


def test_the_first_checkpoint_is_consistent_with_the_last(history: Ledgered) -> None:
    LedgerCheckpoint.objects.filter(log=DECISIONS).exclude(size__in=[7, ROWS]).delete()
    report = log_of(history.verify(outside=False))
    assert (report.faults, report.checkpoints) == ([], 2)


_ON_SQLITE = [
    ("scheduler_outcome", "at", "garbage", "Outcome"),
    ("scheduler_outcome", "decision", "zz", "Outcome"),
    ("scheduler_decision", "at", "garbage", "Decision"),
    ("scheduler_decision", "id", "garbage", "Decision"),
    ("scheduler_decision", "body", "text", "Decision"),
    ("scheduler_decision", "sequence", "abc", "Decision"),
    ("scheduler_ledgertile", "hashes", "text", "LedgerTile"),
    ("scheduler_ledgerhead", "root", "text", "LedgerHead"),
    ("scheduler_ledgerhead", "size", "abc", "LedgerHead"),
    ("scheduler_ledgerhead", "unlogged", "abc", "LedgerHead"),
    ("policies_auditevent", "at", "garbage", "AuditEvent"),
    ("policies_auditevent", "body", "text", "AuditEvent"),
    ("scheduler_checkpoint", "next_decision", "abc", "Checkpoint"),
]
_ON_POSTGRESQL = [
    ("scheduler_outcome", "at", "infinity", "Outcome"),
    ("scheduler_outcome", "at", "0044-01-01 BC", "Outcome"),
    ("scheduler_decision", "at", "20000-01-01", "Decision"),
    ("scheduler_ledgerhead", "began_at", "infinity", "LedgerHead"),
    ("scheduler_ledgercheckpoint", "at", "-infinity", "LedgerCheckpoint"),
    ("policies_auditevent", "at", "infinity", "AuditEvent"),
    ("scheduler_legalhold", "until_at", "infinity", "LegalHold"),
]


@pytest.mark.parametrize(
    ("table", "column", "value", "named"), _ON_POSTGRESQL if connection.vendor == "postgresql" else _ON_SQLITE
)
def test_a_cell_that_cannot_be_read_is_named_beside_what_else_is_wrong(
    ledgered: Ledgered, table: str, column: str, value: str, named: str
) -> None:
    ledgered.record(30)
    make_hold(by="ann", now=AT, reason="case", pod_namespace="shop")
    append_events(timezone.now())
    ledgered.sign()
    without_triggers()
    DecisionGap.objects.create(process="planted", first=1, last=2, reason="no room", at=AT)
    LedgerTile.objects.create(log=OUTCOMES, level=0, number=9, hashes=bytes(32))
    of_one = " WHERE log = 'decisions'" if table in {"scheduler_ledgerhead", "scheduler_ledgertile"} else ""
    of_one = of_one or (" WHERE ledger_index = 0" if table in {"scheduler_decision", "scheduler_outcome"} else "")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = %s{of_one}", [value])
    said = faults(ledgered.verify())
    assert any(f" {named} " in each and f"its column {column} holds '" in each for each in said)
    assert any("something can't be read, so that not all of it was verified" in each for each in said)
    assert "outcomes: tile 0/9 is none of a log of 10 leaves" in said


def test_no_more_leaves_are_looked_for_than_there_are_tiles(ledgered: Ledgered) -> None:
    ledgered.record(30)
    LedgerHead.objects.filter(log=DECISIONS).update(size=2**62)
    said = faults(ledgered.verify())
    assert said[0] == f"decisions: the log says that it has {2**62} leaves, and has tiles for 256 at most"


def test_after_a_rotation_both_keys_count(history: Ledgered) -> None:
    former, history.signer = history.signer, Signer("berth", bytes(32))
    history.record(5)
    history.sign()
    for only in (former, history.signer):
        other = history.signer if only is former else former
        said = faults(history.verify(keys=[only.verifier]))[0]
        assert (
            f"signed by none of the known keys, but by berth+{other.verifier.id.hex()}. If the key was rotated," in said
        )
        assert "give the whole .pub file" in said
    assert "rotated" not in faults(history.verify(keys=[Signer("others", bytes(32)).verifier]))[0]
    assert faults(history.verify(keys=[former.verifier, history.signer.verifier])) == []


class Tampering:
    """Ways to change the history, each of which returns what has to be named."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def row(self) -> Any:
        model = self.random.choice([Decision, Outcome])
        return self.random.choice(list(model.objects.exclude(ledger_index=None)))

    def change(self, row: Any, **fields: Any) -> str:
        type(row).objects.filter(pk=row.pk).update(**fields)
        return str(row.pk)

    def flip_a_column(self) -> str:
        row = self.row()
        name = self.random.choice(["pod_name", "pod_namespace", "pod_uid", "at"])
        return self.change(row, **{name: AT if name == "at" else f"{getattr(row, name)}x"})

    def flip_what_was_decided(self) -> str:
        row = self.random.choice(list(Decision.objects.all()))
        name, value = self.random.choice(
            [("best", "node-9"), ("verb", "filter"), ("feasible", 7), ("revision", 9), ("rule_set", "other"),
             ("assignment", "other"), ("error", "no"), ("mode", "shadow"), ("chain", 3), ("owner_name", "web"),
             ("refused_by", "\nx\n"), ("top_reason", "x"), ("duration_microseconds", 1), ("placed_on", "node-7")]
        )  # fmt: skip
        if name == "placed_on":
            row = self.random.choice(list(Decision.objects.exclude(placed_on="")))
        return self.change(row, **{name: value})

    def flip_a_body(self) -> str:
        row = self.row()
        body = bytearray(row.body)
        body[self.random.randrange(len(body))] ^= 1 << self.random.randrange(8)
        return self.change(row, body=bytes(body))

    def lengthen_a_body(self) -> str:
        row = self.row()
        return self.change(row, body=bytes(row.body) + self.random.randbytes(9))

    def flip_a_tile(self) -> str:
        tile = self.random.choice(list(LedgerTile.objects.all()))
        hashes = bytearray(tile.hashes)
        hashes[self.random.randrange(len(hashes))] ^= 1
        LedgerTile.objects.filter(pk=tile.pk).update(hashes=bytes(hashes))
        return tile.log

    def lengthen_a_tile(self) -> str:
        tile = self.random.choice(list(LedgerTile.objects.all()))
        more = self.random.randbytes(self.random.choice([1, 32, 64]))
        LedgerTile.objects.filter(pk=tile.pk).update(hashes=bytes(tile.hashes) + more)
        return f"tile {tile.level}/{tile.number}"

    def flip_a_checkpoint(self) -> str:
        row = self.random.choice(list(LedgerCheckpoint.objects.all()))
        at = self.random.randrange(row.note.index("\n\n"))
        LedgerCheckpoint.objects.filter(pk=row.pk).update(note=row.note[:at] + "%" + row.note[at + 1 :])
        return f"checkpoint {row.pk} of the database"

    def flip_when_it_was_signed(self) -> str:
        row = self.random.choice(list(LedgerCheckpoint.objects.all()))
        LedgerCheckpoint.objects.filter(pk=row.pk).update(at=row.at - timedelta(days=self.random.randrange(1, 30)))
        return f"checkpoint {row.pk} of the database was signed at"

    def flip_the_head(self) -> str:
        head = self.random.choice(list(LedgerHead.objects.all()))
        LedgerHead.objects.filter(pk=head.pk).update(root=bytes(32))
        return head.log

    def remove_a_checkpoint(self) -> str:
        row = self.random.choice(list(LedgerCheckpoint.objects.all()))
        row.delete()
        return f"{row.log}: the database doesn't have the checkpoint over {row.size} leaves"

    def lose_how_far_a_writer_is_stored(self) -> str:
        row = self.random.choice(list(Checkpoint.objects.exclude(writer="")))
        if self.random.random() < 0.5:
            Checkpoint.objects.filter(pk=row.pk).delete()
        else:
            self.change(row, next_decision=self.random.randrange(1, row.next_decision))
        return f"the Checkpoint of {row.writer}"

    def insert_a_checkpoint_again(self) -> str:
        row = self.random.choice(list(LedgerCheckpoint.objects.all()))
        row.pk = None
        row.save(force_insert=True)
        return f"checkpoint {row.pk} of the database is the same as"

    def insert_a_tile(self) -> str:
        """Insert one behind the log's last, or one of a log that there isn't."""
        log = self.random.choice([DECISIONS, OUTCOMES, "others"])
        tile = LedgerTile.objects.create(log=log, level=self.random.randrange(3), number=9, hashes=bytes(32))
        return f"tile {tile.level}/9 is none" if log != "others" else "a row of LedgerTile is of a log that there isn't"

    def place_what_was_never_bound(self) -> str:
        bound = Outcome.objects.values("pod_uid")
        row = self.random.choice(list(Decision.objects.exclude(pod_uid__in=bound)))
        return self.change(row, placed_on="node-7")

    def insert_beside(self) -> str:
        row = self.random.choice(list(Decision.objects.all()))
        index = self.random.choice([None, row.ledger_index, LedgerHead.objects.get(log=DECISIONS).size])
        row.pk, row.sequence, row.ledger_index = uuid.UUID(int=self.random.getrandbits(128)), 10_000, index
        row.save(force_insert=True)
        return (
            DECISIONS if index is not None and index != row.ledger_index else ("leaf" if index is None else str(index))
        )

    def insert_before_the_first(self) -> str:
        """Insert a row whose leaf would be in front of the tree, where no stretch of it is read."""
        row = self.row()
        index = -self.random.randrange(1, 10)
        row.pk = uuid.UUID(int=self.random.getrandbits(128)) if isinstance(row, Decision) else None
        row.sequence, row.ledger_index, row.pod_uid = 10_000, index, f"{row.pod_uid}-planted"
        row.placed_on = ""
        row.save(force_insert=True)
        return f"a row claims leaf {index}, and a log begins with leaf 0"

    def insert_into_the_tree(self) -> str:
        """Insert a row in the middle, and make the whole tree anew."""
        rows = list(Decision.objects.order_by("-ledger_index"))
        at = self.random.randrange(len(rows) - 1)
        for row in rows[:at]:
            self.change(row, ledger_index=row.ledger_index + 1)
        made = rows[at]
        made.pk, made.sequence, made.ledger_index = uuid.uuid4(), 10_000, made.ledger_index + 1
        made.save(force_insert=True)
        rebuild(DECISIONS, [exact_bytes(row) for row in Decision.objects.order_by("ledger_index")])
        return DECISIONS

    def remove(self) -> str:
        row = self.row()
        type(row).objects.filter(pk=row.pk).delete()
        return f"leaf {row.ledger_index}"

    def swap(self) -> str:
        one, other = self.random.sample(list(Decision.objects.all()), 2)
        self.change(one, ledger_index=other.ledger_index)
        return self.change(other, ledger_index=one.ledger_index)

    def swap_across_trees(self) -> str:
        """Let a Decision and an outcome stand in each other's place: records and leaves."""
        one, other = self.random.choice(list(Decision.objects.all())), self.random.choice(list(Outcome.objects.all()))
        self.change(one, body=other.body)
        return self.change(other, body=one.body)

    def swap_bodies(self) -> str:
        one, other = self.random.sample(list(Outcome.objects.all()), 2)
        self.change(one, body=other.body)
        return self.change(other, body=one.body)

    def truncate(self) -> str:
        """Cut off the last rows, and make the tree anew."""
        size = self.random.randrange(ROWS)
        Decision.objects.filter(ledger_index__gte=size).delete()
        rebuild(DECISIONS, [exact_bytes(row) for row in Decision.objects.order_by("ledger_index")])
        return DECISIONS

    def sign_with_another_key(self) -> str:
        """Change a row, make the tree anew and sign it."""
        row = self.random.choice(list(Decision.objects.all()))
        other = self.random.choice(list(Decision.objects.exclude(pk=row.pk)))
        self.change(row, body=other.body, pod_name=other.pod_name)
        rebuild(DECISIONS, [exact_bytes(row) for row in Decision.objects.order_by("ledger_index")])
        resign(DECISIONS, Signer("berth", self.random.randbytes(32)))
        return DECISIONS

    def sign_with_the_stolen_key(self) -> str:
        """Change a row as its writer would have written it, make the tree anew and sign it with the ledger's own key."""
        self.truncate()
        resign(DECISIONS, Signer("berth", bytes(range(32))))
        return "cut off or rolled back"

    def roll_back(self) -> str:
        """Bring back the database of an older checkpoint, with all that belongs to it."""
        size = self.random.choice([7, 127, 227])
        Decision.objects.filter(ledger_index__gte=size).delete()
        rebuild(DECISIONS, [exact_bytes(row) for row in Decision.objects.order_by("ledger_index")])
        LedgerCheckpoint.objects.filter(log=DECISIONS, size__gt=size).delete()
        for writer in Checkpoint.objects.exclude(writer=""):
            stored = Decision.objects.filter(process=writer.writer).count()
            Checkpoint.objects.filter(pk=writer.pk).update(next_decision=stored + 1)
        return "cut off or rolled back"

    @property
    def ways(self) -> list[Callable[[], str]]:
        return [
            self.flip_a_column, self.flip_what_was_decided, self.flip_a_body, self.lengthen_a_body, self.flip_a_tile, self.lengthen_a_tile, self.flip_a_checkpoint,
            self.flip_when_it_was_signed, self.flip_the_head, self.remove_a_checkpoint, self.lose_how_far_a_writer_is_stored, self.insert_a_checkpoint_again,
            self.insert_a_tile, self.place_what_was_never_bound, self.insert_beside, self.insert_before_the_first, self.insert_into_the_tree, self.remove, self.swap, self.swap_across_trees, self.swap_bodies,
            self.truncate, self.sign_with_another_key, self.sign_with_the_stolen_key, self.roll_back,
        ]  # fmt: skip


def test_each_of_many_random_changes_is_found_and_named(history: Ledgered) -> None:
    assert unnoticed(history, Tampering) == []
    assert faults(history.verify()) == []


class TestCommand:
    def test_it_says_how_much_is_proved(self, history: Ledgered, keys: str, capsys: pytest.CaptureFixture[str]) -> None:
        call_command("verify", "--keys", keys)
        said = capsys.readouterr().out
        assert f"decisions: {ROWS} of {ROWS} rows proved, since " in said
        assert "8 checkpoints agree, the last over 300 rows" in said
        assert "keys: berth+" in said

    def test_it_says_whether_checkpoints_outside_the_database_were_compared(
        self, history: Ledgered, keys: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        call_command("verify", "--keys", keys)
        assert "outside the database" not in capsys.readouterr().out
        shutil.rmtree(history.outside)
        call_command("verify", "--keys", keys)
        assert "no checkpoints outside the database were compared: the database's owner" in capsys.readouterr().out

    def test_it_fails_with_the_first_fault(self, history: Ledgered, keys: str) -> None:
        row = Decision.objects.get(ledger_index=42)
        Decision.objects.filter(pk=row.pk).update(best="node-x")
        with pytest.raises(CommandError, match=f"leaf 42: Decision {row.pk} .*its column best says 'node-x'"):
            call_command("verify", "--keys", keys, "--output", "json")

    def test_no_name_moves_the_cursor_of_a_terminal(
        self, history: Ledgered, keys: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        Decision.objects.filter(ledger_index=5).update(pod_name="x\x1b[2J\nproved")
        with pytest.raises(CommandError) as refused:
            call_command("verify", "--keys", keys)
        said = capsys.readouterr().out
        for text in (said, str(refused.value)):
            assert "x\\x1b[2J\\nproved" in text
            assert "\x1b" not in text

    def test_a_folder_without_checkpoints_is_refused_and_damaged_ones_are_named(
        self, history: Ledgered, keys: str, tmp_path: Path
    ) -> None:
        with pytest.raises(CommandError, match=r"there are no checkpoints in .*elsewhere"):
            call_command("verify", "--keys", keys, "--checkpoints", str(tmp_path / "elsewhere"))
        path = history.outside / "decisions.checkpoints"
        data = bytearray(path.read_bytes())
        data[data.index(b"berth/decisions")] ^= 0x80
        path.write_bytes(data)
        with pytest.raises(CommandError, match=r"decisions: decisions\.checkpoints, line 1: "):
            call_command("verify", "--keys", keys, "--checkpoints", str(history.outside))

    def test_a_file_without_a_key_is_refused_and_no_checkpoint_called_wrong(
        self, history: Ledgered, tmp_path: Path
    ) -> None:
        empty = tmp_path / "empty.pub"
        empty.write_text("# none yet\n")
        with pytest.raises(CommandError, match=r"empty\.pub holds no public key"):
            call_command("verify", "--keys", str(empty))

    def test_it_goes_on_where_it_was(self, history: Ledgered, keys: str, tmp_path: Any, capsys: Any) -> None:
        for _ in range(2):
            call_command("verify", "--keys", keys, "--resume", str(tmp_path / "run"))
        first, second = [line for line in capsys.readouterr().out.splitlines() if line.startswith("decisions: ")]
        assert f"decisions: {ROWS} of {ROWS} rows proved, since" in first
        assert f"decisions: {ROWS} of {ROWS} rows proved (0 read by this run, {ROWS} by runs before), since" in second

    @pytest.mark.usefixtures("history")
    def test_two_runs_that_note_their_progress_in_one_file_at_once_end_both(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, replace = tmp_path / "runs" / "run", Path.replace
        path.parent.mkdir()
        first, second = (verify_command._Resume(path, lambda *_: None) for _ in range(2))
        second.progress = {DECISIONS: Progress(next=7)}

        def second_meanwhile(fresh: Path, target: Path) -> Path:
            monkeypatch.setattr(Path, "replace", replace)
            second.end()
            return replace(fresh, target)

        monkeypatch.setattr(Path, "replace", second_meanwhile)
        first.end()
        assert [*path.parent.iterdir()] == [path]
        assert verify_command._Resume(path, lambda *_: None).progress == {}

    @pytest.mark.parametrize(
        ("file", "words"),
        [
            ("missing/run", r"No such file or directory: '.*missing/run\.[0-9a-f]+'"),
            (".", "Is a directory"),
            ("garbage", "garbage isn't a file that --resume wrote: JSON is malformed"),
        ],
    )
    def test_a_file_to_resume_from_that_is_none_is_refused_before_anything_is_read(
        self, keys: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, words: str
    ) -> None:
        monkeypatch.setattr(verify_command, "verify", pytest.fail)
        (tmp_path / "garbage").write_text("{garbage")
        with pytest.raises(CommandError, match=words):
            call_command("verify", "--keys", keys, "--resume", str(tmp_path / file))

    def test_what_was_wrong_is_read_again_by_the_next_run(
        self, history: Ledgered, keys: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = ("--keys", keys, "--resume", str(tmp_path / "run"))
        row = Decision.objects.get(ledger_index=42)
        Decision.objects.filter(pk=row.pk).update(best="node-x")
        for _ in range(2):
            with pytest.raises(CommandError, match="leaf 42: "):
                call_command("verify", *arguments)
        Decision.objects.filter(pk=row.pk).update(best=row.best)  # mended from a backup
        capsys.readouterr()
        call_command("verify", *arguments)
        said = capsys.readouterr().out
        assert f"decisions: {ROWS} of {ROWS} rows proved" in said
        assert "WRONG" not in said


@pytest.fixture
def keys(history: Ledgered, tmp_path: Any) -> str:
    path = tmp_path / "keys.pub"
    path.write_text(f"# of the ledger\n{history.signer.verifier}\n")
    return str(path)


@pytest.mark.django_db(transaction=True)
def test_several_processes_find_the_same_as_one(ledgered: Ledgered, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.evidence.sound._ROWS_FOR_A_PROCESS", 100)
    monkeypatch.setattr("scheduler.evidence.verify.STEP", 256)
    ledgered.record(400)
    ledgered.sign()
    changed = Decision.objects.get(ledger_index=300)
    Decision.objects.filter(pk=changed.pk).update(best="elsewhere")
    one, two = (ledgered.verify(processes=number) for number in (1, 2))
    assert one == two
    assert log_of(two).proved == 399
    assert str(changed.pk) in faults(two)[0]


def test_what_looks_otherwise_is_not_read_the_fast_way(ledgered: Ledgered) -> None:
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL's rows are read so")
    ledgered.record(30)
    assert read_stretch(OUTCOMES, (0, 10)) is not None
    stretch = read_stretch(DECISIONS, (0, 30))
    assert stretch is not None
    assert stretch.numbers == {"extender@a": (1, 16, 14), "extender@b": (1, 16, 29)}
    Decision.objects.filter(ledger_index=5).update(ledger_index=6)
    assert read_stretch(DECISIONS, (0, 30)) is None
    assert read_stretch(DECISIONS, (7, 30)) is not None


def test_what_is_added_to_the_last_tile_of_a_stretch_is_not_read_the_fast_way(
    ledgered: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.evidence.verify.STEP", 256)
    ledgered.record(300)
    ledgered.sign()
    tile = LedgerTile.objects.get(log=DECISIONS, level=0, number=0)
    LedgerTile.objects.filter(pk=tile.pk).update(hashes=bytes(tile.hashes) + bytes(HASH_BYTES))
    assert faults(ledgered.verify()) == ["decisions: tile 0/0 holds more than 256 hashes"]


@pytest.mark.parametrize("place", [(0, -1), (-1, 0)])
def test_a_tile_in_front_of_the_first_or_below_the_lowest_is_named(ledgered: Ledgered, place: tuple[int, int]) -> None:
    ledgered.record(30)
    level, number = place
    LedgerTile.objects.create(log=DECISIONS, level=level, number=number, hashes=bytes(HASH_BYTES))
    assert faults(ledgered.verify()) == [f"decisions: tile {level}/{number} is none of a log of 30 leaves"]


def test_a_record_that_is_stored_as_one_of_version_0_1_0_is_named(ledgered: Ledgered) -> None:
    """Its columns and its bytes make the same leaf, and nothing could read it."""
    ledgered.record(30)
    row = Decision.objects.get(ledger_index=4)
    body = split(exact_bytes(row))[1]
    Decision.objects.filter(pk=row.pk).update(body=AS_JSON + make_compressor().compress(body))
    said = faults(ledgered.verify())
    assert f"leaf 4: Decision {row.pk}" in said[0]
    assert said[0].endswith("its body can't be read: the Decision's body holds no JSON")


def test_columns_that_a_record_of_version_0_1_0_lacks_are_compared(ledgered: Ledgered) -> None:
    fields = {
        "id": "5a5a5a5a-0000-4000-8000-000000000001", "at": AT.isoformat(), "process": "old", "sequence": 1,
        "verb": "filter", "pod_namespace": "default", "pod_name": "web", "pod_uid": "u", "revision": 1,
        "body": {"pod": {}},
    }  # fmt: skip
    ledgered.store_former(fields)
    assert faults(ledgered.verify()) == []
    Decision.objects.update(owner_name="other")
    assert "its column owner_name says 'other', and the record ''" in faults(ledgered.verify())[0]


def test_a_node_that_only_the_end_of_a_pod_names_is_right(ledgered: Ledgered) -> None:
    """Nobody saw the Pod bound; who saw it go saw where it was."""
    ledgered.record(1)
    row = Decision.objects.get()
    writer = ledgered._writers[0]
    names = {"pod_uid": row.pod_uid, "pod_namespace": row.pod_namespace, "pod_name": row.pod_name}
    writer.recorder.record_outcome(Seen(node_name="node-7", at=AT, kind="evicted", **names))
    writer.settle()
    assert Decision.objects.get().placed_on == "node-7"
    ledgered.sign()
    assert faults(ledgered.verify()) == []


@pytest.mark.parametrize("is_recent", [True, False], ids=["since", "before"])
def test_a_node_that_nobody_saw_is_unproved_only_where_its_outcome_may_be_deleted(
    pruned_history: Ledgered, is_recent: bool
) -> None:
    """Rules go by the clock; the rows of this history are of long ago."""
    pruned_history.record(3, at=timezone.now() if is_recent else AT + timedelta(days=2))
    row = Decision.objects.filter(placed_on="").latest("ledger_index")
    Decision.objects.filter(pk=row.pk).update(placed_on="node-evil")
    report = log_of(pruned_history.verify())
    if is_recent:
        assert f"Decision {row.pk} (" in report.faults[0]
        assert "says that the Pod is on node-evil, and the outcome of the Pod is missing" in report.faults[0]
    assert (len(report.faults), report.older_places) == ((1, 0) if is_recent else (0, 1))


def test_another_node_than_the_end_of_a_pod_names_is_named(ledgered: Ledgered) -> None:
    ledgered.record(1)
    row = Decision.objects.get()
    writer = ledgered._writers[0]
    names = {"pod_uid": row.pod_uid, "pod_namespace": row.pod_namespace, "pod_name": row.pod_name}
    writer.recorder.record_outcome(Seen(node_name="node-7", at=AT, kind="evicted", **names))
    writer.settle()
    Decision.objects.update(placed_on="node-evil")
    assert "says that the Pod is on node-evil" in faults(ledgered.verify())[0]


def set_back(index: int) -> None:
    Decision.objects.filter(ledger_index=index).update(at=AT - timedelta(days=400))


def without_its_body(index: int) -> None:
    Decision.objects.filter(ledger_index=index).update(body=b"")


def with_the_record_of_another_time(index: int) -> None:
    """Forge record and tile: only the signed root tells that these weren't logged."""
    row = Decision.objects.get(ledger_index=index)
    head, body = split(exact_bytes(row))
    head.at = AT - timedelta(days=400)
    exact = b"".join(payload_of(head.encode(), body))
    tile = LedgerTile.objects.get(log=DECISIONS, level=0, number=0)
    start = index * HASH_BYTES
    tile.hashes = bytes(tile.hashes)[:start] + leaf_hash(exact) + bytes(tile.hashes)[start + HASH_BYTES :]
    tile.save()
    Decision.objects.filter(ledger_index=index).update(body=AS_RECORD + make_compressor().compress(exact))


def with_a_checkpoint_of_another_time(_index: int) -> None:
    LedgerCheckpoint.objects.filter(log=DECISIONS, size=ROWS).update(at=AT - timedelta(days=500))


@pytest.mark.parametrize(
    "also",
    [lambda _index: None, without_its_body, with_the_record_of_another_time, with_a_checkpoint_of_another_time],
)
@pytest.mark.parametrize("retention", [Retention(days=30, details_days=0), Retention(days=0, details_days=30)])
def test_a_row_whose_time_somebody_set_back_is_not_deleted_as_old(
    history: Ledgered, also: Callable[[int], None], retention: Retention
) -> None:
    without_triggers()
    also(200)
    set_back(200)
    before = bytes(Decision.objects.get(ledger_index=200).body)
    prune(retention, AT + timedelta(days=10))
    assert bytes(Decision.objects.get(ledger_index=200).body) == before
    assert faults(history.verify())


def test_an_outcome_whose_time_somebody_set_back_is_not_deleted_as_old(history: Ledgered) -> None:
    without_triggers()
    Outcome.objects.filter(ledger_index=50).update(at=AT - timedelta(days=400))
    prune(Retention(days=30, details_days=0), AT + timedelta(days=10))
    assert Outcome.objects.filter(ledger_index=50).exists()
    assert any("leaf 50: outcome" in each for each in faults(history.verify()))


def test_a_week_into_which_somebody_set_a_row_back_goes_without_it(history: Ledgered) -> None:
    make_ahead(AT)
    of_later = AT + timedelta(days=20)
    history.record(1, at=of_later)
    for head in LedgerHead.objects.all():
        sign(head, SIGNER, [SIGNER.verifier], of_later)
    without_triggers()
    Decision.objects.filter(ledger_index=ROWS).update(at=AT + timedelta(seconds=5))
    prune(Retention(days=14, details_days=0), AT + timedelta(days=30))
    assert Decision.objects.get().ledger_index == ROWS


def noted_at(monkeypatch: pytest.MonkeyPatch, at: datetime) -> None:
    ids = (first_id_at(at + timedelta(microseconds=number)) for number in itertools.count())
    monkeypatch.setattr(audit, "time_ordered_id", lambda _now: next(ids))


def test_a_row_without_details_whose_time_somebody_set_back_is_not_deleted_as_old(
    history: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_details = AT + timedelta(days=20)
    noted_at(monkeypatch, of_details)
    prune(Retention(days=400, details_days=10), of_details)
    assert not Decision.objects.exclude(body=b"").exists()
    without_triggers()
    set_back(200)
    prune(Retention(days=100, details_days=10), of_details)
    assert Decision.objects.filter(ledger_index=200).exists()
    prune(Retention(days=100, details_days=10), AT + timedelta(days=120))
    assert not Decision.objects.exists()


def test_what_was_stored_late_and_lost_its_details_is_deleted_once_these_were_old_enough(
    history: Ledgered, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.record(6, at=AT - timedelta(days=400))
    history.sign()
    noted_at(monkeypatch, AT + timedelta(days=2))
    prune(Retention(days=0, details_days=10), AT + timedelta(days=2))
    assert Decision.objects.filter(body=b"").count() == 6
    prune(Retention(days=30, details_days=10), AT + timedelta(days=2))
    assert Decision.objects.count() == ROWS + 6
    prune(Retention(days=30, details_days=10), AT + timedelta(days=25))
    assert Decision.objects.count() == ROWS
    assert faults(history.verify()) == []


def test_late_rows_share_what_is_read_of_the_log(history: Ledgered) -> None:
    late = Late(AT)
    with CaptureQueriesContext(connection) as queries:
        assert late.unproved(Decision.objects.all()) == []
    assert len(queries) < ROWS / 10


def test_a_key_that_was_never_there_beside_its_public_one_keeps_nothing_from_being_deleted(
    ledgered: Ledgered, tmp_path: Path
) -> None:
    (tmp_path / "ledger_key").unlink()
    (tmp_path / "ledger_key.pub").write_text(f"{SIGNER.verifier}\n")
    ledgered.record(6)
    prune(Retention(days=30, details_days=0), AT + timedelta(days=400))
    assert not Decision.objects.exists()


def test_what_was_stored_long_after_its_time_is_deleted_once_it_is_signed(history: Ledgered) -> None:
    history.record(6, at=AT - timedelta(days=400))
    kept = Retention(days=30, details_days=10)
    prune(kept, AT + timedelta(days=2))
    assert (Decision.objects.count(), Outcome.objects.count()) == (ROWS + 6, ROWS // 3 + 2)
    history.sign()
    prune(kept, AT + timedelta(days=2))
    assert (Decision.objects.count(), Outcome.objects.count()) == (ROWS, ROWS // 3)
    assert faults(history.verify()) == []
