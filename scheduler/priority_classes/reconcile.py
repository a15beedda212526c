"""Reconciles PriorityClasses: decides when a look at the cluster is due, lets one process do it, and stores the result.

A look is due after each publish, when somebody requested one, every minute, and soon again while something is unfinished. All
of that is in the database, so it doesn't matter how many ticks come, or where, or whether the broker lost some.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from django.db import transaction
from django.db.models import Case, Q, QuerySet, When
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Now

from policies import publishing
from policies.models import ClusterPriorityClass, PriorityClassLook, PriorityClassReplacement, Revision
from scheduler.cluster.client import Client, connect
from scheduler.cluster.errors import APIError
from scheduler.cluster.texts import stored
from scheduler.priority_classes.execute import Outcome, apply, read_classes
from scheduler.priority_classes.plan import Act, Found, Replacement, Step, ending, plan
from scheduler.priority_classes.users import Counter

logger = logging.getLogger("berth.priority_classes")

EVERY_SECONDS = 60.0
# The time to the next look while something is pending, or the API server is unavailable.
RETRY_SECONDS = 1.0
# The time until a step that the API server refused is tried again: rights and the global default may change.
_REFUSED_SECONDS = 5.0
# A process that dies during a look blocks the others for this long: longer than a request may take. Renewed before each change.
_HELD_SECONDS = 8.0
_COUNTER = Counter()
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def look_after_priority_classes() -> bool:
    """Look with this process's client if a look is due. Return whether it was. Also count the users of classes if that is due."""
    looked = look(_client())
    _COUNTER.tick(_client())
    return looked


@lru_cache(maxsize=1)
def _client() -> Client:
    return connect()


def look(client: Client) -> bool:
    """Bring the cluster's PriorityClasses in line with the Revision, if a look is due; return whether one was done."""
    taken = _take()
    if taken is None:
        return False
    revision = publishing.current_revision()
    try:
        found = read_classes(client)
    except APIError as error:
        _note_fault(taken, revision.number, str(error))
        return True
    steps = plan(
        revision.priority_classes,
        found,
        withdrawn=publishing.withdrawn_priority_classes(),
        overwrite=_to_put_back(found),
        under_way=[_begun(row) for row in _under_way()],
    )
    outcomes = apply(steps, client, journal=_write_down, may_go_on=lambda: _is_still(taken, revision.number))
    _note(taken, revision.number, outcomes)
    return True


def _to_put_back(found: Sequence[Found]) -> set[str]:
    """Return the classes to put back: those that are in the cluster as they were shown to the person who asked."""
    there = {each.name: each for each in found}
    asked = ClusterPriorityClass.objects.filter(overwrite=True)
    return {row.name for row in asked if not _has_moved(row, there.get(row.name))}


def _has_moved(row: ClusterPriorityClass, found: Found | None) -> bool:
    """Return whether others changed a class in the cluster since it was last looked at."""
    return any(getattr(row, name) != value for name, value in _facts(found).items())


def _newest() -> int:
    return Revision.objects.values_list("number", flat=True).first() or 0


class _Taken(NamedTuple):
    """A look that this process holds: its name, and the number of requests at its begin."""

    holder: str
    asked: int


def _take() -> _Taken | None:
    """Take the next look for this process alone; None if none is due, or another process holds it."""
    PriorityClassLook.objects.get_or_create(pk=1, defaults={"held_until": _NEVER, "next_at": _NEVER})
    is_due = ~Q(revision=_newest()) | Q(next_at__lte=Now())
    is_free = Q(holder="") | Q(held_until__lt=Now())
    rows = PriorityClassLook.objects.filter(is_due & is_free, pk=1)
    holder = uuid4().hex
    # Most ticks write nothing, because SQLite has one writer.
    if rows.exists() and rows.update(holder=holder, held_until=_held_until()):
        return _Taken(holder, PriorityClassLook.objects.values_list("asked", flat=True).get(pk=1))
    return None


def _held_until() -> CombinedExpression:
    return Now() + timedelta(seconds=_HELD_SECONDS)


def _is_still(taken: _Taken, number: int) -> bool:
    """Renew the hold on the look; return False if another process holds it now, or another Revision is live."""
    rows = PriorityClassLook.objects.filter(pk=1, holder=taken.holder)
    return bool(rows.update(held_until=_held_until())) and _newest() == number


def _end(taken: _Taken, number: int, *, after_seconds: float, **fields: Any) -> bool:
    """End a look; return False if another process holds it now. A request for a look that arrived meanwhile makes one due at once."""
    rows = PriorityClassLook.objects.filter(pk=1, holder=taken.holder)
    later = Case(When(asked=taken.asked, then=Now() + timedelta(seconds=after_seconds)), default=Now())
    return bool(rows.update(holder="", revision=number, next_at=later, **fields))


def _note_fault(taken: _Taken, number: int, error: str) -> None:
    if not PriorityClassLook.objects.filter(pk=1, error=error).exists():
        logger.warning("the cluster's PriorityClasses can't be read, Berth will try again: %s", error)
    _end(taken, number, after_seconds=RETRY_SECONDS, error=error)


def _under_way() -> QuerySet[PriorityClassReplacement]:
    return PriorityClassReplacement.objects.filter(state=PriorityClassReplacement.State.UNDER_WAY)


def _begun(row: PriorityClassReplacement) -> Replacement:
    former = msgspec.json.decode(row.former)
    return Replacement(name=row.name, uid=row.uid, value_before=row.value_before, former=former)


def _write_down(step: Step, begun: Replacement) -> None:
    """Record that a class is about to be deleted and created again. Committed before anything is deleted."""
    if step.wanted is None:
        raise AssertionError(step)
    fields = {
        "version": step.wanted.version,
        "value": step.wanted.value,
        "former": msgspec.json.encode(begun.former).decode(),
    }
    with transaction.atomic():
        if _under_way().filter(name=begun.name, uid=begun.uid).update(**fields):
            return  # an earlier process, since killed, began it; the class, or the Revision, may have changed since
        _finish(_under_way().filter(name=begun.name), "given up", "Another class of this name was made meanwhile.")
        PriorityClassReplacement.objects.create(
            name=begun.name,
            uid=begun.uid,
            value_before=begun.value_before,
            started_at=Now(),
            **fields,
        )
    logger.info("PriorityClass %s: %s", begun.name, step.message)


def _finish(rows: QuerySet[PriorityClassReplacement], state: str, message: str) -> None:
    rows.update(state=state, message=stored(message, longest=None), ended_at=Now())


def _end_replacements(outcomes: Sequence[Outcome]) -> None:
    """Record how replacements ended that aren't under way any more."""
    came = {outcome.step.name: outcome for outcome in outcomes}
    for row in _under_way():
        outcome = came.get(row.name)
        ended = ending(_begun(row), outcome.step if outcome else None, outcome.found if outcome else None)
        if ended is not None:
            _finish(_under_way().filter(pk=row.pk), *ended)
            logger.info("PriorityClass %s: its replacement is %s", row.name, ": ".join(filter(None, ended)))


def _note(taken: _Taken, number: int, outcomes: Sequence[Outcome]) -> None:
    """Store the cluster's classes and the result for each."""
    after_seconds = min(map(_look_again_after, outcomes), default=EVERY_SECONDS)
    with transaction.atomic():
        if not _end(taken, number, after_seconds=after_seconds, looked_at=Now(), error=""):
            return
        _end_replacements(outcomes)
        kept = [outcome for outcome in outcomes if outcome.found is not None or outcome.step.wanted is not None]
        rows = ClusterPriorityClass.objects.in_bulk([outcome.step.name for outcome in kept])
        ClusterPriorityClass.objects.exclude(name__in=[outcome.step.name for outcome in kept]).delete()
        for outcome in kept:
            _keep(outcome, rows.get(outcome.step.name))


def _look_again_after(outcome: Outcome) -> float:
    if outcome.is_finished:
        return EVERY_SECONDS
    is_missing = outcome.found is None and outcome.step.act is not Act.CREATE
    return _REFUSED_SECONDS if outcome.state == "refused" and not is_missing else RETRY_SECONDS


def _keep(outcome: Outcome, row: ClusterPriorityClass | None) -> None:
    version = outcome.step.wanted.version if outcome.step.wanted else 0
    message = stored(_message(outcome, row if row is not None and row.version == version else None), longest=None)
    fields = {"state": outcome.state, "message": message, "version": version} | _facts(outcome.found)
    if row is None or (row.state, row.version) != (outcome.state, version):
        fields["changed_at"] = Now()
        if outcome.step.wanted is not None:
            words = f"{outcome.state}: {message}" if message else outcome.state
            logger.info("PriorityClass %s is %s", outcome.step.name, words)
    # What came to the cluster since somebody asked isn't overwritten unseen, neither now nor by a later look.
    if _ends_request(outcome):
        fields["overwrite"] = False
    elif row is not None and row.overwrite and _has_moved(row, outcome.found):
        logger.info("PriorityClass %s isn't put back: it was changed again after somebody asked", outcome.step.name)
        fields["overwrite"] = False
    ClusterPriorityClass.objects.update_or_create(name=outcome.step.name, defaults=fields | {"looked_at": Now()})


def _ends_request(outcome: Outcome) -> bool:
    """Return whether a request to put a class back is over: it is for one try, and for a class that Berth looks after."""
    is_tried = outcome.state == "applied" or (outcome.state == "refused" and outcome.step.act is Act.REPLACE)
    return is_tried or outcome.step.wanted is None or outcome.step.act in {Act.FOREIGN, Act.CONFLICT}


def _message(outcome: Outcome, row: ClusterPriorityClass | None) -> str:
    """Return the message about a class. The message that others deleted it stays until there is another one."""
    step = outcome.step
    if row is None or row.state != outcome.state:
        return outcome.message
    if step.act is Act.NOTHING:
        return row.message
    if step.act is Act.CREATE and step.replacement is None and row.present:
        return f"Others deleted it; Berth made it again at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC."
    return outcome.message


def _facts(found: Found | None) -> dict[str, Any]:
    if found is None:
        return {"present": False, "managed": False, "made_by_berth": False}
    return {
        "present": True,
        "value": found.value,
        "global_default": found.global_default,
        "preemption_policy": found.preemption_policy,
        "description": stored(found.description, longest=None),
        "managed": found.is_managed,
        "made_by_berth": found.is_made_by_berth,
    }
