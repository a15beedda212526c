"""Whatever happens to files, Redis, the ingest and the processes: each Decision is stored once, in order, or counted.

The real recorder, shipper and ingest, driven step by step by hypothesis. A stand-in for Redis loses and repeats; in
place of the database stand its checkpoints and lists, which change together or not at all, as in a transaction.
"""

import copy
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from policies.engine.objects.pod import Pod
from scheduler.decisions.frames import Kind, frame
from scheduler.decisions.ingest import _Batch
from scheduler.decisions.recorder import Recorder
from scheduler.decisions.segments import Position
from scheduler.decisions.shipping import Stored
from scheduler.models import Checkpoint
from tests.recording import PLENTY, MemoryStream, Prepared

AT = datetime(2026, 1, 1, tzinfo=UTC)
POD = Pod.from_json({})


class HistoryMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="berth-machine-"))
        self.stream: Any = MemoryStream()
        self.database_is_away = False
        self.checkpoints: dict[str, Checkpoint] = {}
        self.stored: list[tuple[str, int, str]] = []
        self.gaps: list[tuple[str, int, int]] = []
        self.aside: list[bytes] = []
        # Writer, number and id of every Decision that was answered and must come to be stored.
        self.answered: list[tuple[str, int, str]] = []
        self.lost: set[tuple[str, int]] = set()
        self.writers = 0
        self.start_process()

    def teardown(self) -> None:
        if not hasattr(self, "recorder"):
            return
        try:
            self.settle()
            self.check()
        finally:
            self.recorder.spool.close()
            for source in self.recorder.shipper._sources:
                if source.dead is not None:
                    source.dead.give_back()
            shutil.rmtree(self.root)

    # What the world does.

    def start_process(self) -> None:
        self.writers += 1
        self.recorder = Recorder(
            root=self.root,
            writer=f"w{self.writers}",
            stream=self.stream,
            max_bytes=PLENTY,
            checkpoints=self.read_checkpoints,
        )
        self.recorder.spool._segment_bytes = 400
        self.recorder.spool._sync_seconds = 0
        self.recorder.spool.open()

    def read_checkpoints(self, writers: Any) -> Any:
        if self.database_is_away:
            return None
        found = {writer: self.checkpoints[writer] for writer in writers if writer in self.checkpoints}
        return {
            writer: Stored(Position(mark.segment, mark.offset), mark.next_sequence) for writer, mark in found.items()
        }

    @rule(size=st.integers(0, 500))
    def record(self, size: int) -> None:
        made = Prepared(now=AT, verb="filter", pod=POD, body=bytes(size))
        self.recorder.record(made)
        self.answered.append((self.recorder.spool.segments.writer, self.recorder._sequence, made.id))

    @rule()
    def lose_for_want_of_room(self) -> None:
        self.recorder.spool._max_bytes = 0
        self.recorder.record(Prepared(now=AT, verb="filter", pod=POD, body=b""))
        self.recorder.spool._max_bytes = PLENTY
        self.recorder._full_until = 0.0
        self.lost.add((self.recorder.spool.segments.writer, self.recorder._sequence))
        self.recorder.write_gap()

    @rule(part=st.integers(0, 60))
    def kill(self, part: int) -> None:
        """The process is killed, perhaps in the middle of a write whose answer then never went out."""
        spool = self.recorder.spool
        half = b"".join(frame(Kind.DECISION, spool.next_sequence, [b"never answered", bytes(50)]))[:part]
        if spool.written.segment:
            with spool.segments.path(spool.written.segment).open("ab") as file:
                file.write(half)
        for source in self.recorder.shipper._sources:
            if source.dead is not None:
                source.dead.give_back()
        spool.close()
        self.start_process()

    @rule()
    def end_in_order(self) -> None:
        self.recorder.spool.append([(Kind.END, [b"\x91" + bytes([self.recorder._sequence % 128])])])
        self.kill(0)

    @rule(steps=st.integers(1, 3))
    def ship(self, steps: int) -> None:
        shipper = self.recorder.shipper
        for _ in range(steps):
            shipper._asked_at = -1e9
            shipper.step()

    @rule()
    def keep_house(self) -> None:
        self.recorder.shipper._house_kept_at = self.recorder.shipper._taken_over_at = -1e9
        self.recorder.shipper.step()

    @rule(count=st.integers(1, 6), dies=st.sampled_from(["no", "before the commit", "after the commit"]))
    def ingest(self, count: int, dies: str) -> None:
        if self.stream.away or self.database_is_away:
            return
        arrived = self.stream.read(count)
        if not arrived:
            return
        checkpoints = copy.deepcopy(self.checkpoints)
        for each in arrived:
            checkpoints.setdefault(each.shipment.writer, Checkpoint(writer=each.shipment.writer, at=AT))
        batch = _Batch(checkpoints, AT)
        for each in arrived:
            batch.take(each)
        if dies == "before the commit":
            return
        self.checkpoints = checkpoints
        self.stored += [(row.process, row.sequence, str(row.id)) for row in batch._decisions]
        self.gaps += [(gap.process, gap.first, gap.last) for gap in batch._gaps]
        self.aside += [row.data for row in batch._dead_letters]
        if dies == "no":
            self.stream.finish([each.id for each in arrived], batch.wanted())

    @rule()
    def redis_comes_and_goes(self) -> None:
        self.stream.away = not self.stream.away

    @rule()
    def redis_is_wiped(self) -> None:
        self.stream.wipe()

    @precondition(lambda self: self.stream.entries)
    @rule(place=st.integers(0, 100))
    def redis_loses_an_entry(self, place: int) -> None:
        del self.stream.entries[list(self.stream.entries)[place % len(self.stream.entries)]]

    @precondition(lambda self: self.stream.entries)
    @rule(count=st.integers(1, 5))
    def redis_goes_back_in_time(self, count: int) -> None:
        """The last transactions are lost, the stream's end and what it knew together."""
        for entry_id in list(self.stream.entries)[-count:]:
            shipment = self.stream.entries.pop(entry_id)
            self.stream.shipped[shipment.writer] = shipment.sequence

    @rule()
    def database_comes_and_goes(self) -> None:
        self.database_is_away = not self.database_is_away

    # What must hold.

    @invariant()
    def nothing_comes_twice_and_all_in_order(self) -> None:
        stored = getattr(self, "stored", [])
        by_writer: dict[str, list[int]] = {}
        for writer, sequence, _ in stored:
            by_writer.setdefault(writer, []).append(sequence)
        for sequences in by_writer.values():
            assert sequences == sorted(set(sequences))
        assert set(stored) <= set(getattr(self, "answered", []))

    def settle(self) -> None:
        """All is back; everything goes through."""
        self.stream.away = self.database_is_away = False
        for _ in range(200):
            self.keep_house()
            self.ship(1)
            self.ingest(100, "no")
            if not self.stream.entries and set(self.answered) <= set(self.stored) and len(self.folders()) == 1:
                return
        self.check()

    def folders(self) -> list[str]:
        return [path.name for path in self.root.iterdir() if path.is_dir()]

    def check(self) -> None:
        assert sorted(self.stored) == sorted(self.answered)
        assert self.folders() == [self.recorder.spool.segments.writer]
        lost = {(writer, number) for writer, first, last in self.gaps for number in range(first, last + 1)}
        # What a killed process had lost and couldn't say any more shows by no number.
        assert lost <= self.lost
        assert len(lost) == sum(last - first + 1 for _, first, last in self.gaps)


TestHistory = HistoryMachine.TestCase
TestHistory.settings = settings(stateful_step_count=40)
