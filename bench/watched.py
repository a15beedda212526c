"""The benefit of sharing equal parts of watched Pods and Nodes: time and memory for reading one, with and without the cache.

`python -m bench.watched` reads such objects in batches, in turns with a cache and without it. It prints the medians of this
thread's time, the ratio of the time without the cache, and bytes an object. The first row of each kind removes nothing: its
ratio is the noise.
"""

import gc
import os
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from statistics import median
from time import thread_time
from typing import Any

import msgspec

from bench.arguments import parse_no_arguments
from bench.memories import Change, patched, uncached

POD_BATCH = 200


def measure() -> None:
    """Print the benefit of sharing for watched Pods, Pods that only count, and Nodes: microseconds and bytes each."""
    from bench.live import make_node_json, make_pod_json
    from policies.engine import quantity
    from policies.engine.objects import affinity, pod, pod_spec, requests
    from scheduler.cluster.kinds import NODES, PODS

    quantities = [uncached(quantity, name) for name in ("_parse", "_value", "_milli")]
    shared = {
        "nothing is taken away": [],
        "what a Pod counts for": [uncached(requests, "_plain")],
        "requests": [uncached(pod_spec, "_shared_requests")],
        "tolerations": [uncached(pod_spec, "_shared_tolerations")],
        "owners": [uncached(pod_spec, "_shared_owners")],
        "looks": [(pod, "_traits", pod.Traits)],
        "affinity": [uncached(affinity, "_terms")],
        "quantities": quantities,
    }

    def read_pod(text: msgspec.Raw) -> Any:
        found = PODS._read(text)  # noqa: SLF001 - without the line of a watch around it
        return found, found.terms  # the first decision reads them

    def read_node(text: msgspec.Raw) -> Any:
        found = NODES._read(text)  # noqa: SLF001 - as above
        return found, found.allocatable

    pods = [msgspec.Raw(msgspec.json.encode(make_pod_json(number, "n"))) for number in range(20 * POD_BATCH)]
    nodes = [msgspec.Raw(msgspec.json.encode(make_node_json(number))) for number in range(5 * POD_BATCH)]
    print(f"{'shared by Pods alike':>27} {'with, us':>9} {'without':>9} {'times':>6} {'bytes':>7} {'without':>9}")
    for name, without in shared.items():
        _print_shared(name, pods, read_pod, without)
    attached = [text for text in pods if b"Affinity" in bytes(text)]
    _print_shared("of Pods that have affinity", attached, read_pod, shared["affinity"])
    _print_shared("quantities of 3 containers", list(map(_tripled, pods)), read_pod, quantities)
    print(f"{'shared by Nodes alike':>27}")
    _print_shared("nothing is taken away", nodes, read_node, [])
    _print_shared("quantities", nodes, read_node, quantities)


def _tripled(text: msgspec.Raw) -> msgspec.Raw:
    """Return a Pod with three containers in place of one, so that its requests have to be summed."""
    pod = msgspec.json.decode(text)
    pod["spec"]["containers"] = [{**pod["spec"]["containers"][0], "name": f"c{number}"} for number in range(3)]
    return msgspec.Raw(msgspec.json.encode(pod))


def _print_shared(
    name: str,
    texts: Sequence[msgspec.Raw],
    read: Callable[[msgspec.Raw], Any],
    without: Sequence[Change],
) -> None:
    spent: list[list[float]] = [[], []]
    for start in range(0, len(texts), POD_BATCH):
        for turn in (0, 1):
            with patched(without if turn else []):
                started = thread_time()
                for text in texts[start : start + POD_BATCH]:
                    read(text)
                spent[turn].append((thread_time() - started) / POD_BATCH)
    kept, lost = median(spent[0]), median(spent[1])
    sizes = [_bytes_each(texts, read, changes) for changes in ([], without)]
    print(
        f"{name:>27} {kept * 1e6:>9.1f} {lost * 1e6:>9.1f} {lost / kept:>6.2f} {sizes[0]:>7.0f} {sizes[1]:>9.0f}",
        flush=True,
    )


def _bytes_each(texts: Sequence[msgspec.Raw], read: Callable[[msgspec.Raw], Any], without: Sequence[Change]) -> float:
    with patched(without):
        gc.collect()
        tracemalloc.start()
        held = [read(text) for text in texts]
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return size / len(held)


def main() -> None:
    """Print the tables."""
    parse_no_arguments(__doc__)
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        os.environ |= {
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
            "BERTH_LOCAL": "true",
            "BERTH_STATE_DIR": name,
        }
        import django

        django.setup()
        from bench.running import machine

        print(machine())
        measure()


if __name__ == "__main__":
    main()
