"""How long Berth takes to answer, measured by a client in Go, beside extenders in Go.

`python -m bench.extender` starts an API server with nodes, Berth as `make up` starts it, and two Go programs: one
decodes everything with the types of k8s.io and echoes it, one decodes and echoes only names. A third program calls them
in turns, with net/http over kept-alive connections, without a pause between calls. Each call has another Pod and the
nodes in another order; of a hundred nodes one has a newer heartbeat than in the previous call. Times and ratios are
printed beside the aims.

Berth answers with two rule sets: a label rule, and the classic default set. Decisions are recorded, shipped, and stored
by the worker. Before each round a Pod is placed, so that the Snapshot changes.
"""

import argparse
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import IO, Any, NamedTuple

import msgspec

from bench.nodes import make_node, make_pod
from bench.running import (
    EXTENDER_CALLER,
    Cluster,
    berth,
    build_go_programs,
    cluster,
    go_extender,
    machine,
    rule_sets,
    scratch,
)

SIZES = (10, 1_000, 5_000)
VERBS = ("filter", "prioritize")
# Orders of a full node's members besides Go's: by name, and Go's reversed.
OTHER_ORDERS = ("sorted", "reversed")
FORMS = ("names", "full", *OTHER_ORDERS)
# Other orders are measured at this size only.
OTHER_ORDERS_NODES = 1_000
# How many Pods a block has, for one server, form and size. It takes a second or two at most.
PODS = {10: 100, 100: 50, 1_000: 40, 5_000: 12}
# The typed extender takes a hundred times as long.
TYPED_PODS = {10: 100, 100: 30, 1_000: 5, 5_000: 2}

# Between blocks, so that one server's remaining work doesn't slow down the next server.
_PAUSE_SECONDS = 0.3


class Key(NamedTuple):
    """The key of a measured time."""

    server: str
    form: str
    nodes: int
    verb: str


Times = Mapping[Key, list[float]]


class Caller:
    """The client in Go, see deploy/localcluster/cmd/extender-caller."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self._input = _there(running.stdin)
        self._output = _there(running.stdout)

    def measure(self, server: "Server", form: str, nodes: int, pods: int) -> dict[str, list[float]]:
        """Call a server about one Pod after another; returns the seconds of each call by verb.

        Raises:
            RuntimeError: a call failed; the program has printed why.
        """
        block = {
            "url": f"http://127.0.0.1:{server.port}",
            "form": form,
            "nodes": nodes,
            "rules": server.rules,
            "pods": pods,
        }
        self._input.write(json.dumps(block) + "\n")
        self._input.flush()
        line = self._output.readline()
        if not line:
            message = f"the calls to {server.name} with {form}, {nodes} nodes, failed"
            raise RuntimeError(message)
        measured: dict[str, list[float]] = json.loads(line)
        return measured


def _there(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        message = "the program was started without a pipe"
        raise RuntimeError(message)
    return stream


@contextmanager
def caller(folder: Path, running: Cluster) -> Iterator[Caller]:
    """Start the caller, with the API server's nodes in three orders of members and a waiting Pod as kube-scheduler has it."""
    running.create_pods([make_pod("pod-name", labels={"rules": "pod-rules"})])
    (pod,) = map(msgspec.json.decode, running.items("/api/v1/pods"))
    running.delete_pods("rules=pod-rules")
    # kube-scheduler's informer strips them.
    del pod["metadata"]["managedFields"]
    pod["metadata"] |= {"name": "POD-NAME", "uid": "00000000-0000-0000-POD-NAME"}
    pod["metadata"]["labels"]["rules"] = "POD-RULES"
    (folder / "pod.json").write_bytes(msgspec.json.encode(pod))
    nodes = running.items("/api/v1/nodes")
    decoded = list(map(msgspec.json.decode, nodes))
    (folder / "full.json").write_bytes(b"[" + b",".join(nodes) + b"]")
    (folder / "sorted.json").write_bytes(msgspec.json.encode(decoded, order="sorted"))
    (folder / "reversed.json").write_bytes(msgspec.json.encode(reverse(decoded)))
    command = [str(folder / EXTENDER_CALLER), "-folder", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:  # noqa: S603
        yield Caller(program)


def reverse(value: Any) -> Any:
    """Return JSON with the members of each object in the reverse order."""
    if isinstance(value, dict):
        return {name: reverse(inner) for name, inner in reversed(value.items())}
    return list(map(reverse, value)) if isinstance(value, list) else value


class Server(NamedTuple):
    """A server, the rules that the Pods' label chooses, and the number of Pods in a block."""

    name: str
    port: int
    rules: str
    forms: Sequence[str]
    pods: Mapping[int, int] = PODS


def blocks(servers: Sequence[Server], asked: argparse.Namespace) -> Iterator[tuple[int, Server, str, int]]:
    """Yield the blocks in order: in each round each size and form, and for these each server, in rotating order."""
    for number in range(asked.rounds):
        for size in asked.sizes:
            for form in asked.forms:
                if form in OTHER_ORDERS and size != OTHER_ORDERS_NODES:
                    continue
                able = [server for server in servers if form in server.forms]
                for index in range(len(able)):
                    yield number, able[(index + number) % len(able)], form, size


def run(asked: argparse.Namespace) -> Times:
    """Start all, measure, end all."""
    times: defaultdict[Key, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        build_go_programs(folder)
        running = stack.enter_context(cluster(folder / "cluster"))
        running.create_nodes(map(make_node, range(asked.nodes)))
        calling = stack.enter_context(caller(folder, running))
        names = [node["metadata"]["name"] for node in map(make_node, range(asked.nodes))]
        placed = [make_pod(f"placed-{n}", labels={}, node=names[n * 7 % len(names)]) for n in range(asked.pods)]
        running.create_pods(placed)
        serving = stack.enter_context(berth(folder / "berth", running.kubeconfig))
        serving.publish(rule_sets())
        typed = stack.enter_context(go_extender(folder, "extender-typed"))
        echo = stack.enter_context(go_extender(folder, "extender-names"))
        servers = [
            Server("Berth, label rule", serving.port, "label", ("names", "full")),
            Server("Berth, classic set", serving.port, "classic", FORMS),
            Server("Go, k8s.io types", typed, "none", ("full",), TYPED_PODS),
            Server("Go, names alone", echo, "none", ("names",)),
        ]
        before = -1
        for number, server, form, size in blocks(servers, asked):
            if number != before:
                running.create_pods([make_pod(f"round-{number}", labels={}, node=names[number])])
                before = number
            sleep(_PAUSE_SECONDS)
            for verb, seconds in calling.measure(server, form, size, server.pods[size]).items():
                times[Key(server.name, form, size, verb)] += seconds
        serving.settle()
        print(f"Decisions lost: {serving.metric('berth_decisions_unwritten_total'):.0f}")
    return times


def percentile(seconds: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values is."""
    return sorted(seconds)[min(int(len(seconds) * share), len(seconds) - 1)]


def print_times(times: Times) -> None:
    """Print a line for each thing measured."""
    head = f"\n{'server':>20} {'body':>8} {'nodes':>6}"
    print(head + "".join(f" | {verb[:6]:>6} p50 {'p90':>8} {'p99':>8}" for verb in VERBS) + " | n")
    for server, form, nodes in dict.fromkeys(key[:3] for key in sorted(times, key=lambda key: (key[1], key[2]))):
        columns = []
        for verb in VERBS:
            seconds = times[Key(server, form, nodes, verb)]
            marks = (median(seconds), percentile(seconds, 0.9), percentile(seconds, 0.99))
            columns.append("{:>10.2f} {:>8.2f} {:>8.2f}".format(*(mark * 1e3 for mark in marks)))
        print(f"{server:>20} {form:>8} {nodes:>6} | {' | '.join(columns)} | {len(seconds)}")


class Aim(NamedTuple):
    """An aim of Berth: its median is at most `most` times that of another server or form."""

    form: str
    nodes: int
    most: float
    beside: str
    other_form: str = ""


AIMS = (
    *(Aim("full", nodes, 1 / 15, "Go, k8s.io types") for nodes in (1_000, 5_000)),
    Aim("names", 1_000, 1.5, "Go, names alone"),
    *(Aim(order, OTHER_ORDERS_NODES, 2, "", "full") for order in OTHER_ORDERS),
)
# The aim for the p99 at 10 nodes.
FEW_NODES_SECONDS = 0.003


def print_aims(times: Times) -> None:
    """Print each aim, and whether it is met by each rule set and verb."""
    print("\naims")
    for key in sorted(times):
        if not key.server.startswith("Berth"):
            continue
        for aim in AIMS:
            beside = Key(aim.beside or key.server, aim.other_form or key.form, key.nodes, key.verb)
            if (key.form, key.nodes) == (aim.form, aim.nodes) and beside in times:
                ratio = median(times[key]) / median(times[beside])
                fast = "times as fast as" if aim.most < 1 else "times as long as"
                most, reached = (1 / aim.most, 1 / ratio) if aim.most < 1 else (aim.most, ratio)
                _print_aim(
                    key, f"{most:g} {fast} {aim.beside or 'the usual order'}", f"{reached:.2f}", ratio <= aim.most
                )
        if key.nodes == min(SIZES) and key.form in {"names", "full"}:
            high = percentile(times[key], 0.99)
            _print_aim(key, "p99 at most 3 ms", f"{high * 1e3:.2f}", high <= FEW_NODES_SECONDS)


def _print_aim(key: Key, aim: str, reached: str, is_met: bool) -> None:  # noqa: FBT001 - the column of a table
    print(f"  {', '.join(map(str, key))}, {aim}: {reached}{'' if is_met else '  MISSED'}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000, help="of the cluster")
    parser.add_argument("--pods", type=int, default=5_000, help="that are on the nodes before")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="nodes in a body")
    parser.add_argument("--forms", nargs="*", default=FORMS, choices=FORMS, help="of bodies")
    parser.add_argument("--rounds", type=int, default=6)
    asked = parser.parse_args()
    asked.sizes = [size for size in asked.sizes if size <= asked.nodes]
    started = perf_counter()
    database = "PostgreSQL" if os.environ.get("BERTH_DATABASE_URL") else "SQLite"
    print(f"cluster of {asked.nodes} nodes and {asked.pods} Pods; {database}; {machine()}; milliseconds")
    times = run(asked)
    print_times(times)
    print_aims(times)
    print(f"\ntook {perf_counter() - started:.0f} s; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
