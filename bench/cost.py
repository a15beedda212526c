"""The estimated cost of expressions, compared with their measured time.

`python -m bench.cost` makes nodes and a Pod that are as full as the estimates assume, no two nodes alike. Each
expression is evaluated once (cold), and again, for other Pods, after a tenth of the nodes changed (warm): the estimate
is for warm evaluations. Refused expressions are measured too, on fewer nodes. All figures are for 5,000 nodes, scaled
from the nodes measured, in milliseconds of one core.

`python -m bench.cost --annotation` evaluates a whole rule set on 5,000 nodes for a Pod with an annotation of 1 character, of 1 KiB and of
256 KiB, the largest that Kubernetes accepts, which is far more than the estimate assumes.
"""

import argparse
import gc
from datetime import UTC, datetime
from statistics import median
from time import thread_time
from typing import Any

from policies.engine.cel.cost import MAX_EXPRESSION_MILLISECONDS, NODES, RENEWED_SHARE
from policies.engine.cel.expressions import Expression, Result
from policies.engine.cel.size_bounds import COUNTS
from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import API_VERSION
from policies.engine.validation import read_rule_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PARAMS = {"names": [f"name-{number}" for number in range(20)], "pattern": "^node-[0-9]+$", "points": {"a": 1, "b": 2}}
_NODES_OF_REFUSED = 50

CORPUS = [
    "size(pod.metadata.name) < 5",
    "pod.spec.containers.all(c, c.image.startsWith('registry.example.org/'))",
    "pod.metadata.labels.exists(k, pod.metadata.labels[k] == 'x')",
    "pod.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    "node.metadata.?labels.team.orValue('') == pod.metadata.labels.team",
    "node.metadata.?labels.team.orValue('') == 'x' || pod.metadata.labels.team == 'y'",
    "usage.free.cpu > 2000",
    "usage.free.cpu - size(pod.metadata.name) * 10 > 0",
    "usage.free.cpu * 100 / usage.allocatable.cpu > 50",
    "double(usage.free.cpu) / double(usage.allocatable.cpu) > 0.5",
    "node.metadata.name.startsWith(pod.metadata.name)",
    "node.metadata.name in params.names",
    "node.metadata.name + pod.metadata.name == 'x'",
    "params.names.exists(n, n == node.metadata.name + pod.metadata.name)",
    "node.metadata.labels[pod.metadata.labels.team] == 'x'",
    "pod.metadata.labels == node.metadata.labels",
    "node.metadata.annotations.a0.contains(pod.metadata.name)",
    "node.metadata.labels.all(k, k != 'x')",
    "node.metadata.labels.exists(k, node.metadata.labels[k] == 'x')",
    "node.spec.taints.exists(t, t.effect == 'NoExecute')",
    "node.spec.taints.all(t, pod.spec.tolerations.exists(o, o.key == t.key))",
    "node.status.conditions.exists(c, c.type == 'Other' && c.status == 'True')",
    "node.status.images.exists(i, i.sizeBytes > 100000000000)",
    "node.status.images.exists(i, i.names.exists(n, n == 'x'))",
    "node.status.images.exists(i, 'x' in i.names)",
    "node.status.images.map(i, i.sizeBytes).size() == 3",
    "pod.spec.containers.exists(c, node.status.images.exists(i, c.image in i.names))",
    "node.metadata.annotations.all(k, pod.metadata.annotations.all(j, k != j))",
    "node.metadata.name.matches('^[a-z]+-[0-9]+$')",
    "node.metadata.name.matches(params.pattern)",
    "node.metadata.name.matches('[a-z]{1,200}')",
    "node.metadata.name.matches('[a-z]{1,1000}')",
    "node.metadata.name.matches('\\\\pL+')",
    "node.status.images.exists(i, i.names.exists(n, n.matches('^[a-z]+/web')))",
    "quantity(node.status.allocatable.memory).isGreaterThan(quantity('16Gi'))",
    "quantity(node.status.allocatable.memory).isGreaterThan(quantity(pod.metadata.annotations.memory))",
    "node.metadata.annotations.a0.split('x').size() > 3",
    "node.metadata.annotations.a0.replace('x', 'yyyyyyyyyy').contains('z')",
    "timestamp(node.metadata.creationTimestamp) < now",
    "node.metadata.labels.map(k, k + 'x').join(',').contains('y')",
    "node == pod",
]


def full_node(number: int) -> Node:
    """Make a node as full as the estimates assume, and different from all others."""
    name = f"node-{number:07d}".ljust(60, "x")
    labels = {f"example.com/label-{i}": f"v{number}-{i}" for i in range(COUNTS["labels"] - 1)}
    images = [
        {"names": [f"registry.example.org/{number}/{i}-{j}".ljust(120, "y") for j in range(5)], "sizeBytes": i}
        for i in range(COUNTS["images"])
    ]
    return Node.from_json(
        {
            "metadata": {
                "name": name,
                "creationTimestamp": "2025-01-01T00:00:00Z",
                "labels": labels | {"team": f"team-{number}"},
                "annotations": {f"a{i}": f"{number}".ljust(1000, "x") for i in range(COUNTS["annotations"])},
            },
            "spec": {
                "taints": [
                    {"key": f"key-{number}-{i}", "value": "v", "effect": "PreferNoSchedule"}
                    for i in range(COUNTS["taints"])
                ]
            },
            "status": {
                "allocatable": {"cpu": f"{number % 997 + 1}", "memory": f"{number % 499 + 1}Gi", "pods": "110"},
                "conditions": [{"type": f"T{number}-{i}", "status": "False"} for i in range(COUNTS["conditions"])],
                "images": images,
            },
        }
    )


def full_pod(number: int) -> Pod:
    """Make a Pod as full as the estimates assume."""
    containers = [{"name": f"c{i}", "image": f"registry.example.org/{number}-{i}"} for i in range(COUNTS["containers"])]
    return Pod.from_json(
        {
            "metadata": {
                "name": f"pod-{number}",
                "labels": {f"l{i}": f"v{number}-{i}" for i in range(COUNTS["labels"] - 1)} | {"team": "team"},
                "annotations": {f"p{i}": "x" * 1000 for i in range(COUNTS["annotations"] - 1)} | {"memory": "8Gi"},
            },
            "spec": {
                "containers": containers,
                "tolerations": [{"key": f"other-{i}", "operator": "Exists"} for i in range(COUNTS["tolerations"])],
            },
        }
    )


def measure(expression: Expression, size: int, rounds: int) -> tuple[float, float]:
    """Return milliseconds for 5,000 nodes: of the first evaluation, and of later ones after a tenth of the nodes changed."""
    snapshot = Snapshot.of([full_node(number) for number in range(size)])
    names = list(snapshot.table.names)
    seconds = []
    changing = int(size * RENEWED_SHARE)
    for number in range(rounds + 1):
        gc.collect()
        cycle = Cycle(pod=full_pod(number), snapshot=snapshot, now=NOW, params=PARAMS)
        rows = snapshot.table.all_rows()
        started = thread_time()
        expression.evaluate(cycle, rows)
        seconds.append(thread_time() - started)
        changes: dict[str, NodeInfo | None] = {}
        for index in range(changing):
            row = (number * changing + index) % size
            other = full_node(size * (number + 1) + row)
            json: dict[str, Any] = {**other.json, "metadata": {**other.json["metadata"], "name": names[row]}}
            changes[names[row]] = NodeInfo(Node.from_json(json))
        snapshot = snapshot.changed(changes)
    of_nodes = expression.reads["node"] or expression.reads["usage"]
    scale = 1000 * (NODES / size if of_nodes else 1)
    return seconds[0] * scale, median(seconds[1:]) * scale


def annotation(rounds: int) -> None:
    """Print the cost of a rule that joins an annotation of the Pod with each node, by the annotation's length."""
    source = "pod.metadata.annotations.notes.indexOf(node.metadata.name) < 0"
    filters = [{"name": "joined", "expression": source, "reason": "no"}]
    document = {"apiVersion": API_VERSION, "kind": "RuleSet", "metadata": {"name": "a"}, "spec": {"filters": filters}}
    rule_set = CompiledRuleSet(read_rule_set(document))
    nodes = [{"metadata": {"name": f"node-{number}"}, "status": {}} for number in range(NODES)]
    snapshot = Snapshot.of([Node.from_json(node) for node in nodes])
    print(f"milliseconds of one core for {NODES:,} nodes, median of {rounds}: {source}")
    for length in (1, 1_024, 262_144):
        pod = Pod.from_json({"metadata": {"name": "p", "annotations": {"notes": "x" * length}}})
        seconds = []
        for _ in range(rounds + 1):
            cycle = Cycle(pod=pod, snapshot=snapshot, now=NOW, params={})
            started = thread_time()
            answer = decide(rule_set, cycle, snapshot.table.all_rows())
            seconds.append(thread_time() - started)
        print(f"{length:>8,} characters {median(seconds[1:]) * 1000:>9,.1f}   {answer.feasible_count:,} nodes pass")


def rank_correlation(pairs: list[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation: 1 if the estimates and the measurements have the same order."""
    first = sorted(range(len(pairs)), key=lambda index: pairs[index][0])
    second = sorted(range(len(pairs)), key=lambda index: pairs[index][1])
    rank = {index: position for position, index in enumerate(second)}
    apart = sum((position - rank[index]) ** 2 for position, index in enumerate(first))
    return 1 - 6 * apart / (len(pairs) * (len(pairs) ** 2 - 1))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--nodes", type=int, default=500, help="nodes to measure on")
    parser.add_argument("--rounds", type=int, default=3, help="warm evaluations of each expression")
    parser.add_argument("--annotation", action="store_true", help="measure a Pod with a large annotation, nothing else")
    asked = parser.parse_args()
    if asked.annotation:
        annotation(asked.rounds)
        return
    print(f"milliseconds for {NODES:,} nodes as full as can be; limit {MAX_EXPRESSION_MILLISECONDS} ms")
    print(f"{'estimate':>9} {'warm':>8} {'ratio':>6} {'cold':>9}  {'':8} expression")
    pairs: list[tuple[float, float]] = []
    worst, worst_cold = (0.0, ""), (0.0, "")
    for source in CORPUS:
        expression = Expression(source, Result.BOOLEAN)
        estimate = expression.cost(PARAMS).milliseconds()
        accepted = estimate <= MAX_EXPRESSION_MILLISECONDS
        cold, warm = measure(expression, asked.nodes if accepted else _NODES_OF_REFUSED, asked.rounds)
        pairs.append((estimate, warm))
        if accepted:
            worst, worst_cold = max(worst, (warm, source)), max(worst_cold, (cold, source))
        ratio = f"{estimate / warm:.1f}"
        verdict = "" if accepted else "refused"
        print(f"{estimate:>9.1f} {warm:>8.1f} {ratio:>6} {cold:>9.1f}  {verdict:8} {source}")
    print(f"rank correlation {rank_correlation(pairs):.2f}")
    print(f"slowest accepted, warm: {worst[0]:.0f} ms, {worst[1]}")
    print(f"slowest accepted, cold: {worst_cold[0]:.0f} ms, {worst_cold[1]}")


if __name__ == "__main__":
    main()
