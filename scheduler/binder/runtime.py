"""The parts of the process that schedules, started and stopped together."""

import logging
import threading
import time
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection

from policies.engine.decision import CompiledRevision
from policies.engine.failures import Conditions
from policies.engine.objects.pod import Pod
from scheduler.binder.actions import Events
from scheduler.binder.api_calls import BIND_TIMEOUT_SECONDS
from scheduler.binder.counted import CountedBindings
from scheduler.binder.cycle import Placement, Profile, always_read
from scheduler.binder.leader import Elector, StateLock, identity_of
from scheduler.binder.loop import Loop
from scheduler.binder.overcommit import Overcommits
from scheduler.binder.recording import cycle_entry, offer_shadows
from scheduler.binder.state import shown
from scheduler.cluster.client import Client
from scheduler.cluster.dispatcher import Dispatcher
from scheduler.cluster.lease_lock import BINDING_LEASE, LeaseLock
from scheduler.cluster.live import LiveSnapshot
from scheduler.cluster.waiting import pods_waiting_for
from scheduler.decisions.recorder import Preemptor
from scheduler.metrics import REVISION, show_misses_of
from scheduler.models import BinderState, Wake
from scheduler.serving.outcomes import MissedEnds, record_outcomes
from scheduler.serving.probes import listen
from scheduler.serving.process import HEARTBEAT_SECONDS, Heartbeat, conditions_of, make_recorder, missing_parts
from scheduler.serving.revisions import RevisionHolder
from scheduler.serving.shadows import Shadows
from scheduler.serving.watched_kinds import LISTED_WITHIN_SECONDS

logger = logging.getLogger("berth.binding")

LEASE = "berth-binder"
POOL_SIZE = 32
# A deciding thread that was silent for this long counts as stuck.
_SILENT_SECONDS = 30.0
# The most Pods that are woken with one heartbeat; SQLite allows at most 32,766 values in a statement.
MOST_WOKEN = 1_000


class Runtime:
    """Berth's own scheduler in one process: watches, Revision, election, loop, records, heartbeat."""

    def __init__(self, *, identity: str = "") -> None:
        """Put the parts together.

        Args:
            identity: in the Lease; by default the state folder's identity.
        """
        configured = settings.BERTH
        client = Client.connect(configured.kubeconfig, pool_size=POOL_SIZE)
        self.live = LiveSnapshot(client, pods=pods_waiting_for(configured.scheduler_names))
        self.live.require(always_read())
        self.revisions = RevisionHolder(
            path=configured.state_dir / "binder-revision.json",
            poll_seconds=configured.extender_revision_poll_seconds,
            prepare=self._prepare,
            on_change=self._on_revision,
        )
        self.heartbeat = Heartbeat(
            "binder",
            live=self.live,
            served=self.revisions.served,
            numbered=lambda: self.recorder.numbered,
            spooled=lambda: self.recorder.depth,
            more=self._write_state,
        )
        self.recorder = make_recorder(self.heartbeat.process_id)
        self.shadows = Shadows(self.recorder.record)
        self.elector = Elector(
            client,
            namespace=configured.lease_namespace,
            name=LEASE,
            identity=identity or identity_of(configured.state_dir),
            lock=None if identity else StateLock(configured.state_dir),
            on_change=lambda _: self.loop.look(),
        )
        self.dispatcher = Dispatcher(client, timeout_seconds=BIND_TIMEOUT_SECONDS)
        self.events = Events(self.dispatcher)
        lock = LeaseLock(
            client, namespace=configured.lease_namespace, name=BINDING_LEASE, identity=self.heartbeat.process_id
        )
        self.loop = Loop(
            client=client,
            live=self.live,
            scheduler_names=configured.scheduler_names,
            leads=self.elector.leads,
            dispatcher=self.dispatcher,
            post=self.events.post,
            post_again=self.events.post_again,
            record=self._record,
            expect=self._expect,
            deciding=self.shadows.call,
            conditions=self.conditions,
            counted=CountedBindings(client=client, live=self.live, lock=lock, leads=self.elector.leads),
            node_label=configured.scheduler_node_label,
        )
        self.live.observe(partial(record_outcomes, self.recorder))
        self._missed_ends = MissedEnds(self.live, self.recorder)
        self._overcommits = Overcommits()
        self._probes = (
            None if identity else listen(configured.binder_bind, unready=self.unready, is_alive=self.is_alive)
        )
        self._stopping = threading.Event()
        self._heartbeats = threading.Thread(target=self._run_heartbeats, name="berth-heartbeats", daemon=True)

    def conditions(self) -> Conditions:
        """Return which dependencies work at this moment, as far as this process can tell."""
        return conditions_of(self.live, self.recorder, database_reachable=self.revisions.reachable)

    def start(self) -> None:
        """Start everything. Parts that aren't available yet are used once they are."""
        self.recorder.start()
        self.shadows.start()
        self.dispatcher.start()
        self.live.start()
        self.loop.start()
        self.elector.start()
        self.revisions.start()
        self._heartbeats.start()

    def stop(self) -> None:
        """Stop deciding, finish the bindings that were sent, release the Lease, ship Decisions."""
        self._stopping.set()
        self.loop.stop()
        self.dispatcher.stop(BIND_TIMEOUT_SECONDS)
        self.elector.stop()
        self.live.stop()
        self.revisions.stop()
        self.shadows.stop()
        self.recorder.stop()
        self._heartbeats.join(timeout=5)
        if self._probes is not None:
            self._probes.stop()

    def unready(self) -> list[str]:
        """Return the names of missing parts; empty when Pods can be scheduled as soon as this process leads."""
        return missing_parts(self.revisions, self.live)

    def is_alive(self) -> bool:
        """Return whether the deciding thread makes progress."""
        return time.monotonic() - self.loop.status.now < _SILENT_SECONDS

    def _prepare(self, revision: CompiledRevision) -> None:
        """Watch the kinds that a Revision reads, and decide once by each rule set, so that its columns exist before a Pod waits."""
        profile = Profile(revision)
        former = self.revisions.current.reads if self.revisions.current else frozenset()
        self.live.require(profile.reads | former)
        self.live.wait_until_synced(LISTED_WITHIN_SECONDS)
        missing = self.live.wait_until_listed(profile.reads, LISTED_WITHIN_SECONDS)
        if missing:
            logger.warning(
                "Revision %s reads kinds that aren't listed yet: %s", revision.number, ", ".join(sorted(missing))
            )
        snapshot = self.live.snapshot()
        profile.warm(Pod.from_json({}), snapshot, now=datetime.now(UTC))

    def _on_revision(self, revision: CompiledRevision) -> None:
        REVISION.set(revision.number)
        show_misses_of({assignment.rule_set for assignment in revision.revision.assignments})
        self.live.require(always_read() | revision.reads)
        self.loop.serve(revision)

    def _record(self, placement: Placement, seconds: float, notes: dict[str, Any]) -> str:
        entry = cycle_entry(placement, seconds, notes)
        self.recorder.record(entry)
        offer_shadows(self.shadows, placement, entry.id)
        return entry.id

    def _expect(self, pod: Pod, decision: str, victim: Pod) -> None:
        self.recorder.expect_preemption([victim.uid], Preemptor(pod.uid, pod.namespace, pod.name, decision))

    def _run_heartbeats(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECONDS):
            self.heartbeat.write()
        self._leave()
        connection.close()

    def _write_state(self) -> None:
        self._missed_ends.look()
        self._wake()
        overcommitted = self._overcommits.look(self.live.snapshot()) if self.live.synced else []
        BinderState.objects.update_or_create(identity=self.elector.identity, defaults=self._state(overcommitted))
        self.shadows.write_counts()

    def _state(self, overcommitted: list[str]) -> dict[str, Any]:
        status, now = self.loop.status, datetime.now(UTC)
        label = settings.BERTH.scheduler_node_label
        return {
            "process": self.heartbeat.process_id,
            "heartbeat_at": now,
            "leads": self.elector.leads(),
            "holder": self.elector.holder,
            "scheduler_names": list(settings.BERTH.scheduler_names),
            "node_label": "=".join(label) if label else "",
            "counts": status.counts,
            "in_flight": status.in_flight,
            "last_node": status.last_node,
            "pods": self.waiting(),
            "overcommitted": overcommitted,
            "overcommits": self._overcommits.found,
        }

    def _wake(self) -> None:
        """Retry at once the Pods that users asked for; a process that doesn't lead leaves them to the leader."""
        uids = list(Wake.objects.values_list("uid", flat=True)[:MOST_WOKEN]) if self.elector.leads() else []
        if uids:
            self.loop.wake(uids)
            Wake.objects.filter(uid__in=uids).delete()

    def waiting(self) -> list[dict[str, Any]]:
        """Return the waiting Pods, as pages show them."""
        status, now = self.loop.status, datetime.now(UTC)
        return [shown(waiting, status.now, now) for waiting in status.pods]

    def _leave(self) -> None:
        self.heartbeat.leave()
        try:
            BinderState.objects.filter(identity=self.elector.identity, process=self.heartbeat.process_id).delete()
        except DatabaseError as error:
            logger.warning("the state of this process can't be deleted from the database: %s", error)
