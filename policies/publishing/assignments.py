"""Assignments: those that are live with others in their place, and the rows of what is live."""

from collections.abc import Collection, Iterable, Mapping

from django.utils import timezone

from policies import compiler
from policies.engine import ruleset as engine
from policies.engine.errors import Fault
from policies.models import Assignment, RuleSet
from policies.publishing.errors import PublishingError
from policies.publishing.parts import Key, Kind, batches


def with_assignments(
    before: engine.Revision, wanted: Iterable[engine.Assignment], published: Collection[str]
) -> list[engine.Assignment]:
    """Return the live Assignments with some in their place; each of these must name a rule set that is published."""
    given = {each.name: each for each in wanted}
    faults = [_unpublished(each.name, each.rule_set) for each in given.values() if each.rule_set not in published]
    if faults:
        raise PublishingError(faults)
    return list(({each.name: each for each in before.assignments} | given).values())


def follow_assignments(before: engine.Revision, target: engine.Revision, authors: Mapping[Key, str]) -> None:
    """Make the rows, which lists and filters ask for, those of what goes live."""
    live = {assignment.name: assignment for assignment in before.assignments}
    wanted = {assignment.name: assignment for assignment in target.assignments}
    _write({name: each for name, each in wanted.items() if live.get(name) != each}, authors)
    for batch in batches([name for name in live if name not in wanted]):
        Assignment.objects.filter(name__in=batch).delete()


def _write(wanted: Mapping[str, engine.Assignment], authors: Mapping[Key, str]) -> None:
    rule_sets: dict[str, RuleSet] = {}
    for batch in batches(sorted({each.rule_set for each in wanted.values()})):
        rule_sets |= RuleSet.objects.in_bulk(batch, field_name="name")
    rows: dict[str, Assignment] = {}
    for batch in batches(sorted(wanted)):
        rows |= Assignment.objects.in_bulk(batch, field_name="name")
    written: set[str] = set()
    for name, assignment in wanted.items():
        row = rows.setdefault(name, Assignment(name=name))
        fields = compiler.assignment_fields(assignment, rule_set=rule_sets[assignment.rule_set])
        fields |= {"author": authors.get((Kind.ASSIGNMENT, name), ""), "updated_at": timezone.now()}
        for field, value in fields.items():
            setattr(row, field, value)
        written |= fields.keys()
    Assignment.objects.bulk_create(row for row in rows.values() if not row.pk)
    if changed := [row for row in rows.values() if row.pk and row.name in wanted]:
        Assignment.objects.bulk_update(changed, list(written), batch_size=100)


def _unpublished(name: str, rule_set: str) -> Fault:
    return Fault(name, f"rule set {rule_set} has no published version; publish it first")
