"""Whether a Pod would fit nodes if other Pods were on them: preemption needs this again and again. Pure.

Each node is evaluated as if it alone were different. For most rules the result is the same as if all were different at
once, so these are evaluated on all nodes together; the others are evaluated on one node after another.
"""

import copy
from collections.abc import Sequence

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.errors import DeadlineError
from policies.engine.objects.node import NodeInfo
from policies.engine.rule import Cycle
from policies.engine.status import Status


class Fitting:
    """Evaluates whether enforced filters pass a Pod on nodes, each of them with other Pods than in the Snapshot.

    Pods of at least the same priority that are nominated to a node count as if they were there. The Pod must fit without
    them too, since they may be placed elsewhere (kube-scheduler v1.36.3 framework/runtime/framework.go,
    RunFilterPluginsWithNominatedPods).
    """

    def __init__(self, rule_set: CompiledRuleSet, cycle: Cycle) -> None:
        pod, snapshot = cycle.pod, cycle.snapshot
        self._cycle = cycle
        self._nominated = snapshot.counted_nominated(pod)
        coming = [other for waiting in self._nominated.values() for other in waiting]
        self._near, self._far = copy.copy(rule_set), copy.copy(rule_set)
        self._near.filters, self._far.filters = [], []
        for rule, made in rule_set.filters:
            if rule.mode == "enforce":
                part = self._far if made.looks_around(pod, snapshot, coming) else self._near
                part.filters.append((rule, made))

    def refusals(self, infos: Sequence[NodeInfo]) -> list[Status | None]:
        """Return for each of these nodes, whose names must differ, why the Pod can't be on it; None where it can.

        The status comes from one of the rules that refuse, not always the first in the rule set's order.

        Raises:
            DeadlineError: raised by `give_way`: no Pod is preempted on an evaluation that wasn't completed.
        """
        joined = {info.name: info.joined(self._nominated[info.name]) for info in infos if info.name in self._nominated}
        found = self._ask(list(joined.values()))
        found |= self._ask([info for info in infos if found.get(info.name) is None])
        return [found[info.name] for info in infos]

    def _ask(self, infos: Sequence[NodeInfo]) -> dict[str, Status | None]:
        found = self._ask_together(self._near, infos)
        if self._far.filters:
            for info in infos:
                if found[info.name] is None:
                    found |= self._ask_together(self._far, [info])
        return found

    def _ask_together(self, rules: CompiledRuleSet, infos: Sequence[NodeInfo]) -> dict[str, Status | None]:
        found: dict[str, Status | None] = {info.name: None for info in infos}
        if infos and rules.filters:
            own = self._cycle
            changed = own.snapshot.changed({info.name: info for info in infos})
            cycle = Cycle(pod=own.pod, snapshot=changed, now=own.now, params=rules.params, give_way=own.give_way)
            answer = decide(rules, cycle, changed.table.rows(found), scoring=False)
            if answer.missed:
                raise DeadlineError
            found |= answer.refused()
        return found
