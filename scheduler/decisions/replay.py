"""Replays recorded Decisions: the same Snapshot, rebuilt, with the same Revision and time must give the same answer.

The result is compared with the record: each rule's verdicts and scores, and the digest of the answer.
"""

import copy
from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from policies.engine.decision import Answer, Choice, CompiledRevision, CompiledRuleSet, decide, stop_before
from policies.engine.errors import ExpressionError, ObjectError
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.narrowing import Narrowing, narrowing
from policies.engine.preemption.vetoes import Candidate
from policies.engine.rule import Cycle, Filter, go_on
from policies.engine.ruleset import Assignment, FilterRule, Revision
from policies.engine.scheduling import ALWAYS_ASKED, default_profile, find_best, judge, with_default_filters
from policies.publishing import known_digests, load_revision
from scheduler.decisions.candidates import SentCandidate, candidates_on, notes_of_narrowing, read_candidates
from scheduler.decisions.columns import StoredAnswer, store_answer
from scheduler.decisions.masking import FAULT, NOTE, is_same_but_masked, masked_faults, may_matter
from scheduler.decisions.node_names import NodeNames, names_of
from scheduler.decisions.rebuilding import ReplayError, Snapshots, pod_of, recorded_body_of, recorded_names
from scheduler.decisions.record import SUSPENDED_BY, Body, canaries_of, meaning_of, notes_of_suspensions
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import Decision

_NO_CANDIDATES = "the candidates that kube-scheduler sent are not recorded"
# The most masked names in a message.
_MOST_NAMED = 8
_NOT_CHECKED = "no rule was asked before this binding, or what they saw is not recorded"


class OtherAssignmentError(ReplayError):
    """The Assignment that took the Pod doesn't take the recorded Pod."""


class Replayed(msgspec.Struct, kw_only=True):
    """The result of a replay. `differences` says in words where it differs; `ok` if nowhere."""

    ok: bool
    differences: list[str]
    # The replayed answer; None if there was nothing to decide.
    answer: Answer | None = None


class Replays:
    """Replays many Decisions; data that several need is read once. They cost least in the order of their sequences.

    With a limit, a Decision whose rules take longer can't be replayed.
    """

    def __init__(self, limit: TimeLimit | None = None) -> None:
        self._limit = limit
        self.snapshots = Snapshots()
        self._revisions: dict[int, tuple[frozenset[str], CompiledRevision]] = {}

    def replay(self, decision: Decision) -> Replayed:
        """Decide again, and compare.

        Raises:
            ReplayError: an input is missing, or the result differs and masked values may be the reason.
        """
        body = recorded_body_of(decision)
        try:
            found = self._replay(decision, body)
        except OtherAssignmentError as error:
            if masked := self._masked_of_its_own(decision, body):
                raise ReplayError(masked) from error
            raise
        if not found.ok and (masked := self._masked_of_its_own(decision, body)):
            raise ReplayError(masked)
        differences = [*found.differences, *_different_subject(decision, body)]
        return msgspec.structs.replace(found, ok=not differences, differences=differences)

    def _masked_of_its_own(self, decision: Decision, body: Body) -> str:
        return self.masked(decision, body, self.revision_of(decision, body).rule_sets.get(decision.rule_set))

    def masked(self, decision: Decision, body: Body, rule_set: CompiledRuleSet | None) -> str:
        """Return the masked names that a rule set's answer, or the choice of a rule set, may depend on; "" for none."""
        masked = set(body.notes.get(NOTE, ()))
        if decision.chain:
            masked |= self.snapshots.masked_of(decision)
        names = may_matter(masked, rule_set)
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return f"masked before it was stored: {', '.join(names[:_MOST_NAMED])}{more}" if names else ""

    def _replay(self, decision: Decision, body: Body) -> Replayed:
        if missing := not_recorded(decision, body):
            raise ReplayError(missing)
        if decision.verb == "preempt":
            return self._replay_preempt(decision, body)
        if body.answer is None:
            return self._replay_passed(decision, body)
        snapshot = self.snapshots.of(decision, body)
        rule_set = self.rule_set_of(decision, body, snapshot)
        if differences := self._different_choice(decision, body, snapshot):
            return Replayed(ok=False, differences=differences)
        answer = self.decide_again(decision, body, snapshot, rule_set, missed=body.notes.get("missed", ()))
        differences = [
            *_different_columns(body.answer, store_answer(answer)),
            *_different_rule_set(decision, rule_set),
            *_different_head(decision, body, answer),
        ]
        names = names_of(snapshot.table)
        if _names_of(decision) != names.listed:
            differences.append("the nodes of the Snapshot, or their order, differ")
        if meaning_of(decision.verb, names, body.order.rows(), body.order.unknown, answer) != body.meaning:
            differences.append("the answer as a whole differs")
        if decision.verb == "schedule" and decision.mode == "enforce":
            differences += _different_node(decision, body, snapshot, answer)
        return Replayed(ok=not differences, differences=differences, answer=answer)

    def _replay_preempt(self, decision: Decision, body: Body) -> Replayed:
        """Judge the candidates again, with the same victims. Candidates that there was no time for are left out again."""
        snapshot, pod = self.snapshots.of(decision, body), pod_of(body)
        choice = self.revision_of(decision, body).choose(pod, snapshot, decision.at)
        sent = _candidates_of(body)
        rule_set = choice.enforced[1] if choice.enforced else None
        if differences := [*_different_assignment(decision, choice)]:
            return Replayed(ok=False, differences=differences)
        if rule_set is None:
            now = Narrowing([each.node for each in sent])
        else:
            timed_out = body.notes.get("timedOut", ())
            now = narrowing(rule_set, pod, snapshot, _victims_of(sent, snapshot), decision.at, timed_out=timed_out)
        differences = [
            *_compare_choice(body, choice),
            *_different_rule_set(decision, rule_set),
            *_compare_narrowing(decision, body, now),
        ]
        return Replayed(ok=not differences, differences=differences)

    def revision_of(self, decision: Decision, body: Body) -> CompiledRevision:
        """Return the Revision that a Decision was made by.

        Raises:
            ReplayError: the Revision is missing, has changed, or can't be compiled by this version of Berth.
        """
        if decision.revision not in self._revisions:
            self._revisions[decision.revision] = _compile(decision.revision)
        digests, compiled = self._revisions[decision.revision]
        if body.revision_digest not in digests:
            message = f"Revision {decision.revision} is another one now than the one that decided"
            raise ReplayError(message)
        return compiled

    def rule_set_of(self, decision: Decision, body: Body, snapshot: Snapshot) -> CompiledRuleSet:
        """Return the rule set that decided, from the same Assignment, which must still take the Pod.

        Raises:
            ReplayError: as `revision_of`, or another Assignment takes the Pod.
        """
        if decision.verb == "schedule" and decision.mode == "enforce" and not decision.rule_set_version:
            return _as_then(body, default_profile())  # no Assignment took the Pod, or its rule set chose to fall back
        choice = self.revision_of(decision, body).choose(pod_of(body), snapshot, decision.at)
        for assignment, rule_set in _taking(decision, body, choice):
            if assignment.name == decision.assignment:
                profile = _as_then(body, with_default_filters(rule_set)) if decision.verb == "schedule" else rule_set
                return profile if decision.mode == "shadow" or _has_shadow_rules(body, profile) else profile.enforced
        does = "doesn't take the Pod" if decision.mode == "enforce" else "asks nothing about the Pod in mode shadow"
        message = f"Assignment {decision.assignment} {does}"
        raise OtherAssignmentError(message)

    def decide_again(
        self,
        decision: Decision,
        body: Body,
        snapshot: Snapshot,
        rule_set: CompiledRuleSet,
        *,
        missed: Collection[str] = (),
    ) -> Answer:
        """Return a rule set's answer about the nodes of a Decision, as its verb requires.

        Args:
            decision: has the verb and the time.
            body: has the Pod, the nodes, and whether they were scored.
            snapshot: the Decision's Snapshot.
            rule_set: the one that decided, or another one.
            missed: the last of its rules, if there was no time for them.

        Raises:
            ReplayError: the Snapshot has fewer nodes, or the Pod can't be read, or time is up.
        """
        give_way = self._limit.give_way if self._limit else go_on
        answer = _decide_again(decision, body, snapshot, rule_set, missed, give_way)
        if self._limit and len(answer.missed) > len(missed):
            raise ReplayError(self._limit.over)
        return answer

    def _different_choice(self, decision: Decision, body: Body, snapshot: Snapshot) -> list[str]:
        choice = self.revision_of(decision, body).choose(pod_of(body), snapshot, decision.at)
        return [*_different_assignment(decision, choice), *_compare_choice(body, choice)]

    def _replay_passed(self, decision: Decision, body: Body) -> Replayed:
        """Check that no Assignment takes the Pod."""
        pod = pod_of(body)
        snapshot = Snapshot({}, {pod.namespace: body.namespace_labels or {}})
        choice = self.revision_of(decision, body).choose(pod, snapshot, decision.at)
        if choice.enforced is not None:
            differences = [f"Assignment {choice.enforced[0].name} takes the Pod; none was recorded"]
            return Replayed(ok=False, differences=differences)
        drawn = _compare_choice(body, choice)
        names = NodeNames({name: row for row, name in enumerate(_names_of(decision))})
        meaning = meaning_of(decision.verb, names, body.order.rows(), body.order.unknown, None)
        differences = [*drawn, *_different_assignment(decision, choice)]
        differences += [*_different_rule_set(decision, None), *_different_head(decision, body, None)]
        if meaning != body.meaning:
            differences.append("the nodes asked about differ")
        return Replayed(ok=not differences, differences=differences)


def _decide_again(
    decision: Decision,
    body: Body,
    snapshot: Snapshot,
    rule_set: CompiledRuleSet,
    missed: Collection[str],
    give_way: Callable[[], None],
) -> Answer:
    rows = body.order.rows()
    if len(rows) and rows.max() >= len(snapshot.table):
        message = "the Snapshot has fewer nodes than the Decision"
        raise ReplayError(message)
    pod = pod_of(body)
    cycle = Cycle(pod=pod, snapshot=snapshot, now=decision.at, params=rule_set.params, give_way=give_way)
    if decision.verb == "bind":
        return decide(rule_set.only_counting(), cycle, rows[rows >= 0], scoring=False)
    if decision.verb == "schedule":
        if missed:
            message = "there was no time for all rules: which nodes they had come to isn't recorded"
            raise ReplayError(message)
        return judge(rule_set, cycle, rows)
    filtering = decision.verb != "prioritize"
    scoring = not filtering or bool(body.answer and body.answer.scores)
    asked = len(rule_set.filters) * filtering + len(rule_set.scores) * scoring - len(missed)
    deadline = stop_before(asked) if missed else None
    return decide(rule_set, cycle, rows[rows >= 0], filtering=filtering, scoring=scoring, deadline=deadline)


def _compare_choice(body: Body, choice: Choice) -> list[str]:
    """Compare the canaries' draws, and the suspensions."""
    then, now = body.notes.get(SUSPENDED_BY) or [], notes_of_suspensions(choice.suspended_by).get(SUSPENDED_BY) or []
    return [
        *_compare_draws(body, canaries_of(choice.draws)),
        *(["what is out of force differs"] if then != now else []),
    ]


def replay(decision: Decision, limit: TimeLimit | None = None) -> Replayed:
    """Decide a recorded Decision again, and compare.

    Raises:
        ReplayError: something that it takes is missing, or time is up.
    """
    return Replays(limit).replay(decision)


def _compare_draws(body: Body, now: dict[str, dict[str, int]]) -> list[str]:
    return [] if body.notes.get("canaries", {}) == now else ["the canaries drew otherwise"]


def _as_then(body: Body, profile: CompiledRuleSet) -> CompiledRuleSet:
    """Return a profile of Berth's own scheduler as it was when it decided.

    Earlier versions didn't always evaluate all of these filters, and evaluated them in another order.
    """
    if body.answer is None:
        return profile
    asked = [column.rule for column in body.answer.filters]
    found = profile.without([rule.key for rule, _ in ALWAYS_ASKED if rule.key not in asked])
    filters = sorted(found.filters, key=_places_in(asked))
    if filters != found.filters:
        found = copy.copy(found)
        found.take(filters, found.scores)
    return found


def _places_in(asked: list[str]) -> Callable[[tuple[FilterRule, Filter]], int]:
    """Return a function that gives each filter its place in a Decision. A name can occur twice, in modes enforce and shadow."""
    left: list[str | None] = [*asked]

    def place(found: tuple[FilterRule, Filter]) -> int:
        key = found[0].key
        at = left.index(key) if key in left else len(left)
        if at < len(left):
            left[at] = None
        return at

    return place


def _taking(decision: Decision, body: Body, choice: Choice) -> Iterable[tuple[Assignment, CompiledRuleSet]]:
    """Iterate over what may have decided. An enforced rule set is evaluated as a shadow only if it has shadow rules."""
    if decision.mode == "shadow":
        yield from choice.shadows
    if choice.enforced and (decision.mode == "enforce" or _has_shadow_rules(body, choice.enforced[1])):
        yield choice.enforced


def _has_shadow_rules(body: Body, rule_set: CompiledRuleSet) -> bool:
    """Return whether rules in mode shadow were evaluated: for a shadow, or before the answer, as in version 0.1.0."""
    shadows = {rule.key for rule, _ in (*rule_set.filters, *rule_set.scores) if rule.mode == "shadow"}
    if body.answer is None:
        return False
    asked = [column.rule for column in body.answer.filters] + [column.rule for column in body.answer.scores]
    return not shadows.isdisjoint(asked)


def not_recorded(decision: Decision, body: Body) -> str:
    """Return which missing record prevents a replay; "" if everything that rules need is recorded."""
    if action := body.notes.get("fallback"):
        return f"the rule set chose to {action} ({decision.error}), and what was away then is not recorded"
    if decision.verb == "bind":
        return _not_recorded_of_bind(decision, body)
    if decision.error:
        return f"no rule was asked: {decision.error}"
    if decision.verb == "preempt":
        return "" if decision.chain and "candidates" in body.notes else _NO_CANDIDATES
    return "no answer is recorded" if body.answer is None and decision.verb == "schedule" else ""


def _not_recorded_of_bind(decision: Decision, body: Body) -> str:
    """Return why a refusal of a binding can't be replayed: it came from the API server, a lock or a watch, not from a rule."""
    if follows := body.notes.get("follows"):
        return f"it is what became of the binding ({decision.error}); what the rules said is Decision {follows}"
    if decision.error and not body.notes.get("counted"):
        return f"no rule was asked: {decision.error}"
    has_nodes = len(body.order.rows()) or body.order.unknown
    return "" if has_nodes and decision.names_number else _NOT_CHECKED


def _candidates_of(body: Body) -> list[SentCandidate]:
    try:
        return read_candidates(body.notes) or []
    except msgspec.ValidationError as error:
        message = f"the candidates can't be read: {error}"
        raise ReplayError(message) from error


def _victims_of(sent: list[SentCandidate], snapshot: Snapshot) -> list[Candidate]:
    try:
        return candidates_on(snapshot, sent)
    except (msgspec.DecodeError, ObjectError) as error:
        message = f"a victim can't be read: {error}"
        raise ReplayError(message) from error


def _compare_narrowing(decision: Decision, body: Body, now: Narrowing) -> Iterable[str]:
    """Compare the narrowing with the recorded one, in the recorded form."""
    said = msgspec.msgpack.decode(msgspec.msgpack.encode(notes_of_narrowing(now)))
    for name, words in (("kept", "candidates that stay"), ("vetoes", "vetoes"), ("dropped", "candidates that go")):
        if not is_same_but_masked(said[name], body.notes.get(name)):
            yield f"the {words} differ"
    number = len(body.notes["candidates"])
    if (decision.nodes, decision.feasible, decision.top_reason) != (number, len(now.kept), now.top_reason):
        yield "what lists show differs"


def _names_of(decision: Decision) -> list[str]:
    if not decision.names_number:
        return []  # the Decision was made before any node was seen
    return recorded_names(decision.process, decision.names_number, decision._state.db)  # noqa: SLF001 - documented


def _compile(number: int) -> tuple[frozenset[str], CompiledRevision]:
    """Return a Revision and the digests by which Decisions name it."""
    try:
        revision = load_revision(number) if number else Revision(number=0)
        if revision is None:
            message = f"Revision {number} is not there"
            raise ReplayError(message)
        return known_digests(revision), CompiledRevision(revision)
    except (msgspec.DecodeError, ExpressionError, KeyError) as error:
        message = f"Revision {number} can't be used by this version of Berth: {error}"
        raise ReplayError(message) from error


def _different_columns(recorded: StoredAnswer, now: StoredAnswer) -> Iterable[str]:
    """Compare columns as they are written, byte for byte."""
    columns: tuple[tuple[str, list[Any], list[Any]], ...] = (
        ("filter", recorded.filters, now.filters),
        ("score", recorded.scores, now.scores),
    )
    for kind, then_columns, now_columns in columns:
        if [column.rule for column in then_columns] != [column.rule for column in now_columns]:
            yield f"the {kind} rules differ"
            continue
        for then_column, now_column in zip(then_columns, now_columns, strict=True):
            if FAULT in then_column.faults:
                now_column.faults = masked_faults(now_column.faults)
            if msgspec.msgpack.encode(then_column) != msgspec.msgpack.encode(now_column):
                yield f"{kind} {then_column.rule} differs"
    if recorded.size != now.size or recorded.scored != now.scored:
        yield "the nodes that were looked at differ"


def _different_node(decision: Decision, body: Body, snapshot: Snapshot, answer: Answer) -> Iterable[str]:
    """Compare the Pod's node with the best nodes: which of these it gets depends on the Pods before it."""
    cycle = Cycle(pod=pod_of(body), snapshot=snapshot, now=decision.at)
    best = find_best(answer, cycle, body.order.rows(), is_default_profile=not decision.rule_set_version)
    node = str(body.notes.get("node") or "")
    if node not in (map(answer.name_at, best.tolist()) if len(best) else [""]):
        yield (
            f"the Pod got {node}, which is not among the best" if node else "the Pod got no node, though some would do"
        )


def _best_of_then(decision: Decision, answer: Answer | None) -> str:
    """Return the recorded best node; for earlier versions, without one that came from scores that don't count."""
    return "" if answer and answer.scores and not answer.is_ranked else decision.best


def _different_assignment(decision: Decision, choice: Choice) -> Iterable[str]:
    """Compare which Assignment takes the Pod."""
    taking = choice.enforced[0].name if choice.enforced else ""
    if decision.mode == "enforce" and decision.assignment != taking:
        taken = f"Assignment {taking} takes the Pod" if taking else "no Assignment takes the Pod"
        yield f"{taken}; recorded is {decision.assignment or 'none'}"


def _different_subject(decision: Decision, body: Body) -> Iterable[str]:
    """Compare the recorded Pod, and whether the Decision is recorded as a shadow."""
    pod = pod_of(body)
    said = (decision.pod_namespace, decision.pod_name, decision.pod_uid)
    if said != (recorded := (pod.namespace, pod.name, pod.uid)):
        yield f"the Pod is said to be {'/'.join(said)}; recorded is {'/'.join(recorded)}"
    if decision.mode == "enforce" and decision.divergence:
        yield "it is said to be an answer; only a shadow diverges from one"
    if decision.mode == "enforce" and "answered" in body.notes:
        yield "it is said to be an answer; recorded is a shadow"


def _different_rule_set(decision: Decision, rule_set: CompiledRuleSet | None) -> Iterable[str]:
    """Compare the recorded rule set with the one that decided."""
    now = (rule_set.name, rule_set.version) if rule_set else ("", 0)
    if (decision.rule_set, decision.rule_set_version) != now:
        yield "the rule set that is said to have decided differs"


def _different_head(decision: Decision, body: Body, answer: Answer | None) -> Iterable[str]:
    """Compare the fields that lists show; without an answer all nodes passed."""
    nodes = len(body.order.rows())
    for name, then, now in (
        ("nodes", decision.nodes, nodes),
        ("feasible", decision.feasible, answer.feasible_count if answer else nodes),
        ("best", _best_of_then(decision, answer), answer.best if answer else ""),
        ("top reason", decision.top_reason, answer.top_reason() if answer else ""),
    ):
        # For a binding, `best` is the node in the call.
        if then != now and (name, decision.verb) != ("best", "bind"):
            yield f"{name} was {then!r} and is {now!r}"
