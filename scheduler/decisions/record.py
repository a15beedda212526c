"""A Decision as it is recorded: what was asked, what each rule said of each node, and what was answered.

The body is columnar (a list a rule, beside the list of nodes): a verdict costs a small number, and a reason is written
once, not once a node.
"""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from policies.engine.decision import Answer, FilterColumn, ScoreColumn
from policies.engine.objects.pod import Pod


class Record(msgspec.Struct, kw_only=True):
    """One Decision on its way to the history. `process` and `sequence` are set by the recorder."""

    id: str = msgspec.field(default_factory=lambda: str(uuid.uuid4()))
    at: datetime
    process: str = ""
    sequence: int = 0
    verb: str
    pod_namespace: str
    pod_name: str
    pod_uid: str
    revision: int
    rule_set: str = ""
    rule_set_version: int = 0
    assignment: str = ""
    nodes: int = 0
    feasible: int = 0
    best: str = ""
    top_reason: str = ""
    duration_microseconds: int = 0
    mode: str = "enforce"
    error: str = ""
    body: dict[str, Any] = {}


def body_of(pod: Pod, answer: Answer) -> dict[str, Any]:
    """Write down the answer in columns."""
    return {
        "pod": pod.json,
        "nodes": answer.names,
        "filters": [_filter_column(column) for column in answer.filters],
        "scores": [_score_column(column, answer) for column in answer.scores],
        "totals": _spread(answer.points.tolist(), answer) if answer.scores else [],
    }


def _filter_column(column: FilterColumn) -> dict[str, Any]:
    statuses = [{"code": status.code.value, "reason": status.reason} for status in column.statuses]
    written = {"rule": column.rule.key, "mode": column.rule.mode, "statuses": statuses}
    return written | _faults(column.faults) | {"verdicts": column.codes.tolist()}


def _score_column(column: ScoreColumn, answer: Answer) -> dict[str, Any]:
    raw = _spread(column.raw.tolist(), answer)
    written = {"rule": column.rule.key, "mode": column.rule.mode, "weight": column.rule.weight}
    return written | _faults(column.faults) | {"raw": raw}


def _faults(faults: Mapping[str, int]) -> dict[str, Any]:
    return {"faults": [{"message": message, "nodes": nodes} for message, nodes in faults.items()]} if faults else {}


def _spread(numbers: list[int], answer: Answer) -> list[int | None]:
    """Put the numbers of the scored nodes beside all nodes, with None for the others."""
    spread: list[int | None] = [None] * len(answer.names)
    for position, number in zip(answer.scored.tolist(), numbers, strict=True):
        spread[position] = number
    return spread
