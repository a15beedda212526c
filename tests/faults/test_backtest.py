"""Kill -9 of processes that take part in a backtest, at random: the result is the same, to the byte.

FAULT_RUNS says how often they are killed, FAULT_SEED chooses the moments; `make long` kills 30 times.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.stack import BASE_DIR, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(3600)]
RUNS = int(os.environ.get("FAULT_RUNS", "2"))
SEED = int(os.environ.get("FAULT_SEED", "1"))

# Records Pods of which a Change would refuse 7, and asks for the same backtest several times, each sorted into many chunks.
PREPARE = """
from pathlib import Path
from django.core.management import call_command
from django.utils import timezone
from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.publishing import Edit
from scheduler.backtest import runs
from tests.builders import make_assignment, make_rule_set
from tests.component.backtest.corpus import Corpus
from tests.recording import History

call_command("migrate", verbosity=0)
runs.CHUNK = 5
first = publishing.open_change(
    title="first", edits=[Edit.of(make_rule_set("web")), Edit.of(make_assignment("all", "web"))], by="ops"
)
publishing.publish_change(change=first, by="ops", expected_digest=first.digest)
history = History(Path({folder!r}) / "corpus")
corpus = Corpus(history, CompiledRevision(publishing.current_revision()))
for number in range({pods}):
    corpus.ask(f"p{{number}}", **({{"marked": "yes"}} if number in {marked} else {{}}))
history.settle()
history.spool.close()
rule = {{"name": "planted", "expression": "!('marked' in pod.metadata.labels)", "reason": "it is marked"}}
change = publishing.open_change(title="planted", edits=[Edit.of(make_rule_set("web", filters=[rule]))], by="ops")
until = timezone.now()
for number in range({rows}):
    # Of one person within a minute they would be one.
    runs.plan(runs.start_backtest(change=change, by=f"ops-{{number}}", span=runs.Span(until=until)))
"""
MARKED = [3, 50, 51, 120, 199, 250, 288]
PODS = 300


class Plane:
    """A database, and processes that take part."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
        self._environment |= {
            "BERTH_STATE_DIR": str(folder / "state"),
            "BERTH_DATABASE_URL": f"sqlite:///{folder}/berth.sqlite3",
            "BERTH_LOCAL": "true",
            "BERTH_ROLE": "command",
        }

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=BASE_DIR, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def take_part(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "manage.py", "backtest", "--take-part"]
        return subprocess.Popen(command, cwd=BASE_DIR, env=self._environment)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.folder / "berth.sqlite3", timeout=30) as database:
            return database.execute(text).fetchall()

    def done(self, backtest: int) -> int:
        found = self.sql(
            f"SELECT COUNT(*) FROM scheduler_backtestchunk WHERE backtest_id = {backtest} AND state = 'done'"
        )
        return int(found[0][0])

    def let_time_pass(self) -> None:
        """Let what was running when its process was killed count as lost."""
        self.sql("UPDATE scheduler_backtestchunk SET heartbeat_at = '2000-01-01 00:00:00' WHERE state = 'running'")


def test_whoever_is_killed_when_the_result_is_the_same(tmp_path: Path) -> None:
    random, plane = Random(SEED), Plane(tmp_path)
    rounds = max(1, RUNS // 10)
    plane.manage("shell", "-c", PREPARE.format(folder=str(tmp_path), pods=PODS, marked=MARKED, rows=rounds + 1))
    # The last one is left in peace.
    *killed, _ = [row for (row,) in plane.sql("SELECT id FROM scheduler_backtest ORDER BY id")]

    chunks = 2 * PODS // 5
    kills = 0
    for row in killed:
        for left in range(RUNS // rounds, 0, -1):
            done = plane.done(row)
            target = done + random.randint(0, max(1, (chunks - done) // left - 5))
            # Two beside each other, or one.
            both = [plane.take_part() for _ in range(1 + left % 2)]
            eventually(
                lambda row=row, target=target, both=both: plane.done(row) > target or both[0].poll() is not None,
                every=0.003,  # type: ignore[misc]
            )
            time.sleep(random.random() * 0.02)
            for process in both:
                kills += process.poll() is None
                process.send_signal(signal.SIGKILL)
                process.wait()
            plane.let_time_pass()
        assert plane.take_part().wait() == 0
    results = plane.sql("SELECT id, state, result FROM scheduler_backtest ORDER BY id")
    assert {state for _, state, _ in results} == {"done"}
    print(f"{kills} processes were killed while they worked")
    (result,) = {result for _, _, result in results}
    assert [line["pod"] for line in json.loads(result)["pods"]] == [f"default/p{number}" for number in MARKED]
