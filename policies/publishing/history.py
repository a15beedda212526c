"""What was published under the name of an Assignment: its versions, by the Revisions that held them."""

from datetime import datetime

import msgspec

from policies.engine import ruleset as engine
from policies.models import RevisionPart
from policies.publishing.parts import Kind

_decode = msgspec.json.Decoder(engine.Assignment).decode


class Held(msgspec.Struct, frozen=True):
    """From which Revision to which a version was live, by whom and by which Change. `until` is None for one that is live."""

    since: int
    until: int | None
    by: str
    at: datetime
    reason: str
    change: int | None


class AssignmentVersion(msgspec.Struct, frozen=True):
    """One content of an Assignment that was live. Gone back to, it is the same version again."""

    name: str
    number: int
    digest: str
    value: engine.Assignment
    held: list[Held]

    def __str__(self) -> str:
        return f"{self.name} version {self.number}"

    @property
    def is_live(self) -> bool:
        """Whether the newest Revision holds it."""
        return self.held[-1].until is None


def assignment_versions(name: str) -> list[AssignmentVersion]:
    """Return the versions of an Assignment, each content under the number that it first got; empty where none was ever live.

    Raises:
        msgspec.DecodeError: a newer Berth wrote one.
    """
    rows = RevisionPart.objects.filter(kind=Kind.ASSIGNMENT, name=name).order_by("since_id")
    found: dict[str, AssignmentVersion] = {}
    for row in rows.select_related("part", "since", "since__change"):
        version = found.get(row.part_id)
        if version is None:
            value = _decode(row.part.document)
            version = found[row.part_id] = AssignmentVersion(name, len(found) + 1, row.part_id, value, [])
        version.held.append(_held(row))
    return list(found.values())


def _held(row: RevisionPart) -> Held:
    made = row.since
    change = getattr(made, "change", None)  # a Revision of before there were Changes has none
    return Held(
        since=made.number,
        until=row.until_id,
        by=made.made_by,
        at=made.created_at,
        reason=made.reason,
        change=change.pk if change else None,
    )
