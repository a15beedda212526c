"""Revisions written to the database as they are, unchecked, without the rows that publishing takes them from."""

from datetime import UTC, datetime

from django.db import transaction

from policies import compiler
from policies.engine.ruleset import Revision
from policies.models import Revision as RevisionRow
from policies.publishing.parts import Kind, digests_of, write_parts


def store_revision(revision: Revision, *, at: datetime | None = None) -> RevisionRow:
    """Store the next Revision."""
    parts = {(Kind.RULE_SET, each.name): each for each in revision.rule_sets}
    parts |= {(Kind.ASSIGNMENT, each.name): each for each in revision.assignments}
    parts |= {(Kind.PRIORITY_CLASS, each.name): each for each in revision.priority_classes}
    parts |= {(Kind.PAUSE, each.name): each for each in revision.pauses}
    before = digests_of(revision.number - 1)
    changed = {key: (compiler.digest_of(part), part) for key, part in parts.items()}
    changed = {key: found for key, found in changed.items() if before.get(key) != found[0]}
    with transaction.atomic():
        write_parts(revision.number, changed, [key for key in before if key not in parts])
        return RevisionRow.objects.create(
            number=revision.number,
            digest=compiler.digest_of(revision),
            made_by="a",
            summary="",
            created_at=at or datetime.now(UTC),
        )
