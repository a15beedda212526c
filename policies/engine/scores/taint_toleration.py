"""Nodes whose PreferNoSchedule taints the Pod tolerates."""

from policies.engine.objects.table import Numbers, Rows
from policies.engine.objects.tolerations import count_unpreferred
from policies.engine.rule import Cycle, Scope, Score
from policies.engine.scores.arithmetic import normalize


class TaintTolerationPriority(Score):
    """Nodes score higher the fewer PreferNoSchedule taints they have that the Pod doesn't tolerate.

    100 - 100 x taints / the most taints of any node, integer division; all 100 when none has any.

    Source: kube-scheduler v1.36.3 framework/plugins/tainttoleration/taint_toleration.go (Score).
    """

    scope = Scope.NODE

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Count the taints."""
        return normalize(count_unpreferred(cycle.table, rows, cycle.pod.spec), reverse=True)
