"""The values that an expression read for one node, for people: each path, count and the time."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from policies.engine.cel.expressions import Expression, Result
from policies.engine.cel.language import EvaluationFault
from policies.engine.cel.syntax import COUNTS, OF_POD
from policies.engine.errors import ExpressionError
from policies.engine.objects.node import MISSING, Path, spelled, trace
from policies.engine.rule import Cycle

Seen = dict[str, Any]

_MAX_SHOWN = 80
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_COUNT_CALL = re.compile(rf"\b(?:node|topology|cluster)\s*\.\s*(?:{'|'.join(COUNTS)})\s*\(")


def seen_by(expression: Expression, cycle: Cycle, row: int) -> Seen:
    """Return the values that an expression reads for one node: each path, count and the time -> the value, None for nothing."""
    info = cycle.table.infos[row]
    of_pod = {name: cycle.variable(name) for name in OF_POD if expression.reads[name]}
    of_node = {"node": info.node.json, "usage": info.usage}
    seen = values_at(expression.reads, of_pod | of_node | {"params": dict(cycle.params)})
    for call in _count_calls(expression.source):
        count = _count(call)
        if count is None:
            continue
        (value,) = count.evaluate(cycle, np.array([row], dtype=np.intp)).listed()
        seen[call] = value.message if isinstance(value, EvaluationFault) else value
    if expression.reads_now:
        seen["now"] = cycle.now.isoformat()
    return seen


@lru_cache(maxsize=64)
def _count(call: str) -> Expression | None:
    """Return a call of count as an expression of its own; None where it is inside a comment.

    It is evaluated for each node on which a rule is true, and compiling it takes many times as long.
    """
    try:
        return Expression(call, Result.NUMBER)
    except ExpressionError:
        return None


def values_at(reads: Mapping[str, Sequence[Path]], objects: Mapping[str, object]) -> Seen:
    """Return the values in these objects that an expression reads: each path -> the value, None for nothing."""
    seen: Seen = {}
    for root, json in objects.items():
        for path in reads[root]:
            found = trace(json, path)
            seen[spelled(root, path)] = found.value if found.depth == len(path) and found.value is not MISSING else None
    return seen


def shown(seen: Mapping[str, Any]) -> str:
    """Write the values as text: a = "x", b = nothing and c = 2. Long values are truncated."""
    parts = [f"{name} = {_shown(value)}" for name, value in seen.items()]
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"  # noqa: PLR2004


def _shown(value: object) -> str:
    text = "nothing" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def _count_calls(source: str) -> Iterator[str]:
    """Iterate over the calls of count as written in an expression, each once. String literals are skipped."""
    blank = _QUOTED.sub(lambda found: "'" + "_" * (len(found[0]) - 2) + "'", source)
    calls: dict[str, None] = {}
    for found in _COUNT_CALL.finditer(blank):
        end, depth = found.end(), 1
        while depth and end < len(blank):
            depth += {"(": 1, ")": -1}.get(blank[end], 0)
            end += 1
        calls[" ".join(source[found.start() : end].split())] = None
    yield from calls
