"""Canaries that users request in the admin: one row per run, carried out by a worker, kept with its report."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction

from policies import publishing
from policies.publishing import locks
from policies.publishing.locks import Lock
from scheduler.cluster.client import connect
from scheduler.doctor.canary import Advice, Report, Wish, ended, run
from scheduler.doctor.checkup import configured_verbs
from scheduler.models import CanaryRun

# A run that hasn't ended after this time never will: no worker took it up, or its worker was killed.
LONGEST = timedelta(seconds=120)

KEPT = 50
_UNFINISHED = (CanaryRun.State.ASKED, CanaryRun.State.RUNNING)


class CanaryBusyError(Exception):
    """Another canary is under way."""


@transaction.atomic
def ask(*, by: publishing.By, namespace: str, scheduler_name: str) -> CanaryRun:
    """Record a request for a canary. The caller then sends the task. Two clicks at the same instant, be they of two people, make one.

    Raises:
        CanaryBusyError: another one is under way.
    """
    locks.take(Lock.CANARIES)
    now = datetime.now(UTC)
    if CanaryRun.objects.filter(state__in=_UNFINISHED, asked_at__gt=now - LONGEST).exists():
        raise CanaryBusyError
    kept = CanaryRun.objects.values_list("pk", flat=True)[: KEPT - 1]
    CanaryRun.objects.exclude(pk__in=list(kept)).delete()
    publishing.record_event(publishing.AuditKind.CANARY_ASK, by=by, more={"namespace": namespace})
    return CanaryRun.objects.create(
        asked_by=publishing.name_of(by), asked_at=now, namespace=namespace, scheduler_name=scheduler_name
    )


def give_up(row: CanaryRun) -> None:
    """Record that a requested canary can't be sent to a worker: the request is kept, with this result."""
    report = ended(
        Wish(namespace=row.namespace, scheduler_name=row.scheduler_name),
        "There was no canary: Redis, by which workers are told, can't be reached.",
        Advice("Bring Redis back.", "Then run it again."),
    )
    CanaryRun.objects.filter(pk=row.pk).update(
        state=CanaryRun.State.DONE, ended_at=datetime.now(UTC), report=msgspec.to_builtins(report)
    )


def carry_out(number: UUID, *, client: Any = None) -> None:
    """Carry a run out, once: a task that is delivered again does nothing."""
    mine = CanaryRun.objects.filter(pk=number)
    if not mine.filter(state=CanaryRun.State.ASKED).update(state=CanaryRun.State.RUNNING):
        return
    row = mine.get()
    wish = Wish(namespace=row.namespace, scheduler_name=row.scheduler_name, verbs=configured_verbs())
    report = _broken(wish)
    try:
        client = client or connect()
        report = run(client, wish, on_step=lambda step: _note(number, step))
    finally:
        mine.update(state=CanaryRun.State.DONE, step="", ended_at=datetime.now(UTC), report=msgspec.to_builtins(report))


def _note(number: UUID, step: str) -> None:
    CanaryRun.objects.filter(pk=number).update(step=step)


def _broken(wish: Wish) -> Report:
    """Return the report that a fault of Berth's own ended the run; the worker's log has the fault."""
    advice = Advice("The worker's log says more.", "Run it again; the page Doctor shows the fault.")
    return ended(wish, "A fault of Berth's own ended the canary.", advice)
