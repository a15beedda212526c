"""Which rule sets a Change or its edits touch: what review and the gate ask for hangs on it."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from policies.engine import ruleset as engine
from policies.engine.pauses import ASSIGNMENT, EVERYTHING, Target
from policies.models import Change, ChangeEdit
from policies.publishing.contents import Edit
from policies.publishing.parts import Kind, Value, documents_of
from policies.publishing.revisions import values_of

# Kinds of what names rule sets without being one.
_NAMING = (Kind.ASSIGNMENT, Kind.PAUSE, Kind.EXEMPTION)


class _Names(msgspec.Struct, rename="camel"):
    """What a document names: the rule set that an Assignment gives, the target of a Pause or an Exemption."""

    rule_set: str = ""
    target: str = ""


def rule_sets_touched(change: Change, live: engine.Revision) -> set[str]:
    """Return the rule sets whose Pods may be treated otherwise by a Change.

    They are those that it edits, and those that its other edits name: in what they make, and in what they were made on. Where
    that isn't live any more, the Change has to be rebased before anything comes of it. Reads no more than names.
    """
    rows = list(change.edits.all())
    return touched_by(rows, documents_of(bases_that_name(rows)), live)


def bases_that_name(rows: Iterable[ChangeEdit]) -> set[str]:
    """Return the digests of what edits were made on, where that names rule sets without being one."""
    return {row.base_digest for row in rows if row.kind in _NAMING} - {""}


def touched_by(rows: Collection[ChangeEdit], bases: Mapping[str, str], live: engine.Revision) -> set[str]:
    """Return the rule sets that edits touch, by documents that were read before: those of `bases_that_name` at least."""
    naming = [row for row in rows if row.kind in _NAMING]
    texts = [text for row in naming for text in (row.document, bases.get(row.base_digest, "")) if text]
    edited = {row.name for row in rows if row.kind == Kind.RULE_SET}
    return edited.union(*(_named(_names_in(text), live) for text in texts))


def _names_in(text: str) -> _Names:
    """Return what a document names; nothing of one that a newer Berth wrote otherwise: `edit_of` refuses that, and lists go on."""
    try:
        return msgspec.json.decode(text, type=_Names)
    except msgspec.ValidationError:
        return _Names()


def rule_sets_of(edits: Iterable[Edit], live: engine.Revision) -> set[str]:
    """Return the rule sets touched by edits that are made on what is live."""
    wanted, values = list(edits), values_of(live)
    sides = [side for edit in wanted for side in (edit.value, values.get(edit.key))]
    edited = {edit.name for edit in wanted if edit.kind == Kind.RULE_SET}
    return edited.union(*(_named(_names_of(side), live) for side in sides))


def _names_of(value: Value | None) -> _Names:
    match value:
        case engine.Assignment():
            return _Names(rule_set=value.rule_set)
        case engine.Pause() | engine.Exemption():
            return _Names(target=value.target)
        case _:
            return _Names()


def _named(names: _Names, live: engine.Revision) -> set[str]:
    """Return the rule sets that something names; a target may be an Assignment's, or all there are."""
    if names.rule_set:
        return {names.rule_set}
    if not names.target:
        return set()
    target = Target.parse(names.target)
    if target.kind == EVERYTHING:
        return {each.name for each in live.rule_sets}
    if target.kind == ASSIGNMENT:
        return {each.rule_set for each in live.assignments if each.name == target.name}
    return {target.name}
