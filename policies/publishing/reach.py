"""Which parts of a Change a token doesn't reach: by the names of things, and by the Pods that they concern. Nothing here writes."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from policies.engine import ruleset as engine
from policies.engine.pauses import ASSIGNMENT, RULE_SET, Target
from policies.publishing.actors import By, reach_of, via_of
from policies.publishing.contents import Edit
from policies.publishing.errors import ForbiddenError
from policies.publishing.parts import Key, Kind, Value
from policies.publishing.revisions import current_revision, values_of
from policies.scopes import Reach

_T = TypeVar("_T", bound=Value)


def check_reach_of(edits: Iterable[Edit], bases: Mapping[Key, Value | None], by: By) -> None:
    """Check that a token reaches everything that edits touch; they needn't belong to a Change yet.

    Raises:
        ForbiddenError: names the things that it doesn't reach.
    """
    if said := _out_of_reach(reach_of(by), edits, bases, current_revision()):
        raise ForbiddenError([f"Out of reach of {via_of(by)}: {each}" for each in said])


def _out_of_reach(
    reach: Reach, edits: Iterable[Edit], bases: Mapping[Key, Value | None], live: engine.Revision
) -> list[str]:
    """Return why a token doesn't reach the things of edits, one sentence each; nothing where it does, and for people.

    Three contents of a thing count: the live one, the base of the edit, and the new one. So a thing that is renamed, moved or
    removed is also touched where it was.
    """
    if reach.is_whole:
        return []
    values = values_of(live)
    found: dict[str, None] = {}
    for edit in edits:
        sides = [side for side in (values.get(edit.key), bases.get(edit.key), edit.value) if side is not None]
        found |= dict.fromkeys(f"{edit.kind} {edit.name}: {why}." for why in _why(reach, edit.key, sides, live))
    return list(found)


def _why(reach: Reach, key: Key, sides: list[Value], live: engine.Revision) -> Iterator[str]:
    kind, name = key
    match kind:
        case Kind.RULE_SET:
            yield from _of_rule_set(reach, name, live)
        case Kind.ASSIGNMENT:
            yield from _of_name(reach, name)
            for assignment in _those(sides, engine.Assignment):
                yield from _of_assignment(reach, assignment)
        case Kind.PAUSE | Kind.EXEMPTION:
            for side in _those(sides, engine.Pause):
                yield from _of_target(reach, side.target, live)
            for exemption in _those(sides, engine.Exemption):
                yield from _of_target(reach, exemption.target, live)
                # As for its rule set: without patterns of namespaces the Pods don't matter.
                if reach.namespaces:
                    yield from _of_namespaces(reach, [each.namespace for each in exemption.pods])
        case _:
            yield "it affects the whole cluster"


def _those(sides: Iterable[Value], kind: type[_T]) -> list[_T]:
    return [side for side in sides if isinstance(side, kind)]


def _of_name(reach: Reach, name: str) -> Iterator[str]:
    if not reach.has_name(name):
        yield f"{name} isn't among the names {', '.join(reach.rule_sets)}"


def _of_rule_set(reach: Reach, name: str, live: engine.Revision) -> Iterator[str]:
    yield from _of_name(reach, name)
    if not reach.namespaces:
        return
    for each in live.assignments:
        if each.rule_set == name and not reach.has_namespaces(each.match.namespaces):
            yield f"Assignment {each.name} gives it to Pods of {_whose(each.match.namespaces)}"


def _of_assignment(reach: Reach, assignment: engine.Assignment) -> Iterator[str]:
    if not reach.has_name(assignment.rule_set):
        yield f"its rule set {assignment.rule_set} isn't among the names {', '.join(reach.rule_sets)}"
    yield from _of_namespaces(reach, assignment.match.namespaces)


def _of_namespaces(reach: Reach, namespaces: list[str]) -> Iterator[str]:
    if not reach.has_namespaces(namespaces):
        yield f"it affects Pods of {_whose(namespaces)}"


def _of_target(reach: Reach, target: str, live: engine.Revision) -> Iterator[str]:
    kind, name, _ = Target.parse(target)
    if kind == RULE_SET:
        yield from _of_rule_set(reach, name, live)
    elif kind == ASSIGNMENT:
        yield from _of_name(reach, name)
        for each in live.assignments:
            if each.name == name:
                yield from _of_assignment(reach, each)
    else:
        yield "it affects the whole cluster"


def _whose(namespaces: list[str]) -> str:
    return f"namespace {', '.join(namespaces)}" if namespaces else "all namespaces"
