"""Rows that were logged long after the time that they say: retention believes that time only if it was logged so.

Whoever can write rows could set a row's time back, and retention would delete it, and have the ledger's key sign that a rule did.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from django.db.models import QuerySet

from scheduler.decisions.reading import exact_bytes
from scheduler.decisions.record import UNREADABLE, read_outcome, split
from scheduler.ledger.checkpoints import last_checkpoint, open_checkpoint, signed_at, tile_reader
from scheduler.ledger.deletions import Range, deletions, merged_ranges
from scheduler.ledger.keys import KeyFileError, known_verifiers, read_signer
from scheduler.ledger.logs import DECISIONS, OUTCOMES
from scheduler.ledger.note import NoteError, TreeHead, Verifier
from scheduler.ledger.tree import (
    ProofError,
    ReadSubtree,
    check_inclusion,
    leaf_hash,
    prove_inclusion,
    subtrees_of,
)
from scheduler.models import Decision, LedgerCheckpoint, LedgerPruned, Outcome

_LOGS: dict[Any, str] = {Decision: DECISIONS, Outcome: OUTCOMES}
# Rows of a time are usually logged within seconds. Only those that were logged later than this are compared with the log.
_LATE = timedelta(days=1)
# How many subtrees are remembered while rows are compared: rows of one time share most of them.
_SUBTREES = 4_096


def _verifiers() -> Sequence[Verifier]:
    try:
        read_signer()
        return known_verifiers()
    except KeyFileError:
        return ()  # nothing is deleted then if deletions were ever signed


class _Signed(NamedTuple):
    """A log's last signed tree head, and a reader of its subtrees."""

    head: TreeHead
    subtree: ReadSubtree


class Late:
    """Finds late rows in one run of retention. Without a key nothing is proved, so no row is late.

    Args:
        horizon: the time before which rows are deleted.
    """

    def __init__(self, horizon: datetime) -> None:
        self._horizon = horizon
        self._verifiers = _verifiers()
        self._sizes: dict[tuple[str, datetime], int] = {}

    def among(self, rows: QuerySet[Any], last: datetime) -> QuerySet[Any]:
        """Return those rows that were logged a day or two after `last`, the latest time that any of them says, or later still."""
        if not self._verifiers:
            return rows.none()
        return rows.filter(ledger_index__gte=self._size_at(_LOGS[rows.model], last))

    def unproved(self, late: QuerySet[Any]) -> list[Any]:
        """Return the keys of late rows of which no signed checkpoint shows that they were logged with their time.

        Rows without details can't be compared: they are proved if what deleted their details shows that they are old enough.
        """
        log = _LOGS[late.model]
        signed = self._signed(log)
        return [row.pk for row in late.iterator() if not self._is_proved(log, row, signed)]

    def _signed(self, log: str) -> _Signed | None:
        head = self._opened(last_checkpoint(log))
        return _Signed(head, lru_cache(_SUBTREES)(subtrees_of(tile_reader(log)))) if head else None

    def _size_at(self, log: str, last: datetime) -> int:
        """Return how many leaves a log had for certain on the day after: by a signed checkpoint, as columns can be changed."""
        until = (last + 2 * _LATE).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        if (log, until) not in self._sizes:
            row = LedgerCheckpoint.objects.filter(log=log, at__lt=until).order_by("-size").first()
            said = self._opened(row)
            at = signed_at(said) if said else None
            self._sizes[log, until] = said.size if said and at is not None and at < until else 0
        return self._sizes[log, until]

    def _opened(self, row: LedgerCheckpoint | None) -> TreeHead | None:
        try:
            return open_checkpoint(row.note, row.log, self._verifiers)[0] if row else None
        except NoteError:
            return None

    def _is_proved(self, log: str, row: Any, signed: _Signed | None) -> bool:
        if log == DECISIONS and not row.body:
            # Only the leaf's hash is left, if a rule deleted the details.
            return any(first <= row.ledger_index < until for first, until in self._without_details)
        return signed is not None and _is_as_logged(log, row, signed)

    @cached_property
    def _without_details(self) -> list[Range]:
        """The leaves whose details were deleted as older than the horizon; or before deletions were signed, as nobody knows more then."""
        return merged_ranges(
            (each.first, each.until)
            for each in deletions(self._verifiers).found
            if (each.log, each.what) == (DECISIONS, LedgerPruned.What.DETAILS)
            and (not each.is_exact or each.horizon < self._horizon + 2 * _LATE)
        )


def _is_as_logged(log: str, row: Any, signed: _Signed) -> bool:
    size, root = signed.head.size, signed.head.root
    try:
        exact = exact_bytes(row) if log == DECISIONS else bytes(row.body)
        said = split(exact)[0] if log == DECISIONS else read_outcome(exact)
        proof = prove_inclusion(signed.subtree, row.ledger_index, size)
        check_inclusion(leaf=leaf_hash(exact), index=row.ledger_index, size=size, root=root, proof=proof)
    except (ProofError, *UNREADABLE):
        return False
    return bool(said.at == row.at)
