"""Rule sets: their versions from draft to published, and taking one out of what is live."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from policies import checking, compiler
from policies.engine import ruleset as engine
from policies.engine.errors import RuleSetError
from policies.engine.validation import document_of
from policies.models import Assignment, Revision, Rule, RuleSet, RuleSetVersion
from policies.publishing.actors import By, name_of
from policies.publishing.errors import PublishingError
from policies.publishing.parts import batches
from policies.publishing.revisions import lock_revisions, make_revision
from policies.publishing.shown import check_shown

_State = RuleSetVersion.State

# Rule sets that were checked in this process, by the SHA-256 of the document that their rows give; those used last come last.
_checked: OrderedDict[bytes, engine.RuleSet] = OrderedDict()
_MOST_CHECKED = 5_000

# Rows that one statement changes, each to something else.
_BATCH = 100


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


def save_drafts(*, rule_sets: Iterable[engine.RuleSet], by: By) -> dict[str, RuleSetVersion]:
    """Write checked rule sets into their drafts, in few statements; makes drafts and rule sets that aren't there.

    Returns:
        The drafts as they are now, by name.

    Raises:
        PublishingError: somebody made one of them meanwhile.
    """
    # By name: two who make the same rows in different orders would wait for each other.
    wanted = {rule_set.name: rule_set for rule_set in sorted(rule_sets, key=lambda rule_set: rule_set.name)}
    try:
        with transaction.atomic():
            rows = RuleSet.objects.in_bulk(list(wanted), field_name="name")
            newest = _newest_versions([row.pk for row in rows.values()])
            for row in rows.values():
                row.description, row.updated_at = wanted[row.name].description, timezone.now()
            RuleSet.objects.bulk_update(rows.values(), ["description", "updated_at"], batch_size=_BATCH)
            missing = [RuleSet(name=name, description=wanted[name].description) for name in wanted if name not in rows]
            rows |= {row.name: row for row in RuleSet.objects.bulk_create(missing)}
            drafts, contents = {}, []
            for name, content in wanted.items():
                number, draft = newest.get(rows[name].pk, (0, None))
                if draft is None:
                    contents.append((rows[name], msgspec.structs.replace(content, version=number + 1)))
                else:
                    drafts[name] = save_draft(version=draft, rule_set=content, by=by)
            made = _make_drafts(contents, by=by)
    except IntegrityError as error:
        raise PublishingError(["Somebody else has just made one of these rule sets or drafts; try again."]) from error
    for draft, (_, content) in zip(made, contents, strict=True):
        _remember(_key_of(compiler.draft_document(draft, compiler.rules_of(content, version=draft))), content)
    return drafts | {draft.rule_set.name: draft for draft in made}


def lock_versions(rule_sets: Iterable[RuleSet]) -> dict[str, tuple[RuleSetVersion | None, RuleSetVersion | None]]:
    """Return the draft and the published version of rule sets, by name. Nobody else changes them until the transaction ends."""
    found: dict[str, tuple[RuleSetVersion | None, RuleSetVersion | None]] = {}
    for batch in batches(sorted(rule_sets, key=lambda rule_set: rule_set.name)):
        names = {rule_set.pk: rule_set.name for rule_set in batch}
        versions = RuleSetVersion.objects.filter(rule_set__in=batch, state__in=[_State.DRAFT, _State.PUBLISHED])
        for version in versions.order_by("rule_set", "number").select_for_update():
            name = names[version.rule_set_id]
            draft, published = found.get(name, (None, None))
            found[name] = (version, published) if version.is_draft else (draft, version)
    return found


def _newest_versions(rule_sets: Sequence[int]) -> dict[int, tuple[int, RuleSetVersion | None]]:
    """Return the highest number of each rule set's versions, and its draft where it has one."""
    found: dict[int, tuple[int, RuleSetVersion | None]] = {}
    for batch in batches(rule_sets):
        versions = RuleSetVersion.objects.filter(rule_set__in=batch)
        for rule_set, number in versions.order_by().values_list("rule_set").annotate(Max("number")):
            found[rule_set] = (number, None)
        for draft in versions.filter(state=_State.DRAFT).select_related("rule_set"):
            found[draft.rule_set_id] = (found[draft.rule_set_id][0], draft)
    return found


def check_version(version: RuleSetVersion, *, expected_digest: str = "") -> engine.RuleSet:
    """Return a version's content, checked as publishing checks it.

    Raises:
        PublishingError: with every fault: of the document, no rule at all, and failed tests; or it has another digest.
    """
    content = _content(version)
    if expected_digest and compiler.digest_of(content) != expected_digest:
        now = RuleSetVersion.objects.filter(pk=version.pk).values_list("author", flat=True).first()
        raise PublishingError([f"{version} changed since you looked at it: {now} saved it. Look at the changes again."])
    check_rules(content, str(version))
    return content


def check_rules(content: engine.RuleSet, named: str) -> None:
    """Check what a rule set needs to go live, beside a right document.

    Raises:
        PublishingError: it has no rule at all, or its tests fail.
    """
    if not content.spec.filters and not content.spec.scores and not content.spec.victims:
        raise PublishingError([f"{named} has no rule; add one before publishing."])
    if faults := checking.run_tests(content):
        raise PublishingError(faults)


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
        marked = mark_published([(version, content)], live, by=by)
        if not marked:
            return None
        return make_revision(before, list((live | marked).values()), before.assignments, by=by, reason=reason)


def mark_published(
    drafts: Sequence[tuple[RuleSetVersion, engine.RuleSet]], live: Mapping[str, engine.RuleSet], *, by: By
) -> dict[str, engine.RuleSet]:
    """Turn drafts' rows into the published ones; gives their contents by name. One that is live already stays a draft."""
    marked: dict[str, engine.RuleSet] = {}
    for batch in batches(drafts):
        # Held until the transaction ends: nobody saves or publishes between this look and what follows it.
        rows = RuleSetVersion.objects.select_for_update().order_by("pk").in_bulk([version.pk for version, _ in batch])
        chosen = []
        for version, content in batch:
            row = rows.get(version.pk)
            if row and row.is_draft and _same_content(live.get(content.name), content):
                continue
            if row is None or not row.is_draft or row.digest != compiler.digest_of(content):
                raise PublishingError([_why_not_draft(version)])
            chosen.append(row)
            marked[content.name] = content
        former = RuleSetVersion.objects.filter(rule_set__in=[row.rule_set_id for row in chosen])
        former.filter(state=_State.PUBLISHED).update(state=_State.SUPERSEDED)
        RuleSetVersion.objects.filter(pk__in=[row.pk for row in chosen]).update(
            state=_State.PUBLISHED, published_at=timezone.now(), published_by=name_of(by)
        )
    return marked


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


def follow_versions(before: engine.Revision, target: engine.Revision) -> None:
    """Make the versions' states follow what goes live."""
    was = {(rule_set.name, rule_set.version) for rule_set in before.rule_sets}
    wanted = {(rule_set.name, rule_set.version) for rule_set in target.rule_sets}
    moves = ((was - wanted, _State.PUBLISHED, _State.SUPERSEDED), (wanted - was, _State.SUPERSEDED, _State.PUBLISHED))
    for pairs, now, then in moves:
        for batch in batches(sorted({name for name, _ in pairs})):
            versions = RuleSetVersion.objects.filter(rule_set__name__in=batch, state=now)
            found = versions.values_list("pk", "rule_set__name", "number")
            chosen = [pk for pk, name, number in found if (name, number) in pairs]
            RuleSetVersion.objects.filter(pk__in=chosen).update(state=then)


def _content(version: RuleSetVersion) -> engine.RuleSet:
    """Return the checked content of a version's rows."""
    return msgspec.structs.replace(checked_rule_set(compiler.rule_set_document(version)), version=version.number)


def checked_rule_set(document: compiler.JSONObject) -> engine.RuleSet:
    """Return what a RuleSet document says: checked once, although its page and publishing ask for it again.

    Raises:
        PublishingError: with every fault in it.
    """
    key = _key_of(document)
    found = _checked.get(key)
    if found is None:
        try:
            found = checking.read_rule_set(document)
        except RuleSetError as error:
            raise PublishingError(error.faults) from error
    _remember(key, found)
    return found


def remember_checked(value: engine.RuleSet) -> None:
    """Keep it that this rule set has passed the check, as the document that it reads back from."""
    _remember(_key_of(document_of(value)), value)


def _key_of(document: compiler.JSONObject) -> bytes:
    return hashlib.sha256(msgspec.json.encode(document, order="sorted")).digest()


def _remember(key: bytes, checked: engine.RuleSet) -> None:
    _checked[key] = checked
    _checked.move_to_end(key)
    while len(_checked) > _MOST_CHECKED:
        _checked.popitem(last=False)


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
    (draft,) = _make_drafts([(rule_set, content)], by=by)
    return draft


def _make_drafts(contents: Sequence[tuple[RuleSet, engine.RuleSet]], *, by: By) -> list[RuleSetVersion]:
    author = name_of(by)
    drafts = RuleSetVersion.objects.bulk_create(
        RuleSetVersion(rule_set=rule_set, number=content.version, author=author, **compiler.version_fields(content))
        for rule_set, content in contents
    )
    rules = [compiler.rules_of(content, version=draft) for draft, (_, content) in zip(drafts, contents, strict=True)]
    Rule.objects.bulk_create(rule for of_draft in rules for rule in of_draft)
    return drafts
