"""Params of a rule set with those of an Assignment in their place, and whether these are of the same types."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from policies.engine.errors import Fault
from policies.engine.reading import Reader, type_name

_PATH = "spec.params"
_WHOLE, _FRACTION = "a whole number", "a number with a fraction"


def overridden(params: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return params with some in place of others. A whole number where the rule set has a fraction becomes one, for CEL tells them apart."""
    return {**params, **{name: _as(params.get(name), value) for name, value in overrides.items()}}


def key_of(rule_set: str, overrides: Mapping[str, Any]) -> Hashable:
    """Return what tells a rule set with these params from the same one with others."""
    return rule_set, msgspec.json.encode(overrides, order="sorted")


def type_faults(rule_set: str, params: Mapping[str, Any], overrides: Mapping[str, Any]) -> list[Fault]:
    """Return a fault for each param that the rule set doesn't have, or has with another type."""
    unknown = Reader(overrides, _PATH, [], params).faults
    faults = [Fault(each.path, _no_such(rule_set, params, each)) for each in unknown]
    for name, value in overrides.items():
        if name in params:
            faults += _mismatches(params[name], value, f"{_PATH}.{name}", rule_set)
    return faults


def _no_such(rule_set: str, params: Mapping[str, Any], unknown: Fault) -> str:
    hint = unknown.message.removeprefix("unknown member; ") if params else "it has none"
    return f"rule set {rule_set} has no such param; {hint}"


def _mismatches(own: object, given: object, path: str, rule_set: str) -> Iterator[Fault]:
    """Iterate over what is of another type than in the rule set: the value, or a part of a list or an object."""
    if own is None:
        return  # null says nothing of a type
    if not _fits([_type(own)], given):
        yield Fault(path, f"must be {_type(own)}, as in rule set {rule_set}, not {_type(given)}")
        return
    known = sorted({_type(part) for _, part in _parts(own)})
    for where, part in _parts(given):
        if known and not _fits(known, part):
            wanted = " or ".join(known)
            yield Fault(f"{path}{where}", f"must be {wanted}, as the others in rule set {rule_set}, not {_type(part)}")


def _parts(value: object) -> Iterable[tuple[str, object]]:
    if isinstance(value, list):
        return [(f"[{index}]", part) for index, part in enumerate(value)]
    if isinstance(value, dict):
        return [(f".{name}", part) for name, part in value.items()]
    return ()


def _fits(known: Iterable[str], value: object) -> bool:
    found = _type(value)
    return found in known or (found == _WHOLE and _FRACTION in known)


def _type(value: object) -> str:
    if isinstance(value, bool):
        return type_name(value)
    return {int: _WHOLE, float: _FRACTION}.get(type(value), type_name(value))


def _as(own: object, value: Any) -> Any:
    if isinstance(own, float) and isinstance(value, int):
        return float(value)
    if isinstance(own, list) and isinstance(value, list) and _only_fractions(own):
        return [_as(own[0], part) for part in value]
    if isinstance(own, dict) and isinstance(value, dict) and _only_fractions(own.values()):
        return {name: _as(0.0, part) for name, part in value.items()}
    return value


def _only_fractions(values: Iterable[object]) -> bool:
    return {type(each) for each in values} == {float}
