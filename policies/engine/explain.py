"""Why a rule gave its answer for a node: what it read, what it required, and what would change the answer. Pure.

A filter is evaluated again for the one node, and once more with the Pods that are nominated to it. Scores are those of
`decision.decide`, or of the given answer, over the nodes asked about. So the answers are the engine's own. Sentences are
for people and may change; programs read the members.
"""

from itertools import islice
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from policies.engine.cel import Seen
from policies.engine.decision import Answer, CompiledRuleSet, decide
from policies.engine.errors import DeadlineError, ObjectError
from policies.engine.objects.table import Rows
from policies.engine.rule import Cycle, Filter, Score
from policies.engine.ruleset import FilterRule
from policies.engine.status import Code

_MAX_SCORE = 100
_MAX_POINTS = 10


class Explanation(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """The answer of one rule for one node, and why.

    Attributes:
        code: of a filter as in Status; of a score Scored, or NotScored for a node that a filter refused.
        asked: False where an earlier filter had refused the node, so that this rule's answer doesn't count.
        seen: what the rule read -> the value, None where there is nothing.
        wanted: the condition that has to hold; for a score, what it depends on.
        remedy: what would change the answer, empty where that isn't known.
        value: the value of a score's expression, None for a built-in.
        bounds: the values that count as 0 and 100.
        raw: 0..100.
        contribution: what the score added to the node's 0..10 points, before they are rounded.
    """

    rule: str
    kind: Literal["filter", "score"]
    node: str
    mode: str
    code: str
    sentence: str
    reason: str = ""
    asked: bool = True
    seen: Seen = {}
    wanted: str = ""
    remedy: str = ""
    value: float | int | None = None
    bounds: tuple[float | int, float | int] | None = None
    raw: int | None = None
    weight: int | None = None
    contribution: float | None = None


class NodeExplanation(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The answers of a rule set for a Pod and a node, rule by rule. `points` are 0..10, None for a node without scores."""

    pod: str
    node: str
    rule_set: str
    version: int
    feasible: bool
    points: int | None
    rules: list[Explanation]

    def text(self) -> str:
        """Return the explanation for people, one line for each rule."""
        verdict = "may use" if self.feasible else "may not use"
        points = "" if self.points is None else f", {self.points} of {_MAX_POINTS} points"
        return "\n".join([f"{self.pod} {verdict} {self.node}{points}", *(f"- {rule.sentence}" for rule in self.rules)])


class _Question(NamedTuple):
    """One node of a cycle, and the rule set's version as sentences write it."""

    cycle: Cycle
    row: int
    version: str

    @property
    def name(self) -> str:
        return self.cycle.table.infos[self.row].name


def explain_node(
    rule_set: CompiledRuleSet, cycle: Cycle, name: str, rows: Rows | None = None, answer: Answer | None = None
) -> NodeExplanation:
    """Explain every rule of a rule set for one node. The rule set's own params are taken, whatever the cycle's are.

    Args:
        rule_set: the rules.
        cycle: the Pod, the Snapshot and the moment.
        name: the node.
        rows: the nodes asked about, this one among them; scores are computed over them. All of the Snapshot when None.
        answer: the rule set's answer for these nodes; computed here when None.

    Raises:
        ObjectError: the Snapshot has no node of this name.
        DeadlineError: raised by the cycle's `give_way`.
    """
    row = cycle.table.row_of.get(name)
    if row is None:
        message = f"no node is called {name}"
        raise ObjectError(message)
    cycle = Cycle(
        pod=cycle.pod, snapshot=cycle.snapshot, now=cycle.now, params=rule_set.params, give_way=cycle.give_way
    )
    question = _Question(cycle, row, f" (version {rule_set.version})" if rule_set.version else "")
    rules: list[Explanation] = []
    for rule, made in rule_set.filters:
        rules.append(_explain_filter(question, rule, made, asked=not any(map(_refuses, rules))))
    if not any(map(_refuses, rules)):
        rules += _beside_nominated(question, rule_set)
    rows = cycle.table.all_rows() if rows is None else rows
    answer = decide(rule_set, cycle, rows) if answer is None else answer
    if answer.missed:
        raise DeadlineError
    scored = rows[answer.scored]
    index = next(iter(np.flatnonzero(scored == row).tolist()), None)
    scores = [
        _explain_score(question, number, made, answer, index, scored)
        for number, (_, made) in enumerate(rule_set.scores)
    ]
    return NodeExplanation(
        pod=f"{cycle.pod.namespace}/{cycle.pod.name}",
        node=name,
        rule_set=rule_set.name,
        version=rule_set.version,
        feasible=name in answer.feasible,
        points=int(answer.points[index]) if scores and index is not None else None,
        rules=rules + scores,
    )


def _refuses(found: Explanation) -> bool:
    return found.mode == "enforce" and found.code != Code.SUCCESS


def _beside_nominated(question: _Question, rule_set: CompiledRuleSet) -> list[Explanation]:
    """Return the first filter that refuses the node once the Pods nominated to it are there, if one does."""
    cycle, name = question.cycle, question.name
    together = cycle.snapshot.with_nominated(cycle.pod) if cycle.snapshot.nominated else None
    if together is None or together.node(name) is cycle.snapshot.node(name):
        return []
    alone = cycle.snapshot.changed({name: together.node(name)}, nominated={})
    beside = Cycle(pod=cycle.pod, snapshot=alone, now=cycle.now, params=cycle.params, give_way=cycle.give_way)
    asked = _Question(beside, alone.table.row_of[name], question.version)
    found = (
        _explain_filter(asked, rule, made, asked=True, where=", beside the Pods nominated there")
        for rule, made in rule_set.filters
        if rule.mode == "enforce"
    )
    return list(islice(filter(_refuses, found), 1))


def _explain_filter(
    question: _Question, rule: FilterRule, made: Filter, *, asked: bool, where: str = ""
) -> Explanation:
    cycle, row = question.cycle, question.row
    status = made.filter(cycle, _only(row)).at(0)
    detail = made.detail_of_pass(cycle, row) if status is None else made.detail(cycle, row, status)
    head = f"filter {rule.key}{question.version} "
    if status is None:
        sentence = f"{head}lets {question.name} pass"
    else:
        verb = "refused" if asked else "wasn't asked, and would have refused"
        verb = verb if rule.mode == "enforce" else f"(mode {rule.mode}, so that it doesn't count) would have refused"
        sentence = f'{head}{verb} {question.name}{where}: "{status.reason}"'
    return Explanation(
        rule=rule.key,
        kind="filter",
        node=question.name,
        mode=rule.mode,
        code=(status.code if status else Code.SUCCESS).value,
        sentence=_sentence(sentence, detail.says, detail.remedy if status else ""),
        reason=status.reason if status else "",
        asked=asked,
        seen=dict(detail.seen),
        wanted=detail.wanted,
        remedy=detail.remedy if status else "",
    )


def _sentence(*parts: str) -> str:
    """Join the parts that aren't empty. Each begins with a small letter, and keeps it after a full stop."""
    return (
        ". ".join(f"{part[0].upper()}{part[1:]}" if index else part for index, part in enumerate(parts) if part) + "."
    )


def _explain_score(
    question: _Question, number: int, made: Score, answer: Answer, index: int | None, scored: Rows
) -> Explanation:
    column = answer.scores[number]
    rule = column.rule
    head = f"score {rule.key}{question.version} "
    common: dict[str, Any] = {"rule": rule.key, "kind": "score", "node": question.name, "mode": rule.mode}
    if index is None:
        sentence = f"{head}wasn't asked about {question.name}: a filter refused it."
        return Explanation(code="NotScored", sentence=sentence, asked=False, weight=rule.weight, **common)
    raw = int(column.raw[index])
    weights = sum(each.rule.weight for each in answer.scores if each.rule.mode == "enforce")
    share = raw * _MAX_POINTS * rule.weight / (_MAX_SCORE * weights) if rule.mode == "enforce" else 0.0
    detail = made.detail(question.cycle, question.row, scored)
    if rule.mode == "enforce":
        adds = f"weight {rule.weight} of {weights} adds {share:.2f} of {_MAX_POINTS} points"
    else:
        adds = "it is in shadow mode and adds nothing"
    return Explanation(
        code="Scored",
        sentence=_sentence(f"{head}gives {question.name} {raw} of {_MAX_SCORE}", detail.says, adds),
        seen=dict(detail.seen),
        wanted=detail.wanted,
        remedy=detail.remedy,
        value=detail.value,
        bounds=detail.bounds,
        raw=raw,
        weight=rule.weight,
        contribution=round(share, 4),
        **common,
    )


def _only(row: int) -> Rows:
    return np.array([row], dtype=np.intp)
