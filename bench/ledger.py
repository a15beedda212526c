"""What the ledger costs: rows a second that `manage.py verify` proves, and microseconds that a leaf takes at ingest.

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

BATCH = 500
AIM = 50_000


def shipments(records: int, size: int, numbers: Iterator[int]) -> Iterator[bytes]:
    """Iterate over Decisions as they are shipped: a prioritize of the classic default set."""
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
    """Print what the ledger's own part of storing takes."""
    from django.db import transaction

    from scheduler.ledger.append import Appender
    from scheduler.ledger.tree import leaf_hash

    data, now = b"x" * 2_000, datetime.now(UTC)
    started = perf_counter()
    for _ in range(leaves // BATCH):
        with transaction.atomic():
            Appender("bench", now).append([leaf_hash(data) for _ in range(BATCH)])
    print(f"appending alone: {(perf_counter() - started) / leaves * 1e6:.1f} us a leaf of 2 kB, in batches of {BATCH}")


def main() -> None:
    """Print what was measured."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--records", type=int, default=20_000, help="Decisions of each size")
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
        from scheduler.evidence.verify import verify
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
            started, worked = perf_counter(), process_time()
            reports = verify([signer.verifier], Path(name) / "none", {}, lambda *_: None)
            seconds, spent = perf_counter() - started, process_time() - worked
            found = next(report for report in reports if report.log == DECISIONS)
            if not all(report.ok for report in reports) or found.proved != done + asked.records:
                message = f"the ledger does not verify: {found.faults[:1]}"
                raise RuntimeError(message)
            done = found.proved
            print(
                f"{size:>6} nodes: {done / seconds:,.0f} rows a second verified (aim {AIM:,}), {spent / done * 1e6:.1f} us of CPU each"
            )


if __name__ == "__main__":
    main()
