"""Merges two edits of one rule set, rule by rule: parts that only one side changed are taken, others conflict or are chosen. Pure."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from policies.engine import ruleset as engine

Key = TypeVar("Key", bound=Hashable)

# Members of a specification that are lists of rules.
_RULES = ("filters", "scores", "victims")
_ABSENT = object()
MINE, THEIRS = "mine", "theirs"


class Merged(msgspec.Struct, frozen=True):
    """The result of a merge; without conflicts `rule_set` is what both sides wanted.

    Attributes:
        rule_set: the merged rule set; mine, where they conflict and no side is chosen.
        conflicts: the parts that both sides changed differently: in words, by the part's name, such as `filters/team`.
    """

    rule_set: engine.RuleSet
    conflicts: Mapping[str, str]


def merge_rule_sets(
    base: engine.RuleSet, theirs: engine.RuleSet, mine: engine.RuleSet, chosen: Mapping[str, str] | None = None
) -> Merged:
    """Merge two edits of one rule set. The order is that of the side that changed it (mine if both did), then the other side's new rules.

    `chosen` says, by the part's name, whose side is taken for a part that both changed; such a part is no conflict.
    """
    return _Merge(chosen or {}).of(base, theirs, mine)


class _Merge:
    """A merge: the chosen sides, and the conflicts found so far."""

    def __init__(self, chosen: Mapping[str, str]) -> None:
        self._chosen = chosen
        self._conflicts: dict[str, str] = {}

    def of(self, base: engine.RuleSet, theirs: engine.RuleSet, mine: engine.RuleSet) -> Merged:
        sides = (base.spec, theirs.spec, mine.spec)
        members: dict[str, Any] = {
            member: list(self._mappings(member, *(_by_name(getattr(spec, member)) for spec in sides)).values())
            for member in _RULES
        }
        members["tests"] = list(self._mappings("tests", *(spec.tests_by_name for spec in sides)).values())
        params = self._mappings("params", *(engine.encoded_params(spec) for spec in sides))
        members["params"] = {name: msgspec.json.decode(value) for name, value in params.items()}
        members["failures"] = self._one("failures", "failures", *(spec.failures for spec in sides))
        described = (base.description, theirs.description, mine.description)
        merged = msgspec.structs.replace(
            mine,
            description=self._one("description", "the description", *described),
            version=0,
            spec=msgspec.structs.replace(mine.spec, **members),
        )
        return Merged(merged, self._conflicts)

    def _mappings(
        self, member: str, base: Mapping[Key, Any], theirs: Mapping[Key, Any], mine: Mapping[Key, Any]
    ) -> dict[Key, Any]:
        """Merge two edits of a mapping, in the order of the side that changed it."""
        merged = {}
        first, second = (mine, theirs) if _keeps_order(base, theirs, mine) else (theirs, mine)
        for key in (*first, *(key for key in second if key not in first)):
            sides = (side.get(key, _ABSENT) for side in (base, theirs, mine))
            kept = self._one(f"{member}/{key}", f"{key} of {member}", *sides)
            if kept is not _ABSENT:
                merged[key] = kept
        return merged

    def _one(self, part: str, what: str, base: Any, theirs: Any, mine: Any) -> Any:
        if mine == base:
            return theirs
        if theirs in (base, mine):
            return mine
        side = self._chosen.get(part)
        if side not in (MINE, THEIRS):
            self._conflicts[part] = f"both sides changed {what}"
        return theirs if side == THEIRS else mine


def _keeps_order(base: Collection[Key], theirs: Collection[Key], mine: Collection[Key]) -> bool:
    """Return whether my order counts: I moved something, or I added something and they moved nothing."""
    if _are_moved(base, mine):
        return True
    return not _are_moved(base, theirs) and any(key not in base for key in mine)


def _are_moved(base: Collection[Key], side: Collection[Key]) -> bool:
    return [key for key in base if key in side] != [key for key in side if key in base]


def _by_name(rules: Sequence[engine.Rule]) -> dict[str, Any]:
    return {rule.key: rule for rule in rules}
