"""Parts of Berth of a test's own, to be killed."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import postgres
from tests.differential.plugins import build
from tests.faults.planes import Plane, Postgres


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    folder = Path(tempfile.mkdtemp(prefix="berth-pg-"))  # a short path: sockets allow 107 characters
    if user := postgres.unprivileged_user():
        shutil.chown(folder, user)
    server = Postgres(folder)
    server.start()
    yield server
    server.kill()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def plane(tmp_path: Path, database: Postgres) -> Iterator[Plane]:
    made = Plane(tmp_path, database)
    try:
        made.manage("migrate", "--verbosity", "0")
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def program() -> Path:
    """What asks kube-scheduler's own filters about a placement."""
    return build()
