"""When failed deliveries are retried. Pure."""

from datetime import timedelta
from typing import Final

# The attempts take eight to sixteen hours, by chance: a night.
MOST_ATTEMPTS: Final = 24
_FIRST: Final = 5.0
_LONGEST: Final = 3_600.0
_LONGEST_REST: Final = 300.0


def retry_after(attempts: int, chance: float, asked_seconds: float = 0.0) -> timedelta | None:
    """Return the delay to a delivery's next attempt, which doubles each time; None to give up.

    Args:
        attempts: the number of attempts so far.
        chance: from 0 to 1, so that deliveries that failed together aren't retried together.
        asked_seconds: the least delay that the receiver asks for; it can't ask for more than the longest one.
    """
    if attempts >= MOST_ATTEMPTS:
        return None
    return timedelta(seconds=_backoff(attempts, _LONGEST, chance, asked_seconds))


def rest_after(failures: int, chance: float, asked_seconds: float = 0.0) -> timedelta:
    """Return for how long nothing is sent to a webhook with this many consecutive failures; `asked_seconds` as for `retry_after`."""
    return timedelta(seconds=_backoff(failures, _LONGEST_REST, chance, asked_seconds))


def _backoff(tries: int, longest: float, chance: float, asked: float) -> float:
    delay = min(longest, _FIRST * 2.0 ** min(tries - 1, 30)) * (0.5 + chance / 2)
    return max(delay, min(asked, longest))
