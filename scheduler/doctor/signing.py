"""Checks whether the ledger is signed: by the database, and by the key if this process has one."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from policies.models.audit import time_of_id
from policies.wording import ago
from scheduler.doctor.parts import Part
from scheduler.ledger.checkpoints import (
    RefusedError,
    check_continues,
    check_tiles,
    last_checkpoint,
    must_have_been_signed,
)
from scheduler.ledger.keys import KeyFileError, key_path, known_verifiers, public_path, read_signer
from scheduler.ledger.logs import DECISIONS, OUTCOMES
from scheduler.ledger.note import Verifier
from scheduler.models import Decision, LedgerCheckpoint, LedgerHead, LedgerLeaf, Outcome

_NAME = "ledger"
# Workers sign each minute; one missed or slow tick is no fault.
_LATE = timedelta(minutes=5)
_MAKE_KEY = "Make a key (manage.py ledger new-key FILE) and name it to the workers in BERTH_LEDGER_KEY_FILE."
_READ_LOG = "Do beat and the worker run, and has the worker the key? Its log says why (berth.ledger)."


def ledger_part(now: datetime) -> Part:
    """Return whether every log continues its last checkpoint, and was signed recently. Nothing is signed or written."""
    try:
        fault, verifiers = _lacking(), known_verifiers()
    except (KeyFileError, OSError) as error:
        return Part(_NAME, "error", str(error), "Bring the key back, or mend its file: nothing is signed without it.")
    heads = [(head, last_checkpoint(head.log)) for head in LedgerHead.objects.filter(size__gt=0).order_by("log")]
    refused = [f"{head.log}: {why}" for head, last in heads if (why := _refusal(head, last, verifiers, now))]
    if refused:
        says = f"{'; '.join(refused)}. It isn't signed any more"
        return Part(_NAME, "error", says, "Run manage.py verify, which names what differs, before anything is mended.")
    if fault:
        return fault
    late = [(head, last) for head, last in heads if now - _unsigned_since(head, last, now) > _LATE]
    if late:
        return _late(late)
    return Part(_NAME, "ok", _well([last for _, last in heads if last], verifiers, now))


def _lacking() -> Part | None:
    """Return the part about a key that is configured and missing. An admin has only the public key, and needs no other.

    Raises:
        KeyFileError: this worker can't use the key.
    """
    path = key_path()
    if path is None or not settings.BERTH.ledger_key_file:
        return None
    if path.exists():
        if settings.BERTH.role == "worker":
            read_signer()  # others need the public keys alone
        return None
    if settings.BERTH.role == "worker":
        says = f"{path} (BERTH_LEDGER_KEY_FILE) isn't there: this worker signs nothing"
        return Part(_NAME, "error", says, "Bring the key back, or make one: manage.py ledger new-key FILE.")
    if not public_path(path).exists():
        says = f"neither {path} (BERTH_LEDGER_KEY_FILE) nor {public_path(path).name} is there: no signature is checked"
        return Part(_NAME, "warning", says, f"Put {public_path(path).name} there; workers need the key itself.")
    return None


def _refusal(head: LedgerHead, last: LedgerCheckpoint | None, verifiers: Sequence[Verifier], now: datetime) -> str:
    """Return why a worker refuses to sign a log; without a public key only by the tables."""
    if last is None and must_have_been_signed(head, now):
        return f"it has {_leaves(head.size)}, and no checkpoint any more"
    if last is not None and last.size > head.size:
        return f"it has {_leaves(head.size)}, and {last.size:,} were signed before"
    try:
        if last is not None and verifiers:
            check_continues(head, last, list(verifiers))
        else:
            check_tiles(head)
    except RefusedError as error:
        return str(error)
    return ""


def _unsigned_since(head: LedgerHead, last: LedgerCheckpoint | None, now: datetime) -> datetime:
    """Return the time since which a log has had unsigned leaves; now if it has none."""
    if last is None:
        return head.began_at
    if last.size >= head.size:
        return now
    return max(last.at, _time_of_leaf(head.log, last.size) or last.at)


def _time_of_leaf(log: str, index: int) -> datetime | None:
    """Return the time at which a leaf's row was written; None if the row is gone."""
    if log == DECISIONS:
        return Decision.objects.filter(ledger_index=index).values_list("at", flat=True).first()
    if log == OUTCOMES:
        return Outcome.objects.filter(ledger_index=index).values_list("at", flat=True).first()
    row = LedgerLeaf.objects.filter(log=log, index=index).values_list("row", flat=True).first()
    try:
        return time_of_id(UUID(row)) if row else None
    except (ValueError, OverflowError):
        return None  # somebody changed it, which verification reports


def _late(late: Sequence[tuple[LedgerHead, LedgerCheckpoint | None]]) -> Part:
    if all(last is None for _, last in late):
        says = f"nothing was ever signed of {', '.join(head.log for head, _ in late)}"
        return Part(_NAME, "warning", says, _MAKE_KEY)
    says = "; ".join(
        f"{_leaves(head.size - (last.size if last else 0))} of {head.log} without a signature"
        + (f", the last one is of {last.at:%Y-%m-%d %H:%M} UTC" if last else "")
        for head, last in late
    )
    return Part(_NAME, "error", says, _READ_LOG)


def _leaves(number: int) -> str:
    return f"{number:,} {'leaf' if number == 1 else 'leaves'}"


def _well(signed: Sequence[LedgerCheckpoint], verifiers: Sequence[Verifier], now: datetime) -> str:
    if not signed:
        return "nothing is to be signed yet"
    newest = max(each.at for each in signed)
    says = f"all of it is signed, the last time {ago(max((now - newest).total_seconds(), 0.0))}"
    return says if verifiers else f"{says}; no public key is known here, so signatures weren't checked"
