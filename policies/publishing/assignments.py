"""Assignments: saving one, and publishing all of them as their rows are."""

from collections.abc import Collection, Iterable, Mapping

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone

from policies import compiler
from policies.engine import ruleset as engine
from policies.engine.errors import Fault, RuleSetError
from policies.engine.validation import read_assignment
from policies.models import Assignment, Revision, RuleSet
from policies.publishing.actors import By, name_of
from policies.publishing.errors import PublishingError
from policies.publishing.parts import batches
from policies.publishing.revisions import current_revision, lock_revisions, make_revision
from policies.publishing.shown import check_shown


def save_assignment(*, assignment: engine.Assignment, by: By, row: Assignment | None = None) -> tuple[Assignment, bool]:
    """Write a checked Assignment to its row, by its name or to the given row. Nothing goes live by it.

    Returns:
        The row, and whether anything changed.

    Raises:
        PublishingError: its rule set doesn't exist, or somebody made it meanwhile.
    """
    changed = _save({assignment.name: assignment}, {assignment.name: row} if row else {}, by=by)
    return row or Assignment.objects.get(name=assignment.name), bool(changed)


def save_assignments(*, assignments: Mapping[str, engine.Assignment], by: By) -> frozenset[str]:
    """Write checked Assignments to the rows of their names, in few statements. Nothing goes live by it.

    Returns:
        The names of those that changed.

    Raises:
        PublishingError: a rule set doesn't exist, or somebody made one of them meanwhile.
    """
    return _save(assignments, {}, by=by)


def _save(wanted: Mapping[str, engine.Assignment], given: Mapping[str, Assignment], *, by: By) -> frozenset[str]:
    """Write Assignments to the rows that are given for them, or to those of their names."""
    rule_sets = RuleSet.objects.in_bulk(list({each.rule_set for each in wanted.values()}), field_name="name")
    missing = [each.rule_set for each in wanted.values() if each.rule_set not in rule_sets]
    if missing:
        raise PublishingError([Fault("spec.ruleSet", f"no rule set is called {name}") for name in missing])
    try:
        with transaction.atomic():
            return _write(wanted, given, rule_sets, by=by)
    except IntegrityError as error:
        raise PublishingError(["Somebody else has just made one of these Assignments; try again."]) from error


def _write(
    wanted: Mapping[str, engine.Assignment],
    given: Mapping[str, Assignment],
    rule_sets: Mapping[str, RuleSet],
    *,
    by: By,
) -> frozenset[str]:
    rows = {**Assignment.objects.in_bulk([name for name in wanted if name not in given], field_name="name"), **given}
    made: list[Assignment] = []
    changed: list[Assignment] = []
    written: set[str] = set()
    # By name: two who make the same rows in different orders would wait for each other.
    for name, assignment in sorted(wanted.items()):
        row = rows.get(name) or Assignment()
        fields = compiler.assignment_fields(assignment, rule_set=rule_sets[assignment.rule_set]) | {"name": name}
        if row.pk and all(getattr(row, field) == value for field, value in fields.items()):
            continue
        for field, value in (fields | {"author": name_of(by), "updated_at": timezone.now()}).items():
            setattr(row, field, value)
        (changed if row.pk else made).append(row)
        written |= fields.keys()
    Assignment.objects.bulk_create(made)
    if changed:
        Assignment.objects.bulk_update(changed, [*written, "author", "updated_at"], batch_size=100)
    return frozenset(row.name for row in (*made, *changed))


def publish_assignments(*, by: By, reason: str, expected_digest: str = "") -> Revision | None:
    """Make the next Revision with the Assignments as their rows are now. None when they are live already.

    Args:
        by: who publishes.
        reason: why, in that person's words.
        expected_digest: `digest_of_shown` of what that person looked at, when nothing else may be published.

    Raises:
        PublishingError: an Assignment is faulty, or names a rule set without a published version, or they changed.
    """
    with transaction.atomic():
        before = lock_revisions()
        assignments = checked_assignments({rule_set.name for rule_set in before.rule_sets})
        check_shown(expected_digest, before.assignments, assignments)
        return make_revision(before, before.rule_sets, assignments, by=by, reason=reason)


def unpublished_assignments() -> dict[str, str]:
    """Return the names of Assignments whose rows differ from what is live, each with how: new, changed or removed."""
    live = {assignment.name: assignment for assignment in current_revision().assignments}
    rows = {row.name: assignment_of_row(row) for row in Assignment.objects.select_related("rule_set")}
    differing = {}
    for name in sorted(live | rows):
        if name not in rows:
            differing[name] = "removed"
        elif name not in live:
            differing[name] = "new"
        elif rows[name] != live[name]:
            differing[name] = "changed"
    return differing


def checked_assignments(live: Collection[str]) -> list[engine.Assignment]:
    """Return the Assignments of all rows; each must be sound and name a rule set that is live."""
    assignments, faults = [], []
    for row in Assignment.objects.select_related("rule_set"):
        if row.rule_set.name not in live:
            faults.append(_unpublished(row.name, row.rule_set.name))
        try:
            assignments.append(read_assignment(compiler.assignment_document(row)))
        except RuleSetError as error:
            faults += [msgspec.structs.replace(fault, path=f"{row.name}: {fault.path}") for fault in error.faults]
    if faults:
        raise PublishingError(faults)
    return assignments


def with_assignments(
    before: engine.Revision, wanted: Iterable[engine.Assignment], published: Collection[str]
) -> list[engine.Assignment]:
    """Return the live Assignments with some in their place; each of these must name a rule set that is published."""
    given = {each.name: each for each in wanted}
    faults = [_unpublished(each.name, each.rule_set) for each in given.values() if each.rule_set not in published]
    if faults:
        raise PublishingError(faults)
    return list(({each.name: each for each in before.assignments} | given).values())


def follow_assignments(before: engine.Revision, target: engine.Revision, *, by: By) -> None:
    """Make the rows follow what goes live where they hold what was live until now; unpublished edits stay."""
    live = {assignment.name: assignment for assignment in before.assignments}
    wanted = {assignment.name: assignment for assignment in target.assignments}
    moved = [name for name in live | wanted if live.get(name) != wanted.get(name)]
    rows: dict[str, Assignment] = {}
    for batch in batches(moved):
        rows |= Assignment.objects.select_related("rule_set").in_bulk(batch, field_name="name")
    following = [name for name in moved if (assignment_of_row(rows[name]) if name in rows else None) == live.get(name)]
    save_assignments(assignments={name: wanted[name] for name in following if name in wanted}, by=by)
    for batch in batches([name for name in following if name not in wanted]):
        Assignment.objects.filter(name__in=batch).delete()


def assignment_of_row(row: Assignment) -> engine.Assignment | None:
    """Return a row's checked content, None for a faulty one."""
    try:
        return read_assignment(compiler.assignment_document(row))
    except RuleSetError:
        return None


def _unpublished(name: str, rule_set: str) -> Fault:
    return Fault(name, f"rule set {rule_set} has no published version; publish it first")
