"""How long the engine takes to filter and score one Pod with the classic default set.

`python -m bench.engine` prints, for clusters of several sizes, the first decision on a cluster (cold) and later ones,
with one Pod placed between two of them (warm); then the time of each rule at 5,000 nodes.
"""

import argparse
import gc
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from statistics import median
from time import thread_time
from typing import Any

from policies.engine.decision import decide
from policies.engine.default_set import default_rule_set
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle

SIZES = (100, 1_000, 5_000, 20_000)
PODS_PER_NODE = 20
PODS_PER_APP = 25
NOW = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1024**3

Json = dict[str, Any]


def make_node(number: int, random: Random) -> Node:
    """Make a node as managed clusters have them: some of a special pool with a taint, 30 images each."""
    special = number % 20 == 0
    name = f"node-{number:05d}"
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/region": "r1",
        "topology.kubernetes.io/zone": f"r1-{'abc'[number % 3]}",
        "node.kubernetes.io/instance-type": f"m{random.randrange(5)}.xlarge",
        "pool": "special" if special else "general",
    }
    images = random.sample(range(2_000), 30)
    return Node.from_json(
        {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": [{"key": "pool", "value": "special", "effect": "NoSchedule"}] if special else []},
            "status": {
                "allocatable": {"cpu": "15800m", "memory": f"{62 * GIB}", "pods": "110", "ephemeral-storage": "200Gi"},
                "conditions": [{"type": "Ready", "status": "True"}],
                "images": [
                    {"names": [f"registry/image-{i}@sha256:{i:064x}", f"registry/image-{i}:v1"], "sizeBytes": i * 10**6}
                    for i in images
                ],
            },
        }
    )


def make_pod(number: int, app: int, *, node: str = "", kind: str = "") -> Json:
    """Make a Pod of a Deployment. Every tenth app has anti-affinity between its Pods, required or preferred."""
    spec: Json = {
        "nodeName": node,
        "containers": [
            {
                "name": "main",
                "image": f"registry/image-{app % 2_000}:v1",
                "resources": {"requests": {"cpu": f"{50 + app % 7 * 50}m", "memory": f"{128 + app % 5 * 128}Mi"}},
                "ports": [{"containerPort": 8080}],
            }
        ],
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
        "volumes": [{"name": "token", "projected": {"sources": []}}],
    }
    affinity = _affinity(app)
    if affinity:
        spec["affinity"] = affinity
    if kind == "demanding":
        spec |= _demands(app)
    return {
        "metadata": {
            "name": f"app-{app}-{number}",
            "namespace": f"team-{app % 40}",
            "uid": f"uid-{app}-{number}",
            "labels": {"app": f"app-{app}", "pod-template-hash": f"{app:x}", "tier": f"t{app % 3}"},
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"app-{app}", "uid": "r", "controller": True}
            ],
        },
        "spec": spec,
        "status": {"phase": "Running" if node else "Pending"},
    }


def _affinity(app: int) -> Json:
    term = {"labelSelector": {"matchLabels": {"app": f"app-{app}"}}, "topologyKey": "kubernetes.io/hostname"}
    if app % 20 == 10:  # noqa: PLR2004 - some app
        return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if app % 20 == 0:
        weighted = [{"weight": 100, "podAffinityTerm": term}]
        return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    return {}


def _demands(app: int) -> Json:
    """The demands of a Pod besides resources, with which every rule has work to do."""
    selector = {"matchLabels": {"app": f"app-{app}"}}
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    near = {"labelSelector": {"matchLabels": {"tier": f"t{app % 3}"}}, "topologyKey": "topology.kubernetes.io/zone"}
    pool = [{"key": "pool", "operator": "In", "values": ["general", "other"]}]
    arch = [{"key": "kubernetes.io/arch", "operator": "NotIn", "values": ["arm64"]}]
    return {
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": pool}]},
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 10, "preference": {"matchExpressions": arch}}
                ],
            },
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "podAffinityTerm": near}]
            },
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 100,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": when,
                "labelSelector": selector,
            }
            for when in ("DoNotSchedule", "ScheduleAnyway")
        ],
    }


def make_cluster(size: int) -> Snapshot:
    """Make nodes with Pods on them, and the ReplicaSets and Services of their apps."""
    random = Random(size)
    nodes = [make_node(number, random) for number in range(size)]
    apps = size * PODS_PER_NODE // PODS_PER_APP
    pods = [
        Pod.from_json(make_pod(number, number % apps, node=nodes[random.randrange(size)].name))
        for number in range(size * PODS_PER_NODE)
    ]
    named: list[Json] = [
        {"metadata": {"name": f"app-{app}", "namespace": f"team-{app % 40}"}, "app": f"app-{app}"}
        for app in range(apps)
    ]
    objects = ClusterObjects(
        services=[{"metadata": entry["metadata"], "spec": {"selector": {"app": entry["app"]}}} for entry in named],
        replica_sets=[
            {"metadata": entry["metadata"], "spec": {"selector": {"matchLabels": {"app": entry["app"]}}}}
            for entry in named
        ],
    )
    namespaces = {f"team-{team}": {"team": str(team)} for team in range(40)}
    return Snapshot.of(nodes, pods, namespaces, objects=objects)


def place(snapshot: Snapshot, pod: Json, node: str) -> Snapshot:
    """Return the Snapshot in which a Pod is on a node."""
    placed = Pod.from_json({**pod, "spec": {**pod["spec"], "nodeName": node}})
    return snapshot.assume(placed, node)


def measure_decisions(snapshot: Snapshot, kind: str, times: int) -> tuple[float, list[float], list[float]]:
    """Decide and place repeatedly; returns seconds: of the first decision, of later ones, and of placing."""
    rules = default_rule_set()
    apps = len(snapshot.nodes) * PODS_PER_NODE // PODS_PER_APP
    deciding: list[float] = []
    placing: list[float] = []
    for number in range(times + 1):
        json = make_pod(10_000 + number, number * 7 % apps, kind=kind)
        pod = Pod.from_json(json)
        started = thread_time()
        cycle = Cycle(pod=pod, snapshot=snapshot, now=NOW)
        best = decide(rules, cycle, snapshot.table.all_rows()).best
        decided = thread_time()
        snapshot = place(snapshot, json, best)
        deciding.append(decided - started)
        placing.append(thread_time() - decided)
    return deciding[0], deciding[1:], placing[1:]


def measure_rules(snapshot: Snapshot, kind: str, times: int) -> list[tuple[str, float, float]]:
    """Return seconds for each rule alone: the first time on this cluster, and later with one Pod placed in between."""
    rules = default_rule_set()
    measured: list[tuple[str, float, float]] = []
    runs: list[tuple[str, Callable[[Cycle], object]]] = [
        (rule.key, lambda cycle, made=made: made.filter(cycle, cycle.table.all_rows()))  # type: ignore[misc] # default
        for rule, made in rules.filters
    ]
    runs += [
        (rule.key, lambda cycle, made=made: made.score(cycle, cycle.table.all_rows()))  # type: ignore[misc] # default
        for rule, made in rules.scores
    ]
    names = list(snapshot.nodes)
    for name, run in runs:
        seconds: list[float] = []
        gc.collect()
        gc.freeze()
        current = Snapshot(snapshot.nodes, snapshot.namespaces, objects=snapshot.objects)
        for number in range(times + 1):
            json = make_pod(20_000 + number, number, kind=kind)
            cycle = Cycle(pod=Pod.from_json(json), snapshot=current, now=NOW)
            started = thread_time()
            run(cycle)
            seconds.append(thread_time() - started)
            current = place(current, json, names[number * 13 % len(names)])
        measured.append((name, seconds[0], median(seconds[1:])))
    return measured


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--times", type=int, default=50, help="warm decisions for each size")
    parser.add_argument("--rules-at", type=int, default=5_000, help="nodes for the table of rules; 0 for none")
    asked = parser.parse_args()
    print("classic default set, one Pod: 11 filters, 7 scores; 20 Pods a node; milliseconds")
    print(f"{'pod':>10} {'nodes':>7} {'cold':>9} {'warm p50':>9} {'p99':>8} {'us/node':>8} {'growth':>7} {'place':>7}")
    for kind in ("ordinary", "demanding"):
        before = 0.0
        for size in asked.sizes:
            snapshot = make_cluster(size)
            gc.collect()
            gc.freeze()
            cold, warm, placing = measure_decisions(snapshot, kind, asked.times)
            per_node = median(warm) / size * 1e6
            growth = f"{median(warm) / before:6.1f}x" if before else ""
            before = median(warm)
            high = sorted(warm)[int(len(warm) * 0.99)]
            print(
                f"{kind:>10} {size:>7} {cold * 1e3:>9.1f} {median(warm) * 1e3:>9.2f} {high * 1e3:>8.2f} "
                f"{per_node:>8.2f} {growth:>7} {median(placing) * 1e3:>7.2f}"
            )
    if asked.rules_at:
        print(f"\neach rule alone at {asked.rules_at} nodes, milliseconds")
        print(f"{'rule':>28} {'ordinary: cold':>15} {'warm':>7} {'demanding: cold':>16} {'warm':>7}")
        snapshot = make_cluster(asked.rules_at)
        ordinary = measure_rules(snapshot, "ordinary", 60)
        demanding = measure_rules(snapshot, "demanding", 60)
        for (name, cold, warm_one), (_, cold_two, warm_two) in zip(ordinary, demanding, strict=True):
            print(
                f"{name:>28} {cold * 1e3:>15.1f} {warm_one * 1e3:>7.2f} {cold_two * 1e3:>16.1f} {warm_two * 1e3:>7.2f}"
            )


if __name__ == "__main__":
    main()
