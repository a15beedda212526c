"""Kill -9 of the worker while a Change goes live at its time, and while it goes back: once, and whole.

FAULT_RUNS says how many Changes there are, FAULT_SEED chooses the moments; `make long` makes 30.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest
from celery import Celery

from controlplane.up import free_port, redis_server, wait_for_port
from tests.faults.test_recording import Postgres, database  # noqa: F401 - a fixture
from tests.stack import BASE_DIR, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]
RUNS = int(os.environ.get("FAULT_RUNS", "2"))
SEED = int(os.environ.get("FAULT_SEED", "1"))
# So many that publishing takes long enough to be killed in the middle of it.
RULE_SETS = 60
# What a publish of these takes on a quiet machine, about: kills fall before, into and behind it.
TAKES_SECONDS = 1.5

# Opens and schedules a Change for each run, to go live and back in a far future that the test then makes the present.
PREPARE = """
from datetime import UTC, datetime
from policies import checking, publishing
from policies.publishing import Edit
for run in range({runs}):
    documents = [
        {{"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {{"name": f"run-{{run}}-{{number}}"}},
          "spec": {{"filters": [{{"builtin": "PodFitsHost"}}]}}}}
        for number in range({rule_sets})
    ]
    edits = [Edit.of(checking.read_document(document)) for document in documents]
    change = publishing.open_change(title=f"run {{run}}", edits=edits, by="ops")
    for verb, name, year in (
        (publishing.set_expiry, "expires_at", 2999), (publishing.schedule_change, "publish_at", 2998)
    ):
        change.refresh_from_db()
        verb(change=change, by="ops", expected_digest=change.digest, **{{name: datetime(year, 1, 1, tzinfo=UTC)}})
    print(change.pk)
"""


class Plane:
    """A database, a Redis, and workers that are killed and started again."""

    def __init__(self, folder: Path, server: Postgres, **more: str) -> None:
        port = free_port()
        command = [redis_server(), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
        self._redis = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        assert wait_for_port(port, 20)
        url = f"redis://127.0.0.1:{port}/0"
        self.environment = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
        self.environment |= {
            "BERTH_STATE_DIR": str(folder / "state"),
            "BERTH_DATABASE_URL": server.url,
            "BERTH_REDIS_URL": url,
            "BERTH_ROLE": "worker",
            "BERTH_SECRET_KEY": "s" * 64,
            **more,
        }
        self._log = (folder / "worker.log").open("ab")
        self._url = server.url
        self._broker = Celery(broker=url)
        self._worker: subprocess.Popen[bytes] | None = None

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(
            command,
            cwd=BASE_DIR,
            env={**self.environment, "BERTH_ROLE": "command"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_worker(self) -> None:
        """Start one, and wait until it takes tasks."""
        command = [sys.executable, "-m", "celery", "-A", "controlplane", "worker", "-Q", "ops", "-c", "2", "-l", "INFO"]
        self._worker = subprocess.Popen(
            command, cwd=BASE_DIR, env=self.environment, stdout=self._log, stderr=self._log, start_new_session=True
        )
        eventually(lambda: self._broker.control.ping(timeout=0.5), seconds=120, what="the worker answers")

    def kill_worker(self) -> None:
        """Kill it and its children, as a crash of the machine's would."""
        if self._worker is not None:
            os.killpg(self._worker.pid, signal.SIGKILL)
            self._worker.wait()
            self._worker = None

    def tick(self, task: str = "publish_scheduled") -> None:
        """What beat sends each second or two."""
        self._broker.send_task(f"scheduler.tasks.{task}", queue="ops")

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            cursor = connection.execute(statement, values)  # type: ignore[arg-type] # written here
            return cursor.fetchall() if cursor.description else []

    def stop(self) -> None:
        self.kill_worker()
        self._broker.close()
        self._redis.terminate()
        self._redis.wait()
        self._log.close()


@pytest.fixture
def plane(tmp_path: Path, database: Postgres) -> Iterator[Plane]:  # noqa: F811 - the fixture
    made = Plane(tmp_path, database)
    try:
        made.manage("migrate", "--verbosity", "0")
        yield made
    finally:
        made.stop()


def live(plane: Plane, run: int) -> int:
    """Return how many of a run's rule sets are live."""
    query = "SELECT count(*) FROM policies_revisionpart WHERE until_id IS NULL AND name LIKE %s"
    return int(plane.sql(query, f"run-{run}-%")[0][0])


def revisions(plane: Plane) -> int:
    return int(plane.sql("SELECT count(*) FROM policies_revision")[0][0])


def killed_in_between(plane: Plane, random: Random) -> None:
    """Kill the worker at a random moment of doing what is due."""
    for _ in range(2):  # two ticks at once, as of two beats
        plane.tick()
    time.sleep(random.uniform(0, TAKES_SECONDS))
    plane.kill_worker()


def test_a_change_goes_live_and_back_once_and_whole(plane: Plane) -> None:
    random = Random(SEED)
    numbers = [
        int(line)
        for line in plane.manage("shell", "--no-imports", "-c", PREPARE.format(runs=RUNS, rule_sets=RULE_SETS)).split()
    ]
    cut = {"live": 0, "back": 0}
    plane.start_worker()
    for run, number in enumerate(numbers):
        for column, way, whole in (("publish_at", "live", RULE_SETS), ("expires_at", "back", 0)):
            before = revisions(plane)
            plane.sql(f"UPDATE policies_change SET {column} = now() WHERE id = %s", number)
            killed_in_between(plane, random)
            assert live(plane, run) in (0, RULE_SETS), "all of it, or nothing"
            assert revisions(plane) - before == (live(plane, run) == whole)
            cut[way] += live(plane, run) != whole
            plane.start_worker()
            for _ in range(3):
                plane.tick()
            eventually(lambda run=run, whole=whole: live(plane, run) == whole, seconds=120, what=f"run {run} is {way}")  # type: ignore[misc]
            assert revisions(plane) == before + 1
    assert revisions(plane) == 2 * RUNS, "each once, whatever ticks came behind"
    events = "SELECT act, count(*) FROM policies_changeevent WHERE change_id = %s GROUP BY act"
    for number in numbers:
        done = dict(plane.sql(events, number))
        assert (done["publish"], done["expire"], done.get("hold", 0)) == (1, 1, 0)
    print(f"{RUNS} runs; killed before it was {cut}")
