"""What rule sets in mode shadow cost those that are enforced: calls of the extender, and Pods a second of the binder.

`python -m bench.shadow` starts a cluster with 5,000 nodes and Berth as `make up` does. One rule set is enforced, for the binder the
classic default set. Beside it stand no shadow, a cheap one, the costliest one that lint accepts, and four of those; "inside", costly rules
in mode shadow stand in the enforced rule set itself. In each round, for each of these, calls of /filter with names follow one another
without a pause, each about another Pod, and Pods wait for the binder all at once. Between two the shadows that wait are let end. Answers
are compared: a shadow must not change one.
"""

import argparse
import http.client
import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter, sleep
from typing import Any

from bench.nodes import make_node, make_pod
from bench.running import Berth, Cluster, berth, cluster, eventually, machine, pid_of, rule_sets, scratch
from bench.timeline import timeline
from policies.engine.cel.cost import MAX_EXPRESSION_MILLISECONDS
from policies.engine.cel.expressions import Expression, Result
from scheduler.serving.shadows import WAIT_SECONDS

NODES = 5_000
SIZES = (1_000, 5_000)
SHADOWS = {"without": 0, "cheap": 1, "costliest": 1, "four": 4, "inside": 1}
COSTLY = frozenset({"costliest", "four"})
AIM_RATIO = 1.05
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
        self._names = {size: json.dumps(names[:size]) for size in SIZES}
        self._calls = 0

    def ask(self, size: int, shadow: str) -> tuple[float, str]:
        """Return how long a call took, and its answer."""
        self._calls += 1
        pod = make_pod(f"pod-{self._calls}", labels={"rules": "label", "tier": "t1", "shadow": shadow})
        pod["metadata"]["uid"] = f"uid-{self._calls}"
        body = f'{{"Pod":{json.dumps(pod)},"NodeNames":{self._names[size]}}}'.encode()
        started = perf_counter()
        self._connection.request("POST", "/filter", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse().read()
        return perf_counter() - started, answer.decode()


def quantile(figures: Iterable[float], share: float) -> float:
    """Return the smallest value that so great a share of the values doesn't exceed."""
    ascending = sorted(figures)
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]


def counts(running: Berth) -> tuple[float, float]:
    """Return how many shadows were decided and dropped."""
    lines = running.lines("berth_shadow_decisions_total")
    decided = sum(value for labels, value in lines if 'result="decided"' in labels)
    return decided, sum(value for labels, value in lines) - decided


def wait_for_shadows(running: Berth, number: float) -> tuple[float, float]:
    """Wait until so many shadows are decided or dropped."""
    eventually(lambda: sum(counts(running)) >= number, "the shadows end", seconds=300, every=0.5)
    return counts(running)


def _order(number: int, *, inside: bool) -> Iterable[str]:
    """Return the shadows of a round: there and back in turn. The first round warms up."""
    shadows = [name for name in SHADOWS if inside or name != "inside"]
    if not number:
        return shadows[:2]
    return shadows if number % 2 else reversed(shadows)


def measure_extender(running: Berth, names: Sequence[str], rounds: int, calls: int) -> None:
    """Measure /filter, and print a line for each size and shadow."""
    caller = Caller(running.port, names)
    seconds: defaultdict[tuple[int, str], list[list[float]]] = defaultdict(list)
    ended: defaultdict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    answers: defaultdict[int, set[str]] = defaultdict(set)
    for size in SIZES:
        for number in range(rounds + 1):
            for shadow in _order(number, inside=True):
                before = counts(running)
                made = [caller.ask(size, shadow) for _ in range(calls)]
                after = wait_for_shadows(running, sum(before) + calls * SHADOWS[shadow])
                answers[size] |= {answer for _, answer in made}
                if number:  # the first round warms up
                    seconds[size, shadow].append([taken for taken, _ in made])
                    ended[size, shadow].append((after[0] - before[0], after[1] - before[1]))
    print(
        f"{'/filter':>8} {'shadow':>10} {'p50 ms':>8} {'ratio':>6} {'p99 ms':>8} {'ratio':>6} {'decided':>8} {'dropped':>8}"
    )
    for (size, shadow), found in seconds.items():
        p50, p99 = (median(quantile(one, share) for one in found) * 1e3 for share in (0.5, 0.99))
        plain = seconds[size, "without"]
        base50, base99 = (median(quantile(one, share) for one in plain) * 1e3 for share in (0.5, 0.99))
        decided, dropped = (sum(figures) for figures in zip(*ended[size, shadow], strict=True))
        missed = "" if p50 <= base50 * AIM_RATIO else "  MISSED"
        print(
            f"{size:>8} {shadow:>10} {p50:>8.2f} {p50 / base50:>6.2f} {p99:>8.2f} {p99 / base99:>6.2f}"
            f" {decided:>8.0f} {dropped:>8.0f}{missed}"
        )
    for size, different in answers.items():
        print(f"{size:>8} answers: {'all the same' if len(different) == 1 else f'{len(different)} DIFFERENT'}")


def measure_binder(running: Cluster, state: Path, rounds: int, pods: int) -> None:
    """Measure Pods a second, and print a line for each shadow."""
    rates: defaultdict[str, list[float]] = defaultdict(list)
    bound: defaultdict[str, int] = defaultdict(int)
    for number in range(rounds + 1):
        for shadow in _order(number, inside=False):
            group = pid_of(state, "binder")
            os.killpg(group, signal.SIGSTOP)
            running.create_pods(_waiting(f"{shadow}-{number}-{each}", shadow) for each in range(pods))
            with timeline(running) as seen:
                os.killpg(group, signal.SIGCONT)
                ends = monotonic() + 120
                while len(seen.bound) < pods and monotonic() < ends:
                    sleep(0.01)
            if number:
                rates[shadow].append(seen.rate())
                bound[shadow] += len(seen.bound)
            running.delete_pods()
            # The binder forgets them, and drops the shadows that waited too long.
            sleep(WAIT_SECONDS + 2 if shadow in COSTLY else 2)
    print(f"{'binder':>8} {'shadow':>10} {'Pods/s':>8} {'ratio':>6} {'bound':>8}")
    for shadow, found in rates.items():
        ratio = median(found) / median(rates["without"])
        missed = "" if ratio >= 1 / AIM_RATIO and bound[shadow] == pods * rounds else "  MISSED"
        print(f"{'':>8} {shadow:>10} {median(found):>8.0f} {ratio:>6.2f} {bound[shadow]:>8}{missed}")


def _waiting(name: str, shadow: str) -> Json:
    pod = make_pod(name, labels={"rules": "none", "shadow": shadow})
    pod["spec"]["schedulerName"] = "berth"
    return pod


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=300, help="a round")
    parser.add_argument("--pods", type=int, default=500, help="a round")
    parser.add_argument("--only", choices=("extender", "binder"))
    asked = parser.parse_args()
    started = perf_counter()
    print(f"{NODES} nodes; {machine()}; medians of {asked.rounds} rounds")
    with scratch() as folder, cluster(folder / "cluster") as running:
        running.create_nodes(map(make_node, range(NODES)))
        names = [make_node(number)["metadata"]["name"] for number in range(NODES)]
        with berth(folder / "berth", running.kubeconfig, binder=asked.only != "extender") as serving:
            serving.publish(documents())
            if asked.only != "binder":
                measure_extender(serving, names, asked.rounds, asked.calls)
            if asked.only != "extender":
                measure_binder(running, folder / "berth", asked.rounds, asked.pods)
    print(f"took {perf_counter() - started:.0f} s; load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
