"""Nodes that make the Pods of an app more evenly spread."""

import numpy as np

from policies.engine.objects.columns import Mask, label
from policies.engine.objects.spreading import (
    HOSTNAME,
    SCHEDULE_ANYWAY,
    Constraint,
    SpreadDefaults,
    constraints_of,
    count_matching,
    counts_on,
    has_all_keys,
)
from policies.engine.objects.table import Numbers, Rows
from policies.engine.rule import Cycle, Scope, Score
from policies.engine.scores.arithmetic import MAX_SCORE, divide, log, round_half_away
from policies.engine.selectors import SelectorError


class EvenPodsSpreadPriority(Score):
    """Nodes score higher the fewer matching Pods are in their domains, by topologySpreadConstraints with ScheduleAnyway.

    For each node the sum over constraints of Pods in its domain x ln(domains + 2) + (maxSkew - 1), rounded half away from
    zero; then 100 x (highest + lowest - sum) / highest by integer division, 100 when the highest is 0. Domains are
    those of the nodes being scored. In a domain Pods count as in EvenPodsSpread; for kubernetes.io/hostname only those
    on the node itself. A node that lacks a key gets 0. A Pod without constraints that a Service selects, or that a
    ReplicationController, ReplicaSet or StatefulSet owns, gets kube-scheduler's default constraints: hostname maxSkew 3,
    zone maxSkew 5, and nodes may lack the keys. Without any constraint the Pod isn't scored.

    Source: kube-scheduler v1.36.3 framework/plugins/podtopologyspread/scoring.go and plugin.go.
    """

    scope = Scope.CLUSTER

    Arguments = SpreadDefaults

    def __init__(self, arguments: SpreadDefaults) -> None:
        self._defaults = arguments
        self.reads = arguments.reads(SCHEDULE_ANYWAY)

    def fault(self) -> str:
        """Return what kube-scheduler refuses too."""
        return self._defaults.fault

    def score(self, cycle: Cycle, rows: Rows) -> Numbers | None:
        """Add up the constraints."""
        pod, snapshot = cycle.pod, cycle.snapshot
        try:
            constraints = constraints_of(pod=pod, snapshot=snapshot, defaults=self._defaults, action=SCHEDULE_ANYWAY)
        except SelectorError:
            return None
        if not constraints or not len(rows):
            return None
        needs_all = bool(pod.spec.topology_spread_constraints) or not self._defaults.is_system
        size = len(cycle.table)
        eligible = (
            has_all_keys(cycle.table, constraints, cycle.give_way) if needs_all else np.ones(size, dtype=np.bool_)
        )
        matching = {}
        for selector in {constraint.selector for constraint in constraints}:
            cycle.give_way()
            matching[selector] = count_matching(cycle.table, selector, pod.namespace)
        total = np.zeros(len(rows))
        for constraint in constraints:
            cycle.give_way()
            counts, domains, has_key = _counts(cycle, rows, constraint, eligible, matching[constraint.selector])
            found = counts * log(domains + 2)
            found += float(constraint.max_skew - 1)
            total += found if has_key is None else np.where(has_key, found, 0.0)
        return _normalized(round_half_away(total), eligible[rows])


def _counts(
    cycle: Cycle, rows: Rows, constraint: Constraint, eligible: Mask, matching: Numbers
) -> tuple[Numbers, int, Mask | None]:
    """Return, for these rows, the matching Pods in each node's domain; the number of domains; and which nodes have the key.

    The last is None where all have it.
    """
    table = cycle.table
    column = label(table, constraint.key)
    missing = column.code_of.get(None, -1)
    has_key = column.codes[rows] != missing if missing >= 0 else None
    if constraint.key == HOSTNAME:
        return matching[rows], int(eligible[rows].sum()), has_key
    # A node without the key is in the domain of the empty value, as with Go's map of labels.
    codes = column.codes
    empty = column.code_of.get("", -1)
    if missing >= 0 and empty >= 0:
        codes = np.where(codes == missing, np.int32(empty), codes)
    asked = codes[rows]
    is_domain = np.zeros(len(column.values), dtype=np.bool_)
    is_domain[asked[eligible[rows]]] = True
    # Few nodes have Pods of an app, so only these are added up.
    counting = np.flatnonzero(matching)
    counting = counting[(eligible & counts_on(table, constraint, cycle.pod, cycle.give_way))[counting]]
    sums = np.zeros(len(column.values), dtype=np.int64)
    np.add.at(sums, codes[counting], matching[counting])
    return sums[asked], int(is_domain.sum()), has_key


def _normalized(numbers: Numbers, scored: Mask) -> Numbers:
    """Reverse the sums and map them to 0..100; nodes that aren't scored get 0."""
    chosen = numbers if scored.all() else numbers[scored]
    if not len(chosen):
        return np.zeros(len(numbers), dtype=np.int64)
    lowest, highest = int(chosen.min()), max(int(chosen.max()), 0)
    if highest:
        points = divide(MAX_SCORE * (highest + lowest - numbers), np.int64(highest))
    else:
        points = np.full(len(numbers), MAX_SCORE, dtype=np.int64)
    return points if chosen is numbers else np.where(scored, points, 0)
