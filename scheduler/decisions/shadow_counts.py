"""Counts of shadows by divergence, in the database."""

from collections import Counter
from collections.abc import Mapping

from django.db import connection, transaction

from scheduler.decisions.divergence import Subject

# By the shadow's subject and its divergence.
Counts = Mapping[tuple[Subject, str], int]

# The states of a shadow that has no Decision.
DROPPED, FAILED = "dropped", "failed"

_ADD = """
INSERT INTO scheduler_shadowcount (revision, assignment, rule_set, rule_set_version, verb, divergence, number)
VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (assignment, revision, rule_set, rule_set_version, verb, divergence)
DO UPDATE SET number = scheduler_shadowcount.number + excluded.number
"""


def add(counts: Counts) -> None:
    """Add to the counts; negative numbers subtract.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    rows = [
        (
            subject.revision,
            subject.assignment,
            subject.rule_set,
            subject.rule_set_version,
            subject.verb,
            str(how),
            number,
        )
        # In a fixed order, so that two concurrent transactions don't deadlock.
        for (subject, how), number in sorted(counts.items())
        if number
    ]
    if rows:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.executemany(_ADD, rows)


def moved(subject: Subject, before: str, after: str) -> Counter[tuple[Subject, str]]:
    """Return the changes to the counts when one shadow's divergence changes."""
    return Counter({(subject, before): -1, (subject, after): 1})
