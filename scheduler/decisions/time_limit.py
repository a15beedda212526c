"""The time that a page may spend on deciding.

Rules check each node for each of a Pod's requirements, of which there may be tens of thousands. Decisions for a scheduler have a
deadline (`spec.failures.deadline`), and so have repeated decisions for a page.
"""

import time

from policies.engine.errors import DeadlineError

# As long as people wait for a page. By their estimated cost, the rules of a rule set take up to 1 s together at 5,000 nodes.
SECONDS = 10.0


class TimeLimit:
    """The total time for one reader's requests, from now on."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._end = time.monotonic() + seconds
        self.over = f"it takes longer than {seconds:g} s"

    def is_up(self) -> bool:
        """Return whether the time is over."""
        return time.monotonic() >= self._end

    def give_way(self) -> None:
        """Raise DeadlineError if the time is over: for `Cycle.give_way`."""
        if self.is_up():
            raise DeadlineError(self.over)
