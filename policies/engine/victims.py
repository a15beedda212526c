"""Victims rules: expressions that say which Pods on nodes preemption may remove for a Pod that finds no room.

They read one Pod at a time, and a preemption concerns a few Pods, so nothing here works on columns.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

from policies.engine.cel import EvaluationFault, TooLarge, VictimExpression
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.running import running_json
from policies.engine.rule import Cycle
from policies.engine.ruleset import DEFAULT_FAILURES, Failures, VictimRule
from policies.engine.status import Code, Status

UNKNOWN_VICTIM = "the Pod on the node is not known to Berth"
UNKNOWN_NODE = "the node is not known to Berth"
_DEFAULT_NAMESPACE = "default"


class Victim(NamedTuple):
    """A Pod that preemption would remove. `pod` is None for one that the Snapshot doesn't have."""

    uid: str
    pod: Pod | None

    @property
    def name(self) -> str:
        """The Pod's name for people: `namespace/name`, its uid where it isn't known."""
        return self.uid if self.pod is None else f"{self.pod.namespace}/{self.pod.name}"


class Case:
    """The question for a victims rule: may this Pod be removed from this node for that one?

    `pod` is the one that finds no room; `node` is None for one that the Snapshot doesn't have.
    """

    def __init__(
        self, victim: Victim, *, pod: Pod, node: Node | None, params: Mapping[str, Any], now: datetime
    ) -> None:
        self.victim = victim
        self.now = now
        self._pod = pod
        self._node = node
        self._params = params

    @cached_property
    def objects(self) -> dict[str, Mapping[str, Any]]:
        """The known variables of expressions, except the time. Made once for all rules."""
        found: dict[str, Mapping[str, Any]] = {"pod": self._pod.json, "params": self._params}
        if self.victim.pod is not None:
            found["victim"] = running_json(self.victim.pod)
        if self._node is not None:
            found["node"] = self._node.json
        return found


class Ruling(NamedTuple):
    """The answer of a victims rule: the protection, None where the Pod may be removed.

    `fault` says why the rule couldn't be evaluated, if so; `is_too_large` says that the objects it reads were too large.
    """

    status: Status | None
    fault: str = ""
    is_too_large: bool = False


class CompiledVictimRule:
    """Protects the Pods for which its expression is false.

    Where it can't be evaluated the rule's onError decides: `reject` protects the Pod, `pass` doesn't. Where the evaluation would
    take too long, the rule set's `failures.deadline` decides.
    """

    def __init__(self, rule: VictimRule, failures: Failures = DEFAULT_FAILURES) -> None:
        self.expression = VictimExpression(rule.expression)
        self._protected = Status(Code.UNRESOLVABLE, rule.reason or f"protected by rule {rule.key}")
        self._failed = Status(Code.ERROR, f"rule {rule.key} could not be evaluated")
        self._on_error = self._failed if rule.on_error == "reject" else None
        large = Status(Code.ERROR, f"the victim, the Pod or the node is too large for rule {rule.key}")
        self._on_too_large = large if failures.deadline == "refuse" else None

    def ask(self, case: Case) -> Ruling:
        """Evaluate the expression."""
        value = self._evaluate(case)
        if isinstance(value, TooLarge):
            return Ruling(self._on_too_large, value.message, is_too_large=True)
        if isinstance(value, EvaluationFault):
            return Ruling(self._on_error, value.message)
        return Ruling(None if value else self._protected)

    def _evaluate(self, case: Case) -> bool | EvaluationFault:
        read = (name for name, paths in self.expression.reads.items() if paths)
        missing = next((name for name in read if name not in case.objects), "")
        if missing:
            return EvaluationFault(UNKNOWN_VICTIM if missing == "victim" else UNKNOWN_NODE)
        return self.expression.evaluate(case.objects, case.now)


CompiledVictimRules = Sequence[tuple[VictimRule, CompiledVictimRule]]


def protected_pods(rules: CompiledVictimRules, cycle: Cycle) -> list[str]:
    """Return the Pods on the Snapshot's nodes that enforced rules protect from the cycle's Pod, whatever its priority.

    Returns:
        Their names, with `namespace/` before those of other namespaces than default; sorted.
    """
    made = [made for rule, made in rules if rule.mode == "enforce"]
    names = []
    for info in cycle.snapshot.nodes.values():
        for pod in info.pods:
            case = Case(Victim(pod.uid, pod), pod=cycle.pod, node=info.node, params=cycle.params, now=cycle.now)
            if any(each.ask(case).status is not None for each in made):
                names.append(pod.name if pod.namespace == _DEFAULT_NAMESPACE else case.victim.name)
    return sorted(names)
