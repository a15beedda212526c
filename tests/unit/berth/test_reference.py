"""The page of the command says what it takes."""

from tests.unit.berth.reference import PAGE, page


def test_the_reference_is_made_from_the_arguments() -> None:
    text = PAGE.read_text()

    assert page(text) == text, "write it anew: python -m tests.unit.berth.reference"
    assert "### simulate" in text


def test_each_argument_says_what_it_is() -> None:
    assert [line for line in page(PAGE.read_text()).splitlines() if line.endswith("|  |")] == []
