"""The Pod names the node."""

import msgspec
import numpy as np

from policies.engine.objects.table import Rows
from policies.engine.rule import Cycle
from policies.engine.status import Code, Status, Verdicts

NOT_NAMED = Status(Code.UNRESOLVABLE, "node(s) didn't match the requested node name")


class PodFitsHost:
    """The node is the one that the Pod names in spec.nodeName, if it names one.

    Source: kube-scheduler v1.36.3 framework/plugins/nodename/node_name.go.
    """

    class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """None."""

    def __init__(self, arguments: Arguments) -> None:
        del arguments

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Compare names."""
        name = cycle.pod.spec.node_name
        if not name:
            return Verdicts.success(len(rows))
        return Verdicts.refusing(np.asarray(rows != cycle.table.row_of.get(name, -1)), NOT_NAMED)
