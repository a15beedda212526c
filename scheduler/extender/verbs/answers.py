"""Answering kube-scheduler's verbs from memory: decode, decide, record, encode. No Django request in sight."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Assignment
from policies.engine.status import PASSED, Code, Status
from scheduler.cluster.bind import Target
from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIError, APINotFoundError
from scheduler.cluster.live import LiveSnapshot, PodEvent
from scheduler.decisions.record import entry_of
from scheduler.decisions.recorder import Recorder
from scheduler.extender.request.full_nodes import at
from scheduler.extender.request.host_priorities import lines_of
from scheduler.extender.request.objects import read_pod
from scheduler.extender.request.wire import (
    PreemptionArgs,
    Sent,
    WireError,
    decode_binding,
    decode_preemption,
    encode_binding_result,
    encode_filter_result,
    encode_names,
    encode_preemption_result,
    encode_priorities,
)
from scheduler.extender.verbs.bind import BIND_TIMEOUT_SECONDS, Binder
from scheduler.extender.verbs.context import NotReadyError, Question, Questions
from scheduler.extender.verbs.in_flight import Ledger
from scheduler.extender.verbs.preempt import NOT_NOW, Narrowing, keep_all, keep_none, narrowing
from scheduler.extender.verbs.verdict_metrics import VERDICTS
from scheduler.metrics import DEADLINE_MISSES, FALLBACKS
from scheduler.serving.process import record_fate

UNKNOWN_NODE = Status(Code.UNSCHEDULABLE, "node is not known to Berth yet")
GONE = "the Pod is gone"
UNREADABLE = "Berth can't read the Pod from the API server"


class Reply(msgspec.Struct):
    """An answer's body, whole or in pieces, and the Decision's id in the history; "" where none was recorded."""

    body: bytes | list[bytes]
    decision: str = ""


class Answers:
    """Answers the verbs. One object a process, used by all its threads."""

    def __init__(
        self,
        *,
        questions: Questions,
        live: LiveSnapshot,
        ledger: Ledger,
        binder: Binder,
        client: Client,
        recorder: Recorder,
    ) -> None:
        self._questions = questions
        self._live = live
        self._ledger = ledger
        self._binder = binder
        self._client = client
        self._recorder = recorder
        live.subscribe(self._observe)

    def filter(self, body: Sent) -> Reply:
        """Answer /filter.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        try:
            question = self._questions.first(body)
        except NotReadyError as error:
            raise self._recorded(error, "filter") from None
        self._decide_shadows(question, "filter")
        if question.rule_set is None or question.assignment is None:
            decision = self._record_passed(question, "filter")
            self._ledger.passed(question.pod, _only(question.names))
            return Reply(self._pass_all(question), decision)
        answer, decision = self._answer(question, question.assignment, question.rule_set, verb="filter")
        feasible = answer.feasible_count
        if feasible:
            self._ledger.passed(question.pod, _only(answer.feasible) if feasible == 1 else "")
        else:
            self._ledger.refused(question.pod.uid)
        return Reply(self._encode_filter(question, answer), decision)

    def prioritize(self, body: Sent) -> Reply:
        """Answer /prioritize, by the Revision that filtered the Pod.

        A Pod that no Assignment takes gets no score at all: a score of 0 would make kube-scheduler break ties by
        chance, where without Berth it doesn't.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        try:
            question = self._questions.next(body)
        except NotReadyError as error:
            raise self._recorded(error, "prioritize") from None
        self._decide_shadows(question, "prioritize")
        if question.rule_set is None or question.assignment is None:
            return Reply(encode_priorities([], []), self._record_passed(question, "prioritize"))
        answer, decision = self._answer(question, question.assignment, question.rule_set, verb="prioritize")
        self._ledger.scored(question.pod.uid, _clearly_best(answer))
        return Reply(_encode_priorities(question, answer), decision)

    def bind(self, body: Sent) -> Reply:
        """Answer /bind: bind the Pod.

        Raises:
            WireError: the body isn't one of kube-scheduler's.
            NotReadyError: there is nothing to answer with.
        """
        started = time.perf_counter()
        args = decode_binding(body)
        try:
            target = Target(args.pod_namespace, args.pod_name, args.pod_uid, args.node)
        except ValueError as error:
            message = f"the body names something that is {error}"
            raise WireError(message) from error
        try:
            pod = self._ledger.pod(target.uid) or self._read_pod(target)
            revision = self._questions.revision_of(pod)
        except NotReadyError as error:
            raise self._recorded(error, "bind") from None
        assignment, rule_set = revision.choose(pod, self._live.snapshot()).enforced or (None, None)
        bound = self._binder.bind(pod, target, rule_set)
        entry = entry_of(
            verb="bind",
            pod=pod,
            now=self._questions.clock(),
            duration_microseconds=_microseconds_since(started),
            error=bound.error,
            revision=revision,
            assignment=assignment,
            rule_set=rule_set,
            notes={"node": target.node_name, "counted": bound.counted},
        )
        entry.nodes, entry.feasible, entry.best = 1, *((0, "") if bound.error else (1, target.node_name))
        self._recorder.record(entry)
        return Reply(encode_binding_result(bound.error), entry.id)

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
            revision = self._questions.revision_of(pod)
        except NotReadyError as error:
            raise self._recorded(error, "preempt") from None
        assignment, rule_set = revision.choose(pod, self._live.snapshot()).enforced or (None, None)
        narrowed = self._narrow(pod, args, rule_set, started)
        entry = entry_of(
            verb="preempt",
            pod=pod,
            pod_json=args.pod,
            now=self._questions.clock(),
            duration_microseconds=_microseconds_since(started),
            revision=revision,
            assignment=assignment,
            rule_set=rule_set,
            notes=msgspec.to_builtins(narrowed),
        )
        entry.nodes, entry.feasible, entry.top_reason = len(args.victims), len(narrowed.kept), narrowed.top_reason
        self._recorder.record(entry)
        kept = [
            (node, [victim.uid for victim in args.victims[node].pods], args.victims[node].pdb_violations)
            for node in narrowed.kept
        ]
        return Reply(encode_preemption_result(kept), entry.id)

    def warm(self, revision: CompiledRevision) -> None:
        """Decide once by each rule set, so that its columns are there before the first Pod is asked about."""
        snapshot = self._live.snapshot()
        snapshot.table.placed()  # where each Pod is: what `assume_all` asks
        for rule_set in revision.rule_sets.values():
            cycle = self._questions.cycle(Pod.from_json({}), snapshot, rule_set)
            decide(rule_set, cycle, snapshot.table.all_rows(), whole=True)

    def serving(self, revision: CompiledRevision) -> None:
        """Take notice of the Revision that is served from now on."""
        VERDICTS.forget_others(revision)

    def _observe(self, event: PodEvent) -> None:
        self._ledger.observe(event)
        record_fate(self._recorder, event)

    def _read_pod(self, target: Target) -> Pod:
        """Read a Pod that another process was asked about.

        Raises:
            NotReadyError: it can't be read.
        """
        try:
            return read_pod(msgspec.Raw(self._client.get(path=target.path, timeout_seconds=BIND_TIMEOUT_SECONDS)))
        except APINotFoundError as error:
            raise NotReadyError(GONE) from error
        except (APIError, WireError) as error:
            raise NotReadyError(UNREADABLE) from error

    def _narrow(self, pod: Pod, args: PreemptionArgs, rule_set: CompiledRuleSet | None, started: float) -> Narrowing:
        action = self._questions.fallback(rule_set)[0] if rule_set else "pass"
        if rule_set is None or action == "pass":
            return keep_all(args)
        if action == "refuse":
            return keep_none(args, NOT_NOW)
        until = self._questions.until(started)
        return narrowing(args, pod, rule_set, live=self._live, questions=self._questions, until=until)

    def _answer(
        self, question: Question, assignment: Assignment, rule_set: CompiledRuleSet, *, verb: str
    ) -> tuple[Answer, str]:
        """Decide, or give what the rule set chose for the case that Berth can't know. Gives the Decision's id as well."""
        if question.action == "decide":
            return self._decide(question, assignment, rule_set, verb=verb, mode="enforce")
        FALLBACKS.labels(rule_set.name, question.cause, question.action).inc()
        answer = Answer(question.names)
        if question.action == "refuse":
            answer.refusals = [Status(Code.UNRESOLVABLE, question.cause)]
            answer.refusal[:] = 0
        if verb == "prioritize":
            answer.scored = np.arange(len(question.names))
            answer.points = np.zeros(len(question.names), dtype=np.int64)
        decision = self._record(
            question, assignment, rule_set, answer, self._questions.clock(), verb=verb, mode="enforce"
        )
        return answer, decision

    def _decide_shadows(self, question: Question, verb: str) -> None:
        for assignment, rule_set in question.shadows:
            self._decide(question, assignment, rule_set, verb=verb, mode="shadow")

    def _decide(
        self, question: Question, assignment: Assignment, rule_set: CompiledRuleSet, *, verb: str, mode: str
    ) -> tuple[Answer, str]:
        cycle = self._questions.cycle(question.pod, question.snapshot, rule_set)
        scoring = verb == "prioritize"
        # What /prioritize is asked about has passed all filters: it is scored whole.
        answer = decide(
            rule_set, cycle, question.rows(), scoring=scoring, filtering=not scoring, deadline=question.time_is_up
        )
        if answer.timed_out:
            DEADLINE_MISSES.labels(rule_set.name).inc()
        VERDICTS.count(rule_set, answer)
        return answer, self._record(question, assignment, rule_set, answer, cycle.now, verb=verb, mode=mode)

    def _pass_all(self, question: Question) -> list[bytes]:
        return self._write_filter(question, None, None, {}, {})

    def _encode_filter(self, question: Question, answer: Answer) -> list[bytes]:
        """Answer each node that was asked about by name, in the form that it was asked in."""
        known = np.arange(len(question.names)) if _is_about_all(question, answer) else _known_positions(question)
        passed = answer.refusal == PASSED
        passing = known[passed]
        if len(passing) == len(question.names):
            return self._pass_all(question)
        names = question.names
        failed: dict[str, str] = {}
        unresolvable: dict[str, str] = {}
        for name, code in zip(at(names, known[~passed]), answer.refusal[~passed].tolist(), strict=True):
            refusal = answer.refusals[code]
            (failed if refusal.code is Code.UNSCHEDULABLE else unresolvable)[name] = refusal.reason
        if len(known) < len(names):
            failed |= dict.fromkeys(_unknown_names(question), UNKNOWN_NODE.reason)
        return self._write_filter(question, passing, passed, failed, unresolvable)

    def _write_filter(
        self,
        question: Question,
        passing: npt.NDArray[np.intp] | None,
        passed: npt.NDArray[np.bool_] | None,
        failed: dict[str, str],
        unresolvable: dict[str, str],
    ) -> list[bytes]:
        """Write /filter's answer. `passing` are the positions of nodes that passed, None for all; `passed` tells it of each."""
        nodes, names = question.args.nodes, [b"[]"]
        if question.sent_names is not None:
            names = self._questions.answer_names(question.sent_names, passed)
        elif nodes is None:
            names = encode_names(list(question.names) if passing is None else at(question.names, passing))
        return encode_filter_result(
            nodes=None if nodes is None else nodes.at(passing),
            names=names,
            failed=failed,
            unresolvable=unresolvable,
        )

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
    ) -> str:
        notes: dict[str, Any] = {"missed": answer.missed} if answer.timed_out else {}
        if question.action != "decide":
            notes = {"fallback": question.action, "cause": question.cause}
        entry = entry_of(
            verb=verb,
            pod=question.pod,
            pod_json=question.args.pod,
            now=now,
            mode=mode,
            error=question.cause if question.action != "decide" else "",
            revision=question.revision,
            assignment=assignment,
            rule_set=rule_set,
            snapshot=question.base if question.action == "decide" else None,
            names=question.names,
            rows=question.all_rows,
            answer=answer,
            assumed=question.assumed,
            duration_microseconds=_microseconds_since(question.started),
            notes=notes,
        )
        if question.action != "decide":
            entry.nodes, entry.feasible, entry.top_reason = (
                len(question.names),
                answer.feasible_count,
                answer.top_reason(),
            )
        self._recorder.record(entry)
        return entry.id

    def _record_passed(self, question: Question, verb: str) -> str:
        """Record that no Assignment takes the Pod, so that all nodes pass."""
        entry = entry_of(
            verb=verb,
            pod=question.pod,
            pod_json=question.args.pod,
            now=self._questions.clock(),
            revision=question.revision,
            snapshot=question.base,
            names=question.names,
            duration_microseconds=_microseconds_since(question.started),
        )
        self._recorder.record(entry)
        return entry.id

    def _recorded(self, error: NotReadyError, verb: str) -> NotReadyError:
        """Record that there was no answer, where it is known for which Pod."""
        if error.pod is not None:
            entry = entry_of(verb=verb, pod=error.pod, now=self._questions.clock(), error=str(error))
            self._recorder.record(entry)
            error.decision = entry.id
        return error


def _microseconds_since(started: float) -> int:
    return int((time.perf_counter() - started) * 1_000_000)


def _only(names: Sequence[str]) -> str:
    """Return the one node that kube-scheduler can choose; "" when there are more."""
    return names[0] if len(names) == 1 else ""


def _clearly_best(answer: Answer) -> str:
    """Return the node with more points than every other; "" when several have as many."""
    if not len(answer.points):
        return ""
    most = np.flatnonzero(answer.points == answer.points.max())
    return answer.name_at(int(answer.scored[most[0]])) if len(most) == 1 else ""


def _encode_priorities(question: Question, answer: Answer) -> bytes | list[bytes]:
    """Return each node that was asked about its points; one that isn't known has none."""
    points = answer.points
    if not _is_about_all(question, answer):
        points = np.zeros(len(question.names), dtype=np.int64)
        points[_known_positions(question)] = answer.points
    lines = lines_of(question.base.table) if question.knows_all() else None
    return lines.encode(question.all_rows, points) if lines else encode_priorities(question.names, points.tolist())


def _is_about_all(question: Question, answer: Answer) -> bool:
    """Return whether the answer is about the names that aren't known too, as one that was chosen beforehand is."""
    return len(answer.refusal) == len(question.names)


def _known_positions(question: Question) -> npt.NDArray[np.intp]:
    return np.flatnonzero(question.all_rows >= 0)


def _unknown_names(question: Question) -> list[str]:
    return [question.names[position] for position in np.flatnonzero(question.all_rows < 0).tolist()]
