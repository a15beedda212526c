"""How long a page may decide for.

Rules ask each node what a Pod asks, and a Pod may ask tens of thousands of things. Who decides for a scheduler has a deadline
(`spec.failures.deadline`), and so has who decides again for a reader.
"""

import time

from policies.engine.errors import DeadlineError

# As long as people wait for a page. The rules of a rule set cost 1 s together at 5,000 nodes, by their estimate.
SECONDS = 10.0


class TimeLimit:
    """The time that one reader's questions have together, from now on."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._end = time.monotonic() + seconds
        self.over = f"it takes longer than {seconds:g} s"

    def is_up(self) -> bool:
        """Return whether it is over."""
        return time.monotonic() >= self._end

    def give_way(self) -> None:
        """Raise DeadlineError once it is over: for `Cycle.give_way`."""
        if self.is_up():
            raise DeadlineError(self.over)
