"""Kill -9 of the worker, and of beat, while a Change goes live at its time, and while it goes back: once, and whole.

FAULT_RUNS says how many Changes there are, FAULT_SEED chooses the moments; `make long` makes 30.
"""

import os
import time
from random import Random

import pytest

from tests.faults.planes import Plane
from tests.stack import eventually

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


def prepared(plane: Plane, runs: int) -> list[int]:
    """Open and schedule a Change for each run; return their numbers."""
    code = PREPARE.format(runs=runs, rule_sets=RULE_SETS)
    return [int(line) for line in plane.manage("shell", "--no-imports", "-c", code).split()]


def assert_each_once(plane: Plane, numbers: list[int], began: int) -> None:
    """Assert that each Change went live once, and back once. `began`: how many Revisions there were before."""
    assert revisions(plane) - began == 2 * len(numbers)
    for number in numbers:
        done = dict(
            plane.sql("SELECT act, count(*) FROM policies_changeevent WHERE change_id = %s GROUP BY act", number)
        )
        assert (done["publish"], done["expire"], done.get("hold", 0)) == (1, 1, 0)


def test_a_change_goes_live_and_back_once_and_whole(plane: Plane) -> None:
    random = Random(SEED)
    began, numbers = revisions(plane), prepared(plane, RUNS)
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
    assert_each_once(plane, numbers, began)  # whatever ticks came behind
    print(f"{RUNS} runs; killed before it was {cut}")


@pytest.mark.skipif("FAULT_RUNS" not in os.environ, reason="`make long` has the time")
def test_a_change_goes_live_and_back_once_though_beat_is_killed_and_a_time_passes_in_an_outage(plane: Plane) -> None:
    random = Random(SEED)
    began = revisions(plane)
    *runs, last = prepared(plane, max(RUNS // 10, 2) + 1)
    plane.start_worker()
    plane.start_beat()
    for run, number in enumerate(runs):
        for column, whole in (("publish_at", RULE_SETS), ("expires_at", 0)):
            before = revisions(plane)
            due = f"UPDATE policies_change SET {column} = now() + interval '2 seconds' WHERE id = %s"
            plane.sql(due, number)
            time.sleep(random.uniform(0, 2 + TAKES_SECONDS))
            plane.kill_beat()
            assert live(plane, run) in (0, RULE_SETS), "all of it, or nothing"
            plane.start_beat()
            eventually(lambda run=run, whole=whole: live(plane, run) == whole, seconds=120, what=f"run {run}: {column}")  # type: ignore[misc]
            assert revisions(plane) == before + 1
    for column, whole in (("publish_at", RULE_SETS), ("expires_at", 0)):
        plane.kill_beat()
        plane.kill_worker()
        plane.sql(f"UPDATE policies_change SET {column} = now() - interval '1 hour' WHERE id = %s", last)
        plane.start_worker()
        plane.start_beat()
        eventually(lambda whole=whole: live(plane, len(runs)) == whole, seconds=120, what=f"late: {column}")  # type: ignore[misc]
    assert_each_once(plane, [*runs, last], began)
