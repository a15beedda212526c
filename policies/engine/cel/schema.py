"""Checks the field paths that an expression reads against Kubernetes' own Pod and Node.

`pod` and `node` are dynamic to CEL, so a misspelt field, or one of the wrong type, would only show at evaluation, on every
node, in production. The types are generated from Kubernetes' Go types (`kubernetes_schema`). A `victim`, a Pod that preemption
may remove, has only the fields that are kept of Pods on nodes (`objects.running`).
"""

from difflib import get_close_matches

from cel.expr import checked_pb2, syntax_pb2

from policies.engine.cel.kubernetes_schema import TYPES
from policies.engine.cel.syntax import MISSING, NEWCOMERS, OWN_TYPES, children, constant_string, fault_at, taken_name
from policies.engine.errors import ExpressionError
from policies.engine.objects import running

_ROOTS = {
    "pod": "Pod",
    "requests": "map:int",
    "namespaceObject": "namespaceObject",
    "node": "Node",
    "usage": "usage",
    "victim": "victim",
}
_EXTRA = {**OWN_TYPES, **running.FIELDS}
# With their words in messages.
_SCALARS = {"string": "a string", "int": "a number", "bool": "a boolean"}
# The types of a field and of the constant beside it -> what to write.
_REMEDIES = {
    ("string", "int"): "write the number in quotes, or read the string by int(…) or quantity(…)",
    ("string", "bool"): "write 'true' or 'false' in quotes",
    ("int", "string"): "write a whole number without quotes (cpu in millicores, memory in bytes)",
    ("bool", "string"): "write true and false without quotes",
}
_AS_NUMBER = "read the string by int(…) or quantity(…)"
_ONE_TYPE = "compare values of one type"
# Comparisons -> what they give for values of different types.
_OF_UNLIKE = {"_==_": "always false", "_!=_": "always true"} | dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), "an error")
_OPTIONAL_STEPS = frozenset({"_[?_]", "_?._"})
# Calls that take an optional value, the steps of paths among them. What `? :` gives is one where a branch is.
_TAKING_OPTIONALS = _OPTIONAL_STEPS | {
    "_[_]",
    "orValue",
    "or",
    "value",
    "hasValue",
    "optional.of",
    "optional.ofNonZeroValue",
    "dyn",
    "type",
    "_?_:_",
}
_EQUALITIES = frozenset({"_==_", "_!=_"})
_INDEXES = frozenset({"_[_]", "_[?_]"})
# CEL's types -> these types. All its numbers can be compared with each other.
_OF_PRIMITIVES = {
    checked_pb2.Type.STRING: "string",
    checked_pb2.Type.BOOL: "bool",
    checked_pb2.Type.INT64: "int",
    checked_pb2.Type.UINT64: "int",
    checked_pb2.Type.DOUBLE: "int",
}
_UNWRAPPING = frozenset({"orValue", "value", "optional.of", "or"})


class _Checker:
    """Finds the Kubernetes type of each sub-expression, None where it isn't known, and refuses unknown fields."""

    def __init__(self, checked: checked_pb2.CheckedExpr) -> None:
        self._checked = checked
        self._bound: dict[str, str | None] = {}
        # The loop variables over lists of optionals.
        self._optionals: frozenset[str] = frozenset()

    def type_of(self, expr: syntax_pb2.Expr) -> str | None:
        """Check everything inside an expression, and return its type."""
        kind = expr.WhichOneof("expr_kind")
        if kind == "ident_expr":
            name = expr.ident_expr.name
            return self._bound[name] if name in self._bound else _ROOTS.get(name)
        if kind == "select_expr":
            operand = self.type_of(expr.select_expr.operand)
            return self._member(expr, operand, expr.select_expr.field)
        if kind == "call_expr":
            return self._call(expr)
        if kind == "comprehension_expr":
            loop = expr.comprehension_expr
            made = {loop.iter_var, loop.iter_var2, loop.accu_var}
            for name, renamed in NEWCOMERS.items():
                if renamed in made:
                    raise taken_name(self._checked, expr, name)
            self._comprehension(expr.comprehension_expr)
            return None
        for child in children(expr):
            self.type_of(child)
        return None

    def _call(self, expr: syntax_pb2.Expr) -> str | None:
        call = expr.call_expr
        types = [self.type_of(child) for child in children(expr)]
        self._refuse_optionals(expr)
        if call.function in _OF_UNLIKE:
            self._refuse_unlike(expr, types)
        if call.function in {"_[_]", "_[?_]", "_?._"}:
            field = constant_string(call.args[1])
            operand = types[0]
            if field is not None and operand is not None and not operand.startswith("list:"):
                return self._member(expr, operand, field)
            return operand.partition(":")[2] or None if operand else None
        return types[0] if call.function in _UNWRAPPING and types else None

    def _refuse_optionals(self, expr: syntax_pb2.Expr) -> None:
        """Refuse an optional as an operand: to CEL an element of a dynamic map is dynamic, and 'x' never equals an optional 'x'."""
        call, operands = expr.call_expr, list(children(expr))
        optional = [each for each in operands if _is_optional(each)]
        if call.function in _EQUALITIES:
            is_taken = all(map(self._may_be_optional, operands))
        elif call.function in _INDEXES:
            optional = [each for each in call.args[1:] if _is_optional(each)]
            is_taken = False
        else:
            is_taken = call.function in _TAKING_OPTIONALS or (
                call.function == "@in" and any(map(self._may_be_optional, call.args[1].list_expr.elements))
            )
        if optional and not is_taken:
            raise fault_at(self._checked, optional[0], MISSING)

    def _refuse_unlike(self, expr: syntax_pb2.Expr, types: list[str | None]) -> None:
        """Refuse to compare a text with a number, or either with true and false: they are never equal, and have no order."""
        call = expr.call_expr
        one, other = (self._scalar_of(each, given) for each, given in zip(call.args, types, strict=True))
        if one and other and one != other:
            said = f"compares {_SCALARS[one]} with {_SCALARS[other]}, which is {_OF_UNLIKE[call.function]}"
            raise fault_at(self._checked, expr, f"{said}; {_remedy(call, one, other)}")

    def _scalar_of(self, expr: syntax_pb2.Expr, given: str | None) -> str | None:
        known = self._checked.type_map[expr.id]
        if known.WhichOneof("type_kind") == "primitive":
            return _OF_PRIMITIVES.get(known.primitive)
        return given if given in _SCALARS and known.WhichOneof("type_kind") == "dyn" else None

    def _may_be_optional(self, expr: syntax_pb2.Expr) -> bool:
        if _is_optional(expr) or self._checked.type_map[expr.id].abstract_type.name == "optional_type":
            return True
        if expr.call_expr.function == "_?_:_":
            return any(map(self._may_be_optional, expr.call_expr.args[1:]))
        return expr.ident_expr.name in self._optionals

    def _comprehension(self, loop: syntax_pb2.Expr.Comprehension) -> None:
        kind, _, element = (self.type_of(loop.iter_range) or "").partition(":")
        outer, outer_optionals = dict(self._bound), self._optionals
        if any(map(self._may_be_optional, loop.iter_range.list_expr.elements)):
            self._optionals |= {loop.iter_var}
        self._bound[loop.iter_var] = element if kind == "list" else None
        self._bound[loop.accu_var] = None
        for part in (loop.accu_init, loop.loop_condition, loop.loop_step, loop.result):
            self.type_of(part)
        self._bound, self._optionals = outer, outer_optionals

    def _member(self, expr: syntax_pb2.Expr, operand: str | None, field: str) -> str | None:
        if operand is None or operand == "any":
            return None
        kind, _, element = operand.partition(":")
        if kind == "map":
            return element
        if kind == "list":
            message = f"a list has no field {field}; pick an element, or use exists() or all()"
            raise fault_at(self._checked, expr, message)
        fields = _EXTRA.get(operand) or TYPES.get(operand)
        if fields is None or (not fields and operand in _SCALARS):
            raise fault_at(self._checked, expr, f"a value of type {operand} has no field {field}")
        if field not in fields:
            raise fault_at(self._checked, expr, _unknown(operand, field, fields))
        return fields[field]


def _is_optional(expr: syntax_pb2.Expr) -> bool:
    """Return whether a path has an optional step: its value is an optional then, whatever follows. So of both sides of `? :`."""
    if expr.WhichOneof("expr_kind") == "select_expr":
        return not expr.select_expr.test_only and _is_optional(expr.select_expr.operand)
    call = expr.call_expr
    if call.function == "_?_:_":
        return all(map(_is_optional, call.args[1:]))
    return call.function in _OPTIONAL_STEPS or (call.function == "_[_]" and _is_optional(call.args[0]))


def _remedy(call: syntax_pb2.Expr.Call, one: str, other: str) -> str:
    """Return what to write in place of a comparison of a string, a number or a boolean with another of these types."""
    first, second = (each.WhichOneof("expr_kind") == "const_expr" for each in call.args)
    if not (first or second):
        return _AS_NUMBER if {one, other} == {"string", "int"} else _ONE_TYPE
    beside = (other, one) if first else (one, other)
    if beside == ("string", "int") and call.function not in _EQUALITIES:
        return _AS_NUMBER
    return _REMEDIES.get(beside, _ONE_TYPE)


def _unknown(operand: str, field: str, fields: dict[str, str]) -> str:
    if field in TYPES.get(running.ORIGINS.get(operand, ""), ()):
        return f"{operand}.{field} isn't kept of Pods on nodes; known are {', '.join(sorted(fields))}"
    near = get_close_matches(field, fields, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(fields))}"
    return f"{operand} has no field {field}; {hint}"


def check_fields(checked: checked_pb2.CheckedExpr, *, kind: str, wanted: str) -> None:
    """Refuse an expression that reads a field unknown to Kubernetes, or gives the value of a field of another type.

    Also one whose loop variable has a name that Berth added later.

    Args:
        checked: the expression.
        kind: the type that it has to give: `bool` or `int`.
        wanted: this type in the words of an error message.

    Raises:
        ExpressionError: with the nearest known name and the position.
    """
    given = _Checker(checked).type_of(checked.expr)
    if _is_optional(checked.expr):
        raise ExpressionError(MISSING, 1, 1)
    # The type of has(…) is that of its field here; CEL knows better.
    if given not in {None, "any", kind} and checked.type_map[checked.expr.id].WhichOneof("type_kind") == "dyn":
        message = f"gives {_in_words(given)}, but {wanted} is needed"
        raise ExpressionError(message, 1, 1)


def _in_words(given: str) -> str:
    kind, _, element = given.partition(":")
    return f"a {kind}" if element else kind
