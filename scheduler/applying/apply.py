"""Applies documents: one Change with the differences, published if requested."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from django.conf import settings
from django.db import transaction

from policies import publishing
from policies.changes_in_words import part_changes
from policies.engine import ruleset as engine
from policies.models import Change, Revision
from policies.publishing import By
from policies.publishing.owners import named
from policies.publishing.revisions import lock_revisions
from scheduler.applying.documents import Documents

if TYPE_CHECKING:
    from scheduler.gate.runs import Examined


_WITHOUT_PUBLISHING = "Applied without publishing it (--publish), its Change stays, and can be sent to review."


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """How to apply documents.

    Attributes:
        title: the Change's.
        reason: why, kept with the Change and its Revision.
        publish: whether it goes live at once; refused if it needs approvals.
        submit: whether it is sent to review if it needs approvals, and goes live at once if it needs none.
        expected: for objects that must still be live as the user saw them, the `content_digest` of that version.
    """

    title: str
    reason: str = ""
    publish: bool = False
    submit: bool = False
    expected: Mapping[publishing.Key, str] = {}


class Applied(msgspec.Struct, kw_only=True):
    """The result of applying documents: the Change, its differences in words, and the Revision if it was published."""

    change: Change | None = None
    # Whether the Change was opened for them: False if an equal one was open already.
    is_new: bool = False
    changes: list[str] = []
    # Unchanged objects.
    unchanged: list[str] = []
    # Other users' changes to the same objects.
    beside: list[str] = []
    # What others published of the repository's objects since its last import.
    drift: list[str] = []
    revision: Revision | None = None
    # Notes for the user about the documents.
    notes: list[str] = []
    # The gate's results before publishing.
    gate: list[publishing.Result] = []

    @property
    def heading(self) -> str:
        """The Change, and whether it is new, in words."""
        return f"{self.change} {'was opened' if self.is_new else 'is open already, and makes the same'}"

    def summary(self) -> dict[str, Any]:
        """Return the result for programs."""
        return {
            "ok": True,
            "change": self.change.pk if self.change else None,
            "is_new": self.is_new,
            "revision": self.revision.number if self.revision else None,
            "changes": self.changes,
            "beside": self.beside,
            "drift": self.drift,
            "notes": self.notes,
            "gate": msgspec.to_builtins(self.gate),
        }


def examine_documents(documents: Documents, *, asks_cluster: bool) -> "tuple[engine.Revision, Examined] | None":
    """Run the gate on the documents' differences, outside any transaction; None if there are none, or they need approvals."""
    live = publishing.current_revision()
    edits = list(publishing.differing(documents.edits(live), live).values())
    if not edits or settings.BERTH.review_required:
        return None
    for edit in edits:
        if isinstance(edit.value, engine.RuleSet):
            publishing.remember_checked(edit.value)
    # Imported here: the gate loads the whole engine and the API server's client.
    from scheduler.cluster.client import connect
    from scheduler.gate.runs import examine

    levels = publishing.levels_of(publishing.rule_sets_of(edits, live))
    after = publishing.with_edits(live, edits)
    return live, examine(live, after, edits, levels, client=connect if asks_cluster else None)


@transaction.atomic
def apply(
    documents: Documents, wish: Wish, *, by: By, examined: "tuple[engine.Revision, Examined] | None" = None
) -> Applied:
    """Open a Change with the documents' differences; publish it if requested, and if the gate's results allow it.

    If it isn't published at once, and this account has an equal open Change, that one is used.

    Raises:
        OvertakenError: an object isn't live any more as the user saw it.
        PublishingError: another repository keeps one of the objects, or the Change can't be opened, sent to review or published.
            Nothing is written then.
    """
    publishing.check_owner_name(documents.keeper.owner)
    # Before any write: a concurrent creator of the same rule set has the lock, and would wait for its name.
    live = lock_revisions()
    edits = documents.edits(live)
    wanted = publishing.differing(edits, live)
    publishing.check_owners([edit.key for edit in edits], documents.keeper)
    waits = not wish.publish and (not wish.submit or publishing.needs_review(wanted.values()))
    there = publishing.open_already(wanted=wanted, by=by, keeper=documents.keeper) if wanted and waits else None
    unchanged = [edit.key for edit in edits if edit.key not in wanted]
    applied = Applied(
        changes=_changes(wanted.values(), live),
        unchanged=[named(key) for key in unchanged],
        beside=publishing.beside(wanted, documents.keeper, (edit.key for edit in edits), but=there),
        drift=publishing.drift_notes(wanted, documents.keeper.owner),
        notes=documents.notes(),
    )
    if documents.keeper.owner:
        publishing.claim(keys=unchanged, keeper=documents.keeper, by=by, reason=wish.reason or wish.title)
    if not wanted:
        return applied
    change = there or publishing.open_change(
        title=wish.title, edits=edits, by=by, reason=wish.reason, keeper=documents.keeper
    )
    # After the check of permissions, whose refusal comes first, whatever version the user saw.
    publishing.check_seen(wish.expected, wanted)
    applied.change, applied.is_new = change, there is None
    if wish.submit and waits:
        if change.state == Change.State.DRAFT:
            applied.change = publishing.submit_change(change=change, by=by, expected_digest=change.digest)
        return applied
    if there is not None:
        return applied
    if examined is not None:
        before, found = examined
        applied.gate = found.results
        publishing.record_gate(change, by, found.results, revision=before.number, snapshot_at=found.snapshot_at)
    if wish.publish or wish.submit:
        applied.revision = _publish(change, wanted.values(), wish, by)
        applied.change = Change.objects.get(pk=change.pk)
    return applied


def _changes(wanted: Collection[publishing.Edit], live: engine.Revision) -> list[str]:
    """Return the differences of edits from the live state, in words."""
    values = publishing.values_of(live)
    lines = [line for edit in wanted for line in part_changes(values.get(edit.key), edit.value)]
    return [*lines, *publishing.past_ends(wanted)]


def _publish(change: Change, wanted: Iterable[publishing.Edit], wish: Wish, by: By) -> Revision:
    try:
        return publishing.publish_change(
            change=change, by=by, reason=wish.reason or wish.title, expected_digest=change.digest
        )
    except publishing.ForbiddenError:
        raise
    except publishing.PublishingError as error:
        is_in_documents = any(fault.path for fault in error.faults)
        if is_in_documents or not publishing.needs_review(wanted):
            raise
        # The refusal suggests to send the Change to review, but the Change was rolled back.
        raise publishing.PublishingError([*error.faults, _WITHOUT_PUBLISHING]) from error
