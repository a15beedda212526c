"""Params of a rule set, overridden by those of an Assignment, and whether the types of both agree."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from policies.engine.errors import Fault
from policies.engine.reading import Reader, type_name

_PATH = "spec.params"
_WHOLE, _FRACTION = "a whole number", "a number with a fraction"


def overridden(params: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return params with overrides. A whole number becomes a double where the rule set has a double, since CEL distinguishes them."""
    return {**params, **{name: _as(_Own([params.get(name)]), value) for name, value in overrides.items()}}


def key_of(rule_set: str, overrides: Mapping[str, Any]) -> Hashable:
    """Return a key that distinguishes a rule set with these params from the same one with others."""
    return rule_set, msgspec.json.encode(overrides, order="sorted")


def type_faults(rule_set: str, params: Mapping[str, Any], overrides: Mapping[str, Any]) -> list[Fault]:
    """Return a fault for each param that the rule set doesn't have, or has with another type."""
    unknown = Reader(overrides, _PATH, [], params).faults
    faults = [Fault(each.path, _no_such(rule_set, params, each)) for each in unknown]
    for name, value in overrides.items():
        if name in params:
            faults += _mismatches(_Own([params[name]]), value, f"{_PATH}.{name}", rule_set)
    return faults


def _no_such(rule_set: str, params: Mapping[str, Any], unknown: Fault) -> str:
    hint = unknown.message.removeprefix("unknown member; ") if params else "it has none"
    return f"rule set {rule_set} has no such param; {hint}"


def _mismatches(own: "_Own", given: object, path: str, rule_set: str, *, is_named: bool = True) -> Iterator[Fault]:
    """Iterate over the values of another type than in the rule set: the value itself, or parts of a list or an object.

    `is_named` says whether the rule set has a value of that name; otherwise `own` holds the values beside it.
    """
    if own.may_be_any:
        return
    if not _fits(own.types, given):
        there, types = "in" if is_named else "the others in", " or ".join(own.types)
        yield Fault(path, f"must be {types}, as {there} rule set {rule_set}, not {_type(given)}")
    elif isinstance(given, list):
        for index, part in enumerate(given):
            yield from _mismatches(own.parts, part, f"{path}[{index}]", rule_set, is_named=False)
    elif isinstance(given, dict):
        for name, part in given.items():
            known = name in own.members
            yield from _mismatches(own.member(name), part, f"{path}.{name}", rule_set, is_named=known)


class _Own:
    """The rule set's values in one place: one value, or several side by side in a list or an object."""

    def __init__(self, values: Sequence[object]) -> None:
        self.values = values

    @cached_property
    def may_be_any(self) -> bool:
        """Whether they fix no type: there are none, or null is among them."""
        return not self.values or any(each is None for each in self.values)

    @cached_property
    def types(self) -> list[str]:
        """Their types, in words."""
        return sorted({_type(each) for each in self.values})

    @cached_property
    def are_fractions(self) -> bool:
        """Whether all numbers among them are doubles: then a whole number fits only as a double."""
        return not self.may_be_any and {type(each) for each in self.values} & {int, float} == {float}

    @cached_property
    def parts(self) -> "_Own":
        """The parts of the lists among them."""
        return _Own([part for each in self.values if isinstance(each, list) for part in each])

    @cached_property
    def members(self) -> dict[str, "_Own"]:
        """The members of the objects among them, by name."""
        found: dict[str, list[object]] = {}
        for each in self._objects:
            for name, part in each.items():
                found.setdefault(name, []).append(part)
        return {name: _Own(values) for name, values in found.items()}

    def member(self, name: str) -> "_Own":
        """Return the members of this name; all members where there are none."""
        return self.members.get(name) or self._all_members

    @cached_property
    def _objects(self) -> list[dict[str, object]]:
        return [each for each in self.values if isinstance(each, dict)]

    @cached_property
    def _all_members(self) -> "_Own":
        return _Own([part for each in self._objects for part in each.values()])


def _fits(known: Iterable[str], value: object) -> bool:
    found = _type(value)
    return found in known or (found == _WHOLE and _FRACTION in known)


def _type(value: object) -> str:
    if isinstance(value, bool):
        return type_name(value)
    return {int: _WHOLE, float: _FRACTION}.get(type(value), type_name(value))


def _as(own: _Own, value: Any) -> Any:
    """Return a value whose numbers are doubles where the rule set's numbers are doubles."""
    if isinstance(value, list):
        return [_as(own.parts, part) for part in value]
    if isinstance(value, dict):
        return {name: _as(own.member(name), part) for name, part in value.items()}
    return float(value) if type(value) is int and own.are_fractions else value
