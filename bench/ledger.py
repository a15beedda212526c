"""The cost of the ledger: rows a second that `manage.py verify` proves, and microseconds for a leaf at ingest.

`python -m bench.ledger` fills a database of its own with Decisions of clusters of several sizes, as the ingest does, then verifies
it. The database is an SQLite of its own, or the one that BERTH_DATABASE_URL names: `python -m tests.postgres python -m bench.ledger`.
"""

import argparse
import os
import tempfile
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

BATCH = 500
AIM = 50_000
SEVERAL = 100_000


def shipments(records: int, size: int, numbers: Iterator[int]) -> Iterator[bytes]:
    """Yield shipped Decisions: a prioritize of the classic default set."""
    from bench.engine import NOW, make_cluster, make_pod
    from policies.engine.decision import decide
    from policies.engine.default_set import default_rule_set
    from policies.engine.objects.pod import Pod
    from policies.engine.rule import Cycle
    from scheduler.decisions.record import NodesEntry, compressed, make_compressor, payload_of

    rules, snapshot, compressor = default_rule_set(), make_cluster(size), make_compressor()
    pod = Pod.from_json(make_pod(1, 1))
    rows = snapshot.table.all_rows()
    answer = decide(rules, Cycle(pod=pod, snapshot=snapshot, now=NOW), rows, filtering=False)
    encoded = NodesEntry(
        verb="prioritize", pod=pod, now=NOW, rule_set=rules, snapshot=snapshot, names=list(snapshot.nodes),
        rows=rows, answer=answer,
    ).encode()  # fmt: skip
    for _ in range(records):
        encoded.head.id, encoded.head.sequence = str(uuid.uuid4()), next(numbers)
        yield compressed(b"".join(payload_of(encoded.head.encode(), encoded.body)), compressor)


def fill(records: int, size: int, numbers: Iterator[int]) -> None:
    """Store Decisions."""
    from scheduler.decisions.frames import Kind
    from scheduler.decisions.ingest import store
    from scheduler.decisions.stream import Arrived, Shipment
    from scheduler.models import Checkpoint

    batch: list[Arrived] = []
    known = Checkpoint.objects.filter(writer="bench").first()
    first = known.next_sequence if known else 1
    started, worked = perf_counter(), process_time()
    for number, data in enumerate(shipments(records, size, numbers), start=first):
        shipment = Shipment(writer="bench", segment=1, offset=number, sequence=number, kind=Kind.DECISION, data=data)
        batch.append(Arrived(b"", shipment, {}))
        if len(batch) == BATCH:
            store(batch)
            batch = []
    if batch:
        store(batch)
    seconds = perf_counter() - started
    print(
        f"{size:>6} nodes: {records / seconds:,.0f} Decisions a second stored, {(process_time() - worked) / records * 1e6:,.0f} us of CPU each"
    )


def measure_append(leaves: int) -> None:
    """Print the time of the ledger's own part of storing."""
    from django.db import transaction

    from scheduler.ledger.append import Appender
    from scheduler.ledger.tree import leaf_hash

    data, now = b"x" * 2_000, datetime.now(UTC)
    started = perf_counter()
    with transaction.atomic():
        for _ in range(leaves // BATCH):
            with transaction.atomic():
                Appender("bench", now).append([leaf_hash(data) for _ in range(BATCH)])
        seconds = perf_counter() - started
        # There is no such log, which verification would report.
        transaction.set_rollback(True)
    print(f"appending alone: {seconds / leaves * 1e6:.1f} us a leaf of 2 kB, in batches of {BATCH}")


def measure_verify(signer: Any, size: int, processes: int, expected: int, folder: Path) -> None:
    """Print how many rows a second are proved, and the time of one, beside the time of hashing alone.

    Raises:
        RuntimeError: the ledger does not verify.
    """
    from django.db import connection

    from bench.running import cpu_of_server
    from scheduler.evidence.verify import verify
    from scheduler.ledger.logs import DECISIONS

    is_postgres = connection.vendor == "postgresql"
    started, worked, served = perf_counter(), _cpu(), cpu_of_server() if is_postgres else 0.0
    reports = verify([signer.verifier], folder, {}, lambda *_: None, processes)
    seconds, spent = perf_counter() - started, _cpu() - worked
    done = next(report for report in reports if report.log == DECISIONS).proved
    if not all(report.ok for report in reports) or done != expected:
        message = f"the ledger does not verify: {[report.faults[:1] for report in reports]}"
        raise RuntimeError(message)
    said = f"{size:>6} nodes, {processes} processes: {done / seconds:,.0f} rows a second verified (aim {AIM:,})"
    if processes > 1:
        print(f"{said}; of a processor, for each: {spent / done * 1e6:.1f} us in all of them")
        return
    here, there = spent / done * 1e6, ((cpu_of_server() - served) / done * 1e6 if is_postgres else 0.0)
    alone = hashing() * 1e6
    print(
        f"{said}; of a processor, for each: {here:.1f} us here and {there:.1f} us in the database, so {1e6 / (here + there):,.0f} "
        f"a second where nothing else runs; SHA-256 of the same bytes alone {alone:.1f} us: {alone / (here + there):.0%} of it"
    )


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def hashing() -> float:
    """Return the average seconds for hashing a record."""
    from scheduler.decisions.record import record_of
    from scheduler.ledger.tree import leaf_hash
    from scheduler.models import Decision

    bodies = Decision.objects.order_by("-ledger_index").values_list("body", flat=True)
    exacts = [record_of(bytes(body)) for body in bodies[:2_000]]
    worked = process_time()
    for exact in exacts:
        leaf_hash(exact)
    return (process_time() - worked) / len(exacts)


def main() -> None:
    """Print the results."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--records", type=int, default=50_000, help="Decisions of each size; several processes verify from 100,000 on"
    )
    parser.add_argument("--sizes", type=int, nargs="*", default=[10, 1_000])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
        os.environ["BERTH_STATE_DIR"] = name
        os.environ["BERTH_LOG_LEVEL"] = "WARNING"
        import django
        from django.core.management import call_command

        django.setup()
        from django.db import connection

        from bench.running import machine
        from scheduler.ledger.checkpoints import sign
        from scheduler.ledger.logs import DECISIONS
        from scheduler.ledger.note import Signer
        from scheduler.models import LedgerHead

        call_command("migrate", verbosity=0)
        print(f"{connection.vendor}; {machine()}")
        measure_append(20_000)
        signer, numbers = Signer.make("bench"), count(1)
        done = 0
        for size in asked.sizes:
            fill(asked.records, size, numbers)
            sign(LedgerHead.objects.get(log=DECISIONS), signer, [signer.verifier], datetime.now(UTC))
            done += asked.records
            # With fewer rows, verification uses one process.
            for processes in sorted({1, os.cpu_count() or 1} if done >= SEVERAL else {1}):
                measure_verify(signer, size, processes, done, Path(name) / "none")


if __name__ == "__main__":
    main()
