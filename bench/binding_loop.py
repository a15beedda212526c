"""How many Pods a second Berth's binding loop binds, beside kube-scheduler on the same cluster in the same run.

`python -m bench.binding_loop` makes clusters with nodes like those of managed clusters (etcd, kube-apiserver; no kubelets). In each
round, for each scheduler, it creates Pods while no scheduler runs. Then it starts the scheduler, and counts Pods a second from the
first Pod bound to the last, as a watch shows them, with each process's CPU time. Then it creates Pods at a steady rate, and measures
the time from the watch's event of a Pod to the event that shows the Pod on a node. kube-scheduler has its default profile, and no
limit on requests to the API server. Berth runs as `make up` starts it, with the classic default set; it doesn't run in
kube-scheduler's turn.
"""

import argparse
import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import Any, NamedTuple

import yaml

from bench.nodes import make_node, make_pod
from bench.running import (
    Cluster,
    berth,
    cluster,
    component,
    eventually,
    group_seconds,
    kube_scheduler,
    machine,
    pid_of,
    process,
    process_seconds,
    scratch,
)
from bench.timeline import timeline

SIZES = (1_000, 5_000)
PODS = 2_000
PODS_A_SECOND = 20
AIM_RATIO = 1.0
AIM_P99_SECONDS = 0.1
_PODS = "/api/v1/namespaces/default/pods"
_STARTS_WITHIN_SECONDS = 120.0
# The limit of requests a second.
_UNLIMITED = 100_000

Json = dict[str, Any]


class Started(NamedTuple):
    """A running scheduler: its process group, and the groups of other processes that belong to it."""

    group: int
    others: Sequence[int] = ()


class Scheduler(NamedTuple):
    """A scheduler that is measured.

    `started` prepares it without scheduling, calls the given function, which creates Pods, and then lets it
    schedule; it ends it afterwards.
    """

    title: str
    name: str
    started: Any


class Measured(NamedTuple):
    """One round of one scheduler. CPU seconds are those between the first Pod bound and the last, for all Pods."""

    rate: float
    bound: float
    scheduler_seconds: float
    others_seconds: float
    apiserver_seconds: float
    etcd_seconds: float
    p50_seconds: float
    p99_seconds: float


def scheduler_config(kubeconfig: Path) -> Json:
    """Return kube-scheduler's configuration: the default profile, without a limit on requests."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": _UNLIMITED, "burst": _UNLIMITED},
        "leaderElection": {"leaderElect": False},
    }


def kube(running: Cluster, folder: Path, program: Path) -> Scheduler:
    """Return kube-scheduler, with its default profile."""
    config = folder / "kube-scheduler.yaml"
    config.write_text(yaml.safe_dump(scheduler_config(running.kubeconfig)))

    @contextmanager
    def started(prepare: Callable[[], None]) -> Iterator[Started]:
        prepare()
        command: list[str | Path] = [program, f"--config={config}", "--secure-port=0"]
        with process(command, folder / "kube-scheduler.log") as found:
            yield Started(found.pid)

    return Scheduler("kube-scheduler", "default-scheduler", started)


def berths_loop(running: Cluster, folder: Path) -> Scheduler:
    """Return Berth's binding loop.

    All of Berth is started; when it has bound a first Pod, the loop's process is stopped while Pods are created, and
    then killed. So its new process starts when the Pods exist, as kube-scheduler does, and no other process of Berth starts.
    """
    rounds = iter(range(1_000_000))

    @contextmanager
    def started(prepare: Callable[[], None]) -> Iterator[Started]:
        state = folder / f"berth-{next(rounds)}"
        with berth(state, running.kubeconfig):
            bind_one(running, "berth", state)
            stopped = pid_of(state, "binder")
            os.killpg(stopped, signal.SIGSTOP)
            prepare()
            os.killpg(stopped, signal.SIGKILL)
            eventually(lambda: pid_of(state, "binder") not in {0, stopped}, "the binder is started again")
            others = [pid_of(state, path.name) for path in (state / "pids").iterdir() if path.name != "binder"]
            yield Started(pid_of(state, "binder"), others)

    return Scheduler("Berth", "berth", started)


def bind_one(running: Cluster, name: str, state: Path) -> None:
    """Wait until a scheduler binds."""
    with timeline(running) as seen:
        running.create_pods([make_waiting("first", name)])
        eventually(lambda: seen.bound, f"a first Pod is bound; {state}/logs say more", seconds=_STARTS_WITHIN_SECONDS)
    running.delete_pods()


def make_waiting(name: str, scheduler_name: str) -> Json:
    """Make a Pod for a scheduler."""
    pod = make_pod(name, labels={"rules": "none"})
    pod["spec"]["schedulerName"] = scheduler_name
    return pod


def measure(running: Cluster, folder: Path, scheduler: Scheduler, pods: int, seconds: float, steady: float) -> Measured:
    """Measure one round: all Pods at once, for at most `seconds`, and then at a steady rate for `steady` seconds."""
    prefix = scheduler.name
    apiserver, etcd = component(folder / "cluster", "kube-apiserver"), component(folder / "cluster", "etcd")

    def create() -> None:
        running.create_pods(make_waiting(f"{prefix}-{number}", scheduler.name) for number in range(pods))

    with ExitStack() as stack:
        started: Started = stack.enter_context(scheduler.started(create))

        def used() -> tuple[float, ...]:
            others = sum(map(group_seconds, started.others))
            return group_seconds(started.group), others, process_seconds(apiserver), process_seconds(etcd)

        with timeline(running) as seen:
            eventually(lambda: seen.bound, "a Pod is bound", seconds=_STARTS_WITHIN_SECONDS, every=0.005)
            before, ends = used(), monotonic() + seconds
            while len(seen.bound) < pods and monotonic() < ends:
                sleep(0.01)
            spent = [after - earlier for after, earlier in zip(used(), before, strict=True)]
        running.delete_pods()
        sleep(2)  # it forgets them
        waits = steadily(running, scheduler.name, steady)
        running.delete_pods()
    figures = [seen.rate(), float(len(seen.bound)), *spent, quantile(waits, 0.5), quantile(waits, 0.99)]
    return Measured(*figures)


def steadily(running: Cluster, name: str, seconds: float) -> list[float]:
    """Create Pods at PODS_A_SECOND; returns the seconds until each was bound, ascending."""
    count = int(seconds * PODS_A_SECOND)
    with timeline(running) as seen:
        starts = monotonic()
        for number in range(count):
            sleep(max(starts + number / PODS_A_SECOND - monotonic(), 0))
            running.create_pods([make_waiting(f"steady-{name}-{number}", name)])
        eventually(lambda: len(seen.bound) >= count, "the Pods that came one by one are bound", seconds=60)
    return seen.waits()


def quantile(ascending: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values doesn't exceed."""
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]


def run(size: int, rounds: int, asked: argparse.Namespace, program: Path) -> Mapping[str, Sequence[Measured]]:
    """Measure the schedulers in turns on a cluster of this size."""
    found: defaultdict[str, list[Measured]] = defaultdict(list)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        running = stack.enter_context(cluster(folder / "cluster"))
        running.create_nodes(map(make_node, range(size)))
        schedulers = [kube(running, folder, program), berths_loop(running, folder)]
        schedulers = [scheduler for scheduler in schedulers if scheduler.name in asked.schedulers]
        for number in range(rounds):
            for scheduler in schedulers if number % 2 == 0 else reversed(schedulers):
                measured = measure(running, folder, scheduler, asked.pods, asked.seconds, asked.steady_seconds)
                if measured.bound < asked.pods:
                    print(f"{scheduler.title} bound {measured.bound:.0f} of {asked.pods} Pods in time")
                found[scheduler.title].append(measured)
    return found


def middle(measured: Iterable[Measured]) -> Measured:
    """Return the median of each figure."""
    return Measured(*(median(figures) for figures in zip(*measured, strict=True)))


def print_figures(size: int, found: Mapping[str, Sequence[Measured]]) -> None:
    """Print a line for each scheduler, and whether Berth reaches the aims."""
    for title, measured in found.items():
        it, rates = middle(measured), [one.rate for one in measured]
        print(
            f"{size:>6} {title:>15} {it.rate:>7.0f} {f'{min(rates):.0f} to {max(rates):.0f}':>14}"
            f" {it.scheduler_seconds:>9.2f} {it.others_seconds:>7.2f} {it.apiserver_seconds:>7.2f} {it.etcd_seconds:>6.2f}"
            f" {it.p50_seconds * 1e3:>7.1f} {it.p99_seconds * 1e3:>7.1f}"
        )
    if {"Berth", "kube-scheduler"} <= found.keys():
        ours, theirs = middle(found["Berth"]), middle(found["kube-scheduler"])
        ratio = ours.rate / theirs.rate
        missed = "" if ratio >= AIM_RATIO else "  MISSED"
        print(f"{size:>6} Berth binds {ratio:.2f} times as many Pods a second; aim {AIM_RATIO}{missed}")
        missed = "" if ours.p99_seconds <= AIM_P99_SECONDS else "  MISSED"
        print(f"{size:>6} Berth's p99 at {PODS_A_SECOND} Pods a second; aim {AIM_P99_SECONDS * 1e3:.0f} ms{missed}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="nodes of the clusters")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pods", type=int, default=PODS)
    parser.add_argument("--seconds", type=float, default=60, help="that Pods at once are waited for at most")
    parser.add_argument("--steady-seconds", type=float, default=15, help=f"with {PODS_A_SECOND} Pods a second")
    parser.add_argument("--schedulers", nargs="*", default=["default-scheduler", "berth"], help="names of schedulers")
    asked = parser.parse_args()
    started = perf_counter()
    program = kube_scheduler()
    database = "PostgreSQL" if os.environ.get("BERTH_DATABASE_URL") else "SQLite"
    print(f"{asked.pods} Pods at once, then {PODS_A_SECOND} a second; {database}; {machine()}; medians")
    print("CPU seconds while they are bound: the scheduler's, Berth's other processes', kube-apiserver's, etcd's")
    print(
        f"{'nodes':>6} {'':>15} {'Pods/s':>7} {'range':>14} {'scheduler':>9} {'others':>7} {'apisrv':>7} {'etcd':>6}"
        f" {'p50 ms':>7} {'p99 ms':>7}"
    )
    for size in asked.sizes:
        print_figures(size, run(size, asked.rounds, asked, program))
    print(f"took {perf_counter() - started:.0f} s; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
