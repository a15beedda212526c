"""Compares what pages and REST read of rules, versions and the live Assignments and PriorityClasses, with the parts of Revisions.

The digests of Revisions cover the parts. These rows repeat them in columns, and nothing but their triggers keeps them as they were.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from django.db import models

from policies import compiler
from policies.engine import ruleset as engine
from policies.models import Assignment, PriorityClass, PriorityClassVersion, Revision, RevisionPart, RuleSetVersion
from policies.publishing.parts import batches, documents_of, held_by, sha256

_Kind = RevisionPart.Kind
_State = RuleSetVersion.State
_CHUNK = 500
# How often the live rows are read again, because a Revision was made meanwhile.
_MOST_READS = 3
# Name and number of a version.
_Version = tuple[str, int]


class _Numbered(msgspec.Struct):
    version: int = 0


def faults_of_versions() -> Iterator[str]:
    """Iterate over the differences, in words.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    yield from _faults_of_rule_sets()
    yield from _faults_of_priority_classes()
    yield from _faults_of_live_rows()


def _held(kind: str) -> dict[_Version, str]:
    """Return the digests of all versions that Revisions hold, or held."""
    found: dict[_Version, str] = {}
    parts = RevisionPart.objects.filter(kind=kind).values_list("name", "part", "part__document")
    for name, digest, document in parts.iterator(chunk_size=_CHUNK):
        try:
            found[name, msgspec.json.decode(document or "", type=_Numbered).version] = digest
        except msgspec.DecodeError:
            continue  # a newer Berth wrote it, or it was changed, which is reported
    return found


def _faults_of_rule_sets() -> Iterator[str]:
    before, there = _held(_Kind.RULE_SET), set[_Version]()
    rows = RuleSetVersion.objects.filter(state__in=[_State.PUBLISHED, _State.SUPERSEDED]).order_by("pk")
    keys = list(rows.values_list("pk", flat=True))
    # Read again: there may be new versions.
    held = _held(_Kind.RULE_SET)
    for batch in batches(keys):
        read = list(rows.filter(pk__in=batch).select_related("rule_set").prefetch_related("rules"))
        versions = [(row.rule_set.name, row.number) for row in read]
        there.update(versions)
        texts = documents_of({row.digest for row in read} | {held[each] for each in versions if each in held})
        for version, row in zip(versions, read, strict=True):
            if version not in held and not _is_unreadable(_Kind.RULE_SET, row.rule_set.name, row.digest):
                yield f"RuleSet {row} was planted or changed: no Revision holds it"
            elif version in held and not _has_content(row, held[version], texts):
                yield f"RuleSet {row} doesn't have the rules that were published: it was changed"
    yield from (
        f"RuleSet {name} v{number} was removed: Revisions hold it"
        for name, number in before
        if (name, number) not in there
    )


def _has_content(row: RuleSetVersion, digest: str, texts: Mapping[str, str]) -> bool:
    content = _decoded(texts.get(digest), engine.RuleSet)
    # Pages read the text of the digest that a row names, and where there is none, its columns.
    is_elsewhere = row.digest != digest and row.digest in texts
    return content is None or (
        not is_elsewhere and _is_same(compiler.rule_set_document(row), compiler.document_of_content(content))
    )


def _is_same(stored: object, published: object) -> bool:
    """Return whether columns have the published values: in jsonb, 1e300 is a whole number of 301 digits."""
    match stored, published:
        case dict(), dict():
            return stored.keys() == published.keys() and all(_is_same(stored[name], published[name]) for name in stored)
        case list(), list():
            return len(stored) == len(published) and all(map(_is_same, stored, published))
        case (int() | float(), float()):
            return float(stored) == published
    return stored == published


def _is_unreadable(kind: str, name: str, digest: str) -> bool:
    """Return whether Revisions hold a part whose number nobody can tell: a newer Berth wrote it, or it is gone, which is reported."""
    is_held = RevisionPart.objects.filter(kind=kind, name=name, part=digest).exists()
    return is_held and _decoded(documents_of([digest]).get(digest), _Numbered) is None


def _decoded(text: str | None, form: type[Any]) -> Any:
    try:
        return msgspec.json.decode(text or "", type=form)
    except msgspec.DecodeError:
        return None


def _faults_of_priority_classes() -> Iterator[str]:
    before = _held(_Kind.PRIORITY_CLASS)
    rows = {(row.name, row.number): row for row in PriorityClassVersion.objects.order_by("pk")}
    held = _held(_Kind.PRIORITY_CLASS)
    for (name, number), row in rows.items():
        digest = held.get((name, number))
        if digest is None and not _is_unreadable(_Kind.PRIORITY_CLASS, name, row.digest):
            yield f"PriorityClass {name} v{number} was planted or changed: no Revision holds it"
        elif digest is not None and (row.digest, sha256(row.document.encode())) != (digest, digest):
            yield f"PriorityClass {name} v{number} isn't what was published: it was changed"
    yield from (
        f"PriorityClass {name} v{number} was removed: Revisions hold it"
        for name, number in before
        if (name, number) not in rows
    )


def _faults_of_live_rows() -> Iterator[str]:
    """Iterate over the rows of the live state that differ from the newest Revision; none where one is made each time they are read."""
    for _ in range(_MOST_READS):
        number = _newest()
        faults = [
            *_faults_of_live(
                number, _Kind.ASSIGNMENT, Assignment.objects.select_related("rule_set"), _assignment_fields
            ),
            *_faults_of_live(number, _Kind.PRIORITY_CLASS, PriorityClass.objects.all(), _priority_class_fields),
        ]
        if number == _newest():
            yield from faults
            return


def _newest() -> int:
    return Revision.objects.order_by("-number").values_list("number", flat=True).first() or 0


def _faults_of_live(number: int, kind: str, rows: models.QuerySet[Any], fields_of: Any) -> Iterator[str]:
    texts = dict(held_by(number).filter(kind=kind).values_list("name", "part__document"))
    there = {row.name: row for row in rows.order_by("pk")}
    for name, row in there.items():
        if name not in texts:
            yield f"{kind} {name} was planted: Revision {number} doesn't hold it"
            continue
        fields: Mapping[str, Any] | None = fields_of(texts[name], row)
        wrong = [column for column, value in (fields or {}).items() if not _is_same(getattr(row, column), value)]
        if wrong:
            yield f"{kind} {name} says something else in its column {wrong[0]} than Revision {number}: it was changed"
    yield from (f"{kind} {name} was removed: Revision {number} holds it" for name in texts if name not in there)


def _assignment_fields(text: str, row: Assignment) -> Mapping[str, Any] | None:
    content: engine.Assignment | None = _decoded(text, engine.Assignment)
    if content is None:
        return None
    fields = compiler.assignment_fields(content, rule_set=row.rule_set)
    is_same = row.rule_set.name == content.rule_set
    return fields | {"rule_set": row.rule_set if is_same else None}


def _priority_class_fields(text: str, _row: PriorityClass) -> Mapping[str, Any] | None:
    content: engine.PriorityClass | None = _decoded(text, engine.PriorityClass)
    return None if content is None else compiler.priority_class_fields(content)
