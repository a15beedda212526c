"""Features that a Pod needs and that not every node's kubelet has."""

from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.table import Rows
from policies.engine.rule import NODE, Cycle, Filter, Scope
from policies.engine.status import Code, Status, Verdicts

LACKING = Status(Code.UNRESOLVABLE, "node(s) didn't match Pod's required features")

RESTART_ALL_CONTAINERS = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK = "UserNamespacesHostNetworkSupport"


class NodeDeclaredFeatures(Filter):
    """The node declares the features of its kubelet that the Pod needs (`status.declaredFeatures`).

    A rule that restarts all containers needs RestartAllContainersOnContainerExits, user namespaces on the host's network need
    UserNamespacesHostNetworkSupport.

    Source: kube-scheduler v1.36.3 framework/plugins/nodedeclaredfeatures/nodedeclaredfeatures.go, and k8s.io/component-helpers
    v0.36.3 nodedeclaredfeatures/features (InferForScheduling).
    """

    scope = Scope.NODE
    requeued_by = frozenset({NODE})

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Compare what the Pod needs with what each node declares: nearly every Pod needs nothing."""
        needed = _needed_by(cycle.pod)
        if not needed:
            return Verdicts.success(len(rows))

        def lacks(info: NodeInfo) -> bool:
            return not needed.issubset(info.node.parsed.status.declared_features or ())

        return Verdicts.refusing(cycle.table.numbers(("lacks features", needed), lacks)[rows] != 0, LACKING)


def _needed_by(pod: Pod) -> frozenset[str]:
    spec = pod.spec
    needed = set()
    containers = (*(spec.containers or ()), *(spec.init_containers or ()))
    if any(rule.action == "RestartAllContainers" for found in containers for rule in found.restart_policy_rules or ()):
        needed.add(RESTART_ALL_CONTAINERS)
    if spec.host_network and spec.host_users is False:
        needed.add(USER_NAMESPACES_HOST_NETWORK)
    return frozenset(needed)
