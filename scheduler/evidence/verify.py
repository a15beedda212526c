"""Verifies the ledger of a live database: its rows, trees and checkpoints against each other and against copies outside it.

The tree is rebuilt from the bytes of the rows; for rows that retention deleted, from the hashes that are kept. At the size of
each checkpoint the root is compared, which proves that every checkpoint is a prefix of the next one. Rows that are
stored during a run are left to the next run.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from django.db.models import Exists, F, Max, OuterRef, Q, Subquery
from django.utils import timezone

from scheduler.evidence.cells import UNREADABLE_CELLS, unreadable_cells
from scheduler.evidence.numbers import uncovered
from scheduler.evidence.pruned import Pruned, PrunedLeaves
from scheduler.evidence.rules import faults_of_rules
from scheduler.evidence.sound import ReadStretches, Span, Stretch, read_apart
from scheduler.evidence.sources import SOURCES, Found, Source
from scheduler.evidence.times import Signing, misplaced_events
from scheduler.evidence.versions import faults_of_versions
from scheduler.history.holds import faults_of_holds
from scheduler.ledger import losses
from scheduler.ledger.checkpoints import UNLOGGED, must_have_been_signed, open_checkpoint, signed_at, tile_reader
from scheduler.ledger.events import LATEST
from scheduler.ledger.logs import DECISIONS, EVENTS, LOGS
from scheduler.ledger.note import NoteError, TreeHead, Verifier
from scheduler.ledger.outside import kept
from scheduler.ledger.tree import HASH_BYTES, TILE_WIDTH, Edge, leaf_hash, perfect_root
from scheduler.models import (
    Checkpoint,
    Decision,
    LedgerCheckpoint,
    LedgerHead,
    LedgerLeaf,
    LedgerTile,
)
from scheduler.models import Outcome as OutcomeRow

# Faults of a log that are reported one by one; the others are counted.
MOST_FAULTS = 20
# The number of leaves per step.
STEP = 8 * TILE_WIDTH
# The index of faults that are reported before those of all leaves.
_FIRST_OF_ALL = -(1 << 64)
_Found = TypeVar("_Found")


class Progress(msgspec.Struct):
    """The progress of verifying a log, from which a later run can continue.

    Attributes:
        next: the index of the next leaf.
        tiles: the right edge of the tree so far, in hex.
        proved: rows whose bytes match their leaf, and whose columns match the bytes.
        without_row: leaves whose row, or its details, retention deleted.
        checkpoints: checkpoints over fewer leaves whose root was found.
        faults: in the order in which they were found.
        more_faults: the number of faults that aren't reported one by one.
        numbers: for each writer, its next number, and the leaf of its last row.
    """

    next: int = 0
    tiles: list[str] = []
    proved: int = 0
    without_row: int = 0
    checkpoints: int = 0
    faults: list[str] = []
    more_faults: int = 0
    numbers: dict[str, tuple[int, int]] = {}

    def begin_anew(self) -> None:
        """Forget all but the faults."""
        self.next = self.proved = self.without_row = self.checkpoints = 0
        self.tiles, self.numbers = [], {}

    def add_fault(self, words: str) -> None:
        """Record a fault, unless an earlier run found it at the same place."""
        if words in self.faults:
            return
        if len(self.faults) < MOST_FAULTS:
            self.faults.append(words)
        else:
            self.more_faults += 1


class LogReport(msgspec.Struct):
    """The findings about a log: its leaves, its begin, the proved rows, and the faults.

    The log of events proves gaps and dead letters, too: `losses` match their events, `older_losses` are older than the events.
    `proved_before` of the proved rows were proved by earlier runs, which this one continued.
    For `older_places` Decisions, retention deleted the proof of the nodes of their Pods.
    """

    log: str
    size: int
    since: datetime | None
    unlogged: int
    proved: int
    without_row: int
    checkpoints: int
    signed_size: int
    pruned: list[Pruned]
    losses: int
    older_losses: int
    faults: list[str]
    more_faults: int
    older_places: int = 0
    proved_before: int = 0

    @property
    def ok(self) -> bool:
        """Whether there are no faults."""
        return not self.faults


class Signed(NamedTuple):
    """A checkpoint with a valid signature, its origin, and whether that is the database."""

    head: TreeHead
    where: str
    note: str
    is_stored: bool


# Called from time to time with the log, its progress, and its number of leaves.
Tell = Callable[[str, Progress, int], None]


class LogVerifier:
    """Verifies one log.

    Args:
        source: reads the log's rows.
        verifiers: the trusted keys.
        folder: the folder of checkpoints outside the database; None if there is none.
        progress: the progress of an earlier run; is updated.
        read: reads stretches without faults.
    """

    def __init__(
        self,
        source: Source,
        verifiers: Sequence[Verifier],
        folder: Path | None,
        progress: Progress,
        read: ReadStretches,
    ) -> None:
        self._source = source
        self._read = read
        self._verifiers = verifiers
        self._read_tile = tile_reader(source.log)
        # The edge of the whole tree, after all leaves were read.
        self._edge: Edge | None = None
        self._folder = folder
        self.progress = progress
        self._found_now: list[tuple[int, str]] = []
        self._unreadable: list[str] = []
        self._older_places = 0
        # The number of checkpoints over all leaves that agree.
        self._at_end = 0
        # The numbers of unlogged rows are lower than those of the log, and retention records no leaf for them.
        self._are_some_older = False

    def run(self, tell: Tell) -> LogReport:
        """Verify all rows that are stored now; `tell` is called from time to time."""
        log, progress = self._source.log, self.progress
        # In this order, so that rows that are stored meanwhile are never reported as missing.
        writers: dict[str, int] = self._try(_how_far_stored, {})
        no_checkpoints: list[Signed] = []
        signed = self._try(self._signed, no_checkpoints)
        self._signed_at = [at for each in signed if (at := signed_at(each.head)) is not None]
        no_head: tuple[LedgerHead | None, int] = (None, 0)
        head, self._size = self._try(self._head, no_head)
        self._check_resumed()
        proved_before = progress.proved
        pruned = self._try(lambda: PrunedLeaves(log, self._verifiers), None)
        lost = losses.Losses(0, 0, [])
        self._say_unreadable()
        self._say_faults()
        if pruned is not None:
            self._pruned = pruned
            self._say_planted()
            for part in self._parts(head, signed, writers, tell):
                self._try(part, None)
            if log == EVENTS:
                lost = self._try(self._check_losses, lost)
        self._say_unreadable()
        self._say_faults()
        return LogReport(
            log=log,
            size=self._size,
            since=head.began_at if head else None,
            unlogged=head.unlogged if head else 0,
            proved=progress.proved,
            without_row=progress.without_row,
            checkpoints=progress.checkpoints + self._at_end,
            signed_size=max((each.head.size for each in signed), default=0),
            pruned=pruned.report() if pruned is not None else [],
            losses=lost.proved,
            older_losses=lost.older,
            faults=progress.faults,
            more_faults=progress.more_faults,
            older_places=self._older_places,
            proved_before=proved_before,
        )

    def _try(self, part: Callable[[], _Found], otherwise: _Found) -> _Found:
        """Return the findings of a part; if it can't be read, record that, so that the other parts continue."""
        try:
            return part()
        except UNREADABLE_CELLS as error:
            self._unreadable.append(f"{type(error).__name__}: {error}")
            return otherwise

    def _say_unreadable(self) -> None:
        """Report what couldn't be read: before all other faults, which may follow from it."""
        if not self._unreadable:
            return
        for words in unreadable_cells(MOST_FAULTS // 2):
            self._fault(_FIRST_OF_ALL, words)
        reasons = "; ".join(dict.fromkeys(self._unreadable))
        self._unreadable.clear()
        self._fault(_FIRST_OF_ALL, f"something can't be read, so that not all of it was verified: {reasons}")

    def _check_resumed(self) -> None:
        """Check that the log has the leaves that an earlier run read; otherwise begin anew, as that run's numbers are of other rows."""
        progress = self.progress
        if progress.next <= self._size or self._unreadable:
            return
        self._fault(
            _FIRST_OF_ALL,
            f"an earlier run read {progress.next} leaves, and the log has only {self._size}: it was cut off or rolled back",
        )
        self.progress.begin_anew()

    def _head(self) -> tuple[LedgerHead | None, int]:
        """Return the log's head, and its number of leaves: no more than its tiles have room for, whatever the head says."""
        head = LedgerHead.objects.filter(log=self._source.log).first()
        if head is None:
            return None, 0
        self._are_some_older = head.unlogged > 0
        tiles = LedgerTile.objects.filter(log=head.log, level=0).count()
        most = tiles * TILE_WIDTH
        if not 0 <= head.size <= most:
            self._fault(_FIRST_OF_ALL, f"the log says that it has {head.size} leaves, and has tiles for {most} at most")
        return head, max(0, min(head.size, most))

    def _say_planted(self) -> None:
        for where, each, why in self._pruned.planted:
            self._fault(
                each.first,
                f"{where} says that {each.what} of {each.first} to {each.until - 1} were deleted by a rule ({each.rule}), "
                f"and {why}: it was planted",
            )

    def _parts(
        self, head: LedgerHead | None, signed: Sequence[Signed], writers: dict[str, int], tell: Tell
    ) -> Iterator[Callable[[], None]]:
        """Iterate over what is checked of every log, then over what only this log has."""
        yield partial(self._check_sizes, signed)
        yield partial(self._check_stored, signed)
        yield partial(self._check_unlogged, head, signed)
        yield partial(self._check_is_signed, head, signed)
        yield partial(self._walk, signed, tell)
        yield partial(self._check_end, head)
        yield partial(self._check_strangers, head)
        if self._source.log == DECISIONS:
            yield partial(self._check_last_numbers, writers)
            yield from (self._check_writers, self._check_places, self._check_other_logs)
        if self._source.log == EVENTS:
            yield partial(self._check_times, signed)
            yield partial(self._check_by, faults_of_holds)
            yield partial(self._check_by, faults_of_rules)
            yield partial(self._check_by, faults_of_versions)

    def _check_times(self, signed: Iterable[Signed]) -> None:
        """Check that events say times at which they can have been logged."""
        signings = [Signing(each.head.size, at) for each in signed if (at := signed_at(each.head)) is not None]
        for each in misplaced_events(signings):
            self._fault(each.leaf, each.words)

    def _check_by(self, find_faults: Callable[[], Iterable[str]]) -> None:
        for words in find_faults():
            self._fault(self._size, words)

    def _signed(self) -> list[Signed]:
        """Return the checkpoints in the database and in the files with valid signatures, by size."""
        log = self._source.log
        # The files first: the database has each of their checkpoints earlier.
        outside = list(kept(log, self._folder)) if self._folder is not None else []
        # Finally by primary key: of two equal checkpoints the later one was inserted.
        rows = LedgerCheckpoint.objects.filter(log=log).order_by("size", "at", "pk")
        notes: list[tuple[str, str, tuple[int, datetime] | None]] = [
            (f"checkpoint {row.pk} of the database", row.note, (row.size, row.at)) for row in rows.iterator()
        ]
        notes += [(found.where, found.note, None) for found in outside]
        found = []
        for where, note, columns in notes:
            try:
                said, _by = open_checkpoint(note, log, self._verifiers)
            except NoteError as error:
                self.progress.add_fault(f"{log}: {where}: {error}")
                continue
            if columns and columns[0] != said.size:
                self.progress.add_fault(f"{log}: {where} says {said.size} leaves, and its column {columns[0]}")
            elif columns and columns[1] != (signed_at(said) or columns[1]):
                self.progress.add_fault(
                    f"{log}: {where} was signed at {signed_at(said)}, and its column says {columns[1]}"
                )
            else:
                found.append(Signed(said, where, note, is_stored=columns is not None))
        return sorted(found, key=lambda each: each.head.size)

    def _fault(self, index: int, words: str) -> None:
        """Record a fault of a leaf, or of the leaves before it. Faults are reported in the order of leaves."""
        self._found_now.append((index, f"{self._source.log}: {words}"))

    def _say_faults(self) -> None:
        for _index, words in sorted(self._found_now, key=itemgetter(0)):
            self.progress.add_fault(words)
        self._found_now.clear()

    def _check_sizes(self, signed: Iterable[Signed]) -> None:
        log, sizes = self._source.log, [each for each in signed if each.head.size > self._size]
        for each in sizes[:1]:
            self.progress.add_fault(
                f"{log}: {each.where} was signed over {each.head.size} leaves, and the log has only {self._size}: "
                "it was cut off or rolled back"
            )

    def _check_stored(self, signed: Iterable[Signed]) -> None:
        """Check that the database has each checkpoint of the files, and each once."""
        log, first = self._source.log, dict[str, str]()
        for each in signed:
            if each.is_stored and first.setdefault(each.note, each.where) != each.where:
                self.progress.add_fault(f"{log}: {each.where} is the same as {first[each.note]}: it was inserted")
        gone = [each for each in signed if each.note not in first and each.head.size <= self._size]
        if gone:
            others = f", nor {len(gone) - 1} more" if len(gone) > 1 else ""
            self.progress.add_fault(
                f"{log}: the database doesn't have the checkpoint over {gone[0].head.size} leaves of {gone[0].where}{others}: "
                "it was removed or changed"
            )

    def _check_unlogged(self, head: LedgerHead | None, signed: Iterable[Signed]) -> None:
        """Check that the log's number of older, unlogged rows is the signed one: otherwise rows could be added unnoticed."""
        for each in signed:
            said = [line.removeprefix(UNLOGGED) for line in each.head.extensions if line.startswith(UNLOGGED)]
            if head is not None and str(head.unlogged) != (said[0] if said else "0"):
                self._fault(
                    0,
                    f"the log says that {head.unlogged} rows are older than it, and {said[0] if said else 0} were when it "
                    f"was signed: {each.where}",
                )
                return

    def _check_is_signed(self, head: LedgerHead | None, signed: Sequence[Signed]) -> None:
        """Check that a log that must have been signed has a checkpoint: without one, its rows could have been replaced."""
        if head is not None and not signed and self._verifiers and must_have_been_signed(head, timezone.now()):
            self._fault(_FIRST_OF_ALL, f"it has {head.size} leaves, and no checkpoint any more: they were removed")

    def _walk(self, signed: Sequence[Signed], tell: Tell) -> None:
        progress = self.progress
        edge = Edge(progress.next, [bytes.fromhex(tile) for tile in progress.tiles])
        waiting = [each for each in signed if progress.next <= each.head.size <= self._size]
        spans = list(_spans(edge.size, self._size))
        for (start, until), stretch in zip(spans, self._read(self._source.log, spans), strict=True):
            hashes = self._leaves(start, until) if stretch is None or not self._follows(stretch) else stretch.hashes
            while waiting and waiting[0].head.size < until:
                each = waiting.pop(0)
                self._append(edge, hashes[(edge.size - start) * HASH_BYTES : (each.head.size - start) * HASH_BYTES])
                progress.checkpoints += self._agrees(edge, each)
            self._append(edge, hashes[(edge.size - start) * HASH_BYTES :])
            self._say_faults()
            progress.next, progress.tiles = edge.size, [tile.hex() for tile in edge.tiles]
            tell(self._source.log, progress, self._size)
        # Not counted as progress: more of them may be signed before the log grows, and the next run compares all.
        self._at_end = sum(self._agrees(edge, each) for each in waiting)
        self._edge = edge

    def _follows(self, stretch: Stretch) -> bool:
        """Return whether each writer's numbers continue without a gap; if so, the stretch is proved."""
        numbers = self.progress.numbers
        for writer, (began, _, _) in stretch.numbers.items():
            if numbers.get(writer, (began if self._are_some_older else 1, -1))[0] != began:
                return False
        numbers |= {writer: (following, last) for writer, (_, following, last) in stretch.numbers.items()}
        self.progress.proved += len(stretch.hashes) // HASH_BYTES
        return True

    def _agrees(self, edge: Edge, each: Signed) -> bool:
        """Return whether a checkpoint has the root of the leaves so far; report it if not."""
        if edge.root() == each.head.root:
            return True
        self._fault(
            each.head.size,
            f"{each.where} has another root for the first {each.head.size} leaves: what it was signed over was changed since",
        )
        return False

    def _append(self, edge: Edge, hashes: bytes) -> None:
        """Append leaves, and compare the complete tiles above them with the stored ones."""
        for tile in edge.append(hashes):
            is_whole = tile.width == TILE_WIDTH
            if tile.level and is_whole and self._read_tile(tile.level, tile.number) != tile.hashes:
                self._fault(edge.size, f"tile {tile.level}/{tile.number} was changed")

    def _leaves(self, start: int, until: int) -> bytes:
        """Return the hashes of leaves, from the rows if they exist."""
        found = self._found(start, until)
        leaves = b"".join(self._leaf(index, found.get(index)) for index in range(start, until))
        stored = b"".join(map(self._leaves_of_tile, range(start // TILE_WIDTH, -(-until // TILE_WIDTH))))
        stored = stored[start % TILE_WIDTH * HASH_BYTES :][: len(leaves)]
        if leaves == stored:
            self.progress.proved += sum(not each.fault for each in found.values() if each.exact is not None)
            return leaves
        return b"".join(self._told_apart(found, start, leaves, stored))

    def _leaves_of_tile(self, number: int) -> bytes:
        """Return as many hashes as a complete tile has, whatever the stored size is: the next tile's hashes come right after them."""
        hashes, whole = self._read_tile(0, number), TILE_WIDTH * HASH_BYTES
        if len(hashes) > whole:
            self._fault(number * TILE_WIDTH, f"tile 0/{number} holds more than {TILE_WIDTH} hashes")
        return hashes[:whole].ljust(whole, b"\0")

    def _found(self, start: int, until: int) -> dict[int, Found]:
        found: dict[int, Found] = {}
        rows = list(self._source.rows(start, until))
        # Before the numbers are counted: those of rows that retention has just deleted are missing, too.
        self._pruned.rows_were_read()
        for each in rows:
            if each.leaf in found:
                self._fault(each.leaf, f"{each.row} claims leaf {each.leaf}, which is that of {found[each.leaf].row}")
                continue
            found[each.leaf] = each
            if each.writer:
                self._count(each)
            if each.fault:
                self._fault(each.leaf, f"leaf {each.leaf}: {each.row}: {each.fault}")
        return found

    def _leaf(self, index: int, found: Found | None) -> bytes:
        if found is not None and found.exact is not None:
            return leaf_hash(found.exact)
        if not self._pruned.find(index, is_row=found is None):
            what = "there is no row for it" if found is None else f"{found.row} has lost its body"
            self._fault(index, f"leaf {index}: {what}, and no rule of retention deleted it")
        elif found is not None and self._is_planted(index):
            self._fault(
                index, f"leaf {index}: {found.row} has no body, and retention deleted the whole row: it was planted"
            )
        self.progress.without_row += 1
        start = index % TILE_WIDTH * HASH_BYTES
        stored = self._read_tile(0, index // TILE_WIDTH)[start : start + HASH_BYTES]
        return stored.ljust(HASH_BYTES, b"\0")

    def _is_planted(self, index: int) -> bool:
        """Return whether a row exists that retention deleted; it may have been read before the deletion."""
        return self._pruned.is_row_gone(index) and any(True for _row in self._source.rows(index, index + 1))

    def _told_apart(self, found: dict[int, Found], start: int, leaves: bytes, stored: bytes) -> Iterator[bytes]:
        """Iterate over the leaves of each tile as they were logged, and report which was changed: rows, or the tile."""
        at = 0
        while at < len(leaves):
            number, inside = divmod(start + at // HASH_BYTES, TILE_WIDTH)
            end = at + (TILE_WIDTH - inside) * HASH_BYTES
            ours, theirs = leaves[at:end], stored[at:end]
            differing = [
                start + place // HASH_BYTES
                for place in range(at, at + len(ours), HASH_BYTES)
                if leaves[place : place + HASH_BYTES] != stored[place : place + HASH_BYTES]
            ]
            if differing and self._is_logged(number, inside, ours):
                words = f"tile 0/{number} was changed, at leaf {differing[0]}; the row is as it was logged"
                self._fault(differing[0], words)
            elif differing:
                for index in differing:
                    row = found[index].row if index in found else "its row"
                    self._fault(index, f"leaf {index}: {row} is not what was logged")
                ours = theirs.ljust(len(ours), b"\0")
            rows = (found.get(start + place // HASH_BYTES) for place in range(at, at + len(ours), HASH_BYTES))
            wrong = set(differing)
            self.progress.proved += sum(
                1 for row in rows if row and row.exact is not None and not row.fault and row.leaf not in wrong
            )
            yield ours
            at = end

    def _is_logged(self, number: int, inside: int, hashes: bytes) -> bool:
        """Return whether these hashes, of a complete tile, match the hash in the tile above."""
        if inside or len(hashes) != TILE_WIDTH * HASH_BYTES:
            return False
        above = self._read_tile(1, number // TILE_WIDTH)[number % TILE_WIDTH * HASH_BYTES :][:HASH_BYTES]
        return perfect_root(hashes) == above

    def _count(self, found: Found) -> None:
        """Check that a writer's numbers are consecutive, or that the gap is explained."""
        numbers = self.progress.numbers
        expected, last = numbers.get(found.writer, (found.number if self._are_some_older else 1, -1))
        if found.number > expected and not self._pruned.are_between(last, found.leaf):
            missing = uncovered(found.writer, expected, found.number)
            if missing is not None:
                self._fault(
                    found.leaf,
                    f"number {missing} of {found.writer} is missing before {found.row}, and no gap is noted",
                )
        numbers[found.writer] = (max(found.number + 1, expected), found.leaf)

    def _check_end(self, head: LedgerHead | None) -> None:
        if head is None or self._edge is None:
            return
        edge = self._edge
        if edge.root() != bytes(head.root):
            self._fault(head.size, f"the root of all {head.size} leaves is not the log's")
        for level, hashes in enumerate(edge.tiles):
            number = head.size >> 8 * (level + 1)
            if hashes and not self._read_tile(level, number).startswith(hashes) and level:
                self._fault(head.size, f"tile {level}/{number} was changed")

    def _check_strangers(self, head: LedgerHead | None) -> None:
        """Look for rows and tiles outside the log."""
        log, source = self._source.log, self._source
        first, last = source.outermost()
        stored = LedgerTile.objects.filter(log=log)
        tiles = stored.filter(level__gte=0).values_list("level").annotate(last=Max("number")).order_by("level")
        # The tiles' lengths are read before the log's head, too: both grow together.
        last_tiles = [(level, number, len(tile_reader(log)(level, number))) for level, number in tiles]
        now = LedgerHead.objects.filter(log=log).first()
        size = now.size if now else 0
        for level, number, length in last_tiles:
            hashes = (size >> 8 * level) - number * TILE_WIDTH
            if hashes <= 0:
                self._fault(self._size, f"tile {level}/{number} is none of a log of {size} leaves")
            elif length > hashes * HASH_BYTES:
                self._fault(self._size, f"tile {level}/{number} holds more than a log of {size} leaves has")
        nowhere = stored.filter(Q(number__lt=0) | Q(level__lt=0))
        for level, number in nowhere.order_by("level", "number").values_list("level", "number"):
            self._fault(number, f"tile {level}/{number} is none of a log of {size} leaves")
        if first is not None and first < 0:
            self._fault(first, f"a row claims leaf {first}, and a log begins with leaf 0")
        if last is not None and (now is None or last >= now.size):
            self._fault(last, f"a row claims leaf {last}, and the log has only {now.size if now else 0}")
        if head is not None:
            self._check_without_leaf(head)

    def _check_without_leaf(self, head: LedgerHead) -> None:
        """Check that the rows without a leaf are no more than recorded, and older than the log."""
        unlogged, newest = self._source.unlogged(), self._source.newest_unlogged()
        if newest is None:
            return
        # By the first checkpoint alone: later ones may have earlier times, of a clock that was set back.
        began = min([head.began_at, *self._signed_at[:1]])
        if unlogged > head.unlogged:
            self._fault(
                self._size,
                f"{unlogged} rows have no leaf, and only {head.unlogged} are older than the log; the newest is {newest.row}",
            )
        elif newest.at > began + LATEST:
            self._fault(
                self._size,
                f"{newest.row} has no leaf and is of {newest.at}, and the log began at {began} at the latest: "
                "it was planted or changed",
            )

    def _check_last_numbers(self, writers: dict[str, int]) -> None:
        """Check that nothing is missing after a writer's last stored Decision."""
        for writer, following in sorted(writers.items()):
            expected, last = self.progress.numbers.get(writer, (following if self._are_some_older else 1, -1))
            if expected < following and not self._pruned.are_between(last, self._size):
                missing = uncovered(writer, expected, following)
                if missing is not None:
                    words = f"number {missing} of {writer} was stored and is missing, and no gap is noted"
                    self._fault(self._size, words)

    def _check_writers(self) -> None:
        """Check that the database has each writer's progress: only that reveals Decisions that are missing at the end."""
        # Read after the rows: a Decision is stored together with its Checkpoint.
        stored = dict(Checkpoint.objects.values_list("writer", "next_decision"))
        for writer, (following, last) in sorted(self.progress.numbers.items()):
            number = stored.get(writer)
            if number is None:
                self._fault(
                    last, f"the Checkpoint of {writer}, which says how far it is stored, is missing: it was removed"
                )
            elif number < following:
                self._fault(
                    last,
                    f"the Checkpoint of {writer} says that number {number} comes next, and number {following - 1} is stored: "
                    "it was changed",
                )

    def _check_places(self) -> None:
        """Check that Decisions have the same nodes as the outcomes of their Pods."""
        of_pod = OutcomeRow.objects.filter(pod_uid=OuterRef("pod_uid"))
        bound = of_pod.filter(kind=OutcomeRow.Kind.BOUND).exclude(ledger_index=None)
        logged = Decision.objects.exclude(ledger_index=None)
        joined = logged.annotate(node=Subquery(bound.values("node_name")[:1]))
        # A report of a Pod's end has its node, too, even if nobody saw the binding.
        is_seen_there = Exists(of_pod.filter(node_name=OuterRef("placed_on")))
        nowhere = Q(~is_seen_there, node=None) & ~Q(placed_on="")
        before = self._pruned.outcomes_before
        if before is not None:
            # A Decision is older than its Pod's outcome, apart from differences between clocks.
            before += LATEST
            self._older_places = joined.filter(nowhere, at__lt=before).count()
            nowhere &= Q(at__gte=before)
        row = joined.filter(Q(node__isnull=False) & ~Q(placed_on=F("node")) | nowhere).order_by("ledger_index").first()
        if row is not None:
            self._fault(
                row.ledger_index or 0,
                f"leaf {row.ledger_index}: Decision {row.pk} ({row}) says that the Pod is on {row.placed_on or 'no node'}, "
                f"and the outcome of the Pod {row.node or 'is missing: nobody saw it there'}",
            )

    def _check_losses(self) -> losses.Losses:
        """Check that gaps and dead letters match their events."""
        found = losses.compare()
        for words in found.faults:
            self._fault(self._size, words)
        return found

    def _check_other_logs(self) -> None:
        """Check that there are no records of unknown logs."""
        for model in (LedgerHead, LedgerCheckpoint, LedgerTile, LedgerLeaf):
            others = model._default_manager.exclude(log__in=LOGS).order_by("log").values_list("log", flat=True)  # noqa: SLF001 - Django's name for it
            if (other := others.first()) is not None:
                self._fault(self._size, f"a row of {model.__name__} is of a log that there isn't: {other!r}")


def _how_far_stored() -> dict[str, int]:
    return dict(Checkpoint.objects.exclude(writer="").values_list("writer", "next_decision"))


def _spans(first: int, size: int) -> Iterator[Span]:
    while first < size:
        until = min(first - first % TILE_WIDTH + STEP, size)
        yield first, until
        first = until


def verify(
    verifiers: Sequence[Verifier], folder: Path | None, progress: dict[str, Progress], tell: Tell, processes: int = 1
) -> list[LogReport]:
    """Verify all logs, see `verify_each`."""
    return list(verify_each(verifiers, folder, progress, tell, processes))


def verify_each(
    verifiers: Sequence[Verifier],
    folder: Path | None,
    progress: dict[str, Progress],
    tell: Tell,
    processes: int = 1,
    but: Collection[str] = (),
) -> Iterator[LogReport]:
    """Verify one log after the other; `progress` has the progress of an earlier run, and is updated.

    Args:
        verifiers: the trusted keys.
        folder: the folder of checkpoints outside the database; None if there is none.
        progress: by log.
        tell: called from time to time.
        processes: the most processes that read rows at once.
        but: the logs that an earlier run completed.

    Raises:
        django.db.DatabaseError: the database is unavailable.
        OSError: a file of checkpoints can't be read.
    """
    # As many rows as the tiles have room for, whatever the logs' heads say.
    rows = LedgerTile.objects.filter(level=0).count() * TILE_WIDTH
    with read_apart(processes, rows) as read:
        for source in (make() for make in SOURCES):
            if source.log not in but:
                log = LogVerifier(source, verifiers, folder, progress.setdefault(source.log, Progress()), read)
                yield log.run(tell)
