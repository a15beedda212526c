"""The paths that an expression reads, found in its checked syntax tree.

`cel-expr-python` serialises a compiled expression as cel.expr.CheckedExpr, so Berth needs no parser of its own. This module
finds two things: the paths that the expression reads in OBJECTS; and its calls of `count`, which are replaced in the
tree by plain variables, so that Pods are counted once for all nodes instead of once per node.
"""

from collections.abc import Iterator
from typing import Final

from cel.expr import checked_pb2, syntax_pb2
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError

from policies.engine.errors import ExpressionError
from policies.engine.objects.node import Path

OBJECTS = frozenset({"pod", "requests", "namespaceObject", "node", "usage", "params", "victim"})
# The variables that are the same for all nodes, besides params.
OF_POD = ("pod", "requests", "namespaceObject")
# The types of Berth's own objects, in the form of kubernetes_schema. Berth's watches keep only the name and labels of a Namespace.
OWN_TYPES = {
    "usage": {"allocatable": "map:int", "requested": "map:int", "free": "map:int"},
    "namespaceObject": {"metadata": "namespaceObject.metadata"},
    "namespaceObject.metadata": {"name": "string", "labels": "map:string"},
}
# The fields of a Pod from which `requests` is computed.
REQUESTED_BY: tuple[Path, ...] = tuple(
    ("spec", name) for name in ("containers", "initContainers", "overhead", "resources")
)
# The field of a Pod that selects `namespaceObject`.
NAMED_BY: Path = ("metadata", "namespace")
# The functions that count Pods, of the Pod's own namespace and of all.
COUNT, COUNT_ALL = "count", "countInAllNamespaces"
COUNTS = (COUNT, COUNT_ALL)
# The targets of these functions, and how many arguments they take there.
COUNTED = {"node": 1, "cluster": 1, "topology": 2}
RESERVED = OBJECTS | COUNTED.keys() | {"now"}
# Names that Berth added after loop variables of these names may have been published, and what such variables are renamed to.
# An author can't write the new names.
NEWCOMERS = {"requests": "@requests", "namespaceObject": "@namespaceObject"}
# How deep macros such as exists() and map() may be nested: each level multiplies the work.
MAX_LOOPS = 2

# What to tell where an optional is used as a value.
MISSING = "what .? and [?…] read may be missing; say what holds then, with orValue(…)"

_CHAIN_CALLS = frozenset({"_[_]", "_[?_]", "_?._"})
# The prefix of functions that read a part of the clock, in a zone or in UTC. No other CEL function begins like this.
CLOCK: Final = "get"
# The function that wraps a zone, and its overload. An author can't write its name.
ZONE, ZONE_OVERLOAD = "@zone", "berth_zone"
# The function that wraps a pattern that Pods or nodes may have a part in, and its overload.
PATTERN, PATTERN_OVERLOAD = "@pattern", "berth_pattern"
# The member function that replaces substring(start, end), and its overload.
SUBSTRING, SUBSTRING_OVERLOAD = "@substring", "berth_substring"
# How many arguments substring has with an end.
BOTH_ENDS = 2
# Far above the ids of a tree's own nodes.
_NUMBERS = 10**6


class CountCall:
    """A call of `count` that was removed from a tree.

    `target` is node, cluster or topology; `variable` is the name that replaces the call; `arguments` are
    separate expressions over OF_POD, params and now only. `everywhere`: Pods of all namespaces count.
    """

    def __init__(self, target: str, variable: str, arguments: list[bytes], *, everywhere: bool) -> None:
        self.target = target
        self.variable = variable
        self.arguments = arguments
        self.everywhere = everywhere


class Tree:
    """A checked expression, analysed. `serialized` is the form to run, with the calls of `count` replaced."""

    def __init__(self, serialized: bytes) -> None:
        self._checked = unpack(serialized)
        self._reads: dict[str, set[Path]] = {name: set() for name in OBJECTS}
        self._bound: list[str] = []
        self._depth = 0
        # Regular expressions that are constants in the expression.
        self.regexes: list[tuple[syntax_pb2.Expr, str]] = []
        self.counts: list[CountCall] = []
        self._walk(self._checked.expr)
        self.reads: dict[str, list[Path]] = {name: _shortest(paths) for name, paths in self._reads.items()}
        self.serialized = pack(self._checked)

    def fault(self, expr: syntax_pb2.Expr, message: str) -> ExpressionError:
        """Make the error that points at a sub-expression."""
        return fault_at(self._checked, expr, message)

    def _walk(self, expr: syntax_pb2.Expr) -> None:
        if self._read_chain(expr):
            return
        kind = expr.WhichOneof("expr_kind")
        if kind == "ident_expr":
            self._ident(expr)
        elif kind == "call_expr":
            self._call(expr)
        elif kind == "comprehension_expr":
            self._comprehension(expr)
        else:
            for child in children(expr):
                self._walk(child)

    def _ident(self, expr: syntax_pb2.Expr) -> None:
        name = expr.ident_expr.name
        if name in COUNTED:
            raise self.fault(expr, f"{name} has no value of its own; write {name}.count(…)")

    def _call(self, expr: syntax_pb2.Expr) -> None:
        call = expr.call_expr
        if call.function in COUNTS:
            self._count(expr)
            return
        if call.function == "matches" and (regex := constant_string(list(children(expr))[-1])) is not None:
            self.regexes.append((expr, regex))
        if call.function == "@in" and self._read_membership(call):
            return
        for child in children(expr):
            self._walk(child)

    def _comprehension(self, expr: syntax_pb2.Expr) -> None:
        loop = expr.comprehension_expr
        names = [loop.iter_var, loop.iter_var2, loop.accu_var]  # optMap's variable is the accu_var
        for name in names:
            if name in RESERVED:
                raise taken_name(self._checked, expr, name)
        self._walk(loop.iter_range)
        self._depth += 1
        if self._depth > MAX_LOOPS:
            raise self.fault(expr, f"loops stand {self._depth} deep in each other; at most {MAX_LOOPS} may")
        self._bound.extend(names)
        for part in (loop.accu_init, loop.loop_condition, loop.loop_step, loop.result):
            self._walk(part)
        del self._bound[-len(names) :]
        self._depth -= 1

    def _count(self, expr: syntax_pb2.Expr) -> None:
        call = expr.call_expr
        target = call.target.ident_expr.name
        if target not in COUNTED:
            message = (
                f"{call.function} belongs to node, topology or cluster: write node.{call.function}({{'app': 'web'}})"
            )
            raise self.fault(expr, message)
        if len(call.args) != COUNTED[target]:
            form = "'key', {labels}" if target == "topology" else "{labels}"
            raise self.fault(expr, f"write {target}.{call.function}({form})")
        for argument in call.args:
            self._check_count_argument(call.function, argument)
            self._walk(argument)
        variable = f"@count{len(self.counts)}"  # an author can't write a loop variable of this name
        arguments = [self._subtree(argument) for argument in call.args]
        self.counts.append(CountCall(target, variable, arguments, everywhere=call.function == COUNT_ALL))
        put_variable(self._checked, expr, variable)

    def _check_count_argument(self, function: str, expr: syntax_pb2.Expr) -> None:
        if expr.WhichOneof("expr_kind") == "ident_expr":
            name = expr.ident_expr.name
            if name in {"node", "usage", "topology", "cluster"} or name in self._bound:
                may = ", ".join((*OF_POD, "params"))
                raise self.fault(expr, f"the arguments of {function} may read {may} and now, not {name}")
        for child in children(expr):
            self._check_count_argument(function, child)
        if expr.WhichOneof("expr_kind") == "call_expr" and expr.call_expr.function in COUNTS:
            raise self.fault(expr, f"{expr.call_expr.function} can't stand inside the arguments of {function}")

    def _subtree(self, expr: syntax_pb2.Expr) -> bytes:
        return subtree(self._checked, expr)

    def _read_chain(self, expr: syntax_pb2.Expr) -> bool:
        found = _chain(expr)
        if found is None:
            return False
        self._reads[found[0]].add(found[1])
        return True

    def _read_membership(self, call: syntax_pb2.Expr.Call) -> bool:
        key, container = call.args
        found = _chain(container)
        text = constant_string(key)
        if found is None or text is None:
            return False
        self._reads[found[0]].add((*found[1], text))
        return True


def _chain(expr: syntax_pb2.Expr) -> tuple[str, Path] | None:
    """Return (object, path) where the expression consists only of steps from one of OBJECTS."""
    kind = expr.WhichOneof("expr_kind")
    if kind == "ident_expr":
        name = expr.ident_expr.name
        return (name, ()) if name in OBJECTS else None
    if kind == "select_expr":
        return _step(expr.select_expr.operand, expr.select_expr.field)
    if kind == "call_expr" and expr.call_expr.function in _CHAIN_CALLS:
        operand, key = expr.call_expr.args
        text = constant_string(key)
        return None if text is None else _step(operand, text)
    return None


def _step(operand: syntax_pb2.Expr, field: str) -> tuple[str, Path] | None:
    found = _chain(operand)
    return None if found is None else (found[0], (*found[1], field))


def constant_string(expr: syntax_pb2.Expr) -> str | None:
    """Return the value of a constant text, None where the expression isn't one."""
    if expr.const_expr.WhichOneof("constant_kind") == "string_value":
        return str(expr.const_expr.string_value)
    return None


def children(expr: syntax_pb2.Expr) -> Iterator[syntax_pb2.Expr]:
    """Iterate over the direct sub-expressions of an expression."""
    kind = expr.WhichOneof("expr_kind")
    if kind == "select_expr":
        yield expr.select_expr.operand
    elif kind == "call_expr":
        if expr.call_expr.HasField("target"):
            yield expr.call_expr.target
        yield from expr.call_expr.args
    elif kind == "list_expr":
        yield from expr.list_expr.elements
    elif kind == "struct_expr":
        for entry in expr.struct_expr.entries:
            if entry.WhichOneof("key_kind") == "map_key":
                yield entry.map_key
            yield entry.value
    elif kind == "comprehension_expr":
        loop = expr.comprehension_expr
        yield from (loop.iter_range, loop.accu_init, loop.loop_condition, loop.loop_step, loop.result)


def free_names(expr: syntax_pb2.Expr) -> set[str]:
    """Return the names that an expression reads, without its own loop variables."""
    kind = expr.WhichOneof("expr_kind")
    if kind == "ident_expr":
        return {expr.ident_expr.name}
    if kind == "comprehension_expr":
        loop = expr.comprehension_expr
        own = {loop.iter_var, loop.iter_var2, loop.accu_var}
        outside = (loop.iter_range, loop.accu_init)
        inside = (loop.loop_condition, loop.loop_step, loop.result)
        return set().union(*map(free_names, outside), set().union(*map(free_names, inside)) - own)
    return set().union(*map(free_names, children(expr)))


def _shortest(paths: set[Path]) -> list[Path]:
    """Leave out every path that has another path as its prefix."""
    return sorted(path for path in paths if not any(path[:end] in paths for end in range(len(path))))


def fault_at(checked: checked_pb2.CheckedExpr, expr: syntax_pb2.Expr, message: str) -> ExpressionError:
    """Make the error that points at a sub-expression."""
    offset = checked.source_info.positions.get(expr.id, 0)
    ends = [end for end in checked.source_info.line_offsets if end <= offset]
    return ExpressionError(message, len(ends) + 1, offset - (ends[-1] if ends else 0) + 1)


def taken_name(checked: checked_pb2.CheckedExpr, expr: syntax_pb2.Expr, name: str) -> ExpressionError:
    """Make the error that a loop variable has a name reserved by Berth."""
    return fault_at(checked, expr, f"{name} is a name of Berth's; give the loop variable another one")


def unpack(serialized: bytes) -> checked_pb2.CheckedExpr:
    """Read a serialised expression.

    Raises:
        ExpressionError: it is nested deeper than protobuf can read (macros add levels that the source doesn't show).
    """
    checked = checked_pb2.CheckedExpr()
    try:
        any_pb2.Any.FromString(serialized).Unpack(checked)
    except DecodeError as error:
        message = "is nested too deep: split it into several rules"
        raise ExpressionError(message) from error
    return checked


def pack(checked: checked_pb2.CheckedExpr) -> bytes:
    """Serialise an expression; the same bytes for the same expression."""
    packed = any_pb2.Any()
    packed.Pack(checked)
    return bytes(packed.SerializeToString(deterministic=True))


def subtree(checked: checked_pb2.CheckedExpr, expr: syntax_pb2.Expr) -> bytes:
    """Serialise a sub-expression as an expression of its own."""
    alone = checked_pb2.CheckedExpr()
    alone.CopyFrom(checked)
    alone.expr.CopyFrom(expr)
    return pack(alone)


def guarded(serialized: bytes) -> bytes:
    """Wrap each time zone argument in a call of ZONE, and each pattern that Pods or nodes may have a part in in a call of PATTERN.

    Also put SUBSTRING in place of each substring with an end.
    """
    checked = unpack(serialized)
    for expr in _substrings(checked.expr):
        expr.call_expr.function = SUBSTRING
        checked.reference_map[expr.id].overload_id[:] = [SUBSTRING_OVERLOAD]
    found = [(zone, ZONE, ZONE_OVERLOAD) for zone in _zones(checked.expr)]
    found += [(each, PATTERN, PATTERN_OVERLOAD) for each in _foreign_patterns(checked.expr, frozenset({"params"}))]
    for number, (expr, function, overload) in enumerate(found, _NUMBERS):
        inner = syntax_pb2.Expr()
        inner.CopyFrom(expr)
        expr.Clear()
        expr.id = number
        expr.call_expr.function = function
        expr.call_expr.args.append(inner)
        checked.reference_map[number].overload_id.append(overload)
        checked.type_map[number].primitive = checked_pb2.Type.STRING
    return pack(checked)


def _foreign_patterns(expr: syntax_pb2.Expr, known: frozenset[str]) -> Iterator[syntax_pb2.Expr]:
    """Iterate over the patterns that depend on more than params, inner ones first; `known` has the names that depend on params only."""
    if expr.WhichOneof("expr_kind") == "comprehension_expr":
        loop = expr.comprehension_expr
        inside = known - {loop.iter_var, loop.iter_var2, loop.accu_var}
        if free_names(loop.iter_range) <= known:
            inside |= {loop.iter_var, loop.iter_var2}
        if free_names(loop.accu_init) <= known:  # optMap's variable
            inside |= {loop.accu_var}
        for outside in (loop.iter_range, loop.accu_init):
            yield from _foreign_patterns(outside, known)
        for part in (loop.loop_condition, loop.loop_step, loop.result):
            yield from _foreign_patterns(part, inside)
        return
    for child in children(expr):
        yield from _foreign_patterns(child, known)
    if expr.call_expr.function == "matches":
        pattern = expr.call_expr.args[-1]
        if not free_names(pattern) <= known:
            yield pattern


def _substrings(expr: syntax_pb2.Expr) -> Iterator[syntax_pb2.Expr]:
    for child in children(expr):
        yield from _substrings(child)
    if expr.call_expr.function == "substring" and len(expr.call_expr.args) == BOTH_ENDS:
        yield expr


def _zones(expr: syntax_pb2.Expr) -> Iterator[syntax_pb2.Expr]:
    for child in children(expr):
        yield from _zones(child)
    if expr.call_expr.function.startswith(CLOCK):
        yield from expr.call_expr.args


def with_loops_renamed(serialized: bytes) -> bytes:
    """Rename loop variables with names in NEWCOMERS, so that expressions published before these names existed keep working."""
    checked = unpack(serialized)
    _rename(checked, checked.expr, frozenset())
    return pack(checked)


def _rename(checked: checked_pb2.CheckedExpr, expr: syntax_pb2.Expr, bound: frozenset[str]) -> None:
    """Rename loop variables, and the references to them; `bound` holds those of the loops around the expression."""
    kind = expr.WhichOneof("expr_kind")
    if kind == "ident_expr" and expr.ident_expr.name in bound:
        put_variable(checked, expr, NEWCOMERS[expr.ident_expr.name])
    if kind != "comprehension_expr":
        for child in children(expr):
            _rename(checked, child, bound)
        return
    loop = expr.comprehension_expr
    made = NEWCOMERS.keys() & {loop.iter_var, loop.iter_var2, loop.accu_var}
    for outside in (loop.iter_range, loop.accu_init):
        _rename(checked, outside, bound)
    for inside in (loop.loop_condition, loop.loop_step, loop.result):
        _rename(checked, inside, bound | made)
    for variable in ("iter_var", "iter_var2", "accu_var"):
        name = getattr(loop, variable)
        setattr(loop, variable, NEWCOMERS.get(name, name))


def put_variable(checked: checked_pb2.CheckedExpr, expr: syntax_pb2.Expr, name: str) -> None:
    """Put a variable in place of a sub-expression."""
    identifier = expr.id
    expr.Clear()
    expr.id = identifier
    expr.ident_expr.name = name
    checked.reference_map[identifier].Clear()
    checked.reference_map[identifier].name = name
