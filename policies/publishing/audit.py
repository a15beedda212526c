"""AuditEvents: each act writes one, in its own transaction. Rows are only added."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from django.utils import timezone

from policies.models import AuditEvent, Change, ChangeEvent, Revision
from policies.models.audit import Kind, digest_of, time_of_id, time_ordered_id
from policies.origin import Door, current_origin
from policies.publishing.actors import CLOCK, By, OnBehalf, name_of

__all__ = [
    "Kind",
    "Said",
    "digest_of",
    "is_as_written",
    "more_of",
    "record_act",
    "record_event",
    "record_single",
    "said_by",
]

# The version of `body`; it changes when the meaning of a member changes.
SCHEMA: Final = 1
_MAX_NAME = 150


class Said(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of an AuditEvent's body.

    Attributes:
        schema: the version of this form.
        id: the id of the row.
        at: when, in UTC.
        kind: what was done.
        by: who did it; empty where that isn't known.
        via: the token or command that acted on that person's behalf.
        door: admin, rest, command, beat or process.
        address: the client's address.
        thing_kind: the kind of the thing concerned.
        thing_name: the name of that thing.
        change: the number of the Change.
        revision: the number of the Revision that it made.
        before: digest of the content before.
        after: digest of the content after.
        reason: why, in that person's words.
        request_id: the id of the request that did it.
        more: further members for this kind of act.
    """

    id: str
    at: datetime
    kind: str
    schema: int = SCHEMA
    by: str = ""
    via: str = ""
    door: str = ""
    address: str = ""
    thing_kind: str = ""
    thing_name: str = ""
    change: int | None = None
    revision: int | None = None
    before: str = ""
    after: str = ""
    reason: str = ""
    request_id: str = ""
    more: dict[str, Any] = {}


_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(Said).decode
_COLUMNS = tuple(name for name in Said.__struct_fields__ if name not in {"schema", "id", "at", "more"})


def record_event(
    kind: str,
    *,
    by: By,
    thing: tuple[str, str] = ("", ""),
    change: int | None = None,
    revision: int | None = None,
    digests: tuple[str, str] = ("", ""),
    reason: str = "",
    more: Mapping[str, Any] | None = None,
) -> AuditEvent:
    """Record an act. Called within its transaction, so that neither exists without the other.

    Args:
        kind: a Kind, or `change.` and the act on a Change.
        by: who does it; empty where that isn't known.
        thing: kind and name of the thing concerned.
        change: the number of the Change.
        revision: the number of the Revision that it makes.
        digests: of the content before, and of the content after.
        reason: why, in that person's words.
        more: further members: values of JSON.
    """
    origin = current_origin()
    key = time_ordered_id(timezone.now())
    said = Said(
        id=str(key),
        at=time_of_id(key),
        kind=str(kind),
        by=name_of(by)[:_MAX_NAME],
        via=by.via if isinstance(by, OnBehalf) else origin.via,
        door=str(origin.door) or _door_of(by),
        address=origin.address,
        thing_kind=str(thing[0]),
        thing_name=thing[1],
        change=change,
        revision=revision,
        before=digests[0],
        after=digests[1],
        reason=reason,
        request_id=origin.request_id,
        more=dict(more or {}),
    )
    columns = {name: getattr(said, name) for name in _COLUMNS}
    return AuditEvent.objects.create(id=key, at=said.at, **columns, body=_encode(said))


def record_act(
    change: Change, act: ChangeEvent.Act, by: By, text: str, *, before: str, more: Mapping[str, Any]
) -> None:
    """Record an act on a Change. Publishing makes a Revision: there, the digests of Revisions are before and after."""
    made = change.revision if act in (ChangeEvent.Act.PUBLISH, ChangeEvent.Act.URGENT) else None
    record_event(
        f"change.{act}",
        by=by,
        thing=("Change", str(change.pk)),
        change=change.pk,
        revision=made.number if made else None,
        digests=(before, made.digest if made else change.digest),
        reason=text,
        more={"title": change.title, **more},
    )


def record_single(
    kind: Kind,
    thing: tuple[str, str],
    change: Change,
    made: Revision | None,
    *,
    by: By,
    reason: str,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Record a single act that goes live by a Change of its own: as a Revision at once, or after the Change is approved."""
    record_event(
        kind,
        by=by,
        thing=thing,
        change=change.pk,
        revision=made.number if made else None,
        digests=(_digest_before(made), made.digest) if made else ("", change.digest),
        reason=reason,
        more=more,
    )


def _digest_before(made: Revision) -> str:
    """Return the digest of the Revision that this one replaced."""
    former = Revision.objects.filter(number__lt=made.number).order_by("-number")
    return former.values_list("digest", flat=True).first() or ""


def said_by(row: AuditEvent) -> Said:
    """Return the content of an AuditEvent.

    Raises:
        msgspec.DecodeError: a newer Berth wrote it, or it was damaged.
    """
    try:
        return _decode(bytes(row.body))
    except (RecursionError, UnicodeDecodeError) as error:
        message = "it is nested too deeply" if isinstance(error, RecursionError) else "it isn't UTF-8"
        raise msgspec.DecodeError(message) from error


def more_of(row: AuditEvent) -> dict[str, Any]:
    """Return the further members of an AuditEvent; none if it can't be read, a fault that verifying the log of events reports."""
    try:
        return said_by(row).more
    except msgspec.DecodeError:
        return {}


def is_as_written(row: AuditEvent) -> bool:
    """Return whether a row's columns agree with its body, which is authoritative."""
    try:
        said = said_by(row)
    except msgspec.DecodeError:
        return False
    same = all(getattr(said, name) == getattr(row, name) for name in _COLUMNS)
    return same and said.id == str(row.id) and said.at == row.at


def _door_of(by: By) -> str:
    """Return the door of somebody, where no request or task has set it."""
    if by == CLOCK:
        return Door.BEAT
    return Door.COMMAND if isinstance(by, str) and by else Door.PROCESS
