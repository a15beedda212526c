"""Compares Revisions, their contents, and the acts on Changes with the AuditEvents of these acts, whose bytes the ledger proves.

An event has the digest of the Revision that it made, which covers the parts, by their digests, and the Revision before. Acts
older than the first event of their kind are compared only with their own digests.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from policies import compiler
from policies.models import Change, ChangeEdit, ChangeEvent, Part, Revision, RevisionPart
from policies.models.audit import Kind
from policies.publishing.audit import more_of
from policies.publishing.parts import digest_text, published_at, sha256
from scheduler.ledger.credible import credible

_ACT = "change."
_OPENED = ChangeEvent.Act.OPEN.value
_PUBLISHED = (ChangeEvent.Act.PUBLISH.value, ChangeEvent.Act.URGENT.value)
_SAYS = dict(ChangeEvent.Act.choices)
_CHUNK = 500
# Kind, name and digest.
_Part = tuple[str, str, str]
# The digests of a Change's results, by kind and name; "" for removed ones.
_Edits = dict[tuple[str, str], str]


class _Act(NamedTuple):
    """An act on a Change. `of` is the content at that time; for an act that made a Revision, the Revision's number."""

    change: int
    act: str
    by: str
    whom: str
    text: str
    of: str

    def __str__(self) -> str:
        return f"Change {self.change} {_SAYS.get(self.act, self.act)} by {self.by}"


class _Made(NamedTuple):
    """An event's record of the Revision that it made. `reason` is empty if publishing had none."""

    digest: str
    by: str
    reason: str


class _Noted:
    """The records of Changes and Revisions in AuditEvents."""

    def __init__(self) -> None:
        self.acts: Counter[_Act] = Counter()
        self.made: dict[int, _Made] = {}
        # All titles of a Change: ids of events follow the clocks of their processes, so the last event may have none of the newest.
        self.titles = defaultdict[int, set[str]](set)
        self.openers: dict[int, str] = {}
        # Of published Changes.
        self.edits: dict[int, _Edits] = {}
        events = credible(timezone.now()).filter(kind__startswith=_ACT).order_by("pk")
        for event in events.iterator(chunk_size=_CHUNK):
            act, more = event.kind.removeprefix(_ACT), more_of(event)
            of = str(event.revision) if act in _PUBLISHED else event.after
            self.acts[_Act(event.change or 0, act, event.by, str(more.get("whom", "")), event.reason, of)] += 1
            self.titles[event.change or 0].add(str(more.get("title", "")))
            if act == _OPENED:
                self.openers[event.change or 0] = event.by
            if act in _PUBLISHED:
                self.made[event.revision or 0] = _Made(event.after, event.by, event.reason)
                if (edits := _edits_in(more)) is not None:
                    self.edits[event.change or 0] = edits
        # Older Changes had acts without events.
        self.first_change = min((act.change for act in self.acts if act.act == _OPENED), default=None)


def faults_of_rules() -> list[str]:
    """Return the differences in words.

    Raises:
        django.db.DatabaseError: the database is unavailable.
    """
    before = _Noted()
    revisions = list(Revision.objects.order_by("number"))
    changes = list(Change.objects.order_by("pk").only("title", "opened_by"))
    acts = Counter(_stored_acts())
    # Read again: there may be new acts.
    noted = _Noted()
    return [
        *_faults_of_parts(),
        *_faults_of_digests(revisions),
        *_faults_of_making(revisions, before, noted),
        *_faults_of_titles(changes, before, noted),
        *_faults_of_edits(changes, before, noted),
        *_faults_of_acts(acts, before, noted),
        *_faults_of_accounts(noted.first_change),
        *_faults_of_makers(noted.first_change),
    ]


def _edits_in(more: Mapping[str, Any]) -> _Edits | None:
    """Return the result of a publishing according to its event; None if the event doesn't have it, as older ones don't."""
    try:
        return {(thing["kind"], thing["name"]): thing["after"] for thing in more["things"]}
    except (KeyError, TypeError):
        return None


def _stored_acts() -> Iterator[_Act]:
    names = ("change", "act", "by", "whom", "text", "digest", "change__revision")
    rows = ChangeEvent.objects.order_by("pk").values_list(*names)
    for change, act, by, whom, text, digest, revision in rows.iterator(chunk_size=_CHUNK):
        yield _Act(change, act, by, whom, text, str(revision) if act in _PUBLISHED else digest)


def _faults_of_parts() -> Iterator[str]:
    for digest, document in Part.objects.values_list("digest", "document").iterator(chunk_size=_CHUNK):
        if sha256(document.encode()) != digest:
            held = RevisionPart.objects.filter(part=digest).order_by("pk").first()
            yield f"part {digest} ({held or 'held by no Revision'}) isn't what was published: it was changed"
    there = Part.objects.filter(pk=OuterRef("part"))
    for row in RevisionPart.objects.filter(~Exists(there)).order_by("pk").iterator(chunk_size=_CHUNK):
        yield f"part {row.part_id} ({row}) is missing: it was removed"
    for row in RevisionPart.objects.filter(until__lte=F("since")).order_by("pk").iterator(chunk_size=_CHUNK):
        yield f"{row} ends with Revision {row.until_id}, so that no Revision holds it: it was changed or planted"
    # No Revision's digest covers them, and readers compare the numbers alone.
    for column, words in (("since", "begins"), ("until", "ends")):
        nowhere = ~Exists(Revision.objects.filter(pk=OuterRef(column)))
        rows = RevisionPart.objects.filter(nowhere, **{f"{column}__isnull": False})
        for row in rows.order_by("pk").iterator(chunk_size=_CHUNK):
            yield f"{row} {words} with a Revision that isn't there: it was changed or planted"


def _faults_of_digests(revisions: Iterable[Revision]) -> Iterator[str]:
    """Iterate over Revisions whose contents don't match their digest."""
    begun, ended = defaultdict[int, list[_Part]](list), defaultdict[int, list[_Part]](list)
    for kind, name, digest, since, until in RevisionPart.objects.values_list("kind", "name", "part", "since", "until"):
        if until is None or until > since:  # no Revision holds the others
            begun[since].append((kind, name, digest))
            ended[until or 0].append((kind, name, digest))
    # Counted, as readers find two rows of the same part twice.
    held, former = Counter[_Part](), ""
    for row in revisions:
        number, at = row.number, published_at(row.created_at)
        held -= Counter(ended[number])
        held.update(begun[number])
        chained = compiler.chain_text(number=number, published_at=at, parts=held.elements(), former=former)
        text = chained if row.chained else digest_text(row).encode()
        if sha256(text) != row.digest:
            yield f"{row} isn't what its digest was taken over: it, what it holds or the Revision before was changed"
        former = row.digest


def _faults_of_making(revisions: Iterable[Revision], before: _Noted, noted: _Noted) -> Iterator[str]:
    first = min(noted.made, default=None)
    there = set()
    for row in revisions:
        there.add(row.number)
        said = noted.made.get(row.number)
        if said is None and first is not None and row.number > first:
            yield f"{row} was planted: no AuditEvent says that it was made"
        elif said is not None and said != (row.digest, row.made_by, said.reason and row.reason):
            yield f"{row} is not what was noted when {said.by} made it: it was changed"
    for number, said in before.made.items():
        if number not in there:
            yield f"Revision {number} was removed: an AuditEvent says that {said.by} made it"


def _faults_of_titles(changes: Iterable[Change], before: _Noted, noted: _Noted) -> Iterator[str]:
    there = {row.pk: row for row in changes}
    for number in before.titles:
        if number not in there:
            yield f"Change {number} was removed: AuditEvents say what was done with it"
        elif there[number].title not in noted.titles[number]:
            yield f"{there[number]} is called {there[number].title!r}, and no AuditEvent calls it so: it was changed"


def _faults_of_edits(changes: Iterable[Change], before: _Noted, noted: _Noted) -> Iterator[str]:
    """Iterate over Changes whose author or result differs from their events, or which no event opened."""
    stored = defaultdict[int, _Edits](dict)
    published = ChangeEdit.objects.filter(change__revision__isnull=False)
    rows = published.values_list("change", "kind", "name", "document")
    for number, kind, name, document in rows.iterator(chunk_size=_CHUNK):
        stored[number][kind, name] = sha256(document.encode()) if document else ""
    for row in changes:
        is_noted = noted.first_change is None or row.pk < noted.first_change or row.pk in noted.openers
        if not is_noted:
            yield f"{row} was planted: no AuditEvent says that {row.opened_by} opened it"
        opener = before.openers.get(row.pk, row.opened_by)
        if row.opened_by != opener:
            yield f"{row} is said to be opened by {row.opened_by}, and an AuditEvent says by {opener}: it was changed"
        if row.pk in before.edits and stored[row.pk] != before.edits[row.pk]:
            yield f"{row} doesn't make what an AuditEvent says that it made: its edits were changed"


def _faults_of_acts(acts: Counter[_Act], before: _Noted, noted: _Noted) -> Iterator[str]:
    for act in before.acts - acts:
        yield f"{act} was changed or removed: an AuditEvent notes it"
    for act in acts - noted.acts:
        # No event records other authors of the edits that a Change was opened with.
        is_author = act.act == ChangeEvent.Act.EDIT and not act.text
        if noted.first_change is not None and act.change >= noted.first_change and not is_author:
            yield f"{act} was changed or planted: no AuditEvent notes it"


def _faults_of_accounts(first: int | None) -> Iterator[str]:
    """Iterate over acts, from a Change on, whose accounts never had the recorded names.

    These names decide whose approval counts, and for whose review a Change waits.
    """
    if first is None:
        return
    done_by_other = Q(by_user__isnull=False) & ~Q(by=F("by_user__username"))
    asks_other = Q(whom_user__isnull=False) & ~Q(whom=F("whom_user__username"))
    other = ChangeEvent.objects.filter(done_by_other | asks_other, change__gte=first)
    acts = list(other.order_by("pk"))
    # Read after the acts: an account may be renamed meanwhile.
    formers = _former_names() if acts else {}
    for act in acts:
        if act.by_user is not None and act.by not in _names_of(act.who, formers):
            yield f"{act} is said to be an act of the account {act.who}, which was never called so: it was changed"
        if act.whom_user is not None and act.whom not in _names_of(act.asked, formers):
            yield f"{act} is said to ask the account {act.asked}, which was never called {act.whom}: it was changed"


def _faults_of_makers(first: int | None) -> Iterator[str]:
    """Iterate over Revisions, from a Change on, that are linked to an account which never had the name of who made them.

    Earlier ones are passed over: nobody noted yet when an account was renamed.
    """
    if first is None:
        return
    other = Revision.objects.filter(made_by_user__isnull=False, change__gte=first).exclude(
        made_by=F("made_by_user__username")
    )
    revisions = list(other.select_related("made_by_user").order_by("number"))
    formers = _former_names() if revisions else {}
    for row in revisions:
        account = str(row.made_by_user)
        if row.made_by not in _names_of(account, formers):
            yield (
                f"Revision {row.number} by {row.made_by} is said to be made by the account {account}, which was never "
                "called so: it was changed"
            )


def _former_names() -> Mapping[str, set[str]]:
    """Return the former names of accounts, by each name."""
    formers = defaultdict[str, set[str]](set)
    renamed = credible(timezone.now()).filter(kind=Kind.ACCOUNT_CHANGE)
    for event in renamed.iterator(chunk_size=_CHUNK):
        match more_of(event):
            case {"values": {"username": [str(former), str(name)]}}:
                formers[name].add(former)
    return formers


def _names_of(name: str, formers: Mapping[str, set[str]]) -> set[str]:
    """Return all names that an account with this name may have had."""
    found, left = set[str](), [name]
    while left:
        one = left.pop()
        if one not in found:
            found.add(one)
            left += formers.get(one, ())
    return found
