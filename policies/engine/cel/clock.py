"""How an expression depends on `now`: the moments at which its answer can change by itself, derived from its syntax tree.

The moments come from three shapes. `now` compared with a time (`now + duration(…) <= timestamp(…)`) changes when the
two are equal. A part of the clock (`now.getHours('Europe/Berlin')`) changes at the boundaries of its unit. A part of a
duration (`(now - timestamp(…)).getHours()`) changes at multiples of the unit. For any other use of `now` the moments
aren't known: the expression is evaluated each second.

An expression that uses `now` only in these shapes is constant between the moments, so it may itself be an operand where
a shape needs a constant value.
"""

from dataclasses import dataclass
from typing import Final

from cel.expr import checked_pb2, syntax_pb2

from policies.engine.cel.syntax import children, free_names, subtree, unpack
from policies.engine.errors import ExpressionError

# All times in this module are in nanoseconds, as in CEL.
SECOND: Final = 1_000_000_000
# The limit of CEL's durations; a larger difference of times is an error (cel-cpp's overflow checks).
LONGEST: Final = 2**63

_MINUTE, _HOUR = 60 * SECOND, 3600 * SECOND
_DAY = 24 * _HOUR
_UNITS: Final = {
    "getMilliseconds": SECOND // 1000,
    "getSeconds": SECOND,
    "getMinutes": _MINUTE,
    "getHours": _HOUR,
    "getDate": _DAY,
    "getDayOfMonth": _DAY,
    "getDayOfWeek": _DAY,
    "getDayOfYear": _DAY,
    "getMonth": _DAY,
    "getFullYear": _DAY,
}
# Whether the answer changes just after both sides are equal (True), or when they become equal.
_ORDERINGS: Final = {"_<_": False, "_>=_": False, "_>_": True, "_<=_": True}
_EQUALITIES: Final = frozenset({"_==_", "_!=_"})
_SIGNS: Final = {"_+_": 1, "_-_": -1}
_TIMESTAMP, _DURATION = checked_pb2.Type.TIMESTAMP, checked_pb2.Type.DURATION
_EACH = "@each"


@dataclass(frozen=True, slots=True)
class Term:
    """A constant sub-expression as a text: a time, a duration or a zone. In a loop it yields a list of these.

    `serialized` is an expression of its own.
    """

    serialized: bytes
    in_loop: bool


@dataclass(frozen=True, slots=True)
class Line:
    """slope x now + offset_nanoseconds + the sum of sign x term."""

    slope: int
    terms: tuple[tuple[int, Term], ...] = ()
    offset_nanoseconds: int = 0

    def plus(self, other: "Line", sign: int) -> "Line":
        """Add another line, or subtract it."""
        terms = self.terms + tuple((sign * its_sign, term) for its_sign, term in other.terms)
        return Line(self.slope + sign * other.slope, terms)


@dataclass(frozen=True, slots=True)
class Crossing:
    """An answer that changes where a line crosses zero: when it reaches zero, just after, or both."""

    line: Line
    at_zero: bool
    after_zero: bool


@dataclass(frozen=True, slots=True)
class Period:
    """An answer that changes at each multiple of a unit. `clock` is true for times of day, false for durations."""

    line: Line
    unit_nanoseconds: int
    clock: bool
    zone: Term | None = None


@dataclass(frozen=True, slots=True)
class Clock:
    """All of an expression's moments. `each_second`: there may be others, so the expression is evaluated each second."""

    crossings: tuple[Crossing, ...]
    periods: tuple[Period, ...]
    each_second: bool


def read_clock(serialized: bytes) -> Clock:
    """Derive how a serialised expression, without calls of `count`, depends on `now`."""
    reader = _Reader(unpack(serialized))
    return Clock(tuple(reader.crossings), tuple(reader.periods), reader.each_second)


@dataclass(frozen=True, slots=True)
class _Binder:
    """A loop around a sub-expression. `each`: the sub-expression is in the loop's step; else in its result, with one value bound."""

    loop: syntax_pb2.Expr
    each: bool

    @property
    def names(self) -> set[str]:
        loop = self.loop.comprehension_expr
        return {loop.iter_var, loop.iter_var2, loop.accu_var}

    @property
    def bound(self) -> set[str]:
        """The names that can be given values outside the loop."""
        loop = self.loop.comprehension_expr
        if self.each:
            return set() if loop.iter_var2 else {loop.iter_var}
        # optMap and similar macros: a loop over nothing, whose accu_var is the value.
        nothing = loop.iter_range.WhichOneof("expr_kind") == "list_expr" and not loop.iter_range.list_expr.elements
        return {loop.accu_var} if nothing else set()


class _UnboundError(Exception):
    """A sub-expression can't stand alone."""


class _Reader:
    def __init__(self, checked: checked_pb2.CheckedExpr) -> None:
        self._checked = checked
        self._binders: list[_Binder] = []
        self._next_id = max([*checked.type_map, *checked.reference_map, checked.expr.id]) + 1
        self.crossings: list[Crossing] = []
        self.periods: list[Period] = []
        self.each_second = False
        self._read(checked.expr)

    def _read(self, expr: syntax_pb2.Expr) -> None:
        """Read an expression whose value isn't in any of the shapes."""
        if self._line(expr) is not None:
            self.each_second = True

    def _line(self, expr: syntax_pb2.Expr) -> Line | None:
        """Read an expression; returns a Line where its value moves with `now`, None where it is constant between moments."""
        kind = expr.WhichOneof("expr_kind")
        if kind == "ident_expr":
            return Line(1) if expr.ident_expr.name == "now" else None
        if kind == "comprehension_expr":
            self._loop(expr)
            return None
        if kind != "call_expr":
            for child in children(expr):
                self._read(child)
            return None
        lines = [self._line(child) for child in children(expr)]
        if all(line is None for line in lines):
            return None
        try:
            return self._call(expr, lines)
        except _UnboundError:
            self.each_second = True
            return None

    def _loop(self, expr: syntax_pb2.Expr) -> None:
        loop = expr.comprehension_expr
        self._read(loop.iter_range)
        self._read(loop.accu_init)
        self._binders.append(_Binder(expr, each=True))
        self._read(loop.loop_condition)
        self._read(loop.loop_step)
        self._binders[-1] = _Binder(expr, each=False)
        self._read(loop.result)
        self._binders.pop()

    def _call(self, expr: syntax_pb2.Expr, lines: list[Line | None]) -> Line | None:
        """Read a call at least one of whose operands moves."""
        function, operands = expr.call_expr.function, list(children(expr))
        if function in _SIGNS and len(operands) == 2:  # noqa: PLR2004 - with two sides
            return self._sum(expr, _SIGNS[function], operands, lines)
        if function in _ORDERINGS or function in _EQUALITIES:
            left, right = self._sides(operands, lines)
            self._cross(left.plus(right, -1), function)
        elif function in _UNITS and lines[0] is not None and lines[1:] in ([], [None]):
            self._part_of_clock(expr, lines[0], operands[1:])
        else:
            self.each_second = True
        return None

    def _sides(self, operands: list[syntax_pb2.Expr], lines: list[Line | None]) -> tuple[Line, Line]:
        left, right = [
            Line(0, ((1, self._term(operand)),)) if line is None else line
            for operand, line in zip(operands, lines, strict=True)
        ]
        return left, right

    def _sum(self, expr: syntax_pb2.Expr, sign: int, operands: list[syntax_pb2.Expr], lines: list[Line | None]) -> Line:
        left, right = self._sides(operands, lines)
        line = left.plus(right, sign)
        if self._type(expr) == _DURATION:
            # The library subtracts whole seconds first: its limit for two times is up to a second lower.
            early = SECOND if self._type(operands[0]) == self._type(operands[1]) == _TIMESTAMP else 0
            for limit in {LONGEST, LONGEST - early, early - LONGEST, -LONGEST}:
                self.crossings.append(Crossing(Line(line.slope, line.terms, limit), at_zero=True, after_zero=True))
        return line

    def _cross(self, line: Line, function: str) -> None:
        if function in _EQUALITIES:
            self.crossings.append(Crossing(line, at_zero=True, after_zero=True))
            return
        after = _ORDERINGS[function] == (line.slope > 0)
        self.crossings.append(Crossing(line, at_zero=not after, after_zero=after))

    def _part_of_clock(self, expr: syntax_pb2.Expr, line: Line, zones: list[syntax_pb2.Expr]) -> None:
        kind = self._type(next(children(expr)))
        if kind not in {_TIMESTAMP, _DURATION}:
            raise _UnboundError  # one or the other, depending on the data
        zone = self._term(zones[0]) if zones else None
        unit = _UNITS[expr.call_expr.function]
        self.periods.append(Period(line, unit, clock=kind == _TIMESTAMP, zone=zone))

    def _type(self, expr: syntax_pb2.Expr) -> int | None:
        """Return the well-known type of an expression, None for others."""
        kind = self._checked.type_map[expr.id]
        return kind.well_known if kind.WhichOneof("type_kind") == "well_known" else None

    def _term(self, expr: syntax_pb2.Expr) -> Term:
        """Make a sub-expression self-contained, as a text, with copies of the loops around it where it needs them.

        Raises:
            _UnboundError: it needs more than that, or would be nested too deep.
        """
        made = self._new()
        made.call_expr.function = "string"
        made.call_expr.args.add().CopyFrom(expr)
        in_loop = False
        for binder in reversed(self._binders):
            needed = free_names(made) & binder.names
            if not needed <= binder.bound:
                raise _UnboundError
            if needed:
                made = self._each(binder.loop, made) if binder.each else _let(binder.loop, made)
                in_loop = in_loop or binder.each
        serialized = subtree(self._checked, made)
        try:
            unpack(serialized)
        except ExpressionError as error:
            raise _UnboundError from error
        return Term(serialized, in_loop)

    def _each(self, around: syntax_pb2.Expr, body: syntax_pb2.Expr) -> syntax_pb2.Expr:
        """Make the list of a body's values over a loop: what `map` makes."""
        made = self._new()
        loop = made.comprehension_expr
        loop.iter_var = around.comprehension_expr.iter_var
        loop.iter_range.CopyFrom(around.comprehension_expr.iter_range)
        loop.accu_var = _EACH
        loop.accu_init.CopyFrom(self._new())
        loop.accu_init.list_expr.SetInParent()
        loop.loop_condition.CopyFrom(self._new())
        loop.loop_condition.const_expr.bool_value = True
        loop.loop_step.CopyFrom(self._new())
        loop.loop_step.call_expr.function = "_+_"
        loop.loop_step.call_expr.args.extend([self._name(_EACH), self._new()])
        loop.loop_step.call_expr.args[1].list_expr.elements.append(body)
        loop.result.CopyFrom(self._name(_EACH))
        return made

    def _name(self, name: str) -> syntax_pb2.Expr:
        made = self._new()
        made.ident_expr.name = name
        return made

    def _new(self) -> syntax_pb2.Expr:
        self._next_id += 1
        return syntax_pb2.Expr(id=self._next_id - 1)


def _let(around: syntax_pb2.Expr, body: syntax_pb2.Expr) -> syntax_pb2.Expr:
    """Return the body with the value bound that the loop over nothing binds."""
    made = syntax_pb2.Expr()
    made.CopyFrom(around)
    made.comprehension_expr.result.CopyFrom(body)
    return made
