"""A history that needs neither Redis nor threads."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.recording import History


@pytest.fixture(autouse=True)
def histories_are_closed() -> Iterator[None]:
    """Each holds two files and a thread, and a thousand tests make some."""
    yield
    while History.opened:
        History.opened.pop().spool.close()


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "spool")
