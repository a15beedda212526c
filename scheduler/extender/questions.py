"""From a call's body to what is to be decided: the Pod, what applies to it, the Snapshot and the nodes asked about."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock

import msgspec

from policies.engine.cycle import Cycle
from policies.engine.decision import CompiledRevision, CompiledRuleSet
from policies.engine.failures import Action, Conditions, Fallback, choose_fallback
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Overlay, Snapshot
from policies.engine.objects.table import Rows
from policies.engine.ruleset import Assignment, Revision
from scheduler.cluster.live import LiveSnapshot
from scheduler.decisions.record import rows_of
from scheduler.extender.ledger import Ledger
from scheduler.extender.revisions import Pins, RevisionHolder
from scheduler.metrics import UNSETTLED
from scheduler.translate import NodeCache, read_pod
from scheduler.wire import ExtenderArgs, decode_args

NO_REVISION = "Berth has not read any Revision yet"
NO_SNAPSHOT = "Berth has not seen the cluster yet"
KNOWN_WITHIN_SECONDS = 0.25
"""How long a name that kube-scheduler knows already is waited for: its watch and ours run side by side."""


class NotReadyError(Exception):
    """Berth can't answer yet. The message is constant, for kube-scheduler puts it into the Pod's condition.

    Attributes:
        pod: whom it was about, where that was read.
        decision: the id under which that is recorded; "" before it is.
    """

    def __init__(self, message: str, pod: Pod | None = None) -> None:
        super().__init__(message)
        self.pod = pod
        self.decision = ""


class Question(msgspec.Struct):
    """A decoded call and what applies to it.

    Attributes:
        base: the Snapshot without the promised Pods. A full body's own nodes stand in it.
        assumed: the promised Pods, each with its node.
        snapshot: `base` with the promised Pods on their nodes: what is decided on.
        names: the nodes asked about, in order.
        all_rows: the same as rows of the Snapshot's table, -1 for a name that isn't known.
        action: whether the rule set decides, or which answer it chose for the case that Berth can't know.
        cause: why it doesn't decide; "" when it does.
        started: `time.perf_counter()` when the call came.
        until: when its time is up.
    """

    args: ExtenderArgs
    pod: Pod
    revision: CompiledRevision
    base: Snapshot
    assumed: list[tuple[Pod, str]]
    snapshot: Snapshot
    names: list[str]
    assignment: Assignment | None
    rule_set: CompiledRuleSet | None
    shadows: list[tuple[Assignment, CompiledRuleSet]]
    all_rows: Rows
    started: float
    until: float
    action: Action = "decide"
    cause: str = ""

    def time_is_up(self) -> bool:
        """Tell whether the answer is due."""
        return time.perf_counter() > self.until

    def rows(self) -> Rows:
        """Give the rows of the nodes that are asked about and known, in order."""
        rows = self.all_rows
        return rows if len(rows) == 0 or rows.min() >= 0 else rows[rows >= 0]


class Questions:
    """Makes Questions. One object a process, used by all its threads.

    Args:
        conditions: what Berth can and can't know at this moment.
        deadline_seconds: how long an answer may take.
        pass_without_revision: let Pods pass as long as no Revision was ever read, instead of failing the call.
    """

    def __init__(
        self,
        *,
        revisions: RevisionHolder,
        live: LiveSnapshot,
        ledger: Ledger,
        conditions: Callable[[], Conditions],
        deadline_seconds: float,
        pass_without_revision: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._revisions = revisions
        self._live = live
        self._ledger = ledger
        self._conditions = conditions
        self._deadline_seconds = deadline_seconds
        self._without = CompiledRevision(Revision(number=0)) if pass_without_revision else None
        self.clock = clock
        self._nodes = NodeCache()
        self._overlay = Overlay()
        self._overlay_lock = Lock()
        self._pins = Pins()

    def first(self, body: bytes) -> Question:
        """Read a call that begins a Pod's cycle: it is answered by the Revision that is served now.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        question = self._read(body, anew=True)
        self._pins.pin(question.pod.uid, question.revision)
        return question

    def next(self, body: bytes) -> Question:
        """Read a call that goes on with a Pod's cycle: it is answered by the Revision that answered the first.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        return self._read(body, anew=False)

    def revision_of(self, pod: Pod) -> CompiledRevision:
        """Give the Revision by which a Pod's cycle goes on.

        Raises:
            NotReadyError: there is none.
        """
        return self._pins.of(pod.uid) or self._current(pod)

    def _current(self, pod: Pod) -> CompiledRevision:
        revision = self._revisions.current or self._without
        if revision is None:
            raise NotReadyError(NO_REVISION, pod)
        return revision

    def until(self, started: float) -> float:
        """Give when the answer to a call is due, both in seconds of `time.perf_counter()`."""
        return started + self._deadline_seconds

    def fallback(self, rule_set: CompiledRuleSet) -> Fallback:
        """Give what the rule set chose for what is known at this moment, and the cause where it doesn't decide."""
        return choose_fallback(rule_set.failures, self._conditions())

    def cycle(self, pod: Pod, snapshot: Snapshot, rule_set: CompiledRuleSet) -> Cycle:
        """Give the cycle of a Pod under a rule set, now."""
        return Cycle(pod=pod, snapshot=snapshot, now=self.clock(), params=rule_set.params)

    def _read(self, body: bytes, *, anew: bool) -> Question:
        started = time.perf_counter()
        until = self.until(started)
        args = decode_args(body)
        pod = read_pod(args.pod)
        revision = self._current(pod) if anew else self.revision_of(pod)
        choice = revision.choose(pod, self._live.snapshot())
        assignment, rule_set = choice.enforced or (None, None)
        action, cause = self.fallback(rule_set) if rule_set else Fallback("decide", "")
        applying = [found for _, found in choice.shadows] + ([rule_set] if rule_set else [])
        if action == "decide":
            if applying and not self._live.synced:
                raise NotReadyError(NO_SNAPSHOT, pod)
            self._settle(pod, applying, until)
        base, names, rows = self._look(args, applying)
        assumed = self._ledger.placements(pod.uid) if applying else []
        return Question(
            args=args,
            pod=pod,
            revision=revision,
            base=base,
            assumed=assumed,
            snapshot=base.assume_all(assumed) if assumed else base,
            names=names,
            all_rows=rows,
            assignment=assignment,
            rule_set=rule_set,
            shadows=choice.shadows if action == "decide" else [],
            started=started,
            until=until,
            action=action,
            cause=cause,
        )

    def _settle(self, pod: Pod, applying: Sequence[CompiledRuleSet], until: float) -> None:
        if any(rule_set.counts_pods for rule_set in applying):
            remaining = until - time.perf_counter()
            if not self._ledger.settle(pod.uid, remaining / 2):
                UNSETTLED.inc()

    def _look(self, args: ExtenderArgs, applying: Sequence[CompiledRuleSet]) -> tuple[Snapshot, list[str], Rows]:
        """Give the Snapshot to decide on, the names asked about, and their rows. A full body's own nodes stand in it."""
        if args.nodes is None:
            snapshot, names = self._live.snapshot(), args.node_names or []
            rows = rows_of(snapshot.table, names)
            if applying and len(rows) and rows.min() < 0 and self._live.wait_for_nodes(names, KNOWN_WITHIN_SECONDS):
                snapshot = self._live.snapshot()
                rows = rows_of(snapshot.table, names)
            return snapshot, names, rows
        nodes = self._nodes.read(args.nodes)
        snapshot, names = self._live.snapshot(), [node.name for node in nodes]
        if applying:
            with self._overlay_lock:
                snapshot = self._overlay.over(snapshot, nodes)
        return snapshot, names, rows_of(snapshot.table, names)
