"""Assignments that conflict with each other, judged by their matches alone.

Only certain conflicts are reported. One Assignment covers another where each of its requirements follows from the requirements of
the other one. Two are apart where no Pod can match both.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from policies.engine.objects.owners import DEPLOYMENT
from policies.engine.ruleset import Assignment, LabelMatch, Match

Kind = Literal["never reached", "hidden", "same order"]


class Conflict(NamedTuple):
    """An Assignment, the earlier one that conflicts with it, and the kind of conflict.

    Attributes:
        kind: "never reached": the other takes every Pod that it could take; "hidden": it takes some of them, for another rule
            set or with other params, though neither is meant for all Pods of the other; "same order": their names decide between them.
            The last two are reported only for Assignments that require something of the same label or field.
        name: of the Assignment.
        other: of the earlier one; its own name where it excludes itself.
    """

    kind: Kind
    name: str
    other: str

    def sentence(self, paused: Collection[str] = ()) -> str:
        """Return it in words, without a full stop. Assignments that are `paused` take no Pods for now."""
        until = f", once Assignment {self.other} isn't paused any more" if self.other in paused else ""
        return self._sentence() + until

    def _sentence(self) -> str:
        if self.name == self.other:
            return f"Assignment {self.name} is never reached: no Pod can meet all that it requires"
        match self.kind:
            case "never reached":
                return f"Assignment {self.name} is never reached: {self.other} before it takes every Pod that it could take"
            case "hidden":
                return f"Assignment {self.name} doesn't get the Pods that {self.other} before it takes too"
            case _:
                return f"Assignments {self.other} and {self.name} have the same order and can take the same Pods: their names decide"


class _Values(NamedTuple):
    """The values that are possible: one of `allowed`, where that isn't None, and none of `denied`.

    `is_there` says whether a value must exist (True), must not exist (False), or may do either (None).
    """

    allowed: frozenset[str] | None
    denied: frozenset[str] = frozenset()
    is_there: bool | None = True

    @property
    def is_impossible(self) -> bool:
        """Whether no value is possible."""
        return self.allowed is not None and not self.allowed

    def and_also(self, other: "_Values") -> "_Values":
        """Return the values that meet both."""
        denied = self.denied | other.denied
        allowed = self.allowed if other.allowed is None else other.allowed
        if self.allowed is not None and other.allowed is not None:
            allowed = self.allowed & other.allowed
        if None not in (self.is_there, other.is_there) and self.is_there is not other.is_there:
            return _Values(frozenset(), denied)
        there = other.is_there if self.is_there is None else self.is_there
        return _Values(None if allowed is None else allowed - denied, denied, there)

    def excludes(self, other: "_Values") -> bool:
        """Return whether no value meets both."""
        # Nearly all pairs name different values: this tells them apart without computing the intersection.
        if self.allowed is not None and other.allowed is not None and self.allowed.isdisjoint(other.allowed):
            return True
        return self.and_also(other).is_impossible

    def follows_from(self, other: "_Values") -> bool:
        """Return whether every value that meets the other meets this one, too."""
        if other.is_there is False:
            # A missing value meets only a requirement that denies values or asks for none.
            return self.is_there is not True
        if self.is_there is False or (self.is_there is True and other.is_there is None):
            return False
        if self.allowed is not None and (other.allowed is None or not other.allowed <= self.allowed):
            return False
        return other.allowed.isdisjoint(self.denied) if other.allowed is not None else self.denied <= other.denied


_ALWAYS_THERE = _Values(None)

# A Pod of a ReplicaSet that a Deployment made has both kinds of owners (`owner_kinds_of`). Any other has one, or none.
_BOTH_KINDS = frozenset({"ReplicaSet", DEPLOYMENT})
_HAS_BOTH = "+".join(sorted(_BOTH_KINDS))

# Kubernetes sets this label of every Namespace to its name, so a requirement of it is one of the Pod's namespace.
_NAMESPACE_NAME = ("namespace_selector", "kubernetes.io/metadata.name")

# What a match requirement is about: a field, and the label where the field is one of labels.
_Place = tuple[str, str]
_Required = Mapping[_Place, _Values]
_FIELDS = Match.__struct_fields__


class _Filed:
    """Assignments in their order, indexed by their requirements, so that most pairs needn't be compared.

    Two can only be in each other's way where they require something of the same label or field, or where the first takes every Pod.
    """

    def __init__(self) -> None:
        self._all: list[tuple[Assignment, _Required]] = []
        self._always: list[int] = []
        # For each field or label: the Assignments by each value that they name, under None those that name none; and all of them.
        self._by_value: dict[tuple[_Place, str | None], list[int]] = {}
        self._by_place: dict[_Place, list[int]] = {}

    def add(self, each: Assignment, required: _Required) -> None:
        """Add one after all others."""
        position = len(self._all)
        self._all.append((each, required))
        if not required:
            self._always.append(position)
        for place, values in required.items():
            self._by_place.setdefault(place, []).append(position)
            for value in (None,) if values.allowed is None else values.allowed:
                self._by_value.setdefault((place, value), []).append(position)

    def beside(self, required: _Required) -> Iterator[tuple[Assignment, _Required]]:
        """Iterate over all that can conflict with one that has these requirements, and over a few others."""
        found = set(self._always)
        for place, values in required.items():
            if values.allowed is None:
                found.update(self._by_place.get(place, ()))
                continue
            for value in (*values.allowed, None):
                found.update(self._by_value.get((place, value), ()))
        return (self._all[position] for position in sorted(found))


def conflicts(assignments: Sequence[Assignment], about: Collection[str] | None = None) -> list[Conflict]:
    """Return the Assignments that conflict with an earlier one, in their order.

    Args:
        assignments: all of them.
        about: names; conflicts in which none of them takes part are left out. None leaves out nothing.
    """
    found: list[Conflict] = []
    before, asked_before = _Filed(), _Filed()
    for each in sorted(assignments, key=lambda each: (each.order, each.name)):
        mine = _required(each.match)
        if any(values.is_impossible for values in mine.values()):
            found += [Conflict("never reached", each.name, each.name)] if about is None or each.name in about else []
            continue
        is_asked = about is None or each.name in about
        if is_asked or _conflicts_of(each, mine, asked_before.beside(mine)):
            # Among all: where another one takes every Pod of it anyway, that is its only conflict.
            found += [
                one
                for one in _conflicts_of(each, mine, before.beside(mine))
                if about is None or one.name in about or one.other in about
            ]
        if each.mode == "enforce":
            before.add(each, mine)
            if is_asked:
                asked_before.add(each, mine)
    return found


def _conflicts_of(each: Assignment, mine: _Required, before: Iterable[tuple[Assignment, _Required]]) -> list[Conflict]:
    found: list[Conflict] = []
    for other, theirs in before:
        if _are_apart(mine, theirs):
            continue
        if _covers(theirs, mine):
            return [Conflict("never reached", each.name, other.name)]
        # Assignments with quite different requirements can nearly always match one Pod together, and it is seldom a mistake.
        if (each.rule_set, each.params) == (other.rule_set, other.params) or mine.keys().isdisjoint(theirs):
            continue
        if each.order == other.order:
            found.append(Conflict("same order", each.name, other.name))
        elif not _covers(mine, theirs):
            found.append(Conflict("hidden", each.name, other.name))
    return found


def _covers(wider: _Required, narrower: _Required) -> bool:
    return all(key in narrower and values.follows_from(narrower[key]) for key, values in wider.items())


def _are_apart(one: _Required, other: _Required) -> bool:
    if len(other) < len(one):
        one, other = other, one
    for key, values in one.items():
        theirs = other.get(key)
        if theirs is not None and values.excludes(theirs):
            return True
    return False


def _required(match: Match) -> _Required:
    found: dict[_Place, _Values] = {}
    for place, values in _requirements(match):
        found[place] = found[place].and_also(values) if place in found else values
    return found


def _requirements(match: Match) -> Iterator[tuple[_Place, _Values]]:
    for field in _FIELDS:
        value = getattr(match, field)
        if isinstance(value, LabelMatch):
            for key, values in _of_labels(value):
                if (field, key) == _NAMESPACE_NAME:
                    yield ("namespaces", ""), _ALWAYS_THERE.and_also(values)
                else:
                    yield (field, key), values
        elif value:
            names = frozenset(value)
            yield (field, ""), _Values(_of_owners(names) if field == "owner_kinds" else names)


def _of_owners(kinds: frozenset[str]) -> frozenset[str]:
    """Return the owners that meet these kinds. A Pod has exactly one of them, so matches without a common one are apart."""
    return kinds if kinds.isdisjoint(_BOTH_KINDS) else kinds | {_HAS_BOTH}


def _of_labels(selector: LabelMatch) -> Iterator[tuple[str, _Values]]:
    for key, value in selector.match_labels.items():
        yield key, _Values(frozenset({value}))
    for entry in selector.match_expressions:
        yield entry["key"], _of_expression(entry)


def _of_expression(entry: Mapping[str, Any]) -> _Values:
    values = frozenset(entry.get("values") or ())
    match entry["operator"]:
        case "In":
            return _Values(values)
        case "NotIn":
            return _Values(None, values, is_there=None)
        case "Exists":
            return _Values(None)
        case _:
            return _Values(None, is_there=False)
