"""Reads the files of the spool: writers, their segments, and the frames in them.

`ROOT/WRITER/0000000001.seg`, `…2.seg`: a folder for each process that ever wrote, with numbered files. A process
holds `WRITER/lock` while it lives, so a process that gets the lock knows that the writer is dead, and takes over its files.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

from scheduler.decisions.frames import HEADER_BYTES, MOST_BYTES, Frame, length_at, read_frame

_SUFFIX = ".seg"
# The lock file of the folder of all writers, and of each writer's own folder.
LOCK = "lock"
_READ_BYTES = 1 << 20


class Position(NamedTuple):
    """A place in a writer's segments: the number of the segment, and the offset in it."""

    segment: int = 1
    offset: int = 0


class Batch(NamedTuple):
    """Consecutive frames, and the position behind the last one.

    `broken`: the bytes at that position are no frame, so the rest of the segment can't be read.
    """

    frames: list[Frame]
    end: Position
    broken: bool = False


class Segments:
    """One writer's segments."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer = folder.name

    def numbers(self) -> list[int]:
        """Return the numbers of the existing segments, in order."""
        found = (path.stem for path in self.folder.glob(f"*{_SUFFIX}"))
        return sorted(int(stem) for stem in found if stem.isdigit())

    def path(self, number: int) -> Path:
        """Return the path of a segment."""
        return self.folder / f"{number:010d}{_SUFFIX}"

    def size(self, number: int) -> int:
        """Return the bytes of a segment; 0 if it doesn't exist."""
        try:
            return self.path(number).stat().st_size
        except FileNotFoundError:
            return 0

    def total_bytes(self) -> int:
        """Return the bytes of all segments."""
        return sum(map(self.size, self.numbers()))

    def delete(self, number: int) -> None:
        """Delete a segment."""
        self.path(number).unlink(missing_ok=True)

    def read(self, start: Position, *, end: Position | None = None, most_bytes: int = _READ_BYTES) -> Batch:
        """Read frames of one segment from a position: at most `most_bytes`, or one frame.

        Args:
            start: the position behind a frame, or the beginning of a segment.
            end: the end of what is written so far. None for a dead writer: the end of the segment.
            most_bytes: how much to read.

        Raises:
            FileNotFoundError: the segment doesn't exist.
        """
        path = self.path(start.segment)
        until = end.offset if end is not None and end.segment == start.segment else path.stat().st_size
        with path.open("rb") as file:
            file.seek(start.offset)
            data = file.read(min(max(most_bytes, HEADER_BYTES), until - start.offset))
            first = length_at(data)
            if first is not None and len(data) < first <= min(until - start.offset, MOST_BYTES + HEADER_BYTES):
                data += file.read(first - len(data))
        frames: list[Frame] = []
        at = 0
        while (found := read_frame(data, at)) is not None:
            at = found.end
            frames.append(found._replace(end=start.offset + found.end))
        broken = not frames and start.offset < until
        return Batch(frames, Position(start.segment, start.offset + at), broken)

    def first_sequence(self, number: int) -> int | None:
        """Return the sequence of a segment's first frame; None if none can be read."""
        found = self.read(Position(number), most_bytes=HEADER_BYTES).frames if self.size(number) else []
        return found[0].sequence if found else None


@contextlib.contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keep other processes from making or taking over writers' folders for the duration."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def take(folder: Path) -> IO[str] | None:
    """Take a writer's lock; None if another process holds it. Closing the file releases it."""
    lock = (folder / LOCK).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


class Dead:
    """A dead writer's segments, taken over."""

    def __init__(self, folder: Path, lock: IO[str]) -> None:
        self.segments = Segments(folder)
        self._lock = lock

    def delete(self) -> None:
        """Delete all files of the writer."""
        with locked(self.segments.folder.parent):
            shutil.rmtree(self.segments.folder)
        self._lock.close()

    def give_back(self) -> None:
        """Release the lock, so that another process can take over the segments."""
        self._lock.close()


def take_over_the_dead(root: Path, *, but: set[str]) -> list[Dead]:
    """Take over each writer whose lock is free, except the named ones."""
    taken = []
    with locked(root):
        for folder in sorted(path for path in root.iterdir() if path.is_dir() and path.name not in but):
            lock = take(folder)
            if lock is not None:
                taken.append(Dead(folder, lock))
    return taken


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
