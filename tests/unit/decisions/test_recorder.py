"""The recorder: what is recorded is on disk when it returns, numbered without gaps; what is lost is counted."""

import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler import trouble
from scheduler.decisions import journal as journal_module
from scheduler.decisions.frames import Kind
from scheduler.decisions.node_names import names_of
from scheduler.decisions.record import (
    Best,
    Entry,
    NodesEntry,
    Outcome,
    compressed,
    make_compressor,
    read_outcome,
    split,
)
from scheduler.decisions.recorder import End, Gap, Preemptor, Recorder
from scheduler.decisions.segments import Position, Segments
from scheduler.decisions.spool import SpoolFullError
from scheduler.metrics import DECISIONS_UNWRITTEN
from tests.builders import make_node, make_pod, make_rule_set
from tests.recording import PLENTY, MemoryStream, Prepared, outcome_of

AT = datetime(2026, 1, 1, tzinfo=UTC)
SHORT = 60.0


def make_recorder(root: Path, **settings: Any) -> Recorder:
    stream: Any = MemoryStream()
    defaults: dict[str, Any] = {"max_bytes": PLENTY, "checkpoints": lambda _writers: {}}
    made = Recorder(root=root, writer="extender-1", stream=stream, **(defaults | settings))
    made.spool.open()
    return made


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = make_recorder(tmp_path)
    yield made
    made.spool.close()


def entry(name: str = "web", **fields: Any) -> Entry:
    return Prepared(now=AT, verb="filter", pod=Pod.from_json(make_pod(name)), **({"body": b""} | fields))


def frames(recorder: Recorder) -> list[tuple[Kind, bytes]]:
    recorder._journal.join(SHORT)
    found = []
    segments = Segments(recorder.spool.segments.folder)
    for number in segments.numbers():
        at = Position(number)
        while (batch := segments.read(at)).frames:
            found += [(Kind(each.kind), each.payload) for each in batch.frames]
            at = batch.end
    return found


def heads(recorder: Recorder) -> list[Any]:
    compressor = make_compressor()
    return [split(compressed(payload, compressor))[0] for kind, payload in frames(recorder) if kind is Kind.DECISION]


def lost() -> float:
    return float(DECISIONS_UNWRITTEN._value.get())


def answered(snapshot: Snapshot, *names: str, verb: str = "prioritize") -> Entry:
    """Record as the extender does; the longest name is the best."""
    score = {"name": "length", "expression": "size(node.metadata.name)", "bounds": [0, 10]}
    rule_set = CompiledRuleSet(make_rule_set(scores=[score]))
    pod = Pod.from_json(make_pod("asked"))
    rows = snapshot.table.rows(names)
    answer = decide(rule_set, Cycle(pod=pod, snapshot=snapshot, now=AT), rows, scoring=verb == "prioritize")
    return NodesEntry(verb=verb, pod=pod, now=AT, rule_set=rule_set, snapshot=snapshot, names=names, answer=answer)


def make_snapshot(*names: str) -> Snapshot:
    return Snapshot.of(Node.from_json(make_node(name)) for name in names)


class TestRecord:
    def test_a_decision_is_on_disk_when_it_returns(self, recorder: Recorder) -> None:
        made = entry(body=b"body")
        recorder.record(made)
        (head,) = heads(recorder)
        assert (head.id, head.sequence, head.pod_name, head.at) == (made.id, 1, "web", AT)

    def test_numbers_have_no_gap_when_threads_record_at_once(self, recorder: Recorder) -> None:
        threads = [threading.Thread(target=lambda: [recorder.record(entry()) for _ in range(250)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [head.sequence for head in heads(recorder)] == list(range(1, 1001))

    def test_a_snapshot_is_written_once_and_then_what_changes(self, recorder: Recorder) -> None:
        snapshot = make_snapshot("a", "bb", "ccc")
        recorder.record(answered(snapshot, "a", "bb"))
        recorder.record(answered(snapshot, "ccc"))
        later = snapshot.changed({"bb": NodeInfo(Node.from_json(make_node("bb", cpu="9")))})
        recorder.record(answered(later, "bb"))
        kinds = [kind for kind, _ in frames(recorder)]
        assert kinds.count(Kind.NAMES) == 1
        assert kinds.count(Kind.BASE) == 2  # what isn't nodes, and the nodes
        assert kinds.count(Kind.DELTA) == 1
        change = next(payload for kind, payload in frames(recorder) if kind is Kind.DELTA)
        assert b'"bb"' in change
        assert b'"ccc"' not in change
        assert [(head.chain, head.position) for head in heads(recorder)] == [(1, 0), (1, 0), (1, 1)]

    def test_a_pod_costs_itself_and_not_its_node(self, recorder: Recorder) -> None:
        snapshot = make_snapshot("a")
        recorder.record(answered(snapshot, "a"))
        one, two = (Pod.from_json(make_pod(name)) for name in ("one", "two"))
        recorder.record(answered(snapshot := snapshot.assume(one, "a"), "a"))
        recorder.record(answered(snapshot := snapshot.assume(two, "a"), "a"))
        info = snapshot.nodes["a"]
        recorder.record(answered(snapshot.changed({"a": NodeInfo(info.node, (two,))}), "a"))
        changes = [payload for kind, payload in frames(recorder) if kind is Kind.DELTA]
        assert [(b'"uid-one"' in data, b'"uid-two"' in data) for data in changes] == [
            (True, False),
            (False, True),
            (False, False),
        ]
        assert not any(b"allocatable" in data for data in changes)

    def test_an_older_snapshot_after_a_newer_one_is_a_change_too(self, recorder: Recorder) -> None:
        old = make_snapshot("a")
        new = old.assume(Pod.from_json(make_pod("one")), "a")
        for snapshot in (old, new, old):
            recorder.record(answered(snapshot, "a"))
        assert [(head.chain, head.position) for head in heads(recorder)] == [(1, 0), (1, 1), (1, 2)]

    def test_snapshots_that_have_nothing_in_common_have_chains_of_their_own(self, recorder: Recorder) -> None:
        live, other, third = make_snapshot("a"), make_snapshot("a", "b"), make_snapshot("c")
        for snapshot in (live, other, live, third, live):
            recorder.record(answered(snapshot, *snapshot.nodes))
        assert [head.chain for head in heads(recorder)] == [1, 2, 1, 3, 1]

    def test_a_new_base_comes_when_changes_have_outgrown_the_old_one(
        self, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal_module, "SHORTEST_CHAIN_BYTES", 300)
        snapshot = make_snapshot("a", "b")
        for number in range(30):
            snapshot = snapshot.changed({"a": NodeInfo(Node.from_json(make_node("a", cpu=str(number))))})
            recorder.record(answered(snapshot, "a"))
            recorder._journal.join(SHORT)
        places = [(head.chain, head.position) for head in heads(recorder)]
        assert len({chain for chain, _ in places}) > 2
        assert max(position for _, position in places) < 15

    def test_many_changed_nodes_are_a_new_bases_work(self, recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal_module, "_MANY", 1)
        snapshot = make_snapshot("a", "b")
        recorder.record(answered(snapshot, "a"))
        changed = {name: NodeInfo(Node.from_json(make_node(name, cpu="9"))) for name in "ab"}
        recorder.record(answered(snapshot.changed(changed), "a"))
        assert [(head.chain, head.position) for head in heads(recorder)] == [(1, 0), (2, 0)]

    def test_what_lies_too_far_behind_to_be_told_is_compared(self, recorder: Recorder) -> None:
        first = snapshot = make_snapshot("a", "b")
        recorder.record(answered(first, "a"))
        for _ in range(5000):
            snapshot = snapshot.changed({"a": snapshot.nodes["a"]})
        recorder.record(answered(snapshot.changed({"b": None}), "a"))
        change = next(payload for kind, payload in frames(recorder) if kind is Kind.DELTA)
        assert b'{"b":null}' in change


class TestOutcomes:
    @pytest.mark.parametrize(("node", "best"), [("ccc", True), ("a", False), ("unknown", None)])
    def test_a_outcome_says_whether_the_node_was_the_best(
        self, recorder: Recorder, node: str, best: bool | None
    ) -> None:
        recorder.record(answered(make_snapshot("a", "bb", "ccc"), "ccc", "a", "bb"))
        assert recorder.awaits("uid-asked")
        place(recorder, "asked", node)
        assert not recorder.awaits("uid-asked")
        assert outcomes(recorder) == [("uid-asked", node, best)]

    @pytest.mark.parametrize(("node", "best"), [("ccc", True), ("a", False), ("unknown", None)])
    def test_it_says_so_long_afterwards(self, recorder: Recorder, node: str, best: bool | None) -> None:
        snapshot = make_snapshot("a", "bb", "ccc")
        recorder.record(answered(snapshot, "ccc", "a", "bb"))
        for number in range(40):
            recorder.record(
                entry(f"other-{number}", best_nodes=Best(names_of(snapshot.table), np.array([0]), np.array([True])))
            )
        recorder.shipper._keep_house(0)
        place(recorder, "asked", node)
        assert outcomes(recorder) == [("uid-asked", node, best)]

    def test_after_a_filter_alone_every_feasible_node_is_the_best(self, recorder: Recorder) -> None:
        recorder.record(answered(make_snapshot("a", "bb"), "a", verb="filter"))
        place(recorder, "asked", "a")
        place(recorder, "asked", "bb")
        assert outcomes(recorder) == [("uid-asked", "a", True), ("uid-asked", "bb", None)]

    def test_of_a_pod_that_nobody_here_answered_about_nothing_is_known(self, recorder: Recorder) -> None:
        place(recorder, "stranger", "a")
        assert outcomes(recorder) == [("uid-stranger", "a", None)]

    def test_a_preempted_pod_is_written_with_whom_it_had_to_go_for(self, recorder: Recorder) -> None:
        important = Preemptor("uid-vip", "default", "vip", "6f0b2f6c-0000-4000-8000-000000000001")
        recorder.expect_preemption(["uid-a", "uid-b"], important)
        recorder.record_outcome(outcome_of("a", "n1", AT, kind="preempted"))
        recorder.record_outcome(outcome_of("b", "n1", AT, kind="deleted"))
        recorder.record_outcome(outcome_of("stranger", "n1", AT, kind="preempted"))
        found = [read_outcome(payload) for kind, payload in frames(recorder) if kind is Kind.OUTCOME]
        named = [(each.preemptor_uid, each.preemptor_name, each.decision) for each in found]
        assert named == [("uid-vip", "vip", important.decision), ("", "", ""), ("", "", "")]

    def test_a_record_of_an_older_version_says_that_the_pod_was_bound(self) -> None:
        old = msgspec.msgpack.encode(["u", "default", "web", "n1", AT, True])
        assert read_outcome(old) == Outcome(
            pod_uid="u", pod_namespace="default", pod_name="web", node_name="n1", at=AT, best=True, kind="bound"
        )

    def test_a_record_that_says_something_else_is_none(self) -> None:
        with pytest.raises(ValueError, match="eaten"):
            read_outcome(outcome_of("a", "n1", AT, kind="eaten").encode())

    def test_shadow_answers_say_nothing_of_what_was_best(self, recorder: Recorder) -> None:
        made = answered(make_snapshot("a"), "a")
        recorder.record(msgspec.structs.replace(made, mode="shadow"))
        assert not recorder.awaits("uid-asked")


def place(recorder: Recorder, name: str, node: str) -> None:
    recorder.record_outcome(outcome_of(name, node, AT))


def outcomes(recorder: Recorder) -> list[tuple[str, str, bool | None]]:
    found = [
        msgspec.msgpack.decode(payload, type=Outcome) for kind, payload in frames(recorder) if kind is Kind.OUTCOME
    ]
    return [(outcome.pod_uid, outcome.node_name, outcome.best) for outcome in found]


class TestFull:
    def test_what_is_lost_is_counted_and_said_once_there_is_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("scheduler.decisions.recorder._FULL_SECONDS", 0.0)
        recorder = make_recorder(tmp_path, max_bytes=2000)
        before = lost()
        for _ in range(10):
            recorder.record(entry(body=bytes(400)))
        kept = len(heads(recorder))
        assert 2 <= kept < 10
        assert lost() - before == 10 - kept
        recorder.write_gap()
        recorder.write_gap()
        assert gaps(recorder) == [(kept + 1, 10)]
        recorder.spool._max_bytes = PLENTY
        recorder.record(entry())
        assert [head.sequence for head in heads(recorder)] == [*range(1, kept + 1), 11]
        recorder.spool.close()

    def test_the_gap_stands_before_the_next_decision(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scheduler.decisions.recorder._FULL_SECONDS", 0.0)
        recorder = make_recorder(tmp_path, max_bytes=10)
        for _ in range(3):
            recorder.record(entry())
        recorder.write_gap()
        assert frames(recorder) == []
        recorder.spool._max_bytes = PLENTY
        recorder.record(entry())
        assert [kind for kind, _ in frames(recorder)] == [Kind.GAP, Kind.DECISION]
        assert (gaps(recorder), [head.sequence for head in heads(recorder)]) == ([(1, 3)], [4])
        recorder.spool.close()

    def test_a_moment_after_it_was_full_nothing_is_tried(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("scheduler.decisions.recorder._FULL_SECONDS", 3600.0)
        recorder = make_recorder(tmp_path, max_bytes=10)
        snapshot = make_snapshot("a")
        for _ in range(5):
            recorder.record(answered(snapshot, "a"))
        assert recorder._journal._last_chain == 1
        recorder.spool.close()

    def test_refuse_gives_no_answer_and_leaves_no_gap(self, tmp_path: Path) -> None:
        recorder = make_recorder(tmp_path, max_bytes=300, when_full="refuse")
        recorder.record(entry())
        before = lost()
        for _ in range(3):
            with pytest.raises(SpoolFullError):
                recorder.record(entry(body=bytes(500)))
        recorder.spool._max_bytes = PLENTY
        recorder._full_until = 0
        recorder.record(entry())
        assert [head.sequence for head in heads(recorder)] == [1, 2]
        assert (gaps(recorder), lost() - before) == ([], 0)
        recorder.spool.close()

    def test_a_snapshot_that_finds_no_room_is_tried_again_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorder = make_recorder(tmp_path)
        made = answered(make_snapshot("a"), "a")
        with monkeypatch.context() as patch:
            patch.setattr(journal_module, "_SHARE", 0.0)
            recorder.record(made)
            recorder._journal.join(SHORT)
        recorder.record(made)
        monkeypatch.setattr(journal_module, "_AGAIN_SECONDS", 0.0)
        recorder.record(made)
        assert [head.chain for head in heads(recorder)][1:] == [0, 2]
        recorder.spool.close()

    def test_a_snapshot_that_cannot_be_written_is_referred_to_by_no_decision_and_tried_again_later(
        self, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def without_memory(*_: Any) -> Iterator[bytes]:
            raise MemoryError

        with monkeypatch.context() as patched:
            patched.setattr(journal_module, "whole", without_memory)
            snapshot = make_snapshot("n1")
            recorder.record(answered(snapshot, "n1"))
            recorder._journal.join(SHORT)
            recorder.record(answered(snapshot, "n1"))
        assert caplog.messages == ["a Snapshot can't be written, Decisions on it can't be replayed"]
        monkeypatch.setattr(journal_module, "_AGAIN_SECONDS", 0.0)
        recorder.record(answered(snapshot, "n1"))
        assert [head.chain for head in heads(recorder)][1:] == [0, 2]

    def test_outcomes_that_find_no_room_are_written_once_there_is_room(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        recorder = make_recorder(tmp_path, max_bytes=10)
        place(recorder, "web", "a")
        recorder.record_outcome(outcome_of("cart", "b", AT, kind="deleted"))
        assert "can't be recorded" in caplog.text
        recorder._mend()
        assert outcomes(recorder) == []
        recorder.spool._max_bytes = PLENTY
        recorder._mend()
        recorder._mend()
        assert outcomes(recorder) == [("uid-web", "a", None), ("uid-cart", "b", None)]
        recorder.spool._max_bytes = 10
        place(recorder, "late", "a")
        assert caplog.text.count("outcomes of Pods can't be recorded") == 2
        recorder.spool.close()


def gaps(recorder: Recorder) -> list[tuple[int, int]]:
    found = [msgspec.msgpack.decode(payload, type=Gap) for kind, payload in frames(recorder) if kind is Kind.GAP]
    return [(gap.first, gap.last) for gap in found]


class TestStart:
    def test_without_a_place_for_the_spool_decisions_are_lost_and_counted_until_there_is_one(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "spool").write_text("a file where the folder should be")
        stream: Any = MemoryStream()
        recorder = Recorder(
            root=tmp_path / "spool", writer="w", stream=stream, max_bytes=PLENTY, checkpoints=lambda _writers: {}
        )
        recorder._open()
        recorder.record(entry())
        assert "the spool can't be created" in caplog.text
        (tmp_path / "spool").unlink()
        recorder._mend()
        recorder._full_until = 0
        recorder.record(entry())
        assert (gaps(recorder), [head.sequence for head in heads(recorder)]) == ([(1, 1)], [2])
        recorder.stop(0)

    @pytest.mark.parametrize("is_at_start", [True, False])
    def test_a_spool_without_a_place_is_said_once_with_the_place_and_what_to_do(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, is_at_start: bool
    ) -> None:
        root = tmp_path / "spool"
        stream: Any = MemoryStream()
        recorder = Recorder(root=root, writer="w", stream=stream, max_bytes=PLENTY, checkpoints=lambda _: {})
        if not is_at_start:
            recorder._open()
            shutil.rmtree(root)
        root.write_text("a file where the folder should be")
        before = lost()
        for _ in range(5):
            recorder._mend()
            recorder.record(entry())
        said = [each.getMessage() for each in caplog.records if "BERTH_STATE_DIR" in each.getMessage()]
        assert ["spool can't be created in" in each for each in said] == [True, False]
        assert all(str(root) in each for each in said)
        assert lost() - before == 5
        monkeypatch.setattr(trouble, "REMIND_SECONDS", 0.0)
        recorder._mend()
        assert "Decisions are lost from now on (5 so far)" in caplog.messages[-1]
        root.unlink()
        recorder._mend()
        assert "5 Decisions were lost because the spool had no room" in caplog.text
        recorder.stop(0)

    def test_a_folder_of_another_writer_is_left_alone(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        first = make_recorder(tmp_path)
        second = Recorder(
            root=tmp_path, writer="extender-1", stream=first.shipper._stream, max_bytes=PLENTY, checkpoints=lambda _: {}
        )
        second._open()
        assert "is another writer's" in caplog.text
        first.record(entry())
        first.spool.close()
        second._open()
        assert not second.spool.is_open


class TestStop:
    def test_the_end_is_written_and_all_is_shipped(self, tmp_path: Path) -> None:
        stream: Any = MemoryStream()
        recorder = Recorder(root=tmp_path, writer="w", stream=stream, max_bytes=PLENTY, checkpoints=lambda _writers: {})
        recorder.start()
        for _ in range(900):
            recorder.record(entry())
        recorder.record(answered(make_snapshot("a"), "a"))
        recorder.stop()
        shipped = [found for found in stream.entries.values() if found.kind == Kind.DECISION]
        assert len(shipped) == 901
        last = list(stream.entries.values())[-1]
        assert msgspec.msgpack.decode(last.data, type=End).decisions == 901

    def test_what_is_written_while_the_thread_looks_for_the_last_time_is_shipped_too(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        recorder = make_recorder(tmp_path)
        step = recorder.shipper.step

        def step_beside_a_stop() -> bool:
            moved = step()
            monkeypatch.setattr(recorder.shipper, "step", step)
            recorder.record(entry())
            recorder.shipper.stop(60)
            return moved

        monkeypatch.setattr(recorder.shipper, "step", step_beside_a_stop)
        recorder.shipper._run()
        assert recorder.depth.records == 0

    def test_what_there_is_no_time_to_ship_is_left_for_the_next_process(self, tmp_path: Path) -> None:
        recorder = make_recorder(tmp_path)
        recorder.record(entry())
        recorder.shipper.stop(0)
        recorder.shipper._run()
        assert recorder.depth.records == 1

    def test_what_cannot_be_shipped_is_left_for_the_next_process(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        recorder = make_recorder(tmp_path)
        recorder.shipper._stream.away = True  # type: ignore[attr-defined]
        recorder.shipper.start()
        for _ in range(300):
            recorder.record(entry())
        recorder.stop(timeout_seconds=1)
        assert "301 records wait on disk" in caplog.text
