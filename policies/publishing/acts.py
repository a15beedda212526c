"""The steps of every act on a Change: lock its row, check with `lifecycle`, write the new state, and record an event."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from typing import Any

import msgspec
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from policies.engine import ruleset as engine
from policies.models import Change, ChangeEdit, ChangeEvent
from policies.publishing import audit, gates, lifecycle
from policies.publishing.actors import By, actor_of, name_of, reach_of, user_of, via_of
from policies.publishing.contents import Edit
from policies.publishing.errors import ForbiddenError, OvertakenError, PublishingError, check_words
from policies.publishing.parts import Key, Kind, batches, sha256
from policies.publishing.reach import check_reach_of
from policies.publishing.rule_sets import keep_rule_sets
from policies.publishing.standing import AUTHORING, bases_of, edits_of, standing_of

_Act = ChangeEvent.Act


@contextmanager
def locked(change: Change, act: str, by: By, expected_digest: str) -> Iterator[Change]:
    """Lock a Change's row, and read it again, for an act that `lifecycle` allows."""
    with transaction.atomic():
        row = Change.objects.select_for_update().get(pk=change.pk)
        if expected_digest and expected_digest != row.digest:
            last = row.events.filter(act__in=AUTHORING).last()
            who = last.by if last else "somebody"
            raise OvertakenError([f"{row} changed since you looked at it: {who} edited it. Look at it again."])
        actor, standing = actor_of(by), standing_of(row)
        _check_permission(act, actor, standing)
        if said := lifecycle.refusal(act, actor, standing):
            raise PublishingError([said])
        check_reach(row, by)
        yield row


def check_before_contents(change: Change, act: str, by: By) -> None:
    """Check what refuses an act whatever a Change contains, before its documents are checked, without a lock.

    Otherwise somebody who may not do it, or who comes too late, would be told of faults in the documents instead.
    """
    actor, standing = actor_of(by), standing_of(change)
    _check_permission(act, actor, standing)
    if said := lifecycle.refusal_of_any_content(act, actor, standing):
        raise PublishingError([said])
    check_reach(change, by)


def _check_permission(act: str, actor: lifecycle.Actor, standing: lifecycle.Standing) -> None:
    if said := lifecycle.lack_of_permission(act, actor, standing.authors):
        raise ForbiddenError([said])


def check_reach(change: Change, by: By) -> None:
    """Check that a token reaches everything that a Change now touches. People reach everything.

    Raises:
        ForbiddenError: names the things that it doesn't reach.
    """
    reach = reach_of(by)
    if reach.is_whole:
        return  # for people the edits needn't be read
    check_reach_of(edits_of(change), bases_of(change), by)


def do(change: Change, act: _Act, by: By, expected_digest: str, text: str) -> Change:
    """Do an act that changes only the state."""
    with locked(change, act, by, expected_digest) as row:
        finish(row, act, by, text)
    return row


def finish(
    row: Change, act: _Act, by: By, text: str, *, before: str | None = None, more: Mapping[str, Any] | None = None
) -> None:
    """Record an act, and write the state that it leads to.

    Args:
        row: the Change, locked.
        act: what was done.
        by: who did it.
        text: why.
        before: digest of the content before, empty where there was none; None for the Change's own.
        more: further members of the AuditEvent.
    """
    before = row.digest if before is None else before
    if act in AUTHORING:
        check_reach(row, by)
        row.digest, row.rolls_back_to = _digest(row), None  # after an edit it is no longer a rollback
    if act in (_Act.REJECT, _Act.WITHDRAW):
        row.publish_at = None
    if act in (_Act.SCHEDULE, _Act.PUBLISH, _Act.URGENT, _Act.REJECT, _Act.WITHDRAW):
        row.held = ""  # an edit or approval isn't enough: somebody has to set a time again, or publish
    note(row, act, by, text, before=before, more=more)
    standing = standing_of(row)
    state = lifecycle.state_after(act, standing)
    if act == _Act.APPROVE and row.state == lifecycle.PUBLISHED and not standing.waits_for_approval_afterwards:
        # It stays approved, whoever may approve later, and however many are needed then.
        row.approved_afterwards_at = timezone.now()
    if state != row.state:
        row.state, row.moved_at = state, timezone.now()
    row.save(update_fields=_WRITTEN)
    if row.state not in lifecycle.OPEN:
        gates.cancel_gate(row)
    elif act in {_Act.SUBMIT, *AUTHORING} and row.state != lifecycle.DRAFT:
        gates.ask_gate(row, name_of(by))
    elif act in AUTHORING:
        gates.cancel_overtaken_gate(row)


# The columns of a Change's row that acts change.
_WRITTEN = (
    "reason",
    "base",
    "digest",
    "state",
    "moved_at",
    "revision",
    "rolls_back_to",
    "publish_at",
    "held",
    "expires_at",
    "expired_at",
    "approved_afterwards_at",
)


def note(
    change: Change,
    act: _Act,
    by: By,
    text: str,
    *,
    whom: User | None = None,
    before: str = "",
    more: Mapping[str, Any] | None = None,
) -> None:
    """Record an act on a Change: in the Change's history, and as an AuditEvent.

    Raises:
        PublishingError: the text could mislead its readers.
    """
    if act != _Act.DESCRIBE:  # it repeats the old text, which may be from before this check existed
        check_words(text)
    if not change.digest:
        change.digest = _digest(change)
        change.save(update_fields=["digest"])
    ChangeEvent.objects.create(
        change=change,
        act=act,
        by=name_of(by),
        by_user=user_of(by),
        via=via_of(by),
        whom=whom.get_username() if whom else "",
        whom_user=whom,
        at=timezone.now(),
        text=text,
        digest=change.digest,
    )
    asked = {"whom": whom.get_username()} if whom else {}
    audit.record_act(change, act, by, text, before=before, more={**(more or {}), **asked})


def _digest(change: Change) -> str:
    """Return the digest of the result: each edit's content and base, and when all of it expires."""
    named: list[object] = [
        (edit.kind, edit.name, sha256(edit.document.encode()), edit.base_digest)
        for edit in change.edits.order_by("kind", "name")
    ]
    if change.expires_at is not None:
        named.append(("expires", change.expires_at.astimezone(UTC)))
    return sha256(msgspec.json.encode(named))


def things_of(change: Change, keys: Collection[Key] | None = None) -> dict[str, Any]:
    """Return what a Change makes of each thing, or of some, as AuditEvents record it: the digests of the base and of the result."""
    rows = {row.key: row for row in change.edits.all()}
    return {"things": [_thing(key, rows.get(key)) for key in sorted(rows if keys is None else keys)]}


def _thing(key: Key, row: ChangeEdit | None) -> dict[str, str]:
    named = {"kind": str(key[0]), "name": key[1]}
    if row is None:
        return named | {"edit": "taken out"}
    return named | {"before": row.base_digest, "after": sha256(row.document.encode()) if row.document else ""}


def write_edits(change: Change, edits: Mapping[Key, Edit], bases: Mapping[Key, str], *, by: By) -> None:
    """Write edits, each with the digest of its base."""
    now = timezone.now()
    keep_rule_sets(edit.value for edit in edits.values() if isinstance(edit.value, engine.RuleSet))
    ChangeEdit.objects.bulk_create(
        ChangeEdit(
            change=change,
            kind=edit.kind,
            name=edit.name,
            document="" if edit.value is None else engine.encode(edit.value).decode(),
            base_digest=bases.get(key, ""),
            author=name_of(by),
            edited_at=now,
        )
        for key, edit in sorted(edits.items())
    )


def delete_edits(change: Change, keys: Iterable[Key]) -> None:
    """Delete the edits of these things."""
    for kind in Kind:
        for batch in batches([name for of_kind, name in keys if of_kind == kind]):
            change.edits.filter(kind=kind, name__in=batch).delete()
