"""The gate's results on the page of a Change: findings about Pods first, progress while it runs, and whether they still count."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from django.conf import settings
from django.utils import timezone
from django.utils.text import capfirst

from policies import publishing
from policies.models import Change, GateRun
from policies.publishing import Gate, Result, lifecycle
from policies.publishing.gates import BLOCKING, PASSED, UNKNOWN

_State = GateRun.State


class Found(msgspec.Struct, frozen=True):
    """The result of one check: a mark, a sentence, and the findings."""

    mark: str
    says: str
    lines: Sequence[str]


class Shown(msgspec.Struct, frozen=True):
    """The gate of a Change in words.

    Attributes:
        says: its state.
        found: the results of its checks, when it last ended.
        warning: a caveat about the results; empty for none.
        refusal: why it can't be published.
        moves: whether it will change soon.
    """

    says: str
    found: Sequence[Found] = ()
    warning: str = ""
    refusal: str = ""
    moves: bool = False


def shown(change: Change, gate: Gate) -> Shown:
    """Return what the page says of the gate."""
    is_open = change.state in lifecycle.OPEN
    results = publishing.in_order(publishing.results_of(gate.result), gate.levels) if gate.result else []
    return Shown(
        says=_says(gate, timezone.now(), is_open=is_open),
        found=[Found(_mark(each, gate), f"{capfirst(each.says)}.", each.lines) for each in results],
        warning=f"This result is outdated: {gate.stale}. Run the gate again." if gate.stale and is_open else "",
        refusal=gate.refusal if is_open else "",
        moves=gate.run is not None and gate.run.is_under_way,
    )


def _says(gate: Gate, now: datetime, *, is_open: bool) -> str:
    run = gate.run
    if run is None:
        if not is_open:
            return "The gate hasn't run for this."
        must = (
            "It has to run before this goes live."
            if settings.BERTH.gate_required
            else "Run it to see which Pods this would affect."
        )
        return f"The gate hasn't run for the current state of this Change. {must}"
    if run.state == _State.QUEUED:
        return _waits(run, now)
    if run.state == _State.RUNNING:
        many = f": {run.done:,} of {run.total:,}" if run.total else f": {run.done:,}" if run.done else ""
        return f"The gate is running: {run.phase or 'starting'}{many}."
    if run.state == _State.FAILED:
        return f"The gate failed: {run.fault}"
    if gate.result is None:
        return "The gate was cancelled. Run it again." if is_open else "The gate hadn't finished when this was decided."
    cluster = f", with the cluster as of {_at(gate.result.snapshot_at)}" if gate.result.snapshot_at else ""
    return f"The gate looked at {_at(gate.result.ended_at)}, on Revision {gate.result.revision}{cluster}; {gate.result.asked_by} had asked."


def _waits(run: GateRun, now: datetime) -> str:
    if now - run.asked_at < publishing.WAITS_LONG:
        return "Waiting for a worker."
    return (
        f"No worker has picked it up since {_at(run.asked_at)}: the workers are busy, none is running, or Redis is unreachable. "
        f"It starts when a worker is free; manage.py gate {run.change_id} runs it at once."
    )


def _at(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "an unknown time"


def _mark(result: Result, gate: Gate) -> str:
    if result.verdict == PASSED:
        return "✓"
    if gate.levels.get(result.check) == BLOCKING:
        return "✗"
    return "?" if result.verdict == UNKNOWN else "!"
