"""Sends waiting deliveries: rows are the queue, so nothing is lost if a process is killed; a delivery may be sent twice.

One sender at a time takes a webhook, and sends its deliveries in order. After a failure the webhook pauses, and
others continue.
"""

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta

import msgspec
from django.conf import settings
from django.db import connection, transaction
from django.db.models import F, Min, Q, QuerySet
from django.utils import timezone

from scheduler.metrics import WEBHOOK_ATTEMPTS
from scheduler.models import Delivery, Webhook
from scheduler.webhooks import signing
from scheduler.webhooks.pace import rest_after, retry_after
from scheduler.webhooks.sealing import SealError, unseal
from scheduler.webhooks.sending import Answer, post
from scheduler.webhooks.targets import TargetError, networks_of, read_url, resolve

logger = logging.getLogger("berth.webhooks")

# The most webhooks that are sent to at once.
AT_ONCE = 8
# A run starts no delivery after this time.
RUN_SECONDS = 10.0
# Looking up a name has its own time-out, which Berth doesn't set.
_LOOK_UP = timedelta(seconds=60)
# Nothing waits for longer than an hour at a time.
_SET_BACK = timedelta(hours=2)
_MAX_SAID = 1_000


class _Taken(msgspec.Struct, frozen=True):
    """A delivery that only this process sends until the lease of its webhook ends."""

    row: Delivery
    hook: Webhook
    until: datetime


def deliver(*, now: Callable[[], datetime] = timezone.now) -> int:
    """Send due deliveries; return the number of attempts. Safe to run twice at once.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    ends, attempts = time.monotonic() + RUN_SECONDS, 0
    while time.monotonic() < ends and (taken := _take(now())):
        with ThreadPoolExecutor(max_workers=AT_ONCE, thread_name_prefix="webhook") as pool:
            # The threads don't use the database.
            answers = list(pool.map(_send, taken))
        for each, answer in zip(taken, answers, strict=True):
            _note(each, answer, now())
        attempts += len(taken)
    return attempts


def _due(now: datetime) -> QuerySet[Delivery]:
    rows = Delivery.objects.filter(_past("next_at", now), state=Delivery.State.WAITING, webhook__is_active=True)
    return rows.filter(Q(webhook__held_until=None) | _past("webhook__held_until", now))


def _past(field: str, now: datetime) -> Q:
    """Return the condition that a time is past, or so far ahead that it was written by a clock that was set back since."""
    return Q((f"{field}__lte", now)) | Q((f"{field}__gt", now + _SET_BACK))


def _take(now: datetime) -> Sequence[_Taken]:
    """Take the oldest delivery of each free webhook."""
    found = _due(now).order_by().values("webhook").annotate(first=Min("pk")).order_by("first")[:AT_ONCE]
    keys = [each["webhook"] for each in found]
    if not keys:
        return []
    until = now + timedelta(seconds=settings.BERTH.webhook_seconds) + _LOOK_UP
    with transaction.atomic():
        hooks = Webhook.objects.filter(pk__in=keys)
        if connection.features.has_select_for_update_skip_locked:
            hooks = hooks.select_for_update(skip_locked=True)
        return list(_taken(hooks.order_by("pk"), now, until))


def _taken(hooks: Iterable[Webhook], now: datetime, until: datetime) -> Iterable[_Taken]:
    for hook in hooks:
        # Queried again under the lock: another process may have taken the first result.
        row = _due(now).filter(webhook=hook).order_by("pk").first()
        free = Q(held_until=None) | _past("held_until", now)
        if row is None or not Webhook.objects.filter(free, pk=hook.pk).update(held_until=until):
            continue
        Delivery.objects.filter(pk=row.pk).update(next_at=until, tried_at=now, attempts=F("attempts") + 1)
        row.attempts += 1
        yield _Taken(row, hook, until)


def _send(taken: _Taken) -> Answer:
    row, hook = taken.row, taken.hook
    try:
        target = read_url(unseal(hook.sealed_url))
        secret = unseal(hook.sealed_secret)
        addresses = resolve(target, networks_of(settings.BERTH.webhook_allow))
    except (SealError, TargetError) as error:
        return Answer(None, str(error))
    body = row.body.encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Berth",
        "Berth-Delivery": str(row.pk),
        "Berth-Notice": str(row.notice_id or 0),
        "Berth-Kind": row.kind,
        signing.HEADER: signing.signature(secret, int(time.time()), body),
    }
    settled = settings.BERTH
    return post(target, addresses, body, headers, seconds=settled.webhook_seconds, ca_file=settled.webhook_ca_file)


def _note(taken: _Taken, answer: Answer, now: datetime) -> None:
    """Record the result of an attempt, and the time of the next one; nothing where another process has taken the delivery."""
    row, hook = taken.row, taken.hook
    said = answer.said[:_MAX_SAID]
    outcome = "delivered" if answer.is_good else "failed"
    WEBHOOK_ATTEMPTS.labels(str(hook.pk), outcome).inc()
    with transaction.atomic():
        if answer.is_good:
            state, after, rest, failures = Delivery.State.DELIVERED, None, None, 0
        else:
            after, failures = retry_after(row.attempts, random.random(), answer.again_seconds), hook.failures + 1  # noqa: S311 - no secret
            state = Delivery.State.FAILED if after is None else Delivery.State.WAITING
            rest = now + rest_after(failures, random.random(), answer.again_seconds)  # noqa: S311 - as above
            logger.warning(
                "webhook %s: delivery %d failed, attempt %d: %s", hook.name, row.pk, row.attempts, answer.why
            )
        # First, as everywhere: whoever takes a delivery, or removes a webhook, locks the webhook before its deliveries.
        Webhook.objects.select_for_update().filter(pk=hook.pk).first()
        mine = Delivery.objects.filter(pk=row.pk, attempts=row.attempts)
        # What was sent, although the webhook got another format meanwhile; what is tried again is sent in that.
        body = F("body") if state == Delivery.State.WAITING else row.body
        next_at = now + (after or timedelta())
        if not mine.update(state=state, status=answer.status, said=said, next_at=next_at, body=body):
            return  # its lease ended while this process stood still: another has sent it, and holds the webhook
        # Whoever changes the webhook, or sends by hand after failures, ends the lease: this result is of what was before.
        Webhook.objects.filter(pk=hook.pk, held_until=taken.until).update(
            held_until=rest, failures=failures, said="" if answer.is_good else answer.why[:_MAX_SAID]
        )
