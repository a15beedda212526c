"""The cost of existing Pods' anti-affinity for placing a Pod, by the number of workloads that have it.

`python -m bench.affinity` prints the median microseconds of `MatchInterPodAffinity` and `InterPodAffinityPriority` on 1,000 nodes, in one
namespace in which each workload has three Pods with anti-affinity to each other, as charts write it: by name and component, required and
preferred. Beside them it prints the time if each term is evaluated, as kube-scheduler does it. The two take turns, and a Pod is placed
between two measurements. The aim: four thousand workloads cost at most three times as much as ten.
"""

from collections.abc import Callable
from statistics import median
from time import thread_time
from typing import Any
from unittest.mock import patch

from bench.arguments import parse_no_arguments
from bench.running import machine
from policies.engine.decision import EPOCH
from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects import inter_pod
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import FilterRule, ScoreRule
from policies.engine.scores.registry import BUILTIN_SCORES
from policies.engine.validation import make_builtin
from tests.builders import make_node, make_pod

SIZES = (10, 100, 1_000, 4_000)
AIM = 3.0
_NODES, _TURNS = 1_000, 60
_HOST = "kubernetes.io/hostname"
_EVERY_TERM = 1_000_000

FILTER = make_builtin(BUILTIN_FILTERS, FilterRule(builtin="MatchInterPodAffinity"))
SCORE = make_builtin(BUILTIN_SCORES, ScoreRule(builtin="InterPodAffinityPriority"))
RULES: dict[str, Callable[[Cycle], Any]] = {
    "MatchInterPodAffinity": lambda cycle: FILTER.filter(cycle, cycle.table.all_rows()),
    "InterPodAffinityPriority": lambda cycle: SCORE.score(cycle, cycle.table.all_rows()),
}


def pod(number: int, workload: int) -> Pod:
    """Return a Pod of a workload with anti-affinity between its Pods."""
    labels = {"app.kubernetes.io/name": f"app-{workload}", "app.kubernetes.io/component": "server"}
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": _HOST}
    anti = {
        "requiredDuringSchedulingIgnoredDuringExecution": [term],
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": term}],
    }
    return Pod.from_json(make_pod(f"p{number}", labels=labels, affinity={"podAntiAffinity": anti}))


def measure(workloads: int) -> dict[tuple[str, bool], float]:
    """Return the median microseconds of each rule, with terms looked up, and with each term evaluated."""
    nodes = [Node.from_json(make_node(f"n{number}", labels={_HOST: f"n{number}"})) for number in range(_NODES)]
    placed = [(pod(number, number % workloads), f"n{number * 7 % _NODES}") for number in range(3 * workloads)]
    snapshot = Snapshot.of(nodes).assume_all(placed)
    times: dict[tuple[str, bool], list[float]] = {}
    for turn in range(2 * _TURNS):
        is_listed = bool(turn % 2)
        number = 3 * workloads + 2 * turn
        snapshot = snapshot.assume_all([(pod(number, turn % workloads), f"n{turn % _NODES}")])
        cycle = Cycle(pod=pod(number + 1, turn * 3 % workloads), snapshot=snapshot, now=EPOCH, params={})
        with patch.object(inter_pod, "_MAX_LISTED", _EVERY_TERM if is_listed else inter_pod._MAX_LISTED):  # noqa: SLF001 - a bench may look inside
            for name, ask in RULES.items():
                started = thread_time()
                ask(cycle)
                times.setdefault((name, is_listed), []).append((thread_time() - started) * 1e6)
    return {key: median(found) for key, found in times.items()}


def main() -> None:
    """Measure and print."""
    parse_no_arguments(__doc__)
    print(machine())
    print(f"anti-affinity of those that are there; {_NODES:,} nodes; microseconds, each term asked in brackets\n")
    print(f"{'workloads':>26}" + "".join(f"{size:>18,}" for size in SIZES) + "   growth (aim)")
    found = [measure(size) for size in SIZES]
    for name in RULES:
        columns = [f"{each[name, False]:>8.0f} ({each[name, True]:,.0f})".rjust(18) for each in found]
        growth = found[-1][name, False] / found[0][name, False]
        said = f"{growth:.1f} ({AIM:g})" + ("" if growth <= AIM else "  MISSED")
        print(f"{name:>26}" + "".join(columns) + f"   {said}")


if __name__ == "__main__":
    main()
