"""What rule sets in mode shadow cost those that are enforced: calls of the extender, and Pods a second of the binder.

`python -m bench.shadow` starts a cluster with 5,000 nodes and Berth as `make up` does. One rule set is enforced, for the binder the
classic default set. Beside it stands a cheap shadow, the costliest one that lint accepts, or four of those; "inside", costly rules
in mode shadow stand in the enforced rule set itself.

Each is measured in pairs: a block of calls without a shadow and a block with it stand side by side, which of them comes first in turn, and the
ratio of a pair is that of its two p50. So what else the machine does at the time is in both. The median of the pairs counts, their quartiles
stand beside it. "nothing" is a pair of two blocks without a shadow: as far as its quartiles lie from 1, this machine can't tell. A block is
calls of /filter with names that follow one another without a pause, each about another Pod; for the binder, Pods that wait
all at once, and what counts is how long it decides on one, as its Decision says: binding is the API server's work. After a block the
shadows that wait are let end. Answers are compared: a shadow must not change one.

The whole takes half an hour; `--only extender --size 5000 --shadow costliest --calls 60` asks for one of its parts.
"""

import argparse
import http.client
import json
import os
import signal
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import Any, NamedTuple

from bench.nodes import make_node, make_pod
from bench.running import Berth, Cluster, berth, cluster, eventually, machine, pid_of, rule_sets, scratch
from bench.timeline import timeline
from policies.engine.cel.cost import MAX_EXPRESSION_MILLISECONDS
from policies.engine.cel.expressions import Expression, Result

NODES = 5_000
NOTHING = "nothing"
# How many are asked beside each answer, by the Pod's label `shadow`.
SHADOWS = {NOTHING: 0, "cheap": 1, "costliest": 1, "four": 4, "inside": 1}
AIM_RATIO = 1.05
_READ_SECONDS = 30.0
_RULES = 4
_JOINED = "!params.names.exists(n, n == node.metadata.name + pod.metadata.name + '{}')"

Json = dict[str, Any]


def costliest() -> Json:
    """Return the rule set that costs as much as lint accepts: its expressions ask each node about each of many names."""
    size = 1
    while Expression(_JOINED.format(0), Result.BOOLEAN).cost(_params(size + 1)).milliseconds() < _limit():
        size += 1
    filters = [{"name": f"joined-{rule}", "expression": _JOINED.format(rule), "reason": "no"} for rule in range(_RULES)]
    return {"filters": filters, "params": _params(size)}


def _limit() -> float:
    # All rules together may cost four times as much as one.
    return MAX_EXPRESSION_MILLISECONDS * 0.99


def _params(size: int) -> Json:
    return {"names": [f"name-{number}" for number in range(size)]}


def documents() -> list[Json]:
    """Return what is published: the enforced rule sets, and shadows by the Pod's label `shadow`."""
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
    """Calls /filter about new Pods, one call after the other."""

    def __init__(self, port: int, names: Sequence[str]) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        # Asked about are a fifth of the nodes, and all.
        self.sizes = (len(names) // 5, len(names))
        self._all = names
        self._names: dict[int, str] = {}
        self._calls = 0

    def ask(self, size: int, shadow: str) -> tuple[float, str]:
        """Return how long a call took, and its answer."""
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
    """Return the smallest value that so great a share of the values doesn't exceed."""
    ascending = sorted(figures)
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]


def counts(running: Berth, port: int = 0) -> tuple[float, float]:
    """Return how many shadows the extender decided and dropped, or who listens on another port."""
    lines = running.lines("berth_shadow_decisions_total", port)
    decided = sum(value for labels, value in lines if 'result="decided"' in labels)
    return decided, sum(value for labels, value in lines) - decided


def wait_for_shadows(running: Berth, number: float, port: int = 0) -> tuple[float, float]:
    """Wait until so many shadows are decided or dropped."""
    eventually(lambda: sum(counts(running, port)) >= number, "the shadows end", seconds=300, every=0.5)
    return counts(running, port)


class Block(NamedTuple):
    """What a block of calls or Pods came to: its p50, and what became of shadows."""

    seconds: float
    decided: float = 0.0
    dropped: float = 0.0


# The block without a shadow, and the one with it.
Pair = tuple[Block, Block]


def pairs(kinds: Sequence[str], rounds: int, measure: Callable[[str], Block]) -> dict[str, list[Pair]]:
    """Measure so many pairs of each kind, the kinds in turn, and in each pair the other block first.

    The first of each warms up and isn't kept.
    """
    found: dict[str, list[Pair]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        for kind in kinds if number % 2 else reversed(kinds):
            first, second = measure(kind if number % 2 else NOTHING), measure(NOTHING if number % 2 else kind)
            if number:
                found[kind].append((second, first) if number % 2 else (first, second))
    return found


def show(what: str, found: dict[str, list[Pair]], more: Callable[[str], str]) -> None:
    """Print a line for each kind: p50 without and with, the ratio of the pairs and its quartiles, and more about it."""
    print(f"{what:>12} {'shadow':>10} {'without':>9} {'with':>9} {'ratio':>6} {'quartiles':>13}")
    for kind, made in found.items():
        ratios = [beside.seconds / plain.seconds for plain, beside in made]
        ratio, low, high = median(ratios), quantile(ratios, 0.25), quantile(ratios, 0.75)
        plain, beside = (median(block.seconds for block in side) * 1e3 for side in zip(*made, strict=True))
        missed = "  MISSED" if kind != NOTHING and ratio > AIM_RATIO else ""
        print(
            f"{'p50 ms':>12} {kind:>10} {plain:>9.2f} {beside:>9.2f} {ratio:>6.3f} {low:>6.3f}-{high:<6.3f}"
            f"  {more(kind)}{missed}"
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


def measure_binder(running: Cluster, serving: Berth, state: Path, kinds: Sequence[str], rounds: int, pods: int) -> None:
    """Measure how long a cycle takes where Pods come all at once, and print a line for each shadow."""
    rates: defaultdict[str, list[float]] = defaultdict(list)
    bound: defaultdict[str, set[int]] = defaultdict(set)
    outcomes: set[tuple[int, int, str]] = set()
    port = int(serving.setting("BERTH_BINDER_BIND").rpartition(":")[2])

    def measure(shadow: str) -> Block:
        group = pid_of(state, "binder")
        before = counts(serving, port)
        block = f"{shadow}-{len(rates[shadow])}"
        os.killpg(group, signal.SIGSTOP)
        running.create_pods(_waiting(f"{block}-{each}", shadow) for each in range(pods))
        with timeline(running) as seen:
            began = monotonic()
            os.killpg(group, signal.SIGCONT)
            while len(seen.bound) < pods and monotonic() < began + 120:
                sleep(0.01)
        rates[shadow].append(seen.rate())
        bound[shadow].add(len(seen.bound))
        running.delete_pods()
        made = _cycles(state, block, pods)
        outcomes.update((nodes, feasible, error) for _, nodes, feasible, error in made)
        after = wait_for_shadows(serving, sum(before) + pods * SHADOWS[shadow], port)
        sleep(2)  # it forgets the Pods
        return Block(median(taken for taken, *_ in made) / 1e6, after[0] - before[0], after[1] - before[1])

    found = pairs([kind for kind in kinds if kind != "inside"], rounds, measure)

    def more(kind: str) -> str:
        unbound = "" if bound[kind] == {pods} else f"  NOT ALL BOUND: {min(bound[kind])} of {pods}"
        became = _became([pair[1] for pair in found[kind]])
        return f"{median(rates[kind]):.0f} Pods/s, {became}{unbound}"

    show("binder", found, more)
    print(f"{'binder':>12} outcomes: {'all the same' if len(outcomes) == 1 else sorted(outcomes)}")


def _cycles(state: Path, block: str, pods: int) -> list[tuple[int, int, int, str]]:
    """Return of each Pod of a block how many microseconds its first cycle took, of how many nodes how many would do, and its error."""
    query = (
        "SELECT duration_microseconds, nodes, feasible, error FROM scheduler_decision"
        " WHERE verb = 'schedule' AND mode = 'enforce' AND pod_name LIKE ? GROUP BY pod_name HAVING at = MIN(at)"
    )
    with sqlite3.connect(f"file:{state / 'berth.sqlite3'}?mode=ro", uri=True, timeout=_READ_SECONDS) as database:

        def read() -> list[tuple[int, int, int, str]]:
            return database.execute(query, (f"{block}-%",)).fetchall()

        eventually(lambda: len(read()) == pods, "the Decisions of a block are stored", seconds=300, every=0.5)
        return read()


def _waiting(name: str, shadow: str) -> Json:
    pod = make_pod(name, labels={"rules": "none", "shadow": shadow})
    pod["spec"]["schedulerName"] = "berth"
    return pod


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--rounds", type=int, default=8, help="pairs of each kind")
    parser.add_argument("--calls", type=int, default=200, help="a block")
    parser.add_argument("--pods", type=int, default=100, help="a block")
    parser.add_argument("--size", type=int, action="append", help="about so many nodes; a fifth of them, and all")
    parser.add_argument("--only", choices=("extender", "binder"))
    parser.add_argument("--shadow", action="append", choices=list(SHADOWS), help="kinds of shadow; all of them")
    asked = parser.parse_args()
    kinds: list[str] = asked.shadow or list(SHADOWS)
    started = perf_counter()
    print(f"{asked.nodes} nodes; {machine()}; medians of {asked.rounds} pairs")
    with scratch() as folder, cluster(folder / "cluster") as running:
        running.create_nodes(map(make_node, range(asked.nodes)))
        names = [make_node(number)["metadata"]["name"] for number in range(asked.nodes)]
        with berth(folder / "berth", running.kubeconfig, binder=asked.only != "extender") as serving:
            serving.publish(documents())
            if asked.only != "binder":
                measure_extender(serving, names, asked.size or (), kinds, asked.rounds, asked.calls)
            if asked.only != "extender":
                measure_binder(running, serving, folder / "berth", kinds, asked.rounds, asked.pods)
    print(f"took {perf_counter() - started:.0f} s; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
