"""Signs a checkpoint of each log every minute, but only if the log continues the last signed checkpoint."""

import logging
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from policies.models import AuditEvent
from policies.models.audit import Kind, first_id_at
from scheduler.ledger import deletions, losses
from scheduler.ledger.append import (
    RESTORE,
    check_last_leaf_row,
    check_no_row_is_beyond,
    last_leaf_of_rows,
    last_leaf_row,
)
from scheduler.ledger.keys import KeyFileError, key_path, known_verifiers, read_signer
from scheduler.ledger.logs import EVENTS, LOGS
from scheduler.ledger.note import NoteError, Signer, TreeHead, Verifier, open_note
from scheduler.ledger.outside import publish
from scheduler.ledger.tree import (
    HASH_BYTES,
    TILE_WIDTH,
    ProofError,
    check_consistency,
    prove_consistency,
    root_at,
    subtrees_of,
)
from scheduler.metrics import LEDGER_REFUSED, LEDGER_SIGNED_AT, LEDGER_UNSIGNED
from scheduler.models import LedgerCheckpoint, LedgerHead, LedgerTile

logger = logging.getLogger("berth.ledger")

# The prefixes of a checkpoint's further lines: the number of rows that are older than the log, and the time of signing.
UNLOGGED = "unlogged "
SIGNED_AT = "signed at "

_TILES_KEPT = 4096
# Beat triggers signing each minute, and a log may grow meanwhile.
_TIME_TO_SIGN = timedelta(minutes=10)


class RefusedError(Exception):
    """A log doesn't continue its last signed checkpoint. The message says how it differs."""


def sign_checkpoints(now: datetime, logs: Collection[str] = LOGS) -> int:
    """Sign each of these logs that has grown, or that another key signed last; return how many were signed.

    Failures are logged: without a key no log is signed, and everything else goes on.
    """
    try:
        signer, verifiers = read_signer(), known_verifiers()
    except KeyFileError as error:
        logger.warning("%s", error)
        if key_path() is not None:
            LEDGER_UNSIGNED.inc()
        return 0
    signed = 0
    for head in LedgerHead.objects.filter(log__in=logs).order_by("log"):
        try:
            signed += sign(head, signer, verifiers, now)
        except RefusedError as error:
            LEDGER_REFUSED.labels(head.log).inc()
            logger.error("the log %s is not signed: %s. `manage.py verify` says more", head.log, error)  # noqa: TRY400
    # After all logs: once this event exists, each earlier log has been signed, see `must_have_been_signed`.
    deletions.begin(signer)
    losses.begin()
    return signed


def sign(head: LedgerHead, signer: Signer, verifiers: list[Verifier], now: datetime) -> bool:
    """Sign a log's checkpoint, and publish it outside the database; return whether there was anything to sign.

    Raises:
        RefusedError: the log doesn't continue its last signed checkpoint, or its tiles don't match its root.
    """
    last = last_checkpoint(head.log)
    if last is not None:
        signed_by = check_continues(head, last, verifiers)
        if last.size == head.size and signer.verifier in signed_by:
            LEDGER_SIGNED_AT.labels(head.log).set(now.timestamp())
            return False
    elif not head.size:
        return False
    elif must_have_been_signed(head, now):
        message = f"it has {head.size} leaves, and no checkpoint any more. Bring back the table scheduler_ledgercheckpoint from a backup"
        raise RefusedError(message)
    else:
        check_tiles(head)
    note = signer.sign(tree_head(signer.verifier.name, head, now).text())
    LedgerCheckpoint.objects.create(log=head.log, size=head.size, note=note, at=now)
    publish(head.log, note, now)
    LEDGER_SIGNED_AT.labels(head.log).set(now.timestamp())
    return True


def last_checkpoint(log: str) -> LedgerCheckpoint | None:
    """Return a log's last checkpoint; of several over the same leaves the one stored last: a clock that was set back signs earlier times."""
    return LedgerCheckpoint.objects.filter(log=log).order_by("-size", "-pk").first()


def must_have_been_signed(head: LedgerHead, now: datetime) -> bool:
    """Return whether a log existed at the ledger's first signing, or at a later one of another log: all are signed together."""
    begun = AuditEvent.objects.filter(
        kind=Kind.PRUNE_BEGIN, pk__gt=first_id_at(head.began_at), pk__lt=first_id_at(now - _TIME_TO_SIGN)
    )
    others = LedgerCheckpoint.objects.filter(at__gt=head.began_at + _TIME_TO_SIGN, at__lt=now)
    return bool(head.size) and (begun.exists() or others.exclude(log=head.log).exists())


def tree_head(name: str, head: LedgerHead, now: datetime) -> TreeHead:
    """Return a log's tree head to sign, with the time and the number of rows older than the log, so that none is added later."""
    unlogged = (f"{UNLOGGED}{head.unlogged}",) if head.unlogged else ()
    extensions = (f"{SIGNED_AT}{now.astimezone(UTC).isoformat()}", *unlogged)
    return TreeHead(origin_of(name, head.log), head.size, bytes(head.root), extensions)


def signed_at(head: TreeHead) -> datetime | None:
    """Return when a checkpoint was signed; None if it is older than this line, or the line has no valid time."""
    said = next((line.removeprefix(SIGNED_AT) for line in head.extensions if line.startswith(SIGNED_AT)), "")
    try:
        return datetime.fromisoformat(said)
    except ValueError:
        return None


def origin_of(name: str, log: str) -> str:
    """Return the name of a log in its checkpoints."""
    return f"{name}/{log}"


def open_checkpoint(note: str, log: str, verifiers: Sequence[Verifier]) -> tuple[TreeHead, list[Verifier]]:
    """Return a log's checkpoint as a tree head, and the keys that signed it: at least one.

    Raises:
        NoteError: none of the keys signed it, or it is no checkpoint of this log.
    """
    text, signed_by = open_note(note, verifiers)
    said = TreeHead.parse(text)
    if said.origin not in {origin_of(verifier.name, log) for verifier in signed_by}:
        message = f"it is of another log: {said.origin}"
        raise NoteError(message)
    return said, signed_by


def check_continues(head: LedgerHead, last: LedgerCheckpoint, verifiers: list[Verifier]) -> list[Verifier]:
    """Check that a log continues its last signed checkpoint, and that its tiles are whole; return the keys that signed that."""
    try:
        said, signed_by = open_checkpoint(last.note, head.log, verifiers)
        if said.size > head.size:
            message = f"it has {head.size} leaves, and {said.size} were signed before"
            raise RefusedError(message)
        proof = prove_consistency(subtrees_of(tile_reader(head.log)), said.size, head.size)
        check_consistency(
            old=said.size, old_root=said.root, new=head.size, new_root=bytes(head.root), proof=proof
        )  # fmt: skip
    except (NoteError, ProofError) as error:
        message = f"the checkpoint of {last.size} leaves: {error}"
        raise RefusedError(message) from error
    # A log that hasn't grown is checked, too: nothing can be appended to damaged tiles, so it would never grow again.
    check_tiles(head)
    return signed_by


def check_tiles(head: LedgerHead) -> None:
    """Check that a log's tiles lead to its root, and that tiles and rows end with it: nothing could be appended."""
    message = f"its tiles don't lead to the root of its {head.size} leaves"
    try:
        root = root_at(subtrees_of(tile_reader(head.log)), head.size)
    except ProofError as error:
        message = f"{message}: {error}"
        raise RefusedError(message) from error
    if root != bytes(head.root):
        raise RefusedError(message)
    _check_nothing_is_behind(head.log)
    _check_rows_end_with(head)


def _check_rows_end_with(head: LedgerHead) -> None:
    try:
        if head.log == EVENTS:
            last = last_leaf_row()
            check_last_leaf_row(last, before=head.size, after=_size_of(head.log))
        else:
            last = last_leaf_of_rows(head.log)
            check_no_row_is_beyond(head.log, last, _size_of(head.log))
    except ProofError as error:
        raise RefusedError(str(error)) from error


def _size_of(log: str) -> int:
    return LedgerHead.objects.filter(log=log).values_list("size", flat=True).first() or 0


def _check_nothing_is_behind(log: str) -> None:
    # The tile before the size: both grow together.
    tiles = LedgerTile.objects.filter(log=log, level=0).order_by("-number").values_list("number", "hashes")
    leaves = sum(number * TILE_WIDTH + len(hashes) // HASH_BYTES for number, hashes in tiles[:1])
    size = _size_of(log)
    if leaves > size:
        message = (
            f"its tiles have {leaves} leaves, and its row in scheduler_ledgerhead, which is older, has {size}: nothing can be appended. "
            f"{RESTORE}"
        )
        raise RefusedError(message)


def tile_reader(log: str) -> Callable[[int, int], bytes]:
    """Return a function that reads a log's tiles from the database, each once; empty for a missing tile."""

    @lru_cache(maxsize=_TILES_KEPT)
    def read(level: int, number: int) -> bytes:
        rows = LedgerTile.objects.filter(log=log, level=level, number=number)
        found = rows.values_list("hashes", flat=True).first()
        return bytes(found) if found is not None else b""

    return read
