"""CEL expressions: compiled and checked once, evaluated over all nodes at once. The only module that imports CEL.

An expression sees `pod` and `node` (Kubernetes JSON), `usage` (allocatable, requested, free), `params` and `now`, and
may call `node.count({labels})`, `topology.count(key, {labels})` and `cluster.count({labels})`.

Evaluating costs microseconds, handing over a whole node many times that. So each evaluation is handed only the values
at the paths that the expression reads, and nodes on which all of these are equal share one evaluation.
"""

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from cel_expr_python import cel
from cel_expr_python.ext import ext_math, ext_optional, ext_strings

from policies.engine.cycle import Cycle
from policies.engine.errors import ExpressionError
from policies.engine.objects.columns import label
from policies.engine.objects.node import MISSING, NodeInfo, Path, trace
from policies.engine.objects.table import Coded, Numbers, Rows
from policies.engine.syntax import CountCall, Tree

MAX_LENGTH = 4096
"""Characters. A longer expression is two rules."""

_POSITION = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_UNDECLARED = re.compile(r"undeclared reference to '([^']+)'")
_SYNTAX = re.compile(r"Syntax error: (?:mismatched|extraneous) input '(.+?)' expecting ")
_NOISE = re.compile(r" \(in container ''\)|^Syntax error: ")
_TOO_DEEP = re.compile(r"recursion (?:depth|limit)\D*(\d+)")


class Result(StrEnum):
    """What an expression has to give."""

    BOOLEAN = "a boolean"
    NUMBER = "a number"


class EvaluationFault(msgspec.Struct, frozen=True):
    """Stands in place of a value that an expression couldn't give on some node. `message` is for the author."""

    message: str


Value = bool | int | float | EvaluationFault


class Answers(NamedTuple):
    """The distinct values that an expression gave, and which of them each row asked about has."""

    values: list[Value]
    index: npt.NDArray[np.intp]

    def listed(self) -> list[Value]:
        """Give the value of each row."""
        return [self.values[position] for position in self.index.tolist()]


_Data = dict[str, Any]
_LARGEST_KEY = 2**62
_DENSE = 8
"""Up to this many possible combinations a row, counting beats sorting."""

_LABELS = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
# No implementation: calls are taken out of the tree before anything is evaluated.
_COUNT = cel.FunctionDecl(
    "count",
    [
        cel.Overload(
            "berth_count",
            return_type=cel.Type.INT,
            parameters=[cel.Type.DYN, _LABELS],
            is_member=True,
        ),
        cel.Overload(
            "berth_count_by_key",
            return_type=cel.Type.INT,
            parameters=[cel.Type.DYN, cel.Type.STRING, _LABELS],
            is_member=True,
        ),
    ],
)
_VARIABLES = {
    "pod": cel.Type.DYN,
    "node": cel.Type.DYN,
    "usage": cel.Type.DYN,
    "params": cel.Type.DYN,
    "topology": cel.Type.DYN,
    "cluster": cel.Type.DYN,
    "now": cel.Type.TIMESTAMP,
}
_ENVIRONMENT = cel.NewEnv(
    variables=_VARIABLES,
    extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional(), ext_math.ExtMath()],
    functions=[_COUNT],
)
_TYPES = {
    Result.BOOLEAN: (cel.Type.BOOL, cel.Type.DYN),
    Result.NUMBER: (cel.Type.INT, cel.Type.UINT, cel.Type.DOUBLE, cel.Type.DYN),
}


class Expression:
    """A compiled expression.

    Raises:
        ExpressionError: it can't be used; with the position inside `source`.
    """

    def __init__(self, source: str, result: Result) -> None:
        self.source = source
        self._result = result
        if not source.strip():
            message = "an expression is needed here"
            raise ExpressionError(message)
        if len(source) > MAX_LENGTH:
            message = f"{len(source)} characters; at most {MAX_LENGTH} are allowed: split it into several rules"
            raise ExpressionError(message)
        compiled = _compile(source)
        if not any(compiled.return_type() == wanted for wanted in _TYPES[result]):
            message = f"gives {compiled.return_type().name().lower()}, but {result.value} is needed"
            raise ExpressionError(message, 1, 1)
        tree = Tree(compiled.serialize())
        self.reads = tree.reads
        self._program = _ENVIRONMENT.deserialize(tree.serialized)
        self._counts = [_Count(call) for call in tree.counts]

    @property
    def counts_pods(self) -> bool:
        """Whether the answer depends on which Pods are on nodes."""
        return bool(self._counts)

    def evaluate(self, cycle: Cycle, rows: Rows) -> "Answers":
        """Give a value for each of these rows of `cycle.table`. Nodes that look the same share a value."""
        base: _Data = {
            "pod": _pruned(cycle.pod.json, self.reads["pod"]),
            "params": _pruned(cycle.params, self.reads["params"]),
            "now": cycle.now,
        }
        counts = [count.column(cycle, base) for count in self._counts]
        node = [cycle.table.coded(("node", path), _node_reader(path)) for path in self.reads["node"]]
        usage = [cycle.table.coded(("usage", path), _usage_reader(path)) for path in self.reads["usage"]]
        groups = _group(rows, [*node, *usage], [count for count in counts if not isinstance(count, EvaluationFault)])
        values: list[Value] = []
        for row in groups.first.tolist():
            data = base | {
                "node": _rebuilt(self.reads["node"], [column.values[column.codes[row]] for column in node]),
                "usage": _rebuilt(self.reads["usage"], [column.values[column.codes[row]] for column in usage]),
            }
            numbers = [count if isinstance(count, EvaluationFault) else int(count[row]) for count in counts]
            values.append(self._evaluate_once(data, numbers))
        return Answers(values, groups.index)

    def evaluate_plainly(self, cycle: Cycle, row: int) -> Value:
        """Give the value for one node with everything handed over whole: what `evaluate` is tested against."""
        info = cycle.table.infos[row]
        data: _Data = {
            "pod": cycle.pod.json,
            "params": dict(cycle.params),
            "now": cycle.now,
            "node": info.node.json,
            "usage": info.usage,
        }
        counts = [count.column(cycle, data) for count in self._counts]
        numbers = [count if isinstance(count, EvaluationFault) else int(count[row]) for count in counts]
        return self._evaluate_once(data, numbers)

    def _evaluate_once(self, data: _Data, counts: Sequence[int | EvaluationFault]) -> Value:
        missing: EvaluationFault | None = None
        for count, value in zip(self._counts, counts, strict=True):
            if isinstance(value, EvaluationFault):
                # Left unbound, so that CEL meets the error only where it needs the count: `||` and `&&` may pass it by.
                missing = value
            else:
                data[count.variable] = value
        value = _run(self._program, data)
        if isinstance(value, EvaluationFault):
            return missing or value
        if self._result is Result.BOOLEAN and isinstance(value, bool):
            return value
        if self._result is Result.NUMBER and isinstance(value, int | float) and not isinstance(value, bool):
            return value
        return EvaluationFault(f"gave {type(value).__name__}, but {self._result.value} is needed")


class _Count:
    """A `count` call: its arguments are evaluated once a Pod, the Pods counted once for all nodes."""

    def __init__(self, call: CountCall) -> None:
        self.variable = call.variable
        self._target = call.target
        self._arguments = [_ENVIRONMENT.deserialize(argument) for argument in call.arguments]

    def column(self, cycle: Cycle, data: _Data) -> Numbers | EvaluationFault:
        values = [
            _run(argument, {**data, "pod": cycle.pod.json, "params": dict(cycle.params)})
            for argument in self._arguments
        ]
        fault = next((value for value in values if isinstance(value, EvaluationFault)), None)
        if fault is not None:
            return fault
        labels = values[-1]
        if not _are_labels(labels):
            return EvaluationFault("the labels of count must be texts")
        counts = cycle.snapshot.counts(cycle.pod.namespace, labels)  # type: ignore[arg-type] # checked just above
        if self._target == "cluster":
            return np.full(len(counts), counts.sum(), dtype=np.int64)
        return counts if self._target == "node" else _by_domain(cycle, str(values[0]), counts)


def _by_domain(cycle: Cycle, key: str, counts: Numbers) -> Numbers:
    """Add up over the nodes that have the same value of a label. A node without the label is in no domain: 0."""
    column = label(cycle.table, key)
    totals = np.zeros(len(column.values), dtype=np.int64)
    np.add.at(totals, column.codes, counts)
    totals[[value is None for value in column.values]] = 0
    return totals[column.codes]


def _node_reader(path: Path) -> Callable[[NodeInfo], tuple[Hashable, object]]:
    def read(info: NodeInfo) -> tuple[Hashable, object]:
        found = info.node.trace(path)
        return found.token, found

    return read


def _usage_reader(path: Path) -> Callable[[NodeInfo], tuple[Hashable, object]]:
    def read(info: NodeInfo) -> tuple[Hashable, object]:
        found = trace(info.usage, path)
        return found.token, found

    return read


class _Groups(NamedTuple):
    """Rows that look the same: `first` holds a row of each group, `index` the group of each row asked about."""

    first: Rows
    index: npt.NDArray[np.intp]


def _group(rows: Rows, coded: Sequence[Coded], numbers: Sequence[Numbers]) -> _Groups:
    if len(rows) == 0:
        return _Groups(rows, rows)
    keys = [(column.codes[rows].astype(np.int64), len(column.values)) for column in coded]
    for column in numbers:
        chosen = column[rows]
        keys.append((chosen, int(chosen.max()) + 1))
    if not keys:
        return _Groups(rows[:1], np.zeros(len(rows), dtype=np.intp))
    key, size = keys[0]
    for other, other_size in keys[1:]:
        if size * other_size > _LARGEST_KEY:
            _, key = np.unique(key, return_inverse=True)
            size = len(rows)
        key, size = key * other_size + other, size * other_size
    if size <= _DENSE * len(rows) + _DENSE:
        present = np.flatnonzero(np.bincount(key, minlength=size))
        group_of = np.empty(size, dtype=np.intp)
        group_of[present] = np.arange(len(present))
        index = group_of[key]
    else:
        present, index = np.unique(key, return_inverse=True)
    first = np.empty(len(present), dtype=np.intp)
    first[index[::-1]] = rows[::-1]
    return _Groups(first, index)


def _are_labels(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(text, str) for key, text in value.items()
    )


def _compile(source: str) -> cel.Expression:
    try:
        return _ENVIRONMENT.compile(source)
    except RuntimeError as error:
        deep = _TOO_DEEP.search(str(error))
        if deep is not None:
            message = f"is nested more than {deep[1]} levels deep: split it into several rules"
            raise ExpressionError(message) from error
        found = _POSITION.search(str(error))
        line, column, message = (int(found[1]), int(found[2]), found[3]) if found else (0, 0, str(error))
        undeclared = _UNDECLARED.match(message)
        if undeclared is not None:
            name = undeclared[1]
            raise ExpressionError(_unknown_name(name), line, _start_of(name, source, line, column)) from error
        raise ExpressionError(_in_plain_words(message), line, column) from error


def _unknown_name(name: str) -> str:
    root = name.partition(".")[0]
    near = get_close_matches(root, _VARIABLES, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(_VARIABLES))}"
    return f"undeclared reference to '{root}'; {hint}"


def _start_of(name: str, source: str, line: int, column: int) -> int:
    """CEL points at the last dot of a name with dots; give the column at which the name starts."""
    text = source.split("\n")[line - 1]
    start = text.rfind(name, 0, column + len(name) - 1)
    return start + 1 if start >= 0 else column


def _in_plain_words(message: str) -> str:
    """Leave out the parser's list of all that could stand in a place."""
    syntax = _SYNTAX.match(message)
    if syntax is None:
        return _NOISE.sub("", message)
    return "the expression ends too early" if syntax[1] == "<EOF>" else f"'{syntax[1]}' can't stand here"


def _run(program: cel.Expression, data: _Data) -> object:
    """Evaluate. CEL gives an error as a value, but raises when its iteration budget ends or a type has no Python form."""
    try:
        value = program.eval(data=data)
        if value.type() == cel.Type.ERROR:
            return EvaluationFault(str(value.value()))
        return value.plain_value()
    except (RuntimeError, TypeError, ValueError) as error:
        return EvaluationFault(str(error).partition("\n")[0])


def _pruned(json: Mapping[str, Any], paths: Sequence[Path]) -> _Data:
    return _rebuilt(paths, [trace(json, path) for path in paths])


def _rebuilt(paths: Sequence[Path], traces: Sequence[Any]) -> _Data:
    """Build an object that has what stands at the paths, and nothing where they lead nowhere."""
    built: _Data = {}
    for path, found in zip(paths, traces, strict=True):
        if not path:
            return found.value  # type: ignore[return-value] # the whole object is read
        target = built
        for key in path[: max(found.depth - 1, 0)]:
            target = target.setdefault(key, {})
        if found.depth and found.value is not MISSING:
            target[path[found.depth - 1]] = found.value
        elif found.depth:
            target.setdefault(path[found.depth - 1], {})
    return built
