"""Fixtures of a real Redis, and a history by way of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.decisions.stream import DecisionStream
from tests.component.decisions.real_history import RealHistory, Server, serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def stream(server: Server) -> DecisionStream:
    return DecisionStream(server.url)


@pytest.fixture
def real_history(tmp_path: Path, stream: DecisionStream) -> Iterator[RealHistory]:
    made = RealHistory(tmp_path / "spool", stream)
    yield made
    made.spool.close()


@pytest.fixture
def one_record_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Redis can lose records one by one."""
    monkeypatch.setattr("scheduler.decisions.stream.MOST_IN_ENTRY", 1)
