"""The cost of rule sets in mode shadow for the enforced ones: calls of the extender, and Pods a second of the binder.

`python -m bench.shadow` starts a cluster with 5,000 nodes and Berth as `make up` does. One rule set is enforced; for the binder it is the
classic default set. Beside it runs a cheap shadow, the costliest one that lint accepts, or four of the costliest. With "inside", costly
rules in mode shadow are part of the enforced rule set itself.

Measurements are pairs: a block of calls without a shadow next to a block with one, in alternating order. The ratio of a pair is that of
its two p50, so that other work on the machine affects both sides. The result is the median of the pairs, with the interval that
contains it in 19 of 20 runs. "nothing" is a pair of two blocks without a shadow in the same run: ratios within its interval can't be
distinguished from noise on this machine. A shadow misses its aim if its whole interval is above the aim and above that of nothing, and
keeps the aim if its whole interval is below the aim. Otherwise the run is too short or the machine too noisy for a verdict.

A block of /filter is calls without a pause, each for another Pod, with equally many names. The binder runs in this process. Its pair is
one block of Pods that all wait on an empty cluster, a mixed half of them with the shadow, so that work of the API server affects both
halves. The result counts all work of its deciding thread for a Pod, in elapsed time and in the thread's processor time. After a block,
waiting shadows of the extender are finished, and those of the binder dropped. Answers and chosen nodes are compared: a shadow must not
change any.

A full run takes half an hour; `--only extender --size 5000 --shadow costliest --calls 60` runs one of its parts.
"""

import argparse
import http.client
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import sqrt
from statistics import median
from threading import Event
from time import perf_counter, thread_time
from typing import Any, NamedTuple

from bench.nodes import make_node, make_pod
from bench.running import Berth, Cluster, berth, cluster, eventually, machine, rule_sets, scratch
from policies.engine.cel.cost import MAX_EXPRESSION_MILLISECONDS
from policies.engine.cel.expressions import Expression, Result

NODES = 5_000
NOTHING = "nothing"
# How many shadows are decided for each answer, by the Pod's label `shadow`.
SHADOWS = {NOTHING: 0, "cheap": 1, "costliest": 1, "four": 4, "inside": 1}
AIM_RATIO = 1.05
# After each block of calls the extender's shadows are finished, which takes longer than the binder's blocks of Pods.
_ROUNDS, _BINDER_ROUNDS = 8, 60
# Within so many standard deviations are 19 of 20 values of a normal distribution.
_DEVIATIONS = 1.96
_RULES = 4
# The halves of a block for the binder.
_WITHOUT, _WITH = "without", "with"
_JOINED = "!params.names.exists(n, n == node.metadata.name + pod.metadata.name + '{}')"

Json = dict[str, Any]


def costliest() -> Json:
    """Return the costliest rule set that lint accepts: its expressions compare each node with each of many names."""
    size = 1
    while Expression(_JOINED.format(0), Result.BOOLEAN).cost(_params(size + 1)).milliseconds() < _limit():
        size += 1
    filters = [{"name": f"joined-{rule}", "expression": _JOINED.format(rule), "reason": "no"} for rule in range(_RULES)]
    return {"filters": filters, "params": _params(size)}


def _limit() -> float:
    # All rules together may cost four times as much as a single rule.
    return MAX_EXPRESSION_MILLISECONDS * 0.99


def _params(size: int) -> Json:
    return {"names": [f"name-{number}" for number in range(size)]}


def documents() -> list[Json]:
    """Return the published documents: the enforced rule sets, and shadows by the Pod's label `shadow`."""
    cheap = {
        "filters": [{"name": "pool", "expression": "node.metadata.?labels.pool.orValue('') == 'x'", "reason": "no"}]
    }
    sets = {"cheap": cheap, "costliest": costliest()} | {f"four-{number}": costliest() for number in range(4)}
    found = rule_sets(order=len(sets) + 1)
    inside = found[0]["spec"]["filters"] + [{**rule, "mode": "shadow"} for rule in costliest()["filters"][1:]]
    sets["inside"] = {"filters": inside, "params": costliest()["params"]}
    for order, (name, spec) in enumerate(sets.items()):
        match = {"podSelector": {"matchLabels": {"shadow": name.partition("-")[0]}}}
        mode = "enforce" if name == "inside" else "shadow"
        assignment = {"order": order, "ruleSet": name, "mode": mode, "match": match}
        found += [
            {"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {"name": name}, "spec": spec},
            {"apiVersion": "berth/v1", "kind": "Assignment", "metadata": {"name": name}, "spec": assignment},
        ]
    return found


class Caller:
    """Calls /filter about new Pods, one call after another."""

    def __init__(self, port: int, names: Sequence[str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        # A fifth of the nodes, and all.
        self.sizes = (len(names) // 5, len(names))
        self._all = names
        self._names: dict[int, str] = {}
        self._calls = 0

    def ask(self, size: int, shadow: str) -> tuple[float, str]:
        """Return the time of a call, and its answer."""
        self._calls += 1
        pod = make_pod(f"pod-{self._calls}", labels={"rules": "label", "tier": "t1", "shadow": shadow})
        pod["metadata"]["uid"] = f"uid-{self._calls}"
        if size not in self._names:
            self._names[size] = json.dumps(self._all[:size])
        body = f'{{"Pod":{json.dumps(pod)},"NodeNames":{self._names[size]}}}'.encode()
        started = perf_counter()
        self._connection.request("POST", "/filter", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse().read()
        return perf_counter() - started, answer.decode()


def quantile(figures: Iterable[float], share: float) -> float:
    """Return the smallest value that this share of the values doesn't exceed."""
    ascending = sorted(figures)
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]


def counts(running: Berth, port: int = 0) -> tuple[float, float]:
    """Return how many shadows the extender, or the process on another port, decided and dropped."""
    lines = running.lines("berth_shadow_decisions_total", port)
    decided = sum(value for labels, value in lines if 'result="decided"' in labels)
    return decided, sum(value for labels, value in lines) - decided


def wait_for_shadows(running: Berth, number: float) -> tuple[float, float]:
    """Wait until this number of shadows is decided or dropped."""
    eventually(lambda: sum(counts(running)) >= number, "the shadows end", seconds=300, every=0.5)
    return counts(running)


class Block(NamedTuple):
    """The results of a block of calls or Pods: its p50, the outcome of shadows, and the p50 of processor time if known."""

    seconds: float
    decided: float = 0.0
    dropped: float = 0.0
    processor_seconds: float = 0.0


# The block without a shadow, and the one with it.
Pair = tuple[Block, Block]


def pairs(kinds: Sequence[str], rounds: int, measure: Callable[[str], Block]) -> dict[str, list[Pair]]:
    """Measure `rounds` pairs of each kind, with the kinds in turns and alternating order within the pairs.

    The first pair of each kind is a warm-up and isn't kept.
    """
    found: dict[str, list[Pair]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        for kind in kinds if number % 2 else reversed(kinds):
            first, second = measure(kind if number % 2 else NOTHING), measure(NOTHING if number % 2 else kind)
            if number:
                found[kind].append((second, first) if number % 2 else (first, second))
    return found


def interval(ratios: Iterable[float]) -> tuple[float, float]:
    """Return the interval that contains the median in 19 of 20 runs for any distribution: two of the ratios, by rank."""
    ascending = sorted(ratios)
    count = len(ascending)
    low = max(0, int((count - _DEVIATIONS * sqrt(count)) / 2))
    return ascending[low], ascending[count - 1 - low]


def verdict(kind: str, found: tuple[float, float], of_nothing: tuple[float, float]) -> str:
    """Return the verdict on an interval, given that of nothing."""
    low, high = found
    if kind == NOTHING:
        can = "can" if max(high, 1 / low) <= AIM_RATIO else "CAN'T"
        return f"this run {can} tell {AIM_RATIO - 1:.0%}"
    if low > max(AIM_RATIO, of_nothing[1]):
        return "MISSED"
    return "kept" if high <= AIM_RATIO else "NOT TOLD"


def show(what: str, found: dict[str, list[Pair]], more: Callable[[str], str]) -> None:
    """Print a line for each kind: p50 without and with, the pairs' ratio and its interval, the verdict, and more."""
    print(f"{what:>12} {'shadow':>10} {'without':>9} {'with':>9} {'ratio':>6} {'interval':>13}")
    ratios = {kind: [beside.seconds / plain.seconds for plain, beside in made] for kind, made in found.items()}
    of_nothing = interval(ratios.get(NOTHING, [1.0]))
    for kind, made in found.items():
        low, high = interval(ratios[kind])
        plain, beside = (median(block.seconds for block in side) * 1e3 for side in zip(*made, strict=True))
        print(
            f"{'p50 ms':>12} {kind:>10} {plain:>9.3f} {beside:>9.3f} {median(ratios[kind]):>6.3f} {low:>6.3f}-{high:<6.3f}"
            f"  {verdict(kind, (low, high), of_nothing)}; {more(kind)}",
            flush=True,
        )


def measure_extender(
    running: Berth, names: Sequence[str], sizes: Sequence[int], kinds: Sequence[str], rounds: int, calls: int
) -> None:
    """Measure /filter, and print a line for each size and shadow."""
    caller = Caller(running.port, names)
    for size in sizes or caller.sizes:
        answers: set[str] = set()

        def measure(shadow: str, size: int = size, answers: set[str] = answers) -> Block:
            before = counts(running)
            made = [caller.ask(size, shadow) for _ in range(calls)]
            after = wait_for_shadows(running, sum(before) + calls * SHADOWS[shadow])
            answers.update(answer for _, answer in made)
            return Block(median(taken for taken, _ in made), after[0] - before[0], after[1] - before[1])

        found = pairs(kinds, rounds, measure)
        became = {kind: _became([pair[1] for pair in made]) for kind, made in found.items()}
        show(f"/filter {size}", found, became.__getitem__)
        print(f"{size:>12} answers: {'all the same' if len(answers) == 1 else f'{len(answers)} DIFFERENT'}")


def _became(blocks: Sequence[Block]) -> str:
    decided, dropped = sum(block.decided for block in blocks), sum(block.dropped for block in blocks)
    return f"{decided:.0f} shadows decided, {dropped:.0f} dropped"


class Cycles:
    """A binder in this process, whose cycles are timed, and which begins a block of Pods when all of them exist.

    The time is all work of the deciding thread for a Pod, until it hands the binding over; the binding is the API server's.
    """

    def __init__(self, running: Cluster) -> None:
        from scheduler.binder.runtime import Runtime

        self._running, self._runtime = running, Runtime()
        self.shadows, self._loop = self._runtime.shadows, self._runtime.loop
        self._may_begin = Event()
        self._times: list[tuple[float, float]] = []
        self._outcomes: list[tuple[str, str]] = []
        self._loop._deciding, self._loop._record = self._timed, self._noted  # noqa: SLF001
        self._blocks = 0

    def start(self, revision: float) -> None:
        """Start it, and wait until it serves a Revision and leads."""
        from scheduler.serving.memory import shorten_pauses

        self._runtime.start()
        eventually(
            lambda: (served := self._runtime.revisions.current) is not None and served.number >= revision,
            "the Revision is served",
        )
        eventually(self._runtime.elector.leads, "it leads")
        shorten_pauses()

    def stop(self) -> None:
        """End it."""
        self._may_begin.set()
        self._runtime.stop()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        self._may_begin.wait()
        if not self._times:
            self._loop._last_node = ""  # noqa: SLF001 - every block begins at the same node
        began = perf_counter(), thread_time()
        with self.shadows.call():
            yield
        self._times.append((perf_counter() - began[0], thread_time() - began[1]))

    def _noted(self, placement: Any, seconds: float, notes: Json) -> str:
        self._outcomes.append((placement.pod.labels["side"], placement.node or "refused"))
        return self._runtime._record(placement, seconds, notes)  # noqa: SLF001

    def place(self, pods: int, shadow: str) -> tuple[Pair, tuple[str, ...]]:
        """Return the p50 of cycles without and with a shadow, equally many of each in turns, and the nodes in the Pods' order."""
        self._blocks += 1
        self._may_begin.clear()
        self._times, self._outcomes = [], []
        self._running.create_pods(
            _waiting(f"{shadow}-{self._blocks}-{each}", side, shadow if side == _WITH else NOTHING)
            for each in range(pods)
            for side in (_WITHOUT, _WITH)
        )
        eventually(lambda: len(self._runtime.live.pods()) == 2 * pods, "it has heard of all Pods", every=0.005)
        bound = self._loop.bound
        self._may_begin.set()
        eventually(lambda: self._loop.bound == bound + 2 * pods, "all Pods are bound", every=0.005)
        nodes = tuple(node for _, node in self._outcomes)
        pair = self._p50(_WITHOUT), self._p50(_WITH)
        self._running.delete_pods()
        eventually(lambda: not self._runtime.live.pods(), "it has heard that they are gone", every=0.005)
        return pair, nodes

    def _p50(self, side: str) -> Block:
        taken = [times for times, (of, _) in zip(self._times, self._outcomes, strict=True) if of == side]
        clock, processor = (median(kind) for kind in zip(*taken, strict=True))
        return Block(clock, processor_seconds=processor)

    def drop_what_waits(self) -> None:
        """Drop and count the undecided shadows, and finish the current one."""
        self.shadows.count_passed_over()
        with suppress(IndexError):  # its thread takes shadows from the queue, too
            while True:
                self.shadows.drop(self.shadows._waiting.popleft().subject)  # noqa: SLF001
        self.shadows._until = 0.0  # noqa: SLF001


def measure_binder(running: Cluster, serving: Berth, kinds: Sequence[str], rounds: int, pods: int) -> None:
    """Measure cycles of a binder in this process, and print two lines for each shadow: by the clock, and processor time."""
    cycles = Cycles(running)
    port = int(serving.setting("BERTH_BINDER_BIND").rpartition(":")[2])
    outcomes: set[tuple[str, ...]] = set()

    def measure(shadow: str) -> Pair:
        before = counts(serving, port)
        (plain, beside), nodes = cycles.place(pods, shadow)
        outcomes.add(nodes)

        def is_over() -> bool:
            cycles.drop_what_waits()
            return sum(counts(serving, port)) >= sum(before) + pods * SHADOWS[shadow]

        eventually(is_over, "the shadows end")
        after = counts(serving, port)
        return plain, beside._replace(decided=after[0] - before[0], dropped=after[1] - before[1])

    cycles.start(serving.metric("berth_revision"))
    try:
        # The binder's other Pods have no rule set that could contain costly rules.
        asked = [kind for kind in kinds if kind != "inside"]
        for kind in asked:  # a warm-up
            measure(kind)
        found: dict[str, list[Pair]] = {kind: [] for kind in asked}
        for _ in range(rounds):
            for kind in asked:
                found[kind].append(measure(kind))
    finally:
        cycles.stop()
    became = {kind: _became([pair[1] for pair in made]) for kind, made in found.items()}
    show("cycle", found, became.__getitem__)
    processor = {
        kind: [
            (one._replace(seconds=one.processor_seconds), other._replace(seconds=other.processor_seconds))
            for one, other in made
        ]
        for kind, made in found.items()
    }
    show("its thread", processor, became.__getitem__)
    print(f"{'binder':>12} nodes chosen: {'all the same' if len(outcomes) == 1 else f'{len(outcomes)} DIFFERENT'}")


def _waiting(name: str, side: str, shadow: str) -> Json:
    pod = make_pod(f"{name}-{side}", labels={"rules": "none", "side": side, "shadow": shadow})
    pod["spec"]["schedulerName"] = "berth"
    return pod


def be_its_binder(serving: Berth) -> None:
    """Set Django up in this process with the settings of a running Berth, as its binder."""
    os.environ |= serving.environment | {
        "BERTH_ROLE": "binder",
        "BERTH_LOG_LEVEL": "WARNING",
        "DJANGO_SETTINGS_MODULE": "controlplane.settings",
    }
    import django

    django.setup()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--rounds", type=int, help="pairs of each kind")
    parser.add_argument("--calls", type=int, default=200, help="a block")
    parser.add_argument("--pods", type=int, default=40, help="with a shadow in a block, and as many without")
    parser.add_argument("--size", type=int, action="append", help="about so many nodes; a fifth of them, and all")
    parser.add_argument("--only", choices=("extender", "binder"))
    parser.add_argument("--shadow", action="append", choices=list(SHADOWS), help="kinds of shadow; all of them")
    asked = parser.parse_args()
    kinds: list[str] = asked.shadow or list(SHADOWS)
    started = perf_counter()
    print(f"{asked.nodes} nodes; {machine()}; medians of pairs")
    with scratch() as folder, cluster(folder / "cluster") as running:
        running.create_nodes(map(make_node, range(asked.nodes)))
        names = [make_node(number)["metadata"]["name"] for number in range(asked.nodes)]
        with berth(folder / "berth", running.kubeconfig, binder=False) as serving:
            serving.publish(documents())
            if asked.only != "binder":
                measure_extender(serving, names, asked.size or (), kinds, asked.rounds or _ROUNDS, asked.calls)
            if asked.only != "extender":
                be_its_binder(serving)
                measure_binder(running, serving, kinds, asked.rounds or _BINDER_ROUNDS, asked.pods)
    print(f"took {perf_counter() - started:.0f} s; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
