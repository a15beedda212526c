"""Makes Notices: of acts, in the order of the ledger's log of AuditEvents, and of ongoing conditions.

Each Notice is written in one transaction with its number, its inbox entries and its deliveries, so that none is lost or duplicated
when a process is killed.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Max, Q

from policies.models import AuditEvent, Change, ChangeEvent
from policies.publishing import said_by
from policies.publishing.standing import AUTHORING
from scheduler.ledger.events import key_in_row
from scheduler.ledger.logs import EVENTS
from scheduler.models import Delivery, InboxEntry, LedgerLeaf, Notice, NoticedCondition, NoticeMark, Webhook
from scheduler.notices import conditions, table
from scheduler.notices.inbox import mark_told_read
from scheduler.webhooks.bodies import write_body

logger = logging.getLogger("berth.notices")

BATCH = 200
_THE_MARK = 1
# Permissions by roles; other authentication backends aren't asked.
_PERMISSIONS = "django.contrib.auth.backends.ModelBackend"
# The most deliveries in one statement.
_ROWS = 500


def note_acts(now: datetime) -> int:
    """Make the Notices of acts that are new in the ledger; return the number of Notices. Safe to run twice at once.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    made = 0
    while True:
        with transaction.atomic():
            mark = _held_mark()
            leaves = list(LedgerLeaf.objects.filter(log=EVENTS, index__gte=mark.next_event).order_by("index")[:BATCH])
            if not leaves:
                return made
            made += _write(mark, _drafts([leaf.row for leaf in leaves]), now)
            mark.next_event = leaves[-1].index + 1
            mark.save()


def note_conditions(now: datetime) -> int:
    """Make the Notices of conditions that have begun; return the number of Notices. Safe to run twice at once.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    made = 0
    for kind, found in conditions.found_now(now).items():
        known = set(NoticedCondition.objects.filter(kind=kind).values_list("key", flat=True))
        # If the list was truncated, the missing conditions may still hold.
        gone = known - found.keys() if len(found) < conditions.MOST else set()
        if gone or found.keys() - known:
            made += _note_changed(kind, found, gone, now)
    return made


@transaction.atomic
def _note_changed(kind: table.Kind, found: conditions.Found, gone: set[str], now: datetime) -> int:
    mark = _held_mark()
    rows = NoticedCondition.objects.filter(kind=kind)
    rows.filter(key__in=gone).delete()
    new = sorted(found.keys() - set(rows.values_list("key", flat=True)))
    NoticedCondition.objects.bulk_create(NoticedCondition(key=key, kind=kind, since=now) for key in new)
    made = _write(mark, [found[key] for key in new], now)
    mark.save()
    return made


def _held_mark() -> NoticeMark:
    """Return the mark, locked until the transaction ends. The first one skips earlier acts."""
    if not NoticeMark.objects.filter(pk=_THE_MARK).update(last_number=F("last_number")):
        last = LedgerLeaf.objects.filter(log=EVENTS).aggregate(last=Max("index"))["last"]
        start = 0 if last is None else last + 1
        NoticeMark.objects.get_or_create(pk=_THE_MARK, defaults={"next_event": start})
        NoticeMark.objects.filter(pk=_THE_MARK).update(last_number=F("last_number"))
    return NoticeMark.objects.get(pk=_THE_MARK)


def _drafts(rows: Sequence[str]) -> list[table.Draft]:
    """Return the Notices of the AuditEvents that the rows of leaves name, in their order."""
    keys = [key for row in rows if (key := key_in_row(row)) is not None]
    events = AuditEvent.objects.filter(kind__in=table.ACTS).in_bulk(keys)
    changes = Change.objects.filter(pk__in={event.change for event in events.values()})
    rolls_back = dict(changes.values_list("pk", "rolls_back_to"))
    drafts = [
        table.of_act(event, _more(event), rolls_back=rolls_back.get(event.change or 0) is not None)
        for event in map(events.get, keys)
        if event is not None
    ]
    return [draft for draft in drafts if draft is not None]


def _more(event: AuditEvent) -> Mapping[str, Any]:
    try:
        return said_by(event).more
    except msgspec.DecodeError as error:
        logger.warning(
            "AuditEvent %s can't be read: a newer version of Berth wrote it, or it is damaged: %s", event.pk, error
        )
        return {}


def _write(mark: NoticeMark, drafts: Sequence[table.Draft], now: datetime) -> int:
    # Locked, so that whoever gives one another format rewrites these deliveries, too.
    active = Webhook.objects.select_for_update().filter(is_active=True).order_by("pk")
    hooks = list(active) if drafts else []
    for draft in drafts:
        mark.last_number += 1
        kind, name = draft.thing
        notice = Notice.objects.create(
            number=mark.last_number, at=draft.at, kind=draft.kind, sentence=draft.sentence, text=draft.text,
            thing_kind=kind, thing_name=name, by=draft.by, link=draft.link,
        )  # fmt: skip
        if draft.reader:
            mark_told_read(draft.reader, draft.thing, now)
        InboxEntry.objects.bulk_create(InboxEntry(notice=notice, user_id=key) for key in _whom(draft))
        Delivery.objects.bulk_create(_deliveries(notice, hooks, now), batch_size=_ROWS)
    return len(drafts)


def _whom(draft: table.Draft) -> list[int]:
    """Return the accounts that a Notice goes to."""
    able = User.objects.filter(is_active=True)
    wanted = Q(username__in=draft.to.names)
    if draft.to.authors and draft.change is not None:
        wanted |= Q(pk__in=_authors(draft.change))
    if draft.to.permission:
        may = User.objects.with_perm(draft.to.permission, backend=_PERMISSIONS)
        wanted |= Q(pk__in=may.values("pk"))
    return list(able.filter(wanted).exclude(username=draft.by).values_list("pk", flat=True))


def _authors(change: int) -> Iterable[int]:
    """Return the accounts that edited a Change, or the Change that it takes back."""
    events = ChangeEvent.objects.filter(act__in=AUTHORING).exclude(by_user=None)
    concerned = events.filter(Q(change=change) | Q(change__expiry=change))
    return set(concerned.values_list("by_user", flat=True))


def _deliveries(notice: Notice, hooks: Iterable[Webhook], now: datetime) -> Iterable[Delivery]:
    for hook in hooks:
        if not hook.kinds or notice.kind in hook.kinds:
            delivery = Delivery(webhook=hook, notice=notice, kind=notice.kind, made_at=now, next_at=now)
            write_body(delivery, hook)
            yield delivery
