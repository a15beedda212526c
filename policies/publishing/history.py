"""The publishing history of a name, from the Revisions that held it: an Assignment's versions, and who is responsible for them."""

from datetime import datetime

import msgspec
from django.db.models import Q

from policies.engine import ruleset as engine
from policies.models import ChangeEvent, RevisionPart
from policies.publishing.errors import PublishingError
from policies.publishing.parts import Kind, held_by

_decode_rule_set = msgspec.json.Decoder(engine.RuleSet).decode
_decode = msgspec.json.Decoder(engine.Assignment).decode


class Held(msgspec.Struct, frozen=True):
    """From which to which Revision a version was live, and which person and Change published it. `until` is None while it is live."""

    since: int
    until: int | None
    by: str
    at: datetime
    reason: str
    change: int | None


class AssignmentVersion(msgspec.Struct, frozen=True):
    """One content of an Assignment that was live. When it is restored, it is the same version again."""

    name: str
    number: int
    digest: str
    document: str
    held: list[Held]

    def __str__(self) -> str:
        return f"{self.name} version {self.number}"

    @property
    def value(self) -> engine.Assignment:
        """The content.

        Raises:
            PublishingError: it can't be read.
        """
        try:
            return _decode(self.document)
        except msgspec.DecodeError as error:
            message = f"Assignment {self} can't be read: a newer version of Berth wrote it."
            raise PublishingError([message]) from error

    @property
    def is_live(self) -> bool:
        """Whether the newest Revision holds it."""
        return self.held[-1].until is None


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Who is responsible for content of a Revision: the Revision that first held it, who made that, and who approved the Change."""

    kind: str
    name: str
    since: int
    published_by: str
    published_at: datetime
    reason: str
    change: int | None = None
    title: str = ""
    opened_by: str = ""
    approved_by: list[str] = []


def provenance_of(names: list[tuple[str, str]], revision: int) -> list[Provenance]:
    """Return the provenance of things that a Revision held, each by kind and name; in that order, without those it didn't hold.

    Only approvals of the published content count: those of earlier content were dropped with it.
    """
    wanted = Q()
    for kind, name in names:
        wanted |= Q(kind=kind, name=name)
    if not names or not revision:
        return []
    held = held_by(revision).filter(wanted).select_related("since", "since__change")
    rows = {(row.kind, row.name): row for row in held}
    changes = [change.pk for row in rows.values() if (change := getattr(row.since, "change", None))]
    approvals = ChangeEvent.objects.approvals().filter(change__in=changes).values_list("change", "by")
    return [_provenance(rows[key], list(approvals)) for key in names if key in rows]


def _provenance(row: RevisionPart, approvals: list[tuple[int, str]]) -> Provenance:
    made = row.since
    change = getattr(made, "change", None)
    return Provenance(
        kind=row.kind,
        name=row.name,
        since=made.number,
        published_by=made.made_by,
        published_at=made.created_at,
        reason=made.reason,
        change=change.pk if change else None,
        title=change.title if change else "",
        opened_by=change.opened_by if change else "",
        approved_by=[by for key, by in approvals if change is not None and key == change.pk],
    )


def rule_set_held(name: str, revision: int) -> engine.RuleSet | None:
    """Return a rule set as a Revision held it; None where it held no rule set of that name.

    Raises:
        msgspec.DecodeError: a newer Berth wrote it.
    """
    row = held_by(revision).filter(kind=Kind.RULE_SET, name=name).select_related("part").first()
    return _decode_rule_set(row.part.document) if row else None


def assignment_versions(name: str) -> list[AssignmentVersion]:
    """Return the versions of an Assignment, each content under the number that it first got; empty where none was ever live."""
    rows = RevisionPart.objects.filter(kind=Kind.ASSIGNMENT, name=name).order_by("since_id")
    found: dict[str, AssignmentVersion] = {}
    for row in rows.select_related("part", "since", "since__change"):
        version = found.get(row.part_id)
        if version is None:
            number = len(found) + 1
            version = found[row.part_id] = AssignmentVersion(name, number, row.part_id, row.part.document, [])
        version.held.append(_held(row))
    return list(found.values())


def _held(row: RevisionPart) -> Held:
    made = row.since
    change = getattr(made, "change", None)  # a Revision from before Changes existed has none
    return Held(
        since=made.number,
        until=row.until_id,
        by=made.made_by,
        at=made.created_at,
        reason=made.reason,
        change=change.pk if change else None,
    )
