"""How many Pods a second the real kube-scheduler places: without an extender, with extenders in Go, with Berth.

`python -m bench.end_to_end` makes clusters with nodes like those of managed clusters (etcd, kube-apiserver; no
kubelets). For each extender it creates Pods while no scheduler runs, starts kube-scheduler, and counts from the first
Pod bound to the last, as a watch shows them, or until the time limit. kube-scheduler has no limit on requests to the
API server. Berth answers with the classic default set; Decisions are recorded, shipped and stored. Its own scheduler
isn't started. Each process's CPU time for a Pod is printed as well: all processes share the same cores.
"""

import argparse
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import Any, NamedTuple

import yaml

from bench.nodes import make_node, make_pod
from bench.running import (
    Berth,
    Cluster,
    berth,
    build_go_programs,
    cluster,
    component,
    eventually,
    go_extender,
    kube_scheduler,
    machine,
    process,
    process_seconds,
    rule_sets,
    scratch,
)
from bench.timeline import timeline

SIZES = (1_000, 5_000)
_STARTS_WITHIN_SECONDS = 120.0
# The limit of requests a second.
_UNLIMITED = 100_000
_OF_CLUSTER = ("kube-apiserver", "etcd")
# Milliseconds: less isn't shown.
_SHOWN = 0.05


class Setting(NamedTuple):
    """An extender, its configuration, and its largest number of Pods.

    `port` is 0 for none. Slow extenders get fewer Pods, because waiting Pods only add work for the API server.
    """

    name: str
    port: int
    names: bool
    pods: int


def scheduler_config(kubeconfig: Path, setting: Setting) -> dict[str, Any]:
    """Return the configuration that deploy/kube-scheduler/config.yaml recommends, for this extender."""
    document: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": _UNLIMITED, "burst": _UNLIMITED},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
    }
    if setting.port:
        document["extenders"] = [
            {
                "urlPrefix": f"http://127.0.0.1:{setting.port}",
                "filterVerb": "filter",
                "prioritizeVerb": "prioritize",
                "weight": 150,
                "nodeCacheCapable": setting.names,
                "httpTimeout": "60s",
                "ignorable": False,
            }
        ]
    return document


class Measured(NamedTuple):
    """Pods a second, and the CPU milliseconds for a Pod of each process from the first Pod bound to the last."""

    rate: float
    milliseconds: Mapping[str, float]


def measure(running: Cluster, program: Path, folder: Path, setting: Setting, seconds: float, served: Berth) -> Measured:
    """Wait until Pods are placed."""
    name = setting.name.lower().replace(" ", "-").replace(",", "")
    running.create_pods(make_pod(f"{name}-{number}", labels={"rules": "classic"}) for number in range(setting.pods))
    config = folder / f"{name}.yaml"
    config.write_text(yaml.safe_dump(scheduler_config(running.kubeconfig, setting)))
    with (
        timeline(running) as seen,
        process([program, f"--config={config}", "--secure-port=0"], folder / f"{name}.log") as scheduler,
    ):

        def used() -> dict[str, float]:
            of_cluster = {name: process_seconds(component(folder / "cluster", name)) for name in _OF_CLUSTER}
            return {"scheduler": process_seconds(scheduler.pid), **of_cluster, **served.processor_seconds()}

        eventually(
            lambda: seen.bound, f"a Pod is placed; {folder / name}.log says more", seconds=_STARTS_WITHIN_SECONDS
        )
        ends, before, bound_before = monotonic() + seconds, used(), len(seen.bound)
        while len(seen.bound) < setting.pods and monotonic() < ends:
            sleep(0.05)
        after, pods = used(), max(len(seen.bound) - bound_before, 1)
    running.delete_pods()
    spent = {name: (after[name] - before.get(name, 0.0)) / pods * 1e3 for name in after}
    return Measured(seen.rate(), spent)


def settings(size: int, served: Berth, typed: int, names: int) -> list[Setting]:
    """Return the settings that are measured on a cluster of this size."""
    few = 200_000 // size
    return [
        Setting("no extender", 0, names=True, pods=2_000),
        Setting("Go, names alone", names, names=True, pods=1_000),
        Setting("Berth, names", served.port, names=True, pods=1_000),
        Setting("Go, k8s.io types, full", typed, names=False, pods=few),
        Setting("Berth, full", served.port, names=False, pods=few),
    ]


AIMS = (("Berth, names", "Go, names alone", 0.7), ("Berth, full", "Go, k8s.io types, full", 1.4))


def print_aims(size: int, rates: Mapping[str, Sequence[float]]) -> None:
    """Print the medians beside the aims."""
    for name, found in rates.items():
        print(f"{size:>6} {name:>24} {median(found):>8.1f}   {min(found):.1f} to {max(found):.1f}")
    for ours, other, least in AIMS:
        if not {ours, other} <= rates.keys():
            continue
        ratio = median(rates[ours]) / median(rates[other])
        print(f"{size:>6} {ours}: {ratio:.2f} times {other}; aim {least}{'' if ratio >= least else '  MISSED'}")


def run(size: int, asked: argparse.Namespace, program: Path) -> Mapping[str, Sequence[float]]:
    """Measure all settings in turns on a cluster of this size; print each as it is measured."""
    rates: defaultdict[str, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        build_go_programs(folder)
        running = stack.enter_context(cluster(folder / "cluster"))
        running.create_nodes(map(make_node, range(size)))
        served = stack.enter_context(berth(folder / "berth", running.kubeconfig, binder=False))
        served.publish(rule_sets())
        typed = stack.enter_context(go_extender(folder, "extender-typed"))
        names = stack.enter_context(go_extender(folder, "extender-names"))
        for number in range(asked.rounds):
            order = [setting for setting in settings(size, served, typed, names) if asked.only in setting.name]
            for setting in order[number % len(order) :] + order[: number % len(order)]:
                found = measure(running, program, folder, setting, asked.seconds, served)
                rates[setting.name].append(found.rate)
                spent = " ".join(f"{name} {each:.1f}" for name, each in found.milliseconds.items() if each >= _SHOWN)
                print(f"{size:>6} {setting.name:>24} {found.rate:>8.1f}   ms a Pod: {spent}", flush=True)
                served.settle()
        if lost := served.metric("berth_decisions_unwritten_total"):
            print(f"{lost:.0f} Decisions were lost")
    return rates


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="nodes of the clusters")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20, help="that a setting is measured at most")
    parser.add_argument("--only", default="", help="settings with this in their name: names, full, …")
    asked = parser.parse_args()
    started = perf_counter()
    program = kube_scheduler()
    database = "PostgreSQL" if os.environ.get("BERTH_DATABASE_URL") else "SQLite"
    print(f"Pods a second through kube-scheduler; {database}; {machine()}; median and range")
    for size in asked.sizes:
        print_aims(size, run(size, asked, program))
    print(f"took {perf_counter() - started:.0f} s; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
