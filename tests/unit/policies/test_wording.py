"""Numbers in words."""

import pytest

from policies.wording import percentage


@pytest.mark.parametrize(
    ("share", "decimals", "said"),
    [(0.375, 1, "37.5 %"), (1.0, 1, "100.0 %"), (0.0, 1, "0.0 %"), (0.83, 0, "83 %")],
)
def test_a_percentage_has_a_space_before_its_sign_everywhere(share: float, decimals: int, said: str) -> None:
    assert percentage(share, decimals=decimals) == said
