"""Nodes near the Pods that the Pod likes, and far from those that it doesn't."""

from typing import Annotated

import msgspec
import numpy as np

from policies.engine.objects.affinity import Weighted
from policies.engine.objects.columns import weighed_terms
from policies.engine.objects.inter_pod import Domains, places_of, tokens_for
from policies.engine.objects.table import Numbers, Rows
from policies.engine.rule import Cycle, Scope, Score
from policies.engine.scores.arithmetic import MAX_SCORE

_Topologies = dict[str, Domains]


class InterPodAffinityPriority(Score):
    """Nodes score by preferred affinity and anti-affinity between the Pod and the Pods that are there.

    For each domain of each topologyKey: + weight for every Pod that a preferred term of the Pod matches, - weight for
    anti-affinity, the same for preferred terms of other Pods that match this one, and + hardPodAffinityWeight for
    their required affinity. A node's sum is mapped to int(100 x (sum - lowest) / (highest - lowest)) in 64-bit
    floats, 0 when all are equal. Where no term matches any Pod the Pod isn't scored.

    Source: kube-scheduler v1.36.3 framework/plugins/interpodaffinity/scoring.go.
    """

    scope = Scope.CLUSTER

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """The weight of other Pods' required affinity, 0..100, and whether their preferences count for Pods that have none."""

        hard_pod_affinity_weight: Annotated[int, msgspec.Meta(ge=0, le=100)] = 1
        ignore_preferred_terms_of_existing_pods: bool = False

    def __init__(self, arguments: Arguments) -> None:
        self._hard_weight = arguments.hard_pod_affinity_weight
        self._ignores_others = arguments.ignore_preferred_terms_of_existing_pods

    def score(self, cycle: Cycle, rows: Rows) -> Numbers | None:
        """Add up the weights in each domain."""
        terms = cycle.pod.terms
        if not terms.valid or (self._ignores_others and not (terms.preferred or terms.preferred_anti)):
            return None
        topologies: _Topologies = {}
        _add_own(cycle, topologies, terms.preferred, 1)
        _add_own(cycle, topologies, terms.preferred_anti, -1)
        self._add_others(cycle, topologies)
        if not any(domains.touched for domains in topologies.values()):
            return None
        total = np.zeros(len(rows), dtype=np.int64)
        for domains in topologies.values():
            total += domains.at(rows)
        lowest, highest = int(total.min()), int(total.max())
        if lowest == highest:
            return np.zeros(len(rows), dtype=np.int64)
        share = (total - lowest).astype(np.float64) / float(highest - lowest)
        return np.asarray((float(MAX_SCORE) * share).astype(np.int64))

    def _add_others(self, cycle: Cycle, topologies: _Topologies) -> None:
        pod, table = cycle.pod, cycle.table
        namespace_labels = cycle.snapshot.namespace_labels(pod.namespace)
        for (term, weight), places in tokens_for(weighed_terms(table), pod):
            cycle.give_way()
            if weight is None and not self._hard_weight:
                continue
            if term.matches(pod.namespace, pod.labels, namespace_labels):
                domains = topologies.setdefault(term.topology_key, Domains(table, term.topology_key))
                domains.add(places, self._hard_weight if weight is None else weight)


def _add_own(cycle: Cycle, topologies: _Topologies, preferred: tuple[Weighted, ...], sign: int) -> None:
    for found in preferred:
        cycle.give_way()
        term = found.term.resolved(cycle.snapshot.namespaces)
        domains = topologies.setdefault(term.topology_key, Domains(cycle.table, term.topology_key))
        domains.add_all(places_of(cycle.table, [term]), sign * found.weight)
