"""Revisions: which one is live, and how the next one is made from its contents."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec
from django.utils import timezone

from policies import compiler
from policies.changes_in_words import revision_changes
from policies.engine import ruleset as engine
from policies.models import Change, ChangeEdit, PriorityClassVersion, Revision
from policies.publishing import locks
from policies.publishing.actors import By, name_of, user_of
from policies.publishing.errors import PublishingError, UnreadableRevisionError
from policies.publishing.locks import Lock
from policies.publishing.params import changed_params_faults
from policies.publishing.parts import (
    NOTHING,
    Key,
    StoredRevision,
    Value,
    digests_of,
    key_of,
    published_at,
    sha256,
    stored_revision,
    write_parts,
)

_State = PriorityClassVersion.State

# The Revision that was read last: for the next one only the changes since are read.
_read: StoredRevision = NOTHING


class _Held(msgspec.Struct):
    """What a read-only request has read, for the rest of it: the live Revision; and edits, by their Change and what they edit."""

    revision: engine.Revision | None = None
    edits: dict[tuple[int, Key], ChangeEdit | None] = {}


# None outside of read-only requests.
_held: ContextVar[_Held | None] = ContextVar("held", default=None)


@contextmanager
def one_revision() -> Iterator[None]:
    """Keep the live Revision and the edits of Changes while a page is made. Only for reading.

    Each is read once, so a page doesn't mix two Revisions, and a form's digest is that of the content that it shows.
    """
    token = _held.set(_Held())
    try:
        yield
    finally:
        _held.reset(token)


def current_revision() -> engine.Revision:
    """Return the live Revision; number 0 and empty before anything was published.

    Raises:
        UnreadableRevisionError: a newer Berth published it.
    """
    held = _held.get()
    if held is None:
        return _newest()
    if held.revision is None:
        held.revision = _newest()
    return held.revision


def edit_in(change: Change, key: Key) -> ChangeEdit | None:
    """Return a Change's edit of a thing; None where it doesn't edit it."""
    held = _held.get()
    if held is None:
        return _stored_edit(change, key)
    if (change.pk, key) not in held.edits:
        held.edits[change.pk, key] = _stored_edit(change, key)
    return held.edits[change.pk, key]


def _stored_edit(change: Change, key: Key) -> ChangeEdit | None:
    return change.edits.filter(kind=key[0], name=key[1]).first()


def _newest() -> engine.Revision:
    global _read  # noqa: PLW0603 - a memory of something that never changes
    newest = Revision.objects.order_by("-number").values_list("number", "digest").first()
    if newest is None:
        return engine.Revision(number=0)
    if (_read.number, _read.digest) != newest:
        try:
            _read = stored_revision(newest[0], _read) or _read
        except (msgspec.DecodeError, KeyError) as error:  # a form or a kind of part that this version doesn't know
            raise UnreadableRevisionError(newest[0]) from error
    return _read.revision


def load_revision(number: int) -> engine.Revision | None:
    """Return a Revision by its number; None where there is none.

    Raises:
        msgspec.DecodeError: a newer Berth wrote it.
    """
    found = stored_revision(number)
    return found.revision if found else None


def has_revision(number: int, digest: str) -> bool:
    """Return whether the Revision of this number has this digest, as stored or as its document is written now.

    Raises:
        msgspec.DecodeError: a newer Berth wrote the Revision of this number.
    """
    if Revision.objects.filter(number=number, digest=digest).exists():
        return True
    found = load_revision(number)
    return found is not None and digest in known_digests(found)


def known_digests(revision: engine.Revision) -> frozenset[str]:
    """Return the digests by which records name a Revision: the stored one, and the one of its document as this version of Berth writes it."""
    as_written = sha256(engine.encode(msgspec.structs.replace(revision, digest="")))
    return frozenset({revision.digest, as_written})


def lock_revisions() -> engine.Revision:
    """Lock Revisions against concurrent makers until the transaction ends, and return the current one."""
    locks.take(Lock.REVISIONS)
    return _newest()


def make_revision(
    before: engine.Revision,
    rule_sets: Sequence[engine.RuleSet],
    assignments: Sequence[engine.Assignment],
    classes: Sequence[engine.PriorityClass],
    *,
    suspensions: tuple[Sequence[engine.Pause], Sequence[engine.Exemption]],
    by: By,
    reason: str,
) -> Revision | None:
    """Write the next Revision; None where its content would equal the former one's.

    Only publishing a Change calls this: the checks of what may go live are there.

    Raises:
        PublishingError: params of an Assignment don't match its rule set.
    """
    now = timezone.now()
    pauses, exemptions = suspensions
    document = compiler.revision_document(
        number=before.number + 1,
        published_at=published_at(now),
        rule_sets=rule_sets,
        assignments=assignments,
        priority_classes=classes,
        pauses=pauses,
        exemptions=exemptions,
    )
    old, new = values_of(before), values_of(document)
    changed = {key: (compiler.digest_of(part), part) for key, part in new.items() if old.get(key) != part}
    removed = [key for key in old if key not in new]
    if not changed and not removed:
        return None
    if faults := changed_params_faults(before, document):
        raise PublishingError(faults)
    digests = digests_of(before.number) | {key: digest for key, (digest, _) in changed.items()}
    held = [(*key, digests[key]) for key in new]
    write_parts(document.number, changed, removed)
    chain = compiler.chain_text(
        number=document.number, published_at=document.published_at, parts=held, former=before.digest
    )
    made = Revision.objects.create(
        number=document.number,
        digest=sha256(chain),
        made_by=name_of(by),
        made_by_user=user_of(by),
        reason=reason,
        summary="\n".join(revision_changes(before, document)),
        created_at=now,
    )
    if document.priority_classes != before.priority_classes:
        _keep_versions(before, document, made)
    return made


def values_of(revision: engine.Revision) -> dict[Key, Value]:
    """Return the contents of a Revision, by kind and name."""
    parts: list[Value] = [*revision.rule_sets, *revision.assignments, *revision.priority_classes]
    return {key_of(each): each for each in (*parts, *revision.pauses, *revision.exemptions)}


def _keep_versions(before: engine.Revision, after: engine.Revision, made: Revision) -> None:
    """Write the new versions of a Revision, and which of all versions are live now."""
    live = {(each.name, each.version) for each in after.priority_classes}
    names = {each.name for each in after.priority_classes}
    for version in PriorityClassVersion.objects.exclude(state=_State.SUPERSEDED):
        if (version.name, version.number) not in live:
            version.state = _State.SUPERSEDED if version.name in names else _State.WITHDRAWN
            version.save(update_fields=["state"])
    known = {(each.name, each.version) for each in before.priority_classes}
    for each in after.priority_classes:
        if (each.name, each.version) not in known:
            _publish_version(each, made)


def _publish_version(value: engine.PriorityClass, made: Revision) -> None:
    """Create the version's row; an existing one, after a rollback, is live again."""
    PriorityClassVersion.objects.update_or_create(
        name=value.name,
        number=value.version,
        defaults={"state": _State.PUBLISHED},
        create_defaults={
            "state": _State.PUBLISHED,
            "document": engine.encode(value).decode(),
            "digest": compiler.digest_of(value),
            "revision": made.number,
            "published_by": made.made_by,
            "published_at": made.created_at,
        },
    )
