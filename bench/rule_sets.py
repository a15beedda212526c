"""How long the engine takes to filter and score one Pod, for five rule sets, beside CEL evaluated once for each node.

`python -m bench.rule_sets` prints, for clusters of several sizes: the first decision on a cluster (cold), later ones
with a Pod placed between two of them (warm), the cost of a node, and the cost of the same expressions if CEL evaluates
them for each node (without those that count Pods; measured on up to 500 nodes and scaled), all in one run. The
sizes take turns, and times are the thread's CPU times, so that other work on the machine affects all of them alike.
"""

import argparse
import gc
from statistics import median
from time import thread_time
from typing import Any

from bench.engine import NOW, PODS_PER_APP, PODS_PER_NODE, SIZES, make_cluster, make_pod, place
from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.default_set import default_rule_set
from policies.engine.filters.expression import ExpressionFilter
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
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
# Params as in a rule set for many teams: they hold the differences; loads and shares are doubles.
_PARAMS = {"drained": [f"node-{number}" for number in range(50)], "key": "pool", "prefix": "node", "most": 0.9}
_PARAMS_FILTERS = [
    "!(node.metadata.name in params.drained)",
    "node.metadata.name.startsWith(params.prefix)",
    "node.metadata.labels[?params.key].orValue('') != 'x'",
    "double(usage.requested.cpu + requests.cpu) / double(usage.allocatable.cpu) < params.most",
]
_PARAMS_SCORES = ["1.0 - double(usage.requested.memory) / double(usage.allocatable.memory)"]
_TEN_SCORES = ["usage.free.cpu - usage.requested.cpu", "20 - size(node.metadata.name)"]


def _rule_set(
    name: str, filters: list[str], scores: list[str], params: dict[str, Any] | None = None
) -> CompiledRuleSet:
    document = {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": name},
        "spec": {
            "params": params or {},
            "filters": [{"name": f"f{i}", "expression": text} for i, text in enumerate(filters)],
            "scores": [{"name": f"s{i}", "expression": text} for i, text in enumerate(scores)],
        },
    }
    return CompiledRuleSet(read_rule_set(document))


def rule_sets() -> dict[str, CompiledRuleSet]:
    """Return the five rule sets."""
    return {
        "a label rule": _rule_set("label", [_LABEL], []),
        "classic default set": default_rule_set(),
        "ten expressions": _rule_set("ten", _TEN_FILTERS, _TEN_SCORES),
        "params and doubles": _rule_set("params", _PARAMS_FILTERS, _PARAMS_SCORES, _PARAMS),
        "a count rule": _rule_set("count", [_COUNT], []),
    }


class Run:
    """One rule set that decides repeatedly on one cluster, with a Pod placed between two decisions."""

    def __init__(self, rules: CompiledRuleSet, snapshot: Snapshot) -> None:
        self._rules = rules
        # Without the columns that another rule set has computed.
        self._snapshot = Snapshot(snapshot.nodes, snapshot.namespaces, objects=snapshot.objects)
        self._names = list(snapshot.nodes)
        self._number = 0
        self.blocks: list[list[float]] = []

    def decide(self) -> float:
        """Decide once; returns seconds of this thread's time."""
        number, names = self._number, self._names
        self._number += 1
        json = make_pod(30_000 + number, number * 7 % (len(names) * PODS_PER_NODE // PODS_PER_APP))
        pod = Pod.from_json(json)
        started = thread_time()
        cycle = Cycle(pod=pod, snapshot=self._snapshot, now=NOW, params=self._rules.params)
        decide(self._rules, cycle, self._snapshot.table.all_rows())
        seconds = thread_time() - started
        self._snapshot = place(self._snapshot, json, names[number * 13 % len(names)])
        return seconds

    def decide_block(self, times: int) -> None:
        """Decide several times in a row and record the seconds of each."""
        self.blocks.append([self.decide() for _ in range(times)])

    @property
    def warm(self) -> list[float]:
        """The seconds of all recorded decisions."""
        return sorted(seconds for block in self.blocks for seconds in block)


def growth(smaller: Run, bigger: Run) -> float:
    """Return the ratio of the bigger one's time to the smaller one's: the median over blocks measured side by side."""
    pairs = zip(smaller.blocks, bigger.blocks, strict=True)
    return median(median(later) / median(earlier) for earlier, later in pairs)


def measure_plainly(rules: CompiledRuleSet, snapshot: Snapshot) -> float | None:
    """Return CEL's seconds a node if it gets each whole node; None without expressions."""
    made: list[Any] = [made for _, made in rules.filters] + [made for _, made in rules.scores]
    expressions = [one.expression for one in made if isinstance(one, ExpressionFilter | ExpressionScore)]
    expressions = [expression for expression in expressions if not expression.counts_pods]
    if not expressions:
        return None
    cycle = Cycle(pod=Pod.from_json(make_pod(1, 1)), snapshot=snapshot, now=NOW, params=rules.params)
    rows = range(min(len(snapshot.nodes), _PLAIN_NODES))
    started = thread_time()
    for expression in expressions:
        for row in rows:
            expression.evaluate_plainly(cycle, row)
    return (thread_time() - started) / len(rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--times", type=int, default=10, help="decisions in a block")
    parser.add_argument("--rounds", type=int, default=12, help="blocks for each size, the sizes taking turns")
    asked = parser.parse_args()
    print("filter and score one Pod; 20 Pods a node; milliseconds of one core; plain: CEL asked once a node")
    print(
        f"{'rule set':>20} {'nodes':>7} {'cold':>9} {'warm p50':>9} {'p99':>8} {'us/node':>8} {'growth':>7} {'plain':>9}"
    )
    clusters = {size: make_cluster(size) for size in asked.sizes}
    for name, rules in rule_sets().items():
        runs = {size: Run(rules, snapshot) for size, snapshot in clusters.items()}
        gc.collect()
        gc.freeze()
        cold = {size: run.decide() for size, run in runs.items()}
        # As the extender does once its columns are computed.
        gc.collect()
        gc.freeze()
        for _ in range(asked.rounds):
            for run in runs.values():
                run.decide_block(asked.times)
        before: Run | None = None
        for size, run in runs.items():
            middle, high = median(run.warm), run.warm[int(len(run.warm) * 0.99)]
            plain = measure_plainly(rules, clusters[size])
            print(
                f"{name:>20} {size:>7} {cold[size] * 1e3:>9.1f} {middle * 1e3:>9.2f} {high * 1e3:>8.2f} "
                f"{middle / size * 1e6:>8.3f} {f'{growth(before, run):.1f}x' if before else '':>7} "
                f"{'' if plain is None else f'{plain * size * 1e3:9.1f}':>9}"
            )
            before = run


if __name__ == "__main__":
    main()
