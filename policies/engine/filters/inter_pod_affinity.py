"""Pods near and far from each other."""

from collections.abc import Iterable

import numpy as np

from policies.engine.objects.columns import Mask, required_anti_terms
from policies.engine.objects.inter_pod import Domains, places_of, resolved, tokens_for
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.rule import NAMESPACE, NODE, NODE_GONE, POD_CHANGES, Cycle, Filter, Scope
from policies.engine.status import PASSED, Code, Status, Verdicts

NOT_NEAR = Status(Code.UNRESOLVABLE, "node(s) didn't match pod affinity rules")
NOT_FAR = Status(Code.UNSCHEDULABLE, "node(s) didn't match pod anti-affinity rules")
KEPT_OFF = Status(Code.UNSCHEDULABLE, "node(s) didn't satisfy existing pods anti-affinity rules")
UNPARSABLE = Status(Code.UNRESOLVABLE, "parsing pod: a label selector of its affinity is not valid")


class MatchInterPodAffinity(Filter):
    """The Pod's required affinity and anti-affinity to other Pods hold, and so does theirs to it.

    Affinity: the node has every topologyKey, and in each of its domains all terms match at least one Pod. The first Pod
    of a group passes when the terms match no Pod anywhere and match the Pod itself. Anti-affinity: no Pod that a term
    matches is in the node's domain, and no Pod there has a term that matches this one. Terminating Pods count.
    namespaces and namespaceSelector both missing mean the Pod's own namespace; a namespaceSelector that matches the
    empty set of labels means the Pods of all namespaces, as in v1.36.3 (see `Term.resolved`). The text for a selector
    that can't be parsed is constant; kube-scheduler's includes the parser's message.

    Source: kube-scheduler v1.36.3 framework/plugins/interpodaffinity/filtering.go.
    """

    scope = Scope.CLUSTER
    requeued_by = POD_CHANGES | {NODE, NODE_GONE, NAMESPACE}

    def looks_around(self, pod: Pod, snapshot: Snapshot, coming: Iterable[Pod]) -> bool:
        """Return whether the Pod has terms, or an existing or coming Pod has terms that concern it."""
        own = pod.terms.required or pod.terms.required_anti or not pod.terms.valid
        others = any(other.terms.required_anti or not other.terms.valid for other in coming)
        return bool(own or others or any(tokens_for(required_anti_terms(snapshot.table), pod)))

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Check affinity, then anti-affinity, then the anti-affinity of existing Pods."""
        if not cycle.pod.terms.valid:
            return Verdicts.refusing(np.ones(len(rows), dtype=np.bool_), UNPARSABLE)
        asked = (_refused_by_affinity, _refused_by_anti_affinity, _refused_by_others)
        refused = [refuse(cycle, rows) for refuse in asked]
        if all(found is None for found in refused):
            return Verdicts.success(len(rows))
        codes = np.full(len(rows), PASSED, dtype=np.int32)
        for code, found in enumerate(refused):
            if found is not None:
                codes[found & (codes == PASSED)] = code
        return Verdicts(codes, [NOT_NEAR, NOT_FAR, KEPT_OFF])


def _refused_by_affinity(cycle: Cycle, rows: Rows) -> Mask | None:
    pod = cycle.pod
    terms = resolved(pod.terms.required, cycle.snapshot)
    if not terms:
        return None
    domains = {term.topology_key: Domains(cycle.table, term.topology_key) for term in terms}
    meant = places_of(cycle.table, terms)
    for found in domains.values():
        cycle.give_way()
        found.add_all(meant)
    labelled = np.ones(len(rows), dtype=np.bool_)
    near = np.ones(len(rows), dtype=np.bool_)
    for found in domains.values():
        labelled &= found.has(rows)
        near &= found.at(rows) > 0
    first = not any(found.touched for found in domains.values()) and all(
        term.matches_resolved(pod.namespace, pod.labels) for term in terms
    )
    return ~labelled if first else ~(labelled & near)


def _refused_by_anti_affinity(cycle: Cycle, rows: Rows) -> Mask | None:
    terms = resolved(cycle.pod.terms.required_anti, cycle.snapshot)
    if not terms:
        return None
    refused = np.zeros(len(rows), dtype=np.bool_)
    domains: dict[str, Domains] = {}
    for term in terms:
        cycle.give_way()
        found = domains.setdefault(term.topology_key, Domains(cycle.table, term.topology_key))
        found.add_all(places_of(cycle.table, [term]))
    for found in domains.values():
        refused |= found.at(rows) > 0
    return refused


def _refused_by_others(cycle: Cycle, rows: Rows) -> Mask | None:
    pod, table = cycle.pod, cycle.table
    namespace_labels = cycle.snapshot.namespace_labels(pod.namespace)
    domains: dict[str, Domains] = {}
    for term, places in tokens_for(required_anti_terms(table), pod):
        cycle.give_way()
        if term.matches(pod.namespace, pod.labels, namespace_labels):
            domains.setdefault(term.topology_key, Domains(table, term.topology_key)).add(places)
    if not domains:
        return None
    refused = np.zeros(len(rows), dtype=np.bool_)
    for found in domains.values():
        refused |= found.at(rows) > 0
    return refused
