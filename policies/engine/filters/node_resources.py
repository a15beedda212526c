"""The node has room for what the Pod asks for."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.objects.columns import Mask, allocatable, free, free_slots
from policies.engine.objects.resources import CPU, EPHEMERAL, MEMORY, PODS, Resources, fault_of_ignored, is_extended
from policies.engine.objects.table import Rows, Table
from policies.engine.rule import NODE, POD_GONE, Cycle, Detail, Filter, Scope
from policies.engine.status import PASSED, Code, Status, Verdicts

TOO_MANY_PODS = "Too many pods"
_LACKING = "Insufficient "
_BASIC = (CPU, MEMORY, EPHEMERAL)
_UNITS = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))

# A reason, the nodes where it holds, and a test for nodes where removing Pods can't help (None: it always can).
_Lack = tuple[str, Mask, Callable[[], Mask] | None]


class PodFitsResources(Filter):
    """The node's free cpu, memory, Pod slots and other resources cover the Pod's requests.

    For each resource of which the Pod requests more than 0: request <= allocatable - requests of the node's Pods; and one
    Pod more <= allocatable pods, which is 0 where the node doesn't state it. cpu is in millicores, all else in whole units,
    both rounded up. Preemption can't help a request that exceeds the node's allocatable. The reason names every
    resource that is lacking. Resources of DeviceClasses (DRA) are compared like any other.

    Source: kube-scheduler v1.36.3 framework/plugins/noderesources/fit.go (fitsRequest).
    """

    scope = Scope.NODE_AND_PODS
    requeued_by = frozenset({NODE, POD_GONE})

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """Extended resources (by name, or by the part before the slash) that are ignored."""

        ignored_resources: list[str] = []
        ignored_resource_groups: list[str] = []

    def __init__(self, arguments: Arguments) -> None:
        self._ignored = frozenset(arguments.ignored_resources)
        self._ignored_groups = frozenset(arguments.ignored_resource_groups)
        self._arguments = arguments

    def fault(self) -> str:
        """Return what kube-scheduler refuses too."""
        return fault_of_ignored(self._arguments.ignored_resources, self._arguments.ignored_resource_groups)

    def detail(self, cycle: Cycle, row: int, status: Status) -> Detail:
        """Return how much is needed, how much is free, and how much would have to be freed."""
        info, requests = cycle.table.infos[row], cycle.pod.wanted
        says, wants, lacking, never = [], [], [], []
        seen: dict[str, Any] = {}
        for reason in status.reason.split(", "):
            name = reason.removeprefix(_LACKING) if reason.startswith(_LACKING) else PODS
            needs = 1 if name == PODS else requests.get(name)
            there = info.node.allocatable.get(name)
            left = there - (len(info.pods) if name == PODS else info.requested.get(name))
            seen |= {f"usage.allocatable.{name}": there, f"usage.free.{name}": left}
            wants.append(f"{amount(name, needs)} {name}")
            says.append(f"needs {wants[-1]}, {info.name} has {amount(name, left)} of {amount(name, there)} free")
            lacking.append(f"{amount(name, needs - left)} {name}")
            if needs > there:
                never.append(name)
        # Freeing the others is no help where the node never has enough of one.
        remedy = f"there is never that much {' and '.join(never)} on this node" if never else ""
        remedy = remedy or f"would fit if {' and '.join(lacking)} were freed"
        return Detail(f"the Pod {', and '.join(says)}", ", ".join(wants), remedy, seen)

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Compare requests with the node's allocatable minus the requests of its Pods."""
        table = cycle.table
        lacks: list[_Lack] = [(TOO_MANY_PODS, free_slots(table)[rows] < 1, None)]
        for name, amount in self._wanted(cycle.pod.wanted):
            cycle.give_way()
            never = partial(_exceeds, amount, table, name, rows)
            lacks.append((f"{_LACKING}{name}", free(table, name)[rows] < amount, never))
        return _verdicts(lacks, len(rows), cycle.give_way)

    def _wanted(self, requests: Resources) -> list[tuple[str, int]]:
        """Return the resources to compare, cpu, memory and ephemeral-storage first, the others by name."""
        scalars = sorted(name for name in requests.amounts if name not in {*_BASIC, PODS})
        names = [*_BASIC, *(name for name in scalars if not self._is_ignored(name))]
        return [(name, requests.get(name)) for name in names if requests.get(name) > 0]

    def _is_ignored(self, name: str) -> bool:
        group = name.partition("/")[0]
        return is_extended(name) and (name in self._ignored or group in self._ignored_groups)


def each_lacking(reason: str) -> list[str]:
    """Return the reasons in one that names several missing resources, as kube-scheduler counts them; any other reason alone."""
    parts = reason.split(", ")
    return parts if all(part.startswith(_LACKING) or part == TOO_MANY_PODS for part in parts) else [reason]


def amount(resource: str, number: int) -> str:
    """Write an amount as people do: 2,000m cpu, 1.5Gi memory."""
    if resource == CPU:
        return f"{number:,}m"
    for unit, size in _UNITS:
        if resource in {MEMORY, EPHEMERAL} and abs(number) >= size:
            return f"{number / size:,.6g}{unit}"
    return f"{number:,}"


def _exceeds(amount: int, table: Table, name: str, rows: Rows) -> Mask:
    return allocatable(table, name)[rows] < amount


def _verdicts(lacks: list[_Lack], size: int, give_way: Callable[[], None]) -> Verdicts:
    """Refuse the nodes that lack something, with all missing resources in one reason."""
    refused = lacks[0][1].copy()
    for _, lacking, _ in lacks[1:]:
        refused |= lacking
    positions = refused.nonzero()[0]
    if not len(positions):
        return Verdicts.success(size)
    # The missing resources of a node, and whether preemption can help, encoded in one number: each distinct one gets one status.
    pattern = np.zeros((len(positions), 2 * len(lacks)), dtype=np.bool_)
    for index, (_, lacking, never) in enumerate(lacks):
        give_way()
        pattern[:, 2 * index] = lacking[positions]
        if never is not None:
            pattern[:, 2 * index + 1] = (lacking & never())[positions]
    distinct, inverse = np.unique(np.packbits(pattern, axis=1), axis=0, return_inverse=True)
    codes = np.full(size, PASSED, dtype=np.int32)
    codes[positions] = inverse.reshape(-1)
    bits = np.unpackbits(distinct, axis=1)
    return Verdicts(codes, [_status(lacks, found) for found in bits])


def _status(lacks: list[_Lack], bits: npt.NDArray[np.uint8]) -> Status:
    reasons = [reason for index, (reason, _, _) in enumerate(lacks) if bits[2 * index]]
    return Status(Code.UNRESOLVABLE if bits[1::2].any() else Code.UNSCHEDULABLE, ", ".join(reasons))
