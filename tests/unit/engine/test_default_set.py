"""The rule set of Pods that no Assignment takes."""

from datetime import UTC, datetime

from policies.engine.decision import decide
from policies.engine.default_set import FILTERS, SCORES, default_rule_set
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.scores.registry import BUILTIN_SCORES
from tests.builders import make_node, make_pod


def test_refuses_a_node_without_room_and_prefers_the_emptiest() -> None:
    nodes = [make_node("small", cpu="1"), make_node("wide", cpu="8"), make_node("wider", cpu="16")]
    snapshot = Snapshot.of(Node.from_json(node) for node in nodes)
    pod = Pod.from_json(make_pod(requests={"cpu": "2"}))
    cycle = Cycle(pod=pod, snapshot=snapshot, now=datetime(2026, 1, 1, tzinfo=UTC))
    answer = decide(default_rule_set(), cycle, snapshot.table.all_rows())
    assert [name for name, _ in answer.refused()] == ["small"]
    assert answer.best == "wider"


def test_is_made_of_built_in_rules() -> None:
    assert set(FILTERS) <= set(BUILTIN_FILTERS)
    assert set(SCORES) <= set(BUILTIN_SCORES)
