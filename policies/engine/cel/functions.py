"""Functions that expressions may call besides CEL's own, or in place of them: Kubernetes' quantity library, and substring.

Source: k8s.io/apiserver v0.36.3 pkg/cel/library/quantity.go; k8s.io/apimachinery v0.36.3 pkg/api/resource/quantity.go
(AsInt64, AsApproximateFloat64). In CEL a quantity is a map with one member, because the library can't hold values of custom
types. Such a map can be compared with == and passed to these functions, and CEL's type check refuses `<` and arithmetic on
it, as Kubernetes does. The member's name is the amount. Its value encodes how Go stores the amount, see `Quantity`, in zeros
with and without a minus sign: == treats these as equal, as it must for 1000m and 1.
"""

import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct
from typing import Any
from zoneinfo import available_timezones

from policies.engine.errors import QuantityError
from policies.engine.quantity import Quantity, parse_bare

# A quantity as CEL holds it.
Held = Mapping[str, list[float]]

# The most digits of an amount. One from quantity() has at most 665 between its first digit and a nano (256 characters,
# exponents limited to 400, see `quantity`), so no sum of amounts that Kubernetes accepts comes near.
MAX_DIGITS = 999
# Anybody can write such a map into an expression: with the exponent of '1e60000000' a comparison took a minute. `_hold` writes no other.
_HELD = re.compile(rf"(-?[0-9]{{1,{MAX_DIGITS}}})e(-?[0-9]{{1,3}})")
_BEYOND = 10**MAX_DIGITS
# The zeros in a held quantity: whether Go stores it as a decimal of any size, and the bits of its scale.
_SCALES = range(-9, 401)
FORM_LENGTH = 10
# Beyond these exponents Go's powers of ten are infinite; Go multiplies two table entries.
_MOST_TENS, _TENS_AT_ONCE = 308, 32


def _hold(quantity: Quantity) -> dict[str, list[float]]:
    """Write a quantity so that equal amounts are equal to CEL."""
    unscaled, scale = quantity.unscaled, quantity.scale
    if abs(unscaled) >= _BEYOND:
        message = f"a quantity has at most {MAX_DIGITS} digits"
        raise QuantityError(message)
    while unscaled and unscaled % 10 == 0:
        unscaled //= 10
        scale += 1
    return {f"{unscaled}e{scale if unscaled else 0}": list(_FORMS[quantity.scale, quantity.big])}


def _form_of(scale: int, *, big: bool) -> tuple[float, ...]:
    number = _SCALES.index(scale) << 1 | big
    return tuple(-0.0 if number >> place & 1 else 0.0 for place in range(FORM_LENGTH))


_FORMS = {(scale, big): _form_of(scale, big=big) for scale in _SCALES for big in (False, True)}
# Compared by their bytes: for Python, too, the two zeros are equal.
_BYTES = Struct(f"{FORM_LENGTH}d")
_KEPT_AS = {_BYTES.pack(*form): kept for kept, form in _FORMS.items()}


def _read(held: Held) -> Quantity:
    name, form = next(iter(held.items()), ("", []))
    found = _HELD.fullmatch(name)
    kept = _KEPT_AS.get(_BYTES.pack(*form)) if len(form) == FORM_LENGTH else None
    if found is None or kept is None:
        message = "a quantity is needed: quantity('1Gi')"
        raise QuantityError(message)
    scale, big = kept
    return Quantity(int(found[1]) * 10 ** max(int(found[2]) - scale, 0), scale, big)


def quantity(text: str) -> dict[str, list[float]]:
    """Read a quantity."""
    return _hold(parse_bare(text))


def is_quantity(text: str) -> bool:
    """Return whether a text is a quantity."""
    try:
        parse_bare(text)
    except QuantityError:
        return False
    return True


def compare(left: Held, right: Held) -> int:
    """Return -1, 0 or 1."""
    mine, other = _read(left), _read(right)
    return int(mine.exceeds(other)) - int(other.exceeds(mine))


def is_greater(left: Held, right: Held) -> bool:
    """Return whether the left one is more."""
    return compare(left, right) > 0


def is_less(left: Held, right: Held) -> bool:
    """Return whether the left one is less."""
    return compare(left, right) < 0


def add(left: Held, right: Held | int) -> dict[str, list[float]]:
    """Add a quantity or a whole number."""
    return _hold(_read(left).plus(_other(right)))


def subtract(left: Held, right: Held | int) -> dict[str, list[float]]:
    """Subtract a quantity or a whole number."""
    other = _other(right)
    return _hold(_read(left).plus(other._replace(unscaled=-other.unscaled)))


def _other(value: Held | int) -> Quantity:
    return Quantity(value, 0) if isinstance(value, int) else _read(value)


def sign(held: Held) -> int:
    """Return -1, 0 or 1."""
    unscaled = _read(held).unscaled
    return (unscaled > 0) - (unscaled < 0)


def is_integer(held: Held) -> bool:
    """Return whether Go stores the quantity as a 64-bit integer: not for 1000m, nor for 1.5Gi."""
    return _whole(_read(held)) is not None


def as_integer(held: Held) -> int:
    """Return the quantity as a whole number; an error where it isn't one."""
    number = _whole(_read(held))
    if number is None:
        message = "the quantity is not written as a whole number of 64 bits"
        raise QuantityError(message)
    return number


def _whole(value: Quantity) -> int | None:
    if value.big or value.scale < 0:
        return None
    number = value.at(0)
    return number if -(2**63) <= number < 2**63 else None


def as_approximate_float(held: Held) -> float:
    """Return a float near the quantity, by Go's steps: infinite where it exceeds all floats."""
    value = _read(held)
    try:
        base = float(value.unscaled)
    except OverflowError:
        base = math.inf if value.unscaled > 0 else -math.inf
    return base * _power_of_ten(value.scale)


@cache
def _power_of_ten(scale: int) -> float:
    if scale < 0:
        return float(1 / 10.0**-scale)
    rest = scale % _TENS_AT_ONCE
    return math.inf if scale > _MOST_TENS else float(f"1e{scale - rest}") * float(f"1e{rest}")


# An offset, or none for UTC. Otherwise CEL opens the file of that name (any file where it begins with "/", and reading a pipe
# never ends), and caches each name for ever. So CEL only gets the names of existing zones.
_OFFSET = re.compile(r"|[+-]?[0-9]{1,2}:[0-9]{2}")
_names_of_zones = cache(available_timezones)


def zone(name: str) -> str:
    """Return the name of a zone unchanged, if the zone exists."""
    if _OFFSET.fullmatch(name) is None and name not in _names_of_zones():
        message = "this is no name of a time zone, and no offset like +05:30"
        raise ValueError(message)
    return name


def substring(text: str, start: int, end: int) -> str:
    """Return the characters from start up to end. That may be the text's own end, which is an error in cel-cpp (cel_expr_python 0.1.3)."""
    if not 0 <= start <= end <= len(text):
        message = f"a text of {len(text)} characters has no substring({start}, {end})"
        raise ValueError(message)
    return text[start:end]


# Name, overload id, parameter types, result type, whether it is a member function, implementation.
#
# Types: string, int, bool, double, quantity.
Declaration = tuple[str, str, list[str], str, bool, Callable[..., Any]]

DECLARATIONS: list[Declaration] = [
    ("quantity", "string_to_quantity", ["string"], "quantity", False, quantity),
    ("isQuantity", "is_quantity_string", ["string"], "bool", False, is_quantity),
    ("compareTo", "quantity_compare_to", ["quantity", "quantity"], "int", True, compare),
    ("isGreaterThan", "quantity_is_greater_than", ["quantity", "quantity"], "bool", True, is_greater),
    ("isLessThan", "quantity_is_less_than", ["quantity", "quantity"], "bool", True, is_less),
    ("add", "quantity_add", ["quantity", "quantity"], "quantity", True, add),
    ("add", "quantity_add_int", ["quantity", "int"], "quantity", True, add),
    ("sub", "quantity_sub", ["quantity", "quantity"], "quantity", True, subtract),
    ("sub", "quantity_sub_int", ["quantity", "int"], "quantity", True, subtract),
    ("sign", "quantity_sign", ["quantity"], "int", True, sign),
    # Kubernetes' own form; the one above is what its documentation says.
    ("sign", "sign_of_quantity", ["quantity"], "int", False, sign),
    ("isInteger", "quantity_is_integer", ["quantity"], "bool", True, is_integer),
    ("asInteger", "quantity_as_integer", ["quantity"], "int", True, as_integer),
    ("asApproximateFloat", "quantity_as_float", ["quantity"], "double", True, as_approximate_float),
]
