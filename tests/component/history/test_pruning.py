"""What is older than it may be goes, with all that only it needed; what is held stays with what it needs."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from policies.models import AuditEvent
from scheduler import tasks
from scheduler.decisions.journal_uses import note_journal_uses
from scheduler.decisions.missing import database_now
from scheduler.history import pruning
from scheduler.history.holds import HoldError, lift_hold, make_hold
from scheduler.history.pruning import Retention, prune
from scheduler.ledger.deletions import deletions, merged_ranges
from scheduler.models import Checkpoint, Decision, JournalUse, NodeNames, Notice, Outcome, Pruning, SnapshotPart

pytestmark = pytest.mark.django_db

# A Wednesday: three weeks before, a week is over by the month.
NOW = datetime(2026, 11, 18, 12, tzinfo=UTC)
KEPT = Retention(days=30, details_days=0)


def days_ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def decided(days: float, name: str = "a", **fields: Any) -> Decision:
    number = Decision.objects.count() + 1
    base = {
        "verb": "filter", "pod_namespace": "d", "pod_name": name, "pod_uid": f"u-{name}", "revision": 1, "nodes": 2,
        "feasible": 1, "body": b"\x01details",
    }  # fmt: skip
    return Decision.objects.create(at=days_ago(days), process="p", sequence=number, **base | fields)


def written(chain: int, names: int, *decisions: Decision) -> None:
    """Write a chain of Snapshots, and names, as the ingest does when these Decisions came."""
    parts = [SnapshotPart(writer="p", chain=chain, position=at, data=b"part") for at in range(2)]
    listed = [NodeNames(writer="p", number=names, data=b"names")]
    for row in decisions:
        Decision.objects.filter(pk=row.pk).update(chain=chain, position=1, names_number=names)
        row.chain, row.position, row.names_number = chain, 1, names
    SnapshotPart.objects.bulk_create(parts)
    NodeNames.objects.bulk_create(listed, ignore_conflicts=True)
    note_journal_uses(decisions, parts, listed, min(row.at for row in decisions))


def names_left() -> list[str]:
    return sorted(Decision.objects.values_list("pod_name", flat=True))


def rules() -> dict[str, int]:
    return {row.rule: row.rows for row in Pruning.objects.all()}


@pytest.mark.parametrize("days_ahead", [0, 400])
def test_a_worker_whose_clock_is_ahead_prunes_by_the_databases(
    monkeypatch: pytest.MonkeyPatch, days_ahead: int
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + timedelta(days=days_ahead)

    monkeypatch.setattr(tasks, "datetime", Clock)
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, retention_days=30))
    now = database_now()
    for name, days in (("young", 20), ("old", 40)):
        row = decided(0, name)
        Decision.objects.filter(pk=row.pk).update(at=now - timedelta(days=days))
        Notice.objects.create(number=days, kind="drift", at=now - timedelta(days=days * 3), sentence=name)
    tasks.prune_history()
    assert names_left() == ["young"]
    assert [notice.sentence for notice in Notice.objects.all()] == ["young"]


def test_nothing_is_pruned_without_a_setting() -> None:
    written(1, 1, decided(5_000))
    assert prune(Retention(0, 0), NOW) == 0
    assert (names_left(), SnapshotPart.objects.count(), rules()) == (["a"], 2, {})


@pytest.mark.parametrize("kept", [KEPT, Retention(days=0, details_days=30)], ids=["rows", "details"])
def test_what_was_pruned_is_noted_from_the_first_batch_to_the_last(
    monkeypatch: pytest.MonkeyPatch, kept: Retention
) -> None:
    monkeypatch.setattr(pruning, "BATCH", 1)
    first, *_, last = [decided(90 - number, f"p{number}") for number in range(4)]
    assert prune(kept, NOW) == 4
    (noted,) = Pruning.objects.filter(rule__in=["decisions", "details"])
    assert noted.rows == 4
    if not noted.whole_partitions:
        assert (noted.from_at, noted.until_at) == (first.at, last.at)


def test_a_batch_into_which_a_decision_comes_is_taken_back_and_done_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No leaf of what came was noted as deleted by a rule: `verify` would take it for somebody's doing."""
    decided(60, "old")
    bytes_of, late = pruning._bytes_of, ["late"]

    def with_a_late_one(batch: Any) -> int:
        if late:
            decided(60, late.pop())
        return bytes_of(batch)

    monkeypatch.setattr(pruning, "_bytes_of", with_a_late_one)
    assert prune(Retention(days=0, details_days=30), NOW) == 1
    assert rules() == {"details": 1}
    assert not Decision.objects.get(pod_name="old").body


def test_decisions_go_after_their_time_with_the_snapshots_and_names_that_only_they_needed() -> None:
    written(1, 1, decided(60, "old"))
    written(2, 2, decided(40, "older"), decided(1, "new"))
    prune(KEPT, NOW)
    assert names_left() == ["new"]
    assert set(SnapshotPart.objects.values_list("chain", flat=True)) == {2}
    assert set(NodeNames.objects.values_list("number", flat=True)) == {2}
    assert rules() == {"decisions": 2, "snapshots": 2, "names": 1}
    assert set(JournalUse.objects.values_list("number", flat=True)) == {2}


def test_names_stay_that_a_chain_goes_back_to() -> None:
    old, new = decided(60, "old"), decided(1, "new")
    written(1, 1, old)
    # The chain goes on with other names, then with the first ones: one Decision of today has more than was there in between.
    for number in (2, 3):
        NodeNames.objects.create(writer="p", number=number, data=b"names")
        new.chain, new.position, new.names_number = 1, number, number
        note_journal_uses([new], [], [], new.at)
    JournalUse.objects.filter(kind="names").update(last_at=old.at)
    prune(KEPT, NOW)
    assert set(NodeNames.objects.values_list("number", flat=True)) == {1, 2, 3}


def test_details_go_before_their_decision() -> None:
    written(1, 1, decided(20, "old"))
    written(2, 2, decided(1, "new"))
    prune(Retention(days=30, details_days=10), NOW)
    assert {row.pod_name: bytes(row.body) for row in Decision.objects.all()} == {"old": b"", "new": b"\x01details"}
    assert set(SnapshotPart.objects.values_list("chain", flat=True)) == {2}
    details = Pruning.objects.get(rule="details")
    assert (details.rows, details.bytes, details.days, details.until_at) == (1, 8, 10, days_ago(20))


def test_snapshots_stay_as_long_as_details_of_the_same_hour_do() -> None:
    written(1, 1, decided(10))
    prune(Retention(days=0, details_days=10), NOW + timedelta(minutes=59))
    assert (bytes(Decision.objects.get().body), SnapshotPart.objects.count()) == (b"\x01details", 2)
    prune(Retention(days=0, details_days=10), NOW + timedelta(minutes=60))
    prune(Retention(days=0, details_days=10), NOW + timedelta(minutes=61))
    assert (bytes(Decision.objects.get().body), SnapshotPart.objects.count()) == (b"", 0)


def test_a_second_run_prunes_nothing_more() -> None:
    written(1, 1, decided(60))
    assert prune(Retention(30, 10), NOW) > 0
    assert prune(Retention(30, 10), NOW) == 0


@pytest.mark.parametrize(
    "what",
    [
        {"pod_namespace": "d"},
        {"pod_namespace": "d", "pod_name": "held"},
        {"pod_uid": "u-held"},
        {"from_at": days_ago(62), "until_at": days_ago(58)},
    ],
)
def test_what_is_held_stays_with_what_it_needs_until_it_is_lifted(what: dict[str, Any]) -> None:
    written(1, 1, decided(60, "held"), decided(59, "held"))
    written(2, 2, decided(45, "other", pod_namespace="e"))
    hold = make_hold(by="auditor", now=NOW, reason="case 7", **what)
    for kept in (KEPT, Retention(30, 10)):
        prune(kept, NOW)
        assert names_left() == ["held", "held"]
        assert all(bytes(row.body) for row in Decision.objects.all())
        assert set(SnapshotPart.objects.values_list("chain", flat=True)) == {1}
        assert set(NodeNames.objects.values_list("number", flat=True)) == {1}
    lift_hold(number=hold.pk, by="approver", now=NOW, reason="the case is closed")
    prune(KEPT, NOW)
    assert (names_left(), SnapshotPart.objects.count(), NodeNames.objects.count()) == ([], 0, 0)


def test_details_that_were_held_go_when_the_hold_is_lifted() -> None:
    decided(20, "held")
    decided(15, "other")
    hold = make_hold(by="auditor", now=NOW, reason="case 7", pod_namespace="d", pod_name="held")
    prune(Retention(0, 10), NOW)
    assert [bytes(row.body) for row in Decision.objects.order_by("at")] == [b"\x01details", b""]
    lift_hold(number=hold.pk, by="approver", now=NOW, reason="closed")
    prune(Retention(0, 10), NOW)
    assert not any(bytes(row.body) for row in Decision.objects.all())
    hold.refresh_from_db()
    assert hold.released_at == NOW


def test_details_of_others_go_too_where_a_hold_on_later_ones_was_lifted() -> None:
    decided(15, "other")
    decided(14, "held")
    hold = make_hold(by="auditor", now=NOW, reason="case 7", pod_namespace="d", pod_name="held")
    lift_hold(number=hold.pk, by="approver", now=NOW, reason="closed")
    # The first run has time for one batch.
    ticks = iter([0.0, 1.0, *[100.0] * 50])
    prune(Retention(0, 10), NOW, clock=lambda: next(ticks))
    prune(Retention(0, 10), NOW)
    assert not any(bytes(row.body) for row in Decision.objects.all())


def test_a_hold_that_is_sent_twice_is_made_once() -> None:
    what = {"by": "auditor", "reason": "case 7", "pod_namespace": "d"}
    hold = make_hold(now=NOW, **what)
    assert make_hold(now=NOW + timedelta(seconds=5), **what) == hold
    assert AuditEvent.objects.filter(kind="hold.make").count() == 1
    for more in ({"by": "another"}, {"reason": "case 8"}, {"pod_name": "p"}, {"now": NOW + timedelta(minutes=2)}):
        assert make_hold(**({"now": NOW} | what | more)) != hold, more
    lift_hold(number=hold.pk, by="approver", now=NOW, reason="closed")
    assert make_hold(now=NOW, **what) != hold


def test_a_hold_is_lifted_once_and_not_without_a_reason() -> None:
    hold = make_hold(by="auditor", now=NOW, reason="case 7", pod_namespace="d")
    with pytest.raises(HoldError, match="Give a reason"):
        lift_hold(number=hold.pk, by="approver", now=NOW, reason=" ")
    lift_hold(number=hold.pk, by="approver", now=NOW, reason="closed")
    with pytest.raises(HoldError, match="was lifted already"):
        lift_hold(number=hold.pk, by="somebody", now=NOW, reason="closed again")
    hold.refresh_from_db()
    assert (hold.lifted_by, hold.lift_reason) == ("approver", "closed")


def test_a_base_that_nothing_ever_referred_to_goes_long_after_its_writer() -> None:
    for writer, days in (("gone", 60), ("alive", 1)):
        SnapshotPart.objects.create(writer=writer, chain=1, position=0, data=b"x")
        Checkpoint.objects.create(writer=writer, at=days_ago(days))
    prune(KEPT, NOW)
    assert SnapshotPart.objects.get().writer == "alive"


def test_what_became_of_a_pod_goes_with_the_decisions_of_its_time() -> None:
    for name, days in (("old", 60), ("held", 60), ("new", 1)):
        Outcome.objects.create(
            kind="bound",
            at=days_ago(days),
            process="p",
            pod_namespace="d",
            pod_name=name,
            pod_uid=f"u-{name}",
            body=b"xyz",
        )
    make_hold(by="auditor", now=NOW, reason="case 7", pod_namespace="d", pod_name="held")
    prune(KEPT, NOW)
    assert set(Outcome.objects.values_list("pod_name", flat=True)) == {"held", "new"}
    assert (Pruning.objects.get().rule, Pruning.objects.get().bytes) == ("outcomes", 3)


def test_the_ledger_is_told_which_leaves_rows_or_details_were_pruned_of() -> None:
    for number, days in enumerate((90, 60, 20, 1)):
        Decision.objects.filter(pk=decided(days).pk).update(ledger_index=number)
    prune(Retention(30, 10), NOW)
    assert {each[:5] for each in deletions(()).found} == {
        ("decisions", "rows", 0, 2, "decisions are kept for 30 days"),
        ("decisions", "details", 2, 3, "details are kept for 10 days"),
    }


def test_a_run_ends_in_time_and_the_next_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.history.pruning.BATCH", 2)
    for number in range(5):
        decided(60 + number)
    ticks = iter([0.0, 1.0, *[100.0] * 50])
    assert prune(Retention(30, 0), NOW, clock=lambda: next(ticks)) < 5
    assert Decision.objects.exists() or connection.vendor == "postgresql"
    prune(KEPT, NOW)
    assert not Decision.objects.exists()


def test_what_comes_after_its_time_goes_too() -> None:
    prune(KEPT, NOW)
    decided(90)
    prune(KEPT, NOW)
    assert not Decision.objects.exists()


def test_a_decision_whose_details_are_pruned_says_so_when_it_is_replayed(tmp_path: Path) -> None:
    from scheduler.decisions.rebuilding import ReplayError
    from scheduler.decisions.replay import replay

    decided(20)
    prune(Retention(0, 10), NOW)
    with pytest.raises(ReplayError, match="details were pruned"):
        replay(Decision.objects.get())


def leaves(*ranges: tuple[int, int], log: str = "decisions") -> bool:
    """Whether these are the leaves that are noted."""
    found = merged_ranges((each.first, each.until) for each in deletions(()).found if each.log == log)
    return found == list(ranges)


def test_what_is_held_between_others_is_in_no_range_of_what_was_pruned() -> None:
    for number in range(10):
        row = decided(60 - number / 100, "held" if number in {3, 4, 8} else "a")
        Decision.objects.filter(pk=row.pk).update(ledger_index=number)
    make_hold(by="auditor", now=NOW, reason="case 7", pod_namespace="d", pod_name="held")
    prune(KEPT, NOW)
    assert leaves((0, 3), (5, 8), (9, 10))


def test_holes_that_a_later_run_fills_leave_one_range() -> None:
    # Stored in another order than decided: at the horizon of the first run every other one is left.
    for number, days in enumerate((60, 20, 60, 20, 60)):
        Decision.objects.filter(pk=decided(days).pk).update(ledger_index=number)
    prune(KEPT, NOW)
    assert leaves((0, 1), (2, 3), (4, 5))
    prune(KEPT, NOW + timedelta(days=30))
    assert leaves((0, 5))


def test_rows_of_before_the_ledger_have_no_leaves_to_note() -> None:
    decided(60)
    assert prune(KEPT, NOW) == 1
    assert leaves()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), max_size=12))
def test_ranges_are_merged_to_the_same_numbers_in_as_few_as_can_be(given_ranges: list[tuple[int, int]]) -> None:
    ranges = [(first, first + length) for first, length in given_ranges]
    merged = merged_ranges(ranges)
    numbers = {number for first, until in ranges for number in range(first, until)}
    assert [number for first, until in merged for number in range(first, until)] == sorted(numbers)
    assert all(one[1] < other[0] for one, other in pairwise(merged))
