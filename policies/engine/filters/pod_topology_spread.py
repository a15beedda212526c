"""Pods spread evenly over zones, hosts and other topologies."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from policies.engine.objects.columns import Mask, label, sums_by
from policies.engine.objects.node import spelled_label
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.spreading import (
    DO_NOT_SCHEDULE,
    Constraint,
    SpreadDefaults,
    constraints_of,
    count_matching,
    counts_on,
    has_all_keys,
)
from policies.engine.objects.table import Rows
from policies.engine.rule import NODE, NODE_GONE, POD_CHANGES, POD_LEAVES, Cycle, Detail, Filter, Scope
from policies.engine.selectors import SelectorError
from policies.engine.status import PASSED, Code, Status, Verdicts

UNEVEN = Status(Code.UNSCHEDULABLE, "node(s) didn't match pod topology spread constraints")
NOT_LABELLED = Status(
    Code.UNRESOLVABLE, "node(s) didn't match pod topology spread constraints (missing required label)"
)
UNPARSABLE = Status(Code.ERROR, "getting a topology spread constraint: its label selector is not valid")
_NO_MINIMUM = 2**31 - 1


class EvenPodsSpread(Filter):
    """The Pod keeps to its topologySpreadConstraints with whenUnsatisfiable DoNotSchedule.

    For each constraint: matching Pods in the node's domain + 1 if the Pod matches itself - the fewest in any domain
    <= maxSkew. The count is of Pods of the Pod's namespace that aren't terminating, on nodes that have all the
    constraints' keys and that nodeAffinityPolicy (Honor when not given) and nodeTaintsPolicy (Ignore when not given)
    include. With fewer domains than minDomains the fewest are 0. matchLabelKeys add the Pod's own values. The text
    for a selector that can't be parsed is constant; kube-scheduler's includes the parser's message.

    Source: kube-scheduler v1.36.3 framework/plugins/podtopologyspread/filtering.go and common.go.
    """

    scope = Scope.CLUSTER

    Arguments = SpreadDefaults

    def __init__(self, arguments: SpreadDefaults) -> None:
        self._defaults = arguments
        self.reads = arguments.reads(DO_NOT_SCHEDULE)
        self.requeued_by = POD_CHANGES | self.reads | {NODE, NODE_GONE, POD_LEAVES}

    def fault(self) -> str:
        """Return what kube-scheduler refuses too."""
        return self._defaults.fault

    def looks_around(self, pod: Pod, snapshot: Snapshot, coming: Iterable[Pod]) -> bool:
        """Return whether the Pod has constraints, or may get some by default."""
        return bool(pod.spec.topology_spread_constraints or self.reads)

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Count the matching Pods of each domain."""
        pod, node = cycle.pod, cycle.table.infos[row].node
        if status == UNPARSABLE:
            return Detail(status.reason, self.summary())
        constraints = self._constraints(cycle)
        labelled = has_all_keys(cycle.table, constraints, cycle.give_way)
        says, wants, remedies = [], [], []
        seen: dict[str, Any] = {}
        for constraint in constraints:
            value = node.labels.get(constraint.key)
            seen[spelled_label(constraint.key)] = value
            wants.append(f"a skew of at most {constraint.max_skew} by {constraint.key}")
            if value is None:
                says.append(f"the node {node.name} has no label {constraint.key}")
                remedies.append(f"if {node.name} were labelled with {constraint.key}")
                continue
            counts = _counts_by_domain(cycle, constraint, labelled)
            is_short = len(counts) < constraint.min_domains
            fewest = 0 if is_short else min(counts.values(), default=0)
            seen[f"matching Pods by {constraint.key}"] = counts
            if counts.get(value, 0) + int(constraint.selector.matches(pod.labels)) - fewest > constraint.max_skew:
                says.append(
                    f"the domain {constraint.key}={value} has {counts.get(value, 0)} matching Pods, "
                    f"the emptiest domain {fewest}"
                )
                # Missing domains count as empty, however many Pods the others have.
                less = f"once {constraint.key}={value} has fewer of these Pods"
                remedies.append(less if is_short else f"{less}, or other domains more")
        says_all = ", and ".join(says) or self.summary()
        remedy = f"would pass {', and '.join(remedies)}" if remedies else ""
        return Detail(says_all, ", ".join(wants), remedy, seen)

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Check the constraints in order; the first that a node fails decides."""
        table = cycle.table
        try:
            constraints = self._constraints(cycle)
        except SelectorError:
            return Verdicts.refusing(np.ones(len(rows), dtype=np.bool_), UNPARSABLE)
        if not constraints:
            return Verdicts.success(len(rows))
        labelled = has_all_keys(table, constraints, cycle.give_way)
        codes = np.full(len(rows), PASSED, dtype=np.int32)
        for constraint in constraints:
            cycle.give_way()
            column = label(table, constraint.key)
            missing = column.codes[rows] == column.code_of.get(None, -1)
            uneven = _uneven_domains(cycle, constraint, labelled)[column.codes[rows]]
            passing = codes == PASSED
            # A node without the label is in no domain: the result for the code of "no label" doesn't apply to it.
            codes[passing & missing] = 1
            codes[passing & ~missing & uneven] = 0
        return Verdicts(codes, [UNEVEN, NOT_LABELLED])

    def _constraints(self, cycle: Cycle) -> list[Constraint]:
        return constraints_of(pod=cycle.pod, snapshot=cycle.snapshot, defaults=self._defaults, action=DO_NOT_SCHEDULE)


def _counts_by_domain(cycle: Cycle, constraint: Constraint, labelled: Mask) -> dict[str, int]:
    """Count the Pods that a constraint counts, by domain."""
    column = label(cycle.table, constraint.key)
    counting = labelled & counts_on(cycle.table, constraint, cycle.pod, cycle.give_way)
    counts = count_matching(cycle.table, constraint.selector, cycle.pod.namespace)
    found: dict[str, int] = {}
    for row in np.flatnonzero(counting).tolist():
        domain = str(column.values[column.codes[row]])
        found[domain] = found.get(domain, 0) + int(counts[row])
    return dict(sorted(found.items()))


def _uneven_domains(cycle: Cycle, constraint: Constraint, labelled: Mask) -> Mask:
    """Return, by the code of the label's value, the domains in which one more Pod would exceed the skew."""
    table, pod = cycle.table, cycle.pod
    column = label(table, constraint.key)
    counting = labelled & counts_on(table, constraint, pod, cycle.give_way)
    matching = count_matching(table, constraint.selector, pod.namespace)
    codes = column.codes
    # Domains without nodes that count are left out: as empty ones they would otherwise be the minimum for all comparisons.
    if not counting.all():
        codes, matching = codes[counting], matching[counting]
    counts = sums_by(codes, matching, len(column.values))
    is_domain = np.zeros(len(counts), dtype=np.bool_)
    is_domain[codes] = True
    fewest = int(counts[is_domain].min()) if len(codes) else _NO_MINIMUM
    # Domains that are still missing count as empty.
    if int(is_domain.sum()) < constraint.min_domains:
        fewest = 0
    itself = int(constraint.selector.matches(pod.labels))
    uneven: Mask = counts + itself - fewest > constraint.max_skew
    return uneven
