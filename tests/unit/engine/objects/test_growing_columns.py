"""While a thread decides by one Snapshot, another one may meet new values in the next: the values of both are in one list."""

from collections.abc import Callable
from typing import Any

import pytest

from policies.engine.cel import Expression, Result, expressions
from policies.engine.filters import pod_topology_spread
from policies.engine.objects.columns import label
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import _Coding
from policies.engine.rule import Cycle
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import NOW, ZONE, refused, snapshot_of

SPREAD = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "a"}},
}


def zoned(name: str, zone: str) -> dict[str, Any]:
    return make_node(name, labels={ZONE: zone} if zone else {})


def followed(snapshot: Snapshot, name: str, zone: str) -> Snapshot:
    """Return the next Snapshot, in which a node has another zone."""
    return snapshot.changed({name: NodeInfo(Node.from_json(zoned(name, zone)))})


def values(expression: Expression, snapshot: Snapshot) -> list[Any]:
    cycle = Cycle(pod=Pod.from_json(make_pod(labels={"app": "a"})), snapshot=snapshot, now=NOW)
    return expression.evaluate(cycle, cycle.table.all_rows()).listed()


def interrupted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, act: Callable[[], object]) -> None:
    """Let another thread's act come right after the first call of a function."""
    real, acts = getattr(module, name), [act]

    def call(*arguments: Any) -> Any:
        found = real(*arguments)
        if acts:
            acts.pop()()
        return found

    monkeypatch.setattr(module, name, call)


def test_an_expression_reads_a_value_that_came_while_its_column_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    expression = Expression(f"node.metadata.labels['{ZONE}'] == 'z3'", Result.BOOLEAN)
    now = snapshot_of([zoned("n1", "z1"), zoned("n2", "z2")])
    later = followed(now, "n2", "z3")
    interrupted(monkeypatch, expressions, "_typed", lambda: values(expression, later))
    assert values(expression, now) == [False, False]
    assert values(expression, later) == [False, True]


@pytest.mark.parametrize("zone", ["z3", ""], ids=["a new zone", "no zone"])
def test_pods_are_counted_by_domain_while_another_domain_comes(monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    expression = Expression(f"topology.count('{ZONE}', {{'app': 'a'}})", Result.NUMBER)
    pods = [make_pod("p1", uid="u1", labels={"app": "a"}, nodeName="n1")]
    now = snapshot_of([zoned("n1", "z1"), zoned("n2", "z2")], pods)
    later = followed(now, "n2", zone)
    interrupted(monkeypatch, expressions, "sums_by", lambda: label(later.table, ZONE))
    assert values(expression, now) == [1, 0]
    assert values(expression, later) == [1, 0]


def test_the_skew_is_measured_while_another_domain_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    pods = [make_pod("p1", uid="u1", labels={"app": "a"}, nodeName="n1")]
    now = snapshot_of([zoned("n1", "z1"), zoned("n2", "z2")], pods)
    later = followed(now, "n2", "z3")
    interrupted(monkeypatch, pod_topology_spread, "sums_by", lambda: label(later.table, ZONE))
    asking = make_pod(labels={"app": "a"}, topologySpreadConstraints=[SPREAD])
    assert refused("EvenPodsSpread", asking, now) == {"n1"}


def test_a_code_is_known_only_once_its_value_is_there() -> None:
    coding = _Coding()

    class Watched(dict[Any, int]):
        def __setitem__(self, token: Any, code: int) -> None:
            assert coding.values[code] == token
            super().__setitem__(token, code)

    coding.by_token = Watched()
    assert [coding.code(text, text) for text in ("a", "b", "a")] == [0, 1, 0]
