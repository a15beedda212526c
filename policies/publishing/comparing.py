"""Compares two Revisions, or the results of two Changes: both sides of every thing that differs. Nothing here writes."""

from typing import NamedTuple

from django.db.models import Q

from policies.models import Change, RevisionPart
from policies.publishing.errors import PublishingError
from policies.publishing.parts import Key, Value, documents_of, is_same, read_part
from policies.publishing.revisions import current_revision, values_of
from policies.publishing.standing import edits_of


class Difference(NamedTuple):
    """A thing, and its content on each side. None where it is absent, and on both sides where one can't be read.

    `unread` says then why: a newer Berth wrote it.
    """

    key: Key
    before: Value | None
    after: Value | None
    unread: str = ""


def revision_differences(before: int, after: int, start: int, stop: int) -> tuple[list[Difference], int]:
    """Return some of the differences between two Revisions, by kind and name, and their number. Revision 0 is before the first one.

    Only things that were published between them are read. One that a newer Berth wrote doesn't keep the others from being compared.
    """
    low, high = sorted((before, after))
    moved = RevisionPart.objects.filter(
        Q(since__gt=low, since__lte=high) | Q(until__gt=low, until__lte=high)
    ).values_list("kind", "name", "part_id", "since_id", "until_id")
    sides: tuple[dict[Key, str], dict[Key, str]] = {}, {}
    for kind, name, digest, since, until in moved:
        for number, held in zip((before, after), sides, strict=True):
            if since <= number and (until is None or until > number):
                held[kind, name] = digest
    old, new = sides
    keys = sorted(key for key in old | new if old.get(key) != new.get(key))
    shown = keys[start:stop]
    documents = documents_of({side[key] for key in shown for side in sides if key in side})
    return [_difference(key, old, new, documents) for key in shown], len(keys)


def _difference(key: Key, old: dict[Key, str], new: dict[Key, str], documents: dict[str, str]) -> Difference:
    try:
        return Difference(key, _value(key, old, documents), _value(key, new, documents))
    except PublishingError as error:
        return Difference(key, None, None, str(error))


def _value(key: Key, held: dict[Key, str], documents: dict[str, str]) -> Value | None:
    document = documents.get(held.get(key, ""))
    return read_part(key, document) if document else None


def change_differences(before: Change, after: Change) -> list[Difference]:
    """Return the differences between the results of two Changes, by kind and name. A side without an edit is the live content.

    Raises:
        PublishingError: a newer Berth wrote one of them.
    """
    old, new = ({edit.key: edit.value for edit in edits_of(change)} for change in (before, after))
    live = values_of(current_revision())
    pairs = [Difference(key, old.get(key, live.get(key)), new.get(key, live.get(key))) for key in sorted({*old, *new})]
    return [each for each in pairs if not is_same(each.before, each.after)]
