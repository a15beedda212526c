"""Comparisons, arithmetic, logic and membership of lists over all nodes at once.

A split expression consists of operators over columns and single values. Where all of these are numbers, booleans, texts or
lists of these, numpy computes in microseconds what takes CEL milliseconds. Cases that CEL treats differently (a missing
value, mixed types, a number beyond 64 bits) are left to CEL: `vectorised` then returns None.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cel.expr import syntax_pb2

_LIMIT = 2**63
# Whole numbers up to this are exact as doubles.
_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts: `codes` says which of `values` each row has."""

    codes: npt.NDArray[np.int32]
    values: Sequence[str]


@dataclass(frozen=True, slots=True)
class Members:
    """The elements of a list, or the keys of a map."""

    values: "Sequence[Operand]"


# A column (one entry for each requested row) or a single value that holds for all rows.
Operand = (
    npt.NDArray[np.int64] | npt.NDArray[np.float64] | npt.NDArray[np.bool_] | Texts | int | float | bool | str | Members
)


class _LeftToCELError(Exception):
    """The operands aren't of a kind that numpy handles as CEL does."""


def vectorised(expr: syntax_pb2.Expr, operands: Mapping[str, Operand]) -> Operand | None:
    """Evaluate operators over columns; None where CEL has to do it.

    Args:
        expr: an expression over variables and constants.
        operands: the values of the variables.
    """
    try:
        return _evaluate(expr, operands)
    except _LeftToCELError:
        return None


def _evaluate(expr: syntax_pb2.Expr, operands: Mapping[str, Operand]) -> Operand:
    kind = expr.WhichOneof("expr_kind")
    if kind == "ident_expr" and expr.ident_expr.name in operands:
        return operands[expr.ident_expr.name]
    if kind == "const_expr":
        return _constant(expr.const_expr)
    if kind == "list_expr" and not expr.list_expr.optional_indices:
        return Members([_evaluate(element, operands) for element in expr.list_expr.elements])
    if kind == "call_expr":
        call = expr.call_expr
        operator = OPERATORS.get(call.function)
        if operator is not None:
            return operator(*(_evaluate(argument, operands) for argument in call.args))
    raise _LeftToCELError


def _constant(constant: syntax_pb2.Constant) -> Operand:
    kind = constant.WhichOneof("constant_kind")
    if kind in {"int64_value", "double_value", "bool_value", "string_value"}:
        value: Operand = getattr(constant, kind)
        return value
    raise _LeftToCELError


def _is_boolean(operand: Operand) -> bool:
    return isinstance(operand, bool) or (isinstance(operand, np.ndarray) and operand.dtype == np.bool_)


def _is_number(operand: Operand) -> bool:
    if isinstance(operand, np.ndarray):
        return operand.dtype == np.int64
    return isinstance(operand, int) and not isinstance(operand, bool)


def _is_double(operand: Operand) -> bool:
    return isinstance(operand, float) or (isinstance(operand, np.ndarray) and operand.dtype == np.float64)


def _as_double(operand: Operand) -> Operand:
    """Return numbers as doubles for a comparison; CEL compares a whole number with a double by their values."""
    if _is_double(operand):
        return operand
    if not _is_number(operand) or max(map(abs, _range(operand))) > _EXACT:
        raise _LeftToCELError
    return operand.astype(np.float64) if isinstance(operand, np.ndarray) else float(operand)  # type: ignore[arg-type] # a number


def _logical(function: Callable[..., Operand]) -> Callable[..., Operand]:
    def apply(*arguments: Operand) -> Operand:
        if not all(map(_is_boolean, arguments)):
            raise _LeftToCELError
        return function(*arguments)

    return apply


def _arithmetic(function: Callable[[int, int], int]) -> Callable[[Operand, Operand], Operand]:
    def apply(left: Operand, right: Operand) -> Operand:
        if not (_is_number(left) and _is_number(right)):
            return _of_doubles(function, left, right)
        corners = [function(first, second) for first in _range(left) for second in _range(right)]
        if not all(-_LIMIT <= corner < _LIMIT for corner in corners):
            raise _LeftToCELError  # CEL reports an overflow; numpy would wrap
        return function(left, right)  # type: ignore[arg-type] # numpy's operators are Python's

    return apply


def _of_doubles(function: Callable[..., Any], left: Operand, right: Operand) -> Operand:
    if not (_is_double(left) and _is_double(right)):
        raise _LeftToCELError
    with np.errstate(all="ignore"):  # as in CEL, by IEEE 754: 1.0 / 0.0 is infinite
        found = function(left, right)
    return found if isinstance(found, np.ndarray) else float(found)


def _range(operand: Operand) -> tuple[int, int]:
    if isinstance(operand, np.ndarray):
        return (int(operand.min()), int(operand.max())) if len(operand) else (0, 0)
    return (int(operand), int(operand))  # type: ignore[arg-type] # a number, as was checked


def _divided(left: Any, right: Any) -> Operand:
    if not (_is_number(left) and _is_number(right)):
        return _of_doubles(np.divide, left, right)
    whole: Operand = _quotient(left, right)
    return whole


def _remainder(left: Any, right: Any) -> Operand:
    remainder: Operand = left - _quotient(left, right) * right
    return remainder


def _quotient(left: Any, right: Any) -> Any:
    """Return the quotient of whole numbers, rounded towards zero. A divisor of zero and possible overflows are left to CEL."""
    if not (_is_number(left) and _is_number(right)) or not np.all(right) or _reaches_limit(left, right):
        raise _LeftToCELError
    size = np.abs(left) // np.abs(right)
    found = np.where(np.less(left, 0) != np.less(right, 0), -size, size)
    return found if found.ndim else int(found)


def _reaches_limit(*operands: Operand) -> bool:
    """Return whether the negation of one of the numbers doesn't fit 64 bits."""
    return any(_range(operand)[0] == -_LIMIT for operand in operands)


def _negative(operand: Any) -> Operand:
    if not _is_double(operand):
        return _arithmetic(lambda left, right: left - right)(0, operand)
    opposite: Operand = -operand
    return opposite


def _double(operand: Operand) -> Operand:
    if _is_double(operand):
        return operand
    if not _is_number(operand):
        raise _LeftToCELError
    return operand.astype(np.float64) if isinstance(operand, np.ndarray) else float(operand)  # type: ignore[arg-type] # a number


def _ordering(function: Callable[[int, int], bool]) -> Callable[[Operand, Operand], Operand]:
    def apply(left: Operand, right: Operand) -> Operand:
        if not (_is_number(left) and _is_number(right)):
            left, right = _as_double(left), _as_double(right)
        return function(left, right)  # type: ignore[arg-type] # numpy's operators are Python's

    return apply


def _equal(left: Operand, right: Operand) -> Operand:
    if (_is_number(left) and _is_number(right)) or (_is_boolean(left) and _is_boolean(right)):
        return left == right
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if isinstance(left, Texts) and isinstance(right, str):
        return _matches(left, right)
    if isinstance(left, str) and isinstance(right, Texts):
        return _matches(right, left)
    return _as_double(left) == _as_double(right)


def _is_in(operand: Operand, members: Operand) -> Operand:
    if not isinstance(members, Members):
        raise _LeftToCELError
    if isinstance(operand, Texts) and all(isinstance(member, str) for member in members.values):
        texts = set(members.values)
        return np.array([value in texts for value in operand.values], dtype=np.bool_)[operand.codes]
    found: Operand = False
    for member in members.values:
        found = _or(found, _equal(operand, member))
    return found


def _matches(texts: Texts, text: str) -> Operand:
    return np.array([value == text for value in texts.values], dtype=np.bool_)[texts.codes]


def _not(operand: Operand) -> Operand:
    return np.logical_not(operand) if isinstance(operand, np.ndarray) else not operand


def _and(left: Operand, right: Operand) -> Operand:
    if isinstance(left, bool):
        return right if left else _like(right, value=False)
    return _and(right, left) if isinstance(right, bool) else np.logical_and(left, right)  # type: ignore[arg-type] # booleans


def _or(left: Operand, right: Operand) -> Operand:
    return _not(_and(_not(left), _not(right)))


def _like(operand: Operand, *, value: bool) -> Operand:
    return np.full(len(operand), value) if isinstance(operand, np.ndarray) else value


def _different(left: Operand, right: Operand) -> Operand:
    return _not(_equal(left, right))


def _choose(condition: Operand, then: Operand, otherwise: Operand) -> Operand:
    if not _is_boolean(condition):
        raise _LeftToCELError
    if isinstance(condition, bool):
        return then if condition else otherwise
    if not any(are(then) and are(otherwise) for are in (_is_number, _is_double, _is_boolean)):
        raise _LeftToCELError
    return np.where(condition, then, otherwise)  # type: ignore[arg-type] # numbers or booleans, as was checked


# The operators that run over columns.
OPERATORS: dict[str, Callable[..., Operand]] = {
    "_&&_": _logical(_and),
    "_||_": _logical(_or),
    "!_": _logical(_not),
    "_?_:_": _choose,
    "_+_": _arithmetic(lambda left, right: left + right),
    "_-_": _arithmetic(lambda left, right: left - right),
    "_*_": _arithmetic(lambda left, right: left * right),
    "_/_": _divided,
    "_%_": _remainder,
    "-_": _negative,
    "double": _double,
    "dyn": lambda operand: operand,
    "_<_": _ordering(lambda left, right: left < right),
    "_<=_": _ordering(lambda left, right: left <= right),
    "_>_": _ordering(lambda left, right: left > right),
    "_>=_": _ordering(lambda left, right: left >= right),
    "_==_": _equal,
    "_!=_": _different,
    "@in": _is_in,
}
