"""Which Revision filtered a Pod, so that the same one scores it; and that one of the past is let go."""

import gc
import threading
import weakref
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from policies.engine.decision import CompiledRevision, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import Revision, encode
from scheduler.serving import revisions
from scheduler.serving.revisions import PIN_SECONDS, Pins, RevisionHolder
from tests.builders import make_assignment, make_node, make_pod, make_rule_set


def revision(number: int) -> CompiledRevision:
    return CompiledRevision(Revision(number=number))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(revisions.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Nothing may wait for the garbage collector: the extender's looks at what lives long hardly ever."""
    gc.disable()
    yield
    gc.enable()


def test_a_fault_with_one_revision_does_not_end_the_look_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks, is_looked_at_again = count(), threading.Event()

    def look(_: RevisionHolder) -> None:
        if next(looks) < 2:
            message = "a column of this Revision"
            raise KeyError(message)
        is_looked_at_again.set()

    monkeypatch.setattr(RevisionHolder, "poll", look)
    holder = RevisionHolder(path=tmp_path / "revision.json", poll_seconds=0.01)
    holder.start()
    assert is_looked_at_again.wait(10)
    holder.stop()
    assert caplog.messages == ["a Revision can't be taken up, there is no Revision to serve yet"]


@pytest.mark.parametrize("fails", ["prepare", "on_change"])
def test_one_whose_taking_up_fails_is_not_taken_up_at_each_look_and_the_next_one_is_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    newest, looks, taken, is_next_taken = [1], count(), [], threading.Event()

    def look(_: RevisionHolder) -> tuple[int, str, datetime]:
        if next(looks) == 20:
            newest.append(2)
        return newest[-1], "", datetime.now(UTC)

    def fail(compiled: CompiledRevision) -> None:
        taken.append(compiled.number)
        if compiled.number == 2:
            is_next_taken.set()
        message = "a column of this Revision"
        raise KeyError(message)

    monkeypatch.setattr(RevisionHolder, "_newest", look)
    monkeypatch.setattr(
        revisions, "stored_revision", lambda number, _: SimpleNamespace(revision=Revision(number=number))
    )
    at: Any = {fails: fail}
    holder = RevisionHolder(path=tmp_path / "revision.json", poll_seconds=0.01, **at)
    holder.start()
    assert is_next_taken.wait(10)
    assert next(looks) >= 20
    holder.stop()
    assert taken == [1, 2]
    assert holder.reachable


def test_a_fault_with_the_revision_on_disk_does_not_end_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_looked_at = threading.Event()

    def fail(_: CompiledRevision) -> None:
        message = "a column of this Revision"
        raise KeyError(message)

    (tmp_path / "revision.json").write_bytes(encode(Revision(number=1)))
    monkeypatch.setattr(RevisionHolder, "poll", lambda _: is_looked_at.set())
    holder = RevisionHolder(path=tmp_path / "revision.json", poll_seconds=0.01, prepare=fail)
    holder.start()
    assert is_looked_at.wait(10)
    holder.stop()


class TestPins:
    def test_a_pod_keeps_the_revision_that_filtered_it_last(self) -> None:
        pins, first, second = Pins(), revision(1), revision(2)
        pins.pin("a", first)
        pins.pin("b", first)
        pins.pin("a", second)
        assert (pins.of("a"), pins.of("b"), pins.of("c")) == (second, first, None)

    def test_a_pin_ends_after_a_minute(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [1000.0]
        monkeypatch.setattr(revisions.time, "monotonic", lambda: now[0])
        pins, first = Pins(), revision(1)
        pins.pin("a", first)
        now[0] += PIN_SECONDS
        assert pins.of("a") is first
        now[0] += 0.1
        assert pins.of("a") is None

    def test_the_pod_pinned_longest_ago_is_given_up_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(revisions, "_MAX_PINS", 2)
        pins, first = Pins(), revision(1)
        for uid in ("a", "b", "a", "c"):
            pins.pin(uid, first)
        assert [pins.of(uid) for uid in ("a", "b", "c")] == [first, None, first]

    def test_threads_that_share_them_get_the_revisions_that_they_pinned(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(revisions, "_MAX_PINS", 50)
        pins, known = Pins(), [revision(number) for number in range(4)]
        wrong: list[str] = []

        def work(number: int) -> None:
            for step in range(300):
                uid = f"{number}-{step}"
                pins.pin(uid, known[number])
                if pins.of(uid) not in {known[number], None}:
                    wrong.append(uid)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


class TestWhatAPinKeeps:
    pytestmark = pytest.mark.usefixtures("without_collector")

    def test_a_revision_goes_with_its_last_pin_though_no_pod_comes(self, clock: list[float]) -> None:
        pins, old = Pins(), revision(1)
        pins.pin("a", old)
        clock[0] += 30
        pins.pin("b", old)
        seen = weakref.ref(old)
        del old

        clock[0] += 31
        pins.drop_old()
        assert len(pins) == 1
        assert seen() is not None

        clock[0] += 30
        pins.drop_old()
        assert len(pins) == 0
        assert seen() is None

    def test_a_revision_goes_with_its_last_pin_when_the_next_pod_comes(self, clock: list[float]) -> None:
        pins, old, new = Pins(), revision(1), revision(2)
        pins.pin("a", old)
        seen = weakref.ref(old)
        del old

        clock[0] += PIN_SECONDS + 1
        pins.pin("b", new)

        assert seen() is None
        assert pins.of("b") is new

    def test_a_pod_that_comes_again_keeps_its_pin_and_those_before_it_end(self, clock: list[float]) -> None:
        pins, first = Pins(), revision(1)
        pins.pin("a", first)
        pins.pin("b", first)
        clock[0] += 40
        pins.pin("a", first)
        clock[0] += 40
        pins.drop_old()
        assert [pins.of(uid) for uid in ("a", "b")] == [first, None]
        assert len(pins) == 1

    def test_forty_publishes_leave_as_many_revisions_as_a_minute_has(self, clock: list[float]) -> None:
        pins, alive = Pins(), []
        for number in range(40):
            made = revision(number)
            alive.append(weakref.ref(made))
            for pod in range(5):
                pins.pin(f"{number}-{pod}", made)
            clock[0] += 10
        del made
        pins.drop_old()
        assert [number for number, seen in enumerate(alive) if seen() is not None] == [34, 35, 36, 37, 38, 39]


class TestWhatDecidingLeavesBehind:
    """A Snapshot lives longer than the Revisions by which is decided on it."""

    pytestmark = pytest.mark.usefixtures("without_collector")
    SPEC = {
        "filters": [
            {"builtin": "PodFitsResources"},
            {"builtin": "MatchInterPodAffinity"},
            {"name": "joined", "expression": "node.metadata.name + pod.metadata.name != 'x'", "reason": "no"},
            {"name": "node", "expression": "node.metadata.labels.exists(k, k == 'zone')", "reason": "no"},
            {"name": "count", "expression": "node.count({'app': 'web'}) < 3", "reason": "no"},
        ],
        "scores": [
            {"builtin": "LeastRequestedPriority", "weight": 1},
            {"builtin": "ImageLocalityPriority", "weight": 1},
            {"name": "size", "expression": "size(node.metadata.name)", "bounds": [0, 20]},
        ],
    }

    def decided(self, snapshot: Snapshot) -> list[weakref.ref[object]]:
        """Compile a Revision, decide by it, and return what would have to be gone when nobody holds it."""
        made = CompiledRevision(
            Revision(number=1, rule_sets=[make_rule_set("a", **self.SPEC)], assignments=[make_assignment("a", "a")])
        )
        rule_set = made.rule_sets["a"]
        cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=datetime.now(UTC))
        decide(rule_set, cycle, snapshot.table.all_rows(), whole=True)
        rules = [rule for _, rule in rule_set.filters] + [rule for _, rule in rule_set.scores]
        parts = [
            part
            for rule in rules
            if (expression := getattr(rule, "expression", None))
            for part in expression._pieces._of_node
        ]
        assert parts
        return [weakref.ref(found) for found in (made, rule_set, *rules, *parts)]

    def test_a_revision_and_all_its_rules_are_gone_when_nobody_holds_it(self) -> None:
        snapshot = Snapshot.of(map(Node.from_json, (make_node(f"n{number}") for number in range(3))))
        seen = self.decided(snapshot)
        assert [found() for found in seen if found() is not None] == []

    def test_the_columns_of_a_revision_that_is_gone_serve_the_next_one(self) -> None:
        snapshot = Snapshot.of(map(Node.from_json, (make_node(f"n{number}") for number in range(3))))
        self.decided(snapshot)
        columns = {key: kept.content for key, kept in snapshot.table._kept.items()}
        self.decided(snapshot)
        assert {key: kept.content for key, kept in snapshot.table._kept.items()}.keys() == columns.keys()
        assert all(snapshot.table._kept[key].content is content for key, content in columns.items())
