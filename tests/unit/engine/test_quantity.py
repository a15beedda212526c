"""Quantities, as Go reads and rounds them. (tests/differential compares them with Go itself.)"""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.errors import QuantityError
from policies.engine.quantity import Quantity, parse, to_milli, to_value

DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
LARGEST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("250m", 1, 250),
        ("0.1m", 1, 1),
        ("-250m", -1, -250),
        ("1.5Gi", 1610612736, 1610612736000),
        ("2e3", 2000, 2000000),
        ("2E-3", 1, 2),
        ("2E", 2 * 10**18, 0),
        ("12e6", 12000000, 12000000000),
        ("100u", 1, 1),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("+1Ki", 1024, 1024000),
        (" 1Ki ", 1024, 1024000),
        ("0" * 5000 + "1Ki", 1024, 1024000),
        ("-1e+" + "0" * 5000 + "3", -1000, -1000000),
    ],
)
def test_a_quantity_gives_whole_units_and_thousandths_rounded_up(text: str, value: int, milli: int) -> None:
    assert (to_value(text), to_milli(text)) == (value, milli)


@pytest.mark.parametrize(
    "text", ["", "1.5.5", "1e", "1e+", "1 Gi", "1KI", "kk", "0x10", "1_000", "٣", "1e5x", "NaN", "1" * 257]
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse(text)


@pytest.mark.parametrize("text", ["+", "-", ".", "m", "Ki", "e5"])
def test_a_sign_or_a_suffix_alone_is_zero_as_in_go(text: str) -> None:
    assert to_value(text) == 0


@pytest.mark.parametrize("text", ["Ei", "e-10"])
def test_a_suffix_alone_that_go_can_not_keep_in_64_bits_is_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        parse(text)


@pytest.mark.parametrize(
    ("json", "value"), [(3, 3), (1.5, 2), (None, 0), (True, None)], ids=["whole", "fraction", "null", "not a number"]
)
def test_json_numbers_are_read_as_they_are_written(json: object, value: int | None) -> None:
    if value is None:
        with pytest.raises(QuantityError):
            to_value(json)  # type: ignore[arg-type]
    else:
        assert to_value(json) == value  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "value", "milli"),
    [
        ("9Ei", LARGEST, -1000),
        ("-9Ei", -LARGEST, 1000),
        ("9223372036854775807", LARGEST, -1000),
        ("100E", 0, 0),
        ("1e19", 0, 0),
        ("-1.55Ki", -1586, -1587200),
        ("0.5n", 1, 1),
        ("-0.5n", 1, 1),
        ("1e4294967296", 1, 1000),
    ],
)
def test_what_exceeds_64_bits_is_capped_or_overflows_as_in_go(text: str, value: int, milli: int) -> None:
    assert (to_value(text), to_milli(text)) == (value, milli)


def away_from_zero(number: Fraction) -> int:
    up = -(-abs(number).numerator // abs(number).denominator)
    return up if number >= 0 else -up


@given(st.integers(0, 10**12), st.integers(0, 3), st.sampled_from(list(DECIMAL)))
def test_decimal_quantities_are_exact(digits: int, places: int, suffix: str) -> None:
    text = f"{digits / 10**places:.{places}f}{suffix}" if digits < 10**9 else f"{digits}{suffix}"
    exact = Fraction(text.removesuffix(suffix) or "0") * Fraction(10) ** DECIMAL[suffix]
    if exact <= LARGEST // 1000:
        assert to_value(text) == away_from_zero(exact)
        assert to_milli(text) == away_from_zero(exact * 1000)


@given(st.integers(-(10**6), 10**6), st.integers(0, 9), st.sampled_from(list(BINARY)))
def test_binary_quantities_are_exact(whole: int, tenth: int, suffix: str) -> None:
    exact = (Fraction(abs(whole)) + Fraction(tenth, 10)) * 2 ** BINARY[suffix]
    text = f"{abs(whole)}.{tenth}{suffix}"
    if exact <= LARGEST // 1000:
        assert to_value(text) == away_from_zero(exact)


@given(st.text(max_size=12))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        parse(text)
    except QuantityError:
        return
    assert isinstance(to_value(text), int)


amounts = st.builds(
    lambda digits, suffix: parse(f"{digits}{suffix}"), st.integers(0, 10**6), st.sampled_from(["m", "", "k", "Mi"])
)


@given(amounts, amounts, amounts)
def test_sums_are_exact_in_any_order(a: Quantity, b: Quantity, c: Quantity) -> None:
    left, right = a.plus(b).plus(c), c.plus(a.plus(b))
    assert not left.exceeds(right)
    assert not right.exceeds(left)
    assert left.value() == right.value()


def test_thousandths_are_added_before_they_are_rounded() -> None:
    assert parse("0.4").plus(parse("0.4")).value() == 1


def test_a_sum_beyond_64_bits_is_kept_exactly_and_wraps_when_it_is_read() -> None:
    most = parse(str(10**18 - 1)).plus(parse("9E"))
    assert most.big
    assert most.value() == 10**19 - 1 - 2**64
