"""Two edits of one rule set, rule by rule: what only one side changed is taken, what both did is named. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from policies.engine import ruleset as engine

Key = TypeVar("Key", bound=Hashable)

# Members of a specification that are lists of things with a name.
_LISTS = ("filters", "scores", "victims", "tests")
_ABSENT = object()


class Merged(msgspec.Struct, frozen=True):
    """What came of it; without conflicts `rule_set` is what both wanted.

    Attributes:
        rule_set: both sides together; mine, where they conflict.
        conflicts: what both sides changed, each to something else, in words.
    """

    rule_set: engine.RuleSet
    conflicts: Sequence[str]


def merge_rule_sets(base: engine.RuleSet, theirs: engine.RuleSet, mine: engine.RuleSet) -> Merged:
    """Put two edits of one rule set together. Rules keep my order; theirs that are new come behind."""
    conflicts: list[str] = []
    members: dict[str, Any] = {
        member: _merge_lists(
            member, getattr(base.spec, member), getattr(theirs.spec, member), getattr(mine.spec, member), conflicts
        )
        for member in _LISTS
    }
    members["params"] = _merge("params", base.spec.params, theirs.spec.params, mine.spec.params, conflicts)
    members["failures"] = _one("failures", base.spec.failures, theirs.spec.failures, mine.spec.failures, conflicts)
    description = _one("the description", base.description, theirs.description, mine.description, conflicts)
    merged = msgspec.structs.replace(
        mine, description=description, version=0, spec=msgspec.structs.replace(mine.spec, **members)
    )
    return Merged(merged, tuple(conflicts))


def _merge_lists(
    member: str, base: Sequence[Any], theirs: Sequence[Any], mine: Sequence[Any], conflicts: list[str]
) -> list[Any]:
    old, new, ours = ({_name(each): each for each in side} for side in (base, theirs, mine))
    return list(_merge(member, old, new, ours, conflicts).values())


def _merge(
    member: str, base: Mapping[Key, Any], theirs: Mapping[Key, Any], mine: Mapping[Key, Any], conflicts: list[str]
) -> dict[Key, Any]:
    """Put two edits of a mapping together, in my order."""
    merged = {}
    for key in (*mine, *(key for key in theirs if key not in mine)):
        kept = _one(
            f"{key} of {member}", base.get(key, _ABSENT), theirs.get(key, _ABSENT), mine.get(key, _ABSENT), conflicts
        )
        if kept is not _ABSENT:
            merged[key] = kept
    return merged


def _one(what: str, base: Any, theirs: Any, mine: Any, conflicts: list[str]) -> Any:
    if mine == base:
        return theirs
    if theirs not in (base, mine):
        conflicts.append(f"both sides changed {what}")
    return mine


def _name(each: engine.Rule | engine.RuleSetTest) -> str:
    return each.key if isinstance(each, engine.Rule) else each.name
