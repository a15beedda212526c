"""A scheduling cycle as Decisions of verb `schedule`: one of each rule set in mode shadow, then the one that counts."""

from collections.abc import Iterator, Mapping
from typing import Any

from scheduler.binder.cycle import Judged, Placement
from scheduler.decisions.record import Entry, NodesEntry

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
    error = placement.refusal.reason if placement.refusal else ""
    yield _entry(
        placement, placement.enforced, error=error, notes=notes, duration_microseconds=int(seconds * 1_000_000)
    )


def _entry(placement: Placement, judged: Judged | None, **more: Any) -> Entry:
    common: dict[str, Any] = {"verb": VERB, "pod": placement.pod, "now": placement.now} | more
    common["revision"] = placement.revision
    if judged is None:
        return Entry(**common)
    return NodesEntry(
        **common,
        assignment=judged.assignment,
        rule_set=judged.rule_set,
        snapshot=placement.snapshot,
        names=placement.snapshot.table.names,
        rows=placement.rows,
        answer=judged.answer,
    )
