"""What tests of the binder share."""

import pytest

from tests.unit.binder.world import World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)
