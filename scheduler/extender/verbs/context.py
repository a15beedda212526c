"""From a call's body to the input of a decision: the Pod, the rule sets that apply, the Snapshot and the candidate nodes."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.decision import CompiledRevision, CompiledRuleSet
from policies.engine.errors import DeadlineError
from policies.engine.failures import Action, Conditions, Fallback, choose_fallback
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.pauses import Suspension
from policies.engine.ruleset import Assignment, Revision
from scheduler.cluster.live import LiveSnapshot
from scheduler.decisions.record import rows_of
from scheduler.extender.request.full_nodes import FullNodes
from scheduler.extender.request.node_names import ByName, Names, RecentPods
from scheduler.extender.request.wire import ExtenderArgs, Sent, decode_args
from scheduler.extender.verbs.in_flight import InFlight
from scheduler.metrics import UNSETTLED
from scheduler.serving.revisions import Pins, RevisionHolder

NO_REVISION = "Berth has not read any Revision yet"
NO_SNAPSHOT = "Berth has not seen the cluster yet"
# How long to wait for a node that kube-scheduler knows already: its watch and ours are independent.
KNOWN_WITHIN_SECONDS = 0.25


class NotReadyError(Exception):
    """Berth can't answer yet. The message is constant, because kube-scheduler puts it into the Pod's condition.

    Attributes:
        pod: the Pod of the call, if it was read.
        decision: the id of the Decision that records this; "" before it is recorded.
    """

    def __init__(self, message: str, pod: Pod | None = None) -> None:
        super().__init__(message)
        self.pod = pod
        self.decision = ""


class RequestContext(msgspec.Struct):
    """A decoded call and what applies to it.

    Attributes:
        is_seen: whether the watch has shown the cluster yet; if nothing is enforced, a Pod passes without it.
        sent_names: the names as they were sent, if each is known to be a node's.
        base: the Snapshot without the assumed Pods. A full body's own nodes stand in it.
        assumed: the assumed Pods, each with its node.
        snapshot: `base` with the assumed Pods on their nodes: the input of the decision.
        names: the candidate nodes, in order.
        draws: the canaries' draws for the Pod, as in `Choice`.
        all_rows: `names` as rows of the Snapshot's table, -1 for a name that isn't known.
        action: "decide", or the rule set's fallback while a dependency is unavailable.
        cause: why the rule set doesn't decide; "" when it does.
        started: `time.perf_counter()` when the call came.
        until: when the answer is due.
        now: the current time, as rules see it.
        suspended_by: the suspensions of rules that would otherwise apply to the Pod.
    """

    args: ExtenderArgs
    sent_names: Names | None
    pod: Pod
    revision: CompiledRevision
    base: Snapshot
    assumed: list[tuple[Pod, str]]
    snapshot: Snapshot
    names: Sequence[str]
    assignment: Assignment | None
    rule_set: CompiledRuleSet | None
    shadows: list[tuple[Assignment, CompiledRuleSet]]
    draws: list[tuple[Assignment, int]]
    all_rows: Rows
    is_seen: bool
    started: float
    until: float
    now: datetime
    suspended_by: Sequence[Suspension] = ()
    action: Action = "decide"
    cause: str = ""

    def end_in_time(self) -> None:
        """Raise DeadlineError when the answer is due. Called before each rule, and by rules while they work."""
        if time.perf_counter() > self.until:
            raise DeadlineError

    def knows_all(self) -> bool:
        """Return whether every name in the call is a known node's."""
        return self.sent_names is not None or not len(self.all_rows) or bool(self.all_rows.min() >= 0)

    def shadows_for(self, verb: str) -> list[tuple[Assignment, CompiledRuleSet]]:
        """Return the rule sets to evaluate after the answer: those in mode shadow, and the enforced one if it has shadow rules."""
        if self.assignment is None or self.rule_set is None:
            return self.shadows
        if not self.rule_set.has_shadows(scoring=verb == "prioritize"):
            return self.shadows
        return [*self.shadows, (self.assignment, self.rule_set)]

    def without_body(self) -> "RequestContext":
        """Return this context without the call's body, which can take megabytes."""
        args = ExtenderArgs(self.args.pod.copy(), nodes=None, node_names=None)
        return msgspec.structs.replace(self, args=args, sent_names=None)

    def rows(self) -> Rows:
        """Return the rows of the call's known nodes, in order."""
        return self.all_rows if self.knows_all() else self.all_rows[self.all_rows >= 0]


class RequestContexts:
    """Makes RequestContexts. One object per process, used by all its threads.

    Args:
        conditions: returns which dependencies work at this moment.
        deadline_seconds: how long an answer may take.
        pass_without_revision: let Pods pass while no Revision was ever read, instead of failing the call.
    """

    def __init__(
        self,
        *,
        revisions: RevisionHolder,
        live: LiveSnapshot,
        in_flight: InFlight,
        conditions: Callable[[], Conditions],
        deadline_seconds: float,
        pass_without_revision: bool = False,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._revisions = revisions
        self._live = live
        self._in_flight = in_flight
        self._conditions = conditions
        self._deadline_seconds = deadline_seconds
        self._without = CompiledRevision(Revision(number=0)) if pass_without_revision else None
        self.clock = clock
        self._full_nodes = FullNodes()
        self._pods = RecentPods()
        self._by_name = ByName()
        self._pins = Pins()

    def first(self, body: Sent) -> RequestContext:
        """Read a call that begins a Pod's cycle: the current Revision answers it.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        context = self._read(body, anew=True)
        self._pins.pin(context.pod.uid, context.revision)
        return context

    def next(self, body: Sent) -> RequestContext:
        """Read a call that continues a Pod's cycle: the Revision that answered the first call answers it.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        return self._read(body, anew=False)

    def answer_names(self, names: Names, passed: npt.NDArray[np.bool_] | None) -> list[bytes]:
        """Write the names that /filter answers with, see `ByName.answer`: they come back with /prioritize."""
        return self._by_name.answer(names, passed)

    def revision_of(self, pod: Pod) -> CompiledRevision:
        """Return the Revision that continues a Pod's cycle.

        Raises:
            NotReadyError: there is none.
        """
        return self._pins.of(pod.uid) or self._current(pod)

    def drop_old_pins(self) -> None:
        """Drop Revisions that no Pod's cycle uses any more. Called every second: there may be no more calls to trigger it."""
        self._pins.drop_old()

    def _current(self, pod: Pod) -> CompiledRevision:
        revision = self._revisions.current or self._without
        if revision is None:
            raise NotReadyError(NO_REVISION, pod)
        return revision

    def until(self, started: float) -> float:
        """Return when the answer to a call is due, both in seconds of `time.perf_counter()`."""
        return started + self._deadline_seconds

    def fallback(self, rule_set: CompiledRuleSet) -> Fallback:
        """Return the rule set's choice under the current conditions, and the cause if it doesn't decide."""
        return choose_fallback(rule_set.failures, self._conditions())

    def require_labels(
        self, pod: Pod, revision: CompiledRevision, now: datetime, *, only_counting: bool = False
    ) -> None:
        """Check that the labels of the Pod's namespace are known, if they can change the answer.

        Args:
            pod: the Pod.
            revision: the Revision that answers.
            now: the current time, as rules see it.
            only_counting: whether only rules that count Pods matter to the answer.

        Raises:
            NotReadyError: they aren't known, so another Assignment may take the Pod, or none.
        """
        if self._live.synced:
            return
        possible = [found and found[1] for found in revision.possible(pod, now)]
        actions = {
            self.fallback(rule_set).action
            if rule_set and (rule_set.only_counting().filters or not only_counting)
            else "pass"
            for rule_set in possible
        }
        if len(possible) > 1 and actions not in ({"pass"}, {"refuse"}):
            raise NotReadyError(NO_SNAPSHOT, pod)

    def _read(self, body: Sent, *, anew: bool, since: float | None = None) -> RequestContext:
        started, now = since or time.perf_counter(), self.clock()
        until, seen = self.until(started), self._live.snapshot()
        asked = self._by_name.read(body, seen.table) if isinstance(body, bytes) else None
        args = asked.args if asked else decode_args(body)
        pod = self._pods.read(args.pod)
        revision = self._current(pod) if anew else self.revision_of(pod)
        self.require_labels(pod, revision, now)
        choice = revision.choose(pod, seen, now)
        assignment, rule_set = choice.enforced or (None, None)
        action, cause = self.fallback(rule_set) if rule_set else Fallback("decide", "")
        is_seen = self._live.synced
        if rule_set is not None and action == "decide":
            if not is_seen:
                raise NotReadyError(NO_SNAPSHOT, pod)
            self._settle(pod, rule_set, until)
        applies = rule_set is not None or (is_seen and bool(choice.shadows))
        base, names, rows = self._look(
            args, asked.names if asked else None, applies=applies, waits=rule_set is not None, anew=anew
        )
        if has_other_labels(pod.namespace, base, seen) and time.perf_counter() < until:
            return self._read(body, anew=anew, since=started)  # meanwhile other rules may apply
        assumed = self._in_flight.placements(pod.uid) if applies else []
        return RequestContext(
            args=args,
            sent_names=asked.names if asked and rows is asked.names.rows else None,
            pod=pod,
            revision=revision,
            base=base,
            assumed=assumed,
            snapshot=base.assume_all(assumed) if assumed and rule_set is not None else base,
            names=names,
            all_rows=rows,
            assignment=assignment,
            rule_set=rule_set,
            shadows=choice.shadows,
            draws=choice.draws,
            is_seen=is_seen,
            started=started,
            until=until,
            now=now,
            suspended_by=choice.suspended_by,
            action=action,
            cause=cause,
        )

    def _settle(self, pod: Pod, rule_set: CompiledRuleSet, until: float) -> None:
        if rule_set.enforced.counts_pods:
            remaining = until - time.perf_counter()
            if not self._in_flight.settle(pod.uid, remaining / 2):
                UNSETTLED.inc()

    def _look(
        self, args: ExtenderArgs, known: Names | None, *, applies: bool, waits: bool, anew: bool
    ) -> tuple[Snapshot, Sequence[str], Rows]:
        """Return the Snapshot to decide on, the names in the call, and their rows. The Snapshot has a full body's own nodes.

        Args:
            args: the call.
            known: its names, if each is a known node's.
            applies: whether any rule set is evaluated.
            waits: whether to wait for unknown names.
            anew: whether the Pod's cycle begins.
        """
        snapshot = self._live.snapshot()
        if args.nodes is not None:
            if applies:
                return self._full_nodes.on(snapshot, args.nodes, anew=anew)
            names: Sequence[str] = self._full_nodes.names(args.nodes)
            return snapshot, names, rows_of(snapshot.table, names)
        names = args.node_names or []
        if known is not None and known.row_of is snapshot.table.row_of:
            return snapshot, names, known.rows
        rows = rows_of(snapshot.table, names)
        if waits and len(rows) and rows.min() < 0 and self._live.wait_for_nodes(names, KNOWN_WITHIN_SECONDS):
            snapshot = self._live.snapshot()
            rows = rows_of(snapshot.table, names)
        return snapshot, names, rows


def has_other_labels(namespace: str, one: Snapshot, other: Snapshot) -> bool:
    """Return whether a Namespace has other labels in one Snapshot than in another."""
    return one.namespaces is not other.namespaces and one.namespace_labels(namespace) != other.namespace_labels(
        namespace
    )
