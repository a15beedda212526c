"""resourceVersions as numbers."""

import pytest

from scheduler.cluster.versions import later, number_of


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("0", 0),
        ("41", 41),
        ("18446744073709551615", 2**64 - 1),
        ("", -1),
        ("-1", -1),
        ("x", -1),
        ("٤١", -1),
        ("9" * 5000, -1),
    ],
    ids=["first", "any", "largest", "none", "negative", "letters", "other digits", "far too long"],
)
def test_a_version_is_a_number_of_64_bits(version: str, number: int) -> None:
    assert number_of(version) == number


@pytest.mark.parametrize(("one", "other"), [("9", "10"), ("", "10"), ("x", "10")])
def test_the_later_of_two_is_the_larger_number(one: str, other: str) -> None:
    assert later(one, other) == later(other, one) == other
