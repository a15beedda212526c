"""A Pod of the queue as pages and REST show it."""

from datetime import UTC, datetime, timedelta
from typing import Any

from scheduler.binder.queue import State, Waiting

_LONGEST_MESSAGE = 500
_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


def shown(waiting: Waiting, at: float, now: datetime) -> dict[str, Any]:
    """Return a Pod of the queue as JSON.

    Args:
        waiting: the Pod.
        at: the current time, by the queue's clock.
        now: the same time, with a time zone.
    """

    def moment(seconds: float) -> str:
        # Not past the last year: a Pause or an Exemption may end in its last second, and `now` is a little after `at`.
        ahead = min(timedelta(seconds=seconds - at), _LAST_MOMENT - now)
        return (now + ahead).isoformat(timespec="milliseconds")

    pod = waiting.pod
    opens_at = waiting.opens_at if waiting.state is State.UNSCHEDULABLE else None
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "scheduler": pod.spec.scheduler_name,
        "priority": pod.priority,
        "state": waiting.state.value,
        "attempts": waiting.attempts,
        "since": moment(waiting.first_at),
        "until": moment(waiting.until) if waiting.state is State.BACKOFF else None,
        "opens_at": None if opens_at is None else moment(max(opens_at, waiting.until)),
        "nominated": waiting.nominated,
        "message": waiting.message[:_LONGEST_MESSAGE],
    }
