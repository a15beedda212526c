"""Exports evidence: the records of a period or a case, with the proofs of their integrity, as one archive.

`deploy/berth-verify` checks it without Berth and without a network; index.html inside is for people. For each log, the archive
has the rows as lines of JSON (`LOG.jsonl`: index of the leaf, the record in base64, and its content) and as a table
(`LOG.csv`); below `ledger/LOG/` the last checkpoint, the hashes that lead from the rows to it, and the earlier checkpoints
with proofs that they are prefixes of it. A Decision whose details were pruned has no record; its columns are `unproved`.
"""

import base64
import html
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import IO, Any, NamedTuple

import msgspec
from django.db import transaction

from policies.engine import ruleset as engine
from policies.models import Change, ChangeEvent, Revision
from policies.publishing import audit
from policies.publishing.actors import By, name_of
from policies.publishing.parts import batches, digest_text, documents_of, held_by
from policies.publishing.revisions import load_revision
from policies.sentences import assignment_sentence, priority_class_sentence, rule_sentence, suspension_sentence
from scheduler.decisions.record import UNREADABLE
from scheduler.evidence.archive import Archive, Lines
from scheduler.evidence.csv_text import line
from scheduler.evidence.selection import CHUNK, COLUMNS, RECORDS, Case, changes_of, said_of
from scheduler.ledger import deletions, losses
from scheduler.ledger.checkpoints import last_checkpoint, open_checkpoint, sign_checkpoints, tile_reader, tree_head
from scheduler.ledger.events import append_events
from scheduler.ledger.keys import known_verifiers, read_signer
from scheduler.ledger.logs import DECISIONS, EVENTS, LOGS, OUTCOMES
from scheduler.ledger.note import NoteError, Signer, TreeHead
from scheduler.ledger.tree import (
    HASH_BYTES,
    TILE_HEIGHT,
    TILE_WIDTH,
    Edge,
    ProofError,
    prove_consistency,
    root_at,
    subtrees_of,
)
from scheduler.models import DecisionGap, LedgerCheckpoint, LedgerHead

_LOST = ("at", "what", "numbers", "reason")
# The most rows of a table in index.html; the files have all rows.
_MOST_SHOWN = 2_000
_LARGEST = 2**31 - 1
# Why a row of index.html isn't proved.
_DELETED, _UNREADABLE = "no: it has no details any more", "NO: its record can't be read"
_DIFFERS = "NO: its column {} says something else than its record, which stands here"
_UNSAID = " (NOT proved: no event here says so)"
_PUBLISHED = (ChangeEvent.Act.PUBLISH, ChangeEvent.Act.URGENT)
# Change, act, account, reason, and object: its digest, or the number of the Revision that it made.
_Act = tuple[int, str, str, str, str]


class _ReadChange(NamedTuple):
    """A Change and the acts on it, read at one point in time."""

    change: Change
    acts: list[ChangeEvent]
    edits: list[dict[str, Any]]


class DamagedError(Exception):
    """The ledger doesn't match its signed checkpoints, so it proves nothing."""


def note_export(case: Case, *, by: By) -> None:
    """Write an event about the export before the archive is made, so that the archive includes it."""
    audit.record_event(audit.Kind.EXPORT, by=by, thing=("evidence", case.words()))


def export(
    case: Case, file: IO[bytes], *, by: By, now: datetime, on_step: Callable[[int], None] = lambda _rows: None
) -> dict[str, int]:
    """Write the evidence of a case; return how many rows of each log it has.

    Args:
        case: the selection.
        file: the target.
        by: the account that exports.
        now: the current time.
        on_step: called repeatedly, with the number of rows written since the last call.

    Raises:
        DamagedError: a tree or its last checkpoint doesn't match what was signed.
        scheduler.ledger.keys.KeyFileError: without the ledger's key nothing can be proved.
        django.db.DatabaseError: the database is unavailable.
    """
    try:
        return _export(case, file, by=by, now=now, on_step=on_step)
    except (NoteError, ProofError) as error:
        message = f"The ledger is damaged, and proves nothing: {error}. `manage.py verify` says more."
        raise DamagedError(message) from error


def _export(case: Case, file: IO[bytes], *, by: By, now: datetime, on_step: Callable[[int], None]) -> dict[str, int]:
    signer = read_signer()
    deletions.begin(signer)
    losses.begin()
    sign_checkpoints(now)
    with Archive(file, now) as archive:
        exported = _Export(case, archive, on_step)
        counts = {log: exported.write_log(log, _last_note(log, signer, now)) for log in (DECISIONS, OUTCOMES)}
        exported.write_changes()
        exported.write_deletions()
        # Not before: what retention deleted until those rows were read, and each act on those Changes, an event in the archive
        # has to say.
        append_events(now)
        sign_checkpoints(datetime.now(UTC), (EVENTS,))
        counts[EVENTS] = exported.write_log(EVENTS, _last_note(EVENTS, signer, now))
        exported.write_rules()
        exported.write_rest()
        archive.add("keys.pub", "".join(f"{verifier}\n" for verifier in known_verifiers()).encode())
        archive.add("index.html", exported.page(signer.verifier.name, now, name_of(by)).encode())
        archive.sign(signer, name_of(by))
    return counts


def _last_note(log: str, signer: Signer, now: datetime) -> str:
    """Return the last checkpoint of a log; for a log without leaves, which isn't signed every minute, an empty one.

    Raises:
        ProofError: a log with leaves has no checkpoint, because its leaves are damaged.
    """
    if last_checkpoint(log) is None:
        sign_checkpoints(now, (log,))  # its first leaf may have come since
    last, head = last_checkpoint(log), LedgerHead.objects.filter(log=log).first()
    if last is not None:
        return last.note
    if head is not None and head.size:
        message = f"nothing is signed of the log {log}, which has {head.size} leaves"
        raise ProofError(message)
    nothing = head or LedgerHead(log=log, root=Edge().root())
    return signer.sign(tree_head(signer.verifier.name, nothing, now).text())


class _Export:
    """One export."""

    def __init__(self, case: Case, archive: Archive, on_step: Callable[[int], None]) -> None:
        self._case = case
        self._on_step = on_step
        self._archive = archive
        self._revisions: set[int] = set()
        self._counts: dict[str, int] = {}
        self._notes: dict[str, TreeHead] = {}
        self._tables: dict[str, list[Sequence[object]]] = {log: [] for log in LOGS}
        # The lost or unreadable records that its events note.
        self._lost: list[Mapping[str, Any]] = []
        # Its Changes, and the acts on them in its events.
        self._changes: list[_ReadChange] = []
        self._acts: Counter[_Act] = Counter()

    def write_log(self, log: str, note: str) -> int:
        """Write the rows of a log, and their proofs by its last checkpoint."""
        head, _by = open_checkpoint(note, log, known_verifiers())
        if root_at(subtrees_of(tile_reader(log)), head.size) != head.root:
            message = f"the tiles of the log {log} don't lead to the root that was signed over {head.size} leaves"
            raise ProofError(message)
        self._notes[log] = head
        tiles: set[int] = set()
        with self._archive.lines(f"{log}.jsonl") as rows, self._archive.lines(f"{log}.csv") as table:
            table.write(line(COLUMNS[log]))
            self._write_rows(log, head.size, tiles, rows, table)
            self._counts[log] = rows.number
        self._archive.add(f"ledger/{log}/checkpoint", note.encode())
        self._write_tiles(log, head.size, tiles)
        self._archive.add_lines(f"ledger/{log}/checkpoints.jsonl", self._former_checkpoints(log, head.size))
        return self._counts[log]

    def _write_rows(self, log: str, size: int, tiles: set[int], rows: Lines, table: Lines) -> None:
        for leaf, record, unproved, columns in RECORDS[log](self._case, self._revisions):
            if leaf >= size:
                return  # stored after the last checkpoint
            said = _said(log, record) if record else {}
            differs = next((name for name, value in columns.items() if said and said.get(name) != value), "")
            tiles.add(leaf // TILE_WIDTH)
            self._on_step(1)
            self._note(log, said or unproved, _mark(record, said, differs))
            table.write(line([said.get(name) for name in COLUMNS[log]]))
            encoded = base64.b64encode(record).decode() if record else None
            row = {"leaf": leaf, "record": encoded, "said": said} | ({"unproved": unproved} if unproved else {})
            row |= {"differs": differs} if differs else {}
            rows.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _note(self, log: str, said: Mapping[str, Any], unproved: str) -> None:
        if log == EVENTS:
            self._lost += losses.rows_in(said)
            self._acts.update(_acts_in(said))
        if isinstance(revision := said.get("revision"), int) and 0 < revision <= _LARGEST:
            self._revisions.add(revision)
        if len(self._tables[log]) < _MOST_SHOWN:
            self._tables[log].append([unproved, *(said.get(name) for name in COLUMNS[log])])

    def _write_tiles(self, log: str, size: int, touched: set[int]) -> None:
        read, level, count = tile_reader(log), 0, size
        while count:
            last = (count - 1) // TILE_WIDTH
            numbers: Iterable[int] = range(last + 1) if level else sorted({*touched, last})
            for number in numbers:
                width = min(count - number * TILE_WIDTH, TILE_WIDTH)
                self._archive.add(f"ledger/{log}/tile/{level}/{number}", read(level, number)[: width * HASH_BYTES])
            level, count = level + 1, count >> TILE_HEIGHT

    def _former_checkpoints(self, log: str, size: int) -> Iterator[str]:
        """Iterate over the checkpoints before the last one, each with the proof that it is a prefix of that."""
        read = subtrees_of(tile_reader(log))
        # Without newer ones: rows may take minutes to write, and the worker signs each minute.
        rows = LedgerCheckpoint.objects.filter(log=log, size__lte=size).order_by("size", "at")
        for row in rows.iterator(chunk_size=CHUNK):
            self._on_step(0)
            proof = [base64.b64encode(step).decode() for step in prove_consistency(read, row.size, size)]
            yield _json_line({"at": row.at, "note": row.note, "proof": proof})

    def write_changes(self) -> None:
        """Write the Changes behind the Revisions that decided or were made in the period, and the acts on these Changes."""
        numbers = changes_of(self._case, self._revisions).order_by("pk").values_list("pk", flat=True)
        with self._archive.lines("changes.jsonl") as lines:
            for number in list(numbers):
                read = _read_change(number)
                lines.write(_change_line(read))
                self._changes.append(read)
        self._revisions |= {read.change.revision_id for read in self._changes if read.change.revision_id}

    def write_deletions(self) -> None:
        """Write the deletions by retention."""
        found = deletions.deletions(known_verifiers()).found
        self._archive.add_lines("pruned.jsonl", map(_deletion_line, found))

    def write_rules(self) -> None:
        """Write the Revisions that decided, and those that the Changes made."""
        rows = Revision.objects.filter(number__in=self._revisions).order_by("number")
        self._archive.add_lines("revisions.jsonl", map(_revision_line, rows))
        self._archive.add_lines("parts.jsonl", _part_lines(rows))
        self._archive.add_lines("rules.txt", (text for row in rows for text in _rules_in_words(row)))

    def write_rest(self) -> None:
        """Write the records that are known to be missing."""
        missing = DecisionGap.objects.filter(may_return=True).order_by("process", "first")
        lost = [{**row, "may_return": False} for row in self._lost]
        lost += ({**losses.said_of(gap), "may_return": True} for gap in missing.iterator(CHUNK))
        self._archive.add_lines("gaps.jsonl", map(_json_line, lost))

    def page(self, name: str, now: datetime, by: str) -> str:
        """Return index.html."""
        made = f"{_shown(self._case.words())}. Made {now:%Y-%m-%d %H:%M:%S} UTC by {_shown(by)}."
        parts = [f"<h1>Evidence of {_shown(name)}</h1><p>{made}</p>", _HOW]
        for log, head in self._notes.items():
            begun = LedgerHead.objects.filter(log=log).first()
            since = f" since {begun.began_at:%Y-%m-%d %H:%M} UTC" if begun else ""
            parts.append(
                f"<h2>{_shown(log)}</h2><p>{self._counts[log]:,} rows here, of {head.size:,} that were logged{since}. "
                f"All: <a href='{log}.csv'>{log}.csv</a>, "
                f"<a href='{log}.jsonl'>{log}.jsonl</a>.{self._says_of_rest(log)}</p>{self._table_of(log)}"
            )
        if self._lost:
            said = [
                [row["at"], f"{row['table']} of {row.get('process', row.get('writer'))}", _numbers(row), row["reason"]]
                for row in self._lost
            ]
            parts.append(
                f"<h2>Lost or unread</h2><p>All: <a href='gaps.jsonl'>gaps.jsonl</a>.</p>{_table(_LOST, said[:_MOST_SHOWN])}"
            )
        for read in self._changes:
            words = "".join(_change_in_words(read, self._acts.copy()))
            parts.append(f"<h2>Change {read.change.pk}</h2><pre>{_shown(words)}</pre>")
        rows = Revision.objects.filter(number__in=self._revisions).order_by("number")
        parts += [f"<h2>Revision {row.number}</h2><pre>{_shown(''.join(_rules_in_words(row)))}</pre>" for row in rows]
        return _PAGE.format(title=_shown(f"Evidence of {name}"), body="\n".join(parts))

    def _says_of_rest(self, log: str) -> str:
        shown = len(self._tables[log])
        return f" The first {shown:,} of them:" if shown < self._counts[log] else ""

    def _table_of(self, log: str) -> str:
        """Return the rows as a table; it has a column about proofs if some rows aren't proved."""
        rows = self._tables[log]
        if any(row[0] for row in rows):
            return _table(["proved", *COLUMNS[log]], rows)
        return _table(COLUMNS[log], [row[1:] for row in rows])


_HOW = (
    "<p>Check it with <code>berth-verify ARCHIVE --keys FILE</code>, a file of Berth's release that needs Python and its "
    "package <code>cryptography</code> alone. Get the public keys from somebody you trust, by another way than this archive.</p>"
)
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:14px system-ui;margin:2em;max-width:110em}}table{{border-collapse:collapse;display:block;overflow-x:auto}}
td,th{{border:1px solid #bbb;padding:.2em .5em;text-align:left;white-space:nowrap}}pre{{background:#f4f4f4;padding:1em;white-space:pre-wrap}}</style>
{body}
</html>
"""


def _numbers(row: Mapping[str, Any]) -> str:
    return f"{row['first']} to {row['last']}" if "last" in row else str(row["sequence"])


def _shown(text: object) -> str:
    return html.escape("" if text is None else str(text))


def _table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{_shown(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_shown(value)}</td>' for value in row)}</tr>\n" for row in rows)
    return f"<table><tr>{head}</tr>\n{body}</table>"


def _said(log: str, record: bytes) -> dict[str, Any]:
    """Return a record's content; empty for an unreadable one, which is in the archive anyway, for `berth-verify` to report."""
    try:
        found = said_of(log, record)
    except UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}


def _mark(record: bytes, said: Mapping[str, Any], differs: str) -> str:
    """Return why a row of index.html isn't proved, or what is wrong with it; empty if nothing is."""
    if not record:
        return _DELETED
    if not said:
        return _UNREADABLE
    return _DIFFERS.format(differs) if differs else ""


def _json_line(fields: Mapping[str, Any]) -> str:
    return msgspec.json.encode(fields).decode() + "\n"


def _read_change(number: int) -> _ReadChange:
    """Read a Change under its lock, as each act takes it: no act is half done, and later acts have later events."""
    with transaction.atomic():
        change = Change.objects.select_for_update().get(pk=number)
        edits = change.edits.values("kind", "name", "document", "author", "edited_at")
        return _ReadChange(change, list(change.events.order_by("pk")), [*map(dict, edits)])


def _change_line(read: _ReadChange) -> str:
    change = read.change
    events = [{name: getattr(each, name) for name in ("act", "by", "at", "digest", "text")} for each in read.acts]
    return _json_line(
        {
            "number": change.pk, "title": change.title, "reason": change.reason, "state": change.state,
            "revision": change.revision_id, "digest": change.digest, "openedBy": change.opened_by,
            "events": events, "edits": read.edits,
        }
    )  # fmt: skip


def _change_in_words(read: _ReadChange, said: Counter[_Act]) -> Iterator[str]:
    """Iterate over the acts on a Change, and whether events confirm them; each confirming event is removed from `said`."""
    change = read.change
    made = f", made Revision {change.revision_id}" if change.revision_id else ""
    yield f"{change.title}{made}; opened by {change.opened_by}{_reason(change.reason)}\n"
    for each in read.acts:
        of = str(change.revision_id) if each.act in _PUBLISHED else each.digest
        act = change.pk, each.act, each.by, each.text, of
        mark = "" if said[act] > 0 else _UNSAID
        said[act] -= 1
        yield f"  {each.at:%Y-%m-%d %H:%M:%S} UTC {each.by} {each.get_act_display()}{_reason(each.text)}{mark}\n"


def _acts_in(said: Mapping[str, Any]) -> Iterator[_Act]:
    """Iterate over the act on a Change in an event, if the event is about one and in Berth's format."""
    before, _, act = str(said.get("kind")).partition(".")
    if before == "change":
        members = (said.get(name) for name in ("by", "reason", "revision" if act in _PUBLISHED else "after"))
        by, reason, of = map(str, members)
        yield said.get("change") or 0, act, by, reason, of


def _revision_line(row: Revision) -> str:
    document = load_revision(row.number)
    return _json_line(
        {
            "number": row.number, "digest": row.digest, "madeBy": row.made_by, "reason": row.reason,
            "summary": row.summary, "createdAt": row.created_at, "document": document, "covers": digest_text(row),
        }
    )  # fmt: skip


def _deletion_line(deletion: deletions.Deletion) -> str:
    said = deletion._asdict()
    del said["is_exact"]  # of a row that is there, which the live database alone is asked about
    return _json_line(said)


def _part_lines(rows: Iterable[Revision]) -> Iterator[str]:
    """Iterate over the inputs of the parts' digests, each once."""
    digests = {digest for row in rows for digest in held_by(row.number).values_list("part", flat=True)}
    for batch in batches(sorted(digests)):
        for digest, document in sorted(documents_of(batch).items()):
            yield _json_line({"digest": digest, "document": document})


def _reason(text: str) -> str:
    return f": {text}" if text else ""


def _rules_in_words(row: Revision) -> Iterator[str]:
    yield f"Revision {row.number}, made {row.created_at:%Y-%m-%d %H:%M:%S} UTC by {row.made_by}{_reason(row.reason)}\n"
    document = load_revision(row.number)
    if document is not None:
        yield from _sentences(document)
    yield "\n"


def _sentences(document: engine.Revision) -> Iterator[str]:
    for rule_set in document.rule_sets:
        yield f"  rule set {rule_set.name}, version {rule_set.version}\n"
        spec = rule_set.spec
        for kind, rules in (("filter", spec.filters), ("score", spec.scores), ("victims", spec.victims)):
            for rule in rules:
                yield f"    {kind} {rule_sentence(rule)}\n"
    for assignment in document.assignments:
        yield f"  Assignment {assignment.name}: {assignment_sentence(assignment)}\n"
    for priority_class in document.priority_classes:
        yield f"  PriorityClass {priority_class.name}: {priority_class_sentence(priority_class)}\n"
    suspensions: list[engine.Pause | engine.Exemption] = [*document.pauses, *document.exemptions]
    for suspension in suspensions:
        yield f"  {type(suspension).__name__} {suspension.name}: {suspension_sentence(suspension)}\n"
