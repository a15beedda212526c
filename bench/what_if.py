"""What a forecast costs: seconds and memory, by nodes and Pods, where a rule set of each kind changes.

`python -m bench.what_if` makes clusters in memory, a tenth of whose Pods wait, and asks what a stricter rule set would do to all of
them. Listing the cluster isn't in it. The aim is 20 s at 5,000 nodes and 50,000 Pods.
"""

import argparse
import resource
from collections.abc import Iterator
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from bench.running import machine
from policies.engine.decision import CompiledRevision
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Revision
from policies.engine.validation import read_assignment, read_rule_set
from scheduler.gate.forecast import forecast

SIZES = ((300, 3_000), (1_000, 10_000), (5_000, 50_000))
AIM_SECONDS = 20.0
_WAITING = 10
_TEAM = "pod.metadata.?labels.team.orValue('') == node.metadata.?labels.team.orValue('')"
# What changes: each rule set before, and after.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a label rule": (
        {"filters": [{"name": "team", "expression": f"{_TEAM} || !has(node.metadata.labels.team)", "reason": "x"}]},
        {"filters": [{"name": "team", "expression": _TEAM, "reason": "x"}]},
    ),
    "room": ({"filters": [{"builtin": "PodFitsHost"}]}, {"filters": [{"builtin": "PodFitsResources"}]}),
    "a count rule": (
        {"filters": [{"name": "few", "expression": "node.count({'app': 'web'}) < 500", "reason": "x"}]},
        {"filters": [{"name": "few", "expression": "node.count({'app': 'web'}) < 5", "reason": "x"}]},
    ),
}


def _nodes(count: int) -> Iterator[Node]:
    room = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    for number in range(count):
        labels = {"kubernetes.io/hostname": f"n{number}"} | ({"team": f"t{number % 30}"} if number % 2 else {})
        status = {"allocatable": room, "capacity": room}
        yield Node.from_json({"metadata": {"name": f"n{number}", "labels": labels}, "status": status})


def _pods(count: int, nodes: int) -> Iterator[Pod]:
    for number in range(count):
        metadata = {
            "name": f"p{number}",
            "namespace": "shop",
            "uid": f"u{number}",
            "labels": {"team": f"t{number % 30}", "app": "web" if number % 3 else "db"},
        }
        spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}]}
        if number % _WAITING:
            spec["nodeName"] = f"n{number % nodes}"
        yield Pod.from_json({"metadata": metadata, "spec": spec})


def _revision(number: int, spec: dict[str, Any]) -> CompiledRevision:
    head = {"apiVersion": "berth/v1"}
    rule_set = read_rule_set({**head, "kind": "RuleSet", "metadata": {"name": "web"}, "spec": spec})
    match = {**head, "kind": "Assignment", "metadata": {"name": "all"}, "spec": {"ruleSet": "web"}}
    return CompiledRevision(Revision(number=number, rule_sets=[rule_set], assignments=[read_assignment(match)]))


def measure(nodes: int, count: int) -> None:
    """Print a line for each kind of change."""
    pods = list(_pods(count, nodes))
    snapshot = Snapshot.of(_nodes(nodes), pods)
    for name, (before, after) in CHANGES.items():
        live, wanted = _revision(1, before), _revision(2, after)
        began = perf_counter()
        found = forecast(live, wanted, snapshot, pods, datetime.now(UTC))
        seconds = perf_counter() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        aim = (
            ""
            if (nodes, count) != SIZES[-1]
            else f"  aim {AIM_SECONDS:.0f} s: {'reached' if seconds <= AIM_SECONDS else 'MISSED'}"
        )
        print(
            f"{nodes:>6} nodes {count:>6} Pods  {name:>14}: {seconds:6.1f} s, {memory:>5} MiB; "
            f"{len(found.waiting)} wait otherwise, {len(found.refused)} refused{aim}",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the sizes, the smallest first")
    asked = parser.parse_args()
    print(machine())
    for nodes, count in SIZES[: asked.sizes]:
        measure(nodes, count)


if __name__ == "__main__":
    main()
