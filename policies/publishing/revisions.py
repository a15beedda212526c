"""Revisions: which one is live, and how the next one is made of what is to be in it."""

from collections.abc import Sequence

import msgspec
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from policies import compiler, wording
from policies.engine import ruleset as engine
from policies.models import PriorityClassVersion, Revision

# Who does it: an account, or the name of somebody without one (a command's user).
By = User | str

_State = PriorityClassVersion.State

_LOCK = 0x6265727468  # "berth": PostgreSQL's advisory lock that puts Revisions in a row


def name_of(by: By) -> str:
    """Return the name that is written down."""
    return by if isinstance(by, str) else by.get_username()


def current_revision() -> engine.Revision:
    """Return what is live; number 0 and empty before anything was published."""
    row = Revision.objects.order_by("-number").first()
    return engine.decode_revision(row.document.encode()) if row else engine.Revision(number=0)


def lock_revisions() -> engine.Revision:
    """Wait for the others who are making a Revision, then give the current one. Held until the transaction ends."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    # On SQLite the transaction has begun IMMEDIATE: it is alone already.
    return current_revision()


def make_revision(
    before: engine.Revision,
    rule_sets: Sequence[engine.RuleSet],
    assignments: Sequence[engine.Assignment],
    *,
    by: By,
    reason: str,
    classes: Sequence[engine.PriorityClass] | None = None,
) -> Revision | None:
    """Write the next Revision; with the PriorityClasses that are live where none are given."""
    now = timezone.now()
    document = compiler.revision_document(
        number=before.number + 1,
        published_at=now.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        rule_sets=rule_sets,
        assignments=assignments,
        priority_classes=before.priority_classes if classes is None else classes,
    )
    if msgspec.structs.replace(document, number=before.number, published_at=before.published_at) == before:
        return None
    made = Revision.objects.create(
        number=document.number,
        document=engine.encode(document).decode(),
        digest=compiler.digest_of(document),
        made_by=name_of(by),
        made_by_user=None if isinstance(by, str) else by,
        reason=reason,
        summary="\n".join(wording.revision_changes(before, document)),
        created_at=now,
    )
    if document.priority_classes != before.priority_classes:
        _keep_versions(before, document, made)
    return made


def _keep_versions(before: engine.Revision, after: engine.Revision, made: Revision) -> None:
    """Write the versions that a Revision brings, and which of all are live now."""
    live = {(each.name, each.version) for each in after.priority_classes}
    names = {each.name for each in after.priority_classes}
    for version in PriorityClassVersion.objects.exclude(state=_State.SUPERSEDED):
        if (version.name, version.number) not in live:
            version.state = _State.SUPERSEDED if version.name in names else _State.WITHDRAWN
            version.save(update_fields=["state"])
    known = {(each.name, each.version) for each in before.priority_classes}
    for each in after.priority_classes:
        if (each.name, each.version) not in known:
            _publish_version(each, made)


def _publish_version(value: engine.PriorityClass, made: Revision) -> None:
    """Make the version's row; one that is there already, after a rollback, is live again."""
    PriorityClassVersion.objects.update_or_create(
        name=value.name,
        number=value.version,
        defaults={"state": _State.PUBLISHED},
        create_defaults={
            "state": _State.PUBLISHED,
            "document": engine.encode(value).decode(),
            "digest": compiler.digest_of(value),
            "revision": made.number,
            "published_by": made.made_by,
            "published_at": made.created_at,
        },
    )
