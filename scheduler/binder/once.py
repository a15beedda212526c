"""One pass of the scheduler without Celery: each waiting Pod is decided on once."""

import os
import socket
import time
from typing import Any

import msgspec

from scheduler.binder.leader import DURATION_SECONDS
from scheduler.binder.queue import State
from scheduler.binder.runtime import Runtime

_LOOK_SECONDS = 0.05


class LeaseHeldError(Exception):
    """Another process schedules."""


class NotReadyError(Exception):
    """The pass could not be made in time."""


class Passed(msgspec.Struct):
    """The result of a pass. `waiting`: the Pods that still wait, as `scheduler.binder.state` shows them."""

    bound: int
    waiting: list[dict[str, Any]]


def schedule_once(wait_seconds: float) -> Passed:
    """Bind the Pods that can be bound.

    Raises:
        LeaseHeldError: another process holds the Lease, and is alive.
        NotReadyError: the API server or a Revision was not available in time.
    """
    deadline = time.monotonic() + wait_seconds
    runtime = Runtime(identity=f"berth-schedule@{socket.gethostname()}:{os.getpid()}")
    runtime.start()
    try:
        _wait_until_ready(runtime, deadline)
        # Only from now on: a big cluster may take longer to list than any Lease lasts, and the API server may have been away.
        _wait_for_lead(runtime, deadline)
        while runtime.loop.passes < 1 or _is_busy(runtime):
            if time.monotonic() > deadline:
                message = f"not done within {wait_seconds:.0f} s"
                raise NotReadyError(message)
            time.sleep(_LOOK_SECONDS)
    finally:
        runtime.stop()
    return Passed(runtime.loop.bound, runtime.waiting())


def _wait_until_ready(runtime: Runtime, deadline: float) -> None:
    while missing := runtime.unready():
        if time.monotonic() > deadline:
            message = (
                f"not ready, without a {' and a '.join(missing)}: manage.py doctor says whether the database answers, whether "
                "anything is published, and whether the API server can be reached"
            )
            raise NotReadyError(message)
        time.sleep(_LOOK_SECONDS)


def _wait_for_lead(runtime: Runtime, deadline: float) -> None:
    """Wait for the Lease of another process until it would have expired if that process were dead."""
    deadline = min(deadline, time.monotonic() + DURATION_SECONDS + 5.0)
    while not runtime.elector.leads():
        if time.monotonic() > deadline:
            message = f"another process schedules: {runtime.elector.holder or 'the Lease could not be asked for'}"
            raise LeaseHeldError(message)
        time.sleep(_LOOK_SECONDS)


def _is_busy(runtime: Runtime) -> bool:
    status = runtime.loop.status
    return bool(status.in_flight or status.counts.get(State.ACTIVE.value) or status.counts.get(State.TAKEN.value))
