"""What to answer while something is away: every choice for everything that may be away, cell by cell."""

import math
from itertools import product

import pytest

from policies.engine.failures import (
    API_SERVER_AWAY,
    DATABASE_AWAY,
    REDIS_AWAY,
    SNAPSHOT_STALE,
    Conditions,
    came_back,
    choose_fallback,
)
from policies.engine.ruleset import Failures

AWAY = {
    "stale_snapshot": ({"snapshot_age_seconds": 301.0}, SNAPSHOT_STALE),
    "api_server": ({"api_server_reachable": False}, API_SERVER_AWAY),
    "database": ({"database_reachable": False}, DATABASE_AWAY),
    "redis": ({"redis_reachable": False}, REDIS_AWAY),
}
ACTIONS = {"lastKnown": "decide", "pass": "pass", "refuse": "refuse"}


def conditions(*away: str) -> Conditions:
    known = {"snapshot_age_seconds": 1.0}
    for name in away:
        known |= AWAY[name][0]
    return Conditions(**known)


@pytest.mark.parametrize("choice", ACTIONS)
@pytest.mark.parametrize("away", AWAY)
def test_what_is_away_is_answered_as_was_chosen_for_it(away: str, choice: str) -> None:
    chosen = Failures(**{away: choice})
    assert choose_fallback(chosen, conditions(away)) == (ACTIONS[choice], AWAY[away][1])


@pytest.mark.parametrize("choice", ACTIONS)
@pytest.mark.parametrize("chosen", AWAY)
def test_a_choice_says_nothing_while_all_is_there(chosen: str, choice: str) -> None:
    assert choose_fallback(Failures(**{chosen: choice}), conditions()) == ("decide", "")


@pytest.mark.parametrize(("first", "second"), list(product(AWAY, AWAY)))
def test_the_strictest_choice_wins_whichever_it_is_for(first: str, second: str) -> None:
    if first != second:
        both = conditions(first, second)
        assert choose_fallback(Failures(**{first: "refuse", second: "pass"}), both) == ("refuse", AWAY[first][1])
        assert choose_fallback(Failures(**{first: "pass", second: "lastKnown"}), both) == ("pass", AWAY[first][1])
        assert choose_fallback(Failures(**{first: "refuse", second: "lastKnown"}), both).action == "refuse"


def test_of_equally_strict_choices_the_first_in_line_is_the_cause() -> None:
    assert choose_fallback(Failures(), conditions(*AWAY)) == ("decide", SNAPSHOT_STALE)
    refusing = Failures(api_server="refuse", redis="refuse", database="refuse")
    assert choose_fallback(refusing, conditions("redis", "database", "api_server")).cause == API_SERVER_AWAY
    assert choose_fallback(refusing, conditions("redis", "database")).cause == DATABASE_AWAY


@pytest.mark.parametrize(
    ("age", "after", "action"),
    [(300.0, 300, "decide"), (300.1, 300, "refuse"), (100.5, 100, "refuse"), (math.inf, 604_800, "refuse")],
)
def test_a_snapshot_is_stale_only_when_it_is_older_than_was_chosen(age: float, after: int, action: str) -> None:
    chosen = Failures(stale_snapshot="refuse", stale_after_seconds=after)
    assert choose_fallback(chosen, Conditions(snapshot_age_seconds=age)).action == action


def test_the_choice_for_the_api_server_counts_on_when_the_snapshot_has_become_stale() -> None:
    chosen = Failures(api_server="refuse", stale_snapshot="lastKnown")
    assert choose_fallback(chosen, conditions("api_server", "stale_snapshot")) == ("refuse", API_SERVER_AWAY)


@pytest.mark.parametrize("away", AWAY)
def test_what_was_away_and_is_there_again_is_named_as_a_refusal_names_it(away: str) -> None:
    assert came_back(conditions(away), conditions()) == {AWAY[away][1]}
    assert came_back(conditions(), conditions(away)) == set()
    assert came_back(conditions(*AWAY), conditions(*(AWAY.keys() - {away}))) == {AWAY[away][1]}
    assert came_back(conditions(away), conditions(away)) == set()
