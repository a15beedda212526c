"""How long the page of a Pod's story takes, including reading its Decisions: `python -m bench.stories`; aim: a p95 of 300 ms.

The Pods fit on no node, each time because of another rule, so that each attempt is listed separately; other Pods are placed between two
attempts. The database is an SQLite of its own, or the one that BERTH_DATABASE_URL names (`python -m tests.postgres python -m bench.stories`).
"""

import argparse
from pathlib import Path
from time import perf_counter, process_time

from bench.running import own_database, recorded_corpus

AIM_MS = 300.0
_RULES = 5


def main() -> None:
    """Record, request pages, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--attempts", type=int, nargs="*", default=[2, 20, 200])
    parser.add_argument("--times", type=int, default=20, help="how often each page is asked for")
    asked = parser.parse_args()
    with own_database() as folder:
        _record(folder, asked.nodes, asked.attempts)
        _measure(asked.nodes, asked.attempts, asked.times)


def _record(folder: Path, nodes: int, attempts: list[int]) -> None:
    from policies.engine.default_set import default_document
    from policies.engine.documents import document_of

    spec = document_of(default_document())["spec"]
    spec["filters"] = [
        {
            "name": f"no{number}",
            "expression": f"pod.metadata.?labels.turn.orValue('') != '{number}'",
            "reason": f"turn {number}",
        }
        for number in range(_RULES)
    ] + spec["filters"]
    with recorded_corpus(folder, spec, nodes=nodes) as corpus:
        for count in attempts:
            for number in range(count):
                corpus.ask(f"stuck-{count}", turn=str(number % _RULES))
                corpus.ask(f"other-{count}-{number}")


def _measure(nodes: int, attempts: list[int], times: int) -> None:
    from django.conf import settings
    from django.contrib.auth.models import User
    from django.test import Client

    from bench.history import p95
    from bench.running import machine

    settings.ALLOWED_HOSTS = ["*"]
    client = Client()
    client.force_login(User.objects.create_superuser("bench"))
    print(machine())
    client.get("/admin/scheduler/pods/default/none/", secure=True)  # loads modules and templates
    for count in attempts:
        seconds, worked = [], []
        for _ in range(times):
            began, used = perf_counter(), process_time()
            page = client.get(f"/admin/scheduler/pods/default/stuck-{count}/", secure=True)
            seconds.append(perf_counter() - began)
            worked.append(process_time() - used)
            told = page.content.count(f" of {nodes:,} nodes</span>".encode())
            assert told == count, (told, page.status_code)  # noqa: S101 - a bench of nothing is none
        print(
            f"{nodes:,} nodes, {count:>3} attempts: p95 {p95(seconds):.0f} ms, {sorted(worked)[times // 2] * 1000:.0f} ms of CPU in the "
            f"middle (aim {AIM_MS:.0f}); {len(page.content):,} bytes"
        )


if __name__ == "__main__":
    main()
