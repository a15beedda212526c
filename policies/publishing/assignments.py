"""Assignments: saving one, and publishing all of them as their rows are."""

from collections.abc import Collection

import msgspec
from django.db import transaction

from policies import compiler
from policies.engine import ruleset as engine
from policies.engine.errors import Fault, RuleSetError
from policies.engine.validation import read_assignment
from policies.models import Assignment, Revision, RuleSet
from policies.publishing.errors import PublishingError
from policies.publishing.revisions import By, current_revision, lock_revisions, make_revision


def save_assignment(*, assignment: engine.Assignment, by: By, row: Assignment | None = None) -> tuple[Assignment, bool]:
    """Write a checked Assignment to its row, by its name or to the given row. Nothing goes live by it.

    Returns:
        The row, and whether anything changed.

    Raises:
        PublishingError: its rule set doesn't exist.
    """
    del by  # rows of Assignments name no author; the Revision that publishes them does
    rule_set = RuleSet.objects.filter(name=assignment.rule_set).first()
    if rule_set is None:
        fault = Fault("spec.ruleSet", f"no rule set is called {assignment.rule_set}")
        raise PublishingError([fault])
    fields = compiler.assignment_fields(assignment, rule_set=rule_set) | {"name": assignment.name}
    with transaction.atomic():
        row = row or Assignment.objects.filter(name=assignment.name).first() or Assignment()
        if row.pk and all(getattr(row, field) == value for field, value in fields.items()):
            return row, False
        for field, value in fields.items():
            setattr(row, field, value)
        row.save()
    return row, True


def publish_assignments(*, by: By, reason: str) -> Revision | None:
    """Make the next Revision with the Assignments as their rows are now. None when they are live already.

    Raises:
        PublishingError: an Assignment is faulty, or names a rule set without a published version.
    """
    with transaction.atomic():
        before = lock_revisions()
        assignments = checked_assignments({rule_set.name for rule_set in before.rule_sets})
        return make_revision(before, before.rule_sets, assignments, by=by, reason=reason)


def unpublished_assignments() -> dict[str, str]:
    """Return the names of Assignments whose rows differ from what is live, each with how: new, changed or removed."""
    live = {assignment.name: assignment for assignment in current_revision().assignments}
    rows = {row.name: _row_value(row) for row in Assignment.objects.select_related("rule_set")}
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
            faults.append(Fault(row.name, f"rule set {row.rule_set} has no published version; publish it first"))
        try:
            assignments.append(read_assignment(compiler.assignment_document(row)))
        except RuleSetError as error:
            faults += [msgspec.structs.replace(fault, path=f"{row.name}: {fault.path}") for fault in error.faults]
    if faults:
        raise PublishingError(faults)
    return assignments


def follow_assignments(before: engine.Revision, target: engine.Revision) -> None:
    """Make the rows follow a rollback where they hold what was live until now; unpublished edits stay."""
    live = {assignment.name: assignment for assignment in before.assignments}
    wanted = {assignment.name: assignment for assignment in target.assignments}
    rows = {row.name: row for row in Assignment.objects.select_related("rule_set")}
    for name in live | wanted:
        row, was, then = rows.get(name), live.get(name), wanted.get(name)
        if was == then or (_row_value(row) if row else None) != was:
            continue
        if then is None:
            Assignment.objects.filter(name=name).delete()
        else:
            fields = compiler.assignment_fields(then, rule_set=RuleSet.objects.get(name=then.rule_set))
            Assignment.objects.update_or_create(name=name, defaults=fields)


def _row_value(row: Assignment) -> engine.Assignment | None:
    try:
        return read_assignment(compiler.assignment_document(row))
    except RuleSetError:
        return None
