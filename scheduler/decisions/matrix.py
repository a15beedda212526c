"""A Decision's answer as a table of nodes and rules, for pages and `explain`. Pure: columns in, rows out.

Nodes that every rule treats alike share a row, however many there are; whole columns are compared.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.decision import NOT_EVALUATED, NOT_IN_TIME, Answer, FilterColumn
from policies.engine.status import PASSED

MOST_ROWS = 500
# In a column of scores: a node that wasn't scored.
_NOT_SCORED = -1
_MOST_POINTS = 10
_MOST_RAW = 100
_Numbers = npt.NDArray[np.int64]


class Cell(msgspec.Struct, frozen=True):
    """One rule's verdict on one node. `kind` is good, bad, none or score; `heat` is 0..10 for a score."""

    text: str
    kind: str
    reason: str = ""
    heat: int | None = None


class Row(msgspec.Struct, frozen=True):
    """Nodes that every rule treats alike."""

    nodes: list[str]
    cells: list[Cell]
    total: str
    feasible: bool
    best: bool
    placed: bool = False


class Matrix(msgspec.Struct, frozen=True):
    """The table: columns of filters, then of scores. `left_out` counts the rows beyond `MOST_ROWS`."""

    filters: list[str]
    scores: list[str]
    rows: list[Row]
    left_out: int


class Refusal(msgspec.Struct, frozen=True):
    """Nodes that a rule refused for one reason, in the order of the candidates."""

    rule: str
    code: str
    reason: str
    nodes: list[str]


def matrix_of(answer: Answer, *, best: str, placed: str = "", most: int = MOST_ROWS) -> Matrix:
    """Return the table of an answer: refused nodes first, larger groups before smaller ones; then by points, the highest first.

    Args:
        answer: the rules' answer.
        best: the best node; it has a row of its own.
        placed: the node that the Pod got; it has a row of its own.
        most: the limit of rows.
    """
    rows = list(_rows(answer, best, placed))
    rows.sort(key=lambda row: (row.feasible, not row.best, -float(row.total or -1), -len(row.nodes), row.nodes[0]))
    return Matrix(
        filters=[column.rule.key for column in answer.filters],
        scores=[f"{column.rule.key} ×{column.rule.weight}" for column in answer.scores],
        rows=rows[:most],
        left_out=max(len(rows) - most, 0),
    )


def refusals_of(answer: Answer) -> list[Refusal]:
    """Return the refused nodes by the enforced rule that refused each first, the most nodes first.

    For nodes that were refused for lack of time, it is the first rule that wasn't evaluated.
    """
    open_nodes = np.ones(len(answer.names), dtype=np.bool_)
    found = []
    for column in answer.filters:
        if column.rule.mode != "enforce" or not column.statuses:
            continue
        for code, status in enumerate(column.statuses):
            positions = np.flatnonzero((column.codes == code) & open_nodes)
            if len(positions):
                nodes = list(map(answer.names.__getitem__, positions.tolist()))
                found.append(Refusal(column.rule.key, status.code.value, status.reason, nodes))
        open_nodes &= column.codes < 0
    return sorted([*found, *_refused_for_time(answer, open_nodes)], key=lambda refusal: -len(refusal.nodes))


def _refused_for_time(answer: Answer, open_nodes: npt.NDArray[np.bool_]) -> Iterator[Refusal]:
    """Iterate over the refusal of nodes for which rules weren't evaluated in time: no column has it."""
    positions = np.flatnonzero(open_nodes & (answer.refusal != PASSED))
    if len(positions):
        missed = (column.rule.key for column in answer.filters if column.rule.mode == "enforce")
        rule = next(key for key in missed if key in answer.missed)
        nodes = [answer.names[position] for position in positions.tolist()]
        yield Refusal(rule, NOT_IN_TIME.code.value, NOT_IN_TIME.reason, nodes)


def passing(answer: Answer) -> set[str]:
    """Return the names of the nodes that passed."""
    return {answer.names[position] for position in np.flatnonzero(answer.refusal == PASSED).tolist()}


def _rows(answer: Answer, best: str, placed: str) -> Iterator[Row]:
    """Iterate over groups of equal nodes, in no order."""
    if not answer.names:
        return
    columns = _columns(answer, best, placed)
    table = np.ascontiguousarray(np.stack(columns, axis=1))
    # Rows as one value each, so that equal ones are found by one sort.
    keys = table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()
    _, firsts, groups = np.unique(keys, return_index=True, return_inverse=True)
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    cells = _Cells(answer)
    for first, positions in zip(firsts.tolist(), members, strict=True):
        *codes, points, is_best, is_placed = table[first].tolist()
        yield Row(
            nodes=[answer.names[position] for position in positions.tolist()],
            cells=cells.of(codes),
            total="" if points == _NOT_SCORED else str(points),
            feasible=bool(answer.refusal[first] == PASSED),
            best=bool(is_best),
            placed=bool(is_placed),
        )


def _columns(answer: Answer, best: str, placed: str) -> list[_Numbers]:
    """Return the columns that distinguish nodes: verdicts, scores, points, and whether a node is `best` or `placed`."""
    size = len(answer.names)
    columns = [_verdicts(column, size) for column in answer.filters]
    columns += [_beside(answer, column.raw) for column in answer.scores]
    columns.append(_beside(answer, answer.points))
    for name in (best, placed):
        mark = np.zeros(size, dtype=np.int64)
        if name and name in answer.names:
            mark[answer.names.index(name)] = 1
        columns.append(mark)
    return columns


def _verdicts(column: FilterColumn, size: int) -> _Numbers:
    codes = np.asarray(column.codes, dtype=np.int64)
    if len(codes) == size:
        return codes
    # A truncated record says nothing about the remaining nodes.
    return np.concatenate((codes[:size], np.full(max(size - len(codes), 0), NOT_EVALUATED, dtype=np.int64)))


def _beside(answer: Answer, numbers: Sequence[Any] | npt.NDArray[Any]) -> _Numbers:
    """Spread the numbers of the scored nodes to all nodes."""
    spread = np.full(len(answer.names), _NOT_SCORED, dtype=np.int64)
    if answer.scores:
        spread[answer.scored] = numbers
    return spread


class _Cells:
    """Makes cells, each once."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._made: dict[tuple[int, int, bool], Cell] = {}

    def of(self, codes: Sequence[int]) -> list[Cell]:
        """Return the cells of a row, from the values of its columns."""
        filters, cells, refused = self._answer.filters, [], False
        for index, code in enumerate(codes):
            cells.append(self._cell(index, code, refused=refused))
            refused |= index < len(filters) and code >= 0 and filters[index].rule.mode == "enforce"
        return cells

    def _cell(self, index: int, code: int, *, refused: bool) -> Cell:
        found = self._made.get((index, code, refused))
        if found is None:
            filters = self._answer.filters
            if index < len(filters):
                missed = filters[index].rule.key in self._answer.missed
                found = _filter_cell(filters[index], code, refused=refused, missed=missed)
            else:
                found = _score_cell(code)
            self._made[index, code, refused] = found
        return found


def _filter_cell(column: FilterColumn, code: int, *, refused: bool, missed: bool) -> Cell:
    if code == NOT_EVALUATED:
        # Otherwise the rule was evaluated once more only for nodes with nominated Pods.
        why = ": an earlier rule had refused the node" if refused else ": there was no time" if missed else ""
        return Cell(text="·", kind="none", reason=f"not evaluated{why}")
    if code < 0:
        return Cell(text="✓", kind="good", reason="passes")
    status = column.statuses[code] if code < len(column.statuses) else None
    said = status.code.value if status else ""
    return Cell(text="!" if said == "Error" else "✗", kind="bad", reason=(status.reason if status else "") or said)


def _score_cell(raw: int) -> Cell:
    if raw == _NOT_SCORED:
        return Cell(text="·", kind="none", reason="not scored")
    heat = max(0, min(_MOST_POINTS, raw * _MOST_POINTS // _MOST_RAW))
    return Cell(text=str(raw), kind="score", heat=heat)
