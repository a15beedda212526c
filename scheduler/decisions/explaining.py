"""Explains a recorded Decision in sentences: why the Pod may use some nodes, and why not the others.

The values that a rule read come from the Decision's Snapshot, which is rebuilt. If the Snapshot was pruned, the
fields are named, and their values are unknown.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from policies import publishing
from policies.engine.cel import Expression, Result, seen_by, shown, values_at
from policies.engine.decision import NOT_IN_TIME, Answer, CompiledRuleSet, decide
from policies.engine.errors import DeadlineError, ExpressionError, ObjectError, RuleSetError
from policies.engine.explain import explain_node
from policies.engine.objects.node import spelled
from policies.engine.objects.pod import Pod
from policies.engine.params import overridden
from policies.engine.pauses import without_rules
from policies.engine.preemption.vetoes import Veto
from policies.engine.rule import Cycle
from policies.engine.ruleset import FilterRule, RuleSet, ScoreRule
from policies.engine.scheduling import default_profile, document_with_default_filters, judge, with_default_filters
from policies.models import RuleSetVersion
from policies.publishing import rule_set_held
from policies.sentences import rule_sentence
from policies.wording import listed
from scheduler.decisions.matrix import Matrix, matrix_of
from scheduler.decisions.reading import (
    chosen_by,
    preemption_of,
    read_both,
    revision_digest_of,
    rules_out_of_force,
    suspended_by,
)
from scheduler.decisions.rebuilding import ReplayError, Snapshots
from scheduler.decisions.record import UNKNOWN_NODE
from scheduler.decisions.time_limit import TimeLimit
from scheduler.models import Decision

_PASSED, _NOT_EVALUATED = -1, -2
_MAX_NAMES = 5
# The verbs that look for the best of several nodes.
_SCORING = ("filter", "prioritize", "schedule")
_NOT_RECORDED = "(not recorded)"


class Sentence(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """One rule's verdict on a group of nodes. `raw`: a score, 0..100; `wanted` is empty if the rule set's version is unknown."""

    rule: str
    kind: str
    mode: str
    code: str
    nodes: list[str]
    sentence: str
    reason: str = ""
    raw: int | None = None
    wanted: str = ""
    seen: dict[str, Any] = {}


class _Recorded(NamedTuple):
    """A Decision, its body, and its Snapshot; None if that was pruned."""

    decision: Decision
    body: dict[str, Any]
    cycle: Cycle | None


def explain_decision(decision: Decision, node: str = "") -> dict[str, Any]:
    """Return a Decision in words and as a table; for one node also what would change each rule's verdict."""
    read, body = read_both(decision)
    own = _rule_set_of(decision, body)
    rule_set = _asked(decision, own)
    recorded = _recorded(decision, body, rule_set)
    sentences = list(_sentences(recorded, rule_set, node))
    report = {
        "id": str(decision.id),
        "at": decision.at.isoformat(),
        "verb": decision.verb,
        "mode": decision.mode,
        "revision": decision.revision,
        "ruleSet": decision.rule_set,
        "ruleSetVersion": decision.rule_set_version,
        "assignment": decision.assignment,
        "feasible": decision.feasible,
        "best": decision.best,
        "error": decision.error,
        "asked": [*(body.get("nodes") or []), *(body.get("unknown") or [])],
        "summary": summary_of(decision, body),
        "ruleSetKnown": rule_set is not None,
        "matrix": msgspec.to_builtins(_table(read.answer, decision.best, node)),
        "rules": msgspec.to_builtins(sentences),
    }
    if read.missing:
        report["missing"] = read.missing
    if chosen := chosen_by(body):
        report["chosenBy"] = chosen
    if preemption := preemption_of(body):
        report["preemption"] = preemption
    if node and rule_set and recorded.cycle and node in recorded.cycle.table.row_of:
        report |= _of_node(own, recorded, recorded.cycle, node)
    return report


def _of_node(own: RuleSet | None, recorded: _Recorded, cycle: Cycle, node: str) -> dict[str, Any]:
    """Return what would change each rule's verdict on a node, or why that is unknown. `own` is without the default filters."""
    limit, decision = TimeLimit(), recorded.decision
    rule_set = CompiledRuleSet(own) if own else default_profile()
    if own and decision.verb == "schedule":
        rule_set = with_default_filters(rule_set)
    names = list(recorded.body.get("nodes") or []) if decision.verb in _SCORING else []
    # Scores are normalized over the candidates; a node that wasn't one is scored together with them.
    rows = cycle.table.rows(names if node in names else [*names, node]) if names else cycle.table.all_rows()
    rows = rows[rows >= 0]
    cycle = Cycle(
        pod=cycle.pod, snapshot=cycle.snapshot, now=cycle.now, params=rule_set.params, give_way=limit.give_way
    )
    try:
        if decision.verb == "schedule":
            answer = judge(rule_set, cycle, rows)
        else:
            # /prioritize scores its candidates whatever filters say; for any other node, filters are evaluated first.
            is_only_scored = decision.verb == "prioritize" and node in names
            answer = decide(rule_set, cycle, rows, filtering=not is_only_scored)
        return {"node": msgspec.to_builtins(explain_node(rule_set, cycle, node, rows, answer))}
    except DeadlineError:
        return {"nodeFault": limit.over}


def sentences_of(decision: Decision, body: dict[str, Any]) -> list[Sentence]:
    """Return each rule's verdicts, without the values it read from nodes: no Snapshot is rebuilt for that.

    Args:
        decision: the Decision.
        body: as `body_of` returns it.
    """
    rule_set = _asked(decision, _in_force(body, _held(decision)))
    return list(_sentences(_Recorded(decision, body, None), rule_set, "", with_seen=False))


def _recorded(decision: Decision, body: dict[str, Any], rule_set: RuleSet | None) -> _Recorded:
    try:
        snapshot = Snapshots().of(decision)
        pod = Pod.from_json(body.get("pod") or {})
    except (ReplayError, ObjectError):
        return _Recorded(decision, body, None)
    params = rule_set.spec.params if rule_set else {}
    return _Recorded(decision, body, Cycle(pod=pod, snapshot=snapshot, now=decision.at, params=params))


def summary_of(decision: Decision, body: dict[str, Any]) -> str:
    """Return the answer in a sentence."""
    pod = f"{decision.pod_namespace}/{decision.pod_name}"
    if decision.error:
        return f"{pod} could not be decided: {decision.error}"
    if not decision.rule_set and (suspended := suspended_by(body)):
        return f"{pod}: every node passes and none gets a score, because {'; '.join(suspended)}"
    if not decision.rule_set:
        return f"{pod} is taken by no Assignment: every node passes and none gets a score"
    best = f", best {decision.best}" if decision.best else ""
    may = (
        f"{decision.feasible:,} of {decision.nodes:,} nodes may be used"
        if decision.nodes
        else "there was no node to ask about"
    )
    said = f"{pod}: {may}{best}, by {_by(decision)}"
    return said if decision.mode == "enforce" else f"[{decision.mode}] {said}"


def _by(decision: Decision) -> str:
    """Return which rules decided. The classic default set of Berth's own scheduler has no version, and mostly no Assignment."""
    version = decision.rule_set_version
    rules = f"rule set {decision.rule_set} version {version}" if version else "the classic default set"
    return f"{rules} (Assignment {decision.assignment})" if decision.assignment else rules


def _table(answer: Answer, best: str, node: str) -> Matrix:
    """Return the table of an answer; for one node its row alone, however many groups of nodes there are."""
    if not node:
        return matrix_of(answer, best=best)
    whole = matrix_of(answer, best=best, most=len(answer.names))
    rows = [msgspec.structs.replace(row, nodes=[node]) for row in whole.rows if node in row.nodes]
    return msgspec.structs.replace(whole, rows=rows)


def _rule_set_of(decision: Decision, body: dict[str, Any]) -> RuleSet | None:
    """Return the rule set as it was, with the params in force, also if it would be refused now.

    None if it was deleted, if a restore lost the Decision's Revision, or if this version of Berth can't evaluate it.
    """
    if not decision.rule_set_version or _is_revision_lost(decision):
        return None
    found = RuleSetVersion.objects.filter(rule_set__name=decision.rule_set, number=decision.rule_set_version)
    version = found.select_related("rule_set").prefetch_related("rules").first()
    try:
        rule_set = publishing.version_content(version) if version else None
        if rule_set is not None:
            CompiledRuleSet(rule_set)  # that it went live doesn't say that this version of Berth can evaluate it
    except (RuleSetError, ExpressionError, msgspec.ValidationError, KeyError):
        return None
    return _in_force(body, rule_set)


def _held(decision: Decision) -> RuleSet | None:
    """Return the rule set as the Decision's Revision held it; None where a restore lost the Revision."""
    if not decision.rule_set_version or _is_revision_lost(decision):
        return None
    try:
        found = rule_set_held(decision.rule_set, decision.revision)
    except msgspec.DecodeError:
        return None
    return found if found and found.version == decision.rule_set_version else None


def _is_revision_lost(decision: Decision) -> bool:
    """Return whether the Decision's Revision isn't there: after a restore, numbers of Revisions and versions are used a second time."""
    digest = revision_digest_of(decision)
    try:
        return bool(digest) and not publishing.has_revision(decision.revision, digest)
    except msgspec.DecodeError:
        return True


def _in_force(body: dict[str, Any], rule_set: RuleSet | None) -> RuleSet | None:
    """Return a rule set with the Assignment's params, and without the rules that were suspended."""
    if rule_set is not None and (given := (body.get("notes") or {}).get("params")):
        spec = msgspec.structs.replace(rule_set.spec, params=overridden(rule_set.spec.params, given))
        rule_set = msgspec.structs.replace(rule_set, spec=spec)
    if rule_set is not None:
        rule_set = without_rules(rule_set, rules_out_of_force(body, rule_set.name))
    return rule_set


def _asked(decision: Decision, rule_set: RuleSet | None) -> RuleSet | None:
    """Return the document of all evaluated rules: Berth's own scheduler puts the classic default set before a rule set.

    The default set alone has no version.
    """
    is_behind = decision.verb == "schedule" and (rule_set is not None or not decision.rule_set_version)
    return document_with_default_filters(rule_set) if is_behind else rule_set


def _sentences(
    recorded: _Recorded, rule_set: RuleSet | None, node: str, *, with_seen: bool = True
) -> Iterator[Sentence]:
    body = recorded.body
    nodes = list(body.get("nodes") or [])
    number = recorded.decision.rule_set_version
    version = f" (version {number})" if number else ""
    filters = {rule.key: rule for rule in rule_set.spec.filters} if rule_set else {}
    scores = {rule.key: rule for rule in rule_set.spec.scores} if rule_set else {}
    params = rule_set.spec.params if rule_set else {}
    yield from _unknown_sentences(recorded, node)
    refused: set[str] = set()
    missed = (body.get("notes") or {}).get("missed") or ()
    late = (each.get("rule", "") for each in body.get("filters") or [] if each.get("mode") == "enforce")
    # The first rule without time to be evaluated, if the rule set refuses nodes then.
    in_vain = "" if recorded.decision.feasible else next((name for name in late if name in missed), "")
    asked: set[str] = set()
    for column in body.get("filters") or []:
        name = column.get("rule", "")
        head, verdicts = f"filter {name}{version}", column.get("verdicts") or []
        # A second column of a rule is from Berth's own scheduler, which evaluates nodes with nominated Pods once more.
        where = ", beside the Pods nominated there" if name in asked else ""
        asked.add(name)
        wanted = _wanted(filters.get(name))
        expression = _expression(filters.get(name)) if with_seen else None
        for verdict, group in _groups(nodes, verdicts, node):
            seen = _seen(expression, recorded, params, group)
            if verdict == _NOT_EVALUATED:
                is_late, is_refusal = name in missed, name == in_vain
                yield from _unasked(column, head, group, refused, wanted, seen, is_late=is_late, is_refusal=is_refusal)
            else:
                yield _filter_sentence(column, head, verdict, group, wanted, seen, where=where)
        if column.get("mode", "enforce") == "enforce":
            refused |= {each for each, verdict in zip(nodes, verdicts, strict=False) if verdict >= 0}
    for column in body.get("scores") or []:
        name = column.get("rule", "")
        wanted = _wanted(scores.get(name))
        expression = _expression(scores.get(name)) if with_seen else None
        for raw, group in _groups(nodes, column.get("raw") or [], node):
            seen = _seen(expression, recorded, params, group)
            yield _score_sentence(column, f"score {name}{version}", raw, group, wanted, seen)
    for veto in msgspec.convert(body.get("notes", {}).get("vetoes") or [], list[Veto]):
        if node in {"", veto.node}:
            yield _veto_sentence(veto)


def _unknown_sentences(recorded: _Recorded, only: str) -> Iterator[Sentence]:
    """Iterate over the sentences about unknown nodes: /filter refuses them if rules decide. With `only`, just for that node."""
    names = [name for name in recorded.body.get("unknown") or [] if only in {"", name}]
    if names and recorded.decision.verb == "filter" and recorded.decision.rule_set:
        said = f"Berth hadn't seen {named(names)} yet when it was asked, and refused {_them(names)}"
        yield Sentence(
            rule="",
            kind="filter",
            mode="enforce",
            code=UNKNOWN_NODE.code.value,
            nodes=names,
            sentence=f'{said}: "{UNKNOWN_NODE.reason}".',
            reason=UNKNOWN_NODE.reason,
        )


def _groups(nodes: list[str], values: list[Any], only: str) -> list[tuple[Any, list[str]]]:
    """Return the nodes grouped by value, in the order in which values first occur; with `only`, just that node."""
    groups: dict[Any, list[str]] = {}
    for node, value in zip(nodes, values, strict=False):
        if only in {"", node}:
            groups.setdefault(value, []).append(node)
    return list(groups.items())


def _wanted(rule: FilterRule | ScoreRule | None) -> str:
    """Return what a rule requires; empty for a rule that isn't known. An expression needn't be one that this version can evaluate."""
    if rule is None:
        return ""
    return rule_sentence(rule) if rule.builtin else " ".join(rule.expression.split())


def _expression(rule: FilterRule | ScoreRule | None) -> Expression | None:
    """Return a rule's expression if it has one."""
    if rule is None or rule.builtin:
        return None
    return Expression(rule.expression, Result.BOOLEAN if isinstance(rule, FilterRule) else Result.NUMBER)


def _seen(
    expression: Expression | None, recorded: _Recorded, params: dict[str, Any], nodes: list[str]
) -> dict[str, Any]:
    """Return the values that an expression read. If nodes differ, each value comes with the nodes' names."""
    if expression is None:
        return {}
    if recorded.cycle is not None:
        return _seen_of(expression, recorded.cycle, nodes[:_MAX_NAMES])
    pod = recorded.body.get("pod") or {}
    seen = values_at(expression.reads, {"pod": pod, "requests": _requests_of(pod), "params": params})
    others = ("node", "usage", "namespaceObject")
    return seen | {spelled(root, path): _NOT_RECORDED for root in others for path in expression.reads[root]}


def _requests_of(pod: dict[str, Any]) -> dict[str, int]:
    try:
        return Pod.from_json(pod).amounts
    except ObjectError:  # that is why there was an Error
        return {}


def _seen_of(expression: Expression, cycle: Cycle, nodes: list[str]) -> dict[str, Any]:
    row_of = cycle.table.row_of
    by_node = {name: seen_by(expression, cycle, row_of[name]) for name in nodes if name in row_of}
    merged: dict[str, Any] = {}
    for path in next(iter(by_node.values()), {}):
        values = {name: seen[path] for name, seen in by_node.items()}
        first = next(iter(values.values()))
        merged[path] = first if all(value == first for value in values.values()) else values
    return merged


def _unasked(
    column: dict[str, Any],
    head: str,
    nodes: list[str],
    refused: set[str],
    wanted: str,
    seen: dict[str, Any],
    *,
    is_late: bool,
    is_refusal: bool,
) -> Iterator[Sentence]:
    """Iterate over why a rule wasn't evaluated for nodes: `refused` are those that earlier rules had refused.

    For the others it says whether there was no time, and whether they are refused for that.
    """
    before = [name for name in nodes if name in refused]
    others = [name for name in nodes if name not in refused]
    if before:
        said = f"wasn't asked about {named(before)}: an earlier rule had refused {_them(before)}"
        yield _filter_sentence(column, head, _NOT_EVALUATED, before, wanted, seen, said)
    if others:
        # Berth's own scheduler evaluates only nodes with nominated Pods once more.
        said = f"wasn't asked once more about {named(others)}: no Pods nominated there count"
        if is_late:
            said = f"wasn't asked about {named(others)}: there was no time left for {_them(others)}"
        reason = NOT_IN_TIME.reason if is_refusal else ""
        said += f', so that the rule set refuses {_them(others)}: "{reason}"' if reason else ""
        found = _filter_sentence(column, head, _NOT_EVALUATED, others, wanted, seen, said)
        yield msgspec.structs.replace(found, reason=reason)


def _filter_sentence(
    column: dict[str, Any],
    head: str,
    verdict: int,
    nodes: list[str],
    wanted: str,
    seen: dict[str, Any],
    unasked: str = "",
    where: str = "",
) -> Sentence:
    statuses = column.get("statuses") or []
    status = statuses[verdict] if 0 <= verdict < len(statuses) else {}
    mode = column.get("mode", "enforce")
    reason = status.get("reason", "")
    if verdict == _NOT_EVALUATED:
        code, sentence = "NotEvaluated", f"{head} {unasked}"
    elif verdict == _PASSED:
        code, sentence = "Success", f"{head} lets {named(nodes)} pass{where}"
    else:
        code = str(status.get("code", "Unschedulable"))
        verb = "refused" if mode == "enforce" else f"(mode {mode}, so that it doesn't count) would have refused"
        sentence = f'{head} {verb} {named(nodes)}{where}: "{reason}"' + _because(wanted, seen) + _faults(column, code)
    return Sentence(
        rule=column.get("rule", ""),
        kind="filter",
        mode=mode,
        code=code,
        nodes=nodes,
        sentence=f"{sentence}.",
        reason=reason,
        wanted=wanted,
        seen=seen,
    )


def _because(wanted: str, seen: dict[str, Any]) -> str:
    if not wanted:
        return ""
    return f". It read {shown(seen)}; it has to be true: {wanted}" if seen else f". It requires: {wanted}"


def _faults(column: dict[str, Any], code: str) -> str:
    faults = column.get("faults") or []
    if code != "Error" or not faults:
        return ""
    return ". Evaluating it ended with: " + "; ".join(str(fault.get("message", "")) for fault in faults)


def _score_sentence(
    column: dict[str, Any], head: str, raw: int | None, nodes: list[str], wanted: str, seen: dict[str, Any]
) -> Sentence:
    if raw is None:
        code, sentence = "NotScored", f"{head} wasn't asked about {named(nodes)}"
    else:
        code = "Scored"
        sentence = f"{head} gives {named(nodes)} {raw} of 100, weight {column.get('weight', 1)}"
        sentence += f". It scores by: {wanted}" if wanted else ""
    return Sentence(
        rule=column.get("rule", ""),
        kind="score",
        mode=column.get("mode", "enforce"),
        code=code,
        nodes=nodes,
        sentence=f"{sentence}.",
        raw=raw,
        wanted=wanted,
        seen=seen,
    )


def _veto_sentence(veto: Veto) -> Sentence:
    """Return why preemption on a node was vetoed; a veto is recorded with its own sentence."""
    return Sentence(
        rule=veto.rule,
        kind="victims",
        mode=veto.mode,
        code=veto.code,
        nodes=[veto.node],
        sentence=veto.sentence,
        reason=veto.reason,
        wanted=veto.wanted,
        seen=veto.seen,
    )


def _them(nodes: list[str]) -> str:
    return "it" if len(nodes) == 1 else "them"


def named(nodes: list[str]) -> str:
    """Return names of nodes for people: some of them, and how many more."""
    if len(nodes) <= _MAX_NAMES:
        return listed(nodes)
    return listed([*nodes[:_MAX_NAMES], f"{len(nodes) - _MAX_NAMES:,} more"])
