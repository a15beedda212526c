"""The parts of one extender process: the Revision, the live Snapshot, the recorder, and its heartbeat in the database."""

import logging
import math
import threading
from datetime import UTC, datetime, timedelta
from functools import partial

from django.conf import settings
from django.db import DatabaseError, connection

from policies.engine.decision import CompiledRevision
from policies.engine.failures import Conditions
from scheduler.cluster.client import Client
from scheduler.cluster.lease_lock import BINDING_LEASE, LeaseLock
from scheduler.cluster.live import LiveSnapshot
from scheduler.decisions.missing import database_now
from scheduler.extender.callers import Callers
from scheduler.extender.verbs.bind import Binder
from scheduler.extender.verbs.context import RequestContexts
from scheduler.extender.verbs.handlers import VerbHandlers
from scheduler.extender.verbs.in_flight import InFlight
from scheduler.extender.verbs.verdict_metrics import VERDICTS
from scheduler.metrics import LAST_CALL, REVISION, WATCH_AGE, show_misses_of
from scheduler.models import Caller, Process
from scheduler.serving.outcomes import MissedEnds, record_outcomes
from scheduler.serving.process import HEARTBEAT_SECONDS, Heartbeat, conditions_of, make_recorder, missing_parts
from scheduler.serving.revisions import RevisionHolder
from scheduler.serving.shadows import Shadows
from scheduler.serving.watched_kinds import WatchedKinds

logger = logging.getLogger("berth.extender")

# Connections to the API server that are kept open: one for each watch, and one for each Pod that is being bound.
POOL_SIZE = 64

# A process that hasn't written a heartbeat for this long is removed from the list.
FORGET_SECONDS = 3600.0
# A caller that was silent for this long is removed from the list when a process starts.
FORGET_CALLERS = timedelta(days=30)


class Runtime:
    """The parts of one extender process, started and stopped together."""

    def __init__(self) -> None:
        configured = settings.BERTH
        client = Client.connect(configured.kubeconfig, pool_size=POOL_SIZE)
        self.live = LiveSnapshot(client)
        self.callers = Callers()
        self.reads = WatchedKinds(self.live)
        self.revisions = RevisionHolder(
            path=configured.state_dir / "revision.json",
            poll_seconds=configured.extender_revision_poll_seconds,
            prepare=self._prepare,
            on_change=self._on_revision,
        )
        self.heartbeat = Heartbeat(
            "extender",
            live=self.live,
            served=self.revisions.served,
            numbered=lambda: self.recorder.numbered,
            spooled=lambda: self.recorder.depth,
            more=self._write_more,
        )
        self.recorder = make_recorder(self.heartbeat.process_id)
        self.live.observe(partial(record_outcomes, self.recorder))
        self._missed_ends = MissedEnds(self.live, self.recorder)
        self.shadows = Shadows(self.recorder.record)
        self.answers = self._make_answers(client)
        self._stopping = threading.Event()
        self._changed = threading.Event()
        self._measured: set[str] = set()
        self._called: set[tuple[str, str]] = set()
        self._heartbeats = threading.Thread(target=self._run_heartbeats, name="berth-heartbeats", daemon=True)

    def _make_answers(self, client: Client) -> VerbHandlers:
        configured = settings.BERTH
        in_flight = InFlight()
        contexts = self._contexts = RequestContexts(
            revisions=self.revisions,
            live=self.live,
            in_flight=in_flight,
            conditions=self.conditions,
            deadline_seconds=configured.extender_deadline_seconds,
            pass_without_revision=configured.extender_without_revision == "pass",
        )
        lock = LeaseLock(
            client, namespace=configured.lease_namespace, name=BINDING_LEASE, identity=self.heartbeat.process_id
        )
        return VerbHandlers(
            contexts=contexts,
            live=self.live,
            in_flight=in_flight,
            binder=Binder(client=client, live=self.live, in_flight=in_flight, lock=lock, contexts=contexts),
            client=client,
            recorder=self.recorder,
            shadows=self.shadows,
        )

    def conditions(self) -> Conditions:
        """Return which dependencies work at this moment, as far as this process can tell."""
        return conditions_of(self.live, self.recorder, database_reachable=self.revisions.reachable)

    def start(self) -> None:
        """Start everything. Parts that aren't available yet are used once they are.

        A Revision that was kept on disk waits for the first lists of the kinds it reads, see `watched_kinds.LISTED_WITHIN_SECONDS`.
        """
        self.recorder.start()
        self.shadows.start()
        self.live.start()
        self.revisions.start()
        self._heartbeats.start()

    def stop(self) -> None:
        """Stop everything; queued Decisions are shipped first."""
        self._stopping.set()
        self._changed.set()
        self.live.stop()
        self.revisions.stop()
        self.shadows.stop()
        self.recorder.stop()
        self._heartbeats.join(timeout=5)

    def unready(self) -> list[str]:
        """Return the names of missing parts; empty when calls can be answered."""
        return missing_parts(self.revisions, self.live)

    def _prepare(self, revision: CompiledRevision) -> None:
        self.reads.prepare(revision)
        self.answers.warm(revision, self.revisions.rest)

    def _on_revision(self, revision: CompiledRevision) -> None:
        self.reads.served()
        VERDICTS.forget_others(revision)
        REVISION.set(revision.number)
        show_misses_of({assignment.rule_set for assignment in revision.revision.assignments})
        self._changed.set()

    def _run_heartbeats(self) -> None:
        self._forget_the_dead()
        while not self._stopping.is_set():
            self._changed.clear()
            self.reads.let_go()
            self._contexts.drop_old_pins()
            self._measure_watches()
            self._measure_callers()
            self.heartbeat.write()
            self._changed.wait(HEARTBEAT_SECONDS)
        self.heartbeat.leave()
        connection.close()

    def _measure_watches(self) -> None:
        ages = self.live.ages()
        for kind, age in ages.items():
            WATCH_AGE.labels(kind).set(age if math.isfinite(age) else -1)
        for kind in self._measured - ages.keys():
            WATCH_AGE.remove(kind)
        self._measured = set(ages)

    def _measure_callers(self) -> None:
        calls = {(call.identity, call.verb): call.last_at for call in self.callers.rows()}
        for key, last_at in calls.items():
            LAST_CALL.labels(*key).set(last_at.timestamp())
        for key in self._called - calls.keys():
            LAST_CALL.remove(*key)
        self._called = set(calls)

    def _write_more(self) -> None:
        self._missed_ends.look()
        self.callers.save(self.heartbeat.process_id)
        self.shadows.write_counts()

    def _forget_the_dead(self) -> None:
        """Remove processes from the list that were killed long ago; a process that exits normally removes itself."""
        try:
            Process.objects.filter(heartbeat_at__lt=database_now() - timedelta(seconds=FORGET_SECONDS)).delete()
            Caller.objects.filter(last_at__lt=datetime.now(UTC) - FORGET_CALLERS).delete()
        except DatabaseError as error:
            connection.close()
            logger.warning("ended processes can't be removed from the list, the database is unreachable: %s", error)
