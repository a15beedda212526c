"""Encodes an Answer as columns of bytes, and decodes it. Pure.

Derived values aren't written: totals and points follow from raw scores and weights, refusals from verdicts.
Verdicts and scores take as few bytes per node as they need; a column of equal values is written as one value.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.decision import NOT_EVALUATED, Answer, FilterColumn, ScoreColumn, to_points
from policies.engine.objects.table import Rows
from policies.engine.ruleset import FilterRule, ScoreRule
from policies.engine.status import PASSED, Code, Status

_KINDS = {width: np.dtype(f"<i{width}") for width in (1, 2, 4, 8)}
# More than any cluster has nodes: a flipped bit can say that a single byte stands for any number of equal ones.
_MOST = 10_000_000
# The bytes of a number, by its bits beside the sign.
_WIDTHS = [1] * 8 + [2] * 8 + [4] * 16 + [8] * 32
# Maps a rule's codes, a byte each, to -2 for a node that it refused and -1 for any other.
_LEFT = np.where(np.arange(256) < 0x80, NOT_EVALUATED, PASSED).astype(np.int8).tobytes()  # noqa: PLR2004 - from there on negative
_PASSED = np.int8(PASSED).tobytes()
_BYTE = 0x7F
_SHORT = 0x7FFF
# Shorter runs, on average, take more bytes than the differences of all rows.
_SHORTEST_RUN = 3
# Runs aren't searched for in fewer rows: a request would wait longer for that than for two bytes per row, which are compressed later.
_FEWEST_FOR_RUNS = 2_000
Integers = npt.NDArray[Any]


class Packed(msgspec.Struct, array_like=True, frozen=True):
    """Whole numbers: `width` bytes each, little endian. A single one stands for `size` equal ones."""

    width: int
    size: int
    data: bytes

    def numbers(self) -> npt.NDArray[np.int64]:
        """Return the numbers.

        Raises:
            ValueError: they are damaged.
        """
        if self.width not in _KINDS or self.size > _MOST:
            message = f"{self.size} numbers of {self.width} bytes each can't be read"
            raise ValueError(message)
        found = np.frombuffer(self.data, dtype=_KINDS[self.width]).astype(np.int64)
        return np.full(self.size, found[0]) if len(found) == 1 and self.size > 1 else found


def pack(numbers: Integers) -> Packed:
    """Write whole numbers."""
    if not len(numbers):
        return Packed(1, 0, b"")
    # The highest bit that is set in any number gives the width; a negative number shows in the sign.
    return _pack(numbers, int(np.bitwise_or.reduce(numbers)))


def _pack_together(columns: Sequence[Integers]) -> list[Packed]:
    """Write columns of the same length: nearly always each number takes one byte, which is checked and done for all at once."""
    if len(columns) > 1 and len(columns[0]):
        together = np.concatenate(columns)
        bits = int(np.bitwise_or.reduce(together))
        if 0 <= bits <= _BYTE:
            size, data = len(columns[0]), together.astype(np.int8).tobytes()
            return [_packed(data[at : at + size], 1, size) for at in range(0, len(data), size)]
    return list(map(pack, columns))


def _pack(numbers: Integers, together: int) -> Packed:
    if together < 0:
        together = max(int(numbers.max()), ~int(numbers.min()))
    width = _WIDTHS[together.bit_length()]
    return _packed(numbers.astype(_KINDS[width]).tobytes(), width, len(numbers))


def _packed(data: bytes, width: int, size: int) -> Packed:
    # First the two ends are compared, then neighbours: few columns get further than the ends.
    if data[:width] == data[-width:] and data[width:] == data[:-width]:
        data = data[:width]
    return Packed(width, size, data)


class StoredFilter(msgspec.Struct, array_like=True):
    """One filter rule's verdicts. `verdicts` is None if it refused none of the remaining nodes."""

    rule: str
    mode: str
    statuses: list[tuple[str, str]]
    faults: Mapping[str, int]
    verdicts: Packed | None


class StoredScore(msgspec.Struct, array_like=True):
    """One score rule's scores, in the order of the scored nodes."""

    rule: str
    mode: str
    weight: int
    faults: Mapping[str, int]
    raw: Packed


class StoredAnswer(msgspec.Struct, array_like=True):
    """An Answer about `size` nodes. `scored` is None when all feasible nodes were scored; else their positions."""

    size: int
    filters: list[StoredFilter]
    scores: list[StoredScore]
    scored: Packed | None


class Runs(msgspec.Struct, array_like=True, frozen=True):
    """Rows as runs of neighbours: the first row of each run, and how many rows it has."""

    firsts: Packed
    lengths: Packed

    def rows(self) -> Rows:
        """Return the rows."""
        lengths = self.lengths.numbers()
        offsets = self.firsts.numbers() - (np.cumsum(lengths) - lengths)
        rows = np.repeat(offsets, lengths)
        return (rows + np.arange(len(rows))).astype(np.intp)


class StoredOrder(msgspec.Struct, array_like=True):
    """The candidate nodes, in order, as rows of the table: as runs, as differences, or all from row 0 on.

    kube-scheduler sends runs: its workers take nodes in chunks. -1 stands for a name that isn't in the table; such names
    are listed in `unknown`, in order.
    """

    size: int
    differences: Packed | None
    unknown: list[str]
    runs: Runs | None = None

    def rows(self) -> Rows:
        """Return the rows."""
        if self.runs is not None:
            return self.runs.rows()
        if self.differences is None:
            return np.arange(self.size, dtype=np.intp)
        return np.cumsum(self.differences.numbers()).astype(np.intp)


def store_order(rows: Integers, names: Sequence[str]) -> StoredOrder:
    """Encode the candidate nodes.

    Args:
        rows: of the table, -1 for a name that isn't in it.
        names: the candidates' names, parallel to `rows`.
    """
    size = len(rows)
    if size == 0:
        return StoredOrder(0, None, [])
    if size < _FEWEST_FOR_RUNS:
        return _store_differences(rows, names)
    steps = rows[1:] - rows[:-1]
    # The starts of runs, and the end of the last one.
    begins = np.empty(size + 1, dtype=np.bool_)
    begins[0] = begins[-1] = True
    np.not_equal(steps, 1, out=begins[1:-1])
    bounds = begins.nonzero()[0]
    if (len(bounds) - 2) * _SHORTEST_RUN >= size:
        return _store_differences(rows, names)
    starts = bounds[:-1]
    firsts = rows.take(starts)
    together = int(np.bitwise_or.reduce(firsts))
    # -1 never continues a run, so it begins one.
    unknown = _unknown(rows, names) if together < 0 else []
    if len(firsts) == 1 and not together:
        return StoredOrder(size, None, unknown)
    return StoredOrder(size, None, unknown, Runs(_pack(firsts, together), pack(bounds[1:] - starts)))


def _store_differences(rows: Integers, names: Sequence[str]) -> StoredOrder:
    if rows[0] == 0 and rows[-1] == len(rows) - 1 and np.array_equal(rows, np.arange(len(rows))):
        return StoredOrder(len(rows), None, [])
    together = int(np.bitwise_or.reduce(rows))
    differences = rows.copy()
    differences[1:] -= rows[:-1]
    if together < 0:
        return StoredOrder(len(rows), pack(differences), _unknown(rows, names))
    # The difference of two non-negative numbers needs no more bits than the numbers, beside the sign.
    width = _WIDTHS[together.bit_length()]
    return StoredOrder(len(rows), Packed(width, len(rows), differences.astype(_KINDS[width]).tobytes()), [])


def _unknown(rows: Integers, names: Sequence[str]) -> list[str]:
    return [names[position] for position in np.flatnonzero(rows < 0).tolist()]


def store_answer(answer: Answer) -> StoredAnswer:
    """Encode the rules' answer."""
    filters = _store_filters(answer)
    raws = _pack_together([raw for _rule, raw, _faults in answer.scores])
    scores = [
        StoredScore(rule.key, rule.mode, rule.weight, faults, raw)
        for (rule, _raw, faults), raw in zip(answer.scores, raws, strict=True)
    ]
    # Nodes that were refused for lack of time appear in no column.
    as_follows = not answer.scores or (len(answer.scored) == answer.feasible_count and not answer.missed)
    scored = None if as_follows else pack(answer.scored)
    return StoredAnswer(len(answer.refusal), filters, scores, scored)


def _both(one: bytes, other: bytes) -> bytes:
    """Return the nodes that two rules have left: -1 for each, -2 for the others."""
    return np.bitwise_and(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8)).tobytes()


def _store_filters(answer: Answer) -> list[StoredFilter]:
    """Encode verdicts; those of a rule that refused no node follow from the rules before it."""
    stored = []
    size = len(answer.refusal)
    as_bytes = nobody = _PASSED * size
    refused: bytes | None = None
    for rule, codes, statuses, faults, is_silent in answer.filters:
        if is_silent:
            stored.append(StoredFilter(rule.key, rule.mode, [], {}, None))
            continue
        if refused is not None:
            left = refused.translate(_LEFT)
            # If no earlier rule refused a node, the remaining nodes follow from this rule alone.
            as_bytes = left if as_bytes is nobody else _both(as_bytes, left)
            refused = None
        width = 1 if len(statuses) <= _BYTE else 2 if len(statuses) <= _SHORT else 4
        data, verdicts = codes.astype(_KINDS[width]).tobytes(), None
        if data != as_bytes:
            verdicts = _packed(data, width, size)
            if rule.mode == "enforce":
                # The remaining nodes are computed when another rule needs them.
                refused = data if width == 1 else np.sign(codes).astype(np.int8).tobytes()
        said: list[tuple[str, str]] = [(status.code, status.reason) for status in statuses]
        stored.append(StoredFilter(rule.key, rule.mode, said, faults, verdicts))
    return stored


def read_answer(stored: StoredAnswer, names: list[str]) -> Answer:
    """Decode an Answer. Its rules have only key, mode and weight.

    Args:
        stored: the encoded answer.
        names: the candidates' names, in order; only those in the table.

    Raises:
        ValueError: the answer is damaged.
    """
    answer = Answer(names)
    # The verdicts of rules that refused no node: the same until the next rule that did.
    silent = None
    for column in stored.filters:
        if column.verdicts is None:
            if silent is None:
                silent = np.where(answer.refusal == PASSED, np.int32(PASSED), np.int32(NOT_EVALUATED))
            answer.filters.append(_read_filter(column, silent))
            continue
        found = _read_filter(column, column.verdicts.numbers().astype(np.int32))
        answer.filters.append(found)
        if column.mode == "enforce":
            silent = None
            newly = (found.codes >= 0) & (answer.refusal == PASSED)
            if newly.any():
                answer.refusal[newly] = found.codes[newly] + len(answer.refusals)
                answer.refusals += found.statuses
    if stored.scores:
        positions = np.flatnonzero(answer.refusal == PASSED) if stored.scored is None else stored.scored.numbers()
        answer.scored = positions.astype(np.intp)
        if answer.scored.max(initial=-1) >= len(answer.refusal):
            message = f"its scores are of node {answer.scored.max()}, and it has {len(answer.refusal)}"
            raise ValueError(message)
        _read_scores(stored.scores, answer)
    return answer


def _read_filter(stored: StoredFilter, codes: npt.NDArray[np.int32]) -> FilterColumn:
    rule = FilterRule(name=stored.rule, mode=stored.mode)  # type: ignore[arg-type] # as it was written
    statuses = [Status(Code(code), reason) for code, reason in stored.statuses]
    if codes.max(initial=PASSED) >= len(statuses):
        message = f"rule {stored.rule} refuses by reason {codes.max()}, and gave {len(statuses)}"
        raise ValueError(message)
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
