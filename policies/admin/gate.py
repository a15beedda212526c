"""The gate's results on the page of a Change: findings about Pods first, progress while it runs, and whether they still count."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from django.conf import settings
from django.utils import timezone

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
        found=[Found(_mark(each, gate), _sentence(each.says), each.lines) for each in results],
        warning=f"This is of before: {gate.stale}. Run it again." if gate.stale and is_open else "",
        refusal=gate.refusal if is_open else "",
        moves=gate.run is not None and gate.run.is_under_way,
    )


def _says(gate: Gate, now: datetime, *, is_open: bool) -> str:
    run = gate.run
    if run is None:
        if not is_open:
            return "The gate didn't look at this."
        must = (
            "It has to, before this goes live."
            if settings.BERTH.gate_required
            else "Run it to see whom this would touch."
        )
        return f"The gate hasn't looked at what this makes now. {must}"
    if run.state == _State.QUEUED:
        return _waits(run, now)
    if run.state == _State.RUNNING:
        many = f": {run.done:,} of {run.total:,}" if run.total else f": {run.done:,}" if run.done else ""
        return f"The gate is looking: {run.phase or 'it begins'}{many}."
    if run.state == _State.FAILED:
        return f"The gate came to no end: {run.fault}"
    if gate.result is None:
        return (
            "The gate was cancelled. Run it again." if is_open else "The gate had come to no end when this was decided."
        )
    cluster = f", and on the cluster of {_at(gate.result.snapshot_at)}" if gate.result.snapshot_at else ""
    return f"The gate looked at {_at(gate.result.ended_at)}, on Revision {gate.result.revision}{cluster}; {gate.result.asked_by} had asked."


def _waits(run: GateRun, now: datetime) -> str:
    if now - run.asked_at < publishing.WAITS_LONG:
        return "It waits for a worker."
    return (
        f"No worker has taken it up since {_at(run.asked_at)}: they look at other Changes, or none runs, or Redis is away. "
        f"It begins when one is back; manage.py gate {run.change_id} runs it at once."
    )


def _at(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else "an unknown time"


def _mark(result: Result, gate: Gate) -> str:
    if result.verdict == PASSED:
        return "✓"
    if gate.levels.get(result.check) == BLOCKING:
        return "✗"
    return "?" if result.verdict == UNKNOWN else "!"


def _sentence(says: str) -> str:
    return f"{says[:1].upper()}{says[1:]}."
