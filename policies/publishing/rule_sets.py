"""Rule sets: their versions from draft to published, and taking one out of what is live."""

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from django.db import IntegrityError, transaction
from django.utils import timezone

from policies import compiler
from policies.engine import ruleset as engine
from policies.engine.decision import run_tests
from policies.engine.errors import RuleSetError
from policies.engine.validation import read_rule_set
from policies.models import Assignment, Revision, Rule, RuleSet, RuleSetVersion
from policies.publishing.errors import PublishingError
from policies.publishing.revisions import By, lock_revisions, make_revision, name_of
from policies.publishing.shown import check_shown

_State = RuleSetVersion.State


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
        changes = compiler.version_fields(content) | {"author": name_of(by), "saved_at": timezone.now()}
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


def check_version(version: RuleSetVersion, *, expected_digest: str = "") -> engine.RuleSet:
    """Return a version's content, checked as publishing checks it.

    Raises:
        PublishingError: with every fault: of the document, no rule at all, and failed tests; or it has another digest.
    """
    content = _content(version)
    if expected_digest and compiler.digest_of(content) != expected_digest:
        now = RuleSetVersion.objects.filter(pk=version.pk).values_list("author", flat=True).first()
        raise PublishingError([f"{version} changed since you looked at it: {now} saved it. Look at the changes again."])
    if not content.spec.filters and not content.spec.scores and not content.spec.victims:
        raise PublishingError([f"{version} has no rule; add one before publishing."])
    if faults := run_tests(content):
        raise PublishingError(faults)
    return content


def holds(version: RuleSetVersion, rule_set: engine.RuleSet) -> bool:
    """Return whether a version has exactly this content."""
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
    content = check_version(version, expected_digest=expected_digest)
    with transaction.atomic():
        before = lock_revisions()
        live = {rule_set.name: rule_set for rule_set in before.rule_sets}
        if not mark_published(version, content, live, by=by):
            return None
        rule_sets = list((live | {content.name: content}).values())
        return make_revision(before, rule_sets, before.assignments, by=by, reason=reason)


def mark_published(
    version: RuleSetVersion, content: engine.RuleSet, live: Mapping[str, engine.RuleSet], *, by: By
) -> bool:
    """Turn a draft's row into the published one. False when its content is live already, and it stays a draft."""
    drafts = RuleSetVersion.objects.filter(pk=version.pk, state=_State.DRAFT)
    if _same_content(live.get(content.name), content) and drafts.exists():
        return False
    former = RuleSetVersion.objects.filter(rule_set=version.rule_set_id, state=_State.PUBLISHED)
    former.exclude(pk=version.pk).update(state=_State.SUPERSEDED)
    published = drafts.filter(digest=compiler.digest_of(content)).update(
        state=_State.PUBLISHED, published_at=timezone.now(), published_by=name_of(by)
    )
    if published != 1:
        raise PublishingError([_why_not_draft(version)])
    return True


def withdraw(*, rule_set: RuleSet, by: By, reason: str, expected_digest: str = "") -> Revision | None:
    """Make the next Revision without a rule set; None when it isn't in the live one. `expected_digest` as in `roll_back`.

    Raises:
        PublishingError: an Assignment names it, live or in the rows.
    """
    with transaction.atomic():
        before = lock_revisions()
        check_shown(expected_digest, before.number)
        naming = {assignment.name for assignment in before.assignments if assignment.rule_set == rule_set.name}
        naming |= set(Assignment.objects.filter(rule_set=rule_set).values_list("name", flat=True))
        if naming:
            names = ", ".join(sorted(naming))
            raise PublishingError([f"{rule_set} is in use: give {names} another rule set and publish that first."])
        rest = [each for each in before.rule_sets if each.name != rule_set.name]
        RuleSetVersion.objects.filter(rule_set=rule_set, state=_State.PUBLISHED).update(state=_State.SUPERSEDED)
        return make_revision(before, rest, before.assignments, by=by, reason=reason)


def follow_versions(target: engine.Revision) -> None:
    """Make the versions' states follow a rollback."""
    wanted = {(rule_set.name, rule_set.version) for rule_set in target.rule_sets}
    published = RuleSetVersion.objects.filter(state=_State.PUBLISHED).select_related("rule_set")
    stale = [version.pk for version in published if (version.rule_set.name, version.number) not in wanted]
    RuleSetVersion.objects.filter(pk__in=stale).update(state=_State.SUPERSEDED)
    for name, number in wanted:
        RuleSetVersion.objects.filter(rule_set__name=name, number=number, state=_State.SUPERSEDED).update(
            state=_State.PUBLISHED
        )


def _content(version: RuleSetVersion) -> engine.RuleSet:
    """Return the checked content of a version's rows."""
    try:
        checked = _checked(msgspec.json.encode(compiler.rule_set_document(version), order="sorted"))
    except RuleSetError as error:
        raise PublishingError(error.faults) from error
    return msgspec.structs.replace(checked, version=version.number)


@lru_cache(maxsize=1024)
def _checked(document: bytes) -> engine.RuleSet:
    """Return what a document says, checked: once, although its page, publishing and rolling back ask for it."""
    return read_rule_set(msgspec.json.decode(document))


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
        rule_set=rule_set, number=number, author=name_of(by), **compiler.version_fields(content)
    )
    Rule.objects.bulk_create(compiler.rules_of(content, version=draft))
    return draft
