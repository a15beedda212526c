"""The cost and search speed of the history on PostgreSQL: Decisions a second, bytes each, p95 of searches and of a Pod's story.

`python -m tests.postgres python -m bench.history --rows 5000000` prints each figure beside its aim. The database is the one that
BERTH_DATABASE_URL names. It must be empty: the bench fills it, and prints the time for a million rows; five million take some
10 GB of disk. Backtests and the ledger's verification have benches of their own: `bench.backtest`, and `manage.py verify`.
"""

import argparse
import gc
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter, process_time
from typing import Any

AIM_INGEST, AIM_SEARCH_MS, AIM_STORY_MS = 5_000, 200.0, 300.0
DAYS = 28.0
_CHUNK = 100_000
_NODES = 1_000
# How many Pods are recorded between two runs of the ingest.
_AT_ONCE = 2_000


def p95(seconds: list[float]) -> float:
    """Return the 95th percentile in milliseconds."""
    return sorted(seconds)[min(int(len(seconds) * 0.95), len(seconds) - 1)] * 1000


def measure_ingest(pods: int, folder: Path) -> None:
    """Print how many Decisions a second go from Redis into the database, and the bytes of one there."""
    from bench.recording import running_redis
    from bench.running import cpu_of_server
    from scheduler.decisions.ingest import ingest
    from scheduler.decisions.record import Outcome
    from scheduler.decisions.recorder import Recorder
    from scheduler.history.storage import weigh
    from scheduler.models import DeadLetter, Decision
    from scheduler.models import Outcome as OutcomeRow
    from tests.recording import PLENTY

    made = dict(_encoded())
    with running_redis(folder) as stream:
        recorder = Recorder(
            root=folder / "spool", writer=str(uuid.uuid4()), stream=stream, max_bytes=PLENTY, checkpoints=lambda _: None
        )
        recorder.spool.open()
        handled, spent, worked, served = 0, 0.0, 0.0, 0.0
        for pod in range(pods):
            _record(recorder, made, pod, Outcome)
            if (pod + 1) % _AT_ONCE == 0 or pod == pods - 1:
                # Redis holds a limited number; only the way from Redis to the database is timed.
                while recorder.shipper.step():
                    pass
                started, worked_before, served_before = perf_counter(), process_time(), cpu_of_server()
                while found := ingest(stream):
                    handled += found
                spent += perf_counter() - started
                worked += process_time() - worked_before
                served += cpu_of_server() - served_before
        recorder.spool.close()
    decisions, outcomes = Decision.objects.count(), OutcomeRow.objects.count()
    assert (decisions, outcomes, DeadLetter.objects.count()) == (2 * pods, pods, 0)  # noqa: S101 - a bench of nothing is none
    decision_bytes, journal_bytes, _ = weigh()
    print(
        f"ingest, {_NODES:,} nodes: {decisions / spent:,.0f} Decisions a second with {outcomes / spent:,.0f} outcomes and the ledger's "
        f"leaves (aim {AIM_INGEST:,}); {handled:,} records in {spent:.1f} s"
    )
    took, copied = (worked + served) / decisions, _copy_again()
    print(
        f"  of a processor, for each: {worked / decisions * 1e6:.0f} us here and {served / decisions * 1e6:.0f} us in PostgreSQL, "
        f"so {1 / took:,.0f} a second where nothing else runs; COPY of the same rows alone, into a table without indexes, "
        f"{copied / decisions * 1e6:.0f} us: {copied / decisions / took:.0%} of it"
    )
    print(
        f"bytes: {decision_bytes / decisions:,.0f} a Decision with its indexes and its share of an outcome; "
        f"Snapshots {journal_bytes:,} in all"
    )


def _copy_again() -> float:
    """Copy the Decisions into a table without indexes; return the processor seconds of writing them, on both sides."""
    from django.db import connection

    from bench.running import cpu_of_server

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE copied (LIKE scheduler_decision)")
        with cursor.copy("COPY (SELECT * FROM scheduler_decision) TO STDOUT (FORMAT BINARY)") as copy:
            rows = [bytes(row) for row in copy]
        worked, served = process_time(), cpu_of_server()
        with cursor.copy("COPY copied FROM STDIN (FORMAT BINARY)") as copy:
            for row in rows:
                copy.write(row)
        took = process_time() - worked + cpu_of_server() - served
        cursor.execute("DROP TABLE copied")
    return took


def _encoded() -> Iterator[tuple[str, Any]]:
    """Yield an encoded Decision of each verb."""
    from bench.engine import NOW, make_cluster, make_pod
    from policies.engine.decision import decide
    from policies.engine.default_set import default_rule_set
    from policies.engine.objects.pod import Pod
    from policies.engine.rule import Cycle
    from scheduler.decisions.record import NodesEntry

    rules, snapshot = default_rule_set(), make_cluster(_NODES)
    pod = Pod.from_json(make_pod(1, 1))
    rows = snapshot.table.all_rows()
    for verb in ("filter", "prioritize"):
        scoring = verb == "prioritize"
        answer = decide(rules, Cycle(pod=pod, snapshot=snapshot, now=NOW), rows, filtering=not scoring, scoring=scoring)
        entry = NodesEntry(
            verb=verb, pod=pod, now=NOW, rule_set=rules, snapshot=snapshot, names=list(snapshot.nodes), rows=rows,
            answer=answer,
        )  # fmt: skip
        yield verb, entry.encode()


def _record(recorder: Any, made: dict[str, Any], pod: int, outcome: Callable[..., Any]) -> None:
    """Record both Decisions about a Pod, and its outcome."""
    from scheduler.decisions.record import new_id

    now, name, uid = datetime.now(UTC), f"web-{pod}", str(uuid.UUID(int=pod + 1))
    for encoded in made.values():
        head = encoded.head
        head.id, head.at, head.pod_name, head.pod_uid = new_id(), now, name, uid
        recorder._record(encoded)  # noqa: SLF001 - without what a Decision's making costs
    recorder.record_outcome(
        outcome(pod_uid=uid, pod_namespace=head.pod_namespace, pod_name=name, node_name=f"node-{pod % _NODES}", at=now)
    )


def fill_up(rows: int, until: datetime) -> None:
    """Make Decisions, and print the time for that."""
    from scheduler.history.partitions import make_ahead
    from scheduler.history.storage import weigh
    from tests.many_decisions import analyze, fill

    for weeks in range(int(DAYS // 7) + 1, -1, -1):
        make_ahead(until - timedelta(days=7 * weeks))
    started = perf_counter()
    for first in range(1, rows + 1, _CHUNK):
        fill(first, min(first + _CHUNK - 1, rows), rows=rows, until=until, days=DAYS)
    analyze()
    took = perf_counter() - started
    size, _, _ = weigh()
    print(
        f"filled: {rows:,} Decisions of {DAYS:.0f} days in {took:.0f} s, {rows / took:,.0f} a second; {size / 10**9:.1f} GB in partitions by week"
    )


def searches(rows: int, until: datetime, random: Random) -> dict[str, Callable[[], dict[str, str]]]:
    """Return searches by title: each filter alone, and the usual pairs; each search has other values every time."""
    from tests.many_decisions import NAMESPACES, NODES, REASONS, REVISIONS, RULE_SETS

    def pod() -> int:
        return random.randrange(rows // 2)

    def day() -> str:
        return f"{until - timedelta(days=random.uniform(1, DAYS - 1)):%Y-%m-%d}"

    alone: dict[str, Callable[[], str]] = {
        "q": lambda: f"web-{pod()}", "pod_namespace": lambda: f"ns-{pod() % NAMESPACES}",
        "owner": lambda: f"Deployment/app-{pod() % 5_000}", "node": lambda: f"node-{pod() % NODES}",
        "refused_by": lambda: "team", "reason": lambda: f"reason {pod() % REASONS}", "answer": lambda: random.choice(["none", "error", "some", "all"]),
        "missed": lambda: random.choice(["true", "false"]), "verb": lambda: random.choice(["filter", "prioritize", "preempt"]),
        "rule_set": lambda: f"rules-{pod() % RULE_SETS}", "rule_set_version": lambda: str(pod() % 7 + 1),
        "assignment": lambda: f"assignment-{pod() % RULE_SETS}", "revision": lambda: str(pod() % REVISIONS + 1),
        "publisher": lambda: "operator", "approver": lambda: "approver", "mode": lambda: "enforce",
        "divergence": lambda: "agreed", "best": lambda: f"node-{pod() % NODES}", "placed_on": lambda: f"node-{pod() % NODES}",
        "pod_name": lambda: f"web-{pod()}", "pod_uid": lambda: f"uid-{pod()}", "refused": lambda: random.choice(["true", "false"]),
        "process": lambda: f"extender@h:{pod() % 4}", "from": day,
    }  # fmt: skip
    pairs = [
        ("from", "pod_namespace"), ("from", "owner"), ("from", "q"), ("pod_namespace", "answer"), ("pod_namespace", "pod_name"),
        ("rule_set", "answer"), ("rule_set", "rule_set_version"), ("placed_on", "rule_set"), ("owner", "answer"),
        ("revision", "refused"), ("verb", "rule_set"), ("node", "reason"),
    ]  # fmt: skip
    asked: dict[str, Callable[[], dict[str, str]]] = {}
    for names in [*((name,) for name in alone), *pairs]:
        asked[" + ".join(names)] = partial(_query, names, alone)
    return asked


def _query(names: tuple[str, ...], alone: dict[str, Callable[[], str]]) -> dict[str, str]:
    query = {name: alone[name]() for name in names}
    # A day, from its start to its end.
    return query | ({"to": query["from"]} if "from" in query else {})


def measure_searches(rows: int, until: datetime, times: int) -> None:
    """Print the p95 of a page of each search."""
    from scheduler.decisions.search import parse_search

    print(
        f"\nsearch at {rows:,} Decisions, a page of 50, {times} times each with other values: p95 and slowest in ms (aim {AIM_SEARCH_MS:.0f})"
    )
    slow = []
    for title, ask in searches(rows, until, Random(7)).items():
        seconds = []
        for _ in range(times):
            query = ask()
            started = perf_counter()
            parse_search(query, until).page()
            seconds.append(perf_counter() - started)
        found = p95(seconds)
        slow += [title] if found > AIM_SEARCH_MS else []
        print(
            f"  {title:<28} {found:>8.1f} {max(seconds) * 1000:>8.1f}{'  beyond the aim' if found > AIM_SEARCH_MS else ''}"
        )
    print(f"beyond the aim: {', '.join(slow) or 'none'}")


def forget_pages() -> None:
    """Drop Linux's page cache, so that PostgreSQL reads from the disk; that takes root."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")


def measure_stories(rows: int, times: int) -> None:
    """Print the p95 of reading all Decisions about a Pod, including bodies, by namespace and name."""
    from scheduler.decisions.reading import recorded
    from tests.many_decisions import NAMESPACES

    random, seconds = Random(11), []
    for _ in range(times):
        pod = random.randrange(1, rows // 2)
        started = perf_counter()
        found = list(
            recorded().filter(pod_namespace=f"ns-{pod % NAMESPACES}", pod_name=f"web-{pod}").order_by("-at")[:50]
        )
        seconds.append(perf_counter() - started)
        assert found  # noqa: S101 - a bench of nothing is none
    print(f"a Pod's Decisions with bodies: p95 {p95(seconds):.1f} ms (aim of the whole story {AIM_STORY_MS:.0f})")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "--rows", type=int, default=200_000, help="Decisions to search among; the aims are for 5,000,000"
    )
    parser.add_argument("--pods", type=int, default=5_000, help="Pods for the ingest, two Decisions each")
    parser.add_argument("--times", type=int, default=20, help="how often each search is asked")
    parser.add_argument(
        "--cold", action="store_true", help="search once more with nothing of the tables in Linux's memory, as root"
    )
    parser.add_argument("--requests", type=int, default=200, help="Decisions for the request's part; 0 leaves it out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="berth-bench-") as name:
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
        os.environ["BERTH_STATE_DIR"] = name
        import django
        from django.core.management import call_command
        from django.db import connection

        django.setup()
        from bench.recording import measure
        from bench.running import machine, server_version
        from controlplane.doors import bound_statements

        if connection.vendor != "postgresql":
            parser.error("BERTH_DATABASE_URL names no PostgreSQL; begin with `python -m tests.postgres`")
        print(f"PostgreSQL {server_version()}; {machine()}")
        if asked.requests:
            print("the request's part, classic default set, 1,000 nodes (aim 150 us at p50):")
            print(
                f"{'nodes':>7} {'verb':>11} {'us p50':>9} {'of CPU':>7} {'us p99':>8} {'in spool':>10} {'stored':>10}"
            )
            measure(_NODES, asked.requests, Path(name))
            gc.unfreeze()
        call_command("migrate", verbosity=0)
        # A worker doesn't migrate: collecting the migrations' model states took half of the measured time of the ingest.
        gc.collect()
        measure_ingest(asked.pods, Path(name))
        until = datetime.now(UTC)
        fill_up(asked.rows, until)
        bound_statements(connection)  # as the admin does
        measure_searches(asked.rows, until, asked.times)
        measure_stories(asked.rows, 10 * asked.times)
        if asked.cold:
            forget_pages()
            print("\nwith an empty page cache:", end="")
            measure_searches(asked.rows, until, asked.times)


if __name__ == "__main__":
    main()
