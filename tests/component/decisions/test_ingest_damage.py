"""What can't be read or stored is kept aside, and holds up nothing else."""

import msgspec
import pytest
from django.db import connection

from policies.engine.decision import CompiledRevision
from policies.engine.ruleset import Revision
from scheduler.decisions.frames import HEADER_BYTES, Kind
from scheduler.decisions.ingest import ingest
from scheduler.decisions.reading import body_of
from scheduler.decisions.recorder import End, Gap, Mark
from scheduler.decisions.segments import Position
from scheduler.decisions.stream import STREAM, DecisionStream, Shipment
from scheduler.ledger.logs import DECISIONS
from scheduler.metrics import SPOOL_CORRUPT
from scheduler.models import Checkpoint, DeadLetter, Decision, DecisionGap, LedgerHead, ShadowCount
from tests.component.decisions.real_history import AT, RealHistory, make_entry, record, sequences

pytestmark = pytest.mark.django_db


class TestDamage:
    @pytest.mark.parametrize(
        "place", [0, 5, HEADER_BYTES, HEADER_BYTES + 10, -1], ids=["length", "crc", "body", "inside", "last byte"]
    )
    def test_what_stands_behind_damage_is_dead_letter_and_the_next_segment_goes_on(
        self, real_history: RealHistory, place: int
    ) -> None:
        record(real_history, 3)
        real_history.spool.rotate()
        record(real_history, 2)
        path = real_history.spool.segments.path(1)
        data = bytearray(path.read_bytes())
        second = real_history.spool.segments.read(Position(1)).frames[0].end
        at = second + place if place >= 0 else len(data) - 1
        data[at] ^= 0xFF
        path.write_bytes(data)
        before = SPOOL_CORRUPT._value.get()

        real_history.settle()

        kept = [1] if place >= 0 else [1, 2]
        assert sequences() == [*kept, 4, 5]
        assert list(DecisionGap.objects.values_list("first", "last")) == [(len(kept) + 1, 3)]
        aside = DeadLetter.objects.get()
        corrupt = bytes(data[aside.offset - len(bytes(aside.data)) : aside.offset])
        assert (bytes(aside.data), aside.segment) == (corrupt, 1)
        assert SPOOL_CORRUPT._value.get() - before == 1

    def test_damage_in_the_segment_that_is_being_written_ends_it(self, real_history: RealHistory) -> None:
        record(real_history, 3)
        path = real_history.spool.segments.path(1)
        data = bytearray(path.read_bytes())
        data[-1] ^= 0xFF
        path.write_bytes(data)
        real_history.ship()
        record(real_history, 2)
        real_history.settle()
        assert sequences() == [1, 2, 4, 5]
        assert list(DecisionGap.objects.values_list("first", "last")) == [(3, 3)]

    def test_damage_that_comes_twice_and_holds_no_record_is_one_dead_letter(self, real_history: RealHistory) -> None:
        record(real_history, 2)
        real_history.spool.rotate()
        with real_history.spool.segments.path(1).open("ab") as segment:
            segment.write(b"half a record, for which there was no room")
        record(real_history, 1)
        for _ in range(2):
            real_history.shipper.step()
            real_history.shipper.step()  # up to the damage, and no further
            real_history.shipper._go_back(real_history.shipper._own)
        real_history.settle()
        assert sequences() == [1, 2, 3]
        assert [bytes(row.data) for row in DeadLetter.objects.all()] == [b"half a record, for which there was no room"]

    def test_records_that_are_no_records_are_dead_letter_and_hold_up_no_other(
        self, real_history: RealHistory, stream: DecisionStream
    ) -> None:
        record(real_history, 1)
        for kind in (Kind.DECISION, Kind.OUTCOME, Kind.GAP, Kind.NAMES, Kind.DELTA, 99):
            real_history.spool.append([(kind, [b"\x00\x00\x00\x00\xc1"])])  # type: ignore[list-item] # that is the test
        record(real_history, 1)
        stream._redis.xadd(STREAM, {b"w": b"extender@test", b"s": b"no number"})
        stream._redis.xadd(STREAM, {b"d": b"no JSON"})
        stream._redis.xadd(STREAM, {b"r": b"\x93no list of records"})
        real_history.settle()
        assert sequences() == [1, 2]
        assert DeadLetter.objects.count() == 9
        assert {row.reason.partition(":")[0] for row in DeadLetter.objects.all()} == {
            "it can't be read", "it is no record",
        }  # fmt: skip

    def test_what_is_nested_too_deeply_or_says_to_be_vast_is_dead_letter_and_holds_up_no_other(
        self, real_history: RealHistory, stream: DecisionStream
    ) -> None:
        record(real_history, 1)
        deep = b"\x91" * 100_000 + b"\xc0"
        vast = b"\x28\xb5\x2f\xfd\xe0" + (1 << 50).to_bytes(8, "little") + b"\x01\x00\x00"
        real_history.spool.append([(Kind.GAP, [b"\x95\x01\x01\xa0\xd6\xff\x00\x00\x00\x00" + deep])])
        real_history.spool.append([(Kind.DECISION, [b"\x00\x00\x00\x00\x02" + vast])])
        record(real_history, 1)
        stream._redis.xadd(STREAM, {b"d": b"[" * 100_000})
        stream._redis.xadd(STREAM, {b"r": b"\x91\x97\xa1w\x01\x01\x01\x01\xc4\x00" + deep})
        real_history.settle()
        assert sequences() == [1, 2]
        assert DeadLetter.objects.count() == 4
        assert not stream.length()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"writer": "extender@\x00test"}, {"writer": ""}, {"writer": "w" * 1001}, {"segment": 1 << 31},
            {"segment": -1}, {"offset": 1 << 63}, {"sequence": (1 << 63) - 1}, {"kind": 1 << 31},
        ],
        ids=["writer with NUL", "no writer", "long writer", "high segment", "low segment", "offset", "sequence", "kind"],
    )  # fmt: skip
    def test_an_entry_that_no_checkpoint_can_hold_is_dead_letter_and_holds_up_no_other(
        self, real_history: RealHistory, stream: DecisionStream, wrong: dict[str, object]
    ) -> None:
        fields = {"writer": "w", "segment": 1, "offset": 1, "sequence": 1, "kind": 1, "data": b"x"} | wrong
        stream._redis.xadd(STREAM, {b"r": msgspec.msgpack.encode([list(fields.values())])})
        former = zip(b"wgoskd", fields.values(), strict=True)
        stream._redis.xadd(STREAM, {bytes([name]): str(value) for name, value in former})
        record(real_history, 1)
        real_history.settle()
        assert sequences() == [1]
        assert [row.reason.partition(":")[0] for row in DeadLetter.objects.all()] == ["it is no record"] * 2
        assert not stream.length()

    @pytest.mark.parametrize(
        ("kind", "record"),
        [
            (Kind.GAP, Gap(first=1, last=(1 << 63) - 1, reason="", at=AT)),
            (Kind.GAP, Gap(first=-5, last=-3, reason="", at=AT)),
            (Kind.MARK, Mark((1 << 63) - 1)),
            (Kind.END, End(1 << 63)),
        ],
        ids=str,
    )
    def test_a_number_that_no_column_holds_is_dead_letter_and_holds_up_no_other(
        self, real_history: RealHistory, kind: Kind, record: msgspec.Struct
    ) -> None:
        real_history.spool.append([(kind, [msgspec.msgpack.encode(record)])])
        real_history.recorder.record(make_entry("behind"))
        real_history.settle()
        assert sequences() == [1]
        assert DeadLetter.objects.get().reason.startswith("it can't be read: Expected `int`")
        assert not DecisionGap.objects.exists()

    def test_a_gap_that_the_database_refuses_is_kept(self, real_history: RealHistory) -> None:
        if connection.vendor != "postgresql":
            pytest.skip("SQLite takes it")
        gap = Gap(first=1, last=2, reason="no\x00room", at=AT)
        real_history.spool.append([(Kind.GAP, [msgspec.msgpack.encode(gap)])])
        real_history.settle()
        letter = DeadLetter.objects.get()
        assert letter.reason.startswith("the database refuses it: ")
        assert b"no\x00room" in bytes(letter.data)

    def test_a_row_that_the_database_refuses_is_dead_letter(self, real_history: RealHistory) -> None:
        if connection.vendor != "postgresql":
            real_history.recorder.record(make_entry("twice", id="4e7c2ad0-6c4f-4b0c-8a31-6d6a2b1d7a11"))
            real_history.recorder.record(make_entry("twice", id="4e7c2ad0-6c4f-4b0c-8a31-6d6a2b1d7a11"))
        else:
            real_history.recorder.record(make_entry("first"))
            real_history.recorder.record(make_entry("a\x00b"))
        record(real_history, 1)
        real_history.settle()
        assert sequences() == [1, 3]
        assert DeadLetter.objects.get().reason.startswith("the database refuses it: ")

    def test_a_shadow_that_the_database_refuses_is_counted_nowhere_and_holds_up_no_other(
        self, real_history: RealHistory
    ) -> None:
        twice = {"id": "4e7c2ad0-6c4f-4b0c-8a31-6d6a2b1d7a11", "mode": "shadow", "divergence": "agreed"}
        real_history.recorder.record(make_entry(**twice))
        real_history.settle()
        real_history.recorder.record(make_entry(**twice))
        if connection.vendor == "postgresql":
            real_history.recorder.record(make_entry(mode="shadow", divergence="a\x00b"))
            real_history.recorder.record(
                make_entry(mode="shadow", divergence="agreed", revision=CompiledRevision(Revision(number=1 << 40)))
            )
        record(real_history, 1)
        real_history.settle()
        assert sequences() == [1, real_history.spool.next_sequence - 1]
        assert list(ShadowCount.objects.values_list("divergence", "number")) == [("agreed", 1)]

    def test_refused_rows_among_many_leave_no_hole_in_the_ledger(self, real_history: RealHistory) -> None:
        for number in range(40):
            faulty = connection.vendor == "postgresql" and number in {7, 8, 31}
            real_history.recorder.record(make_entry("a\x00b" if faulty else f"p-{number}"))
        real_history.settle()
        stored = Decision.objects.order_by("sequence").values_list("ledger_index", flat=True)
        assert list(stored) == list(range(LedgerHead.objects.get(log=DECISIONS).size))
        assert len(stored) + DeadLetter.objects.count() == 40

    def test_a_number_that_the_database_has_no_room_for_is_not_cut_off(self, real_history: RealHistory) -> None:
        real_history.recorder.record(make_entry("long", duration_microseconds=(1 << 32) + 5))
        real_history.settle()
        row = Decision.objects.first()
        assert row.duration_microseconds == (1 << 32) + 5 if row else DeadLetter.objects.get().sequence == 1

    @pytest.mark.parametrize(
        ("kind", "data"),
        [
            (Kind.OUTCOME, ["u", "ns", "p", "no\x00de", AT, True]),
            (Kind.OUTCOME, ["u", "ns", "p", "n1", "9999-12-31T23:59:59-23:59", True]),
            (Kind.OUTCOME, ["u", "ns", "p", "n1", "2026-01-01T00:00:00"]),
            (Kind.GAP, [1, 2, "why", "2026-01-01T00:00:00"]),
            (Kind.NAMES, [1 << 31]),
            (Kind.BASE, [1 << 63, 1, 1, 1]),
        ],
        ids=["node with NUL", "zone", "no zone", "gap without a zone", "number of names", "number of a chain"],
    )  # fmt: skip
    def test_a_record_that_the_database_cannot_take_is_dead_letter_and_holds_up_no_other(
        self, real_history: RealHistory, stream: DecisionStream, kind: Kind, data: list[object]
    ) -> None:
        # What is known of a Pod isn't stored again, and is joined to its Decisions all the same.
        known = msgspec.msgpack.encode(["u", "ns", "p", "n1", AT])
        wrong = msgspec.msgpack.encode(data)
        if kind in (Kind.NAMES, Kind.BASE):
            wrong = bytes([len(wrong)]) + wrong + b"x"
        for sequence, (of, payload) in enumerate(
            ((Kind.OUTCOME, known), (kind, wrong), (Kind.OUTCOME, known)), start=1
        ):
            shipment = Shipment(writer="w", segment=1, offset=sequence, sequence=sequence, kind=of, data=payload)
            stream._redis.xadd(STREAM, {b"r": msgspec.msgpack.encode([shipment])})
            if sequence == 1:
                ingest(stream)
        record(real_history, 1)
        real_history.settle()
        assert sequences() == [1]
        assert Checkpoint.objects.get(writer="w").next_sequence == 4
        assert not stream.length()
        letters = DeadLetter.objects.filter(writer="w")
        if connection.vendor == "postgresql" or letters:  # SQLite takes most of them
            assert [row.sequence for row in letters] == [2]

    def test_an_extender_of_a_former_version_ships_a_record_an_entry(
        self, real_history: RealHistory, stream: DecisionStream
    ) -> None:
        record(real_history, 3)
        real_history.ship()
        [entry, *_] = arrived = stream.read(3)
        stream._redis.xdel(STREAM, entry.id)
        for shipment in (each.shipment for each in arrived if each.shipment):
            members = zip(b"wgoskd", msgspec.structs.astuple(shipment), strict=True)
            stream._redis.xadd(STREAM, {bytes([name]): value for name, value in members})
        assert len(stream.read(3)) == stream.length() == 3
        real_history.settle()
        assert sequences() == [1, 2, 3]

    def test_what_version_0_1_0_left_in_redis_is_stored(self, stream: DecisionStream) -> None:
        old = {
            "id": "4e7c2ad0-6c4f-4b0c-8a31-6d6a2b1d7a11", "at": "2026-01-01T00:00:00Z", "process": "extender@old",
            "sequence": 9, "verb": "filter", "pod_namespace": "default", "pod_name": "p", "pod_uid": "u", "revision": 3,
            "nodes": 5, "feasible": 2, "body": {"nodes": ["n1"]},
        }  # fmt: skip
        for _ in range(2):
            stream._redis.xadd(STREAM, {b"d": msgspec.json.encode(old)})
            ingest(stream)
        row = Decision.objects.get()
        assert (row.process, row.sequence, row.at) == ("extender@old", 9, AT)
        assert body_of(row) == {"nodes": ["n1"]}
        stream._redis.xadd(STREAM, {b"d": msgspec.json.encode(old | {"process": "a\x00b"})})
        stream._redis.xadd(STREAM, {b"d": msgspec.json.encode(old | {"sequence": 1 << 63})})
        stream._redis.xadd(STREAM, {b"d": msgspec.json.encode(old | {"revision": 1 << 70})})
        stream._redis.xadd(STREAM, {b"d": msgspec.json.encode(old | {"at": "2026-01-01T00:00:00"})})
        ingest(stream)
        assert not stream.length()
