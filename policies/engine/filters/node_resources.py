"""The node has room for what the Pod asks for."""

from collections.abc import Callable
from functools import partial

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.objects.columns import Mask, allocatable, free, free_slots
from policies.engine.objects.resources import CPU, EPHEMERAL, MEMORY, PODS, Resources, is_extended
from policies.engine.objects.table import Rows, Table
from policies.engine.rule import Cycle
from policies.engine.status import PASSED, Code, Status, Verdicts

TOO_MANY_PODS = "Too many pods"
_BASIC = (CPU, MEMORY, EPHEMERAL)

# A reason, where it holds, and what tells where nothing on the node could change it (None: nowhere).
_Lack = tuple[str, Mask, Callable[[], Mask] | None]


class PodFitsResources:
    """The node's free cpu, memory, Pod slots and other resources cover the Pod's requests.

    For each resource that the Pod asks more than 0 of: request <= allocatable - requests of the Pods there; and one
    Pod more <= allocatable pods, 0 where the node names none. cpu in millicores, all else in whole units, both
    rounded up. A request that exceeds what is allocatable at all can't be helped by preemption. The reason names
    all that is lacking. Resources of DeviceClasses (DRA) are compared like any other.

    Source: kube-scheduler v1.36.3 framework/plugins/noderesources/fit.go (fitsRequest).
    """

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """Extended resources (by name, or by the part before the slash) that are not looked at."""

        ignored_resources: list[str] = []
        ignored_resource_groups: list[str] = []

    def __init__(self, arguments: Arguments) -> None:
        self._ignored = frozenset(arguments.ignored_resources)
        self._ignored_groups = frozenset(arguments.ignored_resource_groups)

    def filter(self, cycle: Cycle, rows: Rows) -> Verdicts:
        """Compare requests with what is allocatable less what the node's Pods ask for."""
        table = cycle.table
        lacks: list[_Lack] = [(TOO_MANY_PODS, free_slots(table)[rows] < 1, None)]
        for name, amount in self._wanted(cycle.pod.wanted):
            never = partial(_exceeds, amount, table, name, rows)
            lacks.append((f"Insufficient {name}", free(table, name)[rows] < amount, never))
        return _verdicts(lacks, len(rows))

    def _wanted(self, requests: Resources) -> list[tuple[str, int]]:
        """Return the resources to compare, cpu, memory and ephemeral-storage first, the others by name."""
        scalars = sorted(name for name in requests.amounts if name not in {*_BASIC, PODS})
        names = [*_BASIC, *(name for name in scalars if not self._is_ignored(name))]
        return [(name, requests.get(name)) for name in names if requests.get(name) > 0]

    def _is_ignored(self, name: str) -> bool:
        group = name.partition("/")[0]
        return is_extended(name) and (name in self._ignored or group in self._ignored_groups)


def _exceeds(amount: int, table: Table, name: str, rows: Rows) -> Mask:
    return allocatable(table, name)[rows] < amount


def _verdicts(lacks: list[_Lack], size: int) -> Verdicts:
    """Refuse the nodes that lack something, with all that they lack in one reason."""
    refused = lacks[0][1].copy()
    for _, lacking, _ in lacks[1:]:
        refused |= lacking
    positions = np.flatnonzero(refused)
    if not len(positions):
        return Verdicts.success(size)
    # What a node lacks, and whether for ever, as the digits of a number: each that occurs gets a status once.
    pattern = np.zeros((len(positions), 2 * len(lacks)), dtype=np.bool_)
    for index, (_, lacking, never) in enumerate(lacks):
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
