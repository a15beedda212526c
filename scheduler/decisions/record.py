"""The record of a Decision: the call, each rule's verdict on each node, and the answer.

A record has a head, whose members become columns of the database, and a body that only pages and replays read. The body
is columnar and contains no node names: nodes are positions in the Decision's Snapshot. Both are msgpack; the
body is compressed before it is shipped, outside of any request.
"""

import os
import struct
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import repeat
from typing import Any, TypedDict

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash
import zstandard

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows, Table
from policies.engine.pauses import Suspension
from policies.engine.ruleset import Assignment
from policies.engine.status import PASSED, Code, Status
from scheduler.decisions.columns import (
    Integers,
    StoredAnswer,
    StoredFilter,
    StoredOrder,
    StoredScore,
    store_answer,
    store_order,
)
from scheduler.decisions.frames import MOST_BYTES, Moment, Number, Writer
from scheduler.decisions.masking import NO_MASKS, NOTE, Found, Masks, masked_faults
from scheduler.decisions.node_names import NodeNames, names_of
from scheduler.models import Outcome as OutcomeRow

# zstd's default: level 9 takes ten times as long for a tenth less.
_LEVEL = 3
_LENGTH = struct.Struct("<I")
_INT32, _INT64 = np.dtype("<i4"), np.dtype("<i8")
# The verbs that choose a node for a Pod: the others are about a node that is already chosen.
_CHOOSING = frozenset({"filter", "prioritize", "schedule"})
# /filter's verdict on a node that Berth's watch hasn't seen yet. No rule is evaluated for it.
UNKNOWN_NODE = Status(Code.UNSCHEDULABLE, "node is not known to Berth yet")
# The key of the suspensions of rules in a Decision's notes.
SUSPENDED_BY = "suspendedBy"
# The first byte of a stored body: JSON as version 0.1.0 wrote it, a Body, or the whole record as its writer had it on disk,
# which is what the ledger proves. The rest is compressed with zstd.
AS_JSON, AS_COLUMNS, AS_RECORD = b"\x00", b"\x01", b"\x02"
# The exceptions of reading damaged bytes; msgspec raises RecursionError for a thousand brackets.
UNREADABLE = (msgspec.DecodeError, struct.error, ValueError, RecursionError)


def new_id() -> str:
    """Return a UUID that begins with the time in milliseconds (RFC 9562, version 7), so that rows of one time are stored together."""
    milliseconds = time.time_ns() // 1_000_000
    random = os.urandom(10).hex()
    # 7: the version. The variant takes two bits of the next group.
    variant = "89ab"[int(random[3], 16) & 3]
    text = f"{milliseconds:012x}"
    return f"{text[:8]}-{text[8:]}-7{random[:3]}-{variant}{random[4:7]}-{random[7:19]}"


class Head(msgspec.Struct, array_like=True, kw_only=True):
    """What the database has in columns. `names_number`, `chain` and `position` refer to the journal; 0: to nothing.

    `sequence` and these three are the Recorder's to fill in.
    """

    id: str
    at: Moment
    sequence: Number = 0
    verb: str
    pod_namespace: str
    pod_name: str
    pod_uid: str
    revision: int
    rule_set: str
    rule_set_version: int
    assignment: str
    nodes: int
    feasible: int
    best: str
    top_reason: str
    duration_microseconds: int
    mode: str
    error: str
    names_number: int = 0
    chain: int = 0
    position: int = 0
    divergence: str = ""

    def encode(self) -> bytes:
        """Encode the columns in their order."""
        return _encode(self)


class NewDecision(Head, array_like=False, kw_only=True):
    """A row of `models.Decision` on its way into the database: Django's own take too long to make where thousands come a second."""

    id: uuid.UUID  # type: ignore[assignment] # as the database has it
    process: Writer
    body: bytes
    owner_kind: str = ""
    owner_name: str = ""
    refused_by: str = ""
    placed_on: str = ""
    placed_at: datetime | None = None
    placed_best: bool | None = None
    ledger_index: int | None = None


class Body(msgspec.Struct, array_like=True, kw_only=True):
    """The further data that a replay needs.

    Attributes:
        pod: the Pod's JSON.
        namespace_labels: of the Pod's namespace, if no Assignment matched the Pod; None if the Snapshot has them.
        revision_digest: the SHA-256 in hex under which the Revision is stored; empty without one.
        meaning: a digest of the answer, see `meaning_of`.
        order: the candidate nodes.
        answer: the rules' answer; None if no Assignment matched the Pod, and for an error.
        assumed: Pods that were assumed on a node: JSON and name of the node.
        notes: facts that belong to one verb only.
    """

    pod: bytes
    namespace_labels: dict[str, str] | None = None
    revision_digest: str
    meaning: bytes
    order: StoredOrder
    answer: StoredAnswer | None = None
    assumed: list[tuple[bytes, str]] = []
    notes: dict[str, Any]


# The reason of an end that was found out later.
UNWATCHED = "nobody watched"


class Outcome(msgspec.Struct, array_like=True, kw_only=True):
    """A Pod's outcome; members have the meaning of those in `models.Outcome`. An older version's record ends with `best`.

    `best`: whether the node was among the best of the last answer; None if unknown.
    """

    pod_uid: str
    pod_namespace: str
    pod_name: str
    node_name: str
    at: Moment
    best: bool | None = None
    kind: str = OutcomeRow.Kind.BOUND.value
    by: str = ""
    decision: str = ""
    reason: str = ""
    preemptor_uid: str = ""
    preemptor_namespace: str = ""
    preemptor_name: str = ""

    def encode(self) -> bytes:
        """Encode the record: the payload of its frame."""
        return _encode(self)

    def row(self, process: str, sequence: int, body: bytes) -> "NewOutcome":
        """Return the outcome's database row. `body` is the record as it was written."""
        fields = msgspec.structs.asdict(self)
        fields["decision"] = uuid.UUID(self.decision) if self.decision else None
        return NewOutcome(process=process, sequence=sequence, body=body, **fields)


class NewOutcome(Outcome, array_like=False, kw_only=True):
    """A row of `models.Outcome` on its way into the database."""

    decision: uuid.UUID | None  # type: ignore[assignment] # as the database has it
    process: str
    sequence: int
    body: bytes
    ledger_index: int | None = None


def read_outcome(payload: bytes) -> Outcome:
    """Read the record of an outcome.

    Raises:
        msgspec.DecodeError, ValueError: the payload isn't an outcome.
    """
    outcome = _decode_outcome(payload)
    OutcomeRow.Kind(outcome.kind)
    return outcome


class Best:
    """The best nodes of an answer; after `pack`, one bit for each row of the table, the highest bit first.

    Most are queried once within a second, or forgotten: those need no bits.

    Args:
        names: of the table.
        rows: the candidate nodes.
        are_best: for each, whether it was one of the best.
    """

    __slots__ = ("_are_best", "_bits", "_names", "_rows")

    def __init__(self, names: NodeNames, rows: Integers, are_best: npt.NDArray[np.bool_]) -> None:
        self._names, self._rows, self._are_best = names, rows, are_best
        self._bits = b""

    def pack(self) -> None:
        """Use only one bit per node from now on."""
        if not self._bits:
            mask = np.zeros(len(self._names), dtype=np.bool_)
            mask[self._rows] = self._are_best
            self._bits = np.packbits(mask).tobytes()
            self._rows = self._are_best = np.empty(0, dtype=np.bool_)

    def has(self, node_name: str) -> bool | None:
        """Return whether a node was among the best; None for one that isn't in the table."""
        self.pack()
        row = self._names.row_of.get(node_name)
        return None if row is None else bool(self._bits[row >> 3] >> (7 - (row & 7)) & 1)


class Encoded(msgspec.Struct):
    """A Decision ready to be numbered and written.

    Attributes:
        head: without its numbers.
        body: an encoded Body.
        names: the node names that the body's rows refer to; None without nodes.
        snapshot: the Snapshot that the rules saw, for the journal; None if there is nothing to replay.
        best_nodes: shows later whether the Pod went to one of the best nodes; None if the answer isn't acted on.
    """

    head: Head
    body: bytes
    names: NodeNames | None = None
    snapshot: Snapshot | None = None
    best_nodes: Best | None = None


class Entry(msgspec.Struct, kw_only=True):
    """A Decision as its maker passes it on; `Recorder.record` numbers and writes it. Used directly for a bind, a preempt, an error.

    Attributes:
        verb: filter, prioritize, bind, preempt or schedule.
        now: the time that rules saw.
        pod_json: the Pod's JSON as received; made from `pod` if it isn't given.
        revision: the Revision that answered, None before there is one.
        assignment: the one that matched the Pod; None if none did.
        rule_set: the rule set that answered.
        draws: the Assignments of mode canary that match the Pod, each with its workload's draw.
        mode: enforce or shadow.
        error: why there was no answer; empty when there was one.
        duration_microseconds: how long the answer took.
        notes: facts that belong to this verb only, as JSON has them.
        nodes, feasible, best, top_reason: the part of the answer that lists show.
        divergence: for a shadow, how it differs from the enforced answer; empty for an enforced one.
    """

    id: str = msgspec.field(default_factory=new_id)
    verb: str
    pod: Pod
    now: datetime
    pod_json: bytes | msgspec.Raw | None = None
    revision: CompiledRevision | None = None
    assignment: Assignment | None = None
    rule_set: CompiledRuleSet | None = None
    draws: Sequence[tuple[Assignment, int]] = ()
    mode: str = "enforce"
    error: str = ""
    duration_microseconds: int = 0
    notes: Mapping[str, Any] = {}
    nodes: int = 0
    feasible: int = 0
    best: str = ""
    top_reason: str = ""
    divergence: str = ""

    def encode(self, masks: Masks = NO_MASKS) -> Encoded:
        """Encode all but what only the Recorder knows. No masked value is in the result."""
        return Encoded(self._head(), self._body(masks, set(), b"", StoredOrder(0, None, [])))

    def _head(self) -> Head:
        rule_set = self.rule_set
        return Head(
            id=self.id,
            at=self.now,
            verb=self.verb,
            pod_namespace=self.pod.namespace,
            pod_name=self.pod.name,
            pod_uid=self.pod.uid,
            revision=self.revision.number if self.revision else 0,
            rule_set=rule_set.name if rule_set else "",
            rule_set_version=rule_set.version if rule_set else 0,
            assignment=self.assignment.name if self.assignment else "",
            nodes=self.nodes,
            feasible=self.feasible,
            best=self.best,
            top_reason=self.top_reason,
            duration_microseconds=self.duration_microseconds,
            mode=self.mode,
            error=self.error,
            divergence=self.divergence,
        )

    def _body(self, masks: Masks, found: Found, meaning: bytes, order: StoredOrder, **nodes: Any) -> bytes:
        if self.pod_json is None:
            pod = msgspec.json.encode(masks.pod(self.pod, found))
        else:
            pod, masked = masks.pod_text(self.pod, self.pod_json)
            found |= masked
        notes = {**self.notes, **self._of_assignments()}
        if masks:
            notes = masks.notes(notes, self.rule_set, found)
        if found:
            notes[NOTE] = sorted(found)
        return _encode(
            Body(
                pod=pod,
                revision_digest=self.revision.digest if self.revision else "",
                meaning=meaning,
                order=order,
                notes=notes,
                **nodes,
            )
        )

    def _of_assignments(self) -> dict[str, Any]:
        """Return the Assignments' choices for this Pod that the rule set's name and version don't show."""
        found: dict[str, Any] = {}
        if self.draws:
            found["canaries"] = canaries_of(self.draws)
        if self.rule_set is not None and self.rule_set.overrides:
            found["params"] = dict(self.rule_set.overrides)
        return found


def canaries_of(draws: Sequence[tuple[Assignment, int]]) -> dict[str, dict[str, int]]:
    """Return the canaries' draws for a Pod, for notes, by Assignment: a canary takes the Pod if the draw is below its percent."""
    return {assignment.name: {"drawn": drawn, "percent": assignment.percent} for assignment, drawn in draws}


class _LastOrder:
    """The last encoded order of nodes. /prioritize has the nodes that passed /filter: if all did, in the same array."""

    def __init__(self) -> None:
        self._last: tuple[Rows | None, Integers, StoredOrder] = (None, np.empty(0), StoredOrder(0, None, []))

    def of(self, rows: Rows, names: Sequence[str]) -> tuple[Integers, StoredOrder]:
        """Return rows as 32-bit numbers, and their encoded order."""
        last = self._last
        if last[0] is not rows:
            shorter = rows.astype(np.int32)  # half the memory to read, several times
            last = self._last = (rows, shorter, store_order(shorter, names))
        return last[1], last[2]


_last_order = _LastOrder()


class NodesEntry(Entry, kw_only=True):
    """The rules' answer for nodes, or that no Assignment matched the Pod: for filter, prioritize and schedule.

    Attributes:
        snapshot: the Snapshot that the rules saw, without `assumed`.
        names: the candidate nodes, in order.
        rows: `names` as rows of the Snapshot's table, -1 for unknown names; looked up if it isn't given.
        answer: the rules' answer for the known nodes; None if no Assignment matched the Pod.
        assumed: Pods that were counted on these nodes.
    """

    snapshot: Snapshot
    names: Sequence[str]
    rows: Rows | None = None
    answer: Answer | None = None
    assumed: Sequence[tuple[Pod, str]] = ()

    def encode(self, masks: Masks = NO_MASKS) -> Encoded:
        """Encode all but what only the Recorder knows. No masked value is in the result."""
        answer, names = self.answer, names_of(self.snapshot.table)
        found: Found = set()
        rows = rows_of(self.snapshot.table, self.names) if self.rows is None else self.rows
        shorter, order = _last_order.of(rows, self.names)
        body = self._body(
            masks,
            found,
            meaning_of(self.verb, names, shorter, order.unknown, answer),
            order,
            namespace_labels=None
            if answer
            else masks.labels(self.snapshot.namespace_labels(self.pod.namespace), found),
            answer=self._stored(answer, masks) if answer else None,
            assumed=[(msgspec.json.encode(masks.pod(other, found)), name) for other, name in self.assumed],
        )
        self.nodes = self.feasible = len(rows)
        if answer is None:
            return Encoded(self._head(), body, names)
        best_nodes = self._note_answer(answer, names, rows if not order.unknown else rows[rows >= 0])
        is_choice = self.mode == "enforce" and self.verb in _CHOOSING
        return Encoded(self._head(), body, names, self.snapshot, best_nodes if is_choice else None)

    def _stored(self, answer: Answer, masks: Masks) -> StoredAnswer:
        stored = store_answer(answer)
        columns: list[StoredFilter | StoredScore] = [*stored.filters, *stored.scores]
        faulty = [column for column in columns if column.faults]
        if faulty and masks:
            hidden = masks.hidden_reads(self.rule_set)
            for column in faulty:
                if column.rule in hidden:
                    column.faults = masked_faults(column.faults)
        return stored

    def _note_answer(self, answer: Answer, names: NodeNames, rows: Integers) -> Best:
        """Set the fields that lists show of an answer; as `Answer.best`, without a loop over ties."""
        passed = answer.refusal == PASSED
        # If no rule refused any node, nothing has to be counted.
        self.feasible = feasible = int(np.count_nonzero(passed)) if answer.refusals else len(rows)
        if feasible < len(rows):
            self.top_reason = answer.refusals[0].reason if len(answer.refusals) == 1 else answer.top_reason()
        asked, are_best = rows, passed
        if answer.scores and len(answer.scored):
            asked = rows if len(answer.scored) == len(rows) else rows[answer.scored]
            are_best = answer.are_best
            candidates, totals = asked, answer.totals
            if feasible < len(rows):
                candidates, totals = asked[passed[answer.scored]], totals[passed[answer.scored]]
            if len(totals) and answer.is_ranked:
                self.best = names.first(candidates[totals == np.maximum.reduce(totals)])
        return Best(names, asked, are_best)


class SnapshotEntry(Entry, kw_only=True):
    """A Decision whose facts are in its notes and in a Snapshot: a preempt."""

    snapshot: Snapshot

    def encode(self, masks: Masks = NO_MASKS) -> Encoded:
        """Encode all but what only the Recorder knows. No masked value is in the result."""
        return msgspec.structs.replace(super().encode(masks), snapshot=self.snapshot)


def notes_of_suspensions(suspended_by: Sequence[Suspension]) -> dict[str, Any]:
    """Return the notes about the Pauses and Exemptions that suspended rules."""
    if not suspended_by:
        return {}
    return {SUSPENDED_BY: [{"kind": each.kind, "name": each.name, "target": str(each.target)} for each in suspended_by]}


_encode = msgspec.msgpack.Encoder().encode
_NONE = _encode([])
_decode_head = msgspec.msgpack.Decoder(Head).decode
_decode_body = msgspec.msgpack.Decoder(Body).decode
_decode_outcome = msgspec.msgpack.Decoder(Outcome).decode


def rows_of(table: Table, names: Sequence[str]) -> Rows:
    """Return the rows of nodes by name, -1 for a name that isn't in the table."""
    return np.fromiter(map(table.row_of.get, names, repeat(-1)), dtype=np.intp, count=len(names))


def meaning_of(verb: str, names: NodeNames, rows: Integers, unknown: Sequence[str], answer: Answer | None) -> bytes:
    """Return a digest that identifies an answer: of the candidate nodes in order, and of the verdict on each.

    The verdicts determine which nodes pass, which fail and why, and the points. `answer` is None if every node passed without rules.
    """
    parts: list[Any] = [
        verb.encode(),
        names.digest,
        rows.astype(_INT32, copy=False),
        _encode(unknown) if unknown else _NONE,
    ]
    if answer is not None:
        refusals = [(status.code, status.reason) for status in answer.refusals]
        parts += answer.refusal.astype(_INT32, copy=False), _encode(refusals) if refusals else _NONE
        parts += [
            np.ascontiguousarray(numbers, dtype=_INT64)
            for numbers in (answer.scored, answer.totals, answer.points)
            if len(numbers)
        ]
    return xxhash.xxh3_128_digest(b"".join(parts))


def payload_of(head: bytes, body: bytes) -> list[bytes]:
    """Put head and body together, in parts."""
    return [_LENGTH.pack(len(head)), head, body]


def compressed(payload: bytes, compressor: zstandard.ZstdCompressor) -> bytes:
    """Compress a payload for storage; the head comes first, uncompressed, for the database's columns."""
    return payload[: _body_at(payload)] + AS_RECORD + compressor.compress(payload)


def split(payload: bytes) -> tuple[Head, bytes]:
    """Split a payload into the head and the encoded body.

    Raises:
        msgspec.DecodeError, struct.error: it isn't a payload.
    """
    start = _body_at(payload)
    return _decode_head(payload[_LENGTH.size : start]), payload[start:]


def unpack(payload: bytes) -> tuple[Head, bytes, bytes]:
    """Split a shipped record into the head, the body to store, and the bytes that the writer had on disk.

    Raises:
        msgspec.DecodeError, struct.error, ValueError: it isn't a shipped record.
    """
    head, stored = split(payload)
    start = len(payload) - len(stored)
    if stored[:1] == AS_COLUMNS:  # shipped by a version that compressed the body alone
        exact = payload[:start] + decompress(stored[1:])
        return head, AS_RECORD + make_compressor().compress(exact), exact
    exact = record_of(stored)
    if exact[:start] != payload[:start]:
        message = "the head in front of it is not its own"
        raise ValueError(message)
    return head, stored, exact


def record_of(stored: bytes) -> bytes:
    """Return the record as its writer had it on disk, from a stored body.

    Raises:
        ValueError: it holds none, or it is damaged.
    """
    if stored[:1] != AS_RECORD:
        message = "the Decision's body isn't stored as a whole record"
        raise ValueError(message)
    return decompress(stored[1:])


def record_of_json(fields: Mapping[str, Any], stored: bytes) -> bytes:
    """Return a substitute for the record of a Decision of version 0.1.0: its columns as a head, and its JSON.

    Raises:
        ValueError: the body is damaged, or is that of a later version: columns and body would make the same record.
    """
    text = decompress(stored[1:])
    if text[:1] != b"{":
        message = "the Decision's body holds no JSON"
        raise ValueError(message)
    return b"".join(payload_of(Head(**fields).encode(), text))


def _body_at(payload: bytes) -> int:
    length: int = _LENGTH.unpack_from(payload)[0]
    return _LENGTH.size + length


def parts_of(exact: bytes) -> tuple[bytes, memoryview]:
    """Return the encoded head and Body of a record as its writer had it on disk."""
    start = _body_at(exact)
    return exact[_LENGTH.size : start], memoryview(exact)[start:]


def encode_columns(columns: Sequence[Any]) -> bytes:
    """Encode columns as `Head.encode` does, given in its order."""
    return _encode(columns)


def body_bytes(stored: bytes) -> bytes:
    """Return an encoded Body from a stored body.

    Raises:
        ValueError: it holds none, or it is damaged.
    """
    if stored[:1] == AS_RECORD:
        exact = decompress(stored[1:])
        return exact[_body_at(exact) :]
    if stored[:1] != AS_COLUMNS:
        message = "the Decision holds no columns"
        raise ValueError(message)
    return decompress(stored[1:])


def make_compressor() -> zstandard.ZstdCompressor:
    """Make a compressor; each thread needs its own."""
    return zstandard.ZstdCompressor(level=_LEVEL)


class _Decompressor(threading.local):
    """A decompressor per thread: making one takes twice as long as decompressing a record."""

    def __init__(self) -> None:
        self.decompress = partial(zstandard.ZstdDecompressor().decompress, allow_extra_data=False)


_zstd = _Decompressor()


def decompress(data: bytes) -> bytes:
    """Undo the compression.

    Raises:
        ValueError: the data is damaged.
    """
    try:
        # The decompressor allocates the declared size first: a flipped bit can declare a petabyte.
        if zstandard.frame_content_size(data) > MOST_BYTES:
            message = f"it says that it is longer than {MOST_BYTES} bytes"
            raise ValueError(message)
        return _zstd.decompress(data)
    except zstandard.ZstdError as error:
        message = f"it can't be decompressed: {error}"
        raise ValueError(message) from error


def read_body(stored: bytes) -> Body:
    """Read a stored body of columns.

    Raises:
        ValueError: it is none, or it is damaged.
    """
    try:
        body = _decode_body(body_bytes(stored))
        check_notes(body.notes)
    except (msgspec.DecodeError, struct.error, RecursionError) as error:
        message = f"the Decision's body can't be read: {error}"
        raise ValueError(message) from error
    return body


class _Draw(TypedDict):
    drawn: int
    percent: int


class _Suspended(TypedDict):
    kind: str
    name: str
    target: str


class _Notes(TypedDict, total=False):
    """The notes that may be in any Decision."""

    canaries: dict[str, _Draw] | None
    params: dict[str, Any] | None
    suspendedBy: list[_Suspended] | None


def check_notes(notes: Any) -> None:
    """Check the form of the notes that may be in any Decision.

    Raises:
        ValueError: they have another one.
    """
    msgspec.convert(notes, _Notes)


def store_json(body: Mapping[str, Any]) -> bytes:
    """Store a body in the form of version 0.1.0."""
    return AS_JSON + make_compressor().compress(msgspec.json.encode(body))
