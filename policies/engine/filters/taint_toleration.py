"""The Pod tolerates the node's taints."""

from policies.engine.objects.table import Rows
from policies.engine.objects.tolerations import NO_EXECUTE, NO_SCHEDULE, Tolerated, match_tolerated
from policies.engine.rule import NODE, Cycle, Detail, Filter, Scope
from policies.engine.status import Code, Status, Verdicts

UNTOLERATED = Status(Code.UNRESOLVABLE, "node(s) had untolerated taint(s)")


class PodToleratesNodeTaints(Filter):
    """The Pod tolerates all taints of the node with effect NoSchedule or NoExecute.

    A toleration without effect is for all effects, one without key for all keys; operator Equal (or none) compares
    values, Exists doesn't. Lt and Gt tolerate nothing: they are off in kube-scheduler unless a feature gate is set.

    Source: kube-scheduler v1.36.3 framework/plugins/tainttoleration/taint_toleration.go (Filter).
    """

    scope = Scope.NODE
    requeued_by = frozenset({NODE})

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Name the taints that the Pod doesn't tolerate."""
        node = cycle.table.infos[row].node
        tolerated = Tolerated(cycle.pod.spec.tolerations)
        untolerated = [
            f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"
            for taint in node.parsed.spec.taints or ()
            if taint.effect in {NO_SCHEDULE, NO_EXECUTE} and taint not in tolerated
        ]
        listed = ", ".join(untolerated)
        taints, them = ("the taint", "it") if len(untolerated) == 1 else ("the taints", "them")
        return Detail(
            f"the node {node.name} has {taints} {listed}, which the Pod doesn't tolerate",
            "a toleration of every taint with effect NoSchedule or NoExecute",
            f"would pass with a toleration of {listed}, or without {them} on the node",
            {"node.spec.taints": untolerated},
        )

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Check each distinct list of taints once."""
        return Verdicts.refusing(~match_tolerated(cycle.table, rows, cycle.pod.spec), UNTOLERATED)
