"""The content that a Change makes live: checked, numbered, and applied to the live state; the rows are updated."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from policies import compiler
from policies.engine import ruleset as engine
from policies.engine.documents import document_of, read_assignment, read_exemption, read_pause, read_priority_class
from policies.engine.errors import Fault, RuleSetError
from policies.engine.pauses import ASSIGNMENT, RULE_SET, Target
from policies.models import Revision
from policies.publishing.actors import By
from policies.publishing.assignments import follow_assignments, with_assignments
from policies.publishing.errors import PublishingError
from policies.publishing.params import changed_params_faults
from policies.publishing.parts import Key, Value, is_same, key_of
from policies.publishing.priority_classes import follow_priority_classes, with_priority_classes
from policies.publishing.revisions import current_revision, make_revision, values_of
from policies.publishing.rule_sets import follow_versions, publish_versions, rule_set_faults, without_rules

Part = TypeVar("Part", engine.RuleSet, engine.Assignment, engine.PriorityClass, engine.Pause, engine.Exemption)


class Edit(NamedTuple):
    """An edit of one thing: its new content, None to remove it.

    A rule set or PriorityClass without a version number gets its next one when it goes live; one with a number goes back to
    that version.
    """

    kind: str
    name: str
    value: Value | None

    @classmethod
    def of(cls, value: Value) -> "Edit":
        """Return the edit that makes this content live."""
        return cls(*key_of(value), value)

    @property
    def key(self) -> Key:
        """Kind and name."""
        return self.kind, self.name


def with_edits(before: engine.Revision, edits: Iterable[Edit]) -> engine.Revision:
    """Return the live state with these edits applied, for display: nothing is checked or numbered.

    A Pause or an Exemption whose target is removed ends with it: if the target is brought back later, it is in force.
    """
    values = values_of(before)
    for edit in edits:
        values.pop(edit.key, None)
        if edit.value is not None:
            values[edit.key] = edit.value
    rule_sets = [each for each in values.values() if isinstance(each, engine.RuleSet)]
    assignments = [each for each in values.values() if isinstance(each, engine.Assignment)]
    missing = _Missing(rule_sets, assignments)
    return compiler.revision_document(
        number=before.number,
        published_at=before.published_at,
        rule_sets=rule_sets,
        assignments=assignments,
        priority_classes=[each for each in values.values() if isinstance(each, engine.PriorityClass)],
        pauses=[each for each in values.values() if isinstance(each, engine.Pause) and not missing.of(each.target)],
        exemptions=[
            each for each in values.values() if isinstance(each, engine.Exemption) and not missing.of(each.target)
        ],
    )


class _Missing:
    """The things that will exist: decides whether the target of a Pause or an Exemption is missing."""

    def __init__(self, rule_sets: Iterable[engine.RuleSet], assignments: Iterable[engine.Assignment]) -> None:
        self._rule_sets = {each.name: each for each in rule_sets}
        self._assignments = {each.name for each in assignments}

    def of(self, named: str) -> str:
        """Return, in words, what is missing of a target; empty where nothing is."""
        target = Target.parse(named)
        if target.kind == ASSIGNMENT and target.name not in self._assignments:
            return f"no Assignment {target.name} is live"
        if target.kind != RULE_SET:
            return ""
        if target.name not in self._rule_sets:
            return f"no rule set {target.name} is live"
        if target.rule and target.rule not in (keys := self._rule_sets[target.name].spec.keys):
            return f"rule set {target.name} has no rule {target.rule}; it has {', '.join(keys) or 'none'}"
        return ""


def missing_target(target: str, live: engine.Revision) -> str:
    """Return, in words, what isn't live of the target of a Pause or an Exemption; empty where all of it is."""
    return _Missing(live.rule_sets, live.assignments).of(target)


def ended_with(live: engine.Revision, edits: Collection[Edit]) -> list[engine.Pause | engine.Exemption]:
    """Return the Pauses and Exemptions that end because edits remove their targets, without being edited themselves."""
    if not (live.pauses or live.exemptions):
        return []
    after = values_of(with_edits(live, edits)).keys() | {edit.key for edit in edits}
    suspended: list[engine.Pause | engine.Exemption] = [*live.pauses, *live.exemptions]
    return [each for each in suspended if key_of(each) not in after]


def check_held(edits: Collection[Edit], live: engine.Revision) -> None:
    """Refuse edits that include a live Pause or Exemption, unchanged, and remove its target: it would end.

    Raises:
        PublishingError: names the target that won't exist.
    """
    values = values_of(live)
    if faults := [fault for key, fault in _unknown_targets(edits, live) if key in values]:
        raise PublishingError(faults)


def check_contents(edits: Collection[Edit], live: engine.Revision) -> None:
    """Validate each document again, as untrusted input, and run its tests.

    Raises:
        PublishingError: with every fault of all documents; each begins with the thing that it is in.
    """
    edits, faults = list(edits), list[Fault]()
    published = {each.name for each in live.rule_sets}
    new = [edit.value for edit in edits if isinstance(edit.value, engine.RuleSet) and not edit.value.version]
    of_rule_sets = dict(zip((each.name for each in new), rule_set_faults(new), strict=True))
    for edit in edits:
        found = of_rule_sets.get(edit.name, []) if edit.kind == "RuleSet" else _faults_of(edit)
        # A fault of the whole document has no path.
        faults += [
            msgspec.structs.replace(each, path=f"{edit.name}: {each.path}" if each.path else edit.name)
            for each in found
        ]
        if edit.value is None and edit.kind == "RuleSet" and edit.name not in published:
            faults.append(Fault(edit.name, "isn't live, so it can't be removed"))
    faults += [fault for _, fault in _unknown_targets(edits, live)]
    if faults := faults or changed_params_faults(live, with_edits(live, edits)):
        raise PublishingError(faults)


def misfits(edits: Collection[Edit], live: engine.Revision) -> list[Fault]:
    """Return the inconsistencies between valid documents: targets that won't exist, params that rule sets don't have."""
    targets = [fault for _, fault in _unknown_targets(edits, live)]
    return targets or changed_params_faults(live, with_edits(live, edits))


def _ruleless(edits: Iterable[Edit]) -> Iterator[Fault]:
    """Iterate over the new rule sets that have no rule at all: `plan` applies them without the other checks."""
    new = [edit.value for edit in edits if isinstance(edit.value, engine.RuleSet) and not edit.value.version]
    for each in new:
        yield from (msgspec.structs.replace(fault, path=each.name) for fault in without_rules(each, each.name))


def _unknown_targets(edits: Collection[Edit], live: engine.Revision) -> Iterator[tuple[Key, Fault]]:
    """Iterate over the Pauses and Exemptions whose target won't exist: a typo in a name would leave everything in force."""
    wanted = [edit.value for edit in edits if isinstance(edit.value, engine.Pause | engine.Exemption)]
    after = with_edits(live, edits) if wanted else live
    missing = _Missing(after.rule_sets, after.assignments)
    for each in wanted:
        if said := missing.of(each.target):
            yield key_of(each), Fault(f"{each.name}: spec.target", said)


def _faults_of(edit: Edit) -> list[Fault]:
    try:
        match edit.value:
            case engine.Assignment():
                read_assignment(document_of(edit.value))
            case engine.PriorityClass():
                read_priority_class(document_of(edit.value))
            case engine.Pause():
                read_pause(document_of(edit.value))
            case engine.Exemption():
                read_exemption(document_of(edit.value))
    except RuleSetError as error:
        return error.faults
    return []


def make_live(
    before: engine.Revision, edits: Sequence[Edit], *, by: By, reason: str, authors: Mapping[Key, str]
) -> Revision | None:
    """Make the next Revision from the live state and these edits; update the states of versions and the rows of the live state.

    Raises:
        PublishingError: a rule set has no rule, the rule set of an Assignment or the target of a Pause would be missing, or
            Kubernetes wouldn't accept a class.
    """
    if faults := [*_ruleless(edits), *(fault for _, fault in _unknown_targets(edits, before))]:
        raise PublishingError(faults)
    rule_sets = _rule_sets(before, edits, by=by, reason=reason, authors=authors)
    wanted = [edit.value for edit in edits if isinstance(edit.value, engine.Assignment)]
    assignments = _without(with_assignments(before, wanted, published=rule_sets), edits, "Assignment")
    _check_names(assignments, rule_sets)
    numbered = [edit.value for edit in edits if isinstance(edit.value, engine.PriorityClass)]
    rest = msgspec.structs.replace(before, priority_classes=_without(before.priority_classes, edits, "PriorityClass"))
    classes = with_priority_classes(rest, numbered)
    looked_at = with_edits(before, edits)
    suspensions = (looked_at.pauses, looked_at.exemptions)
    made = make_revision(
        before, list(rule_sets.values()), assignments, classes, suspensions=suspensions, by=by, reason=reason
    )
    if made is not None:
        after = current_revision()
        follow_versions(before, after)
        follow_assignments(before, after, authors)
        follow_priority_classes(before, after, authors)
    return made


def _rule_sets(
    before: engine.Revision, edits: Sequence[Edit], *, by: By, reason: str, authors: Mapping[Key, str]
) -> dict[str, engine.RuleSet]:
    live = {each.name: each for each in before.rule_sets}
    values = {edit.name: edit.value for edit in edits if isinstance(edit.value, engine.RuleSet)}
    new = {name: value for name, value in values.items() if not value.version and not is_same(live.get(name), value)}
    live |= publish_versions(new, by=by, reason=reason, authors=authors)
    live |= {name: value for name, value in values.items() if value.version}
    removed = {edit.name for edit in edits if edit.kind == "RuleSet" and edit.value is None}
    return {name: value for name, value in live.items() if name not in removed}


def _without(values: Iterable[Part], edits: Iterable[Edit], kind: str) -> list[Part]:
    removed = {edit.name for edit in edits if edit.kind == kind and edit.value is None}
    return [each for each in values if each.name not in removed]


def _check_names(assignments: Iterable[engine.Assignment], rule_sets: Mapping[str, engine.RuleSet]) -> None:
    faults = [
        Fault(each.name, f"rule set {each.rule_set} would no longer be live; give this Assignment another one first")
        for each in assignments
        if each.rule_set not in rule_sets
    ]
    if faults:
        raise PublishingError(faults)
