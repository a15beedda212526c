"""What one extender process holds: the Revision, the live Snapshot, the recorder, and its beat in the database."""

import logging
import os
import socket
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection

from policies.engine.decision import CompiledRevision
from scheduler.cluster.client import Client
from scheduler.cluster.live import LiveSnapshot, PodEvent
from scheduler.decisions.recorder import Recorder
from scheduler.decisions.stream import DecisionStream
from scheduler.extender.answers import Answers
from scheduler.extender.revisions import RevisionHolder
from scheduler.metrics import REVISION, SNAPSHOT_AGE
from scheduler.models import Process

logger = logging.getLogger("berth.extender")

BEAT_SECONDS = 1.0
FORGET_SECONDS = 3600.0
"""A process that hasn't beaten for this long is taken off the list."""


class Runtime:
    """The parts of one extender process, started and stopped together."""

    def __init__(self) -> None:
        configured = settings.BERTH
        started = datetime.now(UTC)
        self.process_id = f"extender@{socket.gethostname()}:{os.getpid()}:{started:%Y%m%dT%H%M%S%f}"
        self._started = started
        self.live = LiveSnapshot(Client.connect(Path(configured.kubeconfig) if configured.kubeconfig else None))
        self.revisions = RevisionHolder(
            path=configured.state_dir / "revision.json",
            poll_seconds=configured.extender_revision_poll_seconds,
            prepare=self._warm,
            on_change=self._on_revision,
        )
        self.recorder = Recorder(
            root=configured.state_dir / "spool",
            writer=self.process_id,
            stream=DecisionStream(configured.redis_url),
            when_full=configured.spool_full,
            max_bytes=configured.spool_max_bytes,
        )
        self.answers = Answers(revisions=self.revisions, live=self.live, recorder=self.recorder)
        self.live.subscribe(self._note_fate)
        self._stopping = threading.Event()
        self._changed = threading.Event()
        self._unreachable = False
        self._beats = threading.Thread(target=self._run_beats, name="berth-beats", daemon=True)

    def start(self) -> None:
        """Start everything. Waits for nothing: what isn't there yet is taken up when it comes."""
        self.recorder.start()
        self.revisions.start()
        self.live.start()
        self._beats.start()

    def stop(self) -> None:
        """Stop everything; Decisions that wait are shipped first."""
        self._stopping.set()
        self._changed.set()
        self.live.stop()
        self.revisions.stop()
        self.recorder.stop()
        self._beats.join(timeout=5)

    def unready(self) -> list[str]:
        """Name what isn't there yet; empty when calls can be answered."""
        missing = []
        if self.revisions.current is None:
            missing.append("Revision")
        if not self.live.synced:
            missing.append("Snapshot")
        return missing

    def _warm(self, revision: CompiledRevision) -> None:
        self.answers.warm(revision)

    def _on_revision(self, revision: CompiledRevision) -> None:
        REVISION.set(revision.number)
        self._changed.set()

    def _note_fate(self, event: PodEvent) -> None:
        """Record where a Pod ended up that this process answered about."""
        if event.node_name and event.kind != "deleted" and self.recorder.awaits(event.uid):
            self.recorder.record_fate(
                pod_uid=event.uid,
                pod_namespace=event.namespace,
                pod_name=event.name,
                node_name=event.node_name,
                at=datetime.now(UTC),
            )

    def _run_beats(self) -> None:
        self._forget_the_dead()
        while not self._stopping.is_set():
            self._changed.clear()
            self._beat()
            self._changed.wait(BEAT_SECONDS)
        self._leave()
        connection.close()

    def _beat(self) -> None:
        age = self.live.age_seconds() if self.live.synced else None
        SNAPSHOT_AGE.set(-1 if age is None else age)
        current = self.revisions.current
        now = datetime.now(UTC)
        try:
            Process.objects.update_or_create(
                id=self.process_id,
                defaults={
                    "role": "extender",
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                    "revision": current.number if current else 0,
                    "revision_at": self.revisions.taken_up_at,
                    "snapshot_age_seconds": age,
                    "started_at": self._started,
                    "beat_at": now,
                },
            )
        except DatabaseError as error:
            connection.close()
            if not self._unreachable:
                logger.warning("the beat can't be written, the database is unreachable: %s", error)
            self._unreachable = True
        else:
            self._unreachable = False

    def _forget_the_dead(self) -> None:
        """Take processes off the list that were killed long ago; one that ends in order takes itself off."""
        try:
            Process.objects.filter(beat_at__lt=datetime.now(UTC) - timedelta(seconds=FORGET_SECONDS)).delete()
        except DatabaseError as error:
            connection.close()
            logger.warning("dead processes stay on the list, the database is unreachable: %s", error)

    def _leave(self) -> None:
        try:
            Process.objects.filter(id=self.process_id).delete()
        except DatabaseError as error:
            logger.warning("can't take this process off the list: %s", error)
