"""The bodies of deliveries, in the format that their webhook has now."""

from django.conf import settings

from scheduler.models import Delivery, Notice, Webhook
from scheduler.webhooks.formats import Payload, body_of

# The most deliveries in one statement.
_ROWS = 500


def write_body(delivery: Delivery, hook: Webhook) -> None:
    """Set a delivery's body: its Notice, or its test, in the webhook's format."""
    payload = _of_notice(delivery.notice) if delivery.notice else _of_test(delivery, hook)
    delivery.body = body_of(payload, hook.format)


def write_again(hook: Webhook) -> None:
    """Write the bodies of waiting deliveries anew: the webhook's receiver understands only its present format."""
    rows = list(hook.deliveries.filter(state=Delivery.State.WAITING).select_related("notice"))
    for row in rows:
        write_body(row, hook)
    Delivery.objects.bulk_update(rows, ["body"], batch_size=_ROWS)


def _of_notice(notice: Notice) -> Payload:
    return Payload(
        number=notice.number,
        kind=notice.kind,
        at=notice.at,
        sentence=notice.sentence,
        text=notice.text,
        thing={"kind": notice.thing_kind, "name": notice.thing_name},
        by=notice.by,
        link=_absolute(notice.link),
    )


def _of_test(delivery: Delivery, hook: Webhook) -> Payload:
    by = delivery.asked_by
    return Payload(
        number=0, kind=delivery.kind, at=delivery.made_at, sentence=f"{by} tests the webhook {hook.name}", by=by
    )


def _absolute(path: str) -> str:
    # An origin with * stands for many, and can't be linked to.
    origins = [origin for origin in settings.BERTH.trusted_origins if "*" not in origin]
    return f"{origins[0]}{path}" if origins and path else path
