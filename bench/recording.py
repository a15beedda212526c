"""The cost of recording: microseconds a request, bytes a Decision, and how fast the ingest stores.

`python -m bench.recording` prints, for clusters of several sizes and the classic default set, the time spent inside the
request (making the entry and putting it into the spool, with a Pod placed between two Decisions, so that the Snapshot
changes), the bytes in the spool and in the database, and the bytes of a Snapshot. Then it prints how many records a
second go through Redis into the database. The database is an SQLite of its own, or the one that BERTH_DATABASE_URL
names: `python -m tests.postgres python -m bench.recording`.
"""

import argparse
import os
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from scheduler.decisions.recorder import Recorder
    from scheduler.decisions.stream import DecisionStream

SIZES = (10, 1_000, 5_000)


def measure(size: int, times: int, folder: Path) -> None:
    """Print the cost of recording for clusters of a size, with the default masking."""
    from bench.engine import NOW, make_cluster, make_pod, place
    from bench.nodes import as_kube_scheduler_asks
    from policies.engine.decision import CompiledRevision, decide
    from policies.engine.default_set import default_rule_set
    from policies.engine.objects.pod import Pod
    from policies.engine.rule import Cycle
    from policies.engine.ruleset import Revision
    from scheduler.decisions.record import NodesEntry, Outcome, rows_of
    from scheduler.decisions.recorder import Recorder
    from scheduler.serving.memory import shorten_pauses
    from tests.builders import make_assignment
    from tests.recording import PLENTY, MemoryStream

    random = Random(size)
    stream: Any = MemoryStream()
    recorder = Recorder(
        root=folder / f"spool-{size}", writer=f"bench-{size}", stream=stream, max_bytes=PLENTY, checkpoints=lambda _: {},
        masks=_default_masks(),
    )  # fmt: skip
    recorder.spool.open()
    rules, revision, assignment = default_rule_set(), CompiledRevision(Revision(number=1)), make_assignment()
    snapshot = make_cluster(size)
    shorten_pauses()
    spent: dict[str, list[float]] = {"filter": [], "prioritize": []}
    worked: dict[str, list[float]] = {"filter": [], "prioritize": []}
    for number in range(times + 2):
        json = make_pod(50_000 + number, number * 7 % (size * 20 // 25))
        json["spec"]["containers"][0]["env"] = [
            {"name": f"VARIABLE_{each}", "value": f"value-{number}"} for each in range(5)
        ]
        pod, sent = Pod.from_json(json), msgspec.json.encode(json)
        names = as_kube_scheduler_asks(snapshot.table.names, random)
        rows = rows_of(snapshot.table, names)
        for verb, seconds in spent.items():
            scoring = verb == "prioritize"
            answer = decide(
                rules, Cycle(pod=pod, snapshot=snapshot, now=NOW), rows, filtering=not scoring, scoring=scoring
            )
            started, worked_before = perf_counter(), thread_time()
            recorder.record(
                NodesEntry(
                    verb=verb, pod=pod, pod_json=sent, now=NOW, revision=revision, assignment=assignment, rule_set=rules,
                    snapshot=snapshot, names=names, rows=rows, answer=answer,
                )
            )  # fmt: skip
            if number > 1:
                worked[verb].append((thread_time() - worked_before) * 1e6)
                seconds.append((perf_counter() - started) * 1e6)
        snapshot = place(snapshot, json, names[0])
        recorder.record_outcome(
            Outcome(pod_uid=pod.uid, pod_namespace=pod.namespace, pod_name=pod.name, node_name=names[0], at=NOW)
        )
    _print_sizes(size, spent, worked, recorder, stream)
    recorder.spool.close()


def _default_masks() -> Any:
    from controlplane.env import Environment
    from scheduler.decisions.masking import Masks

    defaults = Environment()
    return Masks(env=defaults.mask_env, annotations=defaults.mask_annotations, labels=defaults.mask_labels)


def _print_sizes(
    size: int, spent: dict[str, list[float]], worked: dict[str, list[float]], recorder: "Recorder", stream: Any
) -> None:
    from scheduler.decisions.frames import Kind
    from scheduler.decisions.record import split
    from scheduler.decisions.segments import Position

    recorder._journal.join(600)  # noqa: SLF001 - a bench may look inside
    raw: dict[str, list[int]] = {"filter": [], "prioritize": []}
    for number in recorder.spool.segments.numbers():
        at = Position(number)
        while (batch := recorder.spool.segments.read(at)).frames:
            at = batch.end
            for each in batch.frames:
                if each.kind == Kind.DECISION:
                    raw[split(each.payload)[0].verb].append(len(each.payload))
    recorder.shipper._checkpoints = lambda _: None  # noqa: SLF001 - nothing is stored here
    while recorder.shipper.step():
        pass
    shipped = list(stream.entries.values())
    stored: dict[str, list[int]] = {"filter": [], "prioritize": []}
    for each in shipped:
        if each.kind == Kind.DECISION:
            stored[split(each.data)[0].verb].append(len(each.data))
    for verb, seconds in spent.items():
        print(
            f"{size:>7} {verb:>11} {median(seconds):>9.0f} {median(worked[verb]):>7.0f} {sorted(seconds)[int(len(seconds) * 0.99)]:>8.0f} "
            f"{median(raw[verb]):>10.0f} {median(stored[verb]):>10.0f}"
        )
    base = sum(len(each.data) for each in shipped if each.kind == Kind.BASE)
    changes = [len(each.data) for each in shipped if each.kind == Kind.DELTA]
    print(f"{size:>7} {'Snapshot':>11}: a whole one takes {base:,} bytes, a Pod placed {median(changes):.0f}")


@contextmanager
def running_redis(folder: Path) -> Iterator["DecisionStream"]:
    """Start a Redis as `make up` does."""
    from controlplane.up import free_port, redis_server, wait_for_port
    from scheduler.decisions.stream import DecisionStream

    port = free_port()
    command = [redis_server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    process = subprocess.Popen([*command, "--appendonly", "yes"], stdout=subprocess.DEVNULL)  # noqa: S603 - our own
    try:
        if not wait_for_port(port, 20):
            message = "Redis does not start"
            raise RuntimeError(message)
        yield DecisionStream(f"redis://127.0.0.1:{port}/0")
    finally:
        process.kill()
        process.wait()


def measure_ingest(records: int, size: int, folder: Path) -> None:
    """Print how many records a second go from the spool to the database."""
    from django.db import connection

    from bench.engine import NOW, make_cluster, make_pod
    from policies.engine.decision import decide
    from policies.engine.default_set import default_rule_set
    from policies.engine.objects.pod import Pod
    from policies.engine.rule import Cycle
    from scheduler.decisions.ingest import ingest
    from scheduler.decisions.record import NodesEntry
    from scheduler.decisions.recorder import Recorder
    from tests.recording import PLENTY

    rules, snapshot = default_rule_set(), make_cluster(size)
    pod = Pod.from_json(make_pod(1, 1))
    rows = snapshot.table.all_rows()
    answer = decide(rules, Cycle(pod=pod, snapshot=snapshot, now=NOW), rows, filtering=False)
    made = NodesEntry(
        verb="prioritize", pod=pod, now=NOW, rule_set=rules, snapshot=snapshot, names=list(snapshot.nodes),
        rows=rows, answer=answer,
    )  # fmt: skip
    encoded = made.encode()
    with running_redis(folder) as stream:
        recorder = Recorder(
            root=folder / "spool", writer=str(uuid.uuid4()), stream=stream, max_bytes=PLENTY, checkpoints=lambda _: None
        )
        recorder.spool.open()
        started = perf_counter()
        for _ in range(records):
            encoded.head.id = str(uuid.uuid4())
            recorder._record(encoded)  # noqa: SLF001 - without what a Decision's making costs
        recorded = perf_counter()
        while recorder.shipper.step():
            pass
        shipped = perf_counter()
        handled = 0
        while found := ingest(stream):
            handled += found
        ingested = perf_counter()
        recorder.spool.close()
    print(
        f"{connection.vendor}, {size} nodes: {records / (recorded - started):,.0f} Decisions a second into the spool, "
        f"{handled / (shipped - recorded):,.0f} records a second to Redis, "
        f"{handled / (ingested - shipped):,.0f} from there into the database"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument("--times", type=int, default=200, help="Decisions of each verb for each size")
    parser.add_argument("--records", type=int, default=5_000, help="Decisions for the ingest")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        folder = Path(name)
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
        os.environ["BERTH_STATE_DIR"] = name
        import django
        from django.core.management import call_command

        django.setup()
        from bench.running import machine
        from scheduler.serving.memory import keep_freed_memory

        keep_freed_memory()  # as the extender does
        print(f"classic default set; {machine()}; microseconds in the request, bytes a Decision")
        print(f"{'nodes':>7} {'verb':>11} {'us p50':>9} {'of CPU':>7} {'us p99':>8} {'in spool':>10} {'stored':>10}")
        for size in asked.sizes:
            measure(size, asked.times, folder)
        call_command("migrate", verbosity=0)
        print("\none Decision again and again, from the spool through Redis to the database")
        for size in (10, 1_000):
            (folder / f"ingest-{size}").mkdir()
            measure_ingest(asked.records, size, folder / f"ingest-{size}")


if __name__ == "__main__":
    main()
