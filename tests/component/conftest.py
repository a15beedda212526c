"""A history that needs neither Redis nor threads, and a Berth where Changes need approvals."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from django.conf import settings

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


@pytest.fixture
def reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))
