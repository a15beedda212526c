"""The Revision that this process serves: loaded from the database, kept on disk, swapped atomically.

One thread polls for the newest number twice a second. The changed parts of a new Revision are read and compiled beside the
one in use, in small steps; then a single assignment replaces it, so that an answer is made by one Revision or by
the next, never by a mix.
"""

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from django.db import DatabaseError, connection

from policies.engine.decision import CompiledRevision
from policies.engine.errors import ExpressionError
from policies.engine.ruleset import Revision, decode_revision, encode
from policies.models import Revision as RevisionRow
from policies.publishing import NOTHING, stored_revision
from scheduler.metrics import PUBLISH_TO_SERVED
from scheduler.serving.pace import Pace, switching_often
from scheduler.trouble import Trouble

logger = logging.getLogger("berth.revisions")

PIN_SECONDS = 60.0
# A database that gives no answer for this long counts as unreachable: its machine works, so the connection's own limits don't end the wait.
HANGS_SECONDS = 20.0
# How long a Revision waits after a fault: preparing a large one again and again would take the CPU from the calls.
_AGAIN_SECONDS = 10.0
_MAX_PINS = 20_000


class RevisionHolder:
    """Holds the Revision in use and keeps it up to date.

    Args:
        path: where the last Revision is kept, so that a start without a database serves it.
        poll_seconds: how often the database is polled.
        prepare: called, in the holder's thread, before each swap.
        on_change: called, in the holder's thread, after each swap.
    """

    def __init__(
        self,
        *,
        path: Path,
        poll_seconds: float,
        prepare: Callable[[CompiledRevision], None] = lambda _: None,
        on_change: Callable[[CompiledRevision], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._poll_seconds = poll_seconds
        self._prepare = prepare
        self._on_change = on_change
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="berth-revisions", daemon=True)
        self._trouble = Trouble()
        self._broken = Trouble()
        # The newest Revision's number and digest, if it is being taken up or a fault ended that, and when it is taken up again.
        self._tried: tuple[int, str] | None = None
        self._again_at = -math.inf
        # When the query began whose answer isn't all there yet.
        self._asked_at = math.inf
        # Number and digest of the last read Revision: a restored database can have a different one with the same number.
        self._seen: tuple[int, str] | None = None
        self._stored = NOTHING
        self._pace = Pace()
        self.current: CompiledRevision | None = None
        self.taken_up_at: datetime | None = None

    @property
    def reachable(self) -> bool:
        """Whether the last query reached the database, and the present ones don't wait too long for their answers."""
        return not self._trouble.is_ongoing and time.monotonic() - self._asked_at < HANGS_SECONDS

    def served(self) -> tuple[int, datetime | None]:
        """Return the number of the Revision in use, 0 without one, and since when it is in use."""
        return self._number() or 0, self.taken_up_at

    def start(self) -> None:
        """Serve the Revision from disk, then follow the database."""
        self._guard(self._read_kept)
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stopping.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._guard(self.poll)
            self._stopping.wait(self._poll_seconds)
        connection.close()

    def _guard(self, act: Callable[[], None]) -> None:
        """Let no fault end the process, or its thread: a later Revision, such as a Pause, has to take effect."""
        try:
            act()
        except Exception as error:
            self._again_at = time.monotonic() + _AGAIN_SECONDS
            if self._broken.is_news(repr(error)):
                logger.exception("a Revision can't be taken up, %s", self._goes_on())

    def poll(self) -> None:
        """Look once for a newer Revision. If the database is unreachable, the current one stays in use."""
        try:
            self._poll_again_if_ended()
        except DatabaseError as error:
            connection.close()
            if self._trouble.is_news(str(error).partition("\n")[0]):
                logger.warning("database unreachable, %s: %s", self._goes_on(), error)
        else:
            if self._trouble.end():
                logger.info("database reachable again")

    def rest(self) -> None:
        """Let calls go first. Before the first Revision is served, there are no calls to yield to."""
        if self.current is not None:
            self._pace.rest()

    def _poll_again_if_ended(self) -> None:
        """Look once, and once more on a new connection if the one in use fails: it may have been ended, by a pooler or an administrator.

        Until the next look, rule sets would answer as in an outage, and the cause of an outage is in the second error.
        """
        was_reached = connection.connection is not None and self.reachable
        try:
            self._poll_once()
        except DatabaseError:
            if not was_reached:
                raise
            connection.close()
            self._poll_once()

    def _poll_once(self) -> None:
        with self._waiting():
            row = self._newest()
        newest = row[:2] if row else (0, "")
        if newest == self._seen or (newest == self._tried and time.monotonic() < self._again_at):
            return
        former, self._tried = self._seen, newest
        with switching_often():
            try:
                with self._waiting():
                    stored = (stored_revision(newest[0], self._stored) if newest[0] else None) or NOTHING
                revision = stored.revision
            except (msgspec.DecodeError, KeyError) as error:  # a newer Berth has published it
                self._say_unusable(newest[0], error)
            else:
                self._stored = stored
                self._take_up(revision)
        self._seen = newest
        self._broken.end()
        # A Revision from before the start of this process says nothing about the delay of a publish.
        if row and former is not None and self._number() == newest[0]:
            PUBLISH_TO_SERVED.observe(max(0.0, (datetime.now(UTC) - row[2]).total_seconds()))

    def _newest(self) -> tuple[int, str, datetime] | None:
        """Return the newest Revision's number and digest, and when it was made; None if there is none."""
        return RevisionRow.objects.order_by("-number").values_list("number", "digest", "created_at").first()

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        self._asked_at = time.monotonic()
        try:
            with connection.execute_wrapper(self._ask):
                yield
        finally:
            self._asked_at = math.inf

    def _ask(self, execute: Callable[..., Any], *query: Any) -> Any:
        # Each query has its own time: all those for a large Revision may take long, without an outage.
        self._asked_at = time.monotonic()
        return execute(*query)

    def _number(self) -> int | None:
        return self.current.number if self.current else None

    def _goes_on(self) -> str:
        return f"still serving Revision {self.current.number}" if self.current else "there is no Revision to serve yet"

    def _take_up(self, revision: Revision) -> None:
        try:
            compiled = CompiledRevision(revision, former=self.current, pause=self.rest)
        except (ExpressionError, msgspec.ValidationError, KeyError) as error:
            self._say_unusable(revision.number, error)
            return
        self._prepare(compiled)
        self.current = compiled
        self.taken_up_at = datetime.now(UTC)
        logger.info("serving Revision %s", compiled.number)
        self._keep(revision)
        self._on_change(compiled)

    def _say_unusable(self, number: int, error: Exception) -> None:
        # Without a traceback: the fault is in the document.
        logger.error("Revision %s can't be used, %s: %s", number, self._goes_on(), error)

    def _keep(self, revision: Revision) -> None:
        fresh = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Rules are for Berth's accounts only, not for all users of this machine.
            fresh.unlink(missing_ok=True)
            fresh.touch(mode=0o600)
            fresh.write_bytes(_document(revision))
            fresh.replace(self._path)
        except OSError as error:
            logger.warning("Revision %s can't be saved on disk: %s", revision.number, error)

    def _read_kept(self) -> None:
        try:
            revision = decode_revision(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, msgspec.DecodeError) as error:
            logger.warning("the Revision on disk can't be read: %s", error)
            return
        self._take_up(revision)


class _Document(msgspec.Struct, rename="camel", omit_defaults=True):
    """A Revision whose parts are already encoded."""

    number: int
    published_at: str = ""
    digest: str = ""
    rule_sets: list[msgspec.Raw] = []
    assignments: list[msgspec.Raw] = []
    priority_classes: list[msgspec.Raw] = []
    pauses: list[msgspec.Raw] = []
    exemptions: list[msgspec.Raw] = []


def _document(revision: Revision) -> bytes:
    """Encode a Revision part by part: encoded at once, all threads would wait until the end."""
    members = ("rule_sets", "assignments", "priority_classes", "pauses", "exemptions")
    parts = {name: [msgspec.Raw(encode(part)) for part in getattr(revision, name)] for name in members}
    return encode(_Document(revision.number, revision.published_at, revision.digest, **parts))


class Pins:
    """The Revision that answered /filter for each Pod, so that /prioritize uses the same one.

    kube-scheduler calls twice for each Pod. Without pins, a Revision that is published in between would place the Pod
    by the filters of one and the scores of the other. A pin keeps its Revision in memory, so it expires:
    when the next Pod comes, and by `drop_old` if none comes.
    """

    def __init__(self) -> None:
        # The oldest pins first.
        self._pins: OrderedDict[str, tuple[CompiledRevision, float]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._pins)

    def pin(self, uid: str, revision: CompiledRevision) -> None:
        """Note the Revision that filtered the Pod."""
        with self._lock:
            self._pins[uid] = (revision, time.monotonic())
            self._pins.move_to_end(uid)
            while len(self._pins) > _MAX_PINS:
                self._pins.popitem(last=False)
        self.drop_old()

    def of(self, uid: str) -> CompiledRevision | None:
        """Return the Revision that filtered the Pod within the last minute."""
        with self._lock:
            found = self._pins.get(uid)
        if found is None or time.monotonic() - found[1] > PIN_SECONDS:
            return None
        return found[0]

    def drop_old(self) -> None:
        """Drop expired pins."""
        oldest = time.monotonic() - PIN_SECONDS
        with self._lock:
            while self._pins and next(iter(self._pins.values()))[1] < oldest:
                self._pins.popitem(last=False)
