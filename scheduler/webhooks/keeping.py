"""Creates, changes, deletes and tests webhooks, and repeats deliveries; each act has its AuditEvent, without secrets."""

import secrets
from collections.abc import Sequence
from datetime import datetime

import msgspec
from django.db import IntegrityError, transaction

from policies.models.audit import digest_of
from policies.publishing import AuditKind, record_event
from policies.publishing.actors import By, name_of
from scheduler.models import Delivery, Webhook
from scheduler.webhooks.bodies import write_again, write_body
from scheduler.webhooks.sealing import seal
from scheduler.webhooks.targets import TargetError, read_url

_TEST_KIND = "test"
_MAX_NAME = 100
_SECRET_BYTES = 32
# The fields of a webhook that users set, and their labels.
_SET = {
    "name": "name",
    "host": "host",
    "sealed_url": "URL",
    "sealed_secret": "secret",
    "kinds": "kinds",
    "format": "format",
    "is_active": "whether it is on",
}


class WebhookError(Exception):
    """The act is impossible; the message says why."""


class Wanted(msgspec.Struct, frozen=True):
    """The requested fields of a webhook. An empty URL keeps the present one."""

    name: str
    url: str
    kinds: Sequence[str]
    format: str = Webhook.Format.JSON
    is_active: bool = True


def make_webhook(wanted: Wanted, *, by: By, now: datetime) -> tuple[Webhook, str]:
    """Create a webhook; return it, and its secret, which is shown once.

    Raises:
        WebhookError: the name is taken, or the URL is invalid.
    """
    secret = _new_secret()
    row = Webhook(
        sealed_url=seal(wanted.url), sealed_secret=seal(secret), made_by=name_of(by), made_at=now
    )  # fmt: skip
    _write(row, wanted)
    _save(row, AuditKind.WEBHOOK_MAKE, by)
    return row, secret


@transaction.atomic
def change_webhook(row: Webhook, wanted: Wanted, *, by: By, expected_digest: str) -> None:
    """Change a webhook. Waiting deliveries go to the new URL, in the new format.

    Args:
        row: the webhook.
        wanted: what it shall be.
        by: who changes it.
        expected_digest: `digest_of_webhook` when that person looked; if it is empty, nothing is compared.

    Raises:
        WebhookError: the name is taken, the URL is invalid, or somebody changed or removed it since that person looked.
    """
    present = _locked(row)
    if expected_digest and digest_of_webhook(present) != expected_digest:
        message = f"Somebody changed {row.name} since you opened this page. Open it again, and make your changes there."
        raise WebhookError(message)
    if wanted.url:
        row.sealed_url = seal(wanted.url)
    _write(row, wanted)
    row.held_until, row.failures = None, 0
    _save(row, AuditKind.WEBHOOK_CHANGE, by)
    if row.format != present.format:
        write_again(row)


@transaction.atomic
def renew_secret(row: Webhook, *, by: By) -> str:
    """Sign with a new secret from now on; return the secret, which is shown once.

    Raises:
        WebhookError: it was removed meanwhile.
    """
    # Read again: saving `row` would undo what others changed since it was read, and make a removed webhook anew.
    present = _locked(row)
    secret = _new_secret()
    present.sealed_secret = seal(secret)
    _save(present, AuditKind.WEBHOOK_SECRET, by)
    return secret


@transaction.atomic
def delete_webhook(row: Webhook, *, by: By, expected_digest: str) -> None:
    """Delete a webhook with its deliveries; waiting ones aren't sent.

    Args:
        row: the webhook.
        by: who deletes it.
        expected_digest: `digest_of_webhook` when that person looked.

    Raises:
        WebhookError: it was removed, or changed, since that person looked.
    """
    present = _locked(row)
    if digest_of_webhook(present) != expected_digest:
        message = f"Somebody changed {row.name} since you opened this page. Look at it again before you remove it."
        raise WebhookError(message)
    _record(AuditKind.WEBHOOK_DELETE, present, by, (digest_of_webhook(present), ""))
    present.delete()


@transaction.atomic
def send_test(row: Webhook, *, by: By, now: datetime) -> Delivery:
    """Queue a test for a webhook.

    Raises:
        WebhookError: it was removed meanwhile.
    """
    row = _locked(row)
    made = Delivery(webhook=row, kind=_TEST_KIND, made_at=now, next_at=now, asked_by=name_of(by))
    write_body(made, row)
    made.save()
    _free(row)
    _record(AuditKind.WEBHOOK_TEST, row, by, (digest_of_webhook(row), digest_of_webhook(row)), delivery=made.pk)
    return made


@transaction.atomic
def send_again(delivery: Delivery, *, by: By, now: datetime) -> Delivery:
    """Queue the same message again, in the webhook's present format, as a new delivery: the first one and its result are kept.

    Raises:
        WebhookError: the webhook was removed meanwhile.
    """
    hook = _locked(delivery.webhook)
    made = Delivery(
        webhook=hook, notice=delivery.notice, kind=delivery.kind, made_at=now, next_at=now, asked_by=name_of(by)
    )
    write_body(made, hook)
    made.save()
    _free(hook)
    same = digest_of_webhook(hook)
    _record(AuditKind.WEBHOOK_AGAIN, hook, by, (same, same), delivery=made.pk, again=delivery.pk)
    return made


def _locked(row: Webhook) -> Webhook:
    """Lock a webhook until the transaction ends, before its deliveries, and read it again.

    Raises:
        WebhookError: it was removed meanwhile.
    """
    present = Webhook.objects.select_for_update().filter(pk=row.pk).first()
    if present is None:
        message = f"Webhook {row.name} was removed meanwhile."
        raise WebhookError(message)
    return present


def _host_of(url: str) -> str:
    """Return the part of a URL that may be shown: the rest may be a secret.

    Raises:
        WebhookError: the URL is no webhook's.
    """
    try:
        return f"{(target := read_url(url)).scheme}://{target.host_header}"
    except TargetError as error:
        raise WebhookError(str(error)) from error


def _write(row: Webhook, wanted: Wanted) -> None:
    if not wanted.name.strip() or len(wanted.name) > _MAX_NAME or not wanted.name.isprintable():
        message = f"A name has from 1 to {_MAX_NAME} characters, none of them unseen."
        raise WebhookError(message)
    row.name, row.kinds, row.format = wanted.name.strip(), sorted(wanted.kinds), wanted.format
    row.is_active = wanted.is_active
    if wanted.url or not row.host:
        row.host = _host_of(wanted.url)


def _save(row: Webhook, kind: AuditKind, by: By) -> None:
    try:
        with transaction.atomic():
            former = Webhook.objects.filter(pk=row.pk).first()
            row.save()
            more = {"changed": _changed(former, row)} if former else {}
            _record(kind, row, by, (digest_of_webhook(former) if former else "", digest_of_webhook(row)), **more)
    except IntegrityError as error:
        message = f"There is a webhook {row.name} already."
        raise WebhookError(message) from error


def _record(kind: AuditKind, row: Webhook, by: By, digests: tuple[str, str], **more: int | list[str]) -> None:
    says = {"host": row.host, "kinds": row.kinds, "format": row.format, "isActive": row.is_active}
    record_event(kind, by=by, thing=("Webhook", row.name), digests=digests, more={**says, **more})


def digest_of_webhook(row: Webhook) -> str:
    """Return the digest of all fields that users set; secrets are digested as they are sealed."""
    return digest_of({name: getattr(row, name) for name in _SET})


def _changed(former: Webhook, row: Webhook) -> list[str]:
    """Return what was changed: for the name its former value, for other fields only their labels."""
    fields = [words for name, words in _SET.items() if getattr(former, name) != getattr(row, name)]
    return [f"name, which was {former.name}" if field == "name" else field for field in fields]


def _free(row: Webhook) -> None:
    """End a webhook's pause after failures: a user wants to see the result now."""
    Webhook.objects.filter(pk=row.pk, failures__gt=0).update(held_until=None)


def _new_secret() -> str:
    return f"whsec_{secrets.token_urlsafe(_SECRET_BYTES)}"
