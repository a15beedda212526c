"""CEL expressions over all nodes at once.

An expression sees `pod` and `node` (Kubernetes JSON), `requests` (the Pod's), `namespaceObject` (the name and labels of its
namespace), `usage` (the node's allocatable, requested, free), `params` and `now`, and may call `node.count({labels})`,
`topology.count(key, {labels})` and `cluster.count({labels})`.

An evaluation costs microseconds; passing a whole node costs many times that. So an expression is split (`expression_split`).
A part that reads only the Pod is evaluated once for each Pod. A part that reads only a node is a column, evaluated once for
each node version, and only once for nodes that look the same to it. The rest runs over columns in numpy, or else once for
each distinct combination of values.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.cel.clock import Clock, read_clock
from policies.engine.cel.cost import Cost, estimate
from policies.engine.cel.expression_split import Split, Subexpression, split
from policies.engine.cel.language import (
    BOOLEAN_TYPES,
    NUMBER_TYPES,
    Data,
    EvaluationFault,
    Program,
    check_constants,
    compile_checked,
    pattern_fault,
)
from policies.engine.cel.oversize import NodeSize, PodSize
from policies.engine.cel.pruning import pruned, rebuilt
from policies.engine.cel.schema import check_fields
from policies.engine.cel.syntax import NAMED_BY, OF_POD, REQUESTED_BY, CountCall, Tree, free_names, unpack
from policies.engine.cel.vectors import Members, Operand, Texts, vectorised
from policies.engine.objects.columns import ALL_NAMESPACES, label, sums_by
from policies.engine.objects.node import NodeInfo, Path, Trace, trace
from policies.engine.objects.table import Coded, Codes, Numbers, Rows
from policies.engine.rule import Cycle, Scope
from policies.engine.selectors import Labels

Value = bool | int | float | EvaluationFault

_LARGEST_KEY = 2**62
# Up to this many possible combinations for each row, counting is faster than sorting.
_DENSE = 8
# For how many distinct looks of nodes a part remembers its value.
_MAX_REMEMBERED = 50_000
_encode = msgspec.msgpack.Encoder(order="sorted").encode


class Result(StrEnum):
    """The type of result that an expression must have."""

    BOOLEAN = "a boolean"
    NUMBER = "a number"


@dataclass(frozen=True, slots=True)
class Answers:
    """The distinct values of an expression, and which of them each requested row has."""

    values: list[Value]
    index: npt.NDArray[np.intp]

    def listed(self) -> list[Value]:
        """Return the value of each row."""
        return [self.values[position] for position in self.index.tolist()]

    def faults(self) -> dict[str, int]:
        """Return on how many rows the evaluation failed, by message."""
        found: dict[str, int] = {}
        for position, value in enumerate(self.values):
            if isinstance(value, EvaluationFault) and (rows := int((self.index == position).sum())):
                found[value.message] = found.get(value.message, 0) + rows
        return found


def cost_of(source: str, result: Result, params: Mapping[str, object]) -> Cost:
    """Estimate the cost of an expression that isn't evaluated here: making an `Expression` takes three times as long.

    Raises:
        ExpressionError: it can't be compiled; with the position inside `source`.
    """
    return estimate(_compiled(source, result), params)


def _compiled(source: str, result: Result) -> bytes:
    types = BOOLEAN_TYPES if result is Result.BOOLEAN else NUMBER_TYPES
    return compile_checked(source, types, result.value)


class Expression:
    """A compiled expression.

    Attributes:
        source: as it was written.
        reads: the paths that it reads in each of OBJECTS.
        reads_now: whether it reads `now`, so that its answer may change by itself.

    Raises:
        ExpressionError: it can't be used; with the position inside `source`.
    """

    def __init__(self, source: str, result: Result) -> None:
        self.source = source
        self._result = result
        self._compiled = _compiled(source, result)
        tree = Tree(self._compiled)
        for expr, regex in tree.regexes:
            if fault := pattern_fault(regex):
                raise tree.fault(expr, fault)
        self.reads = tree.reads
        self.reads_now = "now" in free_names(unpack(self._compiled).expr)
        self._serialized = tree.serialized
        self._counts_by_now = any(
            "now" in free_names(unpack(argument).expr) for call in tree.counts for argument in call.arguments
        )
        self._program = Program(tree.serialized)
        self._counts = [_Count(call) for call in tree.counts]
        self._size = PodSize(self._compiled, self.reads)
        self._pieces = Pieces(tree.serialized, self._counts, self._size)
        self._sub_expressions: dict[bytes, Pieces] = {}

    @property
    def pod_paths(self) -> frozenset[Path]:
        """The paths of the Pod's JSON that it depends on."""
        found = frozenset(self.reads["pod"]).union(REQUESTED_BY if self.reads["requests"] else ())
        return found | {NAMED_BY} if self.reads_namespace else found

    @property
    def reads_namespace(self) -> bool:
        """Whether it depends on the Pod's namespace, whose labels may change."""
        return bool(self.reads["namespaceObject"])

    @property
    def counts_pods(self) -> bool:
        """Whether the answer depends on which Pods are on nodes."""
        return bool(self._counts)

    @property
    def joins_params(self) -> bool:
        """Whether a column of nodes depends on params, too: there is one for each set of params."""
        return self._pieces.joins_params

    @property
    def scope(self) -> Scope:
        """Which Pods can change the value for a node: with `usage` or `node.count` those on it, with any other count all."""
        if any(count.target != "node" for count in self._counts):
            return Scope.CLUSTER
        return Scope.NODE_AND_PODS if self._counts or self._reads_usage else Scope.NODE

    @property
    def _reads_usage(self) -> bool:
        return any(path[:1] != ("allocatable",) for path in self.reads["usage"])

    def selected(self, cycle: Cycle) -> list[Labels] | None:
        """Return the labels by which Pods are counted for this Pod, if these can be evaluated.

        None where it depends on more than such counts of the Pods on a node: on their requests.
        """
        if self._reads_usage:
            return None
        found = [count.arguments(cycle) for count in self._counts]
        return [labels for _, labels in found if not isinstance(labels, EvaluationFault)]

    def check_fields(self) -> None:
        """Check the fields that it reads against those of Kubernetes, and its constants.

        Raises:
            ExpressionError: there is no such field, with the nearest known name and the position; it gives a field of another type;
                or a constant can't be read.
        """
        check_constants(self._compiled)
        kind = "bool" if self._result is Result.BOOLEAN else "int"
        check_fields(unpack(self._compiled), kind=kind, wanted=self._result.value)

    def cost(self, params: Mapping[str, object]) -> Cost:
        """Estimate its cost, with these params of its rule set."""
        return estimate(self._compiled, params)

    def evaluate(self, cycle: Cycle, rows: Rows) -> Answers:
        """Return a value for each of these rows of `cycle.table`. Nodes that look the same share a value."""
        if len(rows) == 0:
            return Answers([], np.empty(0, dtype=np.intp))
        known = self._pieces.known(cycle, rows)
        even = None if known.odd is None else ~known.odd
        answers = self._vectorised(known, even)
        if answers is None:
            return self._one_by_one(known)
        if even is None:
            return answers
        others = self._one_by_one(self._pieces.known(cycle, rows[~even]))
        index = np.empty(len(rows), dtype=np.intp)
        index[even] = answers.index
        index[~even] = others.index + len(answers.values)
        return Answers([*answers.values, *others.values], index)

    @cached_property
    def clock(self) -> Clock:
        """How the answer depends on `now`."""
        clock = read_clock(self._serialized)
        return dataclasses.replace(clock, each_second=True) if self._counts_by_now else clock

    def sub_expression(self, serialized: bytes) -> "Pieces":
        """Return a part of this expression, such as one of `clock`, as `Pieces` that can be evaluated."""
        pieces = self._sub_expressions.get(serialized)
        if pieces is None:
            names = free_names(unpack(serialized).expr)
            counts = [count for count in self._counts if count.variable in names]
            pieces = Pieces(serialized, counts, self._size)
            self._sub_expressions[serialized] = pieces
        return pieces

    def _vectorised(self, known: "_Known", even: npt.NDArray[np.bool_] | None) -> Answers | None:
        """Return the answers for these rows (None for all rows), or None where CEL has to evaluate them."""
        if even is not None and not even.any():
            return None
        found = vectorised(self._pieces.rest, known.operands)
        if even is not None and isinstance(found, np.ndarray):
            found = found[even]
        if self._result is Result.BOOLEAN:
            if isinstance(found, bool):
                return Answers([found], _zeros(known.rows, even))
            if isinstance(found, np.ndarray) and found.dtype == np.bool_:
                return Answers([False, True], found.astype(np.intp))
            return None
        if isinstance(found, int | float) and not isinstance(found, bool):
            return Answers([found], _zeros(known.rows, even))
        if isinstance(found, np.ndarray) and found.dtype.kind in "if":
            distinct, index = np.unique(found, return_inverse=True)
            return Answers(distinct.tolist(), index)
        return None

    def _one_by_one(self, known: "_Known") -> Answers:
        """Evaluate the rest once for each distinct combination of values."""
        found, index = self._pieces.one_by_one(known)
        return Answers([self._checked(value, fault) for value, fault in found], index)

    def _checked(self, value: object, fault: EvaluationFault | None) -> Value:
        """Take a value of the right type. The fault of a part is reported instead of a missing variable, since it says more."""
        if isinstance(value, EvaluationFault):
            return fault or value
        if self._result is Result.BOOLEAN and isinstance(value, bool):
            return value
        if self._result is Result.NUMBER and isinstance(value, int | float) and not isinstance(value, bool):
            return value
        return EvaluationFault(f"gave {type(value).__name__}, but {self._result.value} is needed")

    def evaluate_plainly(self, cycle: Cycle, row: int) -> Value:
        """Return the value for one node, with all objects passed whole. Tests compare `evaluate` with it."""
        info = cycle.table.infos[row]
        data: Data = {**_pod_data(cycle, OF_POD), "node": info.node.json, "usage": info.usage}
        fault: EvaluationFault | None = None
        for count in self._counts:
            column = count.column(cycle)
            if isinstance(column, EvaluationFault):
                fault = column
            else:
                data[count.variable] = int(column[row])
        return self._checked(self._program.run(data), fault)


def _zeros(rows: Rows, even: npt.NDArray[np.bool_] | None) -> npt.NDArray[np.intp]:
    return np.zeros(len(rows) if even is None else np.count_nonzero(even), dtype=np.intp)


class Pieces:
    """A split expression, which can be evaluated over all nodes at once.

    Args:
        serialized: the checked expression, with its calls of `count` replaced by variables.
        counts: the calls of `count`.
        size: the bounds assumed of Pods.
    """

    def __init__(self, serialized: bytes, counts: "Sequence[_Count]", size: PodSize) -> None:
        found = split(serialized)
        self.rest = found.rest
        self._program = Program(found.serialized)
        self._counts = counts
        self._size = size
        self._of_node = [_NodeColumn(part, found) for part in found.of_node]
        self._of_pod = [_PodValue(part) for part in found.of_pod]
        self.joins_params = any(part.reads["params"] for part in found.of_node)

    def values(self, cycle: Cycle, rows: Rows) -> tuple[list[object], npt.NDArray[np.intp]]:
        """Return the distinct values, of any type, EvaluationFaults among them, and which of them each row has."""
        found, index = self.one_by_one(self.known(cycle, rows))
        return [value for value, _ in found], index

    def known(self, cycle: Cycle, rows: Rows) -> "_Known":
        """Evaluate the parts."""
        known = _Known(cycle, rows)
        fault = self._size.fault(cycle)
        for part in self._of_pod:
            known.put_value(part.variable, fault or part.value(cycle))
        for count in self._counts:
            known.put_numbers(count.variable, fault or count.column(cycle))
        for column in self._of_node:
            known.put_column(column.variable, column.column(cycle), column.typed)
        return known

    def one_by_one(self, known: "_Known") -> tuple[list[tuple[object, EvaluationFault | None]], npt.NDArray[np.intp]]:
        """Evaluate the rest once for each distinct combination; each value comes with the fault of a part, if any."""
        groups = known.groups()
        found = []
        for data, fault in known.data(groups.first):
            known.give_way()
            found.append((self._program.run(data), fault))
        return found, groups.index


class _Known:
    """The known values of the variables of an expression's rest, for the requested rows.

    A value that couldn't be evaluated is left out, so that CEL reports an error only where it needs the value: `||` and `&&`
    may not need it.

    Attributes:
        operands: the operands of operators.
        odd: the rows in which a column has a value of another kind than in the others, None for none; the values of `operands`
        there are meaningless.
    """

    def __init__(self, cycle: Cycle, rows: Rows) -> None:
        self._cycle = cycle
        self.give_way = cycle.give_way
        self.rows = rows
        self.operands: dict[str, Operand] = {}
        self.odd: npt.NDArray[np.bool_] | None = None
        self._values: Data = {}
        self._coded: list[tuple[str, Codes, Sequence[object]]] = []
        self._numbers: list[tuple[str, Numbers]] = []
        self._fault: EvaluationFault | None = None

    def put_value(self, name: str, value: object) -> None:
        """Take a value that holds for all rows."""
        if isinstance(value, EvaluationFault):
            self._fault = value
            return
        self._values[name] = value
        if isinstance(value, bool | int | float | str):
            self.operands[name] = value
        elif isinstance(value, list | dict) and set(map(type, value)) <= {bool, int, float, str}:
            self.operands[name] = Members(list(value))

    def put_numbers(self, name: str, numbers: Numbers | EvaluationFault) -> None:
        """Take whole numbers, one for each row of the table."""
        if isinstance(numbers, EvaluationFault):
            self._fault = numbers
            return
        chosen = numbers[self.rows]
        self._numbers.append((name, chosen))
        self.operands[name] = chosen

    def put_column(self, name: str, column: Coded, typed: Callable[[Coded], "_Typed | None"]) -> None:
        """Take a column of values of any kind, faults among them."""
        codes = column.codes[self.rows]
        self._coded.append((name, codes, column.values))
        found = typed(column)
        if found is None:
            return
        self.operands[name] = Texts(codes, found.values) if isinstance(found.values, list) else found.values[codes]
        if found.odd is not None and (odd := found.odd[codes]).any():
            self.odd = odd if self.odd is None else self.odd | odd

    def groups(self) -> "_Groups":
        """Group the rows by their combinations of values."""
        keys = [(codes.astype(np.int64), len(values)) for _, codes, values in self._coded]
        keys += [(numbers, int(numbers.max()) + 1) for _, numbers in self._numbers]
        return _group(keys, len(self.rows))

    def data(self, positions: npt.NDArray[np.intp]) -> Iterator[tuple[Data, EvaluationFault | None]]:
        """Iterate over the values of the variables at some positions, and the fault of one that is missing there."""
        # `now` stays inside CEL, whose times have nanoseconds, unlike Python's.
        base = {"now": self._cycle.now, **self._values}
        for position in positions.tolist():
            data: Data = dict(base)
            fault = self._fault
            for name, codes, values in self._coded:
                value = values[codes[position]]
                if isinstance(value, EvaluationFault):
                    fault = value
                else:
                    data[name] = value
            data.update((name, int(numbers[position])) for name, numbers in self._numbers)
            yield data, fault


class _PodValue:
    """A part that reads only variables of OF_POD, params and now."""

    def __init__(self, part: Subexpression) -> None:
        self.variable = part.variable
        self._reads = part.reads
        self._program = Program(part.serialized)

    def value(self, cycle: Cycle) -> object:
        data: Data = {name: pruned(cycle.variable(name), self._reads[name]) for name in OF_POD if self._reads[name]}
        return self._program.run(data | {"params": pruned(cycle.params, self._reads["params"]), "now": cycle.now})


class _NodeColumn:
    """A part that reads a node, its usage, and maybe params: a column that is kept as long as the nodes, one for each set of params."""

    def __init__(self, part: Subexpression, whole: Split) -> None:
        self.variable = part.variable
        self._serialized = part.serialized
        self._node_paths = part.reads["node"]
        self._usage_paths = part.reads["usage"]
        self._params_paths = part.reads["params"]
        self._size = NodeSize(part, whole)
        self._program = Program(part.serialized)
        self._remembered: dict[Hashable, tuple[Hashable, object]] = {}
        self._typed: tuple[Sequence[object], int, _Typed | None] = ((), -1, None)

    def column(self, cycle: Cycle) -> Coded:
        params = [trace(cycle.params, path) for path in self._params_paths]

        def read(info: NodeInfo) -> tuple[Hashable, object]:
            return self._read(info, params, cycle.end_in_time)

        key = ("subexpression", self._serialized, *(found.token for found in params))
        return cycle.table.coded(key, read, heartbeats=True)

    def _read(
        self, info: NodeInfo, params: Sequence[Trace], end_in_time: Callable[[], None]
    ) -> tuple[Hashable, object]:
        node = [info.node.trace(path) for path in self._node_paths]
        usage = [trace(info.usage, path) for path in self._usage_paths]
        look = tuple(found.token for found in (*node, *usage, *params))
        known = self._remembered.get(look)
        if known is None:
            if len(self._remembered) >= _MAX_REMEMBERED:
                self._remembered.clear()
            data = {"node": rebuilt(self._node_paths, node), "usage": rebuilt(self._usage_paths, usage)}
            data["params"] = rebuilt(self._params_paths, params)
            end_in_time()
            value = self._size.fault(data["node"], data["params"]) or self._program.run(data)
            known = self._remembered[look] = (_token(value), value)
        return known

    def typed(self, column: Coded) -> "_Typed | None":
        """Return the column's values as numbers, booleans or texts; None where it has none of these kinds."""
        values, size, typed = self._typed
        if values is not column.values or size != len(column.values):
            # Another thread may add a value meanwhile.
            size = len(column.values)
            typed = _typed(column.values[:size])
            self._typed = (column.values, size, typed)
        return typed


# The kinds of values that operators run over, and the placeholder for a value of another kind.
_PLAIN: dict[type, Any] = {bool: False, int: 0, float: 0.0, str: ""}


class _Typed(NamedTuple):
    """The values of the most frequent kind, by their codes; texts are a list. `odd` marks those of another kind; None for none."""

    values: npt.NDArray[Any] | list[str]
    odd: npt.NDArray[np.bool_] | None


def _typed(values: Sequence[object]) -> _Typed | None:
    kinds = Counter(map(type, values))
    kind = max(_PLAIN, key=kinds.__getitem__)
    if not kinds[kind]:
        return None
    odd = None
    if len(kinds) > 1:
        odd = np.array([type(value) is not kind for value in values], dtype=np.bool_)
        values = [value if type(value) is kind else _PLAIN[kind] for value in values]
    if kind is str:
        return _Typed(list(map(str, values)), odd)
    if kind is int and not all(map(_fits, values)):
        return None
    return _Typed(np.array(values, dtype=kind), odd)


def _fits(value: object) -> bool:
    """Return whether a number fits 64 bits; JSON may hold larger ones."""
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _token(value: object) -> Hashable:
    """Return a token that is equal only for equal values of one type: 1, 1.0 and true differ, and so do NaN and infinity."""
    if isinstance(value, EvaluationFault):
        return type(value)
    if isinstance(value, list | dict):
        try:
            # In one step: a node's images have hundreds of members. MessagePack encodes all different values differently.
            return type(value), _encode(value)
        except (TypeError, OverflowError, UnicodeEncodeError):
            return _token_by_members(value)
    # NaN isn't equal to itself, 0.0 equals -0.0, and CEL's value for bytes can't be hashed.
    return type(value), value if isinstance(value, str | int) else repr(value)


def _token_by_members(value: list[object] | dict[object, object]) -> Hashable:
    """Return the token of a value with keys that aren't texts, with types, or with numbers beyond 64 bits."""
    if isinstance(value, list):
        return list, tuple(map(_token, value))
    return dict, frozenset((_token(key), _token(inner)) for key, inner in value.items())


class _Count:
    """A call of `count`: its arguments are evaluated once for each Pod, and Pods are counted once for all nodes."""

    def __init__(self, call: CountCall) -> None:
        self.variable = call.variable
        self.target = call.target
        self._everywhere = call.everywhere
        self._arguments = [Program(argument) for argument in call.arguments]
        read = set[str]().union(*(free_names(unpack(each).expr) for each in call.arguments))
        self._reads = [name for name in OF_POD if name in read]

    def arguments(self, cycle: Cycle) -> tuple[str, Labels | EvaluationFault]:
        """Return the label of the domains, "" for none, and the labels of the Pods to count."""
        data = _pod_data(cycle, self._reads)
        values = [argument.run(data) for argument in self._arguments]
        fault = next((value for value in values if isinstance(value, EvaluationFault)), None)
        key, labels = str(values[0]) if len(values) > 1 else "", values[-1]
        if fault is None and not _are_labels(labels):
            fault = EvaluationFault("the labels of count must be texts")
        return key, fault or cast("Labels", labels)

    def column(self, cycle: Cycle) -> Numbers | EvaluationFault:
        key, labels = self.arguments(cycle)
        if isinstance(labels, EvaluationFault):
            return labels
        counts = cycle.snapshot.counts(ALL_NAMESPACES if self._everywhere else cycle.pod.namespace, labels)
        if self.target == "cluster":
            return np.full(len(counts), counts.sum(), dtype=np.int64)
        return counts if self.target == "node" else _by_domain(cycle, key, counts)


def _pod_data(cycle: Cycle, names: Iterable[str]) -> Data:
    return {name: cycle.variable(name) for name in names} | {"params": dict(cycle.params), "now": cycle.now}


def _by_domain(cycle: Cycle, key: str, counts: Numbers) -> Numbers:
    """Add up over the nodes with the same value of a label. A node without the label is in no domain and gets 0."""
    column = label(cycle.table, key)
    totals = sums_by(column.codes, counts, len(column.values))
    found: Numbers = totals[column.codes]
    found[column.codes == column.code_of.get(None, -1)] = 0
    return found


def _are_labels(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(text, str) for key, text in value.items()
    )


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows that look the same: `first` holds a position of each group, `index` the group of each position."""

    first: npt.NDArray[np.intp]
    index: npt.NDArray[np.intp]


def _group(keys: Sequence[tuple[Numbers, int]], length: int) -> _Groups:
    """Group positions by their keys; each key comes with an exclusive upper bound of its numbers."""
    if not keys:
        return _Groups(np.zeros(1, dtype=np.intp), np.zeros(length, dtype=np.intp))
    key, size = keys[0]
    for other, other_size in keys[1:]:
        if size * other_size > _LARGEST_KEY:
            _, key = np.unique(key, return_inverse=True)
            size = length
        key, size = key * other_size + other, size * other_size
    if size <= _DENSE * length + _DENSE:
        present = np.flatnonzero(np.bincount(key, minlength=size))
        group_of = np.empty(size, dtype=np.intp)
        group_of[present] = np.arange(len(present))
        index = group_of[key]
    else:
        present, index = np.unique(key, return_inverse=True)
    first = np.empty(len(present), dtype=np.intp)
    first[index[::-1]] = np.arange(length - 1, -1, -1)
    return _Groups(first, index)
