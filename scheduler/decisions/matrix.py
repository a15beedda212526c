"""A Decision's body as a table of nodes and rules, for pages. Pure: body in, rows out."""

from typing import Any

import msgspec

_NOT_EVALUATED = -2
_MAX_NODES = 500


class Cell(msgspec.Struct, frozen=True):
    """What one rule said of one node."""

    text: str
    # good, bad, none or score.
    kind: str
    reason: str = ""


class Row(msgspec.Struct, frozen=True):
    """Nodes that every rule treats alike."""

    nodes: list[str]
    cells: list[Cell]
    total: str
    feasible: bool
    best: bool


class Matrix(msgspec.Struct, frozen=True):
    """The table: columns of filters, then of scores."""

    filters: list[str]
    scores: list[str]
    rows: list[Row]
    # Groups of nodes beyond what a page shows.
    left_out: int


def matrix_of(body: dict[str, Any], *, best: str) -> Matrix:
    """Return the table of a body; equal nodes share a row, feasible ones and high totals first."""
    filters, scores = body.get("filters") or [], body.get("scores") or []
    groups: dict[tuple[tuple[Cell, ...], str, bool, bool], list[str]] = {}
    for index, name in enumerate(body.get("nodes") or []):
        cells = [_filter_cell(rule, index) for rule in filters] + [_score_cell(rule, index) for rule in scores]
        total = _at(body.get("totals"), index)
        feasible = all(cell.kind != "bad" for cell in cells)
        key = (tuple(cells), "" if total is None else str(total), feasible, name == best)
        groups.setdefault(key, []).append(name)
    rows = [
        Row(nodes=nodes, cells=list(cells), total=total, feasible=feasible, best=is_best)
        for (cells, total, feasible, is_best), nodes in groups.items()
    ]
    rows.sort(key=lambda row: (not row.best, not row.feasible, -float(row.total or -1), row.nodes))
    return Matrix(
        filters=[str(rule.get("rule", "")) for rule in filters],
        scores=[f"{rule.get('rule', '')} ×{rule.get('weight', 1)}" for rule in scores],
        rows=rows[:_MAX_NODES],
        left_out=max(len(rows) - _MAX_NODES, 0),
    )


def _filter_cell(rule: dict[str, Any], index: int) -> Cell:
    verdict = _at(rule.get("verdicts"), index)
    if verdict is None or verdict == _NOT_EVALUATED:
        return Cell(text="·", kind="none", reason="not evaluated: an earlier rule had refused the node")
    if verdict < 0:
        return Cell(text="✓", kind="good", reason="passes")
    status = _at(rule.get("statuses"), verdict) or {}
    code, reason = status.get("code", ""), status.get("reason", "")
    return Cell(text="!" if code == "Error" else "✗", kind="bad", reason=reason or code)


def _score_cell(rule: dict[str, Any], index: int) -> Cell:
    raw = _at(rule.get("raw"), index)
    return Cell(text="·", kind="none", reason="not scored") if raw is None else Cell(text=str(raw), kind="score")


def _at(values: Any, index: int) -> Any:
    return values[index] if isinstance(values, list) and 0 <= index < len(values) else None
