"""Moves records from Redis to the database, each once and in order. Safe to run concurrently.

A batch is one transaction, which includes each writer's checkpoint: how far its records are stored. A record before the
checkpoint is a duplicate and is dropped; a record after a gap is dropped too, and requested again, because it is still
on its writer's disk. So Redis may lose, repeat and reorder records.
"""

import itertools
import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import DataError, models, transaction

from scheduler.decisions import shadow_counts
from scheduler.decisions.assignment_uses import note_uses
from scheduler.decisions.divergence import Divergence
from scheduler.decisions.facts import facts_in
from scheduler.decisions.frames import Kind
from scheduler.decisions.journal import NamesHead, PartHead, split_headed
from scheduler.decisions.journal_uses import note_journal_uses
from scheduler.decisions.reading import exact_bytes
from scheduler.decisions.record import (
    UNREADABLE,
    NewDecision,
    NewOutcome,
    Outcome,
    parts_of,
    read_outcome,
    store_json,
    unpack,
)
from scheduler.decisions.recorder import End, Gap, Mark
from scheduler.decisions.settling import settle_shadows, subject_of
from scheduler.decisions.shipping import Corrupt
from scheduler.decisions.storing import (
    Known,
    hold_up_others,
    insert,
    insert_leaves,
    known_outcomes,
    note_outcomes,
    place_in,
    places_of,
    store_outcomes,
)
from scheduler.decisions.stream import Arrived, DecisionStream, Shipment, Wanted
from scheduler.ledger.logs import DECISIONS
from scheduler.ledger.losses import note_losses
from scheduler.ledger.tree import leaf_hash
from scheduler.models import Checkpoint, DeadLetter, Decision, DecisionGap, NodeNames, SnapshotPart

logger = logging.getLogger("berth.decisions")

# The number of records that share a transaction's overhead.
BATCH = 2_000
MAX_BATCHES = 5
_MISSING = "missing between two records of its writer"

_decode_gap = msgspec.msgpack.Decoder(Gap).decode
_decode_corrupt = msgspec.msgpack.Decoder(Corrupt).decode
_decode_mark = msgspec.msgpack.Decoder(Mark).decode
_decode_end = msgspec.msgpack.Decoder(End).decode
_decode_names = msgspec.msgpack.Decoder(NamesHead).decode
_decode_part = msgspec.msgpack.Decoder(PartHead).decode


def ingest(stream: DecisionStream | None = None) -> int:
    """Store waiting records, at most MAX_BATCHES batches of some BATCH records, and return the number of records handled.

    An entry leaves Redis only after its records are committed.

    Raises:
        StreamError: Redis is unavailable. Stored records stay stored and aren't stored again.
        django.db.DatabaseError: the database is unavailable. Nothing has left Redis.
    """
    stream = stream or DecisionStream(settings.BERTH.redis_url)
    handled = 0
    for _ in range(MAX_BATCHES):
        arrived = stream.read(BATCH)
        if not arrived:
            break
        stream.finish([each.id for each in arrived], _store_each(arrived))
        handled += len(arrived)
    return handled


def _store_each(arrived: Sequence[Arrived]) -> dict[str, Wanted]:
    """Store entries as `store` does; an entry that the database refuses becomes a dead letter and doesn't block the others.

    Raises:
        django.db.DatabaseError: the database is unavailable. What was stored stays stored; storing it again changes nothing.
    """
    try:
        return store(arrived)
    except (DataError, OverflowError) as error:
        if len(arrived) == 1:
            return store(arrived, fault=str(error).partition("\n")[0])
    middle = len(arrived) // 2
    return _store_each(arrived[:middle]) | _store_each(arrived[middle:])


def store(arrived: Sequence[Arrived], fault: str = "") -> dict[str, Wanted]:
    """Store entries in one transaction; return the positions from which writers' records are needed again.

    Args:
        arrived: the entries.
        fault: why none of them can be stored; they become dead letters.

    Raises:
        django.db.DatabaseError: the database is unavailable, or refuses one of them; nothing is stored.
        OverflowError: the database can't hold a number of one of them; nothing is stored.
    """
    writers = sorted({each.shipment.writer for each in arrived if each.shipment})
    now = datetime.now(UTC)
    with transaction.atomic():
        hold_up_others(now)
        # All rows must exist before they are locked: a writer's heartbeat writes to its own row.
        Checkpoint.objects.bulk_create([Checkpoint(writer=writer, at=now) for writer in writers], ignore_conflicts=True)
        checkpoints = {
            checkpoint.writer: checkpoint
            for checkpoint in Checkpoint.objects.select_for_update().filter(writer__in=writers)
        }
        batch = _Batch(checkpoints, now, fault)
        for each in arrived:
            batch.take(each)
        batch.store()
    return batch.wanted()


class _Batch:
    """The results of one batch's entries."""

    def __init__(self, checkpoints: dict[str, Checkpoint], now: datetime, fault: str = "") -> None:
        self._checkpoints = checkpoints
        self._now = now
        self._fault = fault
        self._decisions: list[NewDecision] = []
        self._leaves: list[bytes] = []
        self._names: list[NodeNames] = []
        self._parts: list[SnapshotPart] = []
        self._outcomes: list[tuple[Outcome, NewOutcome]] = []
        self._known: dict[str, list[Known]] = {}
        self._gaps: list[DecisionGap] = []
        self._dead_letters: list[DeadLetter] = []
        self._furthest: dict[str, int] = {}
        # By writer: the shipments in place of missing records, and the number of the last missing record.
        self._missing: dict[str, list[tuple[Shipment, int]]] = {}

    def take(self, arrived: Arrived) -> None:
        """Take the next entry."""
        shipment = arrived.shipment
        if shipment is None:
            self._take_unknown(arrived)
            return
        checkpoint = self._checkpoints[shipment.writer]
        if shipment.sequence > checkpoint.next_sequence:
            self._furthest[shipment.writer] = max(shipment.sequence, self._furthest.get(shipment.writer, 0))
        if shipment.sequence != checkpoint.next_sequence:
            return
        has_passed = (checkpoint.segment, checkpoint.offset) >= (shipment.segment, shipment.offset)
        checkpoint.segment, checkpoint.offset, checkpoint.next_sequence = (
            shipment.segment,
            shipment.offset,
            shipment.sequence + 1,
        )
        if self._fault:
            self._dead_letter(shipment, f"the database refuses it: {self._fault}")
            return
        try:
            self._read(shipment, checkpoint, has_passed=has_passed)
        except (*UNREADABLE, IndexError) as error:
            self._dead_letter(shipment, f"it can't be read: {error}")

    def _read(self, shipment: Shipment, checkpoint: Checkpoint, *, has_passed: bool) -> None:
        data = shipment.data
        match shipment.kind:
            case Kind.DECISION:
                self._take_decision(shipment, checkpoint)
            case Kind.OUTCOME:
                outcome = read_outcome(data)
                row = outcome.row(checkpoint.writer, shipment.sequence, data)
                self._outcomes.append((outcome, row))
            case Kind.GAP:
                gap = _decode_gap(data)
                self._note_missing(checkpoint, gap.first)
                self._note_gap(checkpoint, gap.first, gap.last, gap.reason, gap.at)
            case Kind.MARK:
                self._note_missing(checkpoint, _decode_mark(data).decisions + 1)
            case Kind.END:
                end = _decode_end(data)
                self._note_missing(checkpoint, end.decisions + 1)
                checkpoint.has_ended = True
            case Kind.NAMES:
                head, names = split_headed(data)
                number = _decode_names(head).number
                self._names.append(NodeNames(writer=checkpoint.writer, number=number, data=names))
            case Kind.BASE | Kind.DELTA:
                head, part = split_headed(data)
                fields = msgspec.structs.asdict(_decode_part(head))
                self._parts.append(SnapshotPart(writer=checkpoint.writer, data=part, **fields))
            case Kind.CORRUPT:
                corrupt = _decode_corrupt(data)
                checkpoint.next_sequence = max(corrupt.next_sequence, shipment.sequence)
                if not corrupt.data:
                    self._take_missing(shipment, corrupt.next_sequence)
                # Damaged bytes without a record have the number of the record after them, which may still come.
                elif not has_passed:
                    self._dead_letter(shipment, "it was corrupt, and with it the rest of its segment", corrupt.data)
            case unknown:
                message = f"kind {unknown} is not known"
                raise ValueError(message)

    def _take_missing(self, shipment: Shipment, next_sequence: int) -> None:
        """Note records that are lost. Decisions among them show as a gap, by their own numbers."""
        if next_sequence > shipment.sequence:
            self._missing.setdefault(shipment.writer, []).append((shipment, next_sequence - 1))

    def _take_decision(self, shipment: Shipment, checkpoint: Checkpoint) -> None:
        head, body, exact = unpack(shipment.data)
        fields = msgspec.structs.asdict(head)
        fields["id"] = UUID(head.id)
        self._note_missing(checkpoint, head.sequence)
        checkpoint.next_decision = head.sequence + 1
        facts = msgspec.structs.asdict(facts_in(parts_of(exact)[1]))
        self._decisions.append(NewDecision(process=checkpoint.writer, body=body, **fields, **facts))
        self._leaves.append(leaf_hash(exact))

    def _note_missing(self, checkpoint: Checkpoint, next_decision: int) -> None:
        if next_decision > checkpoint.next_decision:
            self._missing.pop(checkpoint.writer, None)
            self._note_gap(checkpoint, checkpoint.next_decision, next_decision - 1, _MISSING, self._now)

    def _note_gap(self, checkpoint: Checkpoint, first: int, last: int, reason: str, at: datetime) -> None:
        checkpoint.next_decision = last + 1
        self._gaps.append(DecisionGap(process=checkpoint.writer, first=first, last=last, reason=reason, at=at))

    def _dead_letter(self, shipment: Shipment, reason: str, data: bytes | None = None) -> None:
        logger.error("record %s of %s becomes a dead letter: %s", shipment.sequence, shipment.writer, reason)
        self._dead_letters.append(
            DeadLetter(
                writer=shipment.writer,
                segment=shipment.segment,
                offset=shipment.offset,
                sequence=shipment.sequence,
                kind=shipment.kind,
                reason=reason,
                data=shipment.data if data is None else data,
                at=self._now,
            )
        )

    def _take_unknown(self, arrived: Arrived) -> None:
        """Take an entry that no writer of this version sent: a Decision of version 0.1.0, or something else."""
        try:
            if self._fault:
                raise ValueError(self._fault)
            fields = msgspec.json.decode(arrived.raw[b"d"])
            row = Decision(**{**fields, "at": datetime.fromisoformat(fields["at"]), "body": store_json(fields["body"])})
            leaf = leaf_hash(exact_bytes(row))
            new = msgspec.convert(row, NewDecision, from_attributes=True)
        except (*UNREADABLE, KeyError, TypeError, OverflowError) as error:
            logger.error("an entry of the stream becomes a dead letter: %s", error)  # noqa: TRY400 - the entry is at fault
            data = msgspec.msgpack.encode(arrived.raw)
            self._dead_letters.append(DeadLetter(reason=f"it is no record: {error}", data=data, at=self._now))
        else:
            if not Decision.objects.filter(process=row.process, sequence=row.sequence).exists():
                self._decisions.append(new)
                self._leaves.append(leaf)

    def store(self) -> None:
        """Write the batch."""
        for shipment, last in itertools.chain.from_iterable(self._missing.values()):
            self._dead_letter(
                shipment, f"records {shipment.sequence} to {last} are missing: their file is gone, or was cut off", b""
            )
        places = self._join_places()
        refused: list[tuple[models.Model | msgspec.Struct, str]] = [*self._store_decisions()]
        left_out = {id(row) for row, _words in refused}
        stored = [row for row in self._decisions if id(row) not in left_out]
        refused += insert(SnapshotPart, self._parts)
        refused += insert(NodeNames, self._names)
        note_uses(stored)
        note_journal_uses(stored, self._parts, self._names, self._now)
        shadow_counts.add(Counter((subject_of(row), row.divergence) for row in stored if row.divergence))
        settle_shadows(places)
        refused += self._store_outcomes()
        # Missing Decisions have come, or are known to be lost; the rest is noted again in seconds.
        DecisionGap.objects.filter(process__in=self._checkpoints, may_return=True).delete()
        gaps = insert(DecisionGap, self._gaps)
        refused += gaps
        refused_gaps = {id(gap) for gap, _words in gaps}
        self._dead_letters += [_dead_letter_of(row, words, self._now) for row, words in refused]
        DeadLetter.objects.bulk_create(self._dead_letters)
        note_losses([*(gap for gap in self._gaps if id(gap) not in refused_gaps), *self._dead_letters])
        for checkpoint in self._checkpoints.values():
            checkpoint.at = self._now
            checkpoint.save()

    def _join_places(self) -> list[Known]:
        """Join new Decisions with earlier Outcomes of their Pods from other writers; return those that shadows wait for."""
        uids = {row.pod_uid for row in self._decisions} | {outcome.pod_uid for outcome, _ in self._outcomes}
        self._known = known_outcomes(uids)
        for row in self._decisions:
            place = place_in(self._known.get(row.pod_uid, ()))
            if place is not None and row.placed_at is None:
                row.placed_on, row.placed_at = place.node_name, place.at
        self._join_own_places()
        waiting = {row.pod_uid for row in self._decisions if row.divergence == Divergence.OPEN}
        return [place for uid in waiting if (place := place_in(self._known.get(uid, ()))) is not None]

    def _join_own_places(self) -> None:
        """Join new Decisions with this batch's Outcomes before they are stored, so that few rows are written twice."""
        places = places_of(outcome for outcome, _ in self._telling())
        for row in self._decisions:
            place = places.get(row.pod_uid)
            if place is not None and row.placed_at is None:
                row.placed_on, row.placed_at, row.placed_best = place.node_name, place.at, place.best

    def _telling(self) -> list[tuple[Outcome, NewOutcome]]:
        """Return the Outcomes to join: the first of each kind, and those from a writer that knows whether the node was the best."""
        told = {(uid, known.kind) for uid, several in self._known.items() for known in several}
        telling: list[tuple[Outcome, NewOutcome]] = []
        for outcome, row in self._outcomes:
            key = (outcome.pod_uid, outcome.kind)
            if outcome.best is not None or key not in told:
                telling.append((outcome, row))
            told.add(key)
        return telling

    def _store_outcomes(self) -> list[tuple[NewOutcome, str]]:
        """Store Outcomes of Pods, and join them to their Decisions; return those that the database refuses."""
        refused = store_outcomes([row for _, row in self._outcomes], self._known)
        refused_rows = {id(row) for row, _words in refused}
        joined = [outcome for outcome, row in self._telling() if id(row) not in refused_rows]
        note_outcomes(joined)
        settle_shadows(joined)
        return refused

    def _store_decisions(self) -> list[tuple[NewDecision, str]]:
        """Store Decisions, and their leaves in the ledger; return the Decisions that the database refuses."""
        return insert_leaves(Decision, DECISIONS, self._decisions, self._leaves, self._now)

    def wanted(self) -> dict[str, Wanted]:
        """Return the positions from which records are needed again."""
        return {
            writer: Wanted(checkpoint.segment, checkpoint.offset, checkpoint.next_sequence)
            for writer, checkpoint in self._checkpoints.items()
            if self._furthest.get(writer, 0) >= checkpoint.next_sequence
        }


def _dead_letter_of(row: models.Model | msgspec.Struct, reason: str, now: datetime) -> DeadLetter:
    """Keep a row that the database refuses."""
    fields = (
        msgspec.structs.asdict(row)
        if isinstance(row, msgspec.Struct)
        else {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}  # noqa: SLF001 - documented
    )
    data = msgspec.msgpack.encode({name: value for name, value in fields.items() if value is not None})
    writer = str(fields.get("process") or fields.get("writer") or "")
    reason = f"the database refuses it: {reason}"
    return DeadLetter(writer=writer, sequence=fields.get("sequence") or 0, reason=reason, data=data, at=now)
