"""Which rule sets a Change or its edits touch: the requirements of review and the gate depend on them."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from policies.engine import ruleset as engine
from policies.engine.pauses import ASSIGNMENT, EVERYTHING, Target
from policies.models import Change, ChangeEdit
from policies.publishing.contents import Edit
from policies.publishing.parts import Kind, Value, documents_of
from policies.publishing.revisions import values_of

# Kinds of things that name rule sets, and aren't rule sets.
_NAMING = (Kind.ASSIGNMENT, Kind.PAUSE, Kind.EXEMPTION)


class _Names(msgspec.Struct, rename="camel"):
    """The names in a document: the rule set of an Assignment, or the target of a Pause or an Exemption."""

    rule_set: str = ""
    target: str = ""


def rule_sets_touched(change: Change, live: engine.Revision) -> set[str]:
    """Return the rule sets whose Pods a Change may affect.

    They are the rule sets that it edits, and those that its other edits name, in their new content or their base. Where the base
    is no longer live, the Change has to be rebased before it can go live. Only names are read.
    """
    rows = list(change.edits.all())
    return touched_by(rows, documents_of(bases_that_name(rows)), live)


def bases_that_name(rows: Iterable[ChangeEdit]) -> set[str]:
    """Return the digests of the bases of edits, for things that name rule sets and aren't rule sets."""
    return {row.base_digest for row in rows if row.kind in _NAMING} - {""}


def touched_by(rows: Collection[ChangeEdit], bases: Mapping[str, str], live: engine.Revision) -> set[str]:
    """Return the rule sets that edits touch, given documents that were read before: at least those of `bases_that_name`."""
    naming = [row for row in rows if row.kind in _NAMING]
    texts = [text for row in naming for text in (row.document, bases.get(row.base_digest, "")) if text]
    edited = {row.name for row in rows if row.kind == Kind.RULE_SET}
    return edited.union(*(_named(_names_in(text), live) for text in texts))


def _names_in(text: str) -> _Names:
    """Return the names in a document; none for one that can't be read: `edit_of` refuses it, and lists still work."""
    try:
        return msgspec.json.decode(text, type=_Names)
    except msgspec.DecodeError:  # of a newer Berth, or damaged
        return _Names()


def rule_sets_of(edits: Iterable[Edit], live: engine.Revision) -> set[str]:
    """Return the rule sets touched by edits that are based on the live state."""
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
    """Return the rule sets that a thing names; a target may be an Assignment, or everything."""
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
