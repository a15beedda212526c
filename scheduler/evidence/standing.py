"""The size of the ledger's logs, their last signed checkpoints, and the proof of one row: for pages about these.

To prove all rows, verify them (`scheduler.evidence.verify`), or download an archive.
"""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import msgspec
from django.core.exceptions import ValidationError
from django.db import models
from django.db.models import OuterRef, Subquery

from policies.models import AuditEvent
from scheduler.evidence.sources import SOURCES
from scheduler.ledger.checkpoints import (
    RefusedError,
    check_continues,
    last_checkpoint,
    open_checkpoint,
    signed_at,
    tile_reader,
)
from scheduler.ledger.logs import DECISIONS, EVENTS, LOGS, OUTCOMES
from scheduler.ledger.note import NoteError, TreeHead, Verifier
from scheduler.ledger.tree import ProofError, check_inclusion, leaf_hash, prove_inclusion, subtrees_of
from scheduler.models import Decision, LedgerCheckpoint, LedgerHead, LedgerLeaf, Outcome

_MODELS: dict[str, type[models.Model]] = {DECISIONS: Decision, OUTCOMES: Outcome, EVENTS: AuditEvent}


_PUBLISHED = ("change.publish", "change.urgent")


class Standing(NamedTuple):
    """A log's size and its last checkpoint. `key`: the key that signed, "" if it isn't known; `fault`: what is wrong."""

    log: str
    size: int = 0
    root: str = ""
    since: datetime | None = None
    unlogged: int = 0
    signed_size: int = 0
    signed_at: datetime | None = None
    key: str = ""
    fault: str = ""

    @property
    def unsigned(self) -> int:
        """The number of leaves since the last checkpoint."""
        return max(self.size - self.signed_size, 0)


class Signing(NamedTuple):
    """The ledger's entry of the act that made a Revision.

    Attributes:
        act: its id.
        is_as_recorded: whether it has the Revision's digest.
        leaf: the index of its leaf; None if it isn't logged yet.
        size: the size of the first checkpoint that includes it; None if there is none yet.
        at: the time of that checkpoint.
    """

    act: str
    is_as_recorded: bool
    leaf: int | None
    size: int | None
    at: datetime | None


class Proof(msgspec.Struct):
    """The proof that a row is a leaf of a signed tree: hashes in base64, as in C2SP's tlog-proof.

    Attributes:
        what: the row's name for people.
        leaf: the hash of the bytes that its writer had on disk.
        hashes: from the leaf's sibling up to the root.
        checkpoint: the complete signed note.
    """

    log: str
    what: str
    index: int
    leaf: str
    size: int
    hashes: list[str]
    checkpoint: str
    signed_at: datetime | None
    key: str


class UnprovedError(Exception):
    """There is no such proof. The message says why, and whether something is wrong."""


def standings(verifiers: Sequence[Verifier], *, check: bool) -> list[Standing]:
    """Return each log's standing; with `check`, also prove from its tree that it continues the last checkpoint."""
    heads = {head.log: head for head in LedgerHead.objects.all()}
    return [_standing(log, heads.get(log), verifiers, check=check) for log in LOGS]


def _standing(log: str, head: LedgerHead | None, verifiers: Sequence[Verifier], *, check: bool) -> Standing:
    if head is None:
        return Standing(log)
    found = Standing(log, head.size, _text(bytes(head.root)), head.began_at, head.unlogged)
    last = last_checkpoint(log)
    if last is None:
        return found
    found = found._replace(signed_size=last.size, signed_at=last.at)
    if not verifiers:
        return found
    try:
        said, key = _opened(last, verifiers)
        if check:
            check_continues(head, last, list(verifiers))
    except (UnprovedError, RefusedError) as error:
        return found._replace(fault=str(error))
    if said.size > head.size:
        return found._replace(fault="It has fewer leaves than were signed: it was cut off or rolled back.")
    if said.size == head.size and said.root != bytes(head.root):
        return found._replace(fault="Its root isn't the one that was signed.")
    return found._replace(key=key)


def _opened(checkpoint: LedgerCheckpoint, verifiers: Sequence[Verifier]) -> tuple[TreeHead, str]:
    """Return a checkpoint's tree head, and the key that signed it."""
    try:
        said, by = open_checkpoint(checkpoint.note, checkpoint.log, verifiers)
    except NoteError as error:
        message = f"The checkpoint of {checkpoint.size:,} leaves doesn't count: {error}."
        raise UnprovedError(message) from error
    if said.size != checkpoint.size:
        message = f"The checkpoint of {checkpoint.size:,} leaves says that it is of {said.size:,}."
        raise UnprovedError(message)
    return said, ", ".join(f"{each.name}+{each.id.hex()}" for each in by)


def signings(made: Mapping[int, str]) -> dict[int, Signing]:
    """Return where the acts that made Revisions are signed, by the number of the Change. Two queries for any number of Changes.

    Args:
        made: the digests of Revisions, by the numbers of the Changes that made them.
    """
    acts = list(AuditEvent.objects.filter(change__in=list(made), kind__in=_PUBLISHED).only("change", "after"))
    first = LedgerCheckpoint.objects.filter(log=EVENTS, size__gt=OuterRef("index")).order_by("size")
    leaves = LedgerLeaf.objects.filter(log=EVENTS, row__in=[str(act.pk) for act in acts]).annotate(
        signed_size=Subquery(first.values("size")[:1]), signed_at=Subquery(first.values("at")[:1])
    )
    of = {row: found for row, *found in leaves.values_list("row", "index", "signed_size", "signed_at")}
    nowhere = (None, None, None)
    return {
        int(act.change or 0): Signing(
            str(act.pk), act.after == made[int(act.change or 0)], *of.get(str(act.pk), nowhere)
        )
        for act in acts
    }


def prove(log: str, key: str, verifiers: Sequence[Verifier]) -> Proof:
    """Return the proof of a row, by its id, under the first checkpoint that has it.

    Raises:
        UnprovedError: the row doesn't exist, isn't signed yet, was deleted by retention, or has a fault.
    """
    index = _index(log, key)
    source = next(source for source in (make() for make in SOURCES) if source.log == log)
    rows = list(source.rows(index, index + 1))
    # If several rows claim a leaf, only one is the recorded row, and it may be another one than the requested row.
    fault = rows[0].fault if len(rows) == 1 else f"{len(rows)} rows claim it"
    if fault:
        message = f"Leaf {index:,} of {log} is WRONG: {fault}."
        raise UnprovedError(message)
    (row,) = rows
    if row.exact is None:
        message = f"{row.row} is leaf {index:,}. Its details were deleted by a rule of retention: only the hash of what it was is left."
        raise UnprovedError(message)
    checkpoint = LedgerCheckpoint.objects.filter(log=log, size__gt=index).order_by("size").first()
    if checkpoint is None:
        message = f"{row.row} is leaf {index:,}, and isn't signed yet: the worker signs each minute."
        raise UnprovedError(message)
    said, by = _opened(checkpoint, verifiers)
    leaf = leaf_hash(row.exact)
    try:
        hashes = prove_inclusion(subtrees_of(tile_reader(log)), index, said.size)
        check_inclusion(leaf=leaf, index=index, size=said.size, root=said.root, proof=hashes)
    except ProofError as error:
        message = f"Leaf {index:,} of {log} is WRONG: {row.row} isn't what was recorded ({error})."
        raise UnprovedError(message) from error
    return Proof(
        log=log,
        what=row.row,
        index=index,
        leaf=_text(leaf),
        size=said.size,
        hashes=list(map(_text, hashes)),
        checkpoint=checkpoint.note,
        signed_at=signed_at(said),
        key=by,
    )


def _index(log: str, key: str) -> int:
    """Return the index of a row's leaf."""
    try:
        row = _MODELS[log]._default_manager.filter(pk=key).first()  # noqa: SLF001 - documented
    except (ValidationError, ValueError, OverflowError) as error:
        message = f"{key} is no id of {log}."
        raise UnprovedError(message) from error
    if row is None:
        message = f"There is no {key} among the {log}. What retention deleted is signed: verifying says what."
        raise UnprovedError(message)
    leaf = LedgerLeaf.objects.filter(log=EVENTS, row=str(row.pk)).first() if log == EVENTS else None
    index = leaf.index if leaf else getattr(row, "ledger_index", None)
    if index is None:
        message = f"{key} isn't in the log yet, or is older than it."
        raise UnprovedError(message)
    return int(index)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
