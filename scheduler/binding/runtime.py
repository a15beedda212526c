"""The parts of the process that schedules, started and stopped together."""

import logging
import os
import socket
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection

from policies.engine.decision import CompiledRevision
from policies.engine.failures import Conditions
from policies.engine.objects.pod import Pod
from scheduler.binding.actions import Events
from scheduler.binding.cycle import Placement, Rulebook, always_read
from scheduler.binding.leader import Elector, StateLock, identity_of
from scheduler.binding.loop import BIND_TIMEOUT_SECONDS, Loop
from scheduler.binding.overcommit import Overcommits
from scheduler.binding.probes import Probes
from scheduler.binding.recording import entries_of
from scheduler.binding.state import shown
from scheduler.cluster.client import Client
from scheduler.cluster.courier import Courier
from scheduler.cluster.kinds import NAMESPACES, NODES, PODS
from scheduler.cluster.live import LiveSnapshot, PodEvent
from scheduler.cluster.waiting import pods_waiting_for
from scheduler.decisions.recorder import Recorder
from scheduler.decisions.stream import DecisionStream
from scheduler.extender.revisions import RevisionHolder
from scheduler.metrics import REVISION, SNAPSHOT_AGE
from scheduler.models import BinderState, Process

logger = logging.getLogger("berth.binding")

LEASE = "berth-binder"
POOL_SIZE = 32
BEAT_SECONDS = 1.0
SILENT_SECONDS = 30.0
"""A deciding thread that wasn't heard of for this long is taken for stuck."""

LISTED_WITHIN_SECONDS = 3.0
_CORE_KINDS = frozenset({NODES.name, PODS.name, NAMESPACES.name})


class Runtime:
    """The custom scheduler of one process: watches, Revision, election, loop, records, beat."""

    def __init__(self, *, identity: str = "") -> None:
        """Put the parts together.

        Args:
            identity: in the Lease; that of the state folder when it isn't given.
        """
        configured = settings.BERTH
        self._started = datetime.now(UTC)
        self.process_id = f"binder@{socket.gethostname()}:{os.getpid()}:{self._started:%Y%m%dT%H%M%S%f}"
        client = Client.connect(Path(configured.kubeconfig) if configured.kubeconfig else None, pool_size=POOL_SIZE)
        self.live = LiveSnapshot(client, pods=pods_waiting_for(configured.scheduler_names))
        self.live.require(always_read())
        self.revisions = RevisionHolder(
            path=configured.state_dir / "binder-revision.json",
            poll_seconds=configured.extender_revision_poll_seconds,
            prepare=self._prepare,
            on_change=self._on_revision,
        )
        self.recorder = Recorder(
            root=configured.state_dir / "spool",
            writer=self.process_id,
            stream=DecisionStream(configured.redis_url),
            when_full=configured.spool_full,
            max_bytes=configured.spool_max_bytes,
        )
        self.elector = Elector(
            client,
            namespace=configured.lease_namespace,
            name=LEASE,
            identity=identity or identity_of(configured.state_dir),
            lock=None if identity else StateLock(configured.state_dir),
            on_change=lambda _: self.loop.look(),
        )
        self.courier = Courier(client, timeout_seconds=BIND_TIMEOUT_SECONDS)
        self.events = Events(self.courier)
        self.loop = Loop(
            client=client,
            live=self.live,
            scheduler_names=configured.scheduler_names,
            leads=self.elector.leads,
            courier=self.courier,
            post=self.events.post,
            record=self._record,
            conditions=self.conditions,
            node_label=configured.scheduler_node_label,
        )
        self.live.subscribe(self._on_pod)
        self._overcommits = Overcommits()
        self._probes = None if identity else self._make_probes(configured.binder_bind)
        self._stopping = threading.Event()
        self._unreachable = False
        self._beats = threading.Thread(target=self._run_beats, name="berth-beats", daemon=True)

    def conditions(self) -> Conditions:
        """Say what this process can know at this moment."""
        return Conditions(
            snapshot_age_seconds=self.live.age_seconds(),
            database_reachable=self.revisions.reachable,
            redis_reachable=self.recorder.redis_reachable,
            api_server_reachable=not _CORE_KINDS & self.live.failing(),
        )

    def start(self) -> None:
        """Start everything. What isn't there yet is taken up when it comes."""
        self.recorder.start()
        self.courier.start()
        self.live.start()
        self.loop.start()
        self.elector.start()
        self.revisions.start()
        self._beats.start()
        if self._probes is not None:
            self._probes.start()

    def stop(self) -> None:
        """Stop deciding, finish the bindings that were sent, give the Lease back, ship Decisions."""
        self._stopping.set()
        self.loop.stop()
        self.courier.stop(BIND_TIMEOUT_SECONDS)
        self.elector.stop()
        self.live.stop()
        self.revisions.stop()
        self.recorder.stop()
        self._beats.join(timeout=5)
        if self._probes is not None:
            self._probes.stop()

    def _make_probes(self, address: str) -> Probes | None:
        try:
            return Probes(address, self.unready, self.is_alive) if address else None
        except OSError as error:
            # Pods don't wait for a port.
            logger.error("no probes and metrics: %s can't be listened on: %s", address, error)  # noqa: TRY400 - the setting's fault
            return None

    def unready(self) -> list[str]:
        """Name what isn't there yet; empty when Pods can be scheduled as soon as this process leads."""
        missing = []
        if self.revisions.current is None:
            missing.append("Revision")
        if not self.live.synced:
            missing.append("Snapshot")
        return missing

    def is_alive(self) -> bool:
        """Tell whether the deciding thread gets round."""
        return time.monotonic() - self.loop.status.now < SILENT_SECONDS

    def _prepare(self, revision: CompiledRevision) -> None:
        """Watch what a Revision reads, and decide once by each rule set, so that its columns are there before a Pod waits."""
        book = Rulebook(revision)
        former = self.revisions.current.reads if self.revisions.current else frozenset()
        self.live.require(book.reads | former)
        self.live.wait_until_synced(LISTED_WITHIN_SECONDS)
        missing = self.live.wait_until_listed(book.reads, LISTED_WITHIN_SECONDS)
        if missing:
            logger.warning("Revision %s reads what isn't listed yet: %s", revision.number, ", ".join(sorted(missing)))
        snapshot = self.live.snapshot()
        book.warm(Pod.from_json({}), snapshot, now=datetime.now(UTC))

    def _on_revision(self, revision: CompiledRevision) -> None:
        REVISION.set(revision.number)
        self.live.require(always_read() | revision.reads)
        self.loop.serve(revision)

    def _on_pod(self, event: PodEvent) -> None:
        if event.node_name and event.kind != "deleted" and self.recorder.awaits(event.uid):
            self.recorder.record_fate(
                pod_uid=event.uid,
                pod_namespace=event.namespace,
                pod_name=event.name,
                node_name=event.node_name,
                at=datetime.now(UTC),
            )

    def _record(self, placement: Placement, seconds: float, notes: dict[str, Any]) -> None:
        for entry in entries_of(placement, seconds, notes):
            self.recorder.record(entry)

    def _run_beats(self) -> None:
        while not self._stopping.wait(BEAT_SECONDS):
            self._beat()
        self._leave()
        connection.close()

    def _beat(self) -> None:
        age = self.live.age_seconds() if self.live.synced else None
        SNAPSHOT_AGE.set(-1 if age is None else age)
        current = self.revisions.current
        overcommitted = self._overcommits.look(self.live.snapshot()) if self.live.synced else []
        try:
            BinderState.objects.update_or_create(identity=self.elector.identity, defaults=self._state(overcommitted))
            Process.objects.update_or_create(
                id=self.process_id,
                defaults={
                    "role": "binder",
                    "host": socket.gethostname(),
                    "pid": os.getpid(),
                    "revision": current.number if current else 0,
                    "revision_at": self.revisions.taken_up_at,
                    "snapshot_age_seconds": age,
                    "started_at": self._started,
                    "beat_at": datetime.now(UTC),
                },
            )
        except DatabaseError as error:
            connection.close()
            if not self._unreachable:
                logger.warning("the beat can't be written, the database is unreachable: %s", error)
            self._unreachable = True
        else:
            self._unreachable = False

    def _state(self, overcommitted: list[str]) -> dict[str, Any]:
        status, now = self.loop.status, datetime.now(UTC)
        label = settings.BERTH.scheduler_node_label
        return {
            "process": self.process_id,
            "beat_at": now,
            "leads": self.elector.leads(),
            "holder": self.elector.holder,
            "scheduler_names": list(settings.BERTH.scheduler_names),
            "node_label": "=".join(label) if label else "",
            "counts": status.counts,
            "in_flight": status.in_flight,
            "pods": self.waiting(),
            "overcommitted": overcommitted,
            "overcommits": self._overcommits.found,
        }

    def waiting(self) -> list[dict[str, Any]]:
        """Give the Pods that wait, as pages show them."""
        status, now = self.loop.status, datetime.now(UTC)
        return [shown(waiting, status.now, now) for waiting in status.pods]

    def _leave(self) -> None:
        try:
            Process.objects.filter(id=self.process_id).delete()
            BinderState.objects.filter(identity=self.elector.identity, process=self.process_id).delete()
        except DatabaseError as error:
            logger.warning("can't take this process off the list: %s", error)
