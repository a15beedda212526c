"""Functions that expressions may call besides CEL's own: Kubernetes' quantity library.

Source: k8s.io/apiserver v0.36.3 pkg/cel/library/quantity.go. A quantity stands in CEL as a map with one text, because
the library has no way to carry a value of our own: it can be compared with == and given to these functions, and CEL's
type check refuses `<` and arithmetic on it, as Kubernetes does.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from policies.engine.errors import QuantityError
from policies.engine.quantity import Quantity, parse

# A quantity as CEL holds it.
Held = Mapping[str, str]

_MEMBER = "quantity"
# Digits of an amount. What quantity() reads has at most 665 between its first and a nano (256 characters, exponents cut to 400,
# see `quantity`), so no sum of what Kubernetes accepts comes near.
MAX_DIGITS = 999
# Anybody can write such a map into an expression: with the exponent of '1e60000000' a comparison took a minute. `_hold` writes no other.
_HELD = re.compile(rf"(-?[0-9]{{1,{MAX_DIGITS}}})e(-?[0-9]{{1,3}})")
_BEYOND = 10**MAX_DIGITS


def _hold(quantity: Quantity) -> dict[str, str]:
    """Write a quantity so that equal amounts are equal texts."""
    unscaled, scale = quantity.unscaled, quantity.scale
    if abs(unscaled) >= _BEYOND:
        message = f"a quantity has at most {MAX_DIGITS} digits"
        raise QuantityError(message)
    while unscaled and unscaled % 10 == 0:
        unscaled //= 10
        scale += 1
    return {_MEMBER: f"{unscaled}e{scale if unscaled else 0}"}


def _read(held: Held) -> Quantity:
    found = _HELD.fullmatch(held.get(_MEMBER, ""))
    if found is None:
        message = "a quantity is needed: quantity('1Gi')"
        raise QuantityError(message)
    return Quantity(int(found[1]), int(found[2]))


def quantity(text: str) -> dict[str, str]:
    """Read a quantity."""
    return _hold(parse(text))


def is_quantity(text: str) -> bool:
    """Return whether a text is a quantity."""
    try:
        parse(text)
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


def add(left: Held, right: Held | int) -> dict[str, str]:
    """Add a quantity or a whole number."""
    return _hold(_read(left).plus(_other(right)))


def subtract(left: Held, right: Held | int) -> dict[str, str]:
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
    """Return whether the quantity is a whole number of 64 bits."""
    held_quantity = _read(held)
    return _whole(held_quantity) is not None


def as_integer(held: Held) -> int:
    """Return a whole number; an error where it isn't one."""
    number = _whole(_read(held))
    if number is None:
        message = "the quantity is not a whole number of 64 bits"
        raise QuantityError(message)
    return number


def _whole(value: Quantity) -> int | None:
    number, rest = (
        (value.unscaled * 10**value.scale, 0) if value.scale >= 0 else divmod(value.unscaled, 10**-value.scale)
    )
    return int(number) if rest == 0 and -(2**63) <= number < 2**63 else None


def as_approximate_float(held: Held) -> float:
    """Return the nearest float."""
    value = _read(held)
    return float(value.unscaled) * 10.0**value.scale


# An offset, or none for UTC. Else CEL opens the file of that name (of one that begins with "/" any file, and reading a pipe
# doesn't end), and keeps each name for good: so it is asked for those that there are, and nothing else.
_OFFSET = re.compile(r"|[+-]?[0-9]{1,2}:[0-9]{2}")
_names_of_zones = cache(available_timezones)


def zone(name: str) -> str:
    """Return the name of a zone as it is, where there is one."""
    if _OFFSET.fullmatch(name) is None and name not in _names_of_zones():
        message = "this is no name of a time zone, and no offset like +05:30"
        raise ValueError(message)
    return name


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
    ("isInteger", "quantity_is_integer", ["quantity"], "bool", True, is_integer),
    ("asInteger", "quantity_as_integer", ["quantity"], "int", True, as_integer),
    ("asApproximateFloat", "quantity_as_float", ["quantity"], "double", True, as_approximate_float),
]
