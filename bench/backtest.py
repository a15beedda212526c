"""The speed of a backtest: `python -m bench.backtest`. Decisions a second on one core, memory, and the result of two runs.

The corpus is a cluster of the classic default set that fills up. Each Pod is asked about by /filter and /prioritize, then bound, recorded
and stored as usual. The Change adds a rule and a score, so that every Decision has to be decided again. The database is an SQLite of its
own, or the one that BERTH_DATABASE_URL names.
"""

import argparse
import resource
from pathlib import Path
from time import perf_counter, process_time

from bench.running import own_database, recorded_corpus

AIM = 1_500


def main() -> None:
    """Record, decide again, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--pods", type=int, default=2_000)
    arguments = parser.parse_args()
    with own_database() as folder:
        _measure(folder, arguments.nodes, arguments.pods)


def _measure(folder: Path, nodes: int, pods: int) -> None:
    from policies import publishing
    from policies.engine.default_set import default_document
    from policies.engine.documents import document_of
    from policies.publishing import Edit
    from scheduler.backtest.runs import Span, Worker, result_of, start_backtest
    from tests.builders import make_rule_set

    spec = document_of(default_document())["spec"]
    began = perf_counter()
    with recorded_corpus(folder, spec, nodes=nodes) as corpus:
        for number in range(pods):
            corpus.ask(f"p{number}", **({"marked": "yes"} if number % 100 == 0 else {}))
    print(f"{pods:,} Pods on {nodes:,} nodes recorded in {perf_counter() - began:.0f} s")
    rule = {"name": "planted", "expression": "!('marked' in pod.metadata.labels)", "reason": "it is marked"}
    score = {"name": "zone", "expression": "node.metadata.labels.zone == 'a' ? 1 : 0", "bounds": [0, 10]}
    more = {**spec, "filters": [*spec["filters"], rule], "scores": [*spec["scores"], score]}
    change = publishing.open_change(title="more", edits=[Edit.of(make_rule_set("web", **more))], by="bench")
    found = []
    for _ in range(2):
        row = start_backtest(change=change, by="bench", span=Span())
        began, worked = perf_counter(), process_time()
        Worker(row.pk).work()
        seconds, worked = perf_counter() - began, process_time() - worked
        row.refresh_from_db()
        result = result_of(row)
        assert result is not None, row.fault  # noqa: S101 - a bench
        found.append(bytes(row.result))
        rate = result.decided / worked
        print(
            f"{result.decided:,} of {result.decisions:,} Decisions decided in {seconds:.1f} s, {worked:.1f} s of one core: "
            f"{rate:,.0f} a second per core; aim {AIM:,}: {'met' if rate >= AIM else 'missed'}"
        )
        print(f"    {'; '.join(result.sentences)}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"twice the same bytes: {found[0] == found[1]}; memory at most {peak:,.0f} MiB, with the recorder's")


if __name__ == "__main__":
    main()
