"""Filters of Decisions, alone and in pairs, against a reading of the rows that knows nothing of indexes, steps or SQL."""

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import combinations
from random import Random
from typing import Any

import pytest
from django.db import connection

from policies import publishing
from scheduler.decisions import search
from scheduler.decisions.search import BY_NAME, parse_search
from scheduler.models import Decision
from tests.builders import make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import opened

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 3, 5, 12, tzinfo=UTC)
SEED = int(os.environ.get("SEARCH_SEED", "0"))
ROWS, PAIRS = int(os.environ.get("SEARCH_ROWS", "70")), int(os.environ.get("SEARCH_PAIRS", "50"))

# What there is of each column: names that hold each other, signs that a pattern would take for its own, and nothing.
CHOICES: dict[str, list[Any]] = {
    "pod_namespace": ["shop", "shop-2", "batch"],
    "pod_name": ["web-1", "web-10", "WEB-1", "a_b", "a%b", "db"],
    "pod_uid": ["uid-1", "uid-2", "uid-10"],
    "owner_kind": ["Deployment", "Job", ""],
    "owner_name": ["web", "night", ""],
    "best": ["n1", "n10", ""],
    "placed_on": ["n1", "n2", "n10", ""],
    "placed_best": [True, False, None],
    "refused_by": ["\nteam\n", "\nteam\nroom\n", "\nteam-2\n", ""],
    "top_reason": ["no room left", "No Room", "100% full", "a\\b", ""],
    "feasible": [0, 1, 3],
    "nodes": [0, 3, 3, 3],
    "error": ["", "", "", "too late"],
    "verb": list(search.VERBS),
    "rule_set": ["web", "web-2", ""],
    "rule_set_version": [0, 1, 2],
    "assignment": ["all", "db", ""],
    "mode": ["enforce", "enforce", "shadow"],
    "divergence": ["", "agreed", "open"],
    "process": ["extender@a:1:1", "extender@b:1:1"],
}
VALUES: dict[str, list[str]] = {
    "q": ["web-1", "WEB", "shop/web", "uid-1", "a_b", "%", "nothing", "shop/"],
    "owner": ["web", "Deployment/web", "job/night", "/web", "Job/"],
    "node": ["n1", "n2"],
    "reason": ["room", "100%", "\\", "nothing"],
    "refused_by": ["team", "room", "tea"],
    "answer": ["none", "some", "all", "error"],
    "missed": ["true", "false"],
    "refused": ["true", "false"],
    "publisher": ["alice", "bob", "nobody"],
    "approver": ["carol", "dave"],
}


def written(random: Random) -> list[Decision]:
    """Store rows of a few moments, many of them of the same one, under three Revisions of two publishers."""
    numbers = []
    for author, approver in (("alice", "carol"), ("bob", "dave"), ("alice", "dave")):
        change = opened(make_rule_set(f"{author}-{approver}"), by=author)
        revision = publishing.publish_change(change=change, by=author, expected_digest=change.digest)
        change.events.create(act="approve", by=approver, at=NOW, digest=change.digest)
        numbers.append(revision.number)
    for sequence in range(1, ROWS + 1):
        fields = {name: random.choice(values) for name, values in CHOICES.items()}
        fields["feasible"] = min(fields["feasible"], fields["nodes"])
        at = NOW - timedelta(minutes=random.choice([random.randrange(ROWS), random.randrange(50_000)]))
        make_decision(**fields, at=at, sequence=sequence, revision=random.choice([0, *numbers]))
    return list(Decision.objects.all())


def reading(publishers: dict[int, str], approvers: dict[int, str]) -> dict[str, Callable[[Decision, str], bool]]:
    """Return what each filter means, in Python."""

    def pod(row: Decision, text: str) -> bool:
        namespace, slash, name = text.rpartition("/")
        is_named = name.lower() in row.pod_name.lower() and (not slash or row.pod_namespace == namespace)
        return is_named or row.pod_uid == text

    def owner(row: Decision, text: str) -> bool:
        kind, slash, name = text.partition("/")
        return (row.owner_kind.lower(), row.owner_name) == (kind.lower(), name) if slash else row.owner_name == text

    def answer(row: Decision, text: str) -> bool:
        if row.error:
            return text == "error"
        found = "none" if not row.feasible else "all" if row.feasible == row.nodes else "some"
        return row.nodes > 0 and found == text

    found = {
        name: lambda row, text, name=name: str(getattr(row, name)) == text
        for name in BY_NAME.keys() & (CHOICES.keys() | {"revision"})
    }
    return found | {
        "q": pod,
        "owner": owner,
        "answer": answer,
        "node": lambda row, text: text in {row.placed_on, row.best},
        "reason": lambda row, text: text.lower() in row.top_reason.lower(),
        "refused_by": lambda row, text: text in row.refused_by.splitlines(),
        "missed": lambda row, text: row.placed_best is (text == "false"),
        "refused": lambda row, text: (row.feasible == 0) is (text == "true"),
        "publisher": lambda row, text: publishers.get(row.revision) == text,
        "approver": lambda row, text: approvers.get(row.revision) == text,
    }


def all_pages(given: dict[str, str], *, limit: int, back: bool) -> list[int]:
    """Return the sequences of all pages, newest first; going `back` from the newest on, or from the oldest towards them."""
    place, found = {} if back else {"after": "2000-01-01T00:00:00Z"}, list[int]()
    while True:
        page = parse_search({**given, **place, "limit": str(limit)}, NOW).page()
        rows = [row.sequence for row in page.rows]
        found = found + rows if back else rows + found
        beyond = page.older if back else page.newer
        if beyond is None:
            return found
        place = {"before" if back else "after": str(beyond)}


def test_each_filter_and_pairs_of_them_find_what_a_reading_of_the_rows_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(SEED)
    monkeypatch.setattr(search, "LOOKED_AT_FIRST", 7)
    monkeypatch.setattr(search, "MOST_LOOKED_AT", 40)
    rows = sorted(written(random), key=lambda row: (row.at, row.sequence), reverse=True)
    publishers, approvers = {}, {}
    for number, author, approver in zip(
        sorted({row.revision for row in rows} - {0}), ("alice", "bob", "alice"), ("carol", "dave", "dave"), strict=True
    ):
        publishers[number], approvers[number] = author, approver
    means = reading(publishers, approvers)
    assert means.keys() == BY_NAME.keys(), "a filter is new: say what it means"
    values = {name: VALUES.get(name) or sorted({str(getattr(row, name)) for row in rows} - {""}) for name in BY_NAME}
    if connection.vendor == "sqlite":
        values["q"] = [text for text in values["q"] if text.isascii()]
    alone = [{name: value} for name in BY_NAME for value in values[name]]
    pairs = list(combinations(BY_NAME, 2))
    pairs = random.sample(pairs, min(PAIRS, len(pairs)))
    together = [{name: random.choice(values[name]) for name in pair} for pair in pairs]
    wrong = []
    for number, given in enumerate([*alone, *together]):
        expected = [row.sequence for row in rows if all(means[name](row, text) for name, text in given.items())]
        found = all_pages(given, limit=random.choice([3, 20, 200]), back=number % 2 == 0)
        if found != expected:
            wrong.append((given, sorted(set(expected) ^ set(found))[:5]))
    assert wrong == []
