"""An Answer as columns of bytes, and back. Pure.

What follows from the rest isn't written: totals and points follow from raw scores and weights, refusals from verdicts.
Verdicts and scores are written in as few bytes a node as they need; a column in which all is the same, as one.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.decision import NOT_EVALUATED, Answer, FilterColumn, ScoreColumn, to_points
from policies.engine.objects.table import Rows
from policies.engine.ruleset import FilterRule, ScoreRule
from policies.engine.status import PASSED, Code, Status

_BOUNDS = {kind: (int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in ("i1", "i2", "i4", "i8")}
_BYTE = 0x7F
_SHORT = 0x7FFF
Integers = npt.NDArray[Any]


class Packed(msgspec.Struct, array_like=True, frozen=True):
    """Whole numbers: `width` bytes each, little endian. A single one stands for `size` equal ones."""

    width: int
    size: int
    data: bytes

    def numbers(self) -> npt.NDArray[np.int64]:
        """Give the numbers."""
        found = np.frombuffer(self.data, dtype=f"<i{self.width}").astype(np.int64)
        return np.full(self.size, found[0]) if len(found) == 1 and self.size > 1 else found


def pack(numbers: Integers) -> Packed:
    """Write whole numbers."""
    size = len(numbers)
    if size == 0:
        return Packed(1, 0, b"")
    # Where no bit above the seventh is set in any of them, all are 0..127: one pass instead of two for most columns.
    together = int(np.bitwise_or.reduce(numbers))
    if 0 <= together <= _BYTE:
        kind = "i1"
    else:
        low, high = int(numbers.min()), int(numbers.max())
        kind = next(kind for kind, (least, most) in _BOUNDS.items() if least <= low and high <= most)
    return _pack(numbers, kind)


def _pack(numbers: Integers, kind: str) -> Packed:
    data = numbers.astype(f"<{kind}").tobytes()
    width = int(kind[1])
    # Compared with its own neighbours, after a look at both ends: nearly no column gets further than that.
    if data[:width] == data[-width:] and data[width:] == data[:-width]:
        data = data[:width]
    return Packed(width, len(numbers), data)


class StoredFilter(msgspec.Struct, array_like=True):
    """What one filter rule said. `verdicts` is None where it refused nobody that was left."""

    rule: str
    mode: str
    statuses: list[tuple[str, str]]
    faults: dict[str, int]
    verdicts: Packed | None


class StoredScore(msgspec.Struct, array_like=True):
    """What one score rule gave, beside the nodes that were scored."""

    rule: str
    mode: str
    weight: int
    faults: dict[str, int]
    raw: Packed


class StoredAnswer(msgspec.Struct, array_like=True):
    """An Answer about `size` nodes. `scored` is None when all feasible ones were; else positions."""

    size: int
    filters: list[StoredFilter]
    scores: list[StoredScore]
    scored: Packed | None


class StoredOrder(msgspec.Struct, array_like=True):
    """The nodes asked about, in order: rows of the table by their differences; None for all rows from the first on.

    -1 stands for a name that the table doesn't have; these are listed in `unknown`, in order.
    """

    size: int
    differences: Packed | None
    unknown: list[str]

    def rows(self) -> Rows:
        """Give the rows."""
        if self.differences is None:
            return np.arange(self.size, dtype=np.intp)
        return np.cumsum(self.differences.numbers()).astype(np.intp)


def store_order(rows: Rows, names: Sequence[str]) -> StoredOrder:
    """Write down which nodes were asked about.

    Args:
        rows: of the table, -1 for a name that it doesn't have.
        names: those asked about, beside `rows`.
    """
    size = len(rows)
    if size == 0:
        return StoredOrder(0, None, [])
    differences = rows.copy()
    differences[1:] -= rows[:-1]
    together = int(np.bitwise_or.reduce(differences))
    # From row 0 on, each one further: the first difference is 0, the others are 1.
    if together == (size > 1) and rows[0] == 0 and rows[-1] == size - 1:
        return StoredOrder(size, None, [])
    # A negative number somewhere shows in the sign of all of them put together.
    is_known = int(np.bitwise_or.reduce(rows)) >= 0
    unknown = [] if is_known else [names[position] for position in np.flatnonzero(rows < 0).tolist()]
    return StoredOrder(size, pack(differences), unknown)


def store_answer(answer: Answer) -> StoredAnswer:
    """Write down what the rules said."""
    filters = _store_filters(answer)
    as_follows = not answer.scores or len(answer.scored) == answer.feasible_count
    scored = None if as_follows else pack(answer.scored)
    return StoredAnswer(len(answer.refusal), filters, [_store_score(column) for column in answer.scores], scored)


def _store_filters(answer: Answer) -> list[StoredFilter]:
    """Write down verdicts; what a rule that refused nobody says follows from the rules before it."""
    stored = []
    refused = np.zeros(len(answer.refusal), dtype=np.bool_)
    nobody = np.full(len(answer.refusal), PASSED, dtype=np.int8).tobytes()
    known: Integers | None = None  # codes that say `nobody`: rules that refuse nobody share theirs
    for column in answer.filters:
        kind = "i1" if len(column.statuses) <= _BYTE else "i2" if len(column.statuses) <= _SHORT else "i4"
        verdicts = None
        if column.codes is known:
            pass
        elif kind == "i1" and column.codes.astype(np.int8).tobytes() == nobody:
            known = column.codes
        else:
            verdicts = _pack(column.codes, kind)
            if column.rule.mode == "enforce":
                refused |= column.codes >= 0
                nobody, known = np.where(refused, np.int8(NOT_EVALUATED), np.int8(PASSED)).tobytes(), None
        stored.append(
            StoredFilter(
                column.rule.key,
                column.rule.mode,
                [(status.code.value, status.reason) for status in column.statuses],
                dict(column.faults),
                verdicts,
            )
        )
    return stored


def _store_score(column: ScoreColumn) -> StoredScore:
    rule = column.rule
    return StoredScore(rule.key, rule.mode, rule.weight, dict(column.faults), pack(column.raw))


def read_answer(stored: StoredAnswer, names: list[str]) -> Answer:
    """Give the Answer back. Its rules hold key, mode and weight only.

    Args:
        stored: what was written.
        names: of the nodes, in the order asked; those that the table had.
    """
    answer = Answer(names)
    for column in stored.filters:
        found = _read_filter(column, answer)
        answer.filters.append(found)
        if column.mode == "enforce":
            newly = (found.codes >= 0) & (answer.refusal == PASSED)
            answer.refusal[newly] = found.codes[newly] + len(answer.refusals)
            answer.refusals += found.statuses
    if stored.scores:
        positions = np.flatnonzero(answer.refusal == PASSED) if stored.scored is None else stored.scored.numbers()
        answer.scored = positions.astype(np.intp)
        _read_scores(stored.scores, answer)
    return answer


def _read_filter(stored: StoredFilter, answer: Answer) -> FilterColumn:
    rule = FilterRule(name=stored.rule, mode=stored.mode)  # type: ignore[arg-type] # as it was written
    statuses = [Status(Code(code), reason) for code, reason in stored.statuses]
    if stored.verdicts is None:
        codes = np.where(answer.refusal == PASSED, np.int32(PASSED), np.int32(NOT_EVALUATED))
    else:
        codes = stored.verdicts.numbers().astype(np.int32)
    return FilterColumn(rule, codes, statuses, stored.faults)


def _read_scores(stored: list[StoredScore], answer: Answer) -> None:
    weights = 0
    answer.totals = np.zeros(len(answer.scored), dtype=np.int64)
    for column in stored:
        rule = ScoreRule(name=column.rule, mode=column.mode, weight=column.weight)  # type: ignore[arg-type] # as written
        raw = column.raw.numbers()
        answer.scores.append(ScoreColumn(rule, raw, column.faults))
        if column.mode == "enforce":
            weights += column.weight
            answer.totals = answer.totals + column.weight * raw
    answer.points = to_points(answer.totals, weights)
