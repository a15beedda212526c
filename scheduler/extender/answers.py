"""Answering /filter and /prioritize from memory: decode, decide, record, encode. No Django request in sight."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from policies.engine.cycle import Cycle
from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Overlay, Snapshot
from policies.engine.ruleset import Assignment
from policies.engine.status import Code, Status
from scheduler.cluster.live import LiveSnapshot
from scheduler.decisions.record import entry_of
from scheduler.decisions.recorder import Recorder
from scheduler.extender.inflight import InFlight
from scheduler.extender.revisions import Pins, RevisionHolder
from scheduler.metrics import NODES_REFUSED, UNSETTLED
from scheduler.translate import NodeCache, read_pod
from scheduler.wire import (
    ExtenderArgs,
    decode_args,
    encode_filter_result,
    encode_priorities,
)

logger = logging.getLogger("berth.extender")

NO_REVISION = "Berth has not read any Revision yet"
NO_SNAPSHOT = "Berth has not seen the cluster yet"
UNKNOWN_NODE = Status(Code.UNSCHEDULABLE, "node is not known to Berth yet")
KNOWN_WITHIN_SECONDS = 0.25
"""How long a name that kube-scheduler knows already is waited for: its watch and ours run side by side."""


class NotReadyError(Exception):
    """Berth can't answer yet. The message is constant, for kube-scheduler puts it into the Pod's condition."""


class Question(msgspec.Struct):
    """A decoded call: the Pod, what applies to it, and the nodes asked about."""

    args: ExtenderArgs
    pod: Pod
    revision: CompiledRevision
    snapshot: Snapshot
    names: list[str]
    assignment: Assignment | None
    rule_set: CompiledRuleSet | None
    shadows: list[tuple[Assignment, CompiledRuleSet]]
    started: float


class Answers:
    """Answers the verbs. One object a process, used by all its threads."""

    def __init__(
        self,
        *,
        revisions: RevisionHolder,
        live: LiveSnapshot,
        recorder: Recorder,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._revisions = revisions
        self._live = live
        self._recorder = recorder
        self._clock = clock
        self._nodes = NodeCache()
        self._overlay = Overlay()
        self._overlay_lock = threading.Lock()
        self._pins = Pins()
        self._in_flight = InFlight()
        live.subscribe(self._in_flight.observe)

    def filter(self, body: bytes) -> bytes:
        """Answer /filter.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        question = self._question(body, "filter", self._revisions.current)
        self._pins.pin(question.pod.uid, question.revision)
        for assignment, rule_set in question.shadows:
            self._decide(question, assignment, rule_set, verb="filter", mode="shadow")
        if question.rule_set is None or question.assignment is None:
            self._record_passed(question, "filter")
            self._note_in_flight(question)
            return _pass_all(question)
        answer = self._decide(question, question.assignment, question.rule_set, verb="filter", mode="enforce")
        if answer.feasible_count:
            self._note_in_flight(question)
        return _encode_filter(question, answer)

    def warm(self, revision: CompiledRevision) -> None:
        """Decide once by each rule set, so that its columns are there before the first Pod is asked about."""
        snapshot = self._live.snapshot()
        for rule_set in revision.rule_sets.values():
            cycle = Cycle(pod=Pod.from_json({}), snapshot=snapshot, now=self._clock(), params=rule_set.params)
            decide(rule_set, cycle, snapshot.table.all_rows(), whole=True)

    def prioritize(self, body: bytes) -> bytes:
        """Answer /prioritize, by the Revision that filtered the Pod.

        A Pod that no Assignment takes gets no score at all: a score of 0 would make kube-scheduler break ties by
        chance, where without Berth it doesn't.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        question = self._question(body, "prioritize", None)
        for assignment, rule_set in question.shadows:
            self._decide(question, assignment, rule_set, verb="prioritize", mode="shadow")
        if question.rule_set is None or question.assignment is None:
            self._record_passed(question, "prioritize")
            return encode_priorities([])
        answer = self._decide(question, question.assignment, question.rule_set, verb="prioritize", mode="enforce")
        points = dict(zip(answer.names, answer.points.tolist(), strict=True))
        return encode_priorities([(name, points.get(name, 0)) for name in question.names])

    def _question(self, body: bytes, verb: str, revision: CompiledRevision | None) -> Question:
        started = time.perf_counter()
        args = decode_args(body)
        pod = read_pod(args.pod)
        revision = revision or self._pins.of(pod.uid) or self._revisions.current
        missing = self._missing(revision)
        if revision is None or missing:
            self._recorder.record(entry_of(verb=verb, pod=pod, pod_json=args.pod, now=self._clock(), error=missing))
            raise NotReadyError(missing)
        choice = revision.choose(pod, self._live.snapshot())
        assignment, rule_set = choice.enforced or (None, None)
        applying = [found for _, found in choice.shadows] + ([rule_set] if rule_set else [])
        snapshot, names = self._look(args, pod, applying)
        return Question(
            args=args,
            pod=pod,
            revision=revision,
            snapshot=snapshot,
            names=names,
            assignment=assignment,
            rule_set=rule_set,
            shadows=choice.shadows,
            started=started,
        )

    def _note_in_flight(self, question: Question) -> None:
        """Any Pod may carry the labels that a rule counts, whichever rules it was answered by itself."""
        if question.revision.counts_pods:
            self._in_flight.answered(question.pod.uid, question.pod.parsed.metadata.resource_version)

    def _missing(self, revision: CompiledRevision | None) -> str:
        if revision is None:
            return NO_REVISION
        return NO_SNAPSHOT if revision.revision.assignments and not self._live.synced else ""

    def _look(self, args: ExtenderArgs, pod: Pod, applying: Sequence[CompiledRuleSet]) -> tuple[Snapshot, list[str]]:
        """Give the Snapshot to decide on, and the names asked about. A full body's own nodes stand in it."""
        if not applying:
            names = [node.name for node in self._nodes.read(args.nodes)] if args.nodes else args.node_names or []
            return self._live.snapshot(), names
        if any(rule_set.counts_pods for rule_set in applying) and not self._in_flight.settle(pod.uid):
            UNSETTLED.inc()
        if args.nodes is None:
            names = args.node_names or []
            self._live.wait_for_nodes(names, KNOWN_WITHIN_SECONDS)
            return self._live.snapshot(), names
        nodes = self._nodes.read(args.nodes)
        with self._overlay_lock:
            snapshot = self._overlay.over(self._live.snapshot(), nodes)
        return snapshot, [node.name for node in nodes]

    def _decide(
        self, question: Question, assignment: Assignment, rule_set: CompiledRuleSet, *, verb: str, mode: str
    ) -> Answer:
        rows = question.snapshot.table.rows(question.names)
        cycle = Cycle(pod=question.pod, snapshot=question.snapshot, now=self._clock(), params=rule_set.params)
        scoring = verb == "prioritize"
        # What /prioritize is asked about has passed all filters: it is scored whole.
        answer = decide(rule_set, cycle, rows[rows >= 0], scoring=scoring, filtering=not scoring)
        _count_refusals(rule_set, answer)
        self._record(question, assignment, rule_set, answer, cycle.now, verb=verb, mode=mode)
        return answer

    def _record(
        self,
        question: Question,
        assignment: Assignment,
        rule_set: CompiledRuleSet,
        answer: Answer,
        now: datetime,
        *,
        verb: str,
        mode: str,
    ) -> None:
        self._recorder.record(
            entry_of(
                verb=verb,
                pod=question.pod,
                pod_json=question.args.pod,
                now=now,
                mode=mode,
                revision=question.revision,
                assignment=assignment,
                rule_set=rule_set,
                snapshot=question.snapshot,
                names=question.names,
                answer=answer,
                duration_microseconds=_microseconds_since(question.started),
            )
        )

    def _record_passed(self, question: Question, verb: str) -> None:
        """Record that no Assignment takes the Pod, so that all nodes pass."""
        self._recorder.record(
            entry_of(
                verb=verb,
                pod=question.pod,
                pod_json=question.args.pod,
                now=self._clock(),
                revision=question.revision,
                snapshot=question.snapshot,
                names=question.names,
                duration_microseconds=_microseconds_since(question.started),
            )
        )


def _microseconds_since(started: float) -> int:
    return int((time.perf_counter() - started) * 1_000_000)


def _pass_all(question: Question) -> bytes:
    return encode_filter_result(
        nodes=question.args.nodes, node_names=question.args.node_names, failed={}, unresolvable={}
    )


def _encode_filter(question: Question, answer: Answer) -> bytes:
    """Answer each node that was asked about by name, in the form that it was asked in."""
    refused = dict(answer.refused())
    if len(answer.names) < len(question.names):
        known = set(answer.names)
        refused |= {name: UNKNOWN_NODE for name in question.names if name not in known}
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    for name, refusal in refused.items():
        (failed if refusal.code is Code.UNSCHEDULABLE else unresolvable)[name] = refusal.reason
    items = question.args.nodes
    return encode_filter_result(
        nodes=None
        if items is None
        else [item for item, name in zip(items, question.names, strict=True) if name not in refused],
        node_names=[name for name in question.names if name not in refused],
        failed=failed,
        unresolvable=unresolvable,
    )


def _count_refusals(rule_set: CompiledRuleSet, answer: Answer) -> None:
    for column in answer.filters:
        refused = int((column.codes >= 0).sum())
        if refused:
            NODES_REFUSED.labels(rule_set.name, column.rule.key).inc(refused)
