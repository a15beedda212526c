"""One edit of one thing, as forms make it: the initial content of a form, and saving its content into a Change."""

from collections.abc import Collection, Mapping

import msgspec
from django.db import transaction
from django.db.models import QuerySet

from policies import checking, compiler
from policies.changes_in_words import part_changes
from policies.engine import ruleset as engine
from policies.engine.errors import Fault
from policies.models import Change, ChangeEdit, ChangeEvent, RevisionPart
from policies.publishing import lifecycle
from policies.publishing.actors import By
from policies.publishing.changes import edit_change, open_once
from policies.publishing.contents import Edit
from policies.publishing.errors import OvertakenError
from policies.publishing.parts import NUMBERED, Key, Kind, Value, is_same, live_digests
from policies.publishing.revisions import current_revision, edit_in, lock_revisions, values_of
from policies.publishing.standing import edit_of

# In place of a digest: equal to none.
_UNSEEN = "-"


class Found(msgspec.Struct, frozen=True):
    """The current content of a thing: from a Change, if that edits it, else the live content.

    Attributes:
        value: its content; None where there is none.
        by: who made it, and since when, in words; empty where there is none.
    """

    value: Value | None = None
    by: str = ""


def found_in(change: Change | None, key: Key) -> Found:
    """Return the current content of a thing for an edit in this Change, or in a new one."""
    row = edit_in(change, key) if change else None
    if row is not None:
        return Found(edit_of(row).value, f"{row.author} edited it in {change} at {row.edited_at:%Y-%m-%d %H:%M:%S} UTC")
    value = values_of(current_revision()).get(key)
    # Not the live Revision, which may have come by something else.
    held = RevisionPart.objects.filter(kind=key[0], name=key[1], until=None).select_related("since")
    part = held.first() if value is not None else None
    by = f"{part.since} by {part.since.made_by} made it live" if part else f"{key[1]} isn't live any more"
    return Found(value, by)


def misfitting_params(change: Change | None, value: Value) -> list[Fault]:
    """Return the faults of an Assignment's params for the rule set as `found_in` this Change.

    A missing rule set is no fault: it may be added to the Change later.
    """
    if not isinstance(value, engine.Assignment) or not value.params:
        return []
    found = found_in(change, (Kind.RULE_SET, value.rule_set)).value
    return checking.params_faults(value, found) if isinstance(found, engine.RuleSet) else []


def content_digest(value: Value | None) -> str:
    """Return the digest of a content, whatever its version number; empty for none."""
    if value is None:
        return ""
    return compiler.digest_of(msgspec.structs.replace(value, version=0) if isinstance(value, NUMBERED) else value)


def seen_of(change: Change | None, key: Key) -> str:
    """Return the state that a form records when it is loaded: the digests of its initial and of the live content, and the Change.

    Who edits what a Change made of an older version hasn't seen the live one.
    """
    began, live = (content_digest(found_in(each, key).value) for each in (change, None))
    edit = edit_in(change, key) if change else None
    if edit is not None and edit.base_digest != live_digests([key], current_revision().number).get(key, ""):
        live = _UNSEEN
    return " ".join((began, live, str(change.pk) if change else ""))


def parts_of_seen(seen: str) -> tuple[str, str, str]:
    """Return the parts of a text of `seen_of`: the digests of the initial and of the live content, and the Change's number.

    Each is empty where the text has none, as one that no form made may.
    """
    began, live, number = [*seen.split(" "), "", ""][:3]
    return began, live, number


def _seen_since(change: Change | None, key: Key, seen: str) -> str:
    """Return what a form has seen once it is refused, and shows how what it edits has changed since `seen`."""
    now, (_, live, _) = content_digest(found_in(change, key).value), parts_of_seen(seen)
    is_edited = change is not None and edit_in(change, key) is not None
    return " ".join((now, (live or _UNSEEN) if is_edited else now, str(change.pk) if change else ""))


def overtaken(change: Change | None, key: Key, wanted: Value | None, seen: str) -> list[str]:
    """Return, in words, what somebody else changed in a thing since a form was loaded; nothing where nobody did.

    Args:
        change: the Change that the edit goes into; None for a new one.
        key: the thing that is edited.
        wanted: its new content.
        seen: `seen_of` when the form was loaded.
    """
    now = found_in(change, key)
    began, live, number = parts_of_seen(seen)
    # In another Change than the form's the thing has its live content, unless somebody edits it there.
    is_another = change is None or str(change.pk) != number
    content = content_digest(now.value)
    if content in ({began, live} if is_another else {began}) or is_same(now.value, wanted):
        return []
    # The content is the one that was live then: so somebody discarded the edit.
    did = _discarded(change) if change and content == live and not is_another else now.by
    said = f"Somebody was faster: {did}, after you opened this."
    return [said, *(f"Theirs, compared with what is here: {line}." for line in part_changes(wanted, now.value))]


def _discarded(change: Change) -> str:
    """Return who took an edit out of a Change, in words."""
    last = change.events.filter(act=ChangeEvent.Act.EDIT, text__startswith="discarded ").last()
    return f"{last.by if last else 'somebody'} discarded the edit in {change}"


def check_seen(expected: Mapping[Key, str], wanted: Collection[Key]) -> None:
    """Compare the content that somebody looked at with the live content, for the things that would change.

    Args:
        expected: `content_digest` of the content that they looked at, empty for none.
        wanted: the new contents.

    Raises:
        OvertakenError: it moved.
    """
    values = values_of(lock_revisions())
    moved = [key for key, digest in expected.items() if key in wanted and content_digest(values.get(key)) != digest]
    if moved:
        said = [f"{kind} {name} isn't what you looked at: {_live_by((kind, name), values)}." for kind, name in moved]
        raise OvertakenError(said)


def _live_by(key: Key, values: Mapping[Key, Value]) -> str:
    """Return, in words, who made the live content of a thing, or that it has none."""
    if key in values:
        return found_in(None, key).by
    was_live = RevisionPart.objects.filter(kind=key[0], name=key[1]).exists()
    return "it isn't live any more" if was_live else "none of this name is live, or ever was"


@transaction.atomic
def save_edit(*, edit: Edit, change: Change | None, by: By, title: str, seen: str, reason: str = "") -> Change | None:
    """Save an edit into a Change, or into a new one of its own.

    Args:
        edit: the edit of the thing.
        change: the Change to save it into; None opens one.
        by: who saves, and becomes an author of the Change.
        title: the new Change's.
        seen: `seen_of` when that person began.
        reason: the new Change's.

    Returns:
        The Change; None where nothing would change.

    Raises:
        OvertakenError: somebody else has edited it since.
        PublishingError: this account may not edit.
    """
    lock_revisions()
    row = Change.objects.select_for_update().get(pk=change.pk) if change else None
    if said := overtaken(row, edit.key, edit.value, seen):
        raise OvertakenError(said, seen=_seen_since(row, edit.key, seen))
    if is_same(found_in(row, edit.key).value, edit.value):
        return row
    if row is None:
        return open_once(title=title, edit=edit, by=by, reason=reason)
    return edit_change(change=row, edits=[edit], by=by, expected_digest=row.digest)


def open_edits(kind: str, names: Collection[str] = ()) -> QuerySet[ChangeEdit]:
    """Return the edits of a kind that are in open Changes, by name; with `names`, only those of these things."""
    found = ChangeEdit.objects.filter(change__state__in=lifecycle.OPEN, kind=kind).select_related("change")
    return (found.filter(name__in=names) if names else found).order_by("name", "change")


def changes_to_edit() -> list[Change]:
    """Return the Changes that an edit can go into, the newest first."""
    return list(Change.objects.filter(state__in=lifecycle.OPEN, rolls_back_to=None).order_by("-pk")[:50])
