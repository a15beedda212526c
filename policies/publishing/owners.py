"""Which repository owns a thing: marks that pipelines set, so that two of them, and people, don't undo each other's work."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from policies.models import Change, ChangeEdit, OwnerMark
from policies.publishing import audit, lifecycle
from policies.publishing.actors import By, actor_of, name_of
from policies.publishing.contents import Edit
from policies.publishing.errors import ForbiddenError, PublishingError, check_words
from policies.publishing.parts import Key, Kind, batches
from policies.publishing.reach import check_reach_of
from policies.publishing.revisions import current_revision, lock_revisions, values_of
from policies.publishing.standing import open_changes_of

_LONGEST = 100


class Keeper(NamedTuple):
    """The repository that things are applied from; empty for people. `takes_over` lets it take things that another one owns."""

    owner: str = ""
    takes_over: bool = False


NOBODY = Keeper()


def owner_marks(keys: Collection[Key]) -> dict[Key, OwnerMark]:
    """Return the marks on these things; things without a mark have no owner."""
    found: dict[Key, OwnerMark] = {}
    for batch in batches(sorted({name for _, name in keys})):
        for row in OwnerMark.objects.filter(name__in=batch).select_related("change"):
            if (row.kind, row.name) in keys:
                found[row.kind, row.name] = row
    return found


def check_owners(keys: Collection[Key], keeper: Keeper) -> None:
    """Compare the owners of things with the repository that applies them. People aren't refused: the Change shows them a note.

    Raises:
        PublishingError: with each thing that another repository owns, and what to do.
    """
    if not keeper.owner or keeper.takes_over:
        return
    others = {key: mark.owner for key, mark in owner_marks(keys).items() if mark.owner != keeper.owner}
    if others:
        raise PublishingError([_refusal(key, owner, keeper.owner) for key, owner in sorted(others.items())])


def _refusal(key: Key, owner: str, asking: str) -> str:
    return (
        f"{named(key)} is kept by {owner}, not by {asking}: take it out of one of the two repositories, "
        "or take it over (--take-over) once those of the other agree."
    )


def owner_notes(keys: Collection[Key], owner: str = "") -> list[str]:
    """Return notes for people who touch things that another repository owns; `owner` is the repository of their own edits."""
    return [
        f"{named(key)} is kept by {mark.owner}: bring this into that repository, too, or its next apply undoes it."
        for key, mark in sorted(owner_marks(keys).items())
        if mark.owner != owner
    ]


def drift_notes(keys: Collection[Key], owner: str) -> list[str]:
    """Return which of a repository's things others published since it last applied them, and who did."""
    marks = owner_marks(keys) if owner else {}
    return [
        f"{named(key)} was {'changed' if edit.document else 'removed'} outside of {owner}, by {edit.change} of "
        f"{edit.change.opened_by}: {edit.change.title}"
        for key in (sorted(keys) if owner else ())
        if (edit := _published(key).first()) and _is_drift(edit, marks.get(key), owner)
    ]


def _is_drift(last: ChangeEdit, mark: OwnerMark | None, owner: str) -> bool:
    """Return whether the last publishing of a repository's thing came from somebody else; a removal deletes the mark for good."""
    if mark is not None:
        return mark.owner == owner and last.change.moved_at > mark.marked_at
    return last.change.owner != owner and _published((last.kind, last.name)).filter(change__owner=owner).exists()


def _published(key: Key) -> QuerySet[ChangeEdit]:
    published = ChangeEdit.objects.filter(kind=key[0], name=key[1], change__revision__isnull=False)
    return published.select_related("change").order_by("-change__revision__number")


def mark_published(change: Change, edits: Iterable[Edit], brought: Collection[Key], by: By) -> None:
    """Set, within the publishing, the owner of the things that a repository applied. Removed things have no owner.

    `edits` include the removal of Pauses and Exemptions that ended with their targets.
    """
    for edit in edits:
        if edit.value is None:
            OwnerMark.objects.filter(kind=edit.kind, name=edit.name).delete()
        elif change.owner and edit.key in brought:
            _mark(edit.key, change.owner, by, change)


def _mark(key: Key, owner: str, by: By, change: Change | None) -> None:
    made = {"owner": owner, "by": name_of(by), "marked_at": timezone.now(), "change": change}
    OwnerMark.objects.update_or_create(kind=key[0], name=key[1], defaults=made)


@transaction.atomic
def claim(*, keys: Collection[Key], keeper: Keeper, by: By, reason: str = "") -> list[Key]:
    """Mark live things as a repository's, without a Change, since their content stays. Returns the newly owned things.

    Raises:
        ForbiddenError: this account may not edit, or a token doesn't reach one of them.
        PublishingError: another repository owns one of them, or the reason could mislead its readers.
    """
    if said := lifecycle.lack_of_permission("edit", actor_of(by)):
        raise ForbiddenError([said])
    check_words(reason)
    lock_revisions()
    values = values_of(current_revision())
    check_reach_of([Edit(*key, values.get(key)) for key in keys], {}, by)
    check_owners(keys, keeper)
    marks = owner_marks(keys)
    new = sorted(key for key in keys if key not in marks or marks[key].owner != keeper.owner)
    for key in new:
        _mark(key, keeper.owner, by, None)
    # Its files now include what others published of its things.
    for batch in batches([mark.pk for mark in marks.values() if mark.owner == keeper.owner]):
        OwnerMark.objects.filter(pk__in=batch).update(marked_at=timezone.now())
    if new:
        before = {f"{kind}/{name}": marks[kind, name].owner for kind, name in new if (kind, name) in marks}
        more = {"owner": keeper.owner, "things": [f"{kind}/{name}" for kind, name in new], "before": before}
        thing, digests = ("Documents", keeper.owner), ("", audit.digest_of(more["things"]))
        audit.record_event(audit.Kind.CLAIM, by=by, thing=thing, digests=digests, reason=reason, more=more)
    return new


def check_owner_name(owner: str) -> str:
    """Return the name of a repository.

    Raises:
        PublishingError: it isn't a valid name.
    """
    if len(owner) > _LONGEST or not owner.isprintable() or owner != owner.strip():
        raise PublishingError([f"An owner's name is a line of at most {_LONGEST} characters, such as shop-rules."])
    return owner


def beside(
    wanted: Collection[Key],
    keeper: Keeper,
    brought: Iterable[Key],
    *,
    but: Change | None = None,
) -> list[str]:
    """Return sentences about others' open edits of the same objects, and about their owners: the author has to read them first.

    A repository takes over all objects of its import, `brought`, even unchanged ones. `but` is the Change itself.
    """
    found = [
        f"Change {number}, which is open, edits {', '.join(map(named, keys))} as well"
        for number, keys in sorted(open_changes_of(wanted).items())
        if but is None or number != but.pk
    ]
    marks = owner_marks({*wanted, *brought} if keeper.owner else wanted)
    how = ", and is taken over" if keeper.owner else ""
    others = sorted((key, mark.owner) for key, mark in marks.items() if mark.owner != keeper.owner)
    return found + [f"{named(key)} is kept by {owner}{how}" for key, owner in others]


def named(key: Key) -> str:
    """Return a thing as sentences name it."""
    kind, name = key
    return f"{'rule set' if kind == Kind.RULE_SET else kind} {name}"
