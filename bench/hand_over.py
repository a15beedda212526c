"""The cost of handing over a shadow for a call of /filter and a cycle of the binder: this thread's CPU time, without a cluster.

`python -m bench.hand_over` makes blocks of calls with and without shadows in turns, as in `bench.shadow`. It prints the medians of the
blocks' tenth percentiles, and the median of the pairs' ratios. Other work on the machine hardly changes CPU time, but does change the
p50 of `bench.shadow`. A cycle places its Pod by the classic default set on a Snapshot with the Pods placed before, and is recorded. The
bench asserts that the result is the same with each shadow.
"""

import argparse
import json
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep, thread_time
from typing import Any

from bench.nodes import make_node, make_pod
from bench.running import machine
from bench.shadow import NOTHING, SHADOWS, documents, quantile
from policies.engine.decision import CompiledRevision
from policies.engine.documents import read_assignment
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Revision
from policies.engine.validation import read_rule_set

_CALLS = 200
# The quantile of a block: other processes' use of the processor's caches makes most calls slower than this one.
_LOW = 0.1
# The thread that decides on shadows becomes idle between two blocks.
_REST_SECONDS = 0.1

Ask = Callable[[str], float]


def _revision() -> CompiledRevision:
    found = documents()
    rule_sets = [read_rule_set(each) for each in found if each["kind"] == "RuleSet"]
    assignments = [read_assignment(each) for each in found if each["kind"] == "Assignment"]
    return CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=assignments))


def caller(size: int, *, deciding: bool) -> tuple[Ask, Callable[[], None]]:
    """Return a function that calls with this number of nodes and returns the seconds, and one that drops waiting shadows."""
    from scheduler.extender.verbs.context import RequestContexts
    from scheduler.extender.verbs.handlers import VerbHandlers
    from scheduler.extender.verbs.in_flight import InFlight
    from scheduler.serving.shadows import Shadows
    from tests.unit.extender.verbs.test_handlers import ALL_WELL, Holder, Kept, NoBinding, StillCluster

    class Recorder(Kept):
        def record(self, entry: Any) -> None:
            """Record nothing: the cost of recording isn't measured here."""

    nodes = [make_node(number) for number in range(size)]
    live: Any = StillCluster(*nodes)
    holder: Any = Holder(_revision())
    recorder: Any = Recorder()
    in_flight, shadows = InFlight(), Shadows(recorder.record)
    contexts = RequestContexts(
        revisions=holder, live=live, in_flight=in_flight, conditions=lambda: ALL_WELL, deadline_seconds=60.0
    )
    handlers = VerbHandlers(
        contexts=contexts,
        live=live,
        in_flight=in_flight,
        binder=NoBinding(live.snapshot),
        client=None,  # type: ignore[arg-type] # nothing is bound
        recorder=recorder,
        shadows=shadows,
    )
    if deciding:
        shadows.start()
    names = json.dumps([node["metadata"]["name"] for node in nodes])
    calls = 0

    def ask(kind: str) -> float:
        nonlocal calls
        calls += 1
        pod = make_pod(f"pod-{calls}", labels={"rules": "label", "tier": "t1", "shadow": kind})
        pod["metadata"]["uid"] = f"uid-{calls}"
        body = f'{{"Pod":{json.dumps(pod)},"NodeNames":{names}}}'.encode()
        began = thread_time()
        with shadows.call():
            handlers.filter(body)
        return thread_time() - began

    return ask, shadows._waiting.clear  # noqa: SLF001 - those that wait are of no interest


def binder(size: int, *, deciding: bool) -> tuple[Ask, Callable[[], None]]:
    """Return the same functions as `caller`, for placing a Pod on one of this number of nodes."""
    from scheduler.binder.cycle import Profile
    from scheduler.binder.recording import cycle_entry, offer_shadows
    from scheduler.serving.shadows import Shadows

    profile = Profile(_revision())
    empty = snapshot = Snapshot.of([Node.from_json(make_node(number)) for number in range(size)], [])
    shadows = Shadows(lambda _: None)
    if deciding:
        shadows.start()
    # The nodes on which the Pods of a block are placed.
    expected: list[str] = []
    calls, after = 0, ""

    def ask(kind: str) -> float:
        nonlocal snapshot, calls, after
        number = calls % _CALLS
        calls += 1
        if not number:
            snapshot, after = empty, ""
        made = make_pod(f"pod-{number}", labels={"rules": "none", "shadow": kind})
        made["metadata"]["uid"] = f"uid-{number}"
        pod, every, now = Pod.from_json(made), snapshot.table.all_rows(), datetime.now(UTC)
        began = thread_time()
        with shadows.call():
            placement = profile.place(pod, snapshot, every, now=now, after=after)
            entry = cycle_entry(placement, 0.0, {})
            offer_shadows(shadows, placement, entry.id)
        taken = thread_time() - began
        after = placement.node
        if number == len(expected):
            expected.append(after)
        if expected[number] != after:
            message = f"{kind}: Pod {number} of a block gets another node than without it"
            raise RuntimeError(message)
        info = snapshot.table.infos[placement.row]
        snapshot = snapshot.branched({after: NodeInfo(info.node, [*info.pods, pod])})
        return taken

    return ask, shadows._waiting.clear  # noqa: SLF001 - those that wait are of no interest


def measure(what: str, size: int, rounds: int, kinds: Sequence[str], *, deciding: bool) -> None:
    """Print a line for each kind of shadow."""
    ask, let_go = (caller if what == "/filter" else binder)(size, deciding=deciding)

    def block(kind: str) -> float:
        seconds = quantile([ask(kind) for _ in range(_CALLS)], _LOW)
        let_go()
        sleep(_REST_SECONDS)
        return seconds

    pairs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for number in range(rounds + 1):
        for kind in kinds:
            first, second = block(kind if number % 2 else NOTHING), block(NOTHING if number % 2 else kind)
            # The first pair is a warm-up.
            pairs[kind] += [(second, first) if number % 2 else (first, second)] if number else []
    for kind, made in pairs.items():
        plain, beside = (median(side) * 1e6 for side in zip(*made, strict=True))
        ratio = median(one / other for other, one in made)
        thread = "with their thread" if deciding else "none decided"
        print(
            f"{what} {size:>5}  {kind:>10}, {thread:>17}: {plain:6.0f} us, with {beside:6.0f}, ratio {ratio:.3f}",
            flush=True,
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=20, help="pairs of each kind")
    parser.add_argument("--only", action="append", choices=("/filter", "binder"))
    asked = parser.parse_args()
    print(machine())
    with TemporaryDirectory() as folder:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "BERTH_LOCAL": "true",
            "BERTH_ROLE": "extender",
            "BERTH_STATE_DIR": folder,
        }
        import django

        django.setup()
        for what in asked.only or ("/filter", "binder"):
            for deciding in (False, True):
                # The binder's other Pods have no rule set that could contain costly rules.
                kinds = [kind for kind in SHADOWS if kind != "inside" or what == "/filter"]
                measure(what, asked.nodes, asked.rounds, kinds, deciding=deciding)
        # The thread still holds its shadows; nothing remains to be written.
        os._exit(0)


if __name__ == "__main__":
    main()
