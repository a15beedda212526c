"""While no server answers at all, a watch asks every few seconds; a server that refuses is left alone for longer."""

from random import Random

import pytest

from scheduler.cluster.errors import APIConfigurationError, APIError, APIUnavailableError
from scheduler.cluster.reflection import LONGEST_ABSENCE_SECONDS, LONGEST_BACKOFF_SECONDS, Reflection


def longest_pause(error: APIError) -> float:
    reflection = Reflection(jitter=Random(1))
    pauses = []
    for _ in range(200):
        reflection.on_fault(error)
        pauses.append(reflection.delay_seconds)
    return max(pauses)


@pytest.mark.parametrize("error", [APIConfigurationError("no kubeconfig"), APIUnavailableError("connection refused")])
def test_a_server_that_is_not_there_is_asked_again_within_seconds(error: APIError) -> None:
    assert longest_pause(error) <= LONGEST_ABSENCE_SECONDS


def test_a_server_that_answers_with_errors_is_left_alone_for_longer() -> None:
    pause = longest_pause(APIUnavailableError("overloaded", status=503))
    assert LONGEST_ABSENCE_SECONDS < pause <= LONGEST_BACKOFF_SECONDS
