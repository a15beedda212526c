"""Two edits of one rule set, rule by rule: what only one side changed is taken, what both did is named, or taken as chosen. Pure."""

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
    """What came of it; without conflicts `rule_set` is what both wanted.

    Attributes:
        rule_set: both sides together; mine, where they conflict and nothing is chosen.
        conflicts: what both sides changed, each to something else: in words, by the part's name, as `filters/team`.
    """

    rule_set: engine.RuleSet
    conflicts: Mapping[str, str]


def merge_rule_sets(
    base: engine.RuleSet, theirs: engine.RuleSet, mine: engine.RuleSet, chosen: Mapping[str, str] | None = None
) -> Merged:
    """Put two edits of one rule set together. Rules keep the order of the side that changed it, mine where both did; what the other one added comes behind.

    `chosen` says by the part's name whose is taken of what both changed; what is chosen is no conflict any more.
    """
    return _Merge(chosen or {}).of(base, theirs, mine)


class _Merge:
    """A merge: what is chosen, and which conflicts it has come upon."""

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
        """Put two edits of a mapping together, in the order of the side that changed it."""
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
    """Return whether my order counts: I have put something elsewhere, or have added something and they have moved nothing."""
    if _are_moved(base, mine):
        return True
    return not _are_moved(base, theirs) and any(key not in base for key in mine)


def _are_moved(base: Collection[Key], side: Collection[Key]) -> bool:
    return [key for key in base if key in side] != [key for key in side if key in base]


def _by_name(rules: Sequence[engine.Rule]) -> dict[str, Any]:
    return {rule.key: rule for rule in rules}
