"""Nodes, Pods and cycles that expressions are asked about."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from policies.engine.cel import EvaluationFault, Expression, Result, Value
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
SIZED = {"metadata": {"name": "web", "size": 3}}
_LONG = f"[{', '.join(map(str, range(350)))}]"
RUNAWAY = f"{_LONG}.all(a, {_LONG}.all(b, a + b >= 0))"
DEEP = "[1].all(a, [1].all(b, [1].all(c, a + b + c > 0)))"


def node(name: str, labels: Any = None, **spec: Any) -> Node:
    metadata = {"name": name} | ({} if labels is None else {"labels": labels})
    return Node.from_json({"metadata": metadata, "spec": spec, "status": {"allocatable": {"cpu": "2", "pods": "10"}}})


def extended(name: str, /, **extra: Any) -> Node:
    return Node.from_json({"metadata": {"name": name}, "extra": extra})


def pod_on(name: str, node_name: str, *, namespace: str = "default", phase: str = "Running", **labels: str) -> Pod:
    return Pod.from_json(
        {
            "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"nodeName": node_name},
            "status": {"phase": phase},
        }
    )


def cycle_of(
    nodes: Sequence[Node],
    pods: Sequence[Pod] = (),
    pod: dict[str, Any] | None = None,
    params: dict[str, Any] | None = None,
    namespaces: dict[str, dict[str, str]] | None = None,
) -> Cycle:
    asked = Pod.from_json(pod or {"metadata": {"name": "web", "labels": {"app": "x", "team": "a"}}})
    return Cycle(pod=asked, snapshot=Snapshot.of(nodes, pods, namespaces), now=NOW, params=params)


def evaluate(source: str, cycle: Cycle, result: Result = Result.NUMBER) -> list[Value]:
    """Evaluate over all nodes; that each node by itself says the same is checked in passing."""
    expression = Expression(source, result)
    listed = expression.evaluate(cycle, cycle.table.all_rows()).listed()
    assert same(listed, [expression.evaluate_plainly(cycle, row) for row in range(len(listed))])
    return listed


def value_of(source: str, result: Result = Result.NUMBER, **arguments: Any) -> Value:
    return evaluate(source, cycle_of([node("n1")], **arguments), result)[0]


def same(left: Sequence[Value], right: Sequence[Value]) -> bool:
    """Return whether values are the same; of faults only that they are faults."""
    return len(left) == len(right) and all(_same(one, other) for one, other in zip(left, right, strict=True))


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, EvaluationFault) or isinstance(other, EvaluationFault):
        return isinstance(one, EvaluationFault) and isinstance(other, EvaluationFault)
    return type(one) is type(other) and (one == other or (math.isnan(one) and math.isnan(other)))


# Generated expressions. Fields are dynamic, so that types meet at evaluation and faults come up often.
