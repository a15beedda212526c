"""Limits the records of acts that anybody can repeat: each of the first times is recorded, then each doubling."""

import threading
from collections import Counter

# How many are recorded of one address within a minute, and of all addresses together.
EACH_OF_FIRST = 10
_EACH_OF_FIRST_IN_ALL = 60
# How many addresses are counted separately within a minute; all others are counted as one.
MOST_ADDRESSES = 256


class Tally:
    """Counts the acts within a minute, by address. For all threads of a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self._minute, self._written, self._of = 0, 0, Counter[str]()

    def count(self, address: str, minute: int) -> tuple[int, bool]:
        """Count one more; returns its number in the minute for this address, and whether to record it.

        However many acts and addresses there are, some seventy are recorded in a minute.
        """
        with self._lock:
            if minute != self._minute:
                self._minute, self._written = minute, 0
                self._of.clear()
            known = address if address in self._of or len(self._of) < MOST_ADDRESSES else ""
            self._of[known] += 1
            number = self._of[known]
            if not _is_told(number, EACH_OF_FIRST):
                return number, False
            self._written += 1
            return number, _is_told(self._written, _EACH_OF_FIRST_IN_ALL)


def _is_told(number: int, each_of_first: int) -> bool:
    return number <= each_of_first or number.bit_count() == 1


# Failed sign-ins, which anybody can cause. AuditEvents are kept for ever; the log has a line for each attempt.
UNKNOWN = Tally()
