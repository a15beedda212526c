"""AuditEvents: what people, tokens, commands and the clock did."""

import hashlib
import secrets
import threading
import uuid
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec
from django.db import models
from django.db.models import Q

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class _Clock:
    """The time of ids in this process: strictly increasing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def next(self, now: datetime) -> int:
        with self._lock:
            self._last = max(self._last + 1, (now - _EPOCH) // _MICROSECOND)
            return self._last


_clock = _Clock()


def time_ordered_id(now: datetime) -> uuid.UUID:
    """Return a new id that sorts by time: UUID version 7, with microseconds after its milliseconds (RFC 9562, 6.2)."""
    return _id_at(_clock.next(now), secrets.randbits(62))


def first_id_at(at: datetime) -> uuid.UUID:
    """Return the smallest id of a time: later ids are greater or equal."""
    return _id_at((at - _EPOCH) // _MICROSECOND, 0)


def time_of_id(key: uuid.UUID) -> datetime:
    """Return when an id was made, to the microsecond."""
    milliseconds, rest = key.int >> 80, (key.int >> 64) & 0xFFF
    return _EPOCH + (milliseconds * 1000 + rest) * _MICROSECOND


def _id_at(microseconds: int, chance: int) -> uuid.UUID:
    milliseconds, rest = divmod(max(microseconds, 0), 1000)
    return uuid.UUID(int=(milliseconds & (2**48 - 1)) << 80 | 7 << 76 | rest << 64 | 0b10 << 62 | chance)


def digest_of(values: object) -> str:
    """Return the SHA-256 of values of JSON, in hex, whatever their order."""
    return hashlib.sha256(msgspec.json.encode(values, order="sorted")).hexdigest()


class Kind(StrEnum):
    """The kinds of acts besides those on a Change, whose kinds are `change.` and a ChangeEvent's act."""

    GATE_ASK = "gate.ask"
    GATE_SET = "gate.set"
    BACKTEST_START = "backtest.start"
    BACKTEST_CANCEL = "backtest.cancel"
    REVIEW_SET = "review.set"
    PAUSE = "pause"
    RESUME = "resume"
    EXEMPT = "exempt"
    EXEMPTION_END = "exemption.end"
    GO_BACK = "go-back"
    ROLL_BACK = "roll-back"
    ADOPT = "adopt"
    ARCHIVE = "archive"
    PUT_BACK = "put-back"
    EXPORT = "export"
    CLAIM = "claim"
    CANARY_ASK = "canary.ask"
    WAKE = "wake"
    VERIFY = "verify"
    LOG_IN = "login"
    LOG_IN_FAILED = "login.failed"
    LOG_OUT = "logout"
    LOCK_OUT = "lockout"
    SESSION_END = "session.end"
    ACCOUNT_MAKE = "account.make"
    ACCOUNT_CHANGE = "account.change"
    ACCOUNT_PASSWORD = "account.password"  # noqa: S105 - a kind of act
    ACCOUNT_DELETE = "account.delete"
    ROLE_MAKE = "role.make"
    ROLE_CHANGE = "role.change"
    ROLE_DELETE = "role.delete"
    TOKEN_MAKE = "token.make"  # noqa: S105 - a kind of act
    TOKEN_REVOKE = "token.revoke"  # noqa: S105 - a kind of act
    TOKEN_REFUSE = "token.refuse"  # noqa: S105 - a kind of act
    HOLD_MAKE = "hold.make"
    HOLD_LIFT = "hold.lift"
    WEBHOOK_MAKE = "webhook.make"
    WEBHOOK_CHANGE = "webhook.change"
    WEBHOOK_SECRET = "webhook.secret"  # noqa: S105 - a kind of act
    WEBHOOK_DELETE = "webhook.delete"
    WEBHOOK_TEST = "webhook.test"
    WEBHOOK_AGAIN = "webhook.again"
    PRUNE = "prune"
    PRUNE_BEGIN = "prune.begin"
    LOSS = "loss"
    LOSS_BEGIN = "loss.begin"
    PROCESS_START = "process.start"


class AuditEvent(models.Model):
    """One act. The database refuses changes and deletion.

    `body` is its content as canonical JSON, to the byte; the columns repeat the members by which events are searched.
    `policies.publishing.audit` writes both in the transaction of the act.
    """

    id = models.UUIDField(primary_key=True, editable=False, help_text="Sorts by time.")
    at = models.DateTimeField()
    kind = models.CharField(max_length=40, help_text="What was done, such as change.publish.")
    by = models.CharField(max_length=150, blank=True, help_text="Who, as text that outlives the account.")
    via = models.CharField(
        max_length=150, blank=True, default="", help_text="What acted on that person's behalf: a token, the schedule."
    )
    door = models.CharField(max_length=10, help_text="admin, rest, command, beat or process.")
    address = models.CharField(max_length=200, blank=True, default="")
    thing_kind = models.CharField(
        max_length=40, blank=True, default="", help_text="The kind of the object that it was done to."
    )
    thing_name = models.TextField(blank=True, default="")
    change = models.BigIntegerField(null=True, blank=True, help_text="The number of the Change, if there is one.")
    revision = models.BigIntegerField(null=True, blank=True, help_text="The number of the Revision that it made.")
    before = models.CharField(max_length=64, blank=True, default="", help_text="Digest of the state before.")
    after = models.CharField(max_length=64, blank=True, default="", help_text="Digest of the state after.")
    reason = models.TextField(blank=True, default="")
    request_id = models.CharField(max_length=64, blank=True, default="")
    body = models.BinaryField(help_text="The exact bytes of the event: JSON with the number of its schema.")

    class Meta:
        ordering = ["-id"]
        default_permissions = ("view",)
        permissions = [("see_addresses", "Can see from which addresses people came")]
        constraints = [
            models.CheckConstraint(
                condition=Q(door__in=["admin", "rest", "command", "beat", "process"]), name="known_door"
            )
        ]
        indexes = [
            models.Index(fields=["kind", "-id"], name="events_by_kind"),
            models.Index(fields=["by", "-id"], name="events_by_person"),
            models.Index(fields=["door", "-id"], name="events_by_door"),
            models.Index(fields=["thing_kind", "thing_name", "-id"], name="events_by_thing"),
            models.Index(fields=["change", "-id"], name="events_by_change", condition=Q(change__isnull=False)),
            models.Index(fields=["request_id", "-id"], name="events_by_request"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} by {self.by or 'nobody known'} at {self.at:%Y-%m-%d %H:%M:%S} UTC"
