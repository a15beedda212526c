"""What the first page says of the last hour is counted from rows: rates, times, shares, and the columns of its drawing."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from scheduler.admin.traffic import spark_path
from scheduler.decisions.traffic import BINS, SPAN, Answered, traffic

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def answered(seconds_ago: float, microseconds: int = 1_000, feasible: int = 3, **fields: str) -> Answered:
    at = NOW - timedelta(seconds=seconds_ago)
    return Answered(at, fields.get("verb", "filter"), 3, feasible, fields.get("error", ""), microseconds)


def test_each_verb_is_measured_by_itself_the_busiest_first() -> None:
    rows = [answered(1, verb="prioritize"), *(answered(number) for number in range(2, 4))]
    found = traffic(rows, now=NOW)
    assert [(each.verb, each.decisions) for each in found.verbs] == [("filter", 2), ("prioritize", 1)]
    assert found.since == NOW - SPAN
    assert found.verbs[0].a_second == 2 / 3600


def test_what_could_not_be_decided_is_an_error_and_no_refusal() -> None:
    (found,) = traffic([answered(1, feasible=0), answered(2, feasible=0, error="late"), answered(3)], now=NOW).verbs
    assert (found.refused, found.errors, found.decisions) == (1, 1, 3)


def test_percentiles_are_times_that_were_measured() -> None:
    (found,) = traffic([answered(1, microseconds) for microseconds in range(1_000, 101_000, 1_000)], now=NOW).verbs
    assert (found.p50, found.p99) == (50, 99)


def test_of_more_than_is_looked_at_the_time_begins_with_the_oldest() -> None:
    found = traffic([answered(number) for number in range(1, 11)], now=NOW, most=10)
    assert found.is_part
    assert found.since == NOW - timedelta(seconds=10)
    assert found.verbs[0].a_second == 1


def test_columns_go_from_the_oldest_to_the_newest() -> None:
    (found,) = traffic([answered(1), answered(1), answered(3599)], now=NOW).verbs
    assert (found.bins[0], found.bins[-1], sum(found.bins)) == (1, 2, 3)


@given(st.lists(st.tuples(st.floats(-5, 4000), st.integers(0, 2**31 - 1)), max_size=80), st.integers(1, 60))
def test_each_row_stands_in_one_column_whatever_its_time(times: list[tuple[float, int]], most: int) -> None:
    rows = [answered(seconds, microseconds) for seconds, microseconds in sorted(times)]
    found = traffic(rows, now=NOW, most=most)
    assert found.decisions == len(rows)
    for verb in found.verbs:
        assert len(verb.bins) == BINS
        assert sum(verb.bins) == verb.decisions
        assert verb.p50 <= verb.p99


def test_nothing_asked_draws_nothing() -> None:
    assert traffic([], now=NOW).verbs == []
    assert spark_path([]) == spark_path([0, 0]) == ""


def test_the_highest_column_fills_the_drawing_and_the_lowest_can_be_seen() -> None:
    assert spark_path([1000, 0, 1]) == "M0 20v-20.0h.8v20.0zM2 20v-1.0h.8v1.0z"
