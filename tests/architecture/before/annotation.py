"""Tried on `457d843` and the commit before: an annotation of 256 KiB isn't handed to CEL for each node."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies.engine.cel.language import Program
from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from tests.builders import make_node, make_pod, make_rule_set

LARGEST = "x" * 262_144
RULE = {
    "name": "joined",
    "expression": "!pod.metadata.annotations.notes.contains(node.metadata.name)",
    "reason": "no",
}


def test_a_large_annotation_is_not_evaluated_for_each_of_fifty_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    run = Program.run

    def counting(self: Program, data: Any) -> object:
        sizes.append(len(repr(data)))
        return run(self, data)

    monkeypatch.setattr(Program, "run", counting)
    pod = make_pod()
    pod["metadata"]["annotations"] = {"notes": LARGEST}
    snapshot = Snapshot.of([Node.from_json(make_node(f"n{number}")) for number in range(50)])
    rule_set = CompiledRuleSet(make_rule_set(filters=[RULE]))
    cycle = Cycle(pod=Pod.from_json(pod), snapshot=snapshot, now=datetime(2026, 1, 1, tzinfo=UTC))
    decide(rule_set, cycle, snapshot.table.all_rows())

    assert sum(sizes) < len(LARGEST)
