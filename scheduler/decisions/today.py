"""Counts, from the newest Decisions alone, the Pods that rule sets and Assignments were asked about, and those left without a node."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from django.conf import settings
from django.db import connections

from scheduler.decisions.reading import recorded
from scheduler.models import Decision

# The most Decisions of one rule set that are read: a list shows how busy it is, and needs no exact total.
_MOST = 500
# The most Decisions for shares: no index has an Assignment's own, and reading this many takes some 40 ms.
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
    """The Pods that a rule set was asked about, and those left without a node; `is_part` means that there were more."""

    pods: int
    refused: int
    is_part: bool


def asked_since(names: Sequence[str], since: datetime) -> dict[str, Asked]:
    """Return by rule set the number of Pods that it was asked about since a time, in one query."""
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
    """The number of Pods that each Assignment took, by its name; "" is none.

    `all` counts each Pod once; `is_part` means that there were more Decisions than were read.
    """

    pods: Mapping[str, int]
    all: int
    is_part: bool

    def of(self, name: str) -> float:
        """Return the percentage of Pods that an Assignment took; 0 if there were no Pods."""
        return 100 * self.pods.get(name, 0) / self.all if self.all else 0.0


def shares_since(since: datetime) -> Shares:
    """Return the share of Pods that each Assignment took since a time: by answers, without shadows."""
    rows = recorded().filter(at__gte=since).exclude(mode="shadow").order_by("-at", "-sequence")
    found = list(rows.values_list("assignment", "pod_uid")[:MOST_SHARED])
    taken = set(found)
    pods = Counter(name for name, _ in taken)
    return Shares(pods, len({pod for _, pod in taken}), is_part=len(found) >= MOST_SHARED)
