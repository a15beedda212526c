"""Common parts of processes that serve a Revision: a name, a heartbeat in the database, a recorder, and their conditions."""

import logging
import os
import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from django.db.models.functions import Now

from policies import publishing
from policies.engine.failures import Conditions
from scheduler.cluster.live import CORE_KINDS, LiveSnapshot
from scheduler.decisions.masking import Masks
from scheduler.decisions.missing import note_numbered
from scheduler.decisions.recorder import Recorder
from scheduler.decisions.shipping import Depth
from scheduler.decisions.stream import DecisionStream
from scheduler.metrics import SNAPSHOT_AGE
from scheduler.models import Process
from scheduler.serving.revisions import RevisionHolder
from scheduler.trouble import Trouble

logger = logging.getLogger("berth.process")

HEARTBEAT_SECONDS = 1.0


def make_recorder(process_id: str) -> Recorder:
    """Make the recorder of this process's Decisions."""
    configured = settings.BERTH
    return Recorder(
        root=configured.state_dir / "spool",
        writer=process_id,
        stream=DecisionStream(configured.redis_url),
        when_full=configured.spool_full,
        max_bytes=configured.spool_max_bytes,
        masks=Masks(env=configured.mask_env, annotations=configured.mask_annotations, labels=configured.mask_labels),
    )


def conditions_of(live: LiveSnapshot, recorder: Recorder, *, database_reachable: bool) -> Conditions:
    """Return which dependencies work at this moment, as far as this process can tell."""
    return Conditions(
        snapshot_age_seconds=live.age_seconds(),
        database_reachable=database_reachable,
        redis_reachable=recorder.redis_reachable,
        api_server_reachable=not CORE_KINDS & live.failing(),
    )


def missing_parts(revisions: RevisionHolder, live: LiveSnapshot) -> list[str]:
    """Return the names of the parts that a process needs for decisions and doesn't have yet."""
    found = {"Revision": revisions.current is not None, "Snapshot": live.synced}
    return [name for name, is_there in found.items() if not is_there]


class Heartbeat:
    """Keeps a process's row in the database up to date: that it lives, and what it serves. For one thread.

    Args:
        role: of the process.
        live: its Snapshot.
        served: returns the number of the Revision in use, 0 without one, and since when it is in use.
        numbered: returns how many Decisions were answered.
        spooled: returns how much waits on disk.
        more: writes the process's further state.
    """

    def __init__(
        self,
        role: str,
        *,
        live: LiveSnapshot,
        served: Callable[[], tuple[int, datetime | None]],
        numbered: Callable[[], int],
        spooled: Callable[[], Depth],
        more: Callable[[], None],
    ) -> None:
        started = datetime.now(UTC)
        self.process_id = f"{role}@{socket.gethostname()}:{os.getpid()}:{started:%Y%m%dT%H%M%S%f}"
        self._fixed = {"role": role, "host": socket.gethostname(), "pid": os.getpid(), "started_at": started}
        self._live = live
        self._served = served
        self._numbered = numbered
        self._spooled = spooled
        self._noted = 0
        self._more = more
        self._trouble = Trouble()
        self._begun = False

    def write(self) -> None:
        """Write the row and further state; an unavailable database is logged when its cause changes, and every five minutes."""
        age = self._live.age_seconds() if self._live.synced else None
        SNAPSHOT_AGE.set(-1 if age is None else age)
        revision, since = self._served()
        depth = self._spooled()
        fields = {
            "revision": revision,
            "revision_at": since,
            "snapshot_age_seconds": age,
            "spool_records": depth.records,
            "spool_bytes": depth.bytes,
            # By the database's clock, which the check for silent processes uses too.
            "heartbeat_at": Now(),
        }
        try:
            # One statement, where update_or_create takes four: threads that answer calls wait meanwhile.
            if not Process.objects.filter(id=self.process_id).update(**fields):
                self._begin(fields)
            self._note_numbered()
            self._more()
        except DatabaseError as error:
            connection.close()
            if self._trouble.is_news(str(error).partition("\n")[0]):
                logger.warning("the heartbeat can't be written: %s", error)
        except Exception as error:
            # The last guard of a thread that must not end: without heartbeats, a process that works counts as dead.
            if self._trouble.is_news(repr(error)):
                logger.exception("the heartbeat failed; it is written again in a second")
        else:
            self._trouble.end()

    def _begin(self, fields: Mapping[str, Any]) -> None:
        """Add the process to the list, and record its start: once, even if its row is deleted later."""
        with transaction.atomic():
            Process.objects.create(id=self.process_id, **self._fixed, **fields)
            if not self._begun:
                publishing.record_start(self.process_id, str(self._fixed["role"]))
        self._begun = True

    def _note_numbered(self) -> None:
        """Write how many Decisions there are, so that Decisions that never arrive are noticed."""
        numbered = self._numbered()
        if numbered != self._noted:
            note_numbered(self.process_id, numbered, Now())
            self._noted = numbered

    def leave(self) -> None:
        """Remove the process from the list."""
        try:
            self._note_numbered()
            Process.objects.filter(id=self.process_id).delete()
        except DatabaseError as error:
            logger.warning("can't remove this process from the list: %s", error)
