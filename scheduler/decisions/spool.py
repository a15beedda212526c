"""The spool: a process's records are on disk before its answer is sent.

A write reaches the kernel before the reply is sent, so a killed process loses nothing; a thread syncs the disk
every 20 ms, so a loss of power can lose that much. Several appends share one such sync.
"""

import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from scheduler.decisions.frames import Buffer, Kind, frame
from scheduler.decisions.segments import LOCK, Position, Segments, locked, sync_folder, take
from scheduler.trouble import Trouble

logger = logging.getLogger("berth.decisions")

SEGMENT_BYTES = 16 << 20
SYNC_SECONDS = 0.02
# Buffers for one writev; Linux takes 1024.
_MOST_PARTS = 512

# The contents of a frame: its kind, and the parts of its payload.
Payload = tuple[Kind, Sequence[Buffer]]


class SpoolFullError(Exception):
    """There is no room on disk, or within the setting. Nothing of the write is left behind."""


class Spool:
    """Appends one process's frames to its segments. Thread-safe.

    Args:
        root: the folder of all writers.
        writer: the writer's name, which no other process ever had.
        max_bytes: the most bytes of all segments under `root`.
        segment_bytes: the size at which a segment ends and the next one begins.
        sync_seconds: the time between syncs to disk.
    """

    def __init__(
        self,
        root: Path,
        writer: str,
        *,
        max_bytes: int,
        segment_bytes: int = SEGMENT_BYTES,
        sync_seconds: float = SYNC_SECONDS,
    ) -> None:
        self.segments = Segments(root / writer)
        self.root = root
        # The bytes of dead writers' segments; set by the shipper.
        self.others_bytes = 0
        self._max_bytes = max_bytes
        self._segment_bytes = segment_bytes
        self._sync_seconds = sync_seconds
        self._lock = threading.Lock()
        self._descriptor = -1
        self._at = Position(0, 0)
        # The sizes of the ended segments at their end: a file may have been truncated since.
        self._closed: dict[int, int] = {}
        self._closed_bytes = 0
        self._next_sequence = 1
        self._unsynced: list[int] = []
        self._dirty = threading.Event()
        self._unsaved = Trouble()
        self._is_open = False
        self._file_lock: IO[str] | None = None
        self._thread = threading.Thread(target=self._run, name="berth-spool", daemon=True)

    def open(self) -> None:
        """Make the folder and its lock, and start syncing. May be called again after a failure.

        Raises:
            OSError: the folder can't be made, or another writer has this name.
        """
        with locked(self.root):
            self.segments.folder.mkdir(exist_ok=True)
            lock = take(self.segments.folder)
            if lock is None or self.segments.numbers():
                if lock is not None:
                    lock.close()
                message = f"{self.segments.folder} is another writer's"
                raise FileExistsError(message)
            self._file_lock = lock
        self._is_open = True
        self._thread.start()

    def close(self) -> None:
        """Sync, and release the lock: another process ships the rest."""
        with self._lock:
            self._is_open = False
            self._finish_segment()
        if self._file_lock is not None:
            self._thread.join()
            self._file_lock.close()

    def is_lost(self) -> bool:
        """Return whether the written files are gone from the folder: it was deleted or replaced."""
        with self._lock:
            if not self._is_open or self._file_lock is None:
                return False
            has_segment = self._descriptor < 0 or self.segments.path(self._at.segment).exists()
            try:
                there = (self.segments.folder / LOCK).stat()
            except (FileNotFoundError, NotADirectoryError):
                return True
            held = os.fstat(self._file_lock.fileno())
            return not has_segment or (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino)

    def begin_anew(self) -> None:
        """Make the folder again, and continue in the next segment.

        Raises:
            OSError: this failed. Nothing has changed.
        """
        with self._lock, locked(self.root):
            self.segments.folder.mkdir(exist_ok=True)
            lock = take(self.segments.folder)
            if lock is not None:
                former, self._file_lock = self._file_lock, lock
                if former is not None:
                    former.close()
            self._finish_segment()
            self._closed = {number: self.segments.size(number) for number in self.segments.numbers()}
            self._closed_bytes = sum(self._closed.values())

    @property
    def is_open(self) -> bool:
        """Whether it accepts frames."""
        return self._is_open

    @property
    def written(self) -> Position:
        """The end of the complete frames."""
        return self._at

    @property
    def next_sequence(self) -> int:
        """The sequence of the next frame."""
        return self._next_sequence

    @property
    def size_bytes(self) -> int:
        """The bytes of this writer's segments."""
        return self._closed_bytes + (self._at.offset if self._descriptor >= 0 else 0)

    def append(self, payloads: Sequence[Payload], *, share: float = 1.0) -> None:
        """Write frames, all or none.

        Args:
            payloads: what to write, in order.
            share: the part of the configured room that this write may fill.

        Raises:
            SpoolFullError: there is no room.
        """
        with self._lock:
            buffers: list[Buffer] = []
            for number, (kind, parts) in enumerate(payloads):
                buffers += frame(kind, self._next_sequence + number, parts)
            size = sum(map(len, buffers))
            if not self._is_open or self.others_bytes + self.size_bytes + size > share * self._max_bytes:
                limit = f"{self.root} has reached BERTH_SPOOL_MAX_BYTES: it waits for Redis, a worker or the database"
                raise SpoolFullError(
                    limit if self._is_open else f"{self.segments.folder} is closed, or couldn't be made"
                )
            try:
                self._write(buffers, size)
            except OSError as error:
                message = f"{self.segments.folder} takes nothing: {error.strerror or error}"
                raise SpoolFullError(message) from error
            self._next_sequence += len(payloads)
            if not self._dirty.is_set():
                self._dirty.set()

    def rotate(self) -> int:
        """End the segment; the next frame begins another. Returns the sequence of that frame."""
        with self._lock:
            self._finish_segment()
            return self._next_sequence

    def forget(self, number: int) -> None:
        """Delete a segment that isn't needed any more."""
        with self._lock:
            if number == self._at.segment and self._descriptor >= 0:
                return
            self._closed_bytes -= self._closed.pop(number, 0)
        self.segments.delete(number)

    def _write(self, buffers: list[Buffer], size: int) -> None:
        if self._descriptor < 0 or (self._at.offset and self._at.offset + size > self._segment_bytes):
            self._begin_segment()
        if len(buffers) > _MOST_PARTS:
            buffers = [b"".join(buffers)]
        try:
            written = os.writev(self._descriptor, buffers)
            # A full disk shows first as a short write. Writing the rest raises the error with the cause.
            rest = memoryview(b"".join(buffers))[written:] if written < size else b""
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            self._take_back()
            raise
        self._at = Position(self._at.segment, self._at.offset + size)

    def _take_back(self) -> None:
        """Cut off a partial write: otherwise later frames would follow bytes that nobody can read."""
        try:
            os.ftruncate(self._descriptor, self._at.offset)
            os.lseek(self._descriptor, self._at.offset, os.SEEK_SET)
        except OSError:
            logger.exception("a partly written record can't be removed; the segment ends with it")
            self._finish_segment()

    def _begin_segment(self) -> None:
        self._finish_segment()
        number = self._at.segment + 1
        self._descriptor = os.open(
            self.segments.path(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
        self._at = Position(number, 0)
        sync_folder(self.segments.folder)

    def _finish_segment(self) -> None:
        if self._descriptor >= 0:
            self._unsynced.append(self._descriptor)
            self._descriptor = -1
            self._closed[self._at.segment] = self._at.offset
            self._closed_bytes += self._at.offset
        self._dirty.set()

    def _run(self) -> None:
        while self._is_open:
            self._dirty.wait()
            if self._is_open:
                time.sleep(self._sync_seconds)  # later writes share the sync
            self._sync()
        self._sync()

    def _sync(self) -> None:
        self._dirty.clear()
        with self._lock:
            ended, self._unsynced = self._unsynced, []
            current = self._descriptor
        for descriptor in ended:
            self._flush(descriptor, is_last=True)
        if current >= 0:
            # Outside the lock its segment may end, but only the next sync, in this thread, closes the file.
            self._flush(current, is_last=False)

    def _flush(self, descriptor: int, *, is_last: bool) -> None:
        try:
            try:
                os.fdatasync(descriptor)
            finally:
                if is_last:
                    os.close(descriptor)
            self._unsaved.end()
        except OSError as error:
            if self._unsaved.is_news(str(error)):
                where = self.segments.folder
                logger.exception("%s can't be flushed to disk; a power failure would lose the last records", where)
