"""The ports of the host that the Pod wants are free."""

from collections.abc import Hashable, Iterable

import numpy as np

from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Port
from policies.engine.objects.table import Rows
from policies.engine.rule import NODE, POD_GONE, Cycle, Detail, Filter, Scope
from policies.engine.status import Code, Status, Verdicts

NOT_FREE = Status(Code.UNSCHEDULABLE, "node(s) didn't have free ports for the requested pod ports")
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - compared, not listened on


class PodFitsHostPorts(Filter):
    """The host ports that the Pod asks for aren't taken by other Pods on the node.

    Host ports above 0 of containers and of sidecars count. Two conflict when port and protocol (TCP when not given)
    are the same and the addresses are too, or one of them is 0.0.0.0, which an empty one stands for.

    Source: kube-scheduler v1.36.3 framework/plugins/nodeports/node_ports.go; k8s.io/kube-scheduler v0.36.3
    framework/types.go (HostPortInfo).
    """

    scope = Scope.NODE_AND_PODS
    requeued_by = frozenset({NODE, POD_GONE})

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Name the Pods that have the ports."""
        info = cycle.table.infos[row]
        taken: dict[str, list[str]] = {}
        for wanted in cycle.pod.host_ports:
            for pod in info.pods:
                if any(_conflict(wanted, other) for other in pod.host_ports):
                    # A Pod that wants the port on every address conflicts with all that have it on one.
                    taken.setdefault(f"{wanted.protocol} {wanted.number}", []).append(f"{pod.namespace}/{pod.name}")
        named = {port: " and ".join(dict.fromkeys(names)) for port, names in taken.items()}
        everybody = " and ".join(dict.fromkeys(name for names in taken.values() for name in names))
        holders = ", ".join(f"{port} is taken by {holder}" for port, holder in named.items())
        return Detail(
            f"on {info.name} port {holders}",
            f"{', '.join(named)} of the host",
            f"would pass without {everybody} on the node",
            {"host ports": named},
        )

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Look up which Pods have the ports."""
        ports = cycle.pod.host_ports
        if not ports:
            return Verdicts.success(len(rows))
        taken = np.zeros(len(cycle.table), dtype=np.bool_)
        used = cycle.table.sparse("host ports", _read_ports)
        for port in ports:
            for ip, places in used.group((port.protocol, port.number)).items():
                if _ALL_ADDRESSES in {port.ip, ip} or ip == port.ip:
                    taken[places.rows] = True
        return Verdicts.refusing(taken[rows], NOT_FREE)


def _conflict(wanted: Port, other: Port) -> bool:
    same = (wanted.protocol, wanted.number) == (other.protocol, other.number)
    return same and (wanted.ip == other.ip or _ALL_ADDRESSES in {wanted.ip, other.ip})


def _read_ports(info: NodeInfo) -> Iterable[tuple[Hashable, Hashable]]:
    return (((port.protocol, port.number), port.ip) for pod in info.pods for port in pod.host_ports)
