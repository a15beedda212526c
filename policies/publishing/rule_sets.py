"""Rule sets: their versions, written as they go live, and which versions are live."""

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from policies import checking, compiler
from policies.engine import ruleset as engine
from policies.engine.documents import document_of
from policies.engine.errors import Fault, RuleSetError
from policies.models import ChangeEdit, RevisionPart, Rule, RuleSet, RuleSetVersion
from policies.publishing import lifecycle
from policies.publishing.actors import By, name_of
from policies.publishing.errors import PublishingError
from policies.publishing.parts import Key, Kind, batches, documents_of

_State = RuleSetVersion.State

# Rule sets that were checked in this process, by the SHA-256 of their document; most recently used last.
_checked: OrderedDict[bytes, engine.RuleSet] = OrderedDict()
_MOST_CHECKED = 5_000

# The most rows that one statement changes, each to a different value.
_BATCH = 100


def publish_versions(
    contents: Mapping[str, engine.RuleSet], *, by: By, reason: str, authors: Mapping[Key, str]
) -> dict[str, engine.RuleSet]:
    """Write rule sets as their next, published versions, in few statements; returns them with their numbers.

    The caller holds the lock of Revisions, so nobody else assigns numbers.
    """
    # By name: two transactions that made the same rows in different orders would deadlock.
    wanted = dict(sorted(contents.items()))
    keep_rule_sets(wanted.values())
    rows: dict[str, RuleSet] = {}
    for batch in batches(list(wanted)):
        rows |= RuleSet.objects.in_bulk(batch, field_name="name")
    newest = _newest_numbers([row.pk for row in rows.values()])
    _describe(rows.values(), wanted)
    numbered = {
        name: msgspec.structs.replace(content, version=newest.get(rows[name].pk, 0) + 1)
        for name, content in wanted.items()
    }
    made = RuleSetVersion.objects.bulk_create(
        RuleSetVersion(
            rule_set=rows[name],
            number=content.version,
            note=reason,
            author=authors.get((Kind.RULE_SET, name), name_of(by)),
            published_at=timezone.now(),
            published_by=name_of(by),
            **compiler.version_fields(content),
        )
        for name, content in numbered.items()
    )
    rules = [compiler.rules_of(numbered[version.rule_set.name], version=version) for version in made]
    Rule.objects.bulk_create(rule for of_version in rules for rule in of_version)
    # Written as drafts: the database accepts rules of drafts only, and freezes them with their version.
    for some in batches(made):
        former = RuleSetVersion.objects.filter(rule_set__in=[version.rule_set_id for version in some])
        former.filter(state=_State.PUBLISHED).update(state=_State.SUPERSEDED)
        RuleSetVersion.objects.filter(pk__in=[version.pk for version in some]).update(state=_State.PUBLISHED)
    return numbered


def _describe(rows: Collection[RuleSet], contents: Mapping[str, engine.RuleSet]) -> None:
    """Write, in bulk, when rule sets went live, and the descriptions that changed."""
    for some in batches([row.pk for row in rows]):
        RuleSet.objects.filter(pk__in=some).update(updated_at=timezone.now())
    other = [row for row in rows if row.description != contents[row.name].description]
    for row in other:
        row.description = contents[row.name].description
    RuleSet.objects.bulk_update(other, ["description"], batch_size=_BATCH)


def keep_rule_sets(contents: Iterable[engine.RuleSet]) -> None:
    """Create the RuleSet rows of rule sets that have none yet."""
    named = [RuleSet(name=each.name, description=each.description) for each in contents]
    RuleSet.objects.bulk_create(sorted(named, key=lambda row: row.name), ignore_conflicts=True)


def _newest_numbers(rule_sets: Sequence[int]) -> dict[int, int]:
    """Return the highest number of each rule set's versions."""
    found: dict[int, int] = {}
    for batch in batches(rule_sets):
        versions = RuleSetVersion.objects.filter(rule_set__in=batch).order_by()
        found |= dict(versions.values_list("rule_set").annotate(Max("number")))
    return found


def version_document(version: RuleSetVersion) -> compiler.JSONObject:
    """Return the RuleSet document of a version, from the text that went live.

    In the rows' columns of PostgreSQL's jsonb 1e16 is a whole number, which expressions tell apart, and -0.0 has no sign.
    They are read if there is no such text, as of a version that was never live, or if a newer Berth wrote it.
    """
    content = _content_that_went_live(version)
    return compiler.document_of_content(content) if content else compiler.rule_set_document(version)


def version_content(version: RuleSetVersion) -> engine.RuleSet:
    """Return the content of a version, without its number, as it went live: this version of Berth may refuse to publish it again.

    Raises:
        RuleSetError: it was never live, and isn't valid.
    """
    content = _content_that_went_live(version) or checking.read_rule_set(compiler.rule_set_document(version))
    return msgspec.structs.replace(content, version=0)


def _content_that_went_live(version: RuleSetVersion) -> engine.RuleSet | None:
    text = documents_of([version.digest]).get(version.digest)
    try:
        return msgspec.json.decode(text, type=engine.RuleSet) if text is not None else None
    except msgspec.DecodeError:
        return None


def check_version(version: RuleSetVersion) -> engine.RuleSet:
    """Return a version's content, checked as publishing checks it.

    Raises:
        PublishingError: with every fault: those of the document, a missing rule, and failed tests.
    """
    (content,) = checked_rule_sets([version_document(version)])
    if isinstance(content, RuleSetError):
        raise PublishingError(content.faults) from content
    if faults := without_rules(content, str(version)) or checking.run_tests(content):
        raise PublishingError(faults)
    return msgspec.structs.replace(content, version=version.number)


def rule_set_faults(contents: Sequence[engine.RuleSet]) -> list[list[Fault]]:
    """Return for each of many rule sets the faults that publishing would find; each is validated again as untrusted input."""
    read = checked_rule_sets([document_of(each) for each in contents])
    faults = [found.faults if isinstance(found, RuleSetError) else without_rules(found, found.name) for found in read]
    # Tests are only run for a rule set that is valid so far.
    right = [
        found for found, wrong in zip(read, faults, strict=True) if not wrong and isinstance(found, engine.RuleSet)
    ]
    tested = iter(checking.run_tests_of_each(right))
    return [wrong or next(tested) for wrong in faults]


def without_rules(content: engine.RuleSet, named: str) -> list[Fault]:
    """Return the fault of a rule set that has no rule at all."""
    if content.spec.filters or content.spec.scores or content.spec.victims:
        return []
    return [Fault("", f"{named} has no rule; add one before publishing.")]


def rule_sets_in_use() -> QuerySet[RuleSet]:
    """Return the rule sets that are live, or that an open Change edits; others are archived, or never went live."""
    live = RevisionPart.objects.filter(kind=Kind.RULE_SET, until=None).values("name")
    edited = ChangeEdit.objects.filter(kind=Kind.RULE_SET, change__state__in=lifecycle.OPEN).values("name")
    return RuleSet.objects.filter(Q(name__in=live) | Q(name__in=edited))


def follow_versions(before: engine.Revision, target: engine.Revision) -> None:
    """Update the states of versions to the new live state."""
    was = {(rule_set.name, rule_set.version) for rule_set in before.rule_sets}
    wanted = {(rule_set.name, rule_set.version) for rule_set in target.rule_sets}
    moves = ((was - wanted, _State.PUBLISHED, _State.SUPERSEDED), (wanted - was, _State.SUPERSEDED, _State.PUBLISHED))
    for pairs, now, then in moves:
        for batch in batches(sorted({name for name, _ in pairs})):
            versions = RuleSetVersion.objects.filter(rule_set__name__in=batch, state=now)
            found = versions.values_list("pk", "rule_set__name", "number")
            chosen = [pk for pk, name, number in found if (name, number) in pairs]
            RuleSetVersion.objects.filter(pk__in=chosen).update(state=then)


def checked_rule_sets(documents: Sequence[compiler.JSONObject]) -> list[engine.RuleSet | RuleSetError]:
    """Return the rule set of each of many RuleSet documents, or its faults, in order.

    Each document is checked once, although its page and publishing both need it.
    """
    keys = [_key_of(document) for document in documents]
    # Each is looked up once: while the others are checked, another thread may push it out.
    values: dict[bytes, Any] = {key: kept for key in keys if (kept := _checked.get(key)) is not None}
    new = {key: document for key, document in zip(keys, documents, strict=True) if key not in values}
    values |= zip(new, checking.read_each((document, "") for document in new.values()), strict=True)
    found = [values[key] for key in keys]
    for key, each in zip(keys, found, strict=True):
        if isinstance(each, engine.RuleSet):
            _remember(key, each)
    return found


def remember_checked(value: engine.RuleSet) -> None:
    """Remember that this rule set passed the check, by the document that its rows give."""
    _remember(_key_of(document_of(value)), value)


def _key_of(document: compiler.JSONObject) -> bytes:
    return hashlib.sha256(msgspec.json.encode(document, order="sorted")).digest()


def _remember(key: bytes, checked: engine.RuleSet) -> None:
    _checked.pop(key, None)
    _checked[key] = checked
    while len(_checked) > _MOST_CHECKED:
        _checked.popitem(last=False)
