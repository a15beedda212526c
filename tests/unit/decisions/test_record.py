"""A Decision as it is recorded: columns of bytes that read back as the Answer they were."""

from datetime import UTC, datetime
from hashlib import sha256
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.nodes import as_kube_scheduler_asks
from policies.engine.decision import NOT_EVALUATED, Answer, CompiledRevision, CompiledRuleSet, FilterColumn, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import FilterRule, Revision
from policies.engine.status import PASSED, Code, Status
from scheduler.decisions.columns import Packed, StoredOrder, pack, read_answer, store_answer, store_order
from scheduler.decisions.masking import MASKED, NO_MASKS, Masks
from scheduler.decisions.node_names import names_of
from scheduler.decisions.reading import shown
from scheduler.decisions.record import (
    AS_JSON,
    Entry,
    NodesEntry,
    compressed,
    make_compressor,
    meaning_of,
    payload_of,
    read_body,
    rows_of,
    split,
    store_json,
)
from tests.builders import make_assignment, make_node, make_pod, make_rule_set

AT = datetime(2026, 1, 1, 12, 30, 1, 987654, tzinfo=UTC)
POD = Pod.from_json(make_pod())
NAMES = ("n1", "n22", "n333")

ID = "4e7c2ad0-6c4f-4b0c-8a31-6d6a2b1d7a11"
# SHA-256 of what version 0.1 wrote for the same Decisions.
BYTES_ON_DISK = {
    "answered": "acb8ac0355e2bedc4763fc0dd4622f1df503ef60bb38fae21159d9d3c738e880",
    "passed": "6e52242ac46e337f044364c3e8dcdefc508959b45ddf098d38f1cd239540cf26",
    "error": "30e5ffac8b98436bd2248700d57527d458c612eba65c640c22e9b6904ab81a2d",
}


@pytest.fixture
def snapshot() -> Snapshot:
    return Snapshot.of((Node.from_json(make_node(name)) for name in NAMES), (), {"default": {"team": "web"}})


@pytest.fixture
def rule_set() -> CompiledRuleSet:
    return CompiledRuleSet(
        make_rule_set(
            filters=[
                {"name": "short", "expression": "size(node.metadata.name) < 4", "reason": "too long"},
                {"name": "dry", "expression": "false", "mode": "shadow"},
                {"builtin": "PodFitsResources"},
            ],
            scores=[{"name": "size", "expression": "size(node.metadata.name)", "bounds": [2, 4], "weight": 3}],
        )
    )


@pytest.fixture
def answer(snapshot: Snapshot, rule_set: CompiledRuleSet) -> Answer:
    return decide(rule_set, Cycle(pod=POD, snapshot=snapshot, now=AT), snapshot.table.all_rows())


def same(one: Answer, other: Answer) -> bool:
    return (
        one.names == other.names
        and all(
            (mine.codes == theirs.codes).all()
            and mine.statuses == theirs.statuses
            and mine.faults == theirs.faults
            and (mine.rule.key, mine.rule.mode) == (theirs.rule.key, theirs.rule.mode)
            for mine, theirs in zip(one.filters, other.filters, strict=True)
        )
        and all(
            (mine.raw == theirs.raw).all() and mine.rule.weight == theirs.rule.weight
            for mine, theirs in zip(one.scores, other.scores, strict=True)
        )
        and all(
            getattr(one, column).tolist() == getattr(other, column).tolist()
            for column in ("refusal", "scored", "totals", "points")
        )
        and one.refusals == other.refusals
    )


class TestPack:
    @given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20))
    def test_numbers_read_back_as_they_were_packed(self, numbers: list[int]) -> None:
        packed = pack(np.array(numbers, dtype=np.int64))
        assert packed.numbers().tolist() == numbers

    @pytest.mark.parametrize(
        ("numbers", "width"),
        [([0, 127], 1), ([-128, 5], 1), ([0, 128], 2), ([-129, 0], 2), ([40_000, 0], 4), ([2**40, 1], 8)],
    )
    def test_each_takes_as_few_bytes_as_it_needs(self, numbers: list[int], width: int) -> None:
        assert pack(np.array(numbers, dtype=np.int64)).width == width

    def test_equal_numbers_are_written_once(self) -> None:
        assert pack(np.full(5000, 100)) == Packed(1, 5000, b"d")
        assert pack(np.full(5000, 100)).numbers().tolist() == [100] * 5000


class TestOrder:
    @given(st.lists(st.integers(-1, 300) | st.integers(-1, 70_000), max_size=20))
    def test_rows_read_back_in_the_order_in_which_they_were_stored(self, rows: list[int]) -> None:
        stored = store_order(np.array(rows, dtype=np.intp), [f"n{row}" for row in rows])
        assert stored.rows().tolist() == rows
        assert stored.unknown == ["n-1"] * rows.count(-1)

    @given(st.lists(st.tuples(st.integers(-1, 70_000), st.integers(1, 300)), max_size=20))
    def test_rows_in_runs_read_back_as_they_were_stored(self, runs: list[tuple[int, int]]) -> None:
        rows = np.array([row for first, length in runs for row in range(first, first + length)], dtype=np.int32)
        assert store_order(rows, [""] * len(rows)).rows().tolist() == rows.tolist()

    @pytest.mark.parametrize("size", [0, 1, 3, 2_000])
    def test_all_rows_from_the_first_on_take_nothing(self, size: int) -> None:
        stored = store_order(np.arange(size), [""] * size)
        assert stored.rows().tolist() == [*range(size)]
        assert (stored.differences, stored.runs) == (None, None)

    @pytest.mark.parametrize("rows", [[1], [0, 0], [0, 1, 1], [1, 0], [0, 2], [-1], [1, 2, 3, 4], [0, 1, 2, 3, 2, 3]])
    @pytest.mark.parametrize("more", [0, 2_000])
    def test_others_are_not_taken_for_these(self, rows: list[int], more: int) -> None:
        rows = [*rows, *range(rows[-1] + 1, rows[-1] + 1 + more)]
        stored = store_order(np.array(rows, dtype=np.intp), ["a"] * len(rows))
        assert (stored.differences, stored.runs) != (None, None)
        assert stored.rows().tolist() == rows

    @pytest.mark.parametrize(("last", "width"), [(127, 1), (128, 2), (32_767, 2), (32_768, 4)])
    def test_of_few_rows_each_takes_what_the_highest_needs(self, last: int, width: int) -> None:
        stored = store_order(np.array([last, 0, last]), [""] * 3)
        assert stored.differences is not None
        assert (stored.differences.width, len(stored.differences.data)) == (width, 3 * width)
        assert stored.rows().tolist() == [last, 0, last]

    def test_the_runs_that_kube_scheduler_sends_take_less_than_a_byte_a_node(self) -> None:
        order = as_kube_scheduler_asks(range(5_000), Random(1))
        stored = store_order(np.array(order), [""] * 5_000)
        assert stored.rows().tolist() == order
        assert len(msgspec.msgpack.encode(stored)) < len(order)

    def test_an_order_that_was_written_by_differences_is_read(self) -> None:
        stored = msgspec.msgpack.decode(msgspec.msgpack.encode((3, (1, 3, b"\x01\xff\x02"), [])), type=StoredOrder)
        assert stored.rows().tolist() == [1, 0, 2]

    def test_unknown_names_are_listed(self) -> None:
        stored = store_order(np.array([1, -1, 0, -1]), ["b", "x", "a", "y"])
        assert (stored.unknown, stored.rows().tolist()) == (["x", "y"], [1, -1, 0, -1])


class TestAnswer:
    def test_reads_back_as_it_was(self, answer: Answer) -> None:
        assert same(read_answer(store_answer(answer), answer.names), answer)

    def test_what_refuses_nobody_takes_nothing(self, answer: Answer) -> None:
        assert [column.verdicts is None for column in store_answer(answer).filters] == [False, False, True]

    @pytest.mark.parametrize(("filtering", "scoring", "whole"), [(1, 0, 0), (0, 1, 0), (1, 1, 1), (0, 0, 0)])
    def test_any_part_of_a_decision_reads_back(
        self, snapshot: Snapshot, rule_set: CompiledRuleSet, filtering: bool, scoring: bool, whole: bool
    ) -> None:
        cycle = Cycle(pod=POD, snapshot=snapshot, now=AT)
        made = decide(rule_set, cycle, snapshot.table.all_rows(), filtering=filtering, scoring=scoring, whole=whole)
        assert same(read_answer(store_answer(made), made.names), made)

    @given(st.lists(st.tuples(st.booleans(), st.lists(st.integers(-1, 1), min_size=5, max_size=5)), max_size=6))
    def test_what_any_rules_refused_one_after_the_other_reads_back(self, said: list[tuple[bool, list[int]]]) -> None:
        made = Answer(list("abcde"))
        for number, (is_shadow, codes) in enumerate(said):
            rule = FilterRule(name=f"rule-{number}", mode="shadow" if is_shadow else "enforce")
            statuses = [Status(Code.UNSCHEDULABLE, f"{number}, {which}") for which in range(2)]
            column = np.where(made.refusal == PASSED, np.array(codes, dtype=np.int32), NOT_EVALUATED)
            made.filters.append(FilterColumn(rule, column, statuses))
            if not is_shadow and (newly := column >= 0).any():
                made.refusal[newly] = column[newly] + len(made.refusals)
                made.refusals += statuses
        assert same(read_answer(store_answer(made), made.names), made)

    def test_no_node_at_all_reads_back(self, snapshot: Snapshot, rule_set: CompiledRuleSet) -> None:
        made = decide(rule_set, Cycle(pod=POD, snapshot=snapshot, now=AT), np.empty(0, dtype=np.intp))
        assert same(read_answer(store_answer(made), []), made)

    def test_the_meaning_differs_with_anything_that_was_said(self, snapshot: Snapshot, answer: Answer) -> None:
        names, rows = names_of(snapshot.table), snapshot.table.all_rows()
        meanings = {meaning_of("filter", names, rows, [], answer), meaning_of("prioritize", names, rows, [], answer)}
        meanings.add(meaning_of("filter", names, rows[::-1], [], answer))
        meanings.add(meaning_of("filter", names, rows, ["x"], answer))
        meanings.add(meaning_of("filter", names, rows, [], None))
        answer.points = answer.points + 1
        meanings.add(meaning_of("filter", names, rows, [], answer))
        answer.refusal = answer.refusal.copy()
        answer.refusal[0] = 0
        meanings.add(meaning_of("filter", names, rows, [], answer))
        renamed = Snapshot.of(Node.from_json(make_node(name)) for name in ("n1", "n22", "n334"))
        meanings.add(meaning_of("filter", names_of(renamed.table), rows, [], answer))
        assert len(meanings) == 8


class TestEntry:
    def stored(self, masks: Masks = NO_MASKS, **fields: Any) -> tuple[Any, Any]:
        kind = NodesEntry if "snapshot" in fields else Entry
        encoded = kind(**{"pod": POD, "now": AT} | fields).encode(masks)
        head = msgspec.structs.replace(encoded.head, sequence=7, names_number=1, chain=2, position=3)
        payload = b"".join(payload_of(head.encode(), encoded.body))
        read, body = split(compressed(payload, make_compressor()))
        return read, read_body(body)

    def test_names_no_best_by_scores_that_dont_count(self, snapshot: Snapshot) -> None:
        scores = [{"name": "tried", "expression": "1", "mode": "shadow"}]
        tried = CompiledRuleSet(make_rule_set(scores=scores))
        rows, cycle = snapshot.table.all_rows(), Cycle(pod=POD, snapshot=snapshot, now=AT)
        head, _ = self.stored(
            verb="prioritize", revision=CompiledRevision(Revision(number=4)), assignment=make_assignment(), rule_set=tried,
            snapshot=snapshot, names=list(NAMES), answer=decide(tried, cycle, rows),
        )  # fmt: skip
        assert (head.feasible, head.best) == (3, "")

    def test_holds_all_that_a_replay_needs(self, snapshot: Snapshot, rule_set: CompiledRuleSet, answer: Answer) -> None:
        promised = Pod.from_json(make_pod("promised"))
        head, body = self.stored(
            verb="filter", revision=CompiledRevision(Revision(number=4)), assignment=make_assignment(),
            rule_set=rule_set, snapshot=snapshot, names=list(NAMES), answer=answer, assumed=[(promised, "n22")],
            notes={"victims": ["a"]}, duration_microseconds=12,
        )  # fmt: skip
        assert (head.at, head.sequence, head.verb, head.mode) == (AT, 7, "filter", "enforce")
        assert (head.names_number, head.chain, head.position) == (1, 2, 3)
        assert (head.revision, head.assignment, head.rule_set, head.rule_set_version) == (4, "all-web", "web", 0)
        assert (head.nodes, head.feasible, head.best, head.top_reason) == (3, 2, "n22", "too long")
        assert shown(body, list(NAMES)) == {
            "pod": POD.json,
            "nodes": list(NAMES),
            "filters": [
                {
                    "rule": "short",
                    "mode": "enforce",
                    "statuses": [
                        {"code": "UnschedulableAndUnresolvable", "reason": "too long"},
                        {"code": "Error", "reason": "rule short could not be evaluated"},
                    ],
                    "verdicts": [-1, -1, 0],
                },
                {
                    "rule": "dry",
                    "mode": "shadow",
                    "statuses": [
                        {"code": "UnschedulableAndUnresolvable", "reason": "refused by rule dry"},
                        {"code": "Error", "reason": "rule dry could not be evaluated"},
                    ],
                    "verdicts": [0, 0, -2],
                },
                {"rule": "PodFitsResources", "mode": "enforce", "statuses": [], "verdicts": [-1, -1, -2]},
            ],
            "scores": [{"rule": "size", "mode": "enforce", "weight": 3, "raw": [0, 50, None]}],
            "totals": [0, 5, None],
            "assumed": [[promised.json, "n22"]],
            "notes": {"victims": ["a"]},
        }

    def test_of_a_pod_that_nobody_takes_has_the_labels_of_its_namespace(self, snapshot: Snapshot) -> None:
        head, body = self.stored(verb="filter", snapshot=snapshot, names=["n333", "new", "n1"])
        assert (head.nodes, head.feasible, head.rule_set) == (3, 3, "")
        assert body.namespace_labels == {"team": "web"}
        assert shown(body, ["n333", "n1"]) == {
            "pod": POD.json, "nodes": ["n333", "n1"], "unknown": ["new"], "filters": [], "scores": [], "totals": [],
        }  # fmt: skip

    def test_of_an_error_is_the_pod_and_the_error(self) -> None:
        head, body = self.stored(verb="filter", error="not yet")
        assert (head.error, head.nodes, body.answer, body.order.size) == ("not yet", 0, None, 0)

    def test_keeps_the_pod_as_it_came(self) -> None:
        _, body = self.stored(verb="filter", pod_json=b'{"metadata": {"name":"web-1"} , "x": 100000000000000000000000}')
        assert body.pod == b'{"metadata": {"name":"web-1"} , "x": 100000000000000000000000}'

    def test_says_what_was_masked_of_the_pod_as_it_came(self) -> None:
        sent = make_pod()
        sent["spec"]["containers"] = [{"name": "main", "env": [{"name": "KEY", "value": "hunter2"}]}]
        given = {"pod": Pod.from_json(sent), "pod_json": msgspec.json.encode(sent)}
        _, body = self.stored(Masks(env=["KEY"]), verb="filter", **given)
        assert b"hunter2" not in body.pod
        assert body.notes == {"masked": ["env KEY"]}

    @pytest.mark.parametrize(("kind", "digest"), sorted(BYTES_ON_DISK.items()))
    def test_is_written_in_the_bytes_that_stored_rows_have(
        self, kind: str, digest: str, snapshot: Snapshot, rule_set: CompiledRuleSet, answer: Answer
    ) -> None:
        entry = {
            "answered": lambda: NodesEntry(
                id=ID, verb="filter", pod=POD, now=AT, revision=CompiledRevision(Revision(number=4)),
                assignment=make_assignment(), rule_set=rule_set, snapshot=snapshot, names=NAMES, answer=answer,
                assumed=[(Pod.from_json(make_pod("promised")), "n22")], notes={"victims": ["a"]},
                duration_microseconds=12,
            ),
            "passed": lambda: NodesEntry(
                id=ID, verb="filter", pod=POD, now=AT, snapshot=snapshot, names=["n333", "new", "n1"]
            ),
            "error": lambda: Entry(id=ID, verb="filter", pod=POD, now=AT, error="not yet"),
        }[kind]()  # fmt: skip
        encoded = entry.encode()
        head = msgspec.structs.replace(encoded.head, sequence=7, names_number=1, chain=2, position=3)
        assert sha256(b"".join(payload_of(head.encode(), encoded.body))).hexdigest() == digest

    def test_one_that_was_written_before_shadows_diverged_is_read(self) -> None:
        head = Entry(id=ID, verb="filter", pod=POD, now=AT).encode().head
        members = msgspec.msgpack.decode(head.encode())
        read, _ = split(b"".join(payload_of(msgspec.msgpack.encode(members[:-1]), b"")))
        assert read == head
        assert read.divergence == ""

    def test_has_an_id_of_its_own_from_the_start(self) -> None:
        ids = {Entry(verb="filter", pod=POD, now=AT).id for _ in range(3)}
        assert len(ids) == 3

    @pytest.mark.parametrize("stored", [b"", AS_JSON, store_json({"nodes": []}), b"\x01broken", b"\x01"])
    def test_what_is_no_body_of_columns_is_said(self, stored: bytes) -> None:
        with pytest.raises(ValueError, match=r"columns|decompressed"):
            read_body(stored)


def test_a_pod_that_comes_again_is_written_as_it_was_and_another_one_is_not() -> None:
    def sent(value: str) -> bytes:
        json = make_pod()
        json["spec"]["containers"] = [{"name": "main", "env": [{"name": "KEY", "value": value}, {"name": "EMPTY"}]}]
        return msgspec.json.encode(json)

    masks = Masks(env=["*"])
    texts = [masks.pod_text(Pod.from_json(msgspec.json.decode(each)), each) for each in map(sent, ["a", "a", "b", ""])]
    assert texts[0] == texts[1] == texts[2] == (sent(MASKED), {"env KEY"})
    assert texts[3] == (sent(""), set())


def test_rows_of_unknown_names_are_minus_one(snapshot: Snapshot) -> None:
    assert rows_of(snapshot.table, ["n22", "x", "n1"]).tolist() == [1, -1, 0]
    assert rows_of(snapshot.table, []).tolist() == []


def test_names_are_worked_out_once_for_tables_with_the_same_nodes(snapshot: Snapshot) -> None:
    names = names_of(snapshot.table)
    later = snapshot.assume(POD, "n1")
    assert names_of(later.table) is names
    assert names_of(later.changed({"n1": None}).table) is not names
    assert names.first(np.array([2, 0, 1])) == "n1"
