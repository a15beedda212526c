"""What quantity() and the functions over it take and make is bounded, whatever an expression writes."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from policies.engine.cel import functions
from policies.engine.errors import QuantityError
from tests.fuzz.bounds import no_hang, peak_bytes

# A held quantity of as many digits as any may have takes less than a kilobyte; comparing two multiplies them out.
PEAK_BYTES = 100_000

FORGED = [
    "1e60000000",
    "1e-60000000",
    "-1e60000000",
    "1e1000",
    "9" * 1000 + "e0",
    "9" * 5_000 + "e1",
    "1_0e1",
    " 1e1",
    "1e1 ",
    "1e+1",
    "e1",
    "1e",
    "1",
    "",
    "٣e1",
]


def call(function: object, *arguments: object) -> object:
    """Call it as CEL does; what it refuses it refuses by QuantityError, and floats by Python's own errors."""
    try:
        return function(*arguments)  # type: ignore[operator]
    except (QuantityError, OverflowError) as error:
        return error


def forged(amount: str, form: tuple[float, ...] = (0.0,) * functions.FORM_LENGTH) -> dict[str, list[float]]:
    return {amount: list(form)}


@pytest.mark.parametrize("text", FORGED)
@pytest.mark.parametrize("function", [functions.compare, functions.add, functions.subtract])
def test_a_quantity_that_none_of_our_functions_wrote_is_refused(function: object, text: str) -> None:
    with no_hang():
        found = call(function, forged(text), functions.quantity("1"))
    assert isinstance(found, QuantityError)


@pytest.mark.parametrize("form", [(), (-0.0,) * functions.FORM_LENGTH, (1.0,) * functions.FORM_LENGTH])
def test_a_quantity_in_no_form_of_ours_is_refused(form: tuple[float, ...]) -> None:
    assert isinstance(call(functions.sign, forged("1e0", form)), QuantityError)


def test_sums_have_an_end() -> None:
    held = functions.quantity("9e399")

    def double(times: int) -> None:
        doubled = held
        for _ in range(times):
            doubled = functions.add(doubled, doubled)

    double(1_000)
    with pytest.raises(QuantityError, match="at most 999 digits"):
        double(10_000)


LEGAL = st.from_regex(r"[+-]?[0-9]{1,120}(\.[0-9]{0,100})?(m|k|Ki|Ei|[eE][+-]?[0-9]{1,20})?", fullmatch=True)


@given(LEGAL, LEGAL)
@example("9" * 256, "1e400")
@example("1e9223372036854775807", "1e-9223372036854775807")
def test_every_quantity_that_is_read_can_be_compared_and_added(left: str, right: str) -> None:
    if not (functions.is_quantity(left) and functions.is_quantity(right)):
        return
    mine, other = functions.quantity(left), functions.quantity(right)

    def use() -> None:
        assert functions.compare(mine, other) == -functions.compare(other, mine)
        total = functions.add(mine, other)
        assert functions.compare(functions.subtract(total, other), mine) == 0
        assert functions.sign(total) in {-1, 0, 1}
        functions.is_integer(total)

    with no_hang():
        assert peak_bytes(use) < PEAK_BYTES


@given(st.text(max_size=2_000) | st.sampled_from(["9" * 300_000, "0" * 300_000 + "1", "1e" + "9" * 300_000]))
def test_any_text_is_read_or_refused_in_bounds(text: str) -> None:
    with no_hang():
        assert peak_bytes(lambda: call(functions.quantity, text)) < PEAK_BYTES + 4 * len(text)


@given(st.text(max_size=50), st.text(max_size=50))
def test_any_map_is_compared_or_refused(left: str, right: str) -> None:
    found = call(functions.compare, forged(left), forged(right))
    assert found in {-1, 0, 1} or isinstance(found, QuantityError)
