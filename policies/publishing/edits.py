"""One edit of one thing, as forms make it: what a form begins with, and putting what it holds into a Change."""

from collections.abc import Collection, Mapping

import msgspec
from django.db import transaction
from django.db.models import QuerySet

from policies import checking, compiler, wording
from policies.engine import ruleset as engine
from policies.engine.errors import Fault
from policies.models import Change, ChangeEdit, RevisionPart
from policies.publishing import lifecycle
from policies.publishing.actors import By
from policies.publishing.changes import edit_change, open_change
from policies.publishing.contents import Edit, is_same
from policies.publishing.errors import OvertakenError
from policies.publishing.parts import Key, Kind, Value
from policies.publishing.revisions import current_revision, lock_revisions, values_of
from policies.publishing.standing import edit_of


class Found(msgspec.Struct, frozen=True):
    """What there is of a thing: in a Change, where that edits it, else live.

    Attributes:
        value: its content; None where there is none.
        by: whose it is, and since when, in words; empty where there is none.
    """

    value: Value | None = None
    by: str = ""


def found_in(change: Change | None, key: Key) -> Found:
    """Return what there is of a thing for whoever edits it in this Change, or in a new one."""
    row = change.edits.filter(kind=key[0], name=key[1]).first() if change else None
    if row is not None:
        return Found(edit_of(row).value, f"{row.author} edited it in {change} at {row.edited_at:%Y-%m-%d %H:%M:%S} UTC")
    value = values_of(current_revision()).get(key)
    # Not the live Revision, which may have come by something else.
    held = RevisionPart.objects.filter(kind=key[0], name=key[1], until=None).select_related("since")
    part = held.first() if value is not None else None
    by = f"{part.since} by {part.since.made_by} made it live" if part else f"{key[1]} isn't live any more"
    return Found(value, by)


def misfitting_params(change: Change | None, value: Value) -> list[Fault]:
    """Return what is wrong with an Assignment's params for the rule set that whoever edits it in this Change finds.

    Of a rule set that isn't there nothing can be said: it may be put into the Change later.
    """
    if not isinstance(value, engine.Assignment) or not value.params:
        return []
    found = found_in(change, (Kind.RULE_SET, value.rule_set)).value
    return checking.params_faults(value, found) if isinstance(found, engine.RuleSet) else []


def content_digest(value: Value | None) -> str:
    """Return what names a content, whichever version it is or gets; empty for none."""
    if value is None:
        return ""
    has_version = isinstance(value, engine.RuleSet | engine.PriorityClass)
    return compiler.digest_of(msgspec.structs.replace(value, version=0) if has_version else value)


def seen_of(change: Change | None, key: Key) -> str:
    """Return what a form that is loaded now carries along: digests of what it begins with, and of what is live; whose edit that is."""
    digests = (content_digest(found_in(each, key).value) for each in (change, None))
    return " ".join((*digests, str(change.pk) if change else ""))


def overtaken(change: Change | None, key: Key, wanted: Value | None, seen: str) -> list[str]:
    """Return what somebody else has made of a thing since a form was loaded, in words; nothing where nobody did.

    Args:
        change: into which it is to go; None for a new one.
        key: what is edited.
        wanted: what is to become of it.
        seen: `seen_of` when the form was loaded.
    """
    now = found_in(change, key)
    began, live, number = [*seen.split(" "), "", ""][:3]
    # Another Change than the form's has the thing as it is live, unless somebody edits it there.
    is_another = change is None or str(change.pk) != number
    if content_digest(now.value) in ({began, live} if is_another else {began}) or is_same(now.value, wanted):
        return []
    said = f"Somebody was faster: {now.by}, after you opened this."
    return [said, *(f"Theirs, compared with what is here: {line}." for line in wording.part_changes(wanted, now.value))]


def check_seen(expected: Mapping[Key, str], wanted: Collection[Key]) -> None:
    """Compare what somebody looked at with what is live, of those things that are to become another.

    Args:
        expected: `content_digest` of what they looked at, empty for nothing.
        wanted: what is to become another.

    Raises:
        OvertakenError: it moved.
    """
    values = values_of(lock_revisions())
    moved = [key for key, digest in expected.items() if key in wanted and content_digest(values.get(key)) != digest]
    if moved:
        said = [f"{kind} {name} isn't what you looked at: {_live_by((kind, name), values)}." for kind, name in moved]
        raise OvertakenError(said)


def _live_by(key: Key, values: Mapping[Key, Value]) -> str:
    """Return whose what is live is, for who looked at another; it may never have been live."""
    if key in values:
        return found_in(None, key).by
    was_live = RevisionPart.objects.filter(kind=key[0], name=key[1]).exists()
    return "it isn't live any more" if was_live else "none of this name is live, or ever was"


@transaction.atomic
def save_edit(*, edit: Edit, change: Change | None, by: By, title: str, seen: str, reason: str = "") -> Change | None:
    """Put an edit into a Change, or into a new one of its own.

    Args:
        edit: what is to become of the thing.
        change: into which; None opens one.
        by: who saves, and becomes an author of the Change.
        title: the new Change's.
        seen: `seen_of` when that person began.
        reason: the new Change's.

    Returns:
        The Change; None where nothing would be another than it is.

    Raises:
        OvertakenError: somebody else has edited it since.
        PublishingError: this account may not edit.
    """
    lock_revisions()
    row = Change.objects.select_for_update().get(pk=change.pk) if change else None
    if said := overtaken(row, edit.key, edit.value, seen):
        raise OvertakenError(said)
    if is_same(found_in(row, edit.key).value, edit.value):
        return row
    if row is None:
        return open_change(title=title, edits=[edit], by=by, reason=reason)
    return edit_change(change=row, edits=[edit], by=by, expected_digest=row.digest)


def open_edits(kind: str, names: Collection[str] = ()) -> QuerySet[ChangeEdit]:
    """Return the edits of a kind that are in open Changes, by name; with names, those of these things."""
    found = ChangeEdit.objects.filter(change__state__in=lifecycle.OPEN, kind=kind).select_related("change")
    return (found.filter(name__in=names) if names else found).order_by("name", "change")


def changes_to_edit() -> list[Change]:
    """Return the Changes that an edit can go into, the newest first."""
    return list(Change.objects.filter(state__in=lifecycle.OPEN, rolls_back_to=None).order_by("-pk")[:50])
