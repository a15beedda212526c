"""Filters by the node's own state: cordoned, under pressure, not ready.

Pressure and readiness became taints long ago (the node lifecycle controller sets them, PodToleratesNodeTaints heeds
them); the rules that read conditions are kept for policies that name them. Their source: Kubernetes v1.15
pkg/scheduler/algorithm/predicates/predicates.go and error.go.
"""

import numpy as np

from policies.engine.objects.columns import unschedulable
from policies.engine.objects.node import NodeInfo, Taint
from policies.engine.objects.table import Rows, Table
from policies.engine.objects.tolerations import NO_SCHEDULE, Tolerated
from policies.engine.rule import NODE, Cycle, Detail, Filter, Scope
from policies.engine.status import Code, Status, Verdicts

UNSCHEDULABLE = Status(Code.UNRESOLVABLE, "node(s) were unschedulable")
MEMORY_PRESSURE = Status(Code.UNRESOLVABLE, "node(s) had memory pressure")
DISK_PRESSURE = Status(Code.UNRESOLVABLE, "node(s) had disk pressure")
PID_PRESSURE = Status(Code.UNRESOLVABLE, "node(s) had pid pressure")
NOT_READY = "node(s) were not ready"
NO_NETWORK = "node(s) had unavailable network"

_CORDONED = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class CheckNodeUnschedulable(Filter):
    """The node isn't cordoned, or the Pod tolerates node.kubernetes.io/unschedulable:NoSchedule.

    Source: kube-scheduler v1.36.3 framework/plugins/nodeunschedulable/node_unschedulable.go.
    """

    scope = Scope.NODE
    requeued_by = frozenset({NODE})

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Return how to open the node."""
        name = cycle.table.names[row]
        return Detail(
            f"the node {name} is cordoned",
            "a node without spec.unschedulable",
            f"would pass after kubectl uncordon {name}",
            {"node.spec.unschedulable": True},
        )

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Refuse nodes with spec.unschedulable."""
        cordoned = unschedulable(cycle.table)[rows] != 0
        if not np.logical_or.reduce(cordoned) or _CORDONED in Tolerated(cycle.pod.spec.tolerations):
            return Verdicts.success(len(rows))
        return Verdicts.refusing(cordoned, UNSCHEDULABLE)


def _refuse_with_condition(table: Table, rows: Rows, kind: str, status: Status) -> Verdicts:
    has = table.numbers(("condition", kind), lambda info: info.node.has_condition(kind))
    return Verdicts.refusing(has[rows] != 0, status)


class _ConditionFilter(Filter):
    scope = Scope.NODE
    requeued_by = frozenset({NODE})

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """List the node's conditions."""
        node = cycle.table.infos[row].node
        found = {each.type: each.status for each in node.parsed.status.conditions or ()}
        listed = ", ".join(f"{kind} {value}" for kind, value in found.items())
        listed += ", and it is cordoned" if node.parsed.spec.unschedulable else ""
        return Detail(
            f"the conditions of {node.name} are {listed or 'none'}",
            self.summary(),
            "would pass once these are otherwise",
            {f"condition {kind}": value for kind, value in found.items()},
        )


class CheckNodeMemoryPressure(_ConditionFilter):
    """The node isn't short of memory; asked only for Pods of QoS class BestEffort.

    Refused when condition MemoryPressure is True. The class is status.qosClass, else derived from the containers.

    Source: Kubernetes v1.15 pkg/scheduler/algorithm/predicates/predicates.go (CheckNodeMemoryPressurePredicate).
    """

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Read the condition."""
        if not cycle.pod.is_best_effort:
            return Verdicts.success(len(rows))
        return _refuse_with_condition(cycle.table, rows, "MemoryPressure", MEMORY_PRESSURE)


class CheckNodeDiskPressure(_ConditionFilter):
    """The node isn't short of disk space: its condition DiskPressure isn't True.

    Source: Kubernetes v1.15 pkg/scheduler/algorithm/predicates/predicates.go (CheckNodeDiskPressurePredicate).
    """

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Read the condition."""
        return _refuse_with_condition(cycle.table, rows, "DiskPressure", DISK_PRESSURE)


class CheckNodePIDPressure(_ConditionFilter):
    """The node isn't short of process ids: its condition PIDPressure isn't True.

    Source: Kubernetes v1.15 pkg/scheduler/algorithm/predicates/predicates.go (CheckNodePIDPressurePredicate).
    """

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Read the condition."""
        return _refuse_with_condition(cycle.table, rows, "PIDPressure", PID_PRESSURE)


class CheckNodeCondition(_ConditionFilter):
    """The node is ready, has its network, and isn't cordoned.

    Refused when a condition Ready isn't True, a condition NetworkUnavailable isn't False, or spec.unschedulable is
    set; a missing condition is no reason to refuse. The reason names every cause that applies.

    Source: Kubernetes v1.15 pkg/scheduler/algorithm/predicates/predicates.go (CheckNodeConditionPredicate).
    """

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Read the conditions."""
        column = cycle.table.coded("faults", _read_faults)
        codes = column.codes[rows]
        statuses = [Status(Code.UNRESOLVABLE, str(faults)) for faults in column.values]
        healthy = column.code_of.get("", -1)
        return Verdicts(np.where(codes == healthy, np.int32(-1), codes), statuses)


def _read_faults(info: NodeInfo) -> tuple[str, str]:
    node = info.node.parsed
    faults: list[str] = []
    for condition in node.status.conditions or ():
        if condition.type == "Ready" and condition.status != "True":
            faults.append(NOT_READY)
        elif condition.type == "NetworkUnavailable" and condition.status != "False":
            faults.append(NO_NETWORK)
    if node.spec.unschedulable:
        faults.append(UNSCHEDULABLE.reason)
    text = ", ".join(faults)
    return text, text
