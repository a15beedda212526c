"""Why a rule says what it says of a node: what it saw, what it wanted, and what would change the answer. Pure.

A filter is asked again about the one node; scores are those of `decision.decide` over all nodes of the Snapshot. So
the answers are the engine's own. Sentences are for people and may change; programs read the members.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from policies.engine.cel import EvaluationFault, Expression, Result, Value
from policies.engine.decision import Answer, CompiledRuleSet, decide
from policies.engine.errors import ExpressionError, ObjectError
from policies.engine.explain_builtins import Detail, Refusal, detail_of, spelled
from policies.engine.filters.expression import ExpressionFilter
from policies.engine.objects.node import MISSING, trace
from policies.engine.objects.table import Rows
from policies.engine.rule import Cycle, Filter, Score
from policies.engine.ruleset import FilterRule, ScoreRule
from policies.engine.scores.expression import ExpressionScore
from policies.engine.status import Code

_MAX_SHOWN = 80
_MAX_SCORE = 100
_MAX_POINTS = 10
_NOW = re.compile(r"\bnow\b")
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_COUNT_CALL = re.compile(r"\b(?:node|topology|cluster)\s*\.\s*count\s*\(")
_OF_NODES = ("node", "usage", "topology")

Seen = dict[str, Any]


class Explanation(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """What one rule says of one node, and why.

    Attributes:
        code: of a filter as in Status; of a score Scored, or NotScored for a node that a filter refused.
        asked: False where an earlier filter had refused the node, so that this one's word doesn't count.
        seen: what the rule looked at -> the value, None where there is nothing.
        wanted: what has to hold; of a score what it goes by.
        remedy: what would change the answer, empty where that isn't known.
        value: what a score's expression gave, None for a built-in.
        bounds: between what the value counted.
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
    """What a rule set says of a Pod and a node, rule by rule. `points` are 0..10, None for a node without scores."""

    pod: str
    node: str
    rule_set: str
    version: int
    feasible: bool
    points: int | None
    rules: list[Explanation]

    def text(self) -> str:
        """Return all of it for people, a line a rule."""
        verdict = "may use" if self.feasible else "may not use"
        points = "" if self.points is None else f", {self.points} of {_MAX_POINTS} points"
        return "\n".join([f"{self.pod} {verdict} {self.node}{points}", *(f"- {rule.sentence}" for rule in self.rules)])


class _Question(NamedTuple):
    """One node of a cycle, and the rule set's version as it stands in sentences."""

    cycle: Cycle
    row: int
    version: str

    @property
    def name(self) -> str:
        return self.cycle.table.infos[self.row].name


def explain_node(rule_set: CompiledRuleSet, cycle: Cycle, name: str) -> NodeExplanation:
    """Explain every rule of a rule set for one node. The rule set's own params are taken, whatever the cycle's are.

    Raises:
        ObjectError: no node of the Snapshot is called so.
    """
    row = cycle.table.row_of.get(name)
    if row is None:
        message = f"no node is called {name}"
        raise ObjectError(message)
    cycle = Cycle(pod=cycle.pod, snapshot=cycle.snapshot, now=cycle.now, params=rule_set.params)
    question = _Question(cycle, row, f" (version {rule_set.version})" if rule_set.version else "")
    rules: list[Explanation] = []
    for rule, made in rule_set.filters:
        refused = any(found.mode == "enforce" and found.code != Code.SUCCESS for found in rules)
        rules.append(_explain_filter(question, rule, made, asked=not refused))
    answer = decide(rule_set, cycle, cycle.table.all_rows())
    index = next(iter(np.flatnonzero(answer.scored == row).tolist()), None)
    scores = [_explain_score(question, number, made, answer, index) for number, (_, made) in enumerate(rule_set.scores)]
    return NodeExplanation(
        pod=f"{cycle.pod.namespace}/{cycle.pod.name}",
        node=name,
        rule_set=rule_set.name,
        version=rule_set.version,
        feasible=name in answer.feasible,
        points=int(answer.points[index]) if scores and index is not None else None,
        rules=rules + scores,
    )


def _explain_filter(question: _Question, rule: FilterRule, made: Filter, *, asked: bool) -> Explanation:
    cycle, row = question.cycle, question.row
    status = made.filter(cycle, _only(row)).at(0)
    if isinstance(made, ExpressionFilter):
        detail = _expression_detail(made.expression, question, passes=status is None)
    elif status is not None:
        detail = detail_of(Refusal(cycle, row, status.reason, made, rule.arguments))
    else:
        detail = Detail()
    head = f"filter {rule.key}{question.version} "
    if status is None:
        sentence = f"{head}lets {question.name} pass"
    else:
        verb = "refused" if asked else "wasn't asked, and would have refused"
        verb = verb if rule.mode == "enforce" else f"(mode {rule.mode}, so that it doesn't count) would have refused"
        sentence = f'{head}{verb} {question.name}: "{status.reason}"'
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
    """Join what there is; the parts begin small and stand after full stops as they are."""
    return (
        ". ".join(f"{part[0].upper()}{part[1:]}" if index else part for index, part in enumerate(parts) if part) + "."
    )


def _expression_detail(expression: Expression, question: _Question, *, passes: bool) -> Detail:
    seen = seen_by(expression, question.cycle, question.row)
    value = expression.evaluate(question.cycle, _only(question.row)).listed()[0]
    source = " ".join(expression.source.split())
    if isinstance(value, EvaluationFault):
        says = f"the expression could not be evaluated: {value.message}. It reads {shown(seen)}"
        remedy = "say what holds when something is missing: .? and orValue in the expression, or onError"
        return Detail(says, source, remedy, seen)
    says = f"the expression read {shown(seen)}" if seen else "the expression reads nothing"
    if passes:
        return Detail(says, source, "", seen)
    return Detail(f"{says}; it has to be true: {source}", source, _nearest(expression, question, seen), seen)


def _nearest(expression: Expression, question: _Question, seen: Seen) -> str:
    """Return where the expression is true, and what is different there: of all such nodes the one most alike."""
    cycle = question.cycle
    mine = {name: value for name, value in seen.items() if name.startswith(_OF_NODES)}
    if not mine:
        return "it reads nothing of nodes, so it says the same of every node: the Pod, params or the time would have to change"
    values = expression.evaluate(cycle, cycle.table.all_rows()).listed()
    found: tuple[int, str, Seen] | None = None
    for row in [row for row, value in enumerate(values) if value is True]:
        theirs = seen_by(expression, cycle, row)
        differing = {name: theirs[name] for name in mine if theirs[name] != mine[name]}
        candidate = (len(differing), cycle.table.infos[row].name, differing)
        found = min(found or candidate, candidate, key=lambda each: each[:2])
    if found is None:
        return "it is true on no node"
    return f"it is true on {found[1]}, where {shown(found[2])}"


def seen_by(expression: Expression, cycle: Cycle, row: int) -> Seen:
    """Return what an expression reads for one node: each path, count and the time -> the value, None for nothing."""
    info = cycle.table.infos[row]
    objects = {"pod": cycle.pod.json, "node": info.node.json, "params": dict(cycle.params), "usage": info.usage}
    seen: Seen = {}
    for root in ("pod", "node", "usage", "params"):
        for path in expression.reads[root]:
            found = trace(objects[root], path)
            seen[spelled(root, path)] = found.value if found.depth == len(path) and found.value is not MISSING else None
    for call in _count_calls(expression.source):
        try:
            (value,) = Expression(call, Result.NUMBER).evaluate(cycle, _only(row)).listed()
        except ExpressionError:  # it stands in a comment
            continue
        seen[call] = value.message if isinstance(value, EvaluationFault) else value
    if _NOW.search(_QUOTED.sub("", expression.source)):
        seen["now"] = cycle.now.isoformat()
    return seen


def shown(seen: Mapping[str, Any]) -> str:
    """Write what was seen: a = "x", b = nothing and c = 2. Long values are cut short."""
    parts = [f"{name} = {_shown(value)}" for name, value in seen.items()]
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"  # noqa: PLR2004


def _shown(value: object) -> str:
    text = "nothing" if value is None else msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"


def _count_calls(source: str) -> Iterator[str]:
    """Iterate over the calls of count as they stand in an expression, each once. What is quoted isn't looked into."""
    blank = _QUOTED.sub(lambda found: "'" + "_" * (len(found[0]) - 2) + "'", source)
    calls: dict[str, None] = {}
    for found in _COUNT_CALL.finditer(blank):
        end, depth = found.end(), 1
        while depth and end < len(blank):
            depth += {"(": 1, ")": -1}.get(blank[end], 0)
            end += 1
        calls[" ".join(source[found.start() : end].split())] = None
    yield from calls


def _explain_score(question: _Question, number: int, made: Score, answer: Answer, index: int | None) -> Explanation:
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
    detail, value, bounds = _score_detail(question, rule, made, answer)
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
        value=value,
        bounds=bounds,
        raw=raw,
        weight=rule.weight,
        contribution=round(share, 4),
        **common,
    )


def _score_detail(
    question: _Question, rule: ScoreRule, made: Score, answer: Answer
) -> tuple[Detail, float | int | None, tuple[float | int, float | int] | None]:
    if not isinstance(made, ExpressionScore):
        says = (made.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        return Detail(says, says), None, None
    cycle, expression = question.cycle, made.expression
    seen = seen_by(expression, cycle, question.row)
    source = " ".join(expression.source.split())
    value = _number(expression.evaluate(cycle, _only(question.row)).listed()[0])
    others = [_number(other) for other in expression.evaluate(cycle, answer.scored).listed()]
    known = [number for number in others if number is not None]
    bounds = rule.bounds or ((min(known), max(known)) if known else None)
    read = f"; it read {shown(seen)}" if seen else ""
    if value is None or bounds is None:
        says = f"the expression gave no number, which counts as the least{read}"
        return Detail(says, source, "", seen), None, bounds
    whose = "its bounds" if rule.bounds else "the lowest and highest of the nodes scored"
    says = f"the expression gave {value} between {bounds[0]} and {bounds[1]}, {whose}{read}"
    remedy = "" if value >= bounds[1] else f"{bounds[1]} and more would give {_MAX_SCORE}"
    return Detail(says, source, remedy, seen), value, bounds


def _number(value: Value) -> float | int | None:
    if isinstance(value, EvaluationFault) or value != value or abs(value) == float("inf"):  # noqa: PLR0124 - NaN
        return None
    return value


def _only(row: int) -> Rows:
    return np.array([row], dtype=np.intp)
