"""Numbers in words."""

import pytest

from policies.wording import percentage


@pytest.mark.parametrize(
    ("share", "decimals", "said"),
    [
        (1 / 3000, 1, "below 0.1 %"),
        (2999 / 3000, 1, "above 99.9 %"),
        (0.001, 1, "0.1 %"),
        (0.999, 1, "99.9 %"),
        (0.004, 0, "below 1 %"),
        (0.996, 0, "above 99 %"),
    ],
)
def test_a_percentage_says_neither_nothing_nor_all_of_what_is_neither(share: float, decimals: int, said: str) -> None:
    assert percentage(share, decimals=decimals) == said


@pytest.mark.parametrize(
    ("share", "decimals", "said"),
    [(0.375, 1, "37.5 %"), (1.0, 1, "100.0 %"), (0.0, 1, "0.0 %"), (0.83, 0, "83 %")],
)
def test_a_percentage_has_a_space_before_its_sign_everywhere(share: float, decimals: int, said: str) -> None:
    assert percentage(share, decimals=decimals) == said
