"""What is written down of what anybody can do without end."""

from controlplane.tally import EACH_OF_FIRST, MOST_ADDRESSES, Tally


def written(tally: Tally, addresses: list[str], minute: int = 0) -> list[tuple[str, int]]:
    counted = [(address, *tally.count(address, minute)) for address in addresses]
    return [(address, number) for address, number, is_written in counted if is_written]


def test_each_of_the_first_is_written_down_and_then_each_doubling() -> None:
    numbers = [number for _, number in written(Tally(), ["a"] * 1_000)]
    assert numbers == [*range(1, EACH_OF_FIRST + 1), 16, 32, 64, 128, 256, 512]


def test_another_minute_begins_anew() -> None:
    tally = Tally()
    written(tally, ["a"] * 1_000)
    assert written(tally, ["a"], minute=1) == [("a", 1)]


def test_who_fails_often_hides_nobody_else() -> None:
    tally = Tally()
    written(tally, ["a"] * 100_000)
    assert written(tally, ["b"]) == [("b", 1)]


def test_however_many_addresses_there_are_few_are_written_down_and_remembered() -> None:
    tally = Tally()
    assert len(written(tally, [f"address {number}" for number in range(50_000)])) < 70
    assert len(tally._of) <= MOST_ADDRESSES + 1
