"""The machine's clock is set back by a day while Decisions are recorded: real processes, each with its own clock before it."""

import json
import os
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from operator import not_
from pathlib import Path
from uuid import UUID

import pytest

from tests.faults.test_recording import NAMES, RULES, all_bound, broken, create
from tests.stack import Stack, eventually, make_node

_COMPILER = shutil.which("cc") or shutil.which("tcc")
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif("FAULT_CLOCK" not in os.environ, reason="`make long` has the time"),
    pytest.mark.skipif(_COMPILER is None, reason="no C compiler: cc or tcc, of the packages of these names"),
]
DAY_SECONDS = 86_400
PATIENT_SECONDS = 60.0


class Clock:
    """What the processes of a Stack take for the time. PostgreSQL and the cluster keep their own."""

    def __init__(self, folder: Path) -> None:
        library, self._file = folder / "clock.so", folder / "ahead"
        source = Path(__file__).with_name("clock.c")
        subprocess.run([str(_COMPILER), "-shared", "-fPIC", "-nostdlib", "-o", library, source], check=True)
        self._file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(self._file)}

    def set_ahead(self, seconds: int) -> None:
        """From now on the processes see the machine's time and so many seconds."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", seconds))


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Clock:
    made = Clock(tmp_path_factory.mktemp("clock"))
    made.set_ahead(DAY_SECONDS)
    return made


@pytest.fixture(scope="module")
def stack(clock: Clock, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    nodes = [make_node(name) for name in NAMES]
    with Stack(
        tmp_path_factory.mktemp("set-back"), nodes=nodes, bindVerb="bind", environment=clock.environment
    ) as made:
        made.publish(*RULES)
        yield made


def test_a_clock_set_back_by_a_day_leaves_each_chain_whole_and_proved(stack: Stack, clock: Clock) -> None:
    uids: dict[str, str] = {}
    create(stack, "before", uids)
    eventually(lambda: signed(stack), seconds=120, every=1, what="a checkpoint is signed before")
    creator = threading.Thread(target=create, args=(stack, "while", uids))
    creator.start()
    time.sleep(0.2)
    clock.set_ahead(0)
    creator.join()
    create(stack, "after", uids)
    eventually(lambda: all_bound(stack, uids), seconds=60, every=0.5, what="all bound")
    pods = stack.pods()
    eventually(lambda: broken(stack, uids, pods), until=not_, seconds=60, every=0.5, what="every chain is whole")

    rows = dict(stack.sql("SELECT id, at FROM scheduler_decision"))
    assert sum(stack.sql("SELECT COUNT(*) FROM scheduler_decision")[0]) == len(rows)
    days = {moment(at).date() for at in rows.values()}
    assert len(days) >= 2, days
    # Made a moment before or after the Decision's own time: what sorts by one sorts by the other.
    assert max(abs(time_of(key) - moment(at).timestamp()) for key, at in rows.items()) < PATIENT_SECONDS
    for table in ("decisiongap", "deadletter"):
        assert stack.sql(f"SELECT * FROM scheduler_{table}") == []
    eventually(lambda: went_back(signed(stack)), seconds=120, every=1, what="one is signed after")
    said = json.loads(stack.manage("verify", "--output", "json"))
    assert json.dumps(said).count('"ok": false') == 0, said
    pruned = "from scheduler.tasks import make_partitions, prune_history; make_partitions(); prune_history()"
    stack.manage("shell", "-c", pruned)
    assert dict(stack.sql("SELECT id, at FROM scheduler_decision")).keys() >= rows.keys()


def signed(stack: Stack) -> list[datetime]:
    """Return when checkpoints of the Decisions were signed, by how far they go."""
    rows = stack.sql("SELECT at FROM scheduler_ledgercheckpoint WHERE log = 'decisions' ORDER BY size")
    return [moment(at) for (at,) in rows]


def went_back(times: list[datetime]) -> bool:
    return times[-1] < times[0]


def moment(at: datetime | str) -> datetime:
    read = datetime.fromisoformat(at) if isinstance(at, str) else at
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read


def time_of(key: UUID | str) -> float:
    """The time that an id begins with, in seconds."""
    return (UUID(str(key)).int >> 80) / 1000
