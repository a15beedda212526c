"""When what failed is tried again. Pure."""

from datetime import timedelta
from typing import Final

# From eight hours to sixteen, by chance: a night.
MOST_ATTEMPTS: Final = 24
_FIRST: Final = 5.0
_LONGEST: Final = 3_600.0
_LONGEST_REST: Final = 300.0


def retry_after(attempts: int, chance: float) -> timedelta | None:
    """Return after what time a delivery is tried again, twice as long each time; None to give up.

    Args:
        attempts: how often it was tried.
        chance: from 0 to 1; what failed together isn't tried together.
    """
    if attempts >= MOST_ATTEMPTS:
        return None
    return timedelta(seconds=_backoff(attempts, _LONGEST, chance))


def rest_after(failures: int, chance: float) -> timedelta:
    """Return for how long nothing is sent to a webhook that failed so often in a row."""
    return timedelta(seconds=_backoff(failures, _LONGEST_REST, chance))


def _backoff(tries: int, longest: float, chance: float) -> float:
    return min(longest, _FIRST * 2.0 ** min(tries - 1, 30)) * (0.5 + chance / 2)
