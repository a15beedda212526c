"""How long the engine takes to filter and score one Pod, for four rule sets, beside CEL asked once a node.

`python -m bench.rule_sets` prints, for clusters of several sizes: the first decision on a cluster (cold), those after
it with a Pod placed between two of them (warm), the cost a node, and what the same expressions cost when CEL is asked
plainly for each node (without those that count Pods; measured on up to 500 nodes and scaled), all in one run.
"""

import argparse
import gc
from statistics import median
from time import perf_counter
from typing import Any

from bench.engine import NOW, PODS_PER_APP, PODS_PER_NODE, SIZES, classic_default_set, make_cluster, make_pod, place
from policies.engine.cycle import Cycle
from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.filters.expression import ExpressionFilter
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.scores.expression import ExpressionScore
from policies.engine.validation import read_rule_set

_PLAIN_NODES = 500
_LABEL = "node.metadata.?labels.pool.orValue('') == 'general' || pod.metadata.labels.tier == 't0'"
_COUNT = "node.count({'app': pod.metadata.labels.app}) < 3"
_TEN_FILTERS = [
    _LABEL,
    _COUNT,
    "node.metadata.labels['topology.kubernetes.io/zone'] != 'r1-x'",
    "usage.free.cpu >= 100 && usage.free.memory > 134217728",
    "usage.free.cpu - size(pod.metadata.name) * 10 > 0",
    "!node.spec.?taints.orValue([]).exists(t, t.effect == 'NoExecute')",
    "topology.count('topology.kubernetes.io/zone', {'app': pod.metadata.labels.app}) < 1000",
    "size(node.metadata.name) + size(pod.metadata.name) < 100",
]
_TEN_SCORES = ["usage.free.cpu - usage.requested.cpu", "20 - size(node.metadata.name)"]


def _rule_set(name: str, filters: list[str], scores: list[str]) -> CompiledRuleSet:
    document = {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": name},
        "spec": {
            "filters": [{"name": f"f{i}", "expression": text} for i, text in enumerate(filters)],
            "scores": [{"name": f"s{i}", "expression": text} for i, text in enumerate(scores)],
        },
    }
    return CompiledRuleSet(read_rule_set(document))


def rule_sets() -> dict[str, CompiledRuleSet]:
    """Give the four rule sets."""
    return {
        "a label rule": _rule_set("label", [_LABEL], []),
        "classic default set": classic_default_set(),
        "ten expressions": _rule_set("ten", _TEN_FILTERS, _TEN_SCORES),
        "a count rule": _rule_set("count", [_COUNT], []),
    }


def measure(rules: CompiledRuleSet, snapshot: Snapshot, times: int) -> list[float]:
    """Decide and place, again and again; gives the seconds of each decision."""
    apps = len(snapshot.nodes) * PODS_PER_NODE // PODS_PER_APP
    names = list(snapshot.nodes)
    seconds = []
    for number in range(times + 1):
        json = make_pod(30_000 + number, number * 7 % apps)
        pod = Pod.from_json(json)
        started = perf_counter()
        decide(rules, Cycle(pod=pod, snapshot=snapshot, now=NOW), snapshot.table.all_rows())
        seconds.append(perf_counter() - started)
        snapshot = place(snapshot, json, names[number * 13 % len(names)])
    return seconds


def measure_plainly(rules: CompiledRuleSet, snapshot: Snapshot) -> float | None:
    """Give the seconds a node that CEL takes when it is handed each node whole; None without expressions."""
    made: list[Any] = [made for _, made in rules.filters] + [made for _, made in rules.scores]
    expressions = [one.expression for one in made if isinstance(one, ExpressionFilter | ExpressionScore)]
    expressions = [expression for expression in expressions if not expression.counts_pods]
    if not expressions:
        return None
    cycle = Cycle(pod=Pod.from_json(make_pod(1, 1)), snapshot=snapshot, now=NOW)
    rows = range(min(len(snapshot.nodes), _PLAIN_NODES))
    started = perf_counter()
    for expression in expressions:
        for row in rows:
            expression.evaluate_plainly(cycle, row)
    return (perf_counter() - started) / len(rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--times", type=int, default=50, help="warm decisions for each size")
    asked = parser.parse_args()
    print("filter and score one Pod; 20 Pods a node; milliseconds; plain: CEL asked once a node")
    print(
        f"{'rule set':>20} {'nodes':>7} {'cold':>9} {'warm p50':>9} {'p99':>8} {'us/node':>8} {'growth':>7} {'plain':>9}"
    )
    for name, rules in rule_sets().items():
        before = 0.0
        for size in asked.sizes:
            snapshot = make_cluster(size)
            gc.collect()
            gc.freeze()
            plain = measure_plainly(rules, snapshot)
            cold, *warm = measure(
                rules, Snapshot(snapshot.nodes, snapshot.namespaces, objects=snapshot.objects), asked.times
            )
            middle = median(warm)
            growth = f"{middle / before:.1f}x" if before else ""
            before = middle
            print(
                f"{name:>20} {size:>7} {cold * 1e3:>9.1f} {middle * 1e3:>9.2f} "
                f"{sorted(warm)[int(len(warm) * 0.99)] * 1e3:>8.2f} {middle / size * 1e6:>8.3f} {growth:>7} "
                f"{'' if plain is None else f'{plain * size * 1e3:9.1f}':>9}"
            )


if __name__ == "__main__":
    main()
