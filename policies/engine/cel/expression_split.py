"""Splits an expression into parts that depend on one thing only, and the rest over these parts.

A part that reads only the Pod (and its requests, its namespace, params and now) is evaluated once for each Pod. A part that
reads only a node (and its usage) is evaluated once for each node version. So is a part that joins a node with params, once for
each set of params, unless the operator that joins them runs over columns. The rest consists of operators over these parts, each
of which is a variable there. The parts are as large as possible.
"""

from dataclasses import dataclass
from itertools import count

from cel.expr import checked_pb2, syntax_pb2

from policies.engine.cel.syntax import OF_POD, Tree, children, free_names, put_variable, subtree, unpack
from policies.engine.cel.vectors import OPERATORS
from policies.engine.objects.node import Path

_NODE, _POD, _PARAMS, _COUNT = "node", "pod", "params", "count"
_SOURCE_OF = {"node": _NODE, "usage": _NODE, **dict.fromkeys((*OF_POD, "now"), _POD)}
_OPTIONAL = frozenset({"_[?_]", "_?._", "optional.of", "optional.none", "optional.ofNonZeroValue", "or"})
_OPTIONAL_TYPE = "optional_type"
_EQUALITIES = frozenset({"_==_", "_!=_"})
# Ids of the lists that are inserted into a tree: the tree's own ids are far lower.
_LISTS = 2 * 10**6
# Calls that return their arguments, or the members of list arguments.
_HANDING_ON = frozenset({"dyn", "_+_"})
# Kinds of types whose values can't be taken out of CEL and passed back, even inside a list or a map. Times would lose their
# nanoseconds.
_NOT_CARRIED = frozenset({"type", "function", "error", "well_known"})


@dataclass(frozen=True, slots=True)
class Subexpression:
    """A separate sub-expression. `reads` holds the paths into each object, as `Tree.reads`."""

    variable: str
    serialized: bytes
    reads: dict[str, list[Path]]


@dataclass(frozen=True, slots=True)
class Split:
    """A split expression. `rest` holds `serialized` as a tree."""

    of_node: list[Subexpression]
    of_pod: list[Subexpression]
    rest: syntax_pb2.Expr
    serialized: bytes


class _Splitter:
    def __init__(self, checked: checked_pb2.CheckedExpr) -> None:
        self.checked = checked
        self._lists = count(_LISTS)
        self.found: dict[str, list[Subexpression]] = {_NODE: [], _POD: []}

    def split(self, expr: syntax_pb2.Expr) -> None:
        kind = _part(expr)
        if kind is not None and self._can_be_carried(expr):
            found, serialized = self.found[kind], subtree(self.checked, expr)
            found.append(Subexpression(f"@{kind}{len(found)}", serialized, Tree(serialized).reads))
            put_variable(self.checked, expr, found[-1].variable)
            return
        for child in children(expr):
            self.split(child)

    def compare_as_lists(self, expr: syntax_pb2.Expr) -> None:
        """Wrap optionals that are compared with each other in lists of one or no element: these can be passed, and compare the same."""
        for child in children(expr):
            self.compare_as_lists(child)
        if expr.call_expr.function in _EQUALITIES and all(map(self._is_optional, expr.call_expr.args)):
            for argument in expr.call_expr.args:
                inner = syntax_pb2.Expr()
                inner.CopyFrom(argument)
                argument.Clear()
                argument.id = next(self._lists)
                argument.list_expr.elements.append(inner)
                argument.list_expr.optional_indices.append(0)
                self.checked.type_map[argument.id].list_type.elem_type.dyn.SetInParent()

    def _is_optional(self, expr: syntax_pb2.Expr) -> bool:
        return expr.id in self.checked.type_map and self.checked.type_map[expr.id].abstract_type.name == _OPTIONAL_TYPE

    def _can_be_carried(self, expr: syntax_pb2.Expr) -> bool:
        kind = self._kind(expr)
        is_optional = kind == "abstract_type" or (kind != "primitive" and _may_be_optional(expr))
        return not (is_optional or self._may_be_lost(expr))

    def _may_be_lost(self, expr: syntax_pb2.Expr) -> bool:
        """Return whether the value, or one inside it, would come back changed, or not at all."""
        kind = self._kind(expr)
        if kind == "primitive":
            return bool(self.checked.type_map[expr.id].primitive == checked_pb2.Type.UINT64)
        return kind in _NOT_CARRIED or any(map(self._may_be_lost, children(expr)))

    def _kind(self, expr: syntax_pb2.Expr) -> str | None:
        if expr.id not in self.checked.type_map:
            return None
        kind: str | None = self.checked.type_map[expr.id].WhichOneof("type_kind")
        return kind


def _part(expr: syntax_pb2.Expr) -> str | None:
    """Return the kind of part that a sub-expression is; None where it has to be split further."""
    sources = _sources(expr)
    if sources == {_NODE, _PARAMS}:
        return None if expr.call_expr.function in OPERATORS else _NODE
    if sources == {_NODE}:
        return _NODE
    return _POD if sources and sources <= {_POD, _PARAMS} else None


def _sources(expr: syntax_pb2.Expr) -> set[str]:
    """Return the sources of a sub-expression; a loop variable that isn't its own counts as a source."""
    return {_COUNT if name.startswith("@count") else _SOURCE_OF.get(name, name) for name in free_names(expr)}


def _may_be_optional(expr: syntax_pb2.Expr) -> bool:
    """Return whether the value could be, or contain, an optional, which can't be taken out of CEL."""
    kind = expr.WhichOneof("expr_kind")
    if kind == "select_expr":
        return not expr.select_expr.test_only and _may_be_optional(expr.select_expr.operand)
    if kind == "comprehension_expr":
        loop = expr.comprehension_expr
        return any(map(_may_be_optional, (loop.iter_range, loop.accu_init, loop.loop_step, loop.result)))
    if kind == "call_expr":
        function = expr.call_expr.function
        if function in _OPTIONAL:
            return True
        if function == "_[_]":
            return _may_be_optional(expr.call_expr.args[0])
        if function in _HANDING_ON:
            return any(map(_may_be_optional, expr.call_expr.args))
        if function == "_?_:_":
            return any(map(_may_be_optional, expr.call_expr.args[1:]))
        return False
    # An optional element of a list is an optional expression, but the list contains its plain value.
    values = [part for place, part in enumerate(children(expr)) if place not in expr.list_expr.optional_indices]
    return kind in {"list_expr", "struct_expr"} and any(map(_may_be_optional, values))


def split(serialized: bytes) -> Split:
    """Split a serialised expression whose calls of `count` have been replaced by variables."""
    splitter = _Splitter(unpack(serialized))
    splitter.compare_as_lists(splitter.checked.expr)
    splitter.split(splitter.checked.expr)
    rest = splitter.checked.expr
    return Split(splitter.found[_NODE], splitter.found[_POD], rest, subtree(splitter.checked, rest))
