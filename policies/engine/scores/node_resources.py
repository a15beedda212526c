"""Nodes by the share of their resources that is free, or taken, with the Pod on them."""

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from policies.engine.objects.columns import Mask, allocatable, nonzero_requested, requested
from policies.engine.objects.resources import CPU, EPHEMERAL, MEMORY, Resources, fault_of_ignored, is_scalar
from policies.engine.objects.table import Numbers, Rows, Table
from policies.engine.rule import Cycle, Scope, Score
from policies.engine.scores.arithmetic import MAX_SCORE, divide

MAX_WEIGHT = 100
MAX_POINTS = 10
_Floats = npt.NDArray[np.float64]
_LEAST = float(-(2**63))


class ResourceWeight(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How much one resource counts, 1..100."""

    name: str
    weight: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.weight <= MAX_WEIGHT:
            message = f"the weight of {self.name} must be 1 to {MAX_WEIGHT}, not {self.weight}"
            raise ValueError(message)


def _default_resources() -> list[ResourceWeight]:
    return [ResourceWeight(CPU), ResourceWeight(MEMORY)]


class ResourceArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which resources count, and their weights. The default is cpu and memory, 1 each."""

    resources: list[ResourceWeight] = msgspec.field(default_factory=_default_resources)


class ShapePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A point of the shape: this utilization in percent gives this score, 0..10."""

    utilization: int
    score: int

    def __post_init__(self) -> None:
        if not (0 <= self.utilization <= MAX_SCORE and 0 <= self.score <= MAX_POINTS):
            message = "a point of the shape has a utilization of 0 to 100 and a score of 0 to 10"
            raise ValueError(message)


def _default_shape() -> list[ShapePoint]:
    return [ShapePoint(0, MAX_POINTS), ShapePoint(MAX_SCORE, 0)]


def _check_shape(shape: Sequence[ShapePoint]) -> None:
    values = [point.utilization for point in shape]
    if not values or sorted(set(values)) != values:
        message = "the shape needs at least one point, and its utilizations must rise"
        raise ValueError(message)


class RatioArguments(ResourceArguments, frozen=True, forbid_unknown_fields=True):
    """The shape, with points in order of utilization, and which resources count. By default free nodes are best."""

    shape: list[ShapePoint] = msgspec.field(default_factory=_default_shape)

    def __post_init__(self) -> None:
        _check_shape(self.shape)


def _that_count(resources: Sequence[ResourceWeight], requests: Resources) -> list[ResourceWeight]:
    """Return the resources that count: others than cpu, memory and ephemeral-storage count only when the Pod requests them."""
    return [
        resource
        for resource in resources
        if resource.name in {CPU, MEMORY, EPHEMERAL} or (is_scalar(resource.name) and requests.get(resource.name))
    ]


def _amounts(table: Table, rows: Rows, resources: Sequence[ResourceWeight], *, plain: bool) -> tuple[Numbers, Numbers]:
    """Return allocatable and requested amounts, without the Pod: a row for each resource, with a number for each node."""
    there, used = np.empty((2, len(resources), len(rows)), dtype=np.int64)
    for index, resource in enumerate(resources):
        name = resource.name
        there[index] = allocatable(table, name)[rows]
        taken = requested if plain or name not in {CPU, MEMORY} else nonzero_requested
        used[index] = taken(table, name)[rows]
    return there, used


class _Averaged(Score):
    """The weighted average of a score for each resource; a resource that a node doesn't have is left out."""

    scope = Scope.NODE_AND_PODS

    def __init__(self, resources: Sequence[ResourceWeight]) -> None:
        self._resources = resources

    def _average(
        self, cycle: Cycle, rows: Rows, score: Callable[[Numbers, Numbers], Numbers]
    ) -> tuple[Numbers, Numbers | np.int64]:
        """Return sum(weight x score) and sum(weight), which is at least 1: a single number where it is the same for all nodes.

        `score` takes the amount requested with the Pod, and the allocatable amount.
        """
        requests = cycle.pod.score_requests
        resources = _that_count(self._resources, requests)
        there, used = _amounts(cycle.table, rows, resources, plain=False)
        for index, resource in enumerate(resources):
            used[index] += requests.get(resource.name)
        found = score(used, there)
        counts = self._counts(there, found)
        weights = [resource.weight for resource in resources]
        if counts is None and set(weights) <= {1}:
            return np.add.reduce(found), np.int64(max(len(weights), 1))
        column = np.array(weights, dtype=np.int64).reshape(-1, 1)
        if counts is None:
            return np.add.reduce(found * column), np.int64(max(sum(weights), 1))
        total = np.add.reduce(np.where(counts, found * column, 0))
        return total, np.maximum(np.add.reduce(np.where(counts, column, 0)), 1)

    def _counts(self, there: Numbers, found: Numbers) -> Mask | None:
        """Return on which nodes each resource counts, a row for each; None where all count on all nodes."""
        return None if np.count_nonzero(there) == there.size else there != 0


class LeastRequestedPriority(_Averaged):
    """Nodes score by the share of cpu and memory that stays free with the Pod on them.

    sum(weight x (allocatable - requested) x 100 / allocatable) / sum(weight), integer division throughout. requested
    is that of the node's Pods and of the Pod. A container without a request for cpu or memory counts 100m and 200 MiB,
    and the Pod's own pod-level requests don't count (as in v1.36.3). A resource of which more is requested than is
    allocatable gives 0; one that the node doesn't have is left out.

    Source: kube-scheduler v1.36.3 framework/plugins/noderesources/least_allocated.go and resource_allocation.go.
    """

    Arguments = ResourceArguments

    def __init__(self, arguments: ResourceArguments) -> None:
        super().__init__(arguments.resources)

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Average what stays free."""
        total, weights = self._average(cycle, rows, _free_share)
        return divide(total, weights)


def _free_share(used: Numbers, there: Numbers) -> Numbers:
    free = divide((there - used) * MAX_SCORE, there)
    over = used > there
    if over.any():
        free[over] = 0
    return free


class MostRequestedPriority(_Averaged):
    """Nodes score by the share of cpu and memory that is taken with the Pod on them: full nodes first.

    sum(weight x min(requested, allocatable) x 100 / allocatable) / sum(weight), integer division throughout; what
    counts as requested is as in LeastRequestedPriority.

    Source: kube-scheduler v1.36.3 framework/plugins/noderesources/most_allocated.go and resource_allocation.go.
    """

    Arguments = ResourceArguments

    def __init__(self, arguments: ResourceArguments) -> None:
        super().__init__(arguments.resources)

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Average what is taken."""
        total, weights = self._average(cycle, rows, _taken_share)
        return divide(total, weights)


def _taken_share(used: Numbers, there: Numbers) -> Numbers:
    return divide(np.minimum(used, there) * MAX_SCORE, there)


class RequestedToCapacityRatioPriority(_Averaged):
    """Nodes score by a line of one's own that maps the share that is taken to a score.

    For each resource, requested x 100 / allocatable (100 when more is requested than is allocatable) is mapped along the
    shape's points, in whole numbers. Scores above 0 are averaged by weight and rounded half up. What counts as
    requested is as in LeastRequestedPriority.

    Source: kube-scheduler v1.36.3 framework/plugins/noderesources/requested_to_capacity_ratio.go and
    framework/plugins/helper/shape_score.go.
    """

    Arguments = RatioArguments

    def __init__(self, arguments: RatioArguments) -> None:
        super().__init__(arguments.resources)
        points = [(point.utilization, point.score * (MAX_SCORE // MAX_POINTS)) for point in arguments.shape]
        # A table of the scores of 0..100 percent; only a negative share can be outside it.
        self._scores = np.array([_along(points, percent) for percent in range(MAX_SCORE + 1)], dtype=np.int64)

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Average the shape's scores."""
        total, weights = self._average(cycle, rows, self._along_shape)
        return np.asarray((2 * total + weights) // (2 * weights))

    def _along_shape(self, used: Numbers, there: Numbers) -> Numbers:
        percent = np.where(used > there, MAX_SCORE, divide(used * MAX_SCORE, there))
        return np.asarray(self._scores[np.clip(percent, 0, MAX_SCORE)])

    def _counts(self, there: Numbers, found: Numbers) -> Mask:
        return np.asarray((there != 0) & (found > 0))


def _along(points: Sequence[tuple[int, int]], percent: int) -> int:
    before: tuple[int, int] | None = None
    for at, score in points:
        if percent <= at:
            if before is None:
                return score
            rise = (score - before[1]) * (percent - before[0])
            run = at - before[0]
            return before[1] + (rise // run if rise >= 0 else -(-rise // run))
        before = (at, score)
    return points[-1][1]


class BalancedResourceAllocation(Score):
    """Nodes score higher the more evenly their resources are taken once the Pod is there.

    f = requested / allocatable, at most 1, for each resource that the node has, with plain requests; spread =
    |f1 - f2| / 2 for two resources, the standard deviation for more, 0 for one; s = int((1 - spread) x 100). The
    score is 50 + (50 + s with the Pod - s without it) / 2: 75 when nothing changes. In 64-bit floats, like
    kube-scheduler. A Pod that asks for none of the resources isn't scored. Weights don't count, so only 1 is taken.

    Source: kube-scheduler v1.36.3 framework/plugins/noderesources/balanced_allocation.go.
    """

    scope = Scope.NODE_AND_PODS

    Arguments = ResourceArguments

    def __init__(self, arguments: ResourceArguments) -> None:
        self._resources = arguments.resources

    def fault(self) -> str:
        """Return what kube-scheduler refuses too (apis/config/validation/validation_pluginargs.go)."""
        names = [resource.name for resource in self._resources]
        for resource in self._resources:
            if resource.weight != 1:
                return f"the weight of {resource.name} must be 1: in a balance all resources count the same"
            if names.count(resource.name) > 1:
                return f"{resource.name} stands twice: a balance takes each resource once"
        return ""

    def score(self, cycle: Cycle, rows: Rows) -> Numbers | None:
        """Compare the balance with and without the Pod."""
        requests = cycle.pod.requests
        if not any(requests.get(resource.name) for resource in self._resources):
            return None
        resources = _that_count(self._resources, requests)
        there, used = _amounts(cycle.table, rows, resources, plain=True)
        taken = np.empty((len(resources), 2, len(rows)), dtype=np.int64)
        for index, resource in enumerate(resources):
            np.add(used[index], requests.get(resource.name), out=taken[index, 0])
        taken[:, 1] = used
        with_pod, without = _balance(there, taken)
        with_pod -= without
        with_pod += 50
        return np.asarray(50 + divide(with_pod, np.int64(2)))


def _balance(there: Numbers, taken: Numbers) -> Numbers:
    """Return how evenly resources are taken on each node: a row with the Pod, and a row without it.

    Sums run in the resources' order, as in Go: floats depend on it.

    Args:
        there: the allocatable amounts, a row for each resource.
        taken: for each resource a row with the Pod, and a row without it.
    """
    counts = there != 0
    has_all = bool(counts.all())
    fractions = taken / (there if has_all else there + ~counts)[:, np.newaxis]
    np.minimum(fractions, 1.0, out=fractions)
    if has_all and len(there) == 2:  # noqa: PLR2004 - cpu and memory
        first, second = fractions
        return _scored(np.abs((first - second) / 2))
    shape = fractions.shape[1:]
    number = np.add.reduce(counts, dtype=np.int64)
    total, first, second = (np.zeros(shape) for _ in range(3))
    before = np.zeros(shape[1], dtype=np.int64)
    for share, here in zip(fractions, counts, strict=True):
        first = np.where(here & (before == 0), share, first)
        second = np.where(here & (before == 1), share, second)
        total += np.where(here, share, 0.0)
        before += here
    spread = np.where(number == 2, np.abs((first - second) / 2), 0.0)  # noqa: PLR2004 - two resources
    if len(there) > 2:  # noqa: PLR2004 - more than two resources
        spread = np.where(number > 2, _deviation(fractions, counts, total, number), spread)  # noqa: PLR2004 - as above
    return _scored(spread)


def _scored(spread: _Floats) -> Numbers:
    # What is less than 64 bits hold is their least number, as Go has it on amd64: requests that overflowed are below 0.
    return np.maximum((1 - spread) * float(MAX_SCORE), _LEAST).astype(np.int64)


def _deviation(fractions: _Floats, counts: Mask, total: _Floats, number: Numbers) -> _Floats:
    count = np.maximum(number, 1).astype(np.float64)
    mean = total / count
    squares = np.zeros(total.shape)
    for share, here in zip(fractions, counts, strict=True):
        squares += np.where(here, (share - mean) * (share - mean), 0.0)
    return np.asarray(np.sqrt(squares / count))


class RatioShape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The line of strategy RequestedToCapacityRatio."""

    shape: list[ShapePoint]


class Strategy(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """How NodeResourcesFit scores."""

    type: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    resources: list[ResourceWeight] = msgspec.field(default_factory=_default_resources)
    requested_to_capacity_ratio: RatioShape | None = None

    def __post_init__(self) -> None:
        if (self.type == "RequestedToCapacityRatio") != (self.requested_to_capacity_ratio is not None):
            message = "requestedToCapacityRatio goes with type RequestedToCapacityRatio"
            raise ValueError(message)
        if self.requested_to_capacity_ratio is not None:
            _check_shape(self.requested_to_capacity_ratio.shape)


class NodeResourcesFit(Score):
    """Nodes score by their free or taken resources, as the strategy says: the plugin's way to name three scores.

    LeastAllocated (when not given) is LeastRequestedPriority, MostAllocated is MostRequestedPriority and
    RequestedToCapacityRatio is RequestedToCapacityRatioPriority.

    Source: kube-scheduler v1.36.3 framework/plugins/noderesources/fit.go (NodeResourcesFitArgs).
    """

    scope = Scope.NODE_AND_PODS

    class Arguments(msgspec.Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
        """The plugin's arguments; those that its filter reads are ignored."""

        scoring_strategy: Strategy = msgspec.field(default_factory=Strategy)
        ignored_resources: list[str] = []
        ignored_resource_groups: list[str] = []

    def __init__(self, arguments: Arguments) -> None:
        self._arguments = arguments
        strategy = arguments.scoring_strategy
        resources = strategy.resources or _default_resources()
        self._score: LeastRequestedPriority | MostRequestedPriority | RequestedToCapacityRatioPriority
        if strategy.requested_to_capacity_ratio is not None:
            shape = strategy.requested_to_capacity_ratio.shape
            self._score = RequestedToCapacityRatioPriority(RatioArguments(resources=resources, shape=shape))
        elif strategy.type == "MostAllocated":
            self._score = MostRequestedPriority(ResourceArguments(resources=resources))
        else:
            self._score = LeastRequestedPriority(ResourceArguments(resources=resources))

    def fault(self) -> str:
        """Return what kube-scheduler refuses too."""
        return fault_of_ignored(self._arguments.ignored_resources, self._arguments.ignored_resource_groups)

    def score(self, cycle: Cycle, rows: Rows) -> Numbers:
        """Score as the strategy says."""
        return self._score.score(cycle, rows)
