"""Whole numbers are divided and rounded as Go does it, by whichever way is fast."""

from fractions import Fraction
from math import floor

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from policies.engine.ruleset import ScoreRule
from policies.engine.scores.arithmetic import divide, round_half_away
from policies.engine.scores.expression import MAX_SCORE, ExpressionScore

numbers = st.integers(-(2**62), 2**62)
small = st.integers(-(2**53), 2**53)


def divided(dividend: int, divisor: int) -> int:
    """Divide as Go does."""
    quotient = abs(dividend) // abs(divisor or 1)
    return -quotient if (dividend < 0) != (divisor < 0) else quotient


@given(st.one_of(small, numbers), st.one_of(st.integers(-100, 100), small, numbers))
@example(2**53 - 1, 2**53)
@example(2**53 - 1, 3)
@example(2**53, 3)
@example(-7, 2)
@example(5, 0)
def test_division_cuts_towards_zero(dividend: int, divisor: int) -> None:
    found = divide(np.array([dividend, 0, dividend]), np.array([divisor, divisor, divisor]))
    assert found.tolist() == [divided(dividend, divisor), 0, divided(dividend, divisor)]


@given(st.integers(0, 2**53 - 1), st.integers(1, 2**53 - 1))
def test_division_just_below_a_whole_number_is_not_rounded_up(quotient: int, divisor: int) -> None:
    quotient %= (2**53 - 1) // divisor + 1
    dividend = min(quotient * divisor + divisor - 1, 2**53 - 1)
    assert divide(np.array([dividend]), np.array([divisor])).tolist() == [dividend // divisor]


@given(st.lists(st.floats(-(2**40), 2**40), min_size=1))
@example([0.49999999999999994, 0.5, 1.5, 2.5])
@example([-0.5, 0.5, -1.5])
def test_halves_are_rounded_away_from_zero(floats: list[float]) -> None:
    expected = []
    for number in floats:
        whole = floor(abs(number))
        rounded = whole + (abs(number) - whole >= 0.5)
        expected.append(-rounded if number < 0 else rounded)
    assert round_half_away(np.array(floats)).tolist() == expected


LIKELY = (
    st.floats(-100, 100) | st.integers(-200, 200).map(lambda number: number / 2) | st.sampled_from([0.5, 99.5, 1e308])
)


@given(
    st.lists(LIKELY | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=6),
    st.none() | st.tuples(LIKELY, LIKELY) | st.tuples(st.integers(-(2**60), 2**60), st.integers(-(2**60), 2**60)),
)
@example([-1.7e308, 1.7e308, 0.0], None)
@example([0.5, 1.5, 99.5], (0, 100))
@example([2.0**60, 2.0**60 + 512], (2**60 + 1, 2**60 + 513))
@example([5e-324, 1e-323, 0.0], None)
def test_doubles_are_mapped_to_scores_as_fractions_are(values: list[float], bounds: tuple[float, float] | None) -> None:
    ordered = None if bounds is None else (min(bounds), max(bounds))
    score = ExpressionScore(ScoreRule(name="s", expression="1.0", bounds=ordered))
    low, high = map(Fraction, ordered or (min(values), max(values)))
    wanted = [
        MAX_SCORE
        if low == high
        else floor(MAX_SCORE * (min(max(Fraction(value), low), high) - low) / (high - low) + Fraction(1, 2))
        for value in values
    ]
    assert score._mapped(list(values)).tolist() == wanted
