"""Counts verdicts for Prometheus, cheaply, and only for rules that are published."""

import threading
from collections.abc import Iterator

import numpy as np
from prometheus_client import REGISTRY
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from policies.engine.decision import Answer, CompiledRevision, CompiledRuleSet
from policies.engine.status import PASSED

_NAMES = ("pass", "refuse", "fault")


class Verdicts(Collector):
    """Counts each rule's verdicts on nodes. Label values are names from the Revision in use, so there are few.

    It is its own collector: each child of a Counter has a lock, and there are three children for each rule of an answer.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], list[int]] = {}
        # The rules of the served Revision; None before there is one.
        self._published: set[tuple[str, str]] | None = None
        self._lock = threading.Lock()

    def count(self, rule_set: CompiledRuleSet, answer: Answer, *, only_shadows: bool = False) -> None:
        """Add an answer. A node on which a rule could not be evaluated counts as `fault`, whether or not it passed.

        Args:
            rule_set: the rule set.
            answer: its answer.
            only_shadows: whether the enforced rules were counted already.
        """
        left = len(answer.refusal)
        with self._lock:
            for rule, codes, _, faults, is_silent in answer.filters:
                # Nearly all rules refuse no node: counting isn't needed, all nodes that are left pass.
                passed, refused = left, 0
                if not is_silent:
                    passed, refused = int(np.count_nonzero(codes == PASSED)), int(np.count_nonzero(codes >= 0))
                    left -= refused if rule.mode == "enforce" else 0
                if (passed or refused) and not (only_shadows and rule.mode == "enforce"):
                    counts = self._counts.setdefault((rule_set.name, rule.key), [0, 0, 0])
                    counts[0] += passed
                    counts[1] += refused
                    if faults:
                        counts[2] += sum(faults.values())

    def forget_others(self, revision: CompiledRevision) -> None:
        """Drop the counts of rules that are no longer published.

        Answers and shadows of the Revision before may still be counted afterwards. They aren't exported.
        """
        kept = {(name, rule.key) for name, found in revision.rule_sets.items() for rule, _ in found.filters}
        with self._lock:
            self._published = kept
            self._counts = {key: counts for key, counts in self._counts.items() if key in kept}

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yield the counts for Prometheus."""
        family = CounterMetricFamily(
            "berth_verdicts", "Results of filter rules for nodes", labels=["rule_set", "rule", "verdict"]
        )
        with self._lock:
            published = self._counts.keys() if self._published is None else self._published
            found = [(key, tuple(counts)) for key, counts in self._counts.items() if key in published]
        for key, counts in found:
            for name, number in zip(_NAMES, counts, strict=True):
                family.add_metric([*key, name], number)
        yield family


# The process's instance.
VERDICTS = Verdicts()
REGISTRY.register(VERDICTS)
