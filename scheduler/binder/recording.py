"""A scheduling cycle as Decisions of verb `schedule`: one of each rule set in mode shadow, then the one that counts."""

from collections.abc import Iterator, Mapping
from typing import Any

from scheduler.binder.cycle import Judged, Placement
from scheduler.decisions.record import Entry, entry_of

VERB = "schedule"


def entries_of(placement: Placement, seconds: float, notes: Mapping[str, Any]) -> Iterator[Entry]:
    """Iterate over what is to be recorded of a cycle.

    Args:
        placement: what it came to.
        seconds: how long it took.
        notes: facts beside: the chosen node, what preemption did.
    """
    for judged in placement.shadows:
        yield _entry(placement, judged, mode="shadow")
    entry = _entry(placement, placement.enforced, notes=notes, duration_microseconds=int(seconds * 1_000_000))
    entry.error = placement.refusal.reason if placement.refusal else ""
    yield entry


def _entry(placement: Placement, judged: Judged | None, **more: Any) -> Entry:
    return entry_of(
        verb=VERB,
        pod=placement.pod,
        now=placement.now,
        revision=placement.revision,
        assignment=judged.assignment if judged else None,
        rule_set=judged.rule_set if judged else None,
        snapshot=placement.snapshot if judged else None,
        names=placement.snapshot.table.names,
        rows=placement.rows,
        answer=judged.answer if judged else None,
        **more,
    )
