"""The answer while something that Berth depends on is unavailable: each rule set's own choice, applied to it. Pure."""

from typing import Literal, NamedTuple

import msgspec

from policies.engine.ruleset import Failures

Action = Literal["decide", "pass", "refuse"]

SNAPSHOT_STALE = "Berth's view of the cluster is too old"
API_SERVER_AWAY = "Berth can't reach the API server"
DATABASE_AWAY = "Berth can't reach its database"
REDIS_AWAY = "Berth can't reach Redis"

_ACTIONS: dict[str, Action] = {"lastKnown": "decide", "pass": "pass", "refuse": "refuse"}
_STRICTNESS = ("decide", "pass", "refuse")


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """Which dependencies are available at the moment. The age is infinite where the cluster was never seen."""

    snapshot_age_seconds: float
    database_reachable: bool = True
    redis_reachable: bool = True
    api_server_reachable: bool = True


class Fallback(NamedTuple):
    """What to do, and the constant text of the cause: the reason of a refusal. Empty when everything is available."""

    action: Action
    cause: str


def choose_fallback(failures: Failures, conditions: Conditions) -> Fallback:
    """Apply a rule set's choices. When several things are unavailable the strictest choice wins: refuse, pass, decide.

    Among equal choices the cause is the first of: stale Snapshot, API server, database, Redis. The choice for the API server
    applies from the first moment, and still applies when the Snapshot has become stale.
    """
    found = [
        Fallback(_ACTIONS[choice], cause)
        for is_away, choice, cause in (
            (
                conditions.snapshot_age_seconds > failures.stale_after_seconds,
                failures.stale_snapshot,
                SNAPSHOT_STALE,
            ),
            (not conditions.api_server_reachable, failures.api_server, API_SERVER_AWAY),
            (not conditions.database_reachable, failures.database, DATABASE_AWAY),
            (not conditions.redis_reachable, failures.redis, REDIS_AWAY),
        )
        if is_away
    ]
    return max(found, key=lambda fallback: _STRICTNESS.index(fallback.action), default=Fallback("decide", ""))


def came_back(before: Conditions, now: Conditions) -> frozenset[str]:
    """Return the things that are available again, by the causes of a Fallback. A younger Snapshot counts as one that isn't stale."""
    gone = {
        SNAPSHOT_STALE: now.snapshot_age_seconds < before.snapshot_age_seconds,
        API_SERVER_AWAY: now.api_server_reachable and not before.api_server_reachable,
        DATABASE_AWAY: now.database_reachable and not before.database_reachable,
        REDIS_AWAY: now.redis_reachable and not before.redis_reachable,
    }
    return frozenset(cause for cause, is_gone in gone.items() if is_gone)
