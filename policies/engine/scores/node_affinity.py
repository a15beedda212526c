"""Nodes that the Pod prefers."""

from collections.abc import Sequence

import msgspec
import numpy as np

from policies.engine.objects.matching import match_term
from policies.engine.objects.pod_spec import NodeAffinity, PodSpec, PreferredSchedulingTerm
from policies.engine.objects.table import Numbers, Rows
from policies.engine.rule import Cycle, Scope, Score
from policies.engine.scores.arithmetic import normalize
from policies.engine.selectors import is_empty_term, is_valid_term


class NodeAffinityPriority(Score):
    """Nodes score by how much of the Pod's preferred node affinity they match.

    The score is the sum of the weights of the matching terms, x 100 / the highest sum; all 0 when no term matches anywhere.
    Terms of weight 0 and empty ones don't count. A Pod without preferences isn't scored, nor is one with a term that
    Kubernetes can't parse: there kube-scheduler fails the Pod's whole cycle.

    Source: kube-scheduler v1.36.3 framework/plugins/nodeaffinity/node_affinity.go (PreScore, Score).
    """

    scope = Scope.NODE

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """Node affinity that all Pods get besides their own."""

        added_affinity: NodeAffinity | None = None

    def __init__(self, arguments: Arguments) -> None:
        self._affinity = arguments.added_affinity or NodeAffinity()
        self._added = _counting(self._affinity.preferred or ())

    def fault(self) -> str:
        """Return what kube-scheduler refuses too (apis/config/validation/validation_pluginargs.go), and a weight below 0.

        It takes such a weight, and then fails each Pod for a score that is out of range (framework/runtime/framework.go,
        RunScorePlugins).
        """
        if self._affinity.fault:
            return f"addedAffinity: {self._affinity.fault}"
        lowest = min((term.weight for term in self._affinity.preferred or ()), default=0)
        said = f"addedAffinity: a preference weighs 0 or more, not {lowest}; use NotIn or DoesNotExist"
        return said if lowest < 0 else ""

    def score(self, cycle: Cycle, rows: Rows) -> Numbers | None:
        """Add up the weights of the terms that match."""
        own = _preferred(cycle.pod.spec)
        if own is None and not self._added:
            return None
        terms = _counting(own or ())
        if not all(is_valid_term(term.preference) for term in terms):
            return None
        total = np.zeros(len(rows), dtype=np.int64)
        for term in [*self._added, *terms]:
            cycle.give_way()
            total += term.weight * match_term(cycle.table, rows, term.preference, cycle.give_way)
        return normalize(total)


def _preferred(spec: PodSpec) -> list[PreferredSchedulingTerm] | None:
    affinity = spec.affinity
    return affinity.node_affinity.preferred if affinity and affinity.node_affinity else None


def _counting(terms: Sequence[PreferredSchedulingTerm]) -> list[PreferredSchedulingTerm]:
    return [term for term in terms if term.weight and not is_empty_term(term.preference)]
