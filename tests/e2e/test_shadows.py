"""A real extender's shadows: decided when the answer is on the wire, and not before."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.serving.shadows import MOST_WAITING
from tests.extender import Extender, post
from tests.stack import eventually


@pytest.fixture
def extender(tmp_path: Path) -> Iterator[Extender]:
    with Extender(tmp_path, application="tests.shadowing") as running:
        yield running
        release(running)


def release(extender: Extender) -> None:
    """Let shadows end."""
    (extender.folder / "state" / "release").touch()


def has_begun(extender: Extender) -> bool:
    """Whether a shadow was begun."""
    return (extender.folder / "state" / "begun").exists()


def ended(extender: Extender, result: str) -> float:
    return extender.metric(f'berth_shadow_decisions_total{{result="{result}",rule_set="tested"}}')


def test_the_answer_is_there_while_its_shadow_is_still_being_decided_and_so_is_the_next(extender: Extender) -> None:
    connection = extender.connect()
    assert post(connection) == (200, "")
    assert eventually(lambda: has_begun(extender))
    assert post(connection) == (200, "")
    assert ended(extender, "decided") == 0
    release(extender)
    assert eventually(lambda: ended(extender, "decided") == 2)


def test_no_shadow_is_begun_while_an_answer_is_being_sent(extender: Extender) -> None:
    """More than the kernel takes at once: the call isn't over before the caller has read."""
    connection = extender.connect(timeout=60)
    connection.request("POST", "/filter", b"{}", {"X-Bytes": str(64 << 20)})
    answer = connection.getresponse()
    assert answer.read(1) == b'"'
    time.sleep(1)
    assert not has_begun(extender)
    assert len(answer.read()) == (64 << 20) + 1
    assert eventually(lambda: has_begun(extender))


def test_a_caller_that_hangs_up_leaves_nothing_behind_that_holds_up_shadows(extender: Extender) -> None:
    connection = extender.connect()
    connection.request("POST", "/filter", b"{}", {"X-Bytes": str(64 << 20)})
    connection.getresponse().read(1)
    connection.close()
    assert eventually(lambda: has_begun(extender), seconds=30)


def test_a_call_that_fails_is_over_too(extender: Extender) -> None:
    assert post(extender.connect(), headers={"X-Fails": "yes"}) == (503, {})
    assert eventually(lambda: has_begun(extender))


def test_shadows_beyond_those_that_can_wait_are_dropped_and_counted(extender: Extender) -> None:
    assert post(extender.connect(), headers={"X-Shadows": str(MOST_WAITING + 5)}) == (200, "")
    assert eventually(lambda: has_begun(extender))
    assert ended(extender, "dropped") == pytest.approx(5, abs=1)  # one may be begun while they are put
    release(extender)
    assert eventually(lambda: ended(extender, "decided") + ended(extender, "dropped") == MOST_WAITING + 5)
