"""Looking after PriorityClasses: when a look at the cluster is due, that one process does it, and what is kept of it.

A look is due after each publish, when somebody asked, every minute, and soon again while something is unfinished. The
database says all of that, so it doesn't matter how many ticks come, or where, or whether the broker lost some.
"""

import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from policies import publishing
from policies.models import ClusterPriorityClass, PriorityClassLook, Revision
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError
from scheduler.priority_classes.plan import Found, Outcome, apply, plan, read_classes

logger = logging.getLogger("berth.priority_classes")

EVERY_SECONDS = 60.0
# How soon to look again while something is pending, or the API server is away.
RETRY_SECONDS = 1.0
# How soon to try again what the API server refused: rights and the global default may change.
REFUSED_SECONDS = 5.0
# Whoever dies during a look holds up the others for this long.
HELD_SECONDS = 15.0
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)


def look_after_priority_classes() -> bool:
    """Do a look with this process's client if one is due; tell whether one was done."""
    return look(_client())


@lru_cache(maxsize=1)
def _client() -> Client:
    kubeconfig = settings.BERTH.kubeconfig
    return Client.connect(Path(kubeconfig) if kubeconfig else None)


def look(client: Client) -> bool:
    """Bring the cluster's PriorityClasses in line with the Revision, if a look is due; tell whether one was done."""
    holder = _take()
    if holder is None:
        return False
    revision = publishing.current_revision()
    try:
        found = read_classes(client)
    except APIError as error:
        _note_fault(holder, revision.number, str(error))
        return True
    steps = plan(
        revision.priority_classes,
        found,
        withdrawn=publishing.withdrawn_priority_classes(),
        overwrite=set(ClusterPriorityClass.objects.filter(overwrite=True).values_list("name", flat=True)),
    )
    outcomes = apply(steps, client, may_go_on=lambda: _is_still(holder, revision.number))
    _note(holder, revision.number, outcomes)
    return True


def _newest() -> int:
    return Revision.objects.values_list("number", flat=True).first() or 0


def _take() -> str | None:
    """Take the next look, for this process alone; None when none is due, or somebody else is at it."""
    PriorityClassLook.objects.get_or_create(pk=1, defaults={"held_until": _NEVER, "next_at": _NEVER})
    is_due = ~Q(revision=_newest()) | Q(next_at__lte=Now())
    is_free = Q(holder="") | Q(held_until__lt=Now())
    rows = PriorityClassLook.objects.filter(is_due & is_free, pk=1)
    holder = uuid4().hex
    # Nothing is written on most ticks: SQLite has one writer.
    if rows.exists() and rows.update(holder=holder, held_until=Now() + timedelta(seconds=HELD_SECONDS)):
        return holder
    return None


def _is_still(holder: str, number: int) -> bool:
    """Return whether the look is still ours, and still about what is live."""
    return PriorityClassLook.objects.filter(pk=1, holder=holder).exists() and _newest() == number


def _end(holder: str, number: int, *, after_seconds: float, **fields: Any) -> bool:
    """End a look; False when somebody else has it by now."""
    next_at = Now() + timedelta(seconds=after_seconds)
    rows = PriorityClassLook.objects.filter(pk=1, holder=holder)
    return bool(rows.update(holder="", revision=number, next_at=next_at, **fields))


def _note_fault(holder: str, number: int, error: str) -> None:
    if not PriorityClassLook.objects.filter(pk=1, error=error).exists():
        logger.warning("the cluster's PriorityClasses can't be read, Berth goes on trying: %s", error)
    _end(holder, number, after_seconds=RETRY_SECONDS, error=error)


def _note(holder: str, number: int, outcomes: Sequence[Outcome]) -> None:
    """Keep what the cluster has and what came of each class."""
    after_seconds = min(map(_look_again_after, outcomes), default=EVERY_SECONDS)
    with transaction.atomic():
        if not _end(holder, number, after_seconds=after_seconds, looked_at=Now(), error=""):
            return
        kept = [outcome for outcome in outcomes if outcome.found is not None or outcome.step.wanted is not None]
        rows = ClusterPriorityClass.objects.in_bulk([outcome.step.name for outcome in kept])
        ClusterPriorityClass.objects.exclude(name__in=[outcome.step.name for outcome in kept]).delete()
        for outcome in kept:
            _keep(outcome, rows.get(outcome.step.name))


def _look_again_after(outcome: Outcome) -> float:
    if outcome.is_finished:
        return EVERY_SECONDS
    return REFUSED_SECONDS if outcome.state == "refused" else RETRY_SECONDS


def _keep(outcome: Outcome, row: ClusterPriorityClass | None) -> None:
    version = outcome.step.wanted.version if outcome.step.wanted else 0
    fields = {"state": outcome.state, "message": outcome.message, "version": version} | _facts(outcome.found)
    if row is None or (row.state, row.version) != (outcome.state, version):
        fields["changed_at"] = Now()
        if outcome.step.wanted is not None:
            words = f"{outcome.state}: {outcome.message}" if outcome.message else outcome.state
            logger.info("PriorityClass %s is %s", outcome.step.name, words)
    if outcome.state == "applied":
        fields["overwrite"] = False
    ClusterPriorityClass.objects.update_or_create(name=outcome.step.name, defaults=fields | {"looked_at": Now()})


def _facts(found: Found | None) -> dict[str, Any]:
    if found is None:
        return {"present": False, "managed": False, "made_by_berth": False}
    return {
        "present": True,
        "value": found.value,
        "global_default": found.global_default,
        "preemption_policy": found.preemption_policy,
        "description": found.description,
        "managed": found.is_managed,
        "made_by_berth": found.is_made_by_berth,
    }
