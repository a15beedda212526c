"""The deletions by retention in a log, for a reader of its leaves in order."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter

import msgspec

from scheduler.ledger.deletions import Deletion, Range, deletions, merged_ranges
from scheduler.ledger.logs import OUTCOMES
from scheduler.ledger.note import Verifier
from scheduler.models import LedgerPruned


class Pruned(msgspec.Struct):
    """Leaves whose rows or details a retention rule deleted, the time of the last deletion, and the number that this run found."""

    what: str
    rule: str
    at: datetime
    ranges: list[Range]
    deleted: int = 0

    @property
    def leaves(self) -> int:
        """The number of leaves."""
        return sum(until - first for first, until in self.ranges)


class PrunedLeaves:
    """The deletions in one log. They are read again if rows are deleted while their leaves are read.

    Attributes:
        planted: claims of deletions that aren't proved.
        outcomes_before: the time before which outcomes may have been deleted; None if none were.
    """

    def __init__(self, log: str, verifiers: Sequence[Verifier]) -> None:
        self._log = log
        self._verifiers = verifiers
        # The number of leaves that were found deleted, by kind and rule.
        self._found: Counter[tuple[str, str]] = Counter()
        self._read()

    def _read(self) -> None:
        found, planted = deletions(self._verifiers)
        self.planted = [claim for claim in planted if claim.deletion.log == self._log]
        self.outcomes_before = max((each.horizon for each in found if each.log == OUTCOMES), default=None)
        # In order, for the deletion at the current leaf, and the start of the next one.
        self._deletions = sorted((each for each in found if each.log == self._log), key=lambda each: each.first)
        self._around: list[Deletion] = []
        self._next = 0
        self._gone = merged_ranges(
            (each.first, each.until) for each in self._deletions if each.what == LedgerPruned.What.ROWS
        )
        # Whether this was read after the current rows.
        self._is_fresh = True

    def rows_were_read(self) -> None:
        """Note that rows were read again: missing ones may have been deleted since the deletions were read."""
        self._is_fresh = False

    def find(self, index: int, *, is_row: bool) -> bool:
        """Return whether a row, or its body, was deleted, and count it."""
        found = self._at(index, is_row=is_row)
        if found is None and not self._is_fresh:
            self._read()
            found = self._at(index, is_row=is_row)
        if found is not None:
            self._found[found.what, found.rule] += 1
        return found is not None

    def _at(self, index: int, *, is_row: bool) -> Deletion | None:
        """Return the deletion of a row or of its details. There may be very many deletions, and leaves come in order."""
        while self._next < len(self._deletions) and self._deletions[self._next].first <= index:
            self._around.append(self._deletions[self._next])
            self._next += 1
        self._around = [each for each in self._around if index < each.until]
        what = LedgerPruned.What.ROWS if is_row else LedgerPruned.What.DETAILS
        return next((each for each in self._around if each.what == what), None)

    def is_row_gone(self, index: int) -> bool:
        """Return whether exactly this row was deleted, according to the deletions read: rows and their deletion commit together."""
        return any(each.is_exact and each.what == LedgerPruned.What.ROWS for each in self._around if index < each.until)

    def are_between(self, last: int, index: int) -> bool:
        """Return whether rows of leaves between two leaves were deleted, also just before the current rows were read."""
        if not self._is_fresh and not self._is_gone_between(last, index):
            self._read()
        return self._is_gone_between(last, index)

    def _is_gone_between(self, last: int, index: int) -> bool:
        at = bisect_right(self._gone, last + 1, key=itemgetter(1))
        return at < len(self._gone) and self._gone[at][0] < index

    def report(self) -> list[Pruned]:
        """Return the deletions by rule, in the order of leaves."""
        found: dict[tuple[str, str], list[Deletion]] = {}
        for each in self._deletions:
            found.setdefault((each.what, each.rule), []).append(each)
        return [
            Pruned(
                what, rule, max(each.at for each in of_rule),
                merged_ranges((each.first, each.until) for each in of_rule), self._found[what, rule],
            )
            for (what, rule), of_rule in found.items()
        ]  # fmt: skip
