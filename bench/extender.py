"""How long Berth takes to answer kube-scheduler, beside extenders in Go.

`python -m bench.extender` starts an API server with nodes, Berth as `make up` starts it, and two Go programs: one that
decodes all with the types of k8s.io and echoes, one that decodes the names alone and echoes them. It sends each the
same bodies over one connection that is kept, in turns, and prints the times and the ratios beside the aims.

Berth answers by two rule sets: a label rule, and the classic default set. Decisions are recorded, shipped, and stored
by the worker. Before each round a Pod is placed, so that the Snapshot is another one.
"""

import argparse
import os
import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from random import Random
from statistics import median
from time import perf_counter, sleep
from typing import NamedTuple

import msgspec

from bench.nodes import as_kube_scheduler_asks, make_node, make_pod
from bench.running import Cluster, berth, build_go_extenders, cluster, go_extender, machine, rule_sets, scratch

SIZES = (10, 100, 1_000, 5_000)
VERBS = ("filter", "prioritize")
# Calls of a block: one server, one form, one size. About a second at most.
CALLS = {10: 50, 100: 50, 1_000: 20, 5_000: 6}

# Between blocks: what one server leaves to be done shall not be the next one's burden.
_PAUSE_SECONDS = 0.3

_CHUNK = 1 << 20
_ORDERS = 3
# Stands in nodes that both rule sets refuse.
_SPECIAL = b'"pool":"special"'


class Key(NamedTuple):
    """What a time was measured of."""

    server: str
    form: str
    nodes: int
    verb: str


Times = Mapping[Key, list[float]]


class Connection:
    """One HTTP connection that is kept, as kube-scheduler's transport keeps it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(_CHUNK)

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def post(self, verb: str, start: bytes, rest: bytes) -> tuple[float, bytes]:
        """Send a body, in two parts; returns the seconds until the answer was there, and the answer.

        Raises:
            RuntimeError: the answer isn't a 200.
        """
        length = len(start) + len(rest)
        head = (
            f"POST /{verb} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Go-http-client/1.1\r\n"
            f"Content-Length: {length}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        ).encode()
        whole = b"".join((head, start, rest)) if length < _CHUNK else b""
        started = perf_counter()
        if whole:
            self._socket.sendall(whole)
        else:
            self._socket.sendall(head + start)
            self._socket.sendall(rest)
        answer = self._receive()
        return perf_counter() - started, bytes(answer)

    def _receive(self) -> memoryview:
        buffer, filled, end = self._buffer, 0, -1
        while end < 0:
            filled += self._read_into(memoryview(buffer)[filled:])
            end = buffer.find(b"\r\n\r\n", 0, filled)
        head = bytes(buffer[:end])
        start = end + 4
        length = _content_length(head)
        if start + length > len(buffer):
            self._buffer = bytearray(start + length + _CHUNK)
            self._buffer[:filled] = buffer[:filled]
            buffer = self._buffer
        view = memoryview(buffer)
        while filled < start + length:
            filled += self._read_into(view[filled : start + length])
        answer = view[start : start + length]
        if not head.startswith(b"HTTP/1.1 200"):
            message = f"{head.decode()}\n{bytes(answer[:1000]).decode()}"
            raise RuntimeError(message)
        return answer

    def _read_into(self, view: memoryview) -> int:
        read = self._socket.recv_into(view)
        if not read:
            message = "the server closed the connection"
            raise RuntimeError(message)
        return read


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    message = "the answer says no length"
    raise RuntimeError(message)


class Bodies:
    """What kube-scheduler sends: one of many Pods, and nodes.

    kube-scheduler filters in parallel, so the order of nodes is another one for each Pod, and so it is here. /prioritize is asked about the
    nodes that the rules let pass, and both verbs are the same for all servers.
    """

    def __init__(self, nodes: Sequence[bytes], pod: bytes) -> None:
        self._pod = pod
        self._sent = 0
        self._rest: dict[tuple[str, int, str, int], bytes] = {}
        for size in (size for size in SIZES if size <= len(nodes)):
            for order in range(_ORDERS):
                filtered = as_kube_scheduler_asks(nodes[:size], Random(order))
                passing = [node for node in filtered if _SPECIAL not in node]
                for verb, sent in zip(VERBS, (filtered, passing), strict=True):
                    names = [msgspec.json.decode(node, type=_Named).metadata.name for node in sent]
                    full = b',"Nodes":{"metadata":{},"items":[' + b",".join(sent) + b']},"NodeNames":null}'
                    self._rest["full", size, verb, order] = full
                    by_name = b',"Nodes":null,"NodeNames":' + msgspec.json.encode(names) + b"}"
                    self._rest["names", size, verb, order] = by_name

    def of(self, form: str, nodes: int, rules: str) -> list[tuple[str, bytes, bytes]]:
        """Return the next Pod's calls: the verb, and the body in two parts."""
        self._sent += 1
        pod = self._pod.replace(b"POD-NAME", b"web-%08d" % self._sent).replace(b"POD-RULES", rules.encode())
        return [(verb, b'{"Pod":' + pod, self._rest[form, nodes, verb, self._sent % _ORDERS]) for verb in VERBS]


class _Metadata(msgspec.Struct):
    name: str


class _Named(msgspec.Struct):
    metadata: _Metadata


class Server(NamedTuple):
    """Who is asked, and by which rules a Pod says it is to be placed."""

    name: str
    port: int
    rules: str
    forms: Sequence[str] = ("full", "names")


def _bodies(running: Cluster) -> Bodies:
    """Take nodes and a waiting Pod from the API server, as kube-scheduler has them."""
    running.create_pods([make_pod("pod-name", labels={"rules": "pod-rules"})])
    (pod,) = running.items("/api/v1/pods")
    running.delete_pods("rules=pod-rules")
    decoded = msgspec.json.decode(pod)
    # kube-scheduler's informer strips them.
    del decoded["metadata"]["managedFields"]
    decoded["metadata"] |= {"name": "POD-NAME", "uid": "00000000-0000-0000-POD-NAME"}
    decoded["metadata"]["labels"]["rules"] = "POD-RULES"
    return Bodies(running.items("/api/v1/nodes"), msgspec.json.encode(decoded))


def measure(server: Server, form: str, nodes: int, bodies: Bodies, calls: int, times: Times) -> None:
    """Ask /filter and /prioritize for one Pod after the other."""
    connection = Connection(server.port)
    try:
        for call in range(calls + 1):
            for verb, start, rest in bodies.of(form, nodes, server.rules):
                seconds, answer = connection.post(verb, start, rest)
                if verb == "filter" and msgspec.json.decode(answer, type=_Error).Error:
                    raise RuntimeError(answer[:1000].decode())
                if call:  # the first one meets a new connection
                    times[Key(server.name, form, nodes, verb)].append(seconds)
    finally:
        connection.close()


class _Error(msgspec.Struct):
    Error: str = ""


def blocks(servers: Sequence[Server], sizes: Sequence[int], rounds: int) -> Iterator[tuple[int, Server, str, int]]:
    """Iterate over the order: in each round each size and form, and of these each server, another one first each time."""
    for number in range(rounds):
        for size in sizes:
            for form in ("names", "full"):
                asked = [server for server in servers if form in server.forms]
                for index in range(len(asked)):
                    yield number, asked[(index + number) % len(asked)], form, size


def run(asked: argparse.Namespace) -> Times:
    """Start all, measure, end all."""
    times: defaultdict[Key, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        build_go_extenders(folder)
        running = stack.enter_context(cluster(folder / "cluster"))
        running.create_nodes(map(make_node, range(asked.nodes)))
        bodies = _bodies(running)
        names = [node["metadata"]["name"] for node in map(make_node, range(asked.nodes))]
        placed = [make_pod(f"placed-{n}", labels={}, node=names[n * 7 % len(names)]) for n in range(asked.pods)]
        running.create_pods(placed)
        serving = stack.enter_context(berth(folder / "berth", running.kubeconfig))
        serving.publish(rule_sets())
        typed = stack.enter_context(go_extender(folder, "extender-typed"))
        echo = stack.enter_context(go_extender(folder, "extender-names"))
        servers = [
            Server("Berth, label rule", serving.port, "label"),
            Server("Berth, classic set", serving.port, "classic"),
            Server("Go, k8s.io types", typed, "none"),
            Server("Go, names alone", echo, "none", ("names",)),
        ]
        before = -1
        for number, server, form, size in blocks(servers, asked.sizes, asked.rounds):
            if number != before:
                running.create_pods([make_pod(f"round-{number}", labels={}, node=names[number])])
                before = number
            sleep(_PAUSE_SECONDS)
            measure(server, form, size, bodies, CALLS[size], times)
        serving.settle()
        print(f"Decisions lost: {serving.metric('berth_decisions_unwritten_total'):.0f}")
    return times


def percentile(seconds: Sequence[float], share: float) -> float:
    """Return the value that this share of the others stays below."""
    return sorted(seconds)[min(int(len(seconds) * share), len(seconds) - 1)]


def print_times(times: Times) -> None:
    """Print a line for each thing measured."""
    print(
        f"\n{'server':>20} {'body':>6} {'nodes':>6} | {'filter p50':>10} {'p99':>8} | {'prior. p50':>10} {'p99':>8} | n"
    )
    for server, form, nodes in dict.fromkeys(key[:3] for key in sorted(times, key=lambda key: (key[1], key[2]))):
        columns = []
        for verb in VERBS:
            seconds = times[Key(server, form, nodes, verb)]
            columns.append(f"{median(seconds) * 1e3:>10.2f} {percentile(seconds, 0.99) * 1e3:>8.2f}")
        print(f"{server:>20} {form:>6} {nodes:>6} | {' | '.join(columns)} | {len(seconds)}")


class Aim(NamedTuple):
    """What Berth is to reach, beside another server: its median is to be at most `most` times the other's."""

    text: str
    form: str
    nodes: int
    other: str
    most: float


AIMS = (
    Aim("full, 5,000 nodes: 15 times as fast as Go with types", "full", 5_000, "Go, k8s.io types", 1 / 15),
    Aim("full, 1,000 nodes: 15 times as fast as Go with types", "full", 1_000, "Go, k8s.io types", 1 / 15),
    Aim("full, 100 nodes: 5 times as fast as Go with types", "full", 100, "Go, k8s.io types", 1 / 5),
    Aim("names, 5,000 nodes: at most 2 times the echo in Go", "names", 5_000, "Go, names alone", 2),
    Aim("names, 1,000 nodes: at most 2 times the echo in Go", "names", 1_000, "Go, names alone", 2),
)
# Aim: the p99 at 10 nodes.
FEW_NODES_SECONDS = 0.003


def print_aims(times: Times) -> None:
    """Print each aim, and whether it is met by each rule set and verb."""
    berths = list(dict.fromkeys(key.server for key in times if key.server.startswith("Berth")))
    print("\naims")
    for aim in AIMS:
        for server in berths:
            for verb in VERBS:
                ours, others = Key(server, aim.form, aim.nodes, verb), Key(aim.other, aim.form, aim.nodes, verb)
                if ours in times and others in times:
                    ratio = median(times[ours]) / median(times[others])
                    said = f"{1 / ratio:.1f} times as fast" if aim.most < 1 else f"{ratio:.2f} times"
                    print(f"  {aim.text}; {server}, {verb}: {said}{'' if ratio <= aim.most else '  MISSED'}")
    for server in berths:
        for form in ("names", "full"):
            for verb in VERBS:
                if seconds := times.get(Key(server, form, 10, verb)):
                    high = percentile(seconds, 0.99)
                    missed = "" if high <= FEW_NODES_SECONDS else "  MISSED"
                    print(f"  {form}, 10 nodes: p99 at most 3 ms; {server}, {verb}: {high * 1e3:.2f} ms{missed}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5_000, help="of the cluster")
    parser.add_argument("--pods", type=int, default=5_000, help="that are on the nodes before")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="nodes in a body")
    parser.add_argument("--rounds", type=int, default=8)
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
