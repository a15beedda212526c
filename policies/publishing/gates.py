"""The gate's runs: requesting, starting, updating and ending them, and the results that block publishing.

`scheduler.gate` runs the checks; nothing here calls it. A run is a row: a request writes it, a worker takes it up, and
publishing reads its results.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from policies import engine as engine_package
from policies.engine import ruleset as engine
from policies.models import Change, GateRun, GateSetting
from policies.publishing import audit, locks
from policies.publishing.actors import By, check_not_set_since, has_just_set, may, name_of
from policies.publishing.errors import PublishingError, check_words
from policies.publishing.locks import Lock
from policies.publishing.parts import batches
from policies.publishing.silence import is_silent
from policies.publishing.touched import rule_sets_touched

OFF, WARNING, BLOCKING = "off", "warning", "blocking"
_RANK = {OFF: 0, WARNING: 1, BLOCKING: 2}

# The verdict of a check: nothing found, something found, or it couldn't run.
PASSED, FOUND, UNKNOWN = "passed", "found", "unknown"

# A run without a sign of life for this long is lost: its process was killed.
SILENT = timedelta(seconds=60)
# After this time a run that wasn't taken up is reported: no worker runs, or it is busy with another run.
WAITS_LONG = timedelta(seconds=15)
_MOST_ATTEMPTS = 2
_KEPT = 20
# How many findings of a check are named in a refusal to publish.
_NAMED = 3

_State = GateRun.State
_UNDER_WAY = (_State.QUEUED, _State.RUNNING)

_LOST = "The process that ran it was ended before it was done, twice. The worker's log may say why. Run it again."


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check.

    Attributes:
        check: its name.
        verdict: PASSED, FOUND or UNKNOWN.
        says: a summary, in a sentence without a full stop.
        lines: the findings, in sentences; the first ones of many.
        found: the findings for programs.
        count: the number of findings.
    """

    check: str
    verdict: str
    says: str
    lines: Sequence[str] = ()
    found: Sequence[Mapping[str, Any]] = ()
    count: int = 0


class Gate(NamedTuple):
    """The state of the gate for a Change.

    Attributes:
        run: the newest run for the Change's current content; None where there is none.
        result: the newest of these runs that ended with results.
        levels: the level of each check.
        stale: why the result is out of date, in a sentence; empty where it isn't.
        refusal: why the Change can't be published, with what to do; empty where the gate allows it.
        needs_run: whether a new run would have to come first.
    """

    run: GateRun | None
    result: GateRun | None
    levels: Mapping[str, str]
    stale: str = ""
    refusal: str = ""
    needs_run: bool = False


@lru_cache(maxsize=1)
def engine_version() -> str:
    """Return the version of the engine: a digest over its source and the versions of its libraries."""
    digest = hashlib.sha256()
    folder = Path(str(engine_package.__path__[0]))
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    for library in ("cel-expr-python", "numpy"):
        digest.update(f"{library} {version(library)}\0".encode())
    return digest.hexdigest()[:12]


def ask_gate(change: Change, by: str) -> GateRun:
    """Request a run of a Change's gate; returns a run that is already under way for the same content."""
    with transaction.atomic():
        row = Change.objects.select_for_update().get(pk=change.pk)
        under_way = GateRun.objects.filter(change=row, state__in=_UNDER_WAY).first()
        if under_way is not None and under_way.digest == row.digest:
            return under_way
        cancel_gate(row)
        kept = list(GateRun.objects.filter(change=row).values_list("pk", flat=True)[: _KEPT - 1])
        GateRun.objects.filter(change=row).exclude(pk__in=kept).delete()
        return GateRun.objects.create(change=row, digest=row.digest, asked_by=by, asked_at=timezone.now())


def record_asking(change: Change, by: By, more: Mapping[str, Any] | None = None) -> None:
    """Record that somebody requested, or ran, the gate for a Change."""
    audit.record_event(
        audit.Kind.GATE_ASK,
        by=by,
        thing=("Change", str(change.pk)),
        change=change.pk,
        digests=(change.digest, change.digest),
        more=more,
    )


def cancel_gate(change: Change) -> None:
    """Cancel the run that is under way for a Change: nobody needs it any more."""
    _cancel(GateRun.objects.filter(change=change))


def cancel_overtaken_gate(change: Change) -> None:
    """Cancel the run for the content before an edit: it would check the new content, but be stored for the old one."""
    _cancel(GateRun.objects.filter(change=change).exclude(digest=change.digest))


def _cancel(runs: QuerySet[GateRun]) -> None:
    runs.filter(state__in=_UNDER_WAY).update(state=_State.CANCELLED, ended_at=timezone.now())


def take_gate(number: int | None = None) -> GateRun | None:
    """Take up a waiting run: the one of this number, or else the first, if no other is under way. None where there is none."""
    now = timezone.now()
    _renew_lost_gates(now)
    waiting = GateRun.objects.filter(state=_State.QUEUED)
    if number is not None:
        waiting = waiting.filter(pk=number)
    elif GateRun.objects.filter(state=_State.RUNNING).exists():
        return None
    row = waiting.order_by("pk").first()
    if row is None:
        return None
    fields = {"state": _State.RUNNING, "started_at": now, "heartbeat_at": Now(), "attempts": F("attempts") + 1}
    taken = GateRun.objects.filter(pk=row.pk, state=_State.QUEUED).update(**fields, phase="", done=0, total=0)
    return GateRun.objects.get(pk=row.pk) if taken else None


def _renew_lost_gates(now: datetime) -> None:
    """Requeue runs whose process is gone; a run that was lost twice fails."""
    lost = GateRun.objects.filter(is_silent("heartbeat_at", SILENT), state=_State.RUNNING)
    lost.filter(attempts__gte=_MOST_ATTEMPTS).update(state=_State.FAILED, ended_at=now, fault=_LOST)
    lost.filter(attempts__lt=_MOST_ATTEMPTS).update(state=_State.QUEUED)


def lose_gate(run: GateRun) -> None:
    """Requeue, once, a run whose process ended without a result."""
    mine = GateRun.objects.filter(pk=run.pk, state=_State.RUNNING, attempts=run.attempts)
    if run.attempts < _MOST_ATTEMPTS:
        mine.update(state=_State.QUEUED)
    else:
        mine.update(state=_State.FAILED, ended_at=timezone.now(), fault=_LOST)


def note_gate(run: GateRun, phase: str, done: int, total: int) -> bool:
    """Write the progress of a run; False where it was cancelled, or another process has taken it up."""
    return _update(run, phase=phase[:60], done=done, total=total, heartbeat_at=Now())


def end_gate(run: GateRun, results: Iterable[Result], *, revision: int, snapshot_at: datetime | None) -> bool:
    """Write the results of a run; False as for `note_gate`."""
    return _update(run, **_ended(results, revision, snapshot_at))


def fail_gate(run: GateRun, fault: str) -> bool:
    """Write why a run failed; False as for `note_gate`."""
    return _update(run, state=_State.FAILED, ended_at=timezone.now(), fault=fault)


@transaction.atomic
def record_gate(
    change: Change, by: By, results: Iterable[Result], *, revision: int, snapshot_at: datetime | None
) -> GateRun:
    """Write a run that the person who opened the Change made at once, for its content."""
    now, ended = timezone.now(), _ended(results, revision, snapshot_at)
    record_asking(change, by, {"results": audit.digest_of(ended["results"])})
    return GateRun.objects.create(
        change=change, digest=change.digest, asked_by=name_of(by), asked_at=now, started_at=now, **ended
    )


def _ended(results: Iterable[Result], revision: int, snapshot_at: datetime | None) -> dict[str, Any]:
    return {
        "state": _State.DONE,
        "ended_at": timezone.now(),
        "results": msgspec.to_builtins(list(results)),
        "revision": revision,
        "snapshot_at": snapshot_at,
        "engine": engine_version(),
    }


def _update(run: GateRun, **fields: Any) -> bool:
    # Conditional on the attempt's number: a process that was considered dead, but goes on, writes nothing.
    mine = GateRun.objects.filter(pk=run.pk, state=_State.RUNNING, attempts=run.attempts)
    return mine.update(**fields) == 1


def gate_of(change: Change, live: engine.Revision) -> Gate:
    """Return the state of the gate for an open Change."""
    runs = list(GateRun.objects.filter(change=change, digest=change.digest)[:_KEPT])
    result = next((run for run in runs if run.state == _State.DONE), None)
    levels = with_found(levels_of(rule_sets_touched(change, live)), results_of(result) if result else [])
    stale = stale_because(result, live.number, timezone.now()) if result else ""
    gate = Gate(runs[0] if runs else None, result, levels, stale)
    refusal = refusal_of(gate)
    is_short = result is None or bool(stale) or bool(_unasked(gate))
    return gate._replace(refusal=refusal, needs_run=bool(refusal) and is_short)


def stale_because(run: GateRun, live: int, now: datetime) -> str:
    """Return why a run's results are out of date; empty where they aren't known to be."""
    if run.revision != live:
        return f"it compared with Revision {run.revision}, and Revision {live} is live now"
    if run.engine != engine_version():
        return "it was made by another version of Berth"
    age, most = now - (run.snapshot_at or run.asked_at), timedelta(seconds=settings.BERTH.gate_max_age_seconds)
    if age > most:
        return f"it is {_in_words(age)} old, and may be {_in_words(most)} (BERTH_GATE_MAX_AGE_SECONDS)"
    return ""


def _in_words(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for size, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds // size} {name}"
    return f"{seconds} seconds"


def results_of(run: GateRun) -> list[Result]:
    """Return the results of a run's checks."""
    return msgspec.convert(run.results, list[Result])


def in_order(results: Iterable[Result], levels: Mapping[str, str]) -> list[Result]:
    """Return results in the order for people: findings first; among them those that block, then those about Pods."""
    places = {check: place for place, check in enumerate(levels)}
    return sorted(
        results,
        key=lambda each: (
            each.verdict == PASSED,
            levels.get(each.check) != BLOCKING,
            places.get(each.check, len(places)),
        ),
    )


def blocking(results: Iterable[Result], levels: Mapping[str, str]) -> list[Result]:
    """Return the results that block publishing: blocking checks that found something, or couldn't run."""
    return [each for each in results if each.verdict != PASSED and levels.get(each.check) == BLOCKING]


def blocked(results: Iterable[Result], levels: Mapping[str, str]) -> str:
    """Return, in a sentence with what to do, what blocks publishing; empty where nothing does."""
    found = blocking(results, levels)
    if not found:
        return ""
    named = "; ".join(f"{each.says}{_some(each.lines)}" for each in found)
    return f"The gate blocks it: {named}. Edit it, or run the gate again when this has changed."


def _some(lines: Sequence[str]) -> str:
    more = ", …" if len(lines) > _NAMED else ""
    return f" ({', '.join(lines[:_NAMED])}{more})" if lines else ""


def refusal_of(gate: Gate) -> str:
    """Return why the gate blocks publishing of a Change; empty where it doesn't."""
    is_required = settings.BERTH.gate_required
    if gate.result is None:
        never = "The gate has to run first (BERTH_GATE_REQUIRED): run it."
        return (_newest(gate.run) or never) if is_required else ""
    results = results_of(gate.result)
    if said := blocked(results, gate.levels):
        return said
    if not is_required:
        return ""
    if gate.stale:
        return f"The gate's result no longer counts: {gate.stale}. {_newest(gate.run) or 'Run it again.'}"
    unasked = _unasked(gate)
    return f"The gate hasn't checked: {', '.join(unasked)}. {_newest(gate.run) or 'Run it again.'}" if unasked else ""


def _unasked(gate: Gate) -> list[str]:
    """Return the blocking checks that the run didn't include: their level was set after it."""
    looked = {each.check for each in results_of(gate.result)} if gate.result else set()
    return [check for check, level in gate.levels.items() if level == BLOCKING and check not in looked]


def _newest(run: GateRun | None) -> str:
    """Return what to do about a Change's newest run, if that has no results; otherwise nothing."""
    if run is not None and run.is_under_way:
        return "The gate is still running. Publish it when it has ended."
    if run is not None and run.state == _State.FAILED:
        return f"The gate failed: {run.fault} Run it again."
    return ""


def levels_of(rule_sets: Collection[str]) -> dict[str, str]:
    """Return the level of each check for a Change that touches these rule sets: the strictest of all settings."""
    return strictest(rule_sets, set_levels(rule_sets))


def set_levels(rule_sets: Collection[str]) -> dict[tuple[str, str], str]:
    """Return the newest setting for each of these rule sets and each check."""
    found: dict[tuple[str, str], str] = {}
    for batch in batches(sorted(rule_sets)):
        rows = (
            GateSetting.objects.filter(rule_set__in=batch).order_by("pk").values_list("rule_set", "check_name", "level")
        )
        found |= {(rule_set, check): level for rule_set, check, level in rows}
    return found


def strictest(rule_sets: Collection[str], set_for: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Return the level of each check for a Change that touches these rule sets, from the settings of `set_levels`."""
    levels: dict[str, str] = dict(settings.BERTH.gate_checks)
    for (rule_set, check), level in set_for.items():
        if rule_set in rule_sets:
            levels[check] = max(levels.get(check, OFF), level, key=_RANK.__getitem__)
    return levels


def found_of(results: Iterable[Result]) -> dict[str, set[str]]:
    """Return the rule sets that each check's findings concern."""
    return {each.check: {str(name) for one in each.found if (name := one.get("ruleSet"))} for each in results}


def with_found(
    levels: Mapping[str, str], results: Iterable[Result], set_for: Mapping[tuple[str, str], str] | None = None
) -> dict[str, str]:
    """Return the level of each check, including the settings of the rule sets that its findings concern.

    A Change that takes Pods away from a rule set by Assignments needn't touch the rule set itself. `set_for` is the result of
    `set_levels` for them, if it was read before.
    """
    found = found_of(results)
    if set_for is None:
        set_for = set_levels(set().union(*found.values()))
    return {
        check: max((level, *(set_for.get((name, check), OFF) for name in found.get(check, ()))), key=_RANK.__getitem__)
        for check, level in levels.items()
    }


@transaction.atomic
def set_gate_level(
    *,
    rule_set: str,
    check: str,
    level: str,
    by: By,
    reason: str = "",
    seen: int | None = None,
    told: int | None = None,
) -> GateSetting:
    """Set the level of a check for Changes that touch a rule set; OFF leaves it to the installation. A form that is sent twice sets it once.

    `seen` is the newest gate setting when that person looked, `told` one that they were told of since, see `check_not_set_since`.

    Raises:
        OvertakenError: somebody else set it since.
        PublishingError: there is no such check, this account may not set it, or the reason could mislead its readers.
    """
    if not may(by, "policies.add_gatesetting"):
        raise PublishingError([f"{name_of(by)} may not change the gate's checks; an administrator may."])
    if check not in settings.BERTH.gate_checks:
        raise PublishingError([f"There is no check {check}: {', '.join(settings.BERTH.gate_checks)}."])
    check_words(reason)
    locks.take(Lock.SETTINGS)
    before = GateSetting.objects.filter(rule_set=rule_set, check_name=check).first()
    if before and has_just_set(before, by, {"level": level, "reason": reason}):
        return before
    if before:
        check_not_set_since(before, seen, f"Effect of the check {check}: {before.get_level_display()}.", told=told)
    audit.record_event(
        audit.Kind.GATE_SET,
        by=by,
        thing=("RuleSet", rule_set),
        digests=(audit.digest_of([check, before.level]) if before else "", audit.digest_of([check, level])),
        reason=reason,
        more={"check": check, "level": level},
    )
    return GateSetting.objects.create(
        rule_set=rule_set, check_name=check, level=level, reason=reason, set_by=name_of(by), set_at=timezone.now()
    )
