"""What publishing costs: bytes, seconds until it is served, and what calls notice of it, for 20, 200 and 1,000 rule sets.

`python -m bench.revisions` publishes so many rule sets, with two Assignments each, by `manage.py apply --publish` in a
process of its own. Meanwhile this process does as an extender does: it takes Revisions up in a thread and answers /filter
about 100 nodes in another. It prints the seconds that a publish takes and those until it is served, p50 and p99 of /filter
with nothing to take up and while a Revision is, the time and size of a Revision's page, and the bytes of one small
change beside those of the whole document, which each Revision was once. The database is an SQLite of its own, or the one
that BERTH_DATABASE_URL names: `python -m tests.postgres python -m bench.revisions`.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from scheduler.serving.pace import CALLS_IN_HAND

SIZES = (20, 200, 1_000)
_NODES = 100
_IDLE_SECONDS = 3.0


def documents(count: int, wanted: str = "") -> str:
    """Return rule sets with two Assignments each, as JSON; `wanted` is what the last rule set asks of a node's label."""
    made: list[dict[str, Any]] = []
    for number in range(count):
        value = wanted if wanted and number == count - 1 else f"team-{number}"
        expression = f"node.metadata.?labels.team.orValue('{value}') == '{value}'"
        spec: dict[str, Any] = {
            "filters": [{"name": "team", "expression": expression, "reason": "another team's"}],
            "scores": [{"builtin": "LeastRequestedPriority"}],
        }
        made.append({"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {"name": f"team-{number}"}, "spec": spec})
        for part in range(2):
            labels = {"team": f"team-{number}", "part": str(part)}
            match = {"namespaces": ["shop"], "podSelector": {"matchLabels": labels}}
            taken = {"order": 2 * number + part + 1, "ruleSet": f"team-{number}", "match": match}
            name = f"team-{number}-{part}"
            made.append({"apiVersion": "berth/v1", "kind": "Assignment", "metadata": {"name": name}, "spec": taken})
    return "\n---\n".join(map(json.dumps, made))


class Caller:
    """Asks /filter again and again, each time about another Pod, and notes how long each answer took."""

    def __init__(self, ask: Callable[[int], object]) -> None:
        self._ask = ask
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.calls: list[tuple[float, float]] = []
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.is_set():
            started = perf_counter()
            self._ask(number)
            self.calls.append((started, perf_counter() - started))
            number += 1
            sleep(0.001)

    def milliseconds(self, since: float) -> str:
        """Return p50 and p99 of the calls since a moment."""
        taken = sorted(seconds for started, seconds in list(self.calls) if started >= since)
        return f"{taken[len(taken) // 2] * 1e3:>6.2f} {taken[int(len(taken) * 0.99)] * 1e3:>6.2f}"

    def stop(self) -> None:
        """End it."""
        self._stopping.set()
        self._thread.join()


def publish(text: str, folder: Path) -> float:
    """Publish documents in a process of its own; returns its seconds."""
    file = folder / "rules.json"
    file.write_text(text)
    started = perf_counter()
    command = [sys.executable, "manage.py", "apply", "--publish", "--reason", "bench", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - our own command
    return perf_counter() - started


def memory_mib() -> float:
    """Return the memory that this process has at this moment."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Extender:
    """What an extender process does, in this process: takes Revisions up, and answers /filter about a hundred nodes."""

    def __init__(self, path: Path) -> None:
        from scheduler.extender.verbs.context import RequestContexts
        from scheduler.extender.verbs.handlers import VerbHandlers
        from scheduler.extender.verbs.in_flight import InFlight
        from scheduler.serving.revisions import RevisionHolder
        from scheduler.serving.shadows import Shadows
        from tests.builders import make_node
        from tests.unit.extender.verbs.test_handlers import ALL_WELL, Kept, NoBinding, StillCluster

        live: Any = StillCluster(*(make_node(f"n{number}") for number in range(_NODES)))
        self.recorder: Any = Kept()
        self.holder = RevisionHolder(path=path, poll_seconds=0.5, prepare=self._prepare)
        in_flight, client = InFlight(), None
        contexts = RequestContexts(
            revisions=self.holder, live=live, in_flight=in_flight, conditions=lambda: ALL_WELL, deadline_seconds=60.0
        )
        self.handlers = VerbHandlers(
            contexts=contexts,
            live=live,
            in_flight=in_flight,
            binder=NoBinding(),
            client=client,  # type: ignore[arg-type] # nothing is bound
            recorder=self.recorder,
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

    def filter(self, number: int, teams: int) -> None:
        """Answer about a Pod of some team."""
        from scheduler.extender.request.wire import receive
        from tests.builders import make_pod

        pod = make_pod(f"p{number}", namespace="shop", labels={"team": f"team-{number % teams}", "part": "1"})
        pod["metadata"]["uid"] = f"uid-{number}"
        names = [f"n{node}" for node in range(_NODES)]
        with CALLS_IN_HAND:
            self.handlers.filter(receive(json.dumps({"Pod": pod, "NodeNames": names}).encode()))
        self.recorder.records.clear()


def stored_bytes() -> int:
    """Return the bytes of what Revisions keep, without what the database adds to each row."""
    from policies.models import Part, Revision, RevisionPart

    rows = [row for model in (Part, RevisionPart, Revision) for row in model.objects.values_list()]
    return sum(len(str(value)) for row in rows for value in row)


def ask_page(number: int) -> tuple[float, int]:
    """Return the seconds and bytes of a Revision's page."""
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.get_or_create(username="bench", is_staff=True, is_superuser=True)[0])
    page = f"/admin/policies/revision/{number}/change/"
    client.get(page, secure=True)
    asked = perf_counter()
    shown = client.get(page, secure=True)
    seconds = perf_counter() - asked
    if shown.status_code != HTTPStatus.OK:
        message = f"{page} answers {shown.status_code}"
        raise RuntimeError(message)
    return seconds, len(shown.content)


def measure(count: int, folder: Path) -> None:
    """Print a table's row for so many rule sets."""
    from policies.models import Revision
    from policies.publishing import document_text

    extender = Extender(folder / f"revision-{count}.json")
    extender.holder.poll()  # what is there already
    extender.holder.start()
    all_seconds = publish(documents(count), folder)
    number = Revision.objects.count()
    all_served = extender.seconds_until_served(number)
    caller = Caller(lambda pod: extender.filter(pod, count))
    sleep(_IDLE_SECONDS / 3)
    since = perf_counter()
    sleep(_IDLE_SECONDS)
    idle, before, since = caller.milliseconds(since), stored_bytes(), perf_counter()
    one_seconds = publish(documents(count, wanted="another"), folder)
    one_served = extender.seconds_until_served(number + 1)
    sleep(0.5)
    busy = caller.milliseconds(since)
    caller.stop()
    extender.holder.stop()
    added, memory = stored_bytes() - before, memory_mib()
    whole = len(document_text(Revision.objects.get(number=number + 1)).encode())
    page_seconds, page_bytes = ask_page(number + 1)
    print(
        f"{count:>6} {all_seconds:>8.1f} {all_served:>7.1f} {one_seconds:>8.1f} {one_served:>7.1f} {idle:>14} {busy:>14} "
        f"{added:>7} {whole:>9} {page_seconds * 1e3:>8.0f} {page_bytes:>8} {memory:>6.0f}"
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["DJANGO_SETTINGS_MODULE"] = "controlplane.settings"
        os.environ |= {"BERTH_LOCAL": "true", "BERTH_STATE_DIR": name}
        os.environ.setdefault("BERTH_DATABASE_URL", f"sqlite:///{folder}/berth.sqlite3")
        import django

        django.setup()
        from django.core.management import call_command

        from bench.running import machine

        call_command("migrate", verbosity=0)
        print(
            f"{machine()}; all: every rule set at once; one: one expression is another; milliseconds of /filter p50 p99"
        )
        print(
            f"{'sets':>6} {'all s':>8} {'served':>7} {'one s':>8} {'served':>7} {'idle':>14} {'meanwhile':>14} "
            f"{'bytes':>7} {'whole':>9} {'page ms':>8} {'bytes':>8} {'MiB':>6}"
        )
        for count in asked.sizes:
            measure(count, folder)


if __name__ == "__main__":
    main()
