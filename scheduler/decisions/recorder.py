"""Records Decisions: numbers them, and writes them to disk before the answer is sent. A thread ships them from there."""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from scheduler.decisions.frames import Kind, Moment, Number
from scheduler.decisions.journal import Chain, Journal, Place
from scheduler.decisions.masking import NO_MASKS, Masks
from scheduler.decisions.record import Best, Encoded, Entry, Outcome, payload_of
from scheduler.decisions.shipping import Depth, ReadCheckpoints, Shipper, read_checkpoints
from scheduler.decisions.spool import Payload, Spool, SpoolFullError
from scheduler.decisions.stream import DecisionStream
from scheduler.metrics import DECISIONS_UNWRITTEN, OUTCOMES_UNWRITTEN, SPOOL_LOST
from scheduler.models import Outcome as OutcomeRow
from scheduler.trouble import Trouble

logger = logging.getLogger("berth.decisions")

# What happens when there is no room for a Decision: the answer is sent and the Decision counted as lost, or there is no answer.
WhenFull = Literal["lose", "refuse"]

# How long the first Decisions wait until the Snapshot that they refer to is written. A killed process could leave them without it.
FIRST_BASE_SECONDS = 1.0

# The advice for a spool that can't be written: everything else is retried automatically.
REMEDY = (
    "make room there, let this process write there, or name another folder by BERTH_STATE_DIR; it is tried every second"
)

_MOST_AWAITED = 20_000
# Outcomes that wait in memory for room on disk; beyond that the oldest are lost. One takes half a KiB.
_MOST_UNWRITTEN = 20_000
_FULL_SECONDS = 0.1


class Preemptor(msgspec.Struct, frozen=True):
    """A preemptor, and the Decision that preempts for it."""

    uid: str
    namespace: str
    name: str
    decision: str


class Gap(msgspec.Struct, array_like=True, kw_only=True):
    """Decisions that were answered and are lost: the first and the last number, and why."""

    first: Number
    last: Number
    reason: str
    at: Moment


class End(msgspec.Struct, array_like=True):
    """The writer exited normally; none of its records can be missing. `decisions`: how many it numbered."""

    decisions: Number


class Mark(msgspec.Struct, array_like=True):
    """How many Decisions were numbered before this record: those that aren't stored when this record is read are lost."""

    decisions: Number


class Recorder:
    """Numbers Decisions without gaps and writes them to the spool. Safe to use from several threads.

    Args:
        root: the folder of the spool.
        writer: the writer's name, which no other process ever had; with the number it identifies a Decision.
        stream: where records on disk are shipped to.
        when_full: what happens when there is no room.
        max_bytes: how much the spool may take up.
        checkpoints: reads from the database how far writers are stored.
        masks: what is masked before it is written.
    """

    def __init__(
        self,
        *,
        root: Path,
        writer: str,
        stream: DecisionStream,
        when_full: WhenFull = "lose",
        max_bytes: int,
        checkpoints: ReadCheckpoints = read_checkpoints,
        masks: Masks = NO_MASKS,
    ) -> None:
        self._masks = masks
        self.spool = Spool(root, writer, max_bytes=max_bytes)
        self._when_full = when_full
        self._lock = threading.Lock()
        self._journal = Journal(lambda payloads, share: self.spool.append(payloads, share=share), masks)
        self._sequence = 0
        self._lost: Gap | None = None
        self._full_until, self._full_why = 0.0, ""
        self._homeless, self._anew, self._losing, self._unknown_outcomes = (Trouble() for _ in range(4))
        self._awaited: OrderedDict[str, Best] = OrderedDict()
        # The best nodes of the last second, by the Pod's UID; not packed yet.
        self._fresh: dict[str, Best] = {}
        self._preemptors: OrderedDict[str, Preemptor] = OrderedDict()
        self._unwritten: deque[bytes] = deque(maxlen=_MOST_UNWRITTEN)
        self._is_stopping = False
        self.shipper = Shipper(self.spool, stream, checkpoints=checkpoints, before=self._mend)

    @property
    def redis_reachable(self) -> bool:
        """Whether Redis accepted the last shipment."""
        return self.shipper.redis_reachable

    @property
    def depth(self) -> Depth:
        """The amount of data in the spool."""
        return self.shipper.depth()

    @property
    def numbered(self) -> int:
        """How many Decisions were answered, including those that were lost for lack of room."""
        return self._sequence

    def start(self) -> None:
        """Start to accept and ship Decisions. While the spool can't be made, it counts as full."""
        self._open()
        self.shipper.start()

    def _open(self) -> None:
        try:
            self.spool.open()
        except OSError as error:
            if self._homeless.is_news(str(error)):
                # Without a traceback: it is the disk's fault.
                logger.error("the spool can't be created in %s: %s. %s", self.spool.segments.folder, error, REMEDY)  # noqa: TRY400
        else:
            self._homeless.end()

    def stop(self, timeout_seconds: float = 10.0) -> None:
        """Write an End record, ship as much as time allows, and leave the rest to the next process."""
        self._is_stopping = True
        self._journal.join(timeout_seconds)
        self.write_gap()
        self.write_outcomes()
        self._write_end()
        self.shipper.stop(timeout_seconds)
        self.spool.close()

    def _write_end(self) -> None:
        with self._lock:
            end = msgspec.msgpack.encode(End(self._sequence))
            try:
                self.spool.append([(Kind.END, [end])])
            except SpoolFullError as error:
                logger.warning("the end marker of the spool can't be written: %s", error)

    def record(self, entry: Entry) -> None:
        """Write a Decision. When this returns, the Decision outlives the process.

        Raises:
            SpoolFullError: there is no room, and the setting says `refuse`: the answer must not go out.
        """
        encoded = entry.encode(self._masks)
        with self._lock:
            chain = self._record(encoded)
        if chain is not None and not chain.written.is_set():
            chain.written.wait(max(0.0, chain.begun + FIRST_BASE_SECONDS - time.monotonic()))

    def record_outcome(self, outcome: Outcome) -> None:
        """Write a Pod's outcome, with this process's knowledge: whether its node was the best, and its preemptor.

        If there is no room, it waits in memory until there is: the API server can't tell how a Pod ended.
        """
        with self._lock:
            if outcome.kind == OutcomeRow.Kind.PREEMPTED:
                self._name_preemptor(outcome)
            best = self._awaited.pop(outcome.pod_uid, None)
            self._fresh.pop(outcome.pod_uid, None)
            if best is not None and outcome.kind == OutcomeRow.Kind.BOUND:
                outcome.best = best.has(outcome.node_name)
            payload = outcome.encode()
            try:
                self.spool.append([(Kind.OUTCOME, [payload])])
            except SpoolFullError as error:
                self._unwritten.append(payload)
                OUTCOMES_UNWRITTEN.inc()
                if self._unknown_outcomes.is_news(str(error)):
                    logger.warning("outcomes of Pods can't be recorded: %s", error)

    def expect_preemption(self, victim_uids: Iterable[str], preemptor: Preemptor) -> None:
        """Note the preemptor of these Pods, in case they are preempted."""
        with self._lock:
            for uid in victim_uids:
                self._preemptors[uid] = preemptor
                self._preemptors.move_to_end(uid)
            while len(self._preemptors) > _MOST_AWAITED:
                self._preemptors.popitem(last=False)

    def _name_preemptor(self, outcome: Outcome) -> None:
        preemptor = self._preemptors.pop(outcome.pod_uid, None)
        if preemptor is not None:
            outcome.preemptor_uid, outcome.decision = preemptor.uid, preemptor.decision
            outcome.preemptor_namespace, outcome.preemptor_name = preemptor.namespace, preemptor.name

    def awaits(self, pod_uid: str) -> bool:
        """Return whether this process answered about the Pod and hasn't recorded its outcome."""
        return pod_uid in self._awaited

    def _mend(self) -> None:
        """Retry records that there was no room for."""
        if not self.spool.is_open and not self._is_stopping:
            self._open()
        if self.spool.is_lost():
            self._begin_anew()
        self.write_gap()
        self.write_outcomes()
        with self._lock:
            fresh, self._fresh = self._fresh, {}
        for best in fresh.values():
            with self._lock:  # taken for each one separately: a call may wait for it
                best.pack()

    def _begin_anew(self) -> None:
        """Continue in a new folder: the old one was deleted, with its unshipped records."""
        folder = self.spool.segments.folder
        if self._homeless.is_news("deleted"):
            logger.error("the spool's folder was deleted or replaced: %s", folder)
        with self._lock:
            try:
                self.spool.begin_anew()
                # Snapshots and names in the old folder may be lost: new Decisions must not refer to them.
                self._journal.forget()
                self.spool.append([(Kind.MARK, [msgspec.msgpack.encode(Mark(self._sequence))])])
            except (OSError, SpoolFullError) as error:
                if self._anew.is_news(str(error)):
                    logger.warning("a new spool can't be created in %s: %s. %s", folder, error, REMEDY)
            else:
                SPOOL_LOST.inc()
                self._homeless.end()
                self._anew.end()

    def write_outcomes(self) -> None:
        """Write the outcomes that there was no room for, as far as there is room now."""
        while True:
            with self._lock:  # taken for each one separately: a call may wait for it
                if not self._unwritten:
                    self._unknown_outcomes.end()
                    return
                try:
                    self.spool.append([(Kind.OUTCOME, [self._unwritten[0]])])
                except SpoolFullError:
                    return
                self._unwritten.popleft()

    def write_gap(self) -> None:
        """Write gaps for lost Decisions, as soon as there is room."""
        if self._lost is not None:
            with self._lock:
                if self._lost is None:
                    return
                try:
                    self.spool.append([_gap_payload(self._lost)])
                except SpoolFullError as error:
                    self._say_loss(self._lost, error)
                else:
                    self._note_gap_written()

    def _record(self, encoded: Encoded) -> Chain | None:
        try:
            self._check_room()
            payloads: list[Payload] = []
            if self._lost is not None:
                payloads.append(_gap_payload(self._lost))
            head, snapshot = encoded.head, encoded.snapshot
            head.sequence = self._sequence + 1
            head.names_number = self._journal.number_of(encoded.names, payloads) if encoded.names else 0
            place, chain = self._journal.place_of(snapshot, payloads) if snapshot else (Place(), None)
            head.chain, head.position = place.chain, place.position
            self._append([*payloads, (Kind.DECISION, payload_of(head.encode(), encoded.body))])
        except SpoolFullError as error:
            if self._when_full == "refuse":
                raise
            self._lose(error)
            chain = None
        else:
            self._note_gap_written()
        self._sequence += 1
        if encoded.best_nodes is not None:
            self._await(encoded.head.pod_uid, encoded.best_nodes)
        return chain

    def _check_room(self) -> None:
        """Don't retry at once: each attempt could start a new Snapshot, for which there is no room either."""
        if time.monotonic() < self._full_until:
            raise SpoolFullError(self._full_why)

    def _append(self, payloads: list[Payload]) -> None:
        try:
            self.spool.append(payloads)
        except SpoolFullError as error:
            self._full_until, self._full_why = time.monotonic() + _FULL_SECONDS, str(error)
            self._journal.forget()
            raise

    def _lose(self, error: SpoolFullError) -> None:
        if self._lost is None:
            first = self._sequence + 1
            self._lost = Gap(first=first, last=first, reason="no room in the spool", at=datetime.now(UTC))
            self._say_loss(self._lost, error)
        self._lost.last = self._sequence + 1
        DECISIONS_UNWRITTEN.inc()

    def _say_loss(self, lost: Gap, error: SpoolFullError) -> None:
        if self._losing.is_news(str(error)):
            known = lost.last - lost.first + 1
            logger.error("Decisions are lost from now on (%d so far): %s. %s", known, error, REMEDY)

    def _note_gap_written(self) -> None:
        if self._lost is not None:
            self._losing.end()
            logger.error("%d Decisions were lost because the spool had no room", self._lost.last - self._lost.first + 1)
            self._lost = None

    def _await(self, pod_uid: str, best: Best) -> None:
        self._awaited[pod_uid] = self._fresh[pod_uid] = best
        self._awaited.move_to_end(pod_uid)
        while len(self._awaited) > _MOST_AWAITED:
            self._awaited.popitem(last=False)


def _gap_payload(gap: Gap) -> Payload:
    return Kind.GAP, [msgspec.msgpack.encode(gap)]
