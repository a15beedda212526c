"""How many Pods rule sets and Assignments were asked about lately, and for how many no node was left: of the newest Decisions alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db import connections

from scheduler.decisions.reading import recorded
from scheduler.models import Decision

# Decisions that are looked at of one rule set: a list shows how busy it is, it is no account.
_MOST = 500
# Decisions that shares are taken of: no index has an Assignment's own, and some 40 ms read so many.
MOST_SHARED = 20_000

_TABLE = Decision._meta.db_table  # noqa: SLF001 - Django's own name for what is public
_ONE = f"""
SELECT * FROM (
    SELECT %s AS rule_set, count(DISTINCT pod_uid), count(DISTINCT CASE WHEN feasible = 0 AND error = '' THEN pod_uid END), count(*)
    FROM (
        SELECT pod_uid, feasible, error FROM {_TABLE}
        WHERE rule_set = %s AND at >= %s AND mode = 'enforce' ORDER BY at DESC LIMIT {_MOST}
    ) AS newest
) AS counted
"""  # noqa: S608 - the table's name is the model's


class Asked(NamedTuple):
    """Pods that a rule set was asked about, and those of them that it left no node; `is_part` says that there were more."""

    pods: int
    refused: int
    is_part: bool


def asked_since(names: Sequence[str], since: datetime) -> dict[str, Asked]:
    """Return by rule set how many Pods it was asked about since a moment, in one query."""
    if not names:
        return {}
    connection = connections[settings.HISTORY_DATABASE]
    moment = connection.ops.adapt_datetimefield_value(since)
    parameters = [value for name in names for value in (name, name, moment)]
    with connection.cursor() as cursor:
        cursor.execute(" UNION ALL ".join([_ONE] * len(names)), parameters)
        rows = cursor.fetchall()
    return {name: Asked(pods, refused, number >= _MOST) for name, pods, refused, number in rows}


class Shares(NamedTuple):
    """How many of the Pods that were asked about each Assignment took, by its name; "" is none.

    `all` counts each Pod once; `is_part` says that there were more Decisions than are looked at.
    """

    pods: Mapping[str, int]
    all: int
    is_part: bool

    def of(self, name: str) -> float:
        """Return how many of a hundred Pods an Assignment took; 0 where none was asked about."""
        return 100 * self.pods.get(name, 0) / self.all if self.all else 0.0


def shares_since(since: datetime) -> Shares:
    """Return which share of the Pods asked about since a moment each Assignment took: answers, not what shadows would have said."""
    rows = recorded().filter(at__gte=since).exclude(mode="shadow").order_by("-at", "-sequence")
    found = list(rows.values_list("assignment", "pod_uid")[:MOST_SHARED])
    taken = set(found)
    pods = Counter(name for name, _ in taken)
    return Shares(pods, len({pod for _, pod in taken}), is_part=len(found) >= MOST_SHARED)
