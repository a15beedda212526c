"""LeastRequestedPriority: prefer the nodes with the largest free share.

Source: kube-scheduler v1.36.3 framework/plugins/noderesources/least_allocated.go and resource_allocation.go.
"""

import msgspec
import numpy as np

from policies.engine.cycle import Cycle
from policies.engine.objects.columns import allocatable, nonzero_requested, requested
from policies.engine.objects.resources import CPU, MEMORY, is_scalar
from policies.engine.objects.table import Numbers, Rows

MAX_WEIGHT = 100


class ResourceWeight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much one resource counts, 1..100."""

    name: str
    weight: int = 1


def _default_resources() -> list[ResourceWeight]:
    return [ResourceWeight(CPU), ResourceWeight(MEMORY)]


class LeastRequestedPriority:
    """Nodes score by the share of cpu and memory that stays free with the Pod on them."""

    class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
        """Which resources count, and how much. cpu and memory, 1 each, when not given."""

        resources: list[ResourceWeight] = msgspec.field(default_factory=_default_resources)

        def __post_init__(self) -> None:
            for resource in self.resources:
                if not 1 <= resource.weight <= MAX_WEIGHT:
                    message = f"the weight of {resource.name} must be 1 to {MAX_WEIGHT}, not {resource.weight}"
                    raise ValueError(message)

    def __init__(self, arguments: Arguments) -> None:
        self._resources = arguments.resources

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Average, over the weights, (allocatable - requested) * 100 / allocatable; integer division throughout.

        A resource that the node has none of is left out; one that is asked for beyond what there is gives 0. Of cpu
        and memory a container without a request counts 100m and 200 MiB.
        """
        requests = cycle.pod.score_requests
        table = cycle.table
        total = np.zeros(len(rows), dtype=np.int64)
        weights = np.zeros(len(rows), dtype=np.int64)
        for resource in self._resources:
            name, wanted = resource.name, requests.get(resource.name)
            if wanted == 0 and is_scalar(name):
                continue
            there = allocatable(table, name)[rows]
            used = (nonzero_requested if name in {CPU, MEMORY} else requested)(table, name)[rows] + wanted
            divisor = np.maximum(there, 1)
            total += np.where((there > 0) & (used <= there), (there - used) * 100 // divisor * resource.weight, 0)
            weights += np.where(there > 0, resource.weight, 0)
        return total // np.maximum(weights, 1)
