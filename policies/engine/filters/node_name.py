"""The Pod names the node."""

import numpy as np

from policies.engine.objects.table import Rows
from policies.engine.rule import NODE, Cycle, Detail, Filter, Scope
from policies.engine.status import Code, Status, Verdicts

NOT_NAMED = Status(Code.UNRESOLVABLE, "node(s) didn't match the requested node name")


class PodFitsHost(Filter):
    """The node is the one that the Pod names in spec.nodeName, if it names one.

    Source: kube-scheduler v1.36.3 framework/plugins/nodename/node_name.go.
    """

    scope = Scope.NODE
    requeued_by = frozenset({NODE})

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Name the node that the Pod names."""
        wanted = cycle.pod.spec.node_name
        return Detail(
            f"the Pod names {wanted}",
            f"the node {wanted}",
            f"the only node that passes is {wanted}",
            {"pod.spec.nodeName": wanted, "node.metadata.name": cycle.table.names[row]},
        )

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Compare names."""
        name = cycle.pod.spec.node_name
        if not name:
            return Verdicts.success(len(rows))
        return Verdicts.refusing(np.asarray(rows != cycle.table.row_of.get(name, -1)), NOT_NAMED)
