"""Unsigned notes of deletions, and the first signed one: each deletion is taken over, or its transaction is refused."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from django.conf import settings
from django.db import connection, transaction

from policies.models import AuditEvent
from scheduler.ledger.deletions import Deletion, begin, deletions, holds_noted, note_deleted
from scheduler.ledger.keys import KeyFileError
from scheduler.models import LedgerPruned
from tests.ledgers import AT, SIGNER

pytestmark = pytest.mark.django_db(transaction=True)

DELETED = Deletion("decisions", LedgerPruned.What.ROWS, 0, 5, "decisions are kept for 30 days", AT)


@pytest.fixture(autouse=True)
def no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without = msgspec.structs.replace(settings.BERTH, ledger_key_file=str(tmp_path / "missing"))
    monkeypatch.setattr(settings, "BERTH", without)


def note() -> None:
    note_deleted([DELETED], {})


def sign() -> None:
    begin(SIGNER)


@contextmanager
def not_committed_yet(act: Callable[[], None]) -> Iterator[None]:
    """Act in a transaction of another thread, which commits half a second later."""
    acted = threading.Event()

    def run() -> None:
        try:
            with transaction.atomic():
                act()
                acted.set()
                threading.Event().wait(0.5)
        finally:
            connection.close()

    beside = threading.Thread(target=run)
    beside.start()
    assert acted.wait(60)
    yield
    beside.join(60)


def test_an_unsigned_note_whose_transaction_is_open_at_the_first_signing_is_taken_over() -> None:
    with not_committed_yet(note):
        sign()
    found, planted = deletions([SIGNER.verifier])
    assert {(each.first, each.until) for each in found} == {(0, 5)}
    assert planted == []


def test_nothing_is_noted_unsigned_while_another_process_signs_for_the_first_time() -> None:
    with not_committed_yet(sign), pytest.raises(KeyFileError), transaction.atomic():
        note()
    assert deletions([SIGNER.verifier]) == ([], [])


def test_deletions_under_the_same_holds_keep_these_once_in_memory() -> None:
    for _ in range(2):
        note_deleted([DELETED], {1: "a", 2: "b"})
    first, second = map(holds_noted, AuditEvent.objects.filter(kind="prune"))
    assert first == {"1": "a", "2": "b"}
    assert first is second
