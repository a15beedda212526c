"""Kubernetes quantities as exact integers: "250m", "1.5Gi", "2e3".

Source: k8s.io/apimachinery v0.36.3 pkg/api/resource (quantity.go, amount.go, math.go, scale_int.go, suffix.go). No
float is used anywhere. Go stores a quantity in one of two forms, a 64-bit number with a power of ten or a decimal of
any size. The two overflow and round differently, so this module stores the form as well as the number.
"""

import re
from functools import lru_cache
from typing import Final, NamedTuple, TypeGuard

from policies.engine.errors import QuantityError

# A quantity in JSON. null counts as 0, as it does in Go.
Text = str | int | float | None

_BINARY: Final = {suffix + "i": 10 * power for power, suffix in enumerate("KMGTPE", start=1)}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIX_LETTERS: Final = frozenset("eEinumkKMGTP")
_DIGITS: Final = frozenset("0123456789")
_SPACE: Final = " \t\n\v\f\r\x85\xa0"
_MAX: Final = 2**63 - 1
_NANO: Final = -9
_MILLI: Final = -3
_MAX_DIGITS: Final = 18
_MAX_LENGTH: Final = 256
# Insignificant zeros. Go skips them, and the API server stores the text as it was written. Any other quantity that is longer
# than _MAX_LENGTH it stores as a rounded number.
_IDLE_ZEROS: Final = re.compile(r"(^[+-]?|[eE][+-]?)0+(?=[0-9])")
_MAX_EXPONENT: Final = 400
_POWERS: Final = 19
# Powers of ten by which Go multiplies in one step; to others it multiplies by ten repeatedly, and gives up on overflow.
_ONE_STEP: Final = frozenset({1, 2, 3, 6, 9})


class Quantity(NamedTuple):
    """`unscaled` x 10^`scale`, exactly; `big` is true for Go's decimal of any size, false for its 64-bit number."""

    unscaled: int
    scale: int
    big: bool = False

    def plus(self, other: "Quantity") -> "Quantity":
        """Add; the sum stays a 64-bit number as long as it fits."""
        if not (self.big or other.big):
            if other.unscaled == 0:
                return self
            if self.unscaled == 0:
                return other
        scale = min(self.scale, other.scale)
        mine, others = self.at(scale), other.at(scale)
        fits = _fits(mine) and _fits(others) and _fits(mine + others)
        return Quantity(mine + others, scale, self.big or other.big or not fits)

    def exceeds(self, other: "Quantity") -> bool:
        """Return whether this is more than the other."""
        scale = min(self.scale, other.scale)
        return self.at(scale) > other.at(scale)

    def value(self) -> int:
        """Return whole units, rounded away from zero (Go's `Value()`)."""
        return self._rounded(0)

    def milli_value(self) -> int:
        """Return thousandths, rounded away from zero (Go's `MilliValue()`)."""
        return self._rounded(_MILLI)

    def at(self, scale: int) -> int:
        """Return the number that x 10^`scale` is this; `scale` is at most this one's."""
        return int(self.unscaled * 10 ** (self.scale - scale))

    def _rounded(self, scale: int) -> int:
        return _round_big(self.unscaled, self.scale, scale) if self.big else _round(self.unscaled, self.scale, scale)


ZERO: Final = Quantity(0, 0)


def _fits(number: int) -> bool:
    return -_MAX - 1 <= number <= _MAX


def wrap(number: int) -> int:
    """Bring a number to 64 bits as Go does when it overflows."""
    return (number + _MAX + 1) % 2**64 - _MAX - 1


def _round(unscaled: int, scale: int, wanted: int) -> int:
    """Round Go's 64-bit number. A number that doesn't fit after scaling up wraps or becomes 0, by the same steps as in Go."""
    if scale >= wanted:
        scaled = int(unscaled * 10 ** (scale - wanted))
        if _fits(scaled):
            return scaled
        return wrap(scaled) if scale - wanted in _ONE_STEP else 0
    magnitude = -int(-abs(unscaled) // 10 ** (wanted - scale))
    return magnitude if unscaled >= 0 else -magnitude


def _round_big(unscaled: int, scale: int, wanted: int) -> int:
    """Round Go's decimal up (not away from zero); a number that doesn't fit wraps."""
    if scale == wanted:
        return wrap(unscaled)
    if scale > wanted:
        power = int(10 ** (scale - wanted))
        return wrap(wrap(unscaled) * (power if _fits(power) else -_MAX - 1))
    divisor = int(10 ** (wanted - scale))
    if unscaled < _MAX and wanted - scale < _POWERS:
        number = wrap(unscaled)
        quotient = abs(number) // divisor
        return (quotient if number >= 0 else -quotient) + (number % divisor != 0)
    return wrap(unscaled // divisor + int(unscaled % divisor != 0))


@lru_cache(maxsize=16384)
def _parse(text: str) -> Quantity:
    if not text or len(text) > _MAX_LENGTH:
        raise _fault(text)
    if text == "0":
        return ZERO
    number, decimals, suffix = _split(text)
    # A sign or a suffix alone means 0, as in Go, but only where Go doesn't use its decimal of any size.
    if suffix in _BINARY:
        amount = _binary(number, decimals, _BINARY[suffix])
    else:
        amount = _decimal(number, decimals, _exponent(text, suffix))
    if amount.big and not number and not decimals:
        raise _fault(text)
    return amount._replace(unscaled=-amount.unscaled) if text[0] == "-" else amount


def _fault(text: str) -> QuantityError:
    return QuantityError(f"{text[:64]!r} is not a quantity; write it like 250m, 2, 1.5Gi or 2e3")


def _split(text: str) -> tuple[str, str, str]:
    """Split a quantity into the digits before the point, the digits after it, and the suffix."""
    rest = text[1:] if text[0] in "+-" else text
    number = _leading_digits(rest)
    rest = rest[len(number) :]
    decimals = ""
    if rest.startswith("."):
        decimals = _leading_digits(rest[1:])
        rest = rest[1 + len(decimals) :]
    _check_suffix(text, rest)
    return number, decimals, rest


def _leading_digits(text: str) -> str:
    end = next((index for index, letter in enumerate(text) if letter not in _DIGITS), len(text))
    return text[:end]


def _check_suffix(text: str, suffix: str) -> None:
    rest = suffix.lstrip("".join(_SUFFIX_LETTERS))
    if rest and rest[0] in "+-":
        rest = rest[1:]
    if _leading_digits(rest) != rest:
        raise _fault(text)


def _exponent(text: str, suffix: str) -> int:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    digits = suffix[2:] if suffix[1:2] in {"+", "-"} else suffix[1:]
    if suffix[0] not in "eE" or not digits or _leading_digits(digits) != digits or not _fits(int(suffix[1:])):
        raise _fault(text)
    exponent = (int(suffix[1:]) + 2**31) % 2**32 - 2**31
    return max(-_MAX_EXPONENT, min(_MAX_EXPONENT, exponent))


def _decimal(number: str, decimals: str, exponent: int) -> Quantity:
    digits = _significant(number) + decimals
    scale = exponent - len(decimals)
    if len(digits) <= _MAX_DIGITS and scale >= _NANO:
        return Quantity(int(digits), scale)
    return _in_nanos(int(digits), scale)


def _binary(number: str, decimals: str, power: int) -> Quantity:
    whole = _significant(number)
    unscaled = int(whole + decimals) << power
    # Go's estimate of whether the product fits 64 bits: 15 digits less about three for every ten bits.
    if not decimals and len(whole) + power * 3 // 10 + 1 <= 15 and _fits(unscaled):  # noqa: PLR2004 - from Go
        return Quantity(unscaled, 0)
    amount = _in_nanos(unscaled, -len(decimals))
    limit = Quantity(_MAX, 0, big=True)
    return limit if amount.exceeds(limit) else amount


def _significant(number: str) -> str:
    return number.lstrip("0") or "0"


def _in_nanos(unscaled: int, scale: int) -> Quantity:
    """Return Go's decimal, rounded away from zero to whole nanos."""
    if scale >= _NANO:
        return Quantity(int(unscaled * 10 ** (scale - _NANO)), _NANO, big=True)
    return Quantity(int(-(-unscaled // 10 ** (_NANO - scale))), _NANO, big=True)


def parse_bare(text: str) -> Quantity:
    """Read a quantity without white space around it (Go's `ParseQuantity`); only the JSON decoder skips white space.

    Raises:
        QuantityError: the text isn't a quantity.
    """
    return _parse(_IDLE_ZEROS.sub(r"\1", text) if len(text) > _MAX_LENGTH else text)


def parse(text: Text) -> Quantity:
    """Read a quantity.

    Raises:
        QuantityError: the text isn't a quantity.
    """
    if isinstance(text, str):
        return parse_bare(text.strip(_SPACE))
    if text is None:
        return ZERO
    return _parse(repr(text))


@lru_cache(maxsize=16384)
def _value(text: str) -> int:
    return parse(text).value()


@lru_cache(maxsize=16384)
def _milli(text: str) -> int:
    return parse(text).milli_value()


def _may_be_kept(text: Text) -> TypeGuard[str]:
    """Return whether a text is short enough to be remembered."""
    return isinstance(text, str) and len(text) <= _MAX_LENGTH


def to_value(text: Text) -> int:
    """Return a quantity in whole units, rounded away from zero (Go's `Value()`).

    Raises:
        QuantityError: the text isn't a quantity.
    """
    return _value(text) if _may_be_kept(text) else parse(text).value()


def to_milli(text: Text) -> int:
    """Return a quantity in thousandths, rounded away from zero (Go's `MilliValue()`).

    Raises:
        QuantityError: the text isn't a quantity.
    """
    return _milli(text) if _may_be_kept(text) else parse(text).milli_value()
