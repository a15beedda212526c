"""Preemption: which nodes may be freed for a Pod by removing the Pods that kube-scheduler would remove there. Pure.

kube-scheduler v1.36.3 (framework/preemption/preemption.go) finds the candidates and picks one of those that are left.
It has already reprieved every Pod that it could, so all the victims have to be removed for the Pod to fit. One protected
victim therefore drops its candidate, and the victims of the others stay as they are, in their order.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from policies.engine.cel import TOO_LARGE, VictimExpression, shown, values_at
from policies.engine.decision import CompiledRuleSet
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import go_on
from policies.engine.ruleset import RuleMode, VictimRule
from policies.engine.victims import Case, CompiledVictimRule, Victim


class Candidate(NamedTuple):
    """A node, and the Pods that would be removed there, the most important first."""

    node: str
    victims: Sequence[Victim]
    pdb_violations: int = 0


class Veto(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True, kw_only=True):
    """Why a candidate is dropped, or would be: by a rule in mode shadow, or if objects that are too large to judge didn't pass.

    Attributes:
        victim: `namespace/name` of the protected Pod, its uid where it isn't known.
        code: UnschedulableAndUnresolvable; Error where the rule could not be evaluated.
        seen: what the rule read -> the value, None where there is nothing.
        fault: why it could not be evaluated.
        wanted: the expression, true for a Pod that may be removed.
        passes: the rule couldn't be evaluated in time, and the rule set chose `failures.deadline: pass`.
    """

    rule: str
    version: int = 0
    mode: RuleMode
    node: str
    victim: str
    victim_uid: str
    code: str
    reason: str
    seen: dict[str, Any] = {}
    fault: str = ""
    wanted: str = ""
    sentence: str = ""
    passes: bool = False

    @property
    def drops(self) -> bool:
        """Whether it drops the candidate."""
        return self.mode == "enforce" and not self.passes

    @property
    def met_too_large(self) -> bool:
        """Whether the victim, the Pod or the node was too large for the rule to be evaluated."""
        return TOO_LARGE in self.fault


class Narrowed(NamedTuple):
    """The candidates that are left, in their order; a veto for each dropped one, and the vetoes that don't count."""

    kept: list[Candidate]
    vetoes: list[Veto]


def narrow(
    rule_set: CompiledRuleSet,
    pod: Pod,
    snapshot: Snapshot,
    candidates: Sequence[Candidate],
    now: datetime,
    end_in_time: Callable[[], None] = go_on,
    *,
    modes: Collection[str] = ("enforce", "shadow"),
) -> Narrowed:
    """Drop the candidates with a victim that the rule set protects.

    A candidate without victims is kept. Rules are evaluated in order until an enforced one drops the candidate.

    Args:
        rule_set: the rules.
        pod: the one that finds no room.
        snapshot: has the nodes that are known.
        candidates: what kube-scheduler found.
        now: the moment, aware of its time zone.
        end_in_time: called before each evaluation; it does nothing, or raises DeadlineError.
        modes: of the rules that are evaluated.

    Raises:
        DeadlineError: raised by `end_in_time`.
    """
    rules = [(rule, made) for rule, made in rule_set.victims if rule.mode in modes]
    kept: list[Candidate] = []
    vetoes: list[Veto] = []
    for candidate in candidates:
        info = snapshot.node(candidate.node)
        node = info.node if info else None
        cases = [Case(victim, pod=pod, node=node, params=rule_set.params, now=now) for victim in candidate.victims]
        found = _vetoes(rules, rule_set.version, candidate.node, cases, end_in_time)
        vetoes += found
        if not any(veto.drops for veto in found):
            kept.append(candidate)
    return Narrowed(kept, vetoes)


def _vetoes(
    rules: Sequence[tuple[VictimRule, CompiledVictimRule]],
    version: int,
    node: str,
    cases: Sequence[Case],
    end_in_time: Callable[[], None],
) -> list[Veto]:
    vetoes: list[Veto] = []
    for rule, made in rules:
        found = _of_rule(version, rule, made, node, cases, end_in_time)
        vetoes += found
        if any(veto.drops for veto in found):
            break
    return vetoes


def _of_rule(
    version: int,
    rule: VictimRule,
    made: CompiledVictimRule,
    node: str,
    cases: Sequence[Case],
    end_in_time: Callable[[], None],
) -> list[Veto]:
    """Return the rule's veto for the first Pod that it protects, preceded by the first Pod that was too large and passes."""
    found: list[Veto] = []
    for case in cases:
        end_in_time()
        ruling = made.ask(case)
        if ruling.status is not None or (ruling.is_too_large and not found):
            veto = Veto(
                rule=rule.key,
                version=version,
                mode=rule.mode,
                node=node,
                victim=case.victim.name,
                victim_uid=case.victim.uid,
                code=ruling.status.code.value if ruling.status else "",
                reason=ruling.status.reason if ruling.status else "",
                # Values that are too large aren't stored in Decisions either.
                seen={} if ruling.is_too_large else _seen(made.expression, case),
                fault=ruling.fault,
                wanted=" ".join(made.expression.source.split()),
                passes=ruling.status is None,
            )
            found.append(msgspec.structs.replace(veto, sentence=sentence_of(veto)))
        if ruling.status is not None:
            break
    return found


def _seen(expression: VictimExpression, case: Case) -> dict[str, Any]:
    objects = case.objects
    seen = values_at(expression.reads, {root: objects.get(root) for root in ("victim", "pod", "node", "params")})
    if expression.reads_now:
        seen["now"] = case.now.isoformat()
    return seen


def sentence_of(veto: Veto) -> str:
    """Return a veto as a sentence for people."""
    version = f" (version {veto.version})" if veto.version else ""
    verb = "protects" if veto.mode == "enforce" else f"(mode {veto.mode}, so that it doesn't count) would protect"
    says = f'victims rule {veto.rule}{version} {verb} {veto.victim} on {veto.node}: "{veto.reason}"'
    if veto.passes:
        return (
            f"victims rule {veto.rule}{version} lets {veto.victim} on {veto.node} be preempted unasked: {veto.fault}."
        )
    if veto.met_too_large:
        return f"{says}: {veto.fault}."
    read = f"It read {shown(veto.seen)}" if veto.seen else "It reads nothing"
    if veto.fault:
        return f"{says}. {read}. Evaluating it ended with: {veto.fault}."
    return f"{says}. {read}; it has to be true: {veto.wanted}."
