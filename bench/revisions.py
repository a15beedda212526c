"""The cost of publishing with 20, 200 and 1,000 rule sets: seconds until a Revision is served, delays of calls, bytes and memory.

`python -m bench.revisions` publishes the rule sets with `manage.py apply --publish`, then two Assignments for each, then
single changes of one rule set. Meanwhile this process does what an extender does: it takes up Revisions in one thread and answers
/filter with 10 and 1,000 nodes in another. Calls are timed in turns: with nothing to take up, and while a change is published and
taken up. The results are printed beside the aims. The bench also prints the time and size of a Revision's page, the bytes of one
change, and the start-up time and memory of an extender in a process of its own.

`python -m bench.revisions --publishes 40 --sets 1000` prints the start-up time with that many rule sets, and the memory after
5, 10, 20 and all publishes, while calls pin Pods to each Revision; `--every` is the time between two publishes, in seconds.

The database is an SQLite of its own, or the one that BERTH_DATABASE_URL names: `python -m tests.postgres python -m bench.revisions`.
"""

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from time import monotonic, perf_counter, process_time, sleep
from typing import Any

from scheduler.serving.pace import CALLS_IN_HAND

SIZES = (20, 200, 1_000)
NODES = (10, 1_000)
_IDLE_SECONDS = 3.0
_ROUNDS = 3
# All sizes ask about the same number of teams, so that the processor's caches help each of them equally.
_TEAMS = 20
_TURNS = 25
# The extender's interval between two polls for a newer Revision.
_POLL_SECONDS = 0.5

AIMS = {
    "publish s": 4.0,
    "change served s": 2.0,
    "change bytes": 5_000.0,
    "page ms": 300.0,
    "p99 ms more": 2.0,
    "p50 ratio": 1.1,
}

# Publishes files whose paths it reads, in a long-running process, and prints a line after each.
_PUBLISHER = """
import sys
import django
django.setup()
from django.core.management import call_command
for line in sys.stdin:
    call_command("apply", "--publish", "--reason", "bench", line.strip(), stdout=sys.stderr)
    print("done", flush=True)
"""

Json = dict[str, Any]


def rule_set(number: int, wanted: str = "") -> Json:
    """Return a rule set; `wanted` is the value that it requires of a node's label."""
    value = wanted or f"team-{number}"
    spec: Json = {
        "filters": [
            {
                "name": "team",
                "expression": f"node.metadata.?labels.team.orValue('{value}') == '{value}'",
                "reason": "another team's",
            }
        ],
        "scores": [{"builtin": "LeastRequestedPriority"}],
    }
    return {"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {"name": f"team-{number}"}, "spec": spec}


def assignments(number: int) -> list[Json]:
    """Return the two Assignments of a rule set."""
    made = []
    for part in range(2):
        match = {"namespaces": ["shop"], "podSelector": {"matchLabels": {"team": f"team-{number}", "part": str(part)}}}
        spec = {"order": 2 * number + part + 1, "ruleSet": f"team-{number}", "match": match}
        metadata = {"name": f"team-{number}-{part}"}
        made.append({"apiVersion": "berth/v1", "kind": "Assignment", "metadata": metadata, "spec": spec})
    return made


class Caller:
    """Calls /filter repeatedly, with each number of nodes in turn and each time another Pod, and records the times."""

    def __init__(self, ask: Callable[[int, int], object], pause_seconds: float = 0.001) -> None:
        self._ask = ask
        self._pause_seconds = pause_seconds
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._kind = ""
        self._calls: dict[tuple[str, int], list[float]] = {}
        self.number = 0
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            kind, nodes = self._kind, NODES[self.number % len(NODES)]
            started = perf_counter()
            self._ask(self.number, nodes)
            if kind and kind == self._kind:
                self._calls.setdefault((kind, nodes), []).append((perf_counter() - started) * 1e3)
            self.number += 1
            sleep(self._pause_seconds)

    def note(self, kind: str) -> None:
        """Record later calls as this kind; none if it is empty."""
        self._kind = kind

    def milliseconds(self, kind: str, nodes: int) -> tuple[float, float, float]:
        """Return p50, p99 and maximum of the calls of a kind."""
        taken = sorted(self._calls[kind, nodes])
        return taken[len(taken) // 2], taken[int(len(taken) * 0.99)], taken[-1]

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self._thread.join()


def publish(documents: Sequence[Json], folder: Path) -> tuple[float, float]:
    """Publish documents in another process; returns its elapsed seconds and processor seconds."""
    file = folder / "rules.json"
    file.write_text("\n---\n".join(map(json.dumps, documents)))
    started, before = perf_counter(), os.times()
    command = [sys.executable, "manage.py", "apply", "--publish", "--reason", "bench", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - our own command
    after = os.times()
    worked = after.children_user + after.children_system - before.children_user - before.children_system
    return perf_counter() - started, worked


class Publisher:
    """Publishes one change after another in a long-running process."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "change.json"
        command = [sys.executable, "-c", _PUBLISHER]
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def publish(self, document: Json) -> None:
        """Publish a document."""
        self._file.write_text(json.dumps(document))
        assert self._process.stdin  # noqa: S101 - a pipe
        assert self._process.stdout  # noqa: S101 - a pipe
        self._process.stdin.write(f"{self._file}\n")
        self._process.stdin.flush()
        if self._process.stdout.readline() != "done\n":
            message = "a publish failed"
            raise RuntimeError(message)

    def stop(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)


def memory_mib() -> float:
    """Return the present memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Extender:
    """An extender's work in this process: takes up Revisions, and answers /filter."""

    def __init__(self, path: Path) -> None:
        from scheduler.extender.verbs.context import RequestContexts
        from scheduler.extender.verbs.handlers import VerbHandlers
        from scheduler.extender.verbs.in_flight import InFlight
        from scheduler.serving.revisions import RevisionHolder
        from scheduler.serving.shadows import Shadows
        from tests.builders import make_node
        from tests.unit.extender.verbs.test_handlers import ALL_WELL, Kept, NoBinding, StillCluster

        live: Any = StillCluster(*(make_node(f"n{number}") for number in range(max(NODES))))
        self._names = {nodes: [f"n{number}" for number in range(nodes)] for nodes in NODES}
        self.recorder: Any = Kept()
        self.holder = RevisionHolder(path=path, poll_seconds=_POLL_SECONDS, prepare=self._prepare)
        in_flight, client = InFlight(), None
        self.contexts = RequestContexts(
            revisions=self.holder, live=live, in_flight=in_flight, conditions=lambda: ALL_WELL, deadline_seconds=60.0
        )
        self.handlers = VerbHandlers(
            contexts=self.contexts,
            live=live,
            in_flight=in_flight,
            binder=NoBinding(live.snapshot),
            client=client,  # type: ignore[arg-type] # nothing is bound
            recorder=self.recorder,  # type: ignore[arg-type] # has what is asked of one here
            shadows=Shadows(self.recorder.record),
        )

    def _prepare(self, revision: Any) -> None:
        self.handlers.warm(revision, self.holder.rest)

    def seconds_until_served(self, number: int) -> float:
        """Wait until a Revision is served; returns the seconds since it was made."""
        from policies.models import Revision

        made_at = Revision.objects.get(number=number).created_at
        while (taken_up_at := self.holder.taken_up_at) is None or taken_up_at < made_at:
            sleep(0.01)
        return (taken_up_at - made_at).total_seconds()

    @property
    def taken_up_at(self) -> datetime:
        """When the served Revision was taken up."""
        assert self.holder.taken_up_at  # noqa: S101 - something is served
        return self.holder.taken_up_at

    def filter(self, number: int, nodes: int) -> None:
        """Answer about a Pod of some team, with this number of nodes."""
        from scheduler.extender.request.wire import receive
        from tests.builders import make_pod

        pod = make_pod(f"p{number}", namespace="shop", labels={"team": f"team-{number // 2 % _TEAMS}", "part": "1"})
        pod["metadata"]["uid"] = f"uid-{number}"
        with CALLS_IN_HAND:
            self.handlers.filter(receive(json.dumps({"Pod": pod, "NodeNames": self._names[nodes]}).encode()))
        self.recorder.records.clear()


def stored_bytes() -> int:
    """Return the stored bytes of Revisions, without the database's overhead for each row."""
    from policies.models import Part, Revision, RevisionPart

    rows = [row for model in (Part, RevisionPart, Revision) for row in model.objects.values_list()]
    return sum(len(str(value)) for row in rows for value in row)


def ask_page(number: int) -> tuple[float, float, int]:
    """Return the elapsed and processor milliseconds of a Revision's page, and its bytes."""
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)[0])
    page = f"/admin/policies/revision/{number}/change/"
    client.get(page, secure=True)
    asked, worked = perf_counter(), process_time()
    shown = client.get(page, secure=True)
    seconds, worked = perf_counter() - asked, process_time() - worked
    if shown.status_code != HTTPStatus.OK:
        message = f"{page} answers {shown.status_code}"
        raise RuntimeError(message)
    return seconds * 1e3, worked * 1e3, len(shown.content)


def measure(count: int, folder: Path) -> "Extender":
    """Print the cost of this number of rule sets; returns the extender that serves them."""
    from policies.models import Revision
    from scheduler.serving.memory import shorten_pauses

    extender = Extender(folder / f"revision-{count}.json")
    extender.holder.poll()  # the Revision that exists already
    extender.holder.start()
    seconds, worked = publish([rule_set(number, wanted=f"{number}-of-{count}") for number in range(count)], folder)
    served = extender.seconds_until_served(Revision.objects.count())
    print(
        f"{count} rule sets: published in {seconds:.1f} s ({worked:.1f} s of processors), served {served:.1f} s later",
        _aim(count, seconds, "publish s"),
    )
    seconds, _ = publish([each for number in range(count) for each in assignments(number)], folder)
    served = extender.seconds_until_served(Revision.objects.count())
    print(f"  {2 * count} Assignments: published in {seconds:.1f} s, served {served:.1f} s later")
    shorten_pauses()
    changes = Changes(extender, folder)
    caller = Caller(extender.filter)
    sleep(1.0)
    for _ in range(_ROUNDS):
        caller.note("idle")
        sleep(_IDLE_SECONDS)
        changes.make_one(caller)
    caller.stop()
    extender.holder.stop()
    changes.publisher.stop()
    print(f"  one change: {changes.told()}", *changes.aims(count))
    print(f"  start: {start_elsewhere(folder)}")
    for nodes in NODES:
        idle, busy = caller.milliseconds("idle", nodes), caller.milliseconds("busy", nodes)
        print(
            f"  /filter about {nodes:>5} nodes, p50 p99 most ms: idle {_figures(idle)}, meanwhile {_figures(busy)}",
            _aim(count, busy[1] - idle[1], "p99 ms more"),
        )
    milliseconds, worked, size = ask_page(Revision.objects.count())
    print(
        f"  page: {milliseconds:.0f} ms ({worked:.0f} ms of processors), {size} bytes",
        _aim(count, milliseconds, "page ms"),
    )
    print(f"  memory of this process, with all sizes before: {memory_mib():.0f} MiB")
    return extender


def start(folder: Path) -> tuple[Extender, Json]:
    """Start the parts of an extender process; returns it with the start-up time and the memory."""
    from scheduler.serving.memory import shorten_pauses

    started, worked = perf_counter(), process_time()
    extender = Extender(folder / "started.json")
    extender.holder.start()
    while extender.holder.current is None:
        sleep(0.01)
    begun = {"ready_seconds": perf_counter() - started, "processor_seconds": process_time() - worked}
    shorten_pauses()
    return extender, {**begun, "mib": memory_mib()}


def start_elsewhere(folder: Path) -> str:
    """Return the start-up time of another process, without a Revision on disk, and its memory."""
    (folder / "started.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "bench.revisions", "--start", str(folder)]
    found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)  # noqa: S603 - our own command
    seconds, worked, mib = found["ready_seconds"], found["processor_seconds"], found["mib"]
    return f"{seconds:.2f} s ({worked:.2f} s of processors), {mib:.0f} MiB"


def compare(extenders: dict[int, Extender]) -> None:
    """Print the p50 of calls with the most rule sets beside that with the fewest, in turns."""
    taken: dict[tuple[int, int], list[float]] = {}
    asked = 0
    for _ in range(_TURNS):
        for count, extender in extenders.items():
            for nodes in NODES:
                for _ in range(2 * _TEAMS):
                    started = perf_counter()
                    extender.filter(asked, nodes)
                    taken.setdefault((count, nodes), []).append(perf_counter() - started)
                    asked += 1
    most, fewest = max(extenders), min(extenders)
    for nodes in NODES:
        p50, base = (sorted(taken[count, nodes])[len(taken[count, nodes]) // 2] * 1e3 for count in (most, fewest))
        print(
            f"/filter about {nodes:>5} nodes, p50 ms in turns: {fewest} rule sets {base:.3f}, {most} rule sets {p50:.3f}",
            _aim(most, p50 / base, "p50 ratio"),
        )


def _figures(found: Sequence[float]) -> str:
    return " ".join(f"{each:.2f}" for each in found)


def _aim(count: int, reached: float, what: str) -> str:
    if count != max(SIZES):
        return ""
    return f"[{what} {reached:.1f}, aim {AIMS[what]:g}: {'reached' if reached <= AIMS[what] else 'missed'}]"


class Changes:
    """Single changes of one rule set, and their costs."""

    def __init__(self, extender: Extender, folder: Path) -> None:
        self._extender = extender
        self.publisher = Publisher(folder)
        self._made: list[tuple[float, float, float, int]] = []
        self.publisher.publish(rule_set(0, wanted="warm"))  # the first change imports modules

    def make_one(self, caller: Caller) -> None:
        """Publish a change and wait until it is served, with calls recorded as busy."""
        from policies.models import Revision

        before = stored_bytes()
        caller.note("busy")
        began, started = datetime.now(UTC), perf_counter()
        self.publisher.publish(rule_set(0, wanted=f"another-{len(self._made)}"))
        seconds = perf_counter() - started
        served = self._extender.seconds_until_served(Revision.objects.count())
        whole = (self._extender.taken_up_at - began).total_seconds()
        sleep(_POLL_SECONDS)
        caller.note("")
        self._made.append((seconds, served, whole, stored_bytes() - before))

    def told(self) -> str:
        """Return the medians of their costs."""
        seconds, served, whole, size = self._medians()
        return (
            f"published in {seconds:.2f} s, served {served:.2f} s after it was made, {whole:.2f} s in all, {size} bytes"
        )

    def aims(self, count: int) -> list[str]:
        """Return their aims and results."""
        _, _, whole, size = self._medians()
        return [_aim(count, whole, "change served s"), _aim(count, size, "change bytes")]

    def _medians(self) -> list[float]:
        return [sorted(each)[len(each) // 2] for each in zip(*self._made, strict=True)]


def soak(publishes: int, sets: int, every: float, pin_seconds: float, folder: Path) -> None:
    """Print a line of JSON for the start, and one for the memory after each publish, while calls pin Pods."""
    from policies.models import Revision
    from scheduler.serving import revisions

    revisions.PIN_SECONDS = pin_seconds
    publish([rule_set(number) for number in range(sets)], folder)
    publish([each for number in range(sets) for each in assignments(number)], folder)
    publisher = Publisher(folder)
    extender, begun = start(folder)
    print(json.dumps({"sets": sets, **begun}), flush=True)
    caller = Caller(extender.filter, pause_seconds=0.01)
    for number in range(1, publishes + 1):
        next_at = monotonic() + every
        publisher.publish(rule_set(number % sets, wanted=f"of-{number}"))
        extender.seconds_until_served(Revision.objects.count())
        extender.contexts.drop_old_pins()
        print(json.dumps({"publishes": number, "calls": caller.number, "mib": memory_mib()}), flush=True)
        sleep(max(0.0, next_at - monotonic()))
    caller.stop()
    extender.holder.stop()
    publisher.stop()


def main() -> None:
    """Print the requested figures."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    parser.add_argument(
        "--start", type=Path, help="print the start of an extender, beside a bench whose folder this is"
    )
    parser.add_argument("--publishes", type=int, default=0)
    parser.add_argument("--sets", type=int, default=max(SIZES))
    parser.add_argument("--every", type=float, default=0.0)
    parser.add_argument("--pin-seconds", type=float, default=60.0)
    asked = parser.parse_args()
    with nullcontext(asked.start) if asked.start else tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        os.environ |= {"BERTH_LOCAL": "true", "BERTH_STATE_DIR": str(folder)}
        os.environ.setdefault("BERTH_DATABASE_URL", f"sqlite:///{folder}/berth.sqlite3")
        import django

        django.setup()
        from django.core.management import call_command

        from bench.running import machine

        logging.disable(logging.INFO)
        if asked.start:
            extender, begun = start(folder)
            print(json.dumps(begun))
            extender.holder.stop()
            return
        call_command("migrate", verbosity=0)
        if asked.publishes:
            soak(asked.publishes, asked.sets, asked.every, asked.pin_seconds, folder)
            return
        print(machine())
        compare({count: measure(count, folder) for count in asked.sizes})


if __name__ == "__main__":
    main()
