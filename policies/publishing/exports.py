"""Exports the system's state as documents that `apply` reads: the same bytes for the same state."""

import hashlib
from collections.abc import Collection
from typing import Any

from policies import manifests
from policies.engine.documents import document_of
from policies.engine.ruleset import Document
from policies.models import Change
from policies.publishing import audit
from policies.publishing.actors import By
from policies.publishing.errors import AbsentError
from policies.publishing.revisions import current_revision
from policies.publishing.standing import edits_of

# The most requested names that an AuditEvent records.
_MOST_NAMED = 100


def export(
    *, by: By, kind: str = "", names: Collection[str] = (), change: int | None = None, is_handed_out: bool = True
) -> str:
    """Return the live state as YAML, and record the export.

    Args:
        by: who exports it.
        kind: only this kind.
        names: only these names.
        change: export this Change's edits instead of the live state.
        is_handed_out: whether anybody gets the text; if not, as for HEAD, nothing is recorded.

    Raises:
        AbsentError: there is no such Change, or no thing of one of these names.
        PublishingError: a document of the Change can't be read.
    """
    documents = _live() if change is None else _of_change(change)
    documents = [each for each in documents if kind in {"", each["kind"]}]
    if wanted := set(names):
        documents = [each for each in documents if each["metadata"]["name"] in wanted]
        if missing := sorted(wanted - {each["metadata"]["name"] for each in documents}):
            raise AbsentError([f"there is nothing to export called {', '.join(missing)}"])
    text = "---\n".join(manifests.to_yaml(document) for document in documents)
    if is_handed_out:
        narrowed = {"kind": kind, "names": sorted(wanted)[:_MOST_NAMED]}
        more = {"documents": len(documents)} | {name: value for name, value in narrowed.items() if value}
        _record(text, by=by, change=change, more=more)
    return text


def _record(text: str, *, by: By, change: int | None, more: dict[str, Any]) -> None:
    audit.record_event(
        audit.Kind.EXPORT,
        by=by,
        thing=("Documents", ""),
        change=change,
        digests=("", hashlib.sha256(text.encode()).hexdigest()),
        more=more,
    )


def _live() -> list[dict[str, Any]]:
    # From the stored Revision, whose texts are exact: in the rows' columns of PostgreSQL's jsonb 1e16 is a whole number.
    live = current_revision()
    classes = sorted(live.priority_classes, key=lambda each: (-each.value, each.name))
    values: list[Document] = [*live.rule_sets, *live.assignments, *classes, *live.pauses, *live.exemptions]
    return [document_of(value) for value in values]


def _of_change(number: int) -> list[dict[str, Any]]:
    change = Change.objects.filter(pk=number).first()
    if change is None:
        raise AbsentError([f"There is no Change {number}."])
    return [document_of(edit.value) for edit in edits_of(change) if edit.value is not None]
