"""The CEL environment of rules: variables, functions, compiling, evaluating. The only module that imports CEL."""

import re
from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec
from cel.expr import syntax_pb2
from cel_expr_python import cel
from cel_expr_python.ext import ext_math, ext_optional, ext_strings

from policies.engine.cel.functions import DECLARATIONS, substring, zone
from policies.engine.cel.regex_cost import pattern
from policies.engine.cel.syntax import (
    CLOCK,
    COUNTS,
    MISSING,
    NEWCOMERS,
    PATTERN,
    PATTERN_OVERLOAD,
    SUBSTRING,
    SUBSTRING_OVERLOAD,
    ZONE,
    ZONE_OVERLOAD,
    children,
    constant_string,
    fault_at,
    guarded,
    unpack,
    with_loops_renamed,
)
from policies.engine.errors import ExpressionError

# In characters. A longer expression should be two rules.
MAX_LENGTH = 4096

# The values of variables.
Data = dict[str, Any]

_POSITION = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_UNDECLARED = re.compile(r"undeclared reference to '([^']+)'")
_SYNTAX = re.compile(r"Syntax error: (?:mismatched|extraneous) input '(.+?)' expecting ")
_TOO_DEEP = re.compile(r"recursion (?:depth|limit)\D*(\d+)")
# CEL's name for the maps that stand for quantities, see `functions`.
_HELD_QUANTITY = "map(string, list(double))"
_NO_OPERATORS = (
    "a quantity takes only == and !=, with another quantity; else use isGreaterThan, isLessThan, compareTo, add or sub"
)
_NO_OVERLOAD, _OPTIONAL = "no matching overload", "optional_type("
# Functions that read a text -> what to tell about a text that they can't read.
_FORMS = {
    "duration": "is not a duration; write it like 90s, 20m or 1h30m",
    "timestamp": "is not a time; write it like 2026-05-01T20:00:00Z",
    "quantity": "is not a quantity; write it like 250m, 2, 1.5Gi or 2e3",
}
# Functions and macros of CEL and of its extensions: what a misspelt call may have meant.
_CALLS = (
    *("all", "exists", "exists_one", "filter", "has", "map"),
    *("bool", "bytes", "double", "duration", "dyn", "int", "size", "string", "timestamp", "type", "uint"),
    *("contains", "endsWith", "matches", "startsWith"),
    *("charAt", "format", "indexOf", "join", "lastIndexOf", "lowerAscii", "quote", "replace", "reverse", "split"),
    *("substring", "trim", "upperAscii"),
    *("hasValue", "optFlatMap", "optMap", "or", "orValue", "value"),
    *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds"),
    *("getMinutes", "getMonth", "getSeconds"),
    *(declaration[0] for declaration in DECLARATIONS),
)
# How alike they have to be: count, which rules about victims can't use, isn't contains.
_ALIKE = 0.75
_FORM_OF_ZONE = "is not a time zone; write it like Europe/Berlin, UTC or +05:30"
_NOISE = re.compile(r" \(in container ''\)|^Syntax error: ")


class EvaluationFault(msgspec.Struct, frozen=True):
    """Replaces the value of an expression that couldn't be evaluated on a node. `message` is for the author."""

    message: str


_LABELS = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
_NAMED_TYPES = {
    "string": cel.Type.STRING,
    "int": cel.Type.INT,
    "bool": cel.Type.BOOL,
    "double": cel.Type.DOUBLE,
    "quantity": cel.Type.Map(cel.Type.STRING, cel.Type.List(cel.Type.DOUBLE)),
}
_VARIABLES = {
    "pod": cel.Type.DYN,
    "requests": cel.Type.DYN,
    "namespaceObject": cel.Type.DYN,
    "node": cel.Type.DYN,
    "usage": cel.Type.DYN,
    "params": cel.Type.DYN,
    "topology": cel.Type.DYN,
    "cluster": cel.Type.DYN,
    "now": cel.Type.TIMESTAMP,
}


def _function_declarations(*, counting: bool) -> list[cel.FunctionDecl]:
    overloads: dict[str, list[cel.Overload]] = {}
    for name, overload, parameters, result, is_member, implementation in DECLARATIONS:
        made = cel.Overload(
            overload,
            return_type=_NAMED_TYPES[result],
            parameters=[_NAMED_TYPES[parameter] for parameter in parameters],
            is_member=is_member,
            impl=implementation,
        )
        overloads.setdefault(name, []).append(made)
    for name, overload, implementation in ((ZONE, ZONE_OVERLOAD, zone), (PATTERN, PATTERN_OVERLOAD, pattern)):
        overloads[name] = [
            cel.Overload(overload, return_type=cel.Type.STRING, parameters=[cel.Type.STRING], impl=implementation)
        ]
    overloads[SUBSTRING] = [
        cel.Overload(
            SUBSTRING_OVERLOAD,
            return_type=cel.Type.STRING,
            parameters=[cel.Type.STRING, cel.Type.INT, cel.Type.INT],
            is_member=True,
            impl=substring,
        )
    ]
    # No implementation: calls of `count` are removed from the tree before it is evaluated.
    for name in COUNTS if counting else ():
        overloads[name] = [
            cel.Overload(overload, return_type=cel.Type.INT, parameters=[cel.Type.DYN, *parameters], is_member=True)
            for overload, parameters in (
                (f"berth_{name}", [_LABELS]),
                (f"berth_{name}_by_key", [cel.Type.STRING, _LABELS]),
            )
        ]
    return [cel.FunctionDecl(name, made) for name, made in overloads.items()]


_EXTENSIONS = [ext_strings.ExtStrings(), ext_optional.ExtOptional(), ext_math.ExtMath()]
_ENVIRONMENT = cel.NewEnv(variables=_VARIABLES, extensions=_EXTENSIONS, functions=_function_declarations(counting=True))


class Scope(NamedTuple):
    """The variables and functions that an expression may use."""

    environment: cel.Env
    variables: Collection[str]


# Filters and scores: a Pod and nodes.
NODES = Scope(_ENVIRONMENT, _VARIABLES)
_VICTIM_VARIABLES = {name: _VARIABLES[name] for name in ("pod", "node", "params", "now")} | {"victim": cel.Type.DYN}
# Victims rules: one Pod on a node, and the Pod that would take its place. They can't count Pods.
VICTIMS = Scope(
    cel.NewEnv(variables=_VICTIM_VARIABLES, extensions=_EXTENSIONS, functions=_function_declarations(counting=False)),
    _VICTIM_VARIABLES,
)
BOOLEAN_TYPES = (cel.Type.BOOL, cel.Type.DYN)
NUMBER_TYPES = (cel.Type.INT, cel.Type.UINT, cel.Type.DOUBLE, cel.Type.DYN)


class Program:
    """An expression that can be evaluated. Made from its serialised form."""

    def __init__(self, serialized: bytes) -> None:
        self._expression = _ENVIRONMENT.deserialize(guarded(serialized))

    def run(self, data: Data) -> object:
        """Evaluate; returns an EvaluationFault where CEL gives an error.

        CEL raises when its iteration budget is used up, and for a value that has no Python form.
        """
        try:
            value = self._expression.eval(data=data)
            if value.type() == cel.Type.ERROR:
                return EvaluationFault(str(value.value()))
            return value.plain_value()
        except SystemError:  # its text contains memory addresses, which differ in each process
            return EvaluationFault(
                "has an optional value inside a list or a map where that can't be: take its value first"
            )
        except (RuntimeError, TypeError, ValueError) as error:
            return EvaluationFault(str(error).partition("\n")[0])


def compile_checked(source: str, types: tuple[cel.Type, ...], wanted: str, scope: Scope = NODES) -> bytes:
    """Parse and type-check an expression; returns its serialised form.

    Args:
        source: the expression.
        types: the allowed types of the result; BOOLEAN_TYPES or NUMBER_TYPES.
        wanted: these types in the words of an error message.
        scope: the names that it may use.

    Raises:
        ExpressionError: with the position.
    """
    if not source.strip():
        message = "an expression is needed here"
        raise ExpressionError(message)
    if len(source) > MAX_LENGTH:
        message = f"{len(source)} characters; at most {MAX_LENGTH} are allowed: split it into several rules"
        raise ExpressionError(message)
    compiled = _compile(source, scope)
    try:
        given = compiled.return_type()
    except RuntimeError as error:  # CEL checks keys when the map is made, and here
        message = "gives a map whose keys can't be keys: these are texts, whole numbers, true and false"
        raise ExpressionError(message, 1, 1) from error
    if not any(given == allowed for allowed in types):
        message = f"gives {given.name().lower()}, but {wanted} is needed"
        raise ExpressionError(message, 1, 1)
    serialized = bytes(compiled.serialize())
    return with_loops_renamed(serialized) if any(name in source for name in NEWCOMERS) else serialized


def pattern_fault(text: str) -> str:
    """Return the fault of a regular expression; empty when there is none."""
    value = _MATCHES.run({"params": text})
    return value.message.partition(": ")[2].partition(" INVALID")[0] if isinstance(value, EvaluationFault) else ""


def check_constants(serialized: bytes) -> None:
    """Refuse a constant duration, time, quantity or time zone that can't be read: it would fail wherever it is evaluated.

    Raises:
        ExpressionError: with the position.
    """
    checked = unpack(serialized)
    for expr in _calls(checked.expr):
        text = constant_string(expr.call_expr.args[-1]) if expr.call_expr.args else None
        if text is not None and (fault := _fault_of(expr.call_expr.function, text)):
            raise fault_at(checked, expr, f"{text[:64]!r} {fault}")


def _calls(expr: syntax_pb2.Expr) -> Iterator[syntax_pb2.Expr]:
    if expr.WhichOneof("expr_kind") == "call_expr":
        yield expr
    for child in children(expr):
        yield from _calls(child)


def _fault_of(function: str, text: str) -> str:
    if function in _FORMS:
        return _FORMS[function] if isinstance(_READERS[function].run({"params": text}), EvaluationFault) else ""
    if function.startswith(CLOCK):
        try:
            zone(text)
        except ValueError:
            return _FORM_OF_ZONE
    return ""


def _compile(source: str, scope: Scope) -> cel.Expression:
    try:
        return scope.environment.compile(source)
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
            start = _start_of(name, source, line, column)
            rest = source.split("\n")[line - 1][start - 1 + len(name) :]
            message = _unknown_function(name, scope) if rest.lstrip().startswith("(") else _unknown_name(name, scope)
            raise ExpressionError(message, line, start) from error
        raise ExpressionError(_in_plain_words(message), line, column) from error


def _unknown_name(name: str, scope: Scope) -> str:
    root = name.partition(".")[0]
    near = get_close_matches(root, scope.variables, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(scope.variables))}"
    return f"undeclared reference to '{root}'; {hint}"


def _unknown_function(name: str, scope: Scope) -> str:
    counts = COUNTS if scope is NODES else ()
    if name in counts:
        return f"undeclared reference to '{name}'; it is called on a value, as in node.{name}(…)"
    if name in _CALLS:
        return f"undeclared reference to '{name}'; it takes other arguments, or another value before its dot"
    near = get_close_matches(name, [*_CALLS, *counts], n=1, cutoff=_ALIKE)
    return f"undeclared reference to '{name}'; " + (
        f"did you mean {near[0]}()?" if near else "no function has this name"
    )


def _start_of(name: str, source: str, line: int, column: int) -> int:
    """Return the column at which a name with dots starts: CEL points at its last dot."""
    text = source.split("\n")[line - 1]
    start = text.rfind(name, 0, column + len(name) - 1)
    return start + 1 if start >= 0 else column


def _in_plain_words(message: str) -> str:
    """Leave out the parser's list of all tokens that it expected, and name quantities as authors do."""
    syntax = _SYNTAX.match(message)
    if syntax is None:
        said = _NOISE.sub("", message)
        return said.replace(_HELD_QUANTITY, "quantity") + _hint(said)
    return "the expression ends too early" if syntax[1] == "<EOF>" else f"'{syntax[1]}' can't stand here"


def _hint(said: str) -> str:
    """Return what to write in place of a call that takes no such values; empty where nothing general is known."""
    if _NO_OVERLOAD not in said:
        return ""
    if _OPTIONAL in said:
        return f": {MISSING}"
    return f": {_NO_OPERATORS}" if _HELD_QUANTITY in said and "for '_" in said else ""


_MATCHES = Program(bytes(_ENVIRONMENT.compile("''.matches(params)").serialize()))
_READERS = {name: Program(bytes(_ENVIRONMENT.compile(f"{name}(params)").serialize())) for name in _FORMS}
