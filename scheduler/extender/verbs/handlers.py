"""Answers kube-scheduler's verbs from memory: decode, decide, record, encode. Uses no Django request."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.decision import Answer, Choice, CompiledRevision, CompiledRuleSet, decide
from policies.engine.failures import Fallback
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.narrowing import Narrowing, narrowing
from policies.engine.preemption.vetoes import Candidate
from policies.engine.rule import Cycle
from policies.engine.ruleset import Assignment
from policies.engine.status import PASSED, Code, Status
from scheduler.cluster.bind import Target, is_name
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError, APINotFoundError
from scheduler.cluster.handover import CALL_TIMEOUT_SECONDS
from scheduler.cluster.live import LiveSnapshot
from scheduler.decisions.candidates import notes_of_candidates, notes_of_narrowing
from scheduler.decisions.divergence import compare, given, would_be
from scheduler.decisions.record import UNKNOWN_NODE, Entry, NodesEntry, SnapshotEntry, notes_of_suspensions
from scheduler.decisions.recorder import Preemptor, Recorder
from scheduler.extender.request.full_nodes import at
from scheduler.extender.request.host_priorities import lines_of
from scheduler.extender.request.objects import read_pod
from scheduler.extender.request.wire import (
    BindingArgs,
    Sent,
    WireError,
    decode_binding,
    decode_preemption,
    encode_error,
    encode_filter_result,
    encode_names,
    encode_preemption_result,
    encode_priorities,
)
from scheduler.extender.verbs.bind import Binder, Bound, Checked
from scheduler.extender.verbs.context import NotReadyError, RequestContext, RequestContexts
from scheduler.extender.verbs.in_flight import InFlight
from scheduler.extender.verbs.preempt import deadline, keep_all, keep_none, read_candidates
from scheduler.extender.verbs.verdict_metrics import VERDICTS
from scheduler.metrics import DEADLINE_MISSES, FALLBACKS, TOO_LARGE
from scheduler.serving.shadows import GiveWay, Shadows, subject_of

GONE = "the Pod is gone"
UNREADABLE = "Berth can't read the Pod from the API server"
# How long a Revision waits at most for the columns of its new rule sets.
WARM_SECONDS = 2.0


class Reply(msgspec.Struct):
    """An answer's body, whole or in pieces, and the Decision's id in the history; "" if none was recorded."""

    body: bytes | list[bytes]
    decision: str = ""


class VerbHandlers:
    """Answers the verbs. One object per process, used by all its threads."""

    def __init__(
        self,
        *,
        contexts: RequestContexts,
        live: LiveSnapshot,
        in_flight: InFlight,
        binder: Binder,
        client: Client,
        recorder: Recorder,
        shadows: Shadows,
    ) -> None:
        self._contexts = contexts
        self._live = live
        self._in_flight = in_flight
        self._binder = binder
        self._client = client
        self._recorder = recorder
        self._shadows = shadows
        live.subscribe(in_flight.observe)

    def filter(self, body: Sent) -> Reply:
        """Answer /filter.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        try:
            context = self._contexts.first(body)
        except NotReadyError as error:
            raise self._recorded(error, "filter") from None
        if context.rule_set is None or context.assignment is None:
            decision = self._record_passed(context, "filter")
            self._offer_shadows(context, "filter", None, decision)
            self._in_flight.passed(context.pod, _only(context.names), context.args.pod)
            return Reply(self._pass_all(context), decision)
        answer, decision = self._answer(context, context.assignment, context.rule_set, verb="filter")
        self._offer_shadows(context, "filter", answer, decision)
        feasible = answer.feasible_count
        if feasible:
            self._in_flight.passed(context.pod, _only(answer.feasible) if feasible == 1 else "", context.args.pod)
        else:
            self._in_flight.refused(context.pod.uid)
        return Reply(self._encode_filter(context, answer), decision)

    def prioritize(self, body: Sent) -> Reply:
        """Answer /prioritize, by the Revision that filtered the Pod.

        A Pod that no Assignment matches gets no scores at all: scores of 0 would make kube-scheduler break ties at
        random, which it doesn't do without Berth.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        try:
            context = self._contexts.next(body)
        except NotReadyError as error:
            raise self._recorded(error, "prioritize") from None
        if context.rule_set is None or context.assignment is None:
            decision = self._record_passed(context, "prioritize")
            self._offer_shadows(context, "prioritize", None, decision)
            return Reply(encode_priorities([], []), decision)
        answer, decision = self._answer(context, context.assignment, context.rule_set, verb="prioritize")
        self._offer_shadows(context, "prioritize", answer, decision)
        self._in_flight.scored(context.pod.uid, _clearly_best(answer))
        return Reply(_encode_priorities(context, answer), decision)

    def bind(self, body: Sent) -> Reply:
        """Answer /bind: bind the Pod.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        started = time.perf_counter()
        target = _target_of(decode_binding(body))
        try:
            pod = self._in_flight.pod(target.uid) or self._read_pod(target)
            revision, now = self._contexts.revision_of(pod), self._contexts.clock()
            self._contexts.require_labels(pod, revision, now, only_counting=True)
        except NotReadyError as error:
            raise self._recorded(error, "bind") from None
        seen = self._live.snapshot()
        choice = revision.choose(pod, seen, now)
        rule_set = choice.enforced[1] if choice.enforced else None
        asked = _BindAsked(pod, target.node_name, now, revision, choice, started)

        def record(checked: Checked) -> str:
            entry = asked.entry(checked)
            self._recorder.record(entry)
            return entry.id

        bound = self._binder.bind(pod, target, rule_set, seen=seen, now=now, record=record)
        if not bound.error:
            return Reply(encode_error(""), bound.decision)
        entry = asked.refusal(bound)
        self._recorder.record(entry)
        return Reply(encode_error(bound.error), entry.id)

    def preempt(self, body: Sent) -> Reply:
        """Answer /preempt: keep the candidates that the rules allow, as they are.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        started = time.perf_counter()
        args = decode_preemption(body)
        pod = read_pod(args.pod)
        try:
            revision, now = self._contexts.revision_of(pod), self._contexts.clock()
            self._contexts.require_labels(pod, revision, now)
        except NotReadyError as error:
            raise self._recorded(error, "preempt") from None
        snapshot = self._live.snapshot()
        choice = revision.choose(pod, snapshot, now)
        assignment, rule_set = choice.enforced or (None, None)
        action, cause = self._contexts.fallback(rule_set) if rule_set else Fallback("decide", "")
        if rule_set is None or action == "pass":
            narrowed = keep_all(args.candidates)
        elif action == "refuse":
            narrowed = keep_none(args.candidates)
        else:
            candidates = read_candidates(snapshot, args.candidates)
            narrowed = self._narrow(pod, rule_set, snapshot, candidates, now, started)
        fallback = {} if action == "decide" else {"fallback": action, "cause": cause}
        entry = SnapshotEntry(
            verb="preempt",
            pod=pod,
            pod_json=args.pod,
            now=now,
            duration_microseconds=_microseconds_since(started),
            revision=revision,
            assignment=assignment,
            rule_set=rule_set,
            draws=choice.draws,
            notes=notes_of_narrowing(narrowed)
            | notes_of_candidates(args.candidates)
            | fallback
            | notes_of_suspensions(choice.suspended_by),
            nodes=len(args.candidates),
            feasible=len(narrowed.kept),
            top_reason=narrowed.top_reason,
            snapshot=snapshot,
        )
        self._recorder.record(entry)
        nodes = set(narrowed.kept)
        kept = [each for each in args.candidates if each.node in nodes]
        victims = [victim.uid for each in kept for victim in each.victims]
        self._recorder.expect_preemption(victims, Preemptor(pod.uid, pod.namespace, pod.name, entry.id))
        return Reply(encode_preemption_result(kept), entry.id)

    def warm(self, revision: CompiledRevision, rest: Callable[[], None]) -> None:
        """Decide once by each new rule set, so that its columns exist before the first call.

        If that takes long, the rest is left to the first calls: a publish should take effect soon.
        """
        self._live.snapshot().table.placed()  # where each Pod is: `assume_all` reads it
        until = time.monotonic() + WARM_SECONDS
        for rule_set in revision.to_warm:
            if time.monotonic() > until:
                return
            snapshot = self._live.snapshot()
            cycle = Cycle(pod=Pod.from_json({}), snapshot=snapshot, now=self._contexts.clock(), params=rule_set.params)
            decide(rule_set, cycle, snapshot.table.all_rows(), whole=True)
            rest()

    def _read_pod(self, target: Target) -> Pod:
        """Read a Pod that another process filtered.

        Raises:
            NotReadyError: the Pod can't be read, or another one has its name now.
        """
        try:
            pod = read_pod(msgspec.Raw(self._client.get(path=target.path, timeout_seconds=CALL_TIMEOUT_SECONDS)))
        except APINotFoundError as error:
            raise NotReadyError(GONE) from error
        except (APIError, WireError) as error:
            raise NotReadyError(UNREADABLE) from error
        if pod.uid != target.uid:
            raise NotReadyError(GONE)
        return pod

    def _narrow(
        self,
        pod: Pod,
        rule_set: CompiledRuleSet,
        snapshot: Snapshot,
        candidates: Sequence[Candidate],
        now: datetime,
        started: float,
    ) -> Narrowing:
        end_in_time = deadline(self._contexts.until(started))
        found = narrowing(rule_set, pod, snapshot, candidates, now, end_in_time=end_in_time)
        if found.timed_out:
            DEADLINE_MISSES.labels(rule_set.name).inc()
        if found.met_too_large:
            TOO_LARGE.labels(rule_set.name).inc()
        return found

    def _answer(
        self, context: RequestContext, assignment: Assignment, rule_set: CompiledRuleSet, *, verb: str
    ) -> tuple[Answer, str]:
        """Return the rule set's answer, or its fallback while a dependency is unavailable, with the Decision's id."""
        if context.action == "decide":
            return self._decide(context, assignment, rule_set, verb=verb)
        FALLBACKS.labels(rule_set.name, context.cause, context.action).inc()
        answer = Answer(context.names)
        if context.action == "refuse":
            answer.refusals = [Status(Code.UNRESOLVABLE, context.cause)]
            answer.refusal[:] = 0
        if verb == "prioritize":
            answer.scored = np.arange(len(context.names))
            answer.points = np.zeros(len(context.names), dtype=np.int64)
        decision = self._record(context, assignment, rule_set, answer, verb=verb)
        return answer, decision

    def _offer_shadows(self, context: RequestContext, verb: str, answer: Answer | None, decision: str) -> None:
        """Queue shadows to be evaluated on the same input once the answer is sent; not if no rules are evaluated at all.

        Args:
            context: the call.
            verb: the call's verb.
            answer: the answer to compare them with; None if no Assignment matches the Pod.
            decision: the answer's id in the history.
        """
        shadows = context.shadows_for(verb)
        if not shadows:
            return
        # Without room, nothing is prepared only to be dropped: under a constant stream of calls, most shadows are dropped.
        if context.action != "decide" or not context.is_seen or not self._shadows.has_room:
            self._shadows.pass_over(context.revision, verb, shadows)
            return
        kept = _Kept(context.without_body(), verb, answer, decision)
        for assignment, rule_set in shadows:
            subject = subject_of(context.revision, assignment, rule_set, verb)
            self._shadows.offer(subject, partial(_shadow, kept, assignment, rule_set))

    def _decide(
        self, context: RequestContext, assignment: Assignment, rule_set: CompiledRuleSet, *, verb: str
    ) -> tuple[Answer, str]:
        cycle = Cycle(
            pod=context.pod,
            snapshot=context.snapshot,
            now=context.now,
            params=rule_set.params,
            give_way=context.end_in_time,
            end_in_time=context.end_in_time,
        )
        scoring = verb == "prioritize"
        # The nodes of /prioritize have passed all filters: all of them are scored.
        answer = decide(rule_set.enforced, cycle, context.rows(), scoring=scoring, filtering=not scoring)
        if answer.timed_out:
            DEADLINE_MISSES.labels(rule_set.name).inc()
        if answer.met_too_large:
            TOO_LARGE.labels(rule_set.name).inc()
        VERDICTS.count(rule_set, answer)
        return answer, self._record(context, assignment, rule_set, answer, verb=verb)

    def _pass_all(self, context: RequestContext) -> list[bytes]:
        return self._write_filter(context, None, None, {}, {})

    def _encode_filter(self, context: RequestContext, answer: Answer) -> list[bytes]:
        """Write the answer for each node of the call, as names or nodes as in the call."""
        passed = answer.refusal == PASSED
        passing, refused = passed.nonzero()[0], (~passed).nonzero()[0]
        names, codes = context.names, answer.refusal[refused].tolist()
        if len(passing) == len(names):
            return self._pass_all(context)
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        said = [
            (failed if refusal.code is Code.UNSCHEDULABLE else unresolvable, refusal.reason)
            for refusal in answer.refusals
        ]
        if not _is_about_all(context, answer):
            known = _known_positions(context)
            passing, refused = known[passing], known[refused]
        for name, code in zip(at(names, refused), codes, strict=True):
            reasons, reason = said[code]
            reasons[name] = reason
        if len(passed) < len(names):
            failed |= dict.fromkeys(_unknown_names(context), UNKNOWN_NODE.reason)
        return self._write_filter(context, passing, passed, failed, unresolvable)

    def _write_filter(
        self,
        context: RequestContext,
        passing: npt.NDArray[np.intp] | None,
        passed: npt.NDArray[np.bool_] | None,
        failed: dict[str, str],
        unresolvable: dict[str, str],
    ) -> list[bytes]:
        """Write /filter's answer. `passing`: the positions of nodes that passed, None for all; `passed`: the same as a mask."""
        nodes, names = context.args.nodes, [b"[]"]
        if context.sent_names is not None:
            names = self._contexts.answer_names(context.sent_names, passed)
        elif nodes is None:
            names = encode_names(list(context.names) if passing is None else at(context.names, passing))
        return encode_filter_result(
            nodes=None if nodes is None else nodes.at(passing),
            names=names,
            failed=failed,
            unresolvable=unresolvable,
        )

    def _record(
        self,
        context: RequestContext,
        assignment: Assignment,
        rule_set: CompiledRuleSet,
        answer: Answer,
        *,
        verb: str,
    ) -> str:
        common = _asked(context, verb) | {"assignment": assignment, "rule_set": rule_set}
        if context.action == "decide":
            entry: Entry = NodesEntry(
                **common,
                **_about_nodes(context),
                answer=answer,
                assumed=context.assumed,
                notes=_notes(context, {"missed": answer.missed} if answer.timed_out else {}),
            )
        else:
            entry = Entry(
                **common,
                error=context.cause,
                notes=_notes(context, {"fallback": context.action, "cause": context.cause}),
                nodes=len(context.names),
                feasible=answer.feasible_count,
                top_reason=answer.top_reason(),
            )
        self._recorder.record(entry)
        return entry.id

    def _record_passed(self, context: RequestContext, verb: str) -> str:
        """Record that all nodes pass: no Assignment matches the Pod, or a Pause suspends all of its rules."""
        entry = NodesEntry(**_asked(context, verb), **_about_nodes(context), notes=_notes(context, {}))
        self._recorder.record(entry)
        return entry.id

    def _recorded(self, error: NotReadyError, verb: str) -> NotReadyError:
        """Record that there was no answer, if the Pod is known."""
        if error.pod is not None:
            entry = Entry(verb=verb, pod=error.pod, now=self._contexts.clock(), error=str(error))
            self._recorder.record(entry)
            error.decision = entry.id
        return error


def _asked(context: RequestContext, verb: str) -> dict[str, Any]:
    return {
        "verb": verb,
        "pod": context.pod,
        "pod_json": context.args.pod,
        "now": context.now,
        "revision": context.revision,
        "draws": context.draws,
        "duration_microseconds": _microseconds_since(context.started),
    }


def _notes(context: RequestContext, notes: dict[str, Any]) -> dict[str, Any]:
    """Return the notes of a Decision, with the suspensions of rules."""
    return notes | notes_of_suspensions(context.suspended_by) if context.suspended_by else notes


def _about_nodes(context: RequestContext) -> dict[str, Any]:
    return {"snapshot": context.base, "names": context.names, "rows": context.all_rows}


class _Kept(NamedTuple):
    """The input of a shadow that is evaluated after the answer: the call, its verb and the answer."""

    context: RequestContext
    verb: str
    answer: Answer | None
    decision: str


def _shadow(kept: _Kept, assignment: Assignment, rule_set: CompiledRuleSet, give_way: GiveWay) -> Entry:
    """Decide by a rule set in mode shadow, or by the enforced one with its shadow rules, on the answer's input."""
    context, verb = kept.context, kept.verb
    snapshot = context.base.assume_all(context.assumed) if context.assumed else context.base
    cycle = Cycle(pod=context.pod, snapshot=snapshot, now=context.now, params=rule_set.params, give_way=give_way)
    scoring = verb == "prioritize"
    answer = decide(rule_set, cycle, context.rows(), scoring=scoring, filtering=not scoring)
    is_inside = rule_set is context.rule_set
    VERDICTS.count(rule_set, answer, only_shadows=is_inside)
    shadow = would_be(answer, is_inside=is_inside, is_exact=False)
    return NodesEntry(
        **(_asked(context, verb) | _about_nodes(context)),
        mode="shadow",
        assignment=assignment,
        rule_set=rule_set,
        answer=answer,
        assumed=context.assumed,
        notes=_notes(context, {"answered": kept.decision, "inside": is_inside}),
        divergence=compare(given(kept.answer, len(answer.refusal)), shadow),
    )


def _target_of(args: BindingArgs) -> Target:
    """Return the Pod and the node of a binding.

    Raises:
        WireError: with the members that aren't valid names: they would become part of a path.
    """
    named = {"PodName": args.pod_name, "PodNamespace": args.pod_namespace, "Node": args.node}
    wrong = [member for member, name in named.items() if not is_name(name)]
    if wrong:
        message = f"{', '.join(wrong)} of ExtenderBindingArgs: must be a valid Kubernetes name, of lowercase letters, digits, - and ."
        raise WireError(message)
    return Target(args.pod_namespace, args.pod_name, args.pod_uid, args.node)


class _BindAsked(NamedTuple):
    """A call of /bind."""

    pod: Pod
    node_name: str
    now: datetime
    revision: CompiledRevision
    choice: Choice
    started: float

    def entry(self, checked: Checked) -> Entry:
        """Return the record made before the Pod is bound: that the node was checked, and the rules' answer."""
        common = self._common(checked)
        if checked.fallback:
            # The rules weren't evaluated, and the Pod is bound anyway.
            notes = common.pop("notes") | {"fallback": checked.fallback, "cause": checked.cause}
            return Entry(**common, notes=notes, nodes=1, feasible=1, best=self.node_name, error=checked.cause)
        return self._of_nodes(common, checked, best=self.node_name)

    def refusal(self, bound: Bound) -> Entry:
        """Return the record of a Pod that wasn't bound."""
        common = self._common(bound.checked) | {"error": bound.error}
        if bound.decision:
            # The binding was sent to the API server: that Decision has the rules' answer.
            return Entry(**common | {"notes": common["notes"] | {"follows": bound.decision}}, nodes=1)
        if bound.checked is None:
            return Entry(**common, nodes=1)
        if bound.checked.fallback:
            notes = common.pop("notes") | {"fallback": bound.checked.fallback, "cause": bound.checked.cause}
            return Entry(**common, notes=notes, nodes=1)
        return self._of_nodes(common, bound.checked)

    def _of_nodes(self, common: dict[str, Any], checked: Checked, best: str = "") -> Entry:
        return NodesEntry(
            **common,
            best=best,
            snapshot=checked.snapshot,
            names=[self.node_name],
            answer=checked.answer,
            assumed=checked.assumed,
        )

    def _common(self, checked: Checked | None) -> dict[str, Any]:
        assignment, rule_set = self.choice.enforced or (None, None)
        counted = checked.refused if checked is not None else []
        return {
            "verb": "bind",
            "pod": self.pod,
            "now": self.now,
            "duration_microseconds": _microseconds_since(self.started),
            "revision": self.revision,
            "assignment": assignment,
            "rule_set": rule_set,
            "draws": self.choice.draws,
            "notes": {"node": self.node_name, "counted": counted} | notes_of_suspensions(self.choice.suspended_by),
        }


def _microseconds_since(started: float) -> int:
    return int((time.perf_counter() - started) * 1_000_000)


def _only(names: Sequence[str]) -> str:
    """Return the only node that kube-scheduler can choose; "" when there are more."""
    return names[0] if len(names) == 1 else ""


def _clearly_best(answer: Answer) -> str:
    """Return the node with more points than every other; "" on a tie."""
    if not len(answer.points):
        return ""
    most = answer.are_best.nonzero()[0]
    return answer.name_at(int(answer.scored[most[0]])) if len(most) == 1 else ""


def _encode_priorities(context: RequestContext, answer: Answer) -> bytes | list[bytes]:
    """Return the points of each node in the call; an unknown node has none."""
    points = answer.points
    if not _is_about_all(context, answer):
        points = np.zeros(len(context.names), dtype=np.int64)
        points[_known_positions(context)] = answer.points
    lines = lines_of(context.base.table) if context.knows_all() else None
    return lines.encode(context.all_rows, points) if lines else encode_priorities(context.names, points.tolist())


def _is_about_all(context: RequestContext, answer: Answer) -> bool:
    """Return whether the answer also covers unknown names, as a fallback does."""
    return len(answer.refusal) == len(context.names)


def _known_positions(context: RequestContext) -> npt.NDArray[np.intp]:
    return np.flatnonzero(context.all_rows >= 0)


def _unknown_names(context: RequestContext) -> list[str]:
    return [context.names[position] for position in np.flatnonzero(context.all_rows < 0).tolist()]
