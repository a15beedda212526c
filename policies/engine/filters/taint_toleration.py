"""The Pod tolerates the node's taints."""

import msgspec

from policies.engine.objects.table import Rows
from policies.engine.objects.tolerations import match_tolerated
from policies.engine.rule import Cycle
from policies.engine.status import Code, Status, Verdicts

UNTOLERATED = Status(Code.UNRESOLVABLE, "node(s) had untolerated taint(s)")


class PodToleratesNodeTaints:
    """The Pod tolerates all taints of the node with effect NoSchedule or NoExecute.

    A toleration without effect is for all effects, one without key for all keys; operator Equal (or none) compares
    values, Exists doesn't. Lt and Gt tolerate nothing: they are off in kube-scheduler unless a feature gate is set.

    Source: kube-scheduler v1.36.3 framework/plugins/tainttoleration/taint_toleration.go (Filter).
    """

    class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """None."""

    def __init__(self, arguments: Arguments) -> None:
        del arguments

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Check each distinct list of taints once."""
        return Verdicts.refusing(~match_tolerated(cycle.table, rows, cycle.pod.spec), UNTOLERATED)
