"""The stored form of Revisions: each part once, and from which to which Revision it is held."""

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from django.db.models import BigIntegerField, Case, Count, JSONField, Q, QuerySet, When
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast
from django.db.models.lookups import Regex

from policies import compiler
from policies.engine import ruleset as engine
from policies.models import Part, Revision, RevisionPart
from policies.publishing.errors import PublishingError

Kind = RevisionPart.Kind
Value = engine.Document

# Kinds with numbered versions: publishing new content makes the next version.
NUMBERED = engine.RuleSet | engine.PriorityClass

# Kind and name of a part.
Key = tuple[str, str]

Item = TypeVar("Item")

# The decoder for the document of a part, by kind.
DECODERS: Final[Mapping[str, msgspec.json.Decoder[Value]]] = {
    Kind.RULE_SET: msgspec.json.Decoder(engine.RuleSet),
    Kind.ASSIGNMENT: msgspec.json.Decoder(engine.Assignment),
    Kind.PRIORITY_CLASS: msgspec.json.Decoder(engine.PriorityClass),
    Kind.PAUSE: msgspec.json.Decoder(engine.Pause),
    Kind.EXEMPTION: msgspec.json.Decoder(engine.Exemption),
}

# The most rows in one statement: SQLite limits the number of parameters.
_BATCH = 500


class StoredPart(NamedTuple):
    """A part's digest and its content."""

    digest: str
    value: Value


class ListedPart(NamedTuple):
    """A part's name and its content; None where a newer Berth wrote it."""

    name: str
    value: Value | None


class StoredRevision:
    """A Revision as it is stored: its number, its digest and its parts. Never changes."""

    def __init__(self, number: int, digest: str, published_at: str, parts: Mapping[Key, StoredPart]) -> None:
        self.number = number
        self.digest = digest
        self.published_at = published_at
        self.parts = parts

    @cached_property
    def revision(self) -> engine.Revision:
        """The Revision as an engine value."""
        values: dict[str, list[Value]] = {kind: [] for kind in Kind}
        for (kind, _), part in self.parts.items():
            values[kind].append(part.value)
        made = compiler.revision_document(
            number=self.number,
            published_at=self.published_at,
            rule_sets=values[Kind.RULE_SET],  # type: ignore[arg-type] # each decoded by its kind
            assignments=values[Kind.ASSIGNMENT],  # type: ignore[arg-type]
            priority_classes=values[Kind.PRIORITY_CLASS],  # type: ignore[arg-type]
            pauses=values[Kind.PAUSE],  # type: ignore[arg-type]
            exemptions=values[Kind.EXEMPTION],  # type: ignore[arg-type]
        )
        return msgspec.structs.replace(made, digest=self.digest)


NOTHING = StoredRevision(0, "", "", {})


def stored_revision(number: int, base: StoredRevision = NOTHING) -> StoredRevision | None:
    """Read a Revision; None where there is none of this number.

    Args:
        number: the Revision's number.
        base: one that was read before. If it is an earlier one, only parts that it lacks are fetched.

    Raises:
        msgspec.DecodeError: a part was written by a newer Berth.
    """
    rows = dict(Revision.objects.filter(number__in=[number, base.number]).values_list("number", "digest"))
    if number not in rows:
        return None
    if base.number > number or rows.get(base.number) != base.digest:
        base = NOTHING  # a restored database can have a different Revision of that number
    moved = RevisionPart.objects.filter(Q(since__gt=base.number) | Q(until__gt=base.number), since__lte=number)
    parts = dict(base.parts)
    held = {}
    for kind, name, digest, until in moved.values_list("kind", "name", "part_id", "until_id").iterator():
        if until is None or until > number:
            held[kind, name] = digest
        else:
            parts.pop((kind, name), None)
    documents = documents_of(set(held.values())) if base.number else _all_documents(number)
    for key, digest in held.items():
        parts[key] = StoredPart(digest, DECODERS[key[0]].decode(documents[digest]))
    made_at = Revision.objects.values_list("created_at", flat=True).get(number=number)
    return StoredRevision(number, rows[number], published_at(made_at), parts)


def held_by(number: int) -> QuerySet[RevisionPart]:
    """Return the rows of the parts that a Revision holds."""
    return RevisionPart.objects.filter(Q(until=None) | Q(until__gt=number), since__lte=number)


def numbers_of(number: int) -> dict[str, int]:
    """Return how many things of each kind a Revision holds."""
    counted = held_by(number).order_by().values("kind").annotate(number=Count("pk"))
    return dict(counted.values_list("kind", "number"))


def parts_of(number: int, kind: str, start: int, stop: int) -> list[ListedPart]:
    """Return some of the parts of a kind that a Revision holds. The database sorts and pages.

    Assignments are sorted by their order, PriorityClasses by descending value, all else by name.
    """
    rows = held_by(number).filter(kind=kind)
    page = rows.order_by(*_ORDERS.get(kind, ()), "name")[start:stop].values_list("name", "part__document")
    return [ListedPart(name, _value_if_readable(kind, document)) for name, document in page]


def _value_if_readable(kind: str, document: str) -> Value | None:
    try:
        return DECODERS[kind].decode(document)
    except msgspec.DecodeError:
        return None


def read_part(key: Key, document: str) -> Value:
    """Return the content of a part.

    Raises:
        PublishingError: a newer Berth wrote it.
    """
    value = _value_if_readable(key[0], document)
    if value is None:
        raise PublishingError([f"{key[0]} {key[1]} can't be read: a newer version of Berth wrote it."])
    return value


class _Placed(msgspec.Struct):
    """The order in an Assignment's document."""

    order: int = engine.Assignment(name="", rule_set="").order


def order_in(document: str) -> int | None:
    """Return the order in an Assignment's document; None where it is gone, or can't be read: of a newer Berth, or damaged."""
    try:
        return msgspec.json.decode(document, type=_Placed).order if document else None
    except msgspec.DecodeError:
        return None


def orders_at(number: int) -> dict[str, int]:
    """Return the orders of the Assignments that a Revision holds, by name, without those that can't be read."""
    rows = held_by(number).filter(kind=Kind.ASSIGNMENT).values_list("name", "part__document")
    return {name: order for name, document in rows if (order := order_in(document)) is not None}


def _member(name: str, default: int) -> Case:
    """Return a number from a part's document; the default isn't written there, and stands for what isn't such a number."""
    text = KeyTextTransform(name, Cast("part__document", JSONField()))
    # PostgreSQL refuses the whole query if it has to cast anything else: a newer Berth may have written it.
    return Case(When(Regex(text, "^-?[0-9]{1,18}$"), then=Cast(text, BigIntegerField())), default=default)


_ORDERS: Final[Mapping[str, tuple[Any, ...]]] = {
    Kind.ASSIGNMENT: (_member("order", _Placed().order),),
    Kind.PRIORITY_CLASS: (_member("value", 0).desc(),),
}


def live_since(kind: str, names: Collection[str] | None = None) -> dict[str, datetime]:
    """Return since when each live part of a kind has had its content; with `names`, only for these."""
    held = RevisionPart.objects.filter(kind=kind, until=None)
    if names is not None:
        held = held.filter(name__in=names)
    return dict(held.values_list("name", "since__created_at"))


def published_at(made_at: datetime) -> str:
    """Return when a Revision was made, as written in its document."""
    return made_at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def digest_text(row: Revision) -> str:
    """Return the exact text over which a Revision's digest is computed."""
    if not row.chained:
        return document_text(row)
    former = Revision.objects.filter(number=row.number - 1).values_list("digest", flat=True).first() or ""
    parts = held_by(row.number).values_list("kind", "name", "part_id")
    return compiler.chain_text(
        number=row.number, published_at=published_at(row.created_at), parts=parts, former=former
    ).decode()


def document_text(row: Revision) -> str:
    """Return a Revision's whole document, put together from the texts of its parts."""
    found = held_by(row.number).values_list("kind", "name", "part__document")
    texts: dict[str, list[tuple[int, str, str]]] = {kind: [] for kind in Kind}
    for kind, name, text in found:
        order = order_in(text) if kind == Kind.ASSIGNMENT else 0
        texts[kind].append((_Placed().order if order is None else order, name, text))
    members = {
        "assignments": _list(texts[Kind.ASSIGNMENT]),
        "exemptions": _list(texts[Kind.EXEMPTION]),
        "number": str(row.number),
        "pauses": _list(texts[Kind.PAUSE]),
        "priorityClasses": _list(texts[Kind.PRIORITY_CLASS]),
        "publishedAt": f'"{published_at(row.created_at)}"',
        "ruleSets": _list(texts[Kind.RULE_SET]),
    }
    return "{" + ",".join(f'"{name}":{text}' for name, text in members.items() if text) + "}"


def _list(texts: list[tuple[int, str, str]]) -> str:
    """Write the members of a list in their order; nothing for an empty one, as `encode` leaves it out."""
    return f"[{','.join(text for _, _, text in sorted(texts))}]" if texts else ""


def write_parts(number: int, changed: Mapping[Key, tuple[str, Value]], removed: Iterable[Key]) -> None:
    """Write the differences of the next Revision from the former one. The Revision's row has to be written afterwards.

    Args:
        number: the next Revision's.
        changed: parts that are new or changed, each with its digest.
        removed: parts that it no longer holds.
    """
    rows = [Part(digest=digest, document=engine.encode(value).decode()) for digest, value in changed.values()]
    Part.objects.bulk_create(rows, ignore_conflicts=True, batch_size=_BATCH)
    for kind in Kind:
        names = [name for of_kind, name in (*changed, *removed) if of_kind == kind]
        for batch in batches(names):
            RevisionPart.objects.filter(kind=kind, name__in=batch, until=None).update(until=number)
    made = [RevisionPart(kind=key[0], name=key[1], part_id=changed[key][0], since_id=number) for key in changed]
    RevisionPart.objects.bulk_create(made, batch_size=_BATCH)


def digests_of(number: int) -> dict[Key, str]:
    """Return the digests of the parts that a Revision holds."""
    return {(kind, name): digest for kind, name, digest in held_by(number).values_list("kind", "name", "part_id")}


def live_digests(keys: Iterable[Key], number: int) -> dict[Key, str]:
    """Return the digests of some live parts."""
    wanted = set(keys)
    found: dict[Key, str] = {}
    for batch in batches(sorted({name for _, name in wanted})):
        rows = held_by(number).filter(name__in=batch).values_list("kind", "name", "part_id")
        found |= {(kind, name): digest for kind, name, digest in rows if (kind, name) in wanted}
    return found


def key_of(value: Value) -> Key:
    """Return a part's kind and name."""
    match value:
        case engine.RuleSet():
            return Kind.RULE_SET, value.name
        case engine.Assignment():
            return Kind.ASSIGNMENT, value.name
        case engine.PriorityClass():
            return Kind.PRIORITY_CLASS, value.name
        case engine.Pause():
            return Kind.PAUSE, value.name
        case engine.Exemption():
            return Kind.EXEMPTION, value.name


def is_same(one: Value | None, other: Value | None) -> bool:
    """Return whether two states of a thing are equivalent; a version without a number equals any version with the same content."""
    if one is None or other is None:
        return one is other
    if not isinstance(one, NUMBERED) or not isinstance(other, NUMBERED):
        return one == other
    version = one.version if one.version and other.version else 0
    return msgspec.structs.replace(one, version=version) == (
        other if version else msgspec.structs.replace(other, version=0)
    )


def sha256(text: bytes) -> str:
    """Return a text's digest, in hex."""
    return hashlib.sha256(text).hexdigest()


def documents_of(digests: Iterable[str]) -> dict[str, str]:
    """Return the documents of parts, by digest; a restored database may lack some."""
    found: dict[str, str] = {}
    for batch in batches(sorted(digests)):
        found.update(Part.objects.filter(digest__in=batch).values_list("digest", "document"))
    return found


def _all_documents(number: int) -> dict[str, str]:
    return dict(held_by(number).values_list("part_id", "part__document"))


def batches(items: Sequence[Item]) -> Iterable[Sequence[Item]]:
    """Split a list, so that one statement names a limited number of rows."""
    return (items[start : start + _BATCH] for start in range(0, len(items), _BATCH))
