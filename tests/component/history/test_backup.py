"""The backup of a SQLite database, as docs/operations.md has it."""

import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

DOCS = Path(__file__).parents[3] / "docs" / "operations.md"
ROWS = 60


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Path]:
    """A database of 60 MB to which somebody writes without rest."""
    path, enough = tmp_path / "berth.sqlite3", Event()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE history (data BLOB)")
        connection.executemany("INSERT INTO history VALUES (zeroblob(?))", [(1_000_000,)] * ROWS)
        connection.execute("CREATE TABLE heartbeat (number INTEGER)")
    connection.close()

    def write() -> None:
        with sqlite3.connect(path, timeout=20, isolation_level=None) as connection:
            connection.execute("PRAGMA synchronous=OFF")
            while not enough.wait(0.0002):
                connection.execute("INSERT INTO heartbeat VALUES (1)")
        connection.close()

    writer = Thread(target=write)
    writer.start()
    yield path
    enough.set()
    writer.join()


@pytest.mark.skipif(not shutil.which("sqlite3"), reason="sqlite3 isn't installed")
def test_a_backup_comes_to_its_end_while_others_write_and_is_its_owners_alone(written: Path, tmp_path: Path) -> None:
    found = re.search(r"SQLite: `(.+?)`", DOCS.read_text())
    assert found is not None
    copy = tmp_path / "copy"
    command = found[1].replace("FILE", str(written)).replace("COPY", str(copy))
    subprocess.run(["sh", "-c", command], check=True, timeout=30)
    with sqlite3.connect(copy) as connection:
        assert connection.execute("SELECT count(*) FROM history").fetchone() == (ROWS,)
    connection.close()
    assert copy.stat().st_mode & 0o077 == 0
