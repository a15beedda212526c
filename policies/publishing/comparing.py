"""What two Revisions hold, and two Changes make, of each thing: the two sides of every one that differs. Nothing here writes."""

from typing import NamedTuple

from django.db.models import Q

from policies.models import Change, RevisionPart
from policies.publishing.contents import is_same
from policies.publishing.parts import DECODERS, Key, Value, documents_of
from policies.publishing.revisions import current_revision, values_of
from policies.publishing.standing import edits_of


class Difference(NamedTuple):
    """A thing, and what each side has of it. None is its absence."""

    key: Key
    before: Value | None
    after: Value | None


def revision_differences(before: int, after: int, start: int, stop: int) -> tuple[list[Difference], int]:
    """Return some of what differs between two Revisions, by kind and name, and how much does. 0 is before the first one.

    Only what was published between them is read.
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
    return [Difference(key, _value(key, old, documents), _value(key, new, documents)) for key in shown], len(keys)


def _value(key: Key, held: dict[Key, str], documents: dict[str, str]) -> Value | None:
    document = documents.get(held.get(key, ""))
    return DECODERS[key[0]].decode(document) if document else None


def change_differences(before: Change, after: Change) -> list[Difference]:
    """Return what two Changes would make otherwise, by kind and name. What one doesn't edit is for it as it is live.

    Raises:
        PublishingError: a newer Berth wrote one of them.
    """
    old, new = ({edit.key: edit.value for edit in edits_of(change)} for change in (before, after))
    live = values_of(current_revision())
    pairs = [
        Difference(key, *(side[key] if key in side else live.get(key) for side in (old, new)))
        for key in sorted({*old, *new})
    ]
    return [each for each in pairs if not is_same(each.before, each.after)]
