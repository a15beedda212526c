"""Counts verdicts for Prometheus, cheaply, and only for rules that are published."""

import numpy as np
from prometheus_client import Counter

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet
from policies.engine.status import PASSED
from scheduler.metrics import VERDICTS

_NAMES = ("pass", "refuse", "fault")


class Verdicts:
    """Counts what each rule said of nodes. Label values are names of the Revision in use, so they stay few."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[Counter, ...]] = {}

    def count(self, rule_set: CompiledRuleSet, answer: Answer) -> None:
        """Add an answer. A node on which a rule could not be evaluated counts as `fault`, whatever became of it."""
        codes, passed = None, 0
        for column in answer.filters:
            if column.codes is not codes:  # rules that refuse nobody share theirs
                codes, passed = column.codes, int(np.count_nonzero(column.codes == PASSED))
            refused = int(np.count_nonzero(column.codes >= 0)) if column.statuses else 0
            if not refused and not passed:
                continue
            faults = sum(column.faults.values()) if column.faults else 0
            key = (rule_set.name, column.rule.key)
            counters = self._known.get(key)
            if counters is None:
                counters = self._known[key] = tuple(VERDICTS.labels(*key, name) for name in _NAMES)
            for counter, number in zip(counters, (passed, refused, faults), strict=True):
                if number:
                    counter.inc(number)

    def forget_others(self, revision: CompiledRevision) -> None:
        """Drop the counters of rules that are no longer published."""
        kept = {(name, rule.key) for name, found in revision.rule_sets.items() for rule, _ in found.filters}
        for key in [key for key in self._known if key not in kept]:
            del self._known[key]
            for name in _NAMES:
                VERDICTS.remove(*key, name)
