"""Reads a stored Decision's body into one shape, whatever its stored form: for pages, REST and `explain`.

The shape: `pod` (Kubernetes JSON), `nodes` (names, in the order of the candidates), `unknown` (names that Berth didn't know),
`filters` [{rule, mode, statuses [{code, reason}], faults [{message, nodes}], verdicts [index into statuses per node; -1
success, -2 not evaluated]}], `scores` [{rule, mode, weight, faults, raw [0..100 or null per node]}], `totals` [0..10 or
null per node], `assumed` [[pod, node]], `notes`. Of the notes, `canaries` {Assignment: {drawn, percent}}, `params` (those that the
Assignment gave) and `suspendedBy` [{kind, name, target}] (Pauses and Exemptions) may be in any Decision.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from django.conf import settings
from django.db.models import QuerySet

from policies.engine.decision import NOT_IN_TIME, Answer, FilterColumn, ScoreColumn
from policies.engine.pauses import Target
from policies.engine.status import PASSED
from policies.sentences import target_in_words
from policies.wording import json_text
from scheduler.decisions.columns import StoredAnswer, StoredFilter, StoredScore, pack, read_answer
from scheduler.decisions.record import (
    AS_JSON,
    SUSPENDED_BY,
    Body,
    Head,
    check_notes,
    decompress,
    read_body,
    record_of,
    record_of_json,
)
from scheduler.models import Decision, NodeNames, Outcome

_NO_NAME = "?"
PRUNED = "the Decision's details were pruned, as BERTH_RETENTION_DETAILS_DAYS says"


def recorded() -> QuerySet[Decision]:
    """Return Decisions for pages and REST: from the replica, if BERTH_HISTORY_DATABASE_URL names one."""
    return Decision.objects.using(settings.HISTORY_DATABASE)


def recorded_outcomes() -> QuerySet[Outcome]:
    """Return Outcomes for pages and REST: from the same database as Decisions."""
    return Outcome.objects.using(settings.HISTORY_DATABASE)


class Read(msgspec.Struct, kw_only=True):
    """A Decision's body, as columns.

    Attributes:
        pod: the Pod's JSON, as text.
        notes: facts of its verb.
        answer: the rules' answer; its names are those of the candidate nodes. Without rules, all of them pass.
        unknown: names in the call that were refused because Berth didn't know them.
        meaning: equal in two Decisions with the same answer about the same nodes; empty if it isn't stored.
        missing: why nothing is known of all this, such as PRUNED; empty if it is known.
    """

    pod: bytes = b"{}"
    notes: Mapping[str, Any] = {}
    answer: Answer
    unknown: Sequence[str] = ()
    meaning: bytes = b""
    missing: str = ""

    @property
    def names(self) -> list[str]:
        """The candidate nodes, in order."""
        return self.answer.names


class Names:
    """Names of nodes that several Decisions refer to: each list is read once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int], list[str]] = {}
        self._asked: dict[tuple[str, int, bytes], list[str]] = {}

    def of(self, decision: Decision) -> list[str]:
        """Return the names that a Decision's positions refer to; empty when they aren't there (any more)."""
        key = (decision.process, decision.names_number)
        if key not in self._found:
            self._found[key] = table_names(decision) if decision.names_number else []
        return self._found[key]

    def asked(self, decision: Decision, body: Body) -> list[str]:
        """Return the names of a Decision's candidate nodes, in order: the same list object for the same order."""
        key = (decision.process, decision.names_number, msgspec.msgpack.encode(body.order))
        if key not in self._asked:
            self._asked[key] = _named(body, self.of(decision))
        return self._asked[key]


def unreadable(why: str) -> Read:
    """Return what is read of a Decision whose details aren't there, or can't be read."""
    return Read(answer=Answer([]), missing=why)


def read_both(decision: Decision) -> tuple[Read, dict[str, Any]]:
    """Return a Decision's body as columns, and in the shape of `body_of`.

    Raises:
        ValueError: it is damaged.
    """
    stored = bytes(decision.body)
    if not stored or stored[:1] == AS_JSON:
        return read_decision(decision), body_of(decision)
    body = read_body(stored)
    answer = answer_of(decision, body, names_asked(decision, body))
    return _of_body(decision, body, answer), _shown(body, answer)


def read_decision(decision: Decision, names: Names | None = None) -> Read:
    """Return a Decision's body as columns; an empty one for a Decision without a body.

    Raises:
        ValueError: it is damaged.
    """
    stored = bytes(decision.body)
    if not stored:
        return unreadable(PRUNED)
    if stored[:1] == AS_JSON:
        try:
            return _read_json(_json_of(stored))
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            message = f"the Decision's body can't be read: {type(error).__name__} {error}"
            raise ValueError(message) from error
    body = read_body(stored)
    answer = answer_of(decision, body, (names or Names()).asked(decision, body))
    return _of_body(decision, body, answer)


def _of_body(decision: Decision, body: Body, answer: Answer) -> Read:
    # If no Assignment matched the Pod, or all of its rules were suspended, unknown nodes pass like all others.
    is_refused = body.answer is not None and decision.verb == "filter"
    unknown = body.order.unknown if is_refused else ()
    return Read(pod=body.pod, notes=body.notes, answer=answer, unknown=unknown, meaning=body.meaning)


def answer_of(decision: Decision, body: Body, names: list[str]) -> Answer:
    """Return a Decision's answer, including nodes that were refused for lack of time, which no column has.

    Args:
        decision: the Decision.
        body: its body.
        names: of the candidate nodes, in order.
    """
    answer = _answer_in(body, names)
    answer.missed = list(body.notes.get("missed", ()))
    # Nodes that passed were scored. Without scores, it is known only if none passed: /filter refuses all for lack of time, or none.
    if answer.missed and (answer.scores or not decision.feasible):
        late = answer.refusal == PASSED
        late[answer.scored] = False
        answer.refusal[late] = len(answer.refusals)
        answer.refusals.append(NOT_IN_TIME)
    return answer


def _answer_in(body: Body, names: list[str]) -> Answer:
    return read_answer(body.answer, names) if body.answer else Answer(names)


def _json_of(stored: bytes) -> dict[str, Any]:
    found = msgspec.json.decode(decompress(stored[1:]), type=dict[str, Any])
    check_notes(found.get("notes") or {})
    return found


def _read_json(body: dict[str, Any]) -> Read:
    """Read a body of version 0.1.0."""
    nodes = [str(name) for name in body.get("nodes") or []]
    filters = [
        StoredFilter(
            str(column.get("rule", "")),
            column.get("mode", "enforce"),
            [(status["code"], status["reason"]) for status in column.get("statuses") or []],
            {},
            pack(np.array(column.get("verdicts") or [], dtype=np.int64)),
        )
        for column in body.get("filters") or []
    ]
    columns = body.get("scores") or []
    # All rules score the same nodes.
    scored = [index for index, raw in enumerate(columns[0].get("raw") or []) if raw is not None] if columns else []
    scores = [
        StoredScore(
            str(column.get("rule", "")),
            column.get("mode", "enforce"),
            column.get("weight", 1),
            {},
            pack(np.array([column["raw"][index] for index in scored], dtype=np.int64)),
        )
        for column in columns
    ]
    stored = StoredAnswer(len(nodes), filters, scores, pack(np.array(scored, dtype=np.int64)) if columns else None)
    return Read(
        pod=msgspec.json.encode(body.get("pod") or {}),
        notes=body.get("notes") or {},
        answer=read_answer(stored, nodes),
    )


def body_of(decision: Decision) -> dict[str, Any]:
    """Return a Decision's body; empty for a Decision without one.

    Raises:
        ValueError: it is damaged.
    """
    stored = bytes(decision.body)
    if not stored:
        return {}
    if stored[:1] == AS_JSON:
        return _json_of(stored)
    body = read_body(stored)
    return shown(body, names_asked(decision, body))


def exact_bytes(decision: Decision) -> bytes:
    """Return the bytes that the Decision's writer had on disk, which are its leaf in the ledger.

    Raises:
        ValueError: the body is damaged, or of a version that didn't keep them.
    """
    stored = bytes(decision.body)
    if stored[:1] == AS_JSON:
        columns = {name: getattr(decision, name) for name in Head.__struct_fields__}
        return record_of_json(columns | {"id": str(decision.id)}, stored)
    return record_of(stored)


def table_names(decision: Decision) -> list[str]:
    """Return the names that the Decision's positions refer to; empty when they aren't there (any more)."""
    rows = NodeNames.objects.using(decision._state.db)  # noqa: SLF001 - documented; the history may be read from a replica
    row = rows.filter(writer=decision.process, number=decision.names_number).first()
    return msgspec.json.decode(decompress(bytes(row.data)), type=list[str]) if row else []


def names_asked(decision: Decision, body: Body) -> list[str]:
    """Return the names of the known candidate nodes, in order; `?N` for names that were pruned."""
    return _named(body, table_names(decision))


def _named(body: Body, names: list[str]) -> list[str]:
    rows = body.order.rows()
    return [names[row] if row < len(names) else f"{_NO_NAME}{row}" for row in rows[rows >= 0].tolist()]


def shown(body: Body, names: list[str]) -> dict[str, Any]:
    """Return a body of columns in the common shape."""
    return _shown(body, _answer_in(body, names))


def _pod_in(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        message = f"the JSON of a Pod in it can't be read: {error}"
        raise ValueError(message) from error


def _shown(body: Body, answer: Answer) -> dict[str, Any]:
    extras: dict[str, Any] = {}
    if body.order.unknown:
        extras["unknown"] = body.order.unknown
    if body.assumed:
        extras["assumed"] = [[_pod_in(pod), name] for pod, name in body.assumed]
    if body.notes:
        extras["notes"] = body.notes
    return {
        "pod": _pod_in(body.pod),
        "nodes": answer.names,
        "filters": [_filter_column(column) for column in answer.filters],
        "scores": [_score_column(column, answer) for column in answer.scores],
        "totals": _spread(answer.points.tolist(), answer) if answer.scores else [],
    } | extras


def answered_of(decision: Decision) -> str:
    """Return the id of the Decision that a shadow is compared with; "" where it isn't known."""
    try:
        return str(read_body(bytes(decision.body)).notes.get("answered", ""))
    except ValueError:
        return ""


def revision_digest_of(decision: Decision) -> str:
    """Return the digest of the Revision that a Decision was made by; "" where it isn't known."""
    try:
        return read_body(bytes(decision.body)).revision_digest
    except ValueError:
        return ""


def preemption_of(body: dict[str, Any]) -> str:
    """Return which Pods were to be preempted for the Decision's Pod, or why none; "" without preemption. `body` is from `shown`.

    Whether they were is decided after the Decision was recorded: the API server may refuse it.
    """
    said = (body.get("notes") or {}).get("preemption") or {}
    if not said.get("node"):
        return str(said.get("reason", ""))
    victims = ", ".join(f"{victim['name']} (priority {victim['priority']})" for victim in said["victims"])
    number, violations = said["candidateCount"], said["pdbViolations"]
    budgets = f"; {violations} of them against a PodDisruptionBudget" if violations else ""
    chosen = f"chosen from {number:,} nodes that could be freed" if number > 1 else "the only node that could be freed"
    were = "was" if len(said["victims"]) == 1 else "were"
    return f"{victims} {were} to leave {said['node']}, {chosen}{budgets}"


def suspended_by(body: dict[str, Any]) -> list[str]:
    """Return sentences about the rules that Pauses and Exemptions suspended for the Pod."""
    return [
        f"{target_in_words(each['target'])} was out of force by {each['kind']} {each['name']}"
        for each in (body.get("notes") or {}).get(SUSPENDED_BY) or ()
    ]


def rules_out_of_force(body: dict[str, Any], rule_set: str) -> set[str]:
    """Return the names of a rule set's rules that a Pause or an Exemption suspended for the Pod.

    The notes also cover rule sets in mode shadow, which may have rules of the same names.
    """
    found = [Target.parse(each["target"]) for each in (body.get("notes") or {}).get(SUSPENDED_BY) or ()]
    return {target.rule for target in found if target.rule and target.name == rule_set}


def chosen_by(body: dict[str, Any]) -> list[str]:
    """Return sentences about suspensions, canaries' choices, nodes that were left out, and the Assignment's params."""
    notes = body.get("notes") or {}
    said = suspended_by(body)
    for name, canary in sorted((notes.get("canaries") or {}).items()):
        side = "takes it" if canary["drawn"] < canary["percent"] else "passes it over"
        said.append(
            f"canary {name} {side}: the Pod's workload drew {canary['drawn']}, and {canary['percent']} % are those below"
        )
    if denied := notes.get("denied") or ():
        what = (
            "asked about again, for no other node would do, though"
            if notes.get("node") in denied
            else "left out, since"
        )
        said.append(f"{what} the API server had refused the Pod's binding there: {', '.join(denied)}")
    params = ", ".join(f"{name} {json_text(value)}" for name, value in sorted((notes.get("params") or {}).items()))
    return [*said, f"the Assignment gives params: {params}"] if params else said


def _filter_column(column: FilterColumn) -> dict[str, Any]:
    statuses = [{"code": status.code.value, "reason": status.reason} for status in column.statuses]
    written = {"rule": column.rule.key, "mode": column.rule.mode, "statuses": statuses}
    return written | _faults(column.faults) | {"verdicts": column.codes.tolist()}


def _score_column(column: ScoreColumn, answer: Answer) -> dict[str, Any]:
    raw = _spread(column.raw.tolist(), answer)
    written = {"rule": column.rule.key, "mode": column.rule.mode, "weight": column.rule.weight}
    return written | _faults(column.faults) | {"raw": raw}


def _faults(faults: Mapping[str, int]) -> dict[str, Any]:
    return {"faults": [{"message": message, "nodes": nodes} for message, nodes in faults.items()]} if faults else {}


def _spread(numbers: list[int], answer: Answer) -> list[int | None]:
    """Spread the numbers of the scored nodes to all nodes, with None for the others."""
    spread: list[int | None] = [None] * len(answer.names)
    for position, number in zip(answer.scored.tolist(), numbers, strict=True):
        spread[position] = number
    return spread
