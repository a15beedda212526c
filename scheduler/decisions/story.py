"""The story of a Pod: each attempt to place it, the changes between two attempts, and the Pod's outcome.

An attempt begins with a call of filter, or with a cycle of Berth's own scheduler; later calls belong to it until the next one.
Consecutive attempts with the same answer are shown as one.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from policies.publishing import Provenance, provenance_of
from policies.wording import counted
from scheduler.decisions.causes import Causes, causes_of
from scheduler.decisions.explaining import named, summary_of
from scheduler.decisions.matrix import Refusal, passing, refusals_of
from scheduler.decisions.reading import Names, Read, read_decision, recorded, recorded_outcomes, unreadable
from scheduler.decisions.record import SUSPENDED_BY
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import OPENING_VERBS, Decision, Outcome

# The most Decisions in a Pod's story: the newest ones.
_MOST_DECISIONS = 200
_MOST_SEEN = 2_000
_MOST_PATHS = 6
# The most pairs of attempts whose difference is decided again when causes of all attempts are requested.
_MOST_CAUSES = 5
# Members of a Pod that the API server writes at each change, or that are only status.
_PASSING_MEMBERS = {"status"}
_PASSING_METADATA = {"resourceVersion", "managedFields", "generation"}


class Step(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One Decision of an attempt."""

    id: str
    at: datetime
    verb: str
    says: str


class Attempt(msgspec.Struct, rename="camel", kw_only=True):
    """One attempt, or several with the same answer.

    Attributes:
        first_id, id: the Decisions that began the first and the last of these attempts.
        times: the number of attempts.
        changed: the differences from the attempt before, in sentences.
        newly_allowed, newly_refused: nodes whose verdict has changed.
        causes: the causes of the difference, if requested.
        error: why there is no answer, if there is none.
        former_id: the Decision that it is compared with; empty for the first.
    """

    id: str
    first_id: str
    first_at: datetime
    last_at: datetime
    times: int = 1
    steps: list[Step]
    verb: str
    revision: int
    rule_set: str
    rule_set_version: int
    assignment: str
    nodes: int
    feasible: int
    best: str
    refusals: list[Refusal]
    error: str = ""
    former_id: str = ""
    changed: list[str] = []
    newly_allowed: list[str] = []
    newly_refused: list[str] = []
    causes: Causes | None = None

    @property
    def is_turn(self) -> bool:
        """Whether verdicts for nodes changed."""
        return bool(self.newly_allowed or self.newly_refused)


class End(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An outcome of the Pod."""

    kind: str
    at: datetime
    node: str = ""
    says: str
    decision: str = ""


class Story(msgspec.Struct, rename="camel", kw_only=True):
    """The complete story, the newest attempt first. `uids` are the Pods that had this name, the newest first."""

    namespace: str
    name: str
    uid: str
    uids: list[str]
    owner: str = ""
    now: str
    attempts: list[Attempt]
    ends: list[End]
    provenance: list[Provenance]
    decided_by: str = ""
    has_earlier: bool = False


def story_of(namespace: str, name: str, uid: str = "", *, with_causes: bool = False) -> Story | None:
    """Return the story of a Pod, by default of the newest one of its name; None if nothing is recorded.

    Args:
        namespace: the Pod's.
        name: the Pod's.
        uid: the Pod's; empty for the newest one.
        with_causes: whether to decide again to find the causes of changed verdicts.
    """
    uids = uids_of(namespace, name)
    of_name = recorded().filter(pod_namespace=namespace, pod_name=name)
    if uid and uid not in uids and of_name.filter(pod_uid=uid).exists():
        uids.append(uid)  # the newest Decisions are all about other Pods
    if not uids or (uid and uid not in uids):
        return None
    uid = uid or uids[0]
    found = of_name.filter(pod_uid=uid, mode="enforce")
    newest = list(found[: _MOST_DECISIONS + 1])
    rows = newest[:_MOST_DECISIONS][::-1]
    attempts = list(_attempts(rows))
    if with_causes:
        _look_for_causes(attempts, {str(row.pk): row for row in rows})
    ends = ends_of(uid, rows)
    placing = _placing(rows, ends)
    return Story(
        namespace=namespace,
        name=name,
        uid=uid,
        uids=uids,
        owner=_owner(rows),
        now=_now(attempts, ends),
        attempts=attempts[::-1],
        ends=ends,
        provenance=_provenance(placing),
        decided_by=str(placing.pk) if placing else "",
        has_earlier=len(newest) > _MOST_DECISIONS,
    )


def uids_of(namespace: str, name: str) -> list[str]:
    """Return the UIDs of the Pods that had a name, the newest first, according to the newest Decisions."""
    rows = recorded().filter(pod_namespace=namespace, pod_name=name).values_list("pod_uid", flat=True)
    return list(dict.fromkeys(rows[:_MOST_SEEN]))


def ends_of(uid: str, rows: Sequence[Decision]) -> list[End]:
    """Return a Pod's outcomes, in order; those from before there were Outcomes are taken from its Decisions."""
    rows_of_ends = list(recorded_outcomes().filter(pod_uid=uid).order_by("at", "pk").defer("body"))
    kinds = {row.kind for row in rows_of_ends}
    # A record with the preemptor hides those of the same event without it. A seen end likewise hides a record that the Pod is gone.
    named = {row.kind for row in rows_of_ends if row.preemptor_uid}
    is_end_seen = bool(kinds - {Outcome.Kind.BOUND, Outcome.Kind.GONE})
    is_known_how = bool(kinds - {Outcome.Kind.BOUND, Outcome.Kind.GONE, Outcome.Kind.ENDED})
    told = [row for row in rows_of_ends if row.preemptor_uid or row.kind not in named]
    told = [row for row in told if not (is_end_seen and row.kind == Outcome.Kind.GONE)]
    told = [row for row in told if not (is_known_how and row.kind == Outcome.Kind.ENDED)]
    # A Pod was bound before it ended, even if the clocks of the processes that saw it disagree.
    told.sort(key=lambda row: row.kind != Outcome.Kind.BOUND)
    found = [_end(row, was_bound=Outcome.Kind.BOUND in kinds) for row in told]
    last = rows[-1] if rows else None
    if found or last is None or last.placed_at is None:
        return found
    if last.placed_on:
        return [End(kind="bound", at=last.placed_at, node=last.placed_on, says=f"bound to {last.placed_on}")]
    return [End(kind="gone", at=last.placed_at, says="gone, and nobody saw it on a node")]


def _end(row: Outcome, *, was_bound: bool) -> End:
    on = f" from {row.node_name}" if row.node_name else ""
    says = {
        Outcome.Kind.BOUND: f"bound to {row.node_name}" + (f" by {row.by}" if row.by else ""),
        Outcome.Kind.PREEMPTED: f"preempted{on}" + (f" for {row.preemptor_namespace}/{row.preemptor_name}" if row.preemptor_name else ""),
        Outcome.Kind.EVICTED: f"evicted{on}" + (f": {row.reason}" if row.reason else ""),
        Outcome.Kind.DELETED: f"deleted{on}",
        Outcome.Kind.ENDED: f"ended on {row.node_name}" + (f" while {row.reason}" if row.reason else ": it ran to its end, or was deleted at once"),
        Outcome.Kind.UNBOUND: "deleted without a node",
        Outcome.Kind.GONE: f"gone, and nobody saw {'how it ended' if was_bound else 'whether it had a node'}",
    }.get(Outcome.Kind(row.kind), row.kind)  # fmt: skip
    return End(kind=row.kind, at=row.at, node=row.node_name, says=says, decision=str(row.decision or ""))


def _attempts(rows: Sequence[Decision]) -> Iterator[Attempt]:
    """Iterate over attempts, the oldest first; consecutive equal ones are one."""
    names = Names()
    last: tuple[Attempt, Decision, Read] | None = None
    answered: tuple[Attempt, Decision, Read] | None = None
    for group in _groups(rows):
        opening = group[0]
        read = _read(opening, names)
        attempt = _attempt(group, read)
        # An attempt with an error has no rules or nodes to compare.
        compared = last if opening.error else answered
        if compared is not None:
            before, former, old = compared
            attempt.former_id = before.id
            is_known = not old.missing and not read.missing
            attempt.changed = _pod_changes(old, read) if is_known else _unknown_changes(old, read)
            if not opening.error:
                attempt.changed += _rule_changes(former, old, opening, read)
                if is_known and (old.meaning != read.meaning or not read.meaning):
                    _compare(attempt, old, read)
        if last is not None:
            before = last[0]
            if not attempt.changed and not attempt.is_turn and _is_same(before, attempt):
                _join(before, attempt)
                attempt = before
            else:
                if compared is not None:
                    attempt.changed += _cluster_changes(compared[1], opening)
                yield before
        last = (attempt, opening, read)
        answered = answered if opening.error else last
    if last is not None:
        yield last[0]


def _groups(rows: Sequence[Decision]) -> Iterator[list[Decision]]:
    group: list[Decision] = []
    for row in rows:
        if group and row.verb in OPENING_VERBS:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _read(row: Decision, names: Names) -> Read:
    try:
        read = read_decision(row, names)
        msgspec.json.decode(read.pod)
    except (ValueError, msgspec.DecodeError):  # its own page says more
        return unreadable("the Decision's details are damaged")
    return read


def _attempt(group: Sequence[Decision], read: Read) -> Attempt:
    first, last = group[0], group[-1]
    best = next((row.best for row in reversed(group) if row.best), "")
    notes = {"notes": dict(read.notes)}
    steps = [
        Step(id=str(row.pk), at=row.at, verb=row.verb, says=summary_of(row, notes if row is first else {}))
        for row in group
    ]
    return Attempt(
        id=str(first.pk),
        first_id=str(first.pk),
        first_at=first.at,
        last_at=last.at,
        steps=steps,
        verb=first.verb,
        revision=first.revision,
        rule_set=first.rule_set,
        rule_set_version=first.rule_set_version,
        assignment=first.assignment,
        nodes=first.nodes,
        feasible=first.feasible,
        best=best,
        refusals=refusals_of(read.answer),
        error=first.error,
    )


def _is_same(before: Attempt, attempt: Attempt) -> bool:
    verbs = [[step.verb for step in each.steps] for each in (before, attempt)]
    # Those without details have no refusals to tell them apart.
    said = [(each.best, each.error, each.nodes, each.feasible) for each in (before, attempt)]
    return verbs[0] == verbs[1] and said[0] == said[1] and _refuse_alike(before.refusals, attempt.refusals)


def _refuse_alike(before: Sequence[Refusal], now: Sequence[Refusal]) -> bool:
    """Return whether the refusals are equal: kube-scheduler sends the same nodes in another order each time."""
    if before == now:
        return True
    one, other = (
        {(each.rule, each.code, each.reason, frozenset(each.nodes)) for each in refusals} for refusals in (before, now)
    )
    return one == other


def _join(before: Attempt, attempt: Attempt) -> None:
    """Add an attempt to the equal one before it."""
    before.times += 1
    before.id, before.last_at = attempt.id, attempt.last_at
    before.steps, before.revision = attempt.steps, attempt.revision


def _compare(attempt: Attempt, old: Read, new: Read) -> None:
    """Record which nodes have a changed verdict, among the nodes of both calls."""
    allowed, formerly = passing(new.answer), passing(old.answer)
    newly_allowed, newly_refused = allowed - formerly, formerly - allowed
    if old.names is new.names:
        attempt.newly_allowed, attempt.newly_refused = sorted(newly_allowed), sorted(newly_refused)
        return
    # Nodes that Berth didn't know were in the call, too.
    asked, formerly_asked = [*new.names, *new.unknown], [*old.names, *old.unknown]
    both = set(asked) & set(formerly_asked)
    attempt.newly_allowed, attempt.newly_refused = sorted(newly_allowed & both), sorted(newly_refused & both)
    came = [name for name in asked if name not in both]
    went = [name for name in formerly_asked if name not in both]
    if came:
        attempt.changed.append(f"asked about {named(came)} too")
    if went:
        attempt.changed.append(f"not asked about {named(went)} any more")


def _unknown_changes(old: Read, new: Read) -> list[str]:
    """Return why an attempt can't be compared with the former one; nothing where both lack the same, so that these are told once."""
    if old.missing == new.missing:
        return []
    which = "this attempt" if new.missing else "the former attempt"
    return [f"what changed in the Pod and the nodes isn't known: the details of {which} are gone"]


def _pod_changes(old: Read, new: Read) -> list[str]:
    if old.pod == new.pod:
        return []
    paths = list(_paths(_lasting(msgspec.json.decode(old.pod)), _lasting(msgspec.json.decode(new.pod)), ""))
    if not paths:
        return []
    more = f" and {len(paths) - _MOST_PATHS} more" if len(paths) > _MOST_PATHS else ""
    return [f"the Pod changed: {', '.join(paths[:_MOST_PATHS])}{more}"]


def _lasting(pod: Any) -> Any:
    """Return a Pod's JSON without its status and the members that change at each write."""
    if not isinstance(pod, dict):
        return {}
    kept = {name: value for name, value in pod.items() if name not in _PASSING_MEMBERS}
    metadata = kept.get("metadata")
    if isinstance(metadata, dict):
        kept["metadata"] = {name: value for name, value in metadata.items() if name not in _PASSING_METADATA}
    return kept


def _paths(old: Any, new: Any, path: str) -> Iterator[str]:
    """Iterate over the paths at which two documents differ."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from _paths(old.get(name), new.get(name), f"{path}.{name}" if path else str(name))
    else:
        yield path or "all of it"


def _rule_changes(former: Decision, old: Read, now: Decision, new: Read) -> list[str]:
    said = []
    if (former.rule_set, former.rule_set_version) != (now.rule_set, now.rule_set_version):
        is_given = former.revision == now.revision and former.assignment != now.assignment
        what = "another Assignment's rules" if is_given else "the rules changed"
        said.append(f"{what}: {_rules(former)} became {_rules(now)}")
    if former.assignment != now.assignment:
        said.append(f"Assignment {former.assignment or 'none'} became {now.assignment or 'none'}")
    is_known = not old.missing and not new.missing
    for note, what in (("params", "the params that its Assignment gives"), (SUSPENDED_BY, "what is out of force")):
        if is_known and (old.notes.get(note) or None) != (new.notes.get(note) or None):
            said.append(f"{what} changed")
    if said and former.revision != now.revision:
        said.append(f"Revision {former.revision} became {now.revision}")
    return said


def _rules(row: Decision) -> str:
    return f"{row.rule_set} v{row.rule_set_version}" if row.rule_set_version else row.rule_set or "no rule set"


def _cluster_changes(former: Decision, now: Decision) -> list[str]:
    if not former.chain or not now.chain:
        return []
    if (former.process, former.chain) != (now.process, now.chain):
        return ["the cluster was seen anew, by another process or from the start"]
    moved = now.position - former.position
    return [f"the cluster moved on by {counted(moved, 'change')}"] if moved else []


def _look_for_causes(attempts: Sequence[Attempt], rows: Mapping[str, Decision]) -> None:
    turns, limit = [attempt for attempt in attempts if attempt.is_turn], TimeLimit()
    for attempt in turns[-_MOST_CAUSES:]:
        before, after = rows.get(attempt.former_id), rows.get(attempt.first_id)
        if before is not None and after is not None:
            attempt.causes = causes_of(before, after, limit)


def _placing(rows: Sequence[Decision], ends: Sequence[End]) -> Decision | None:
    """Return the Decision that led to the Pod's node: the one that its Outcome names, else the last one made by rules."""
    named_by = {end.decision for end in ends if end.kind == Outcome.Kind.BOUND}
    until = next((index for index, row in enumerate(rows) if str(row.pk) in named_by), len(rows) - 1)
    return next((row for row in reversed(rows[: until + 1]) if row.verb in OPENING_VERBS), rows[-1] if rows else None)


def _provenance(placing: Decision | None) -> list[Provenance]:
    if placing is None:
        return []
    wanted = [("RuleSet", placing.rule_set), ("Assignment", placing.assignment)]
    # Suspended rules let a Pod pass, too; the Pause is the cause then.
    wanted += [(each["kind"], each["name"]) for each in dict(_read(placing, Names()).notes).get(SUSPENDED_BY) or ()]
    return provenance_of([(kind, name) for kind, name in wanted if name], placing.revision)


def _owner(rows: Sequence[Decision]) -> str:
    return next((f"{row.owner_kind}/{row.owner_name}" for row in reversed(rows) if row.owner_name), "")


def _now(attempts: Sequence[Attempt], ends: Sequence[End]) -> str:
    """Return the Pod's current state in a sentence."""
    if ends:
        verb = {Outcome.Kind.GONE: "is", Outcome.Kind.ENDED: "has"}.get(Outcome.Kind(ends[-1].kind), "was")
        return f"The Pod {verb} {ends[-1].says}."
    if not attempts:
        return "Nothing but shadows was asked about it."
    last = attempts[-1]
    if last.error:
        return f"It waits: the last question about it couldn't be answered: {last.error}."
    if not last.nodes and last.verb in OPENING_VERBS:
        return "It waits: by the last answer there was no node to ask about."
    if last.feasible or not last.nodes:
        return f"It may use {last.feasible:,} of {last.nodes:,} nodes; that it is on one isn't known yet."
    if not last.refusals:
        return f"It waits: by the last answer it may use none of {counted(last.nodes, 'node')}."
    held = ", ".join(f"{len(each.nodes):,} refused by {each.rule} (“{each.reason}”)" for each in last.refusals[:3])
    return f"It waits: {held}."
