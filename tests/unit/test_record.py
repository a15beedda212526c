"""A Decision as it is recorded: columns beside the list of nodes."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from policies.engine.cycle import Cycle
from policies.engine.decision import Answer, CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.decisions.record import Record, body_of
from tests.builders import make_node, make_pod, make_rule_set

AT = datetime(2026, 1, 1, tzinfo=UTC)
POD = Pod.from_json(make_pod())


@pytest.fixture
def answer() -> Answer:
    snapshot = Snapshot.of(Node.from_json(make_node(name)) for name in ("n1", "n22", "n333"))
    rule_set = CompiledRuleSet(
        make_rule_set(
            filters=[
                {"name": "short", "expression": "size(node.metadata.name) < 4", "reason": "too long"},
                {"name": "dry", "expression": "false", "mode": "shadow"},
            ],
            scores=[{"name": "size", "expression": "size(node.metadata.name)", "bounds": [2, 4], "weight": 3}],
        )
    )
    return decide(rule_set, Cycle(pod=POD, snapshot=snapshot, now=AT), snapshot.table.all_rows())


class TestBodyOf:
    def test_writes_columns_beside_the_nodes(self, answer: Answer) -> None:
        assert body_of(POD, answer) == {
            "pod": POD.json,
            "nodes": ["n1", "n22", "n333"],
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
            ],
            "scores": [{"rule": "size", "mode": "enforce", "weight": 3, "raw": [0, 50, None]}],
            "totals": [0, 5, None],
        }

    def test_an_answer_without_rules_is_the_nodes(self) -> None:
        assert body_of(POD, Answer(["n1"])) == {
            "pod": POD.json,
            "nodes": ["n1"],
            "filters": [],
            "scores": [],
            "totals": [],
        }


class TestRecord:
    def test_is_json_that_reads_back_equal(self, answer: Answer) -> None:
        members: dict[str, Any] = {"verb": "filter", "pod_namespace": "default", "pod_name": "web", "pod_uid": "u"}
        record = Record(at=AT, revision=3, body=body_of(POD, answer), **members)
        assert msgspec.json.decode(msgspec.json.encode(record), type=Record) == record
        assert record.id != Record(at=AT, revision=3, **members).id
