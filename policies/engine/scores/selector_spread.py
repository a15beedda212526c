"""Pods of a Service or of one owner on different nodes and zones. Removed from kube-scheduler in v1.23."""

from typing import Any

import msgspec
import numpy as np

from policies.engine.objects.cluster_kinds import OWNERS, SERVICES
from policies.engine.objects.columns import label
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.spreading import count_matching, default_selector, service_selectors, services_labels
from policies.engine.objects.table import Numbers, Rows
from policies.engine.rule import Cycle, Scope, Score
from policies.engine.scores.arithmetic import MAX_SCORE
from policies.engine.selectors import NOTHING, Selector, selector_of

_ZONE_WEIGHT = 2.0 / 3.0
_ZONES = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGIONS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")


def _more_for_fewer(counts: Numbers, most: int) -> Any:
    """Score by how far counts are below the highest. In floats, truncated only at the end, as in Go: integers give other scores."""
    if most == 0:
        return np.full(len(counts), float(MAX_SCORE))
    return float(MAX_SCORE) * ((most - counts).astype(np.float64) / float(most))


class SelectorSpreadPriority(Score):
    """Nodes score higher the fewer Pods they and their zone have of the same Service, ReplicaSet and so on.

    c = Pods of the namespace that the Pod's Services and controller select and that aren't terminating. Node:
    100 x (most - c) / most, 100 when the most is 0; when any scored node has a zone (region and zone, beta labels
    first), those with one get node x (1 - 2/3) + zone x 2/3, where zone is the same formula over the zones' sums. In
    64-bit floats, truncated at the end. Pods with topologySpreadConstraints of their own get 0.

    Source: kube-scheduler v1.22 framework/plugins/selectorspread/selector_spread.go.
    """

    scope = Scope.CLUSTER
    reads = OWNERS

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Count the Pods that belong together with this one."""
        pod, table = cycle.pod, cycle.table
        if pod.spec.topology_spread_constraints:
            return np.zeros(len(rows), dtype=np.int64)
        counts = count_matching(table, self._selector(cycle), pod.namespace)[rows]
        scores = _more_for_fewer(counts, int(counts.max(initial=0)))
        zones = table.coded("zone", _read_zone)
        codes = zones.codes[rows]
        zoned = codes != zones.code_of.get("", -1)
        if zoned.any():
            scores = np.where(zoned, self._with_zones(scores, counts, codes, zoned, len(zones.values)), scores)
        return np.asarray(scores.astype(np.int64))

    def _selector(self, cycle: Cycle) -> Selector:
        return default_selector(cycle.pod, cycle.snapshot.objects)

    def _with_zones(self, scores: Any, counts: Numbers, codes: Any, zoned: Any, size: int) -> Any:
        sums = np.zeros(size, dtype=np.int64)
        np.add.at(sums, codes[zoned], counts[zoned])
        zone_scores = _more_for_fewer(sums[codes], int(sums.max(initial=0)))
        return scores * (1.0 - _ZONE_WEIGHT) + _ZONE_WEIGHT * zone_scores


class ServiceSpreadingPriority(SelectorSpreadPriority):
    """Nodes score higher the fewer Pods they and their zone have of the same Service.

    Like SelectorSpreadPriority, but only Services count, not the Pod's owner.

    Source: Kubernetes v1.15 pkg/scheduler/algorithmprovider/defaults/register_priorities.go, with the formula of v1.22.
    """

    reads = frozenset({SERVICES})

    def _selector(self, cycle: Cycle) -> Selector:
        objects = cycle.snapshot.objects
        return selector_of(services_labels(cycle.pod, objects) if objects else {})


def _read_zone(info: NodeInfo) -> tuple[str, str]:
    labels = info.node.labels
    zone = labels.get(_ZONES[0], labels.get(_ZONES[1], ""))
    region = labels.get(_REGIONS[0], labels.get(_REGIONS[1], ""))
    key = f"{region}:\0:{zone}" if region or zone else ""
    return key, key


class ServiceAntiAffinityPriority(Score):
    """Nodes score higher the fewer Pods of the Pod's Service share their value of a label.

    Per label 100 x (Pods of the first Service that selects the Pod - those on nodes with the same value) / all of
    them, 100 when there are none, 0 for a node without the label. The sum is divided by the number of labels and
    truncated, in 64-bit floats. Terminating Pods don't count. Of several Services the first by name is taken:
    kube-scheduler took any.

    Source: kube-scheduler v1.22 framework/plugins/serviceaffinity/service_affinity.go (NormalizeScore).
    """

    scope = Scope.CLUSTER
    reads = frozenset({SERVICES})

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """The key of a label, or several."""

        label: str = ""
        anti_affinity_labels_preference: list[str] = []

    def __init__(self, arguments: Arguments) -> None:
        self._keys = [*([arguments.label] if arguments.label else []), *arguments.anti_affinity_labels_preference]

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Count the Service's Pods by the values of the labels."""
        pod, objects = cycle.pod, cycle.snapshot.objects
        services = service_selectors(pod, objects) if objects else []
        selector = selector_of(services[0]) if services else NOTHING
        counts = count_matching(cycle.table, selector, pod.namespace)[rows]
        total = np.zeros(len(rows))
        for key in self._keys:
            column = label(cycle.table, key)
            codes = column.codes[rows]
            labelled = codes != column.code_of.get(None, -1)
            sums = np.zeros(len(column.values), dtype=np.int64)
            np.add.at(sums, codes, counts)
            scores = _more_for_fewer(sums[codes], int(counts.sum()))
            total += np.where(labelled, scores / float(len(self._keys)), 0.0)
        return np.asarray(total.astype(np.int64))
