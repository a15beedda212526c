"""Many holds at once, over weeks that go whole and rows that go one by one: what any of them holds stays, all else goes."""

import os
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

from scheduler.history import partitions
from scheduler.history.holds import lift_hold, make_hold
from scheduler.history.partitions import WEEK, make_ahead
from scheduler.history.pruning import Retention, prune
from scheduler.models import Decision, LegalHold, NodeNames, Outcome, SnapshotPart
from tests.component.history.test_pruning import written

pytestmark = pytest.mark.django_db

TRIALS = int(os.environ.get("HOLD_TRIALS", "4"))
SEED = int(os.environ.get("HOLD_SEED", "0"))
# Later than any partition that the migration made.
MONDAY = datetime(2031, 1, 6, tzinfo=UTC)
NOW = MONDAY + 8 * WEEK + timedelta(days=2, hours=12)
ROWS = 120


class Held:
    """A hold, and what it holds by a reading of its own."""

    def __init__(self, random: Random) -> None:
        number = random.randrange(12)
        way = random.choice(["pod", "uid", "namespace", "time", "pod in a time"])
        self.fields: dict[str, Any] = {}
        if way in {"pod", "pod in a time"}:
            self.fields |= {"pod_namespace": f"ns-{number % 4}", "pod_name": f"web-{number}"}
        elif way == "uid":
            self.fields["pod_uid"] = f"uid-{number}"
        elif way == "namespace":
            self.fields["pod_namespace"] = f"ns-{number % 4}"
        if "time" in way:
            first = MONDAY + timedelta(hours=random.randrange(24 * 50))
            self.fields |= {"from_at": first, "until_at": first + timedelta(hours=random.randrange(1, 24 * 10))}

    def holds(self, row: Decision | Outcome) -> bool:
        first, until = self.fields.get("from_at"), self.fields.get("until_at")
        names = all(getattr(row, name) == value for name, value in self.fields.items() if name.startswith("pod_"))
        return names and (first is None or row.at >= first) and (until is None or row.at < until)


def made(random: Random) -> None:
    """Store Decisions of twelve Pods over eight weeks, each four on a chain of Snapshots of their own, and an outcome of each third."""
    make_ahead(MONDAY)
    make_ahead(MONDAY + 4 * WEEK)
    rows: list[Decision] = []
    for number in range(ROWS):
        pod = random.randrange(12)
        at = MONDAY + timedelta(minutes=random.randrange(8 * 7 * 24 * 60))
        name = {"pod_namespace": f"ns-{pod % 4}", "pod_name": f"web-{pod}", "pod_uid": f"uid-{pod}"}
        rows.append(
            Decision.objects.create(
                at=at, process="p", sequence=number + 1, verb="filter", revision=1, body=b"\x01d", **name
            )
        )
        if number % 3 == 0:
            Outcome.objects.create(
                at=at,
                process="p",
                sequence=number + 1,
                kind="preempted",
                preemptor_uid=str(number),
                node_name="n1",
                body=b"o",
                **name,
            )
    for chain in range(ROWS // 4):
        written(chain + 1, chain + 1, *rows[4 * chain : 4 * chain + 4])


def left(model: Any, **more: Any) -> set[int]:
    return set(model.objects.filter(**more).values_list("sequence", flat=True))


@pytest.mark.parametrize("seed", range(SEED, SEED + TRIALS))
def test_what_any_hold_holds_stays_with_what_it_needs_and_all_else_goes(seed: int) -> None:
    random = Random(seed)
    made(random)
    decisions, outcomes = list(Decision.objects.all()), list(Outcome.objects.all())
    holds = [Held(random) for _ in range(3)]
    keys = [
        make_hold(by="auditor", now=NOW, reason=f"case {number}", **hold.fields).pk for number, hold in enumerate(holds)
    ]
    kept = Retention(days=random.choice([10, 25, 40]), details_days=random.choice([0, 5]))
    assert_pruned(kept, decisions, outcomes, holds)
    lift_hold(number=keys[0], by="approver", now=NOW, reason="closed")
    assert_pruned(kept, decisions, outcomes, holds[1:])
    assert LegalHold.objects.filter(lifted_at=None).count() == 2


def assert_pruned(kept: Retention, decisions: list[Decision], outcomes: list[Outcome], holds: list[Held]) -> None:
    before = partitions.partitions()
    horizon = partitions.whole_until(NOW - timedelta(days=kept.days))
    while prune(kept, NOW):
        pass
    stay = {row.sequence for row in decisions if row.at >= horizon or any(hold.holds(row) for hold in holds)}
    assert left(Decision) == stay
    assert left(Outcome) == {
        row.sequence for row in outcomes if row.at >= horizon or any(hold.holds(row) for hold in holds)
    }
    details = horizon
    if kept.details_days:
        details = NOW.replace(minute=0) - timedelta(days=kept.details_days)
    detailed = {
        row.sequence
        for row in decisions
        if row.sequence in stay and (row.at >= details or any(hold.holds(row) for hold in holds))
    }
    assert {row.sequence for row in Decision.objects.all() if row.body} == detailed
    chains = {(number - 1) // 4 + 1 for number in detailed}
    assert chains <= set(SnapshotPart.objects.values_list("chain", flat=True))
    assert chains <= set(NodeNames.objects.values_list("number", flat=True))
    whole = {each.name for each in before if each.end_at <= horizon and each.first_at >= MONDAY}
    gone = {each.name for each in before} - {each.name for each in partitions.partitions()}
    held = {
        each.name
        for each in before
        if any(each.first_at <= row.at < each.end_at and row.sequence in stay for row in decisions)
    }
    assert gone & held == set()
    assert whole - held == {name for name in gone if name >= "scheduler_decision_2031"}
