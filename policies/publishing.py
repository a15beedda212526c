"""The only place where policies change state: save, publish, roll back, withdraw.

Each verb is one transaction with conditional updates: what somebody else did first is said and loses nothing. A verb
that changes what is live makes the next Revision; when nothing would change it makes none and gives None.
"""

import logging
from collections.abc import Collection, Mapping, Sequence

import msgspec
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now
from django.utils import timezone

from policies import compiler, priority_classes, wording
from policies.engine import ruleset as engine
from policies.engine.decision import run_tests
from policies.engine.errors import Fault, RuleSetError
from policies.engine.validation import read_assignment, read_rule_set
from policies.models import (
    Assignment,
    ClusterPriorityClass,
    PriorityClass,
    PriorityClassLook,
    Revision,
    Rule,
    RuleSet,
    RuleSetVersion,
)

logger = logging.getLogger("berth.publishing")

By = User | str
"""Who does it: an account, or the name of somebody without one (a command's user)."""

_State = RuleSetVersion.State
_LOCK = 0x6265727468  # "berth": PostgreSQL's advisory lock that puts Revisions in a row


class PublishingError(Exception):
    """A change of state was refused. `messages` are for people; `faults` say where in a document, if in one."""

    def __init__(self, faults: Sequence[Fault | str]) -> None:
        self.faults = [fault if isinstance(fault, Fault) else Fault("", fault) for fault in faults]
        super().__init__("; ".join(self.messages))

    @property
    def messages(self) -> list[str]:
        """What is wrong, a sentence each."""
        return [str(fault) for fault in self.faults]


def current_revision() -> engine.Revision:
    """Give what is live; number 0 and empty before anything was published."""
    row = Revision.objects.order_by("-number").first()
    return engine.decode_revision(row.document.encode()) if row else engine.Revision(number=0)


def create_rule_set(*, name: str, description: str, by: By) -> RuleSetVersion:
    """Make a rule set with an empty draft, its version 1.

    Raises:
        PublishingError: the name is taken.
    """
    if RuleSet.objects.filter(name=name).exists():
        raise PublishingError([f"A rule set called {name} exists already."])
    try:
        with transaction.atomic():
            rule_set = RuleSet.objects.create(name=name, description=description)
            return _make_draft(rule_set, engine.RuleSet(name=name, description=description), number=1, by=by)
    except IntegrityError as error:
        raise PublishingError([f"A rule set called {name} exists already."]) from error


def new_draft(*, rule_set: RuleSet, by: By) -> RuleSetVersion:
    """Make the next version as a draft, a copy of the published version (of the newest, when none is published).

    Raises:
        PublishingError: there is a draft already.
    """
    try:
        with transaction.atomic():
            versions = RuleSetVersion.objects.filter(rule_set=rule_set)
            newest = versions.order_by("-number").first()
            source = versions.filter(state=_State.PUBLISHED).first() or newest
            content = _content(source) if source else engine.RuleSet(name=rule_set.name)
            return _make_draft(rule_set, content, number=newest.number + 1 if newest else 1, by=by)
    except IntegrityError as error:
        raise PublishingError([f"{rule_set} has a draft already; edit that one."]) from error


def save_draft(
    *, version: RuleSetVersion, rule_set: engine.RuleSet, by: By, note: str | None = None, expected_digest: str = ""
) -> RuleSetVersion:
    """Write a checked rule set into a draft and give the draft as it is now.

    Args:
        version: the draft.
        rule_set: its new content; its name and version number are the draft's.
        by: who saves; becomes the draft's author.
        note: why the version is made; None leaves it.
        expected_digest: the digest of the draft that was edited, when a later save by others must not be overwritten.

    Raises:
        PublishingError: it isn't a draft any more, or somebody saved it meanwhile.
    """
    content = msgspec.structs.replace(rule_set, name=version.rule_set.name, version=version.number)
    with transaction.atomic():
        drafts = RuleSetVersion.objects.filter(pk=version.pk, state=_State.DRAFT)
        if expected_digest:
            drafts = drafts.filter(digest=expected_digest)
        changes = compiler.version_fields(content) | {"author": _name(by), "saved_at": timezone.now()}
        if note is not None:
            changes["note"] = note
        if drafts.update(**changes) != 1:
            raise PublishingError([_why_not_draft(version)])
        Rule.objects.filter(version=version).delete()
        Rule.objects.bulk_create(compiler.rules_of(content, version=version))
        RuleSet.objects.filter(pk=version.rule_set_id).update(
            description=content.description, updated_at=timezone.now()
        )
    return RuleSetVersion.objects.select_related("rule_set").get(pk=version.pk)


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


def save_priority_class(*, priority_class: engine.PriorityClass, by: By) -> tuple[PriorityClass, bool]:
    """Write a checked PriorityClass to the row of its name. Nothing goes live by it.

    Returns:
        The row, and whether anything changed.

    Raises:
        PublishingError: Kubernetes wouldn't take it: a value that can't change, or a second global default.
    """
    del by  # as with Assignments: the Revision names who published
    fields = compiler.priority_class_fields(priority_class)
    try:
        with transaction.atomic():
            row = PriorityClass.objects.filter(name=priority_class.name).first()
            if row is not None and all(getattr(row, field) == value for field, value in fields.items()):
                return row, False
            if faults := priority_class_faults(priority_class):
                raise PublishingError(faults)
            row, _created = PriorityClass.objects.update_or_create(name=priority_class.name, defaults=fields)
    except IntegrityError as error:
        fault = Fault("spec.globalDefault", "another class has just been made the global default")
        raise PublishingError([fault]) from error
    return row, True


def priority_class_faults(priority_class: engine.PriorityClass) -> list[Fault]:
    """Give what stands against saving a checked PriorityClass: what other rows and the cluster have."""
    faults = priority_classes.fixed_faults(priority_class)
    if priority_class.global_default and (message := second_global_default(priority_class.name)):
        faults.append(Fault("spec.globalDefault", message))
    return faults


def second_global_default(name: str) -> str:
    """Give what stands against a class becoming the global default; empty when nothing does."""
    other = PriorityClass.objects.filter(global_default=True).exclude(name=name).first()
    return f"{other} is the global default, and Kubernetes allows one; take it away there first" if other else ""


def check_version(version: RuleSetVersion) -> engine.RuleSet:
    """Give a version's content, checked as publishing checks it.

    Raises:
        PublishingError: with every fault: of the document, no rule at all, and failed tests.
    """
    content = _content(version)
    if not content.spec.filters and not content.spec.scores and not content.spec.victims:
        raise PublishingError([f"{version} has no rule; add one before publishing."])
    if faults := run_tests(content):
        raise PublishingError(faults)
    return content


def holds(version: RuleSetVersion, rule_set: engine.RuleSet) -> bool:
    """Tell whether a version has exactly this content."""
    content = msgspec.structs.replace(rule_set, name=version.rule_set.name, version=version.number)
    return version.digest == compiler.digest_of(content)


def publish(*, version: RuleSetVersion, by: By, reason: str, expected_digest: str = "") -> Revision | None:
    """Make a draft the published version of its rule set and make the next Revision with it.

    Everything else in the Revision stays as it was live: unpublished edits of Assignments don't go along.

    Args:
        version: the draft.
        by: who publishes.
        reason: why, in that person's words.
        expected_digest: the digest of what that person looked at, when nothing else may be published.

    Returns:
        The new Revision, or None when the draft equals what is live.

    Raises:
        PublishingError: faults in it, or it changed or was published meanwhile.
    """
    content = check_version(version)
    if expected_digest and compiler.digest_of(content) != expected_digest:
        raise PublishingError([f"{version} changed since you looked at it; look at the changes again."])
    with transaction.atomic():
        before = _lock_revisions()
        live = {rule_set.name: rule_set for rule_set in before.rule_sets}
        if not _mark_published(version, content, live, by=by):
            return None
        rule_sets = list((live | {content.name: content}).values())
        return _make_revision(before, rule_sets, before.assignments, by=by, reason=reason)


def publish_together(
    *,
    versions: Sequence[RuleSetVersion],
    assignments: bool,
    by: By,
    reason: str,
    with_priority_classes: bool = False,
) -> Revision | None:
    """Publish several drafts, and the Assignments and PriorityClasses as their rows are now where asked for, in one Revision.

    Returns:
        The new Revision, or None when all of it is live already.

    Raises:
        PublishingError: as `publish` and `publish_assignments`; nothing is published then.
    """
    contents = [(version, check_version(version)) for version in versions]
    with transaction.atomic():
        before = _lock_revisions()
        live = {rule_set.name: rule_set for rule_set in before.rule_sets}
        for version, content in contents:
            if _mark_published(version, content, live, by=by):
                live[content.name] = content
        kept = _checked_assignments(live) if assignments else before.assignments
        classes = _checked_priority_classes(before) if with_priority_classes else None
        return _make_revision(before, list(live.values()), kept, by=by, reason=reason, classes=classes)


def _mark_published(
    version: RuleSetVersion, content: engine.RuleSet, live: Mapping[str, engine.RuleSet], *, by: By
) -> bool:
    """Turn a draft's row into the published one. False when its content is live already, and it stays a draft."""
    drafts = RuleSetVersion.objects.filter(pk=version.pk, state=_State.DRAFT)
    if _same_content(live.get(content.name), content) and drafts.exists():
        return False
    former = RuleSetVersion.objects.filter(rule_set=version.rule_set_id, state=_State.PUBLISHED)
    former.exclude(pk=version.pk).update(state=_State.SUPERSEDED)
    published = drafts.filter(digest=compiler.digest_of(content)).update(
        state=_State.PUBLISHED, published_at=timezone.now(), published_by=_name(by)
    )
    if published != 1:
        raise PublishingError([_why_not_draft(version)])
    return True


def publish_assignments(*, by: By, reason: str) -> Revision | None:
    """Make the next Revision with the Assignments as their rows are now. None when they are live already.

    Raises:
        PublishingError: an Assignment is faulty, or names a rule set without a published version.
    """
    with transaction.atomic():
        before = _lock_revisions()
        assignments = _checked_assignments({rule_set.name for rule_set in before.rule_sets})
        return _make_revision(before, before.rule_sets, assignments, by=by, reason=reason)


def publish_priority_classes(*, by: By, reason: str) -> Revision | None:
    """Make the next Revision with the PriorityClasses as their rows are now. None when they are live already.

    Raises:
        PublishingError: a PriorityClass is faulty, or changes what Kubernetes never changes.
    """
    with transaction.atomic():
        before = _lock_revisions()
        classes = _checked_priority_classes(before)
        return _make_revision(before, before.rule_sets, before.assignments, by=by, reason=reason, classes=classes)


def _checked_priority_classes(before: engine.Revision) -> list[engine.PriorityClass]:
    try:
        return priority_classes.wanted_by_rows(before.priority_classes)
    except RuleSetError as error:
        raise PublishingError(error.faults) from error


def _checked_assignments(live: Collection[str]) -> list[engine.Assignment]:
    """Give the Assignments of all rows; each must be sound and name a rule set that is live."""
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


def roll_back(*, to_number: int, by: By, reason: str) -> Revision | None:
    """Make the next Revision with the content of an older one; None when that content is live.

    The versions' states follow. Rows of Assignments and PriorityClasses follow where they hold what was live until now;
    rows with unpublished edits keep them, so that nothing is lost.

    Raises:
        PublishingError: there is no such Revision.
    """
    with transaction.atomic():
        before = _lock_revisions()
        row = Revision.objects.filter(pk=to_number).first()
        if row is None:
            raise PublishingError([f"There is no Revision {to_number}."])
        target = engine.decode_revision(row.document.encode())
        classes = target.priority_classes
        made = _make_revision(before, target.rule_sets, target.assignments, by=by, reason=reason, classes=classes)
        if made is not None:
            _follow_versions(target)
            _follow_assignments(before, target)
            priority_classes.follow(before, target)
        return made


def withdraw(*, rule_set: RuleSet, by: By, reason: str) -> Revision | None:
    """Make the next Revision without a rule set; None when it isn't in the live one.

    Raises:
        PublishingError: an Assignment names it, live or in the rows.
    """
    with transaction.atomic():
        before = _lock_revisions()
        naming = {assignment.name for assignment in before.assignments if assignment.rule_set == rule_set.name}
        naming |= set(Assignment.objects.filter(rule_set=rule_set).values_list("name", flat=True))
        if naming:
            names = ", ".join(sorted(naming))
            raise PublishingError([f"{rule_set} is in use: give {names} another rule set and publish that first."])
        rest = [each for each in before.rule_sets if each.name != rule_set.name]
        RuleSetVersion.objects.filter(rule_set=rule_set, state=_State.PUBLISHED).update(state=_State.SUPERSEDED)
        return _make_revision(before, rest, before.assignments, by=by, reason=reason)


def _name(by: By) -> str:
    return by if isinstance(by, str) else by.get_username()


def _content(version: RuleSetVersion) -> engine.RuleSet:
    """Give the checked content of a version's rows."""
    try:
        checked = read_rule_set(compiler.rule_set_document(version))
    except RuleSetError as error:
        raise PublishingError(error.faults) from error
    return msgspec.structs.replace(checked, version=version.number)


def _same_content(live: engine.RuleSet | None, content: engine.RuleSet) -> bool:
    return live is not None and msgspec.structs.replace(live, version=content.version) == content


def _why_not_draft(version: RuleSetVersion) -> str:
    now = RuleSetVersion.objects.filter(pk=version.pk).first()
    if now is None:
        return f"{version} was deleted meanwhile."
    if now.state == _State.PUBLISHED:
        return f"Someone else was first: {version} was published by {now.published_by}. Make a new draft to change it."
    if not now.is_draft:
        return f"{version} is {now.get_state_display()}, not a draft. Make a new draft to change it."
    return f"Someone else was first: {now.author} saved {version} meanwhile. Load it again and repeat your change."


def _make_draft(rule_set: RuleSet, content: engine.RuleSet, *, number: int, by: By) -> RuleSetVersion:
    content = msgspec.structs.replace(content, name=rule_set.name, version=number)
    draft = RuleSetVersion.objects.create(
        rule_set=rule_set, number=number, author=_name(by), **compiler.version_fields(content)
    )
    Rule.objects.bulk_create(compiler.rules_of(content, version=draft))
    return draft


def _lock_revisions() -> engine.Revision:
    """Wait for the others who are making a Revision, then give the current one. Held until the transaction ends."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [_LOCK])
    # On SQLite the transaction has begun IMMEDIATE: it is alone already.
    return current_revision()


def _make_revision(
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
        made_by=_name(by),
        made_by_user=None if isinstance(by, str) else by,
        reason=reason,
        summary="\n".join(wording.revision_changes(before, document)),
        created_at=now,
    )
    if document.priority_classes != before.priority_classes:
        priority_classes.keep_versions(before, document, made)
    return made


def _follow_versions(target: engine.Revision) -> None:
    wanted = {(rule_set.name, rule_set.version) for rule_set in target.rule_sets}
    published = RuleSetVersion.objects.filter(state=_State.PUBLISHED).select_related("rule_set")
    stale = [version.pk for version in published if (version.rule_set.name, version.number) not in wanted]
    RuleSetVersion.objects.filter(pk__in=stale).update(state=_State.SUPERSEDED)
    for name, number in wanted:
        RuleSetVersion.objects.filter(rule_set__name=name, number=number, state=_State.SUPERSEDED).update(
            state=_State.PUBLISHED
        )


def _follow_assignments(before: engine.Revision, target: engine.Revision) -> None:
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


def unpublished_assignments() -> dict[str, str]:
    """Give the names of Assignments whose rows differ from what is live, each with how: new, changed or removed."""
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


def unpublished_priority_classes() -> dict[str, str]:
    """Give the names of PriorityClasses whose rows differ from what is live, each with how: new, changed or removed."""
    return priority_classes.unpublished(current_revision().priority_classes)


def live_priority_classes() -> dict[str, engine.PriorityClass]:
    """Give the PriorityClasses that are live, by name."""
    return {each.name: each for each in current_revision().priority_classes}


def put_back(*, name: str, by: By, reason: str) -> None:
    """Have what others changed of a PriorityClass in the cluster put back to what is live, at the next look.

    Raises:
        PublishingError: nothing was changed there, or it is put back already.
    """
    drifted = ClusterPriorityClass.objects.filter(pk=name, state=ClusterPriorityClass.State.DRIFTED)
    if drifted.update(overwrite=True) != 1:
        raise PublishingError([f"{name} isn't drifted any more; load the page again."])
    PriorityClassLook.objects.update(next_at=Now())
    logger.info("%s has PriorityClass %s put back: %s", _name(by), name, reason)
