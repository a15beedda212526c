"""The cost of a forecast: seconds and memory, by nodes and Pods, for a changed rule set of each kind.

`python -m bench.what_if` makes clusters in memory, in which a tenth of the Pods wait, and forecasts the effect of a stricter rule set on
all Pods. Listing the cluster isn't included. Pods are either alike, those of 60 workloads, or all different. The aim is 20 s of processor
time at 5,000 nodes and 50,000 Pods.

With `--beside` it starts a real cluster of the last of the sizes, and Berth as `make up` does. A worker runs the gate of a Change,
including the listing, while the extender answers /filter. Two blocks of calls without a gate and one during a gate take turns, in
rotating order. The ratio is that of the p99 of all calls of a kind to the p99 of all calls without a gate, with the interval that
contains it in 19 of 20 resamples of the rounds. Ratios within the interval of the second block without a gate can't be distinguished
from noise on this machine. With `--server-behind` the API server gets the lowest priority and the caller the highest, as if they had
processors of their own, so that the rest of the ratio is Berth's; that takes root.
"""

import argparse
import json
import os
import resource
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter, process_time, sleep
from typing import Any

import numpy as np
import psycopg

from bench.nodes import make_node, make_pod
from bench.running import Berth, berth, cluster, machine, scratch
from bench.shadow import Caller, quantile
from policies.engine.decision import CompiledRevision
from policies.engine.documents import read_assignment
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Revision
from policies.engine.validation import read_rule_set
from scheduler.background import start_behind
from scheduler.gate.forecast import DECIDING_SECONDS, Gathered, forecast

SIZES = ((300, 3_000), (1_000, 10_000), (5_000, 50_000))
AIM_SECONDS = 20.0
_WAITING = 10
# How many calls are made without a gate, before each block during a gate; and the pause between two calls.
_CALLS = 600
_PAUSE_SECONDS = 0.01
WITHOUT = "without"
_LOOP = "while True: sum(range(1000))"
# How many resamples of the rounds an interval uses.
_DRAWS = 2_000
_TEAM = "pod.metadata.?labels.team.orValue('') == node.metadata.?labels.team.orValue('')"
_APP = {"labelSelector": {"matchLabels": {"app": "web"}}}
# Additional fields of Pods, for the rules that use them.
_MORE: dict[str, dict[str, Any]] = {
    "a spread": {
        "topologySpreadConstraints": [
            {**_APP, "maxSkew": 100, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule"}
            for key in ("zone", "kubernetes.io/hostname")
        ]
    },
    "an affinity": {
        "affinity": {
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{**_APP, "topologyKey": "zone"}]},
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": {"matchLabels": {"team": "t3"}}, "topologyKey": "kubernetes.io/hostname"}
                ]
            },
        }
    },
}
# The changes: each rule set before, and after.
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a label rule": (
        {"filters": [{"name": "team", "expression": f"{_TEAM} || !has(node.metadata.labels.team)", "reason": "x"}]},
        {"filters": [{"name": "team", "expression": _TEAM, "reason": "x"}]},
    ),
    "room": ({"filters": [{"builtin": "PodFitsHost"}]}, {"filters": [{"builtin": "PodFitsResources"}]}),
    "a topology rule": (
        {"filters": [{"name": "few", "expression": "topology.count('zone', {'app': 'web'}) < 90000", "reason": "x"}]},
        {"filters": [{"name": "few", "expression": "topology.count('zone', {'app': 'web'}) < 50000", "reason": "x"}]},
    ),
    "a zone's limit": (
        {"filters": [{"name": "few", "expression": "topology.count('zone', {'app': 'web'}) < 90000", "reason": "x"}]},
        {"filters": [{"builtin": "MaxReplicasPerDomain", "arguments": {"maxReplicas": 10_000, "topologyKey": "zone"}}]},
    ),
    "a spread": ({"filters": [{"builtin": "PodFitsHost"}]}, {"filters": [{"builtin": "EvenPodsSpread"}]}),
    "an affinity": ({"filters": [{"builtin": "PodFitsHost"}]}, {"filters": [{"builtin": "MatchInterPodAffinity"}]}),
    "a count rule": (
        {"filters": [{"name": "few", "expression": "node.count({'app': 'web'}) < 500", "reason": "x"}]},
        {"filters": [{"name": "few", "expression": "node.count({'app': 'web'}) < 5", "reason": "x"}]},
    ),
}


def _nodes(count: int) -> Iterator[Node]:
    room = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    for number in range(count):
        labels = {"kubernetes.io/hostname": f"n{number}", "zone": f"z{number % 3}"} | (
            {"team": f"t{number % 30}"} if number % 2 else {}
        )
        status = {"allocatable": room, "capacity": room}
        yield Node.from_json({"metadata": {"name": f"n{number}", "labels": labels}, "status": status})


def _pods(count: int, nodes: int, more: dict[str, Any], *, alike: bool) -> Iterator[Pod]:
    for number in range(count):
        metadata: dict[str, Any] = {
            "name": f"p{number}",
            "namespace": "shop",
            "uid": f"u{number}",
            "labels": {"team": f"t{number % 30}", "app": "web" if number % 3 else "db"},
        }
        if not alike:
            metadata["labels"]["own"] = str(number)
        spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}], **more}
        if number % _WAITING:
            spec["nodeName"] = f"n{number % nodes}"
        yield Pod.from_json({"metadata": metadata, "spec": spec})


def _revision(number: int, spec: dict[str, Any]) -> CompiledRevision:
    head = {"apiVersion": "berth/v1"}
    rule_set = read_rule_set({**head, "kind": "RuleSet", "metadata": {"name": "web"}, "spec": spec})
    match = {**head, "kind": "Assignment", "metadata": {"name": "all"}, "spec": {"ruleSet": "web"}}
    return CompiledRevision(Revision(number=number, rule_sets=[rule_set], assignments=[read_assignment(match)]))


def measure(nodes: int, count: int, only: Sequence[str], *, alike: bool) -> None:
    """Print a line for each kind of change."""
    made: dict[str, tuple[list[Pod], Snapshot]] = {}
    for name in only:
        before, after = CHANGES[name]
        more = _MORE.get(name, {})
        if str(more) not in made:
            pods = list(_pods(count, nodes, more, alike=alike))
            made = {str(more): (pods, Snapshot.of(_nodes(nodes), pods))}
        pods, snapshot = made[str(more)]
        live, wanted = _revision(1, before), _revision(2, after)
        began, used = perf_counter(), process_time()
        gathered = Gathered(live, wanted, snapshot.namespaces, datetime.now(UTC))
        for pod in pods:
            gathered.add(pod)
        until = began + DECIDING_SECONDS
        found = forecast(gathered, snapshot, is_up=lambda until=until: perf_counter() > until)  # type: ignore[misc] # mypy can't infer it
        seconds, used = perf_counter() - began, process_time() - used
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        missed = found.waiting_left_out + found.running_left_out
        left = f", {missed} left out" if missed else ""
        aim = (
            ""
            if (nodes, count) != SIZES[-1]
            else f"  aim {AIM_SECONDS:.0f} s: {'reached' if used <= AIM_SECONDS else 'MISSED'}"
        )
        print(
            f"{nodes:>6} nodes {count:>6} Pods, {'alike' if alike else 'each another'}  {name:>15}: {seconds:6.1f} s, "
            f"{used:5.1f} of the processor, "
            f"{memory:>5} MiB; {len(found.waiting)} wait otherwise, {len(found.refused)} refused{left}{aim}",
            flush=True,
        )


def measure_beside(nodes: int, count: int, rounds: int, *, server_behind: bool) -> None:
    """Print the time of a gate that a worker runs, and its effect on the extender's answers meanwhile."""
    before, after = CHANGES["a label rule"]
    with scratch() as folder, cluster(folder / "cluster", behind=server_behind) as running:
        running.create_nodes(make_node(number) for number in range(nodes))
        names = [json.loads(item)["metadata"]["name"] for item in running.items("/api/v1/nodes")]
        running.create_pods(_placed(count, names))
        with berth(folder / "berth", running.kubeconfig, binder=False) as served:
            served.publish(_documents(before))
            change = _open_change(folder, served, _documents(after))
            caller = Caller(served.port, names)
            if server_behind:
                os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))

            def plain() -> list[float]:
                return _calls(caller, lambda: False, least=_CALLS)

            def beside() -> list[float]:
                number = _ask_gate(served, folder, change)
                figures = _calls(caller, lambda: _state(folder, number) in {"queued", "running"})
                print(_said(folder, number, nodes, count), flush=True)
                return figures

            def beside_loop() -> list[float]:
                with start_behind([sys.executable, "-c", _LOOP]) as loop:
                    try:
                        return plain()
                    finally:
                        loop.kill()

            blocks = {WITHOUT: plain, "without again": plain, "beside a loop": beside_loop, "beside a gate": beside}
            made: dict[str, list[list[float]]] = {what: [] for what in blocks}
            for turn in range(rounds):
                for what in [*blocks][turn % len(blocks) :] + [*blocks][: turn % len(blocks)]:
                    made[what].append(blocks[what]())
            _show_beside(caller.sizes[0], made)


def _show_beside(size: int, made: Mapping[str, Sequence[Sequence[float]]]) -> None:
    for what, blocks in made.items():
        figures = [each for block in blocks for each in block]
        p50, p99 = (quantile(figures, share) * 1e3 for share in (0.5, 0.99))
        ratio, low, high = ratio_of_p99(blocks, made[WITHOUT])
        print(
            f"/filter with {size} names, {what:>13}: p50 {p50:6.2f} ms, p99 {p99:6.2f} ms of {len(figures)} calls, "
            f"ratio of p99 {ratio:.2f} ({low:.2f} to {high:.2f})"
        )


def ratio_of_p99(blocks: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return the ratio of the p99 of blocks to that of others, and its interval in 19 of 20 resamples of the rounds."""
    random = np.random.default_rng(0)
    rounds = np.arange(len(blocks))
    drawn = [_p99(blocks, each) / _p99(others, each) for each in random.choice(rounds, (_DRAWS, len(rounds)))]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return _p99(blocks, rounds) / _p99(others, rounds), float(low), float(high)


def _p99(blocks: Sequence[Sequence[float]], rounds: Iterable[int]) -> float:
    return float(np.quantile(np.concatenate([blocks[number] for number in rounds]), 0.99))


def _placed(count: int, names: list[str]) -> Iterator[dict[str, Any]]:
    for number in range(count):
        labels = {"team": f"t{number % 30}", "app": "web" if number % 3 else "db"}
        pod = make_pod(f"p{number}", labels=labels, node=names[number % len(names)] if number % _WAITING else "")
        yield {**pod, "spec": {**pod["spec"], "schedulerName": "nobody"}}


def _documents(spec: dict[str, Any]) -> list[dict[str, Any]]:
    head = {"apiVersion": "berth/v1"}
    return [
        {**head, "kind": "RuleSet", "metadata": {"name": "web"}, "spec": spec},
        {**head, "kind": "Assignment", "metadata": {"name": "all"}, "spec": {"ruleSet": "web"}},
    ]


def _open_change(folder: Path, served: Berth, documents: list[dict[str, Any]]) -> int:
    file = folder / "change.json"
    file.write_text(json.dumps(documents[0]))
    return int(json.loads(served.manage("apply", "--output", "json", str(file)))["change"])


def _ask_gate(served: Berth, folder: Path, change: int) -> int:
    served.manage("gate", str(change), "--queue")
    return int(_sql(folder, "SELECT MAX(id) FROM policies_gaterun")[0])


def _state(folder: Path, number: int) -> str:
    return str(_sql(folder, "SELECT state FROM policies_gaterun WHERE id = {}", number)[0])


def _sql(folder: Path, query: str, number: int = 0) -> tuple[Any, ...]:
    """Return the first row of a query of Berth's database, SQLite or PostgreSQL; "{}" in it stands for the number."""
    query = query.format(number)
    if address := os.environ.get("BERTH_DATABASE_URL"):
        with psycopg.connect(address) as database:
            return tuple(database.execute(query.encode()).fetchone() or ())
    with sqlite3.connect(f"file:{folder / 'berth' / 'berth.sqlite3'}?mode=ro", uri=True, timeout=30) as database:
        return tuple(database.execute(query).fetchone())


def _calls(caller: Caller, goes_on: Callable[[], bool], least: int = 1) -> list[float]:
    """Return the times of calls, made one after another with pauses, while `goes_on` returns true."""
    figures: list[float] = []
    while len(figures) < least or (len(figures) % 20 or goes_on()):
        figures.append(caller.ask(caller.sizes[0], "nothing")[0])
        sleep(_PAUSE_SECONDS)
    return figures


def _said(folder: Path, number: int, nodes: int, count: int) -> str:
    state, began, ended, results = _sql(
        folder,
        "SELECT state, CAST(started_at AS text), CAST(ended_at AS text), CAST(results AS text) FROM policies_gaterun WHERE id = {}",
        number,
    )
    seconds = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
    refused = next((each["count"] for each in json.loads(results) if each["check"] == "refused" and "count" in each), 0)
    return f"{nodes} nodes, {count} Pods: the gate is {state} after {seconds:.1f} s, with listing; {refused} Pods would be refused"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="how many of the sizes, the smallest first")
    parser.add_argument("--beside", action="store_true", help="on a real cluster, beside calls of the extender")
    parser.add_argument(
        "--server-behind", action="store_true", help="the API server goes behind all else and the caller first"
    )
    parser.add_argument("--rounds", type=int, default=5, help="how many gates are run beside calls")
    parser.add_argument("--only", action="append", choices=list(CHANGES), help="kinds of change")
    asked = parser.parse_args()
    print(machine())
    if asked.beside:
        measure_beside(*SIZES[asked.sizes - 1], asked.rounds, server_behind=asked.server_behind)
        return
    for nodes, count in SIZES[: asked.sizes]:
        for alike in (True, False):
            measure(nodes, count, asked.only or list(CHANGES), alike=alike)


if __name__ == "__main__":
    main()
