"""A history that needs neither Redis nor threads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recording import History


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    made = History(tmp_path / "spool")
    yield made
    made.spool.close()
