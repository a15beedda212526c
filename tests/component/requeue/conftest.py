"""What the tests of the Requeuer share."""

import pytest

from tests.component.requeue.world import World


@pytest.fixture
def world() -> World:
    return World()
