"""The total requests of a Pod.

Source: k8s.io/component-helpers v0.36.3 resource/helpers.go (PodRequests, AggregateContainerRequests) and
kube-scheduler v1.36.3 framework/types.go (CalculateResource). Quantities are summed exactly and rounded once.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from policies.engine.objects.metadata import MOST_SHARED_CHARACTERS
from policies.engine.objects.pod_spec import Container, ContainerStatus, PodSpec, PodStatus
from policies.engine.objects.resources import (
    CPU,
    DEFAULT_MEMORY_BYTES,
    DEFAULT_MILLI_CPU,
    MEMORY,
    Quantities,
    Resources,
)
from policies.engine.quantity import ZERO, Quantity, Text, parse

_POD_LEVEL = (CPU, MEMORY)
_HUGE_PAGES = "hugepages-"
RESIZE_PENDING = "PodResizePending"
_DEFAULTS: Mapping[str, Quantity] = {CPU: Quantity(DEFAULT_MILLI_CPU, -3), MEMORY: Quantity(DEFAULT_MEMORY_BYTES, 0)}
_NONE: Mapping[str, Quantity] = {}

_Amounts = dict[str, Quantity]


class Counted(NamedTuple):
    """What an existing Pod counts for: as filters see it, and with the defaults that scores count."""

    requests: Resources
    nonzero: Resources


class _Plain(NamedTuple):
    """What a Pod of one container counts for, whether or not it is on a node; `wanted` is never below 0."""

    counted: Counted
    wanted: Resources


def counted(spec: PodSpec, status: PodStatus) -> Counted:
    """Compute what a Pod on a node counts for; while its containers are resized, the highest of all known amounts."""
    plain = _plain_requests(spec)
    if plain is not None and _is_settled(plain, status):
        return _plain(tuple(plain.items())).counted
    requests = _pod_requests(spec, status, _NONE)
    defaults = _DEFAULTS
    if _pod_level(spec):
        defaults = {name: default for name, default in _DEFAULTS.items() if name not in requests}
    nonzero = _pod_requests(spec, status, defaults) if defaults else requests
    return Counted(Resources.rounded(requests), Resources.rounded(nonzero))


def wanted(spec: PodSpec) -> Resources:
    """Return the requests of a Pod that has no node yet. Never below 0."""
    plain = _plain_requests(spec)
    if plain is not None:
        return _plain(tuple(plain.items())).wanted
    requests = Resources.rounded(_pod_requests(spec, None, _NONE))
    return _not_below_zero(requests)


def _not_below_zero(requests: Resources) -> Resources:
    return Resources({name: max(0, amount) for name, amount in requests.amounts.items()})


def scored(spec: PodSpec) -> Resources:
    """Return the requests that resource scores count for the incoming Pod: containers with defaults, and overhead.

    Pod-level requests don't count here: kube-scheduler v1.36.3 leaves them out (noderesources/fit.go, NewFit).
    """
    plain = _plain_requests(spec)
    if plain is not None:
        return _plain(tuple(plain.items())).counted.nonzero
    amounts = _container_requests(spec, None, _DEFAULTS)
    _add(amounts, _exact(spec.overhead))
    return Resources.rounded(amounts)


def _plain_requests(spec: PodSpec) -> Quantities | None:
    """Return the few requests of a Pod that has one container and nothing else that counts: nearly all Pods are like that."""
    containers = spec.containers or ()
    if len(containers) != 1 or spec.init_containers or spec.overhead or spec.resources:
        return None
    requests = containers[0].requests
    return requests if len(str(requests)) <= MOST_SHARED_CHARACTERS else None


def _is_settled(requests: Quantities, status: PodStatus) -> bool:
    """Return whether a plain Pod's status agrees with its spec: it isn't being resized, and writes no quantity differently."""
    if any(condition.type == RESIZE_PENDING for condition in status.conditions or ()):
        return False
    for found in status.container_statuses or ():
        known = found.resources.requests if found.resources else None
        if (known is not None and known != requests) or found.allocated_resources not in (None, requests):
            return False
    return not status.init_container_statuses


@lru_cache(maxsize=8192)
def _plain(requests: tuple[tuple[str, Text], ...]) -> _Plain:
    """Return what a plain Pod counts for. Pods that ask for the same share it, so it is never changed."""
    exact = {name: parse(text) for name, text in requests}
    counted = Counted(Resources.rounded(exact), Resources.rounded({**_DEFAULTS, **exact}))
    return _Plain(counted, _not_below_zero(counted.requests))


def _pod_requests(spec: PodSpec, status: PodStatus | None, defaults: Mapping[str, Quantity]) -> _Amounts:
    total = _container_requests(spec, status, defaults)
    pod_level = _pod_level(spec)
    if pod_level:
        effective = pod_level
        if status is not None and status.resources is not None:
            known = _effective(status, pod_level, status.resources.requests, status.allocated_resources)
            effective = {name: known.get(name, ZERO) for name in pod_level}
        total.update(effective)
    _add(total, _exact(spec.overhead))
    return total


def _pod_level(spec: PodSpec) -> _Amounts:
    requests = (spec.resources.requests if spec.resources else None) or {}
    return {name: parse(text) for name, text in requests.items() if name in _POD_LEVEL or name.startswith(_HUGE_PAGES)}


def _container_requests(spec: PodSpec, status: PodStatus | None, defaults: Mapping[str, Quantity]) -> _Amounts:
    statuses = _statuses(status)
    total: _Amounts = {}
    for container in spec.containers or ():
        _add(total, {**defaults, **_container(container, status, statuses)})
    # Init containers run one by one, each beside the sidecars before it: the Pod needs room for the highest such
    # moment, or for all containers and sidecars together, whichever is more.
    sidecars: _Amounts = {}
    peak: _Amounts = {}
    for container in spec.init_containers or ():
        known = statuses if container.is_sidecar else {}
        requests = {**defaults, **_container(container, status, known)}
        if container.is_sidecar:
            _add(total, requests)
            _add(sidecars, requests)
            _raise(peak, sidecars)
        else:
            _add(requests, sidecars)
            _raise(peak, requests)
    _raise(total, peak)
    return total


def _statuses(status: PodStatus | None) -> dict[str, ContainerStatus]:
    if status is None:
        return {}
    return {
        found.name: found for found in (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    }


def _container(container: Container, status: PodStatus | None, statuses: Mapping[str, ContainerStatus]) -> _Amounts:
    requests = _exact(container.requests)
    found = statuses.get(container.name)
    if status is None or found is None or found.resources is None:
        return requests
    return _effective(status, requests, found.resources.requests, found.allocated_resources)


def _effective(
    status: PodStatus, asked: _Amounts, actuated: Quantities | None, allocated: Quantities | None
) -> _Amounts:
    """Return the highest of the requested, actual and granted resources of the containers."""
    most = {} if _resize_is_infeasible(status) else dict(asked)
    _raise(most, _exact(actuated))
    _raise(most, _exact(allocated))
    return most


def _resize_is_infeasible(status: PodStatus) -> bool:
    for condition in status.conditions or ():
        if condition.type == RESIZE_PENDING:
            return condition.reason == "Infeasible"
    return False


def _exact(quantities: Quantities | None) -> _Amounts:
    return {name: parse(text) for name, text in (quantities or {}).items()}


def _add(total: _Amounts, more: Mapping[str, Quantity]) -> None:
    for name, quantity in more.items():
        known = total.get(name)
        total[name] = quantity if known is None else known.plus(quantity)


def _raise(total: _Amounts, other: Mapping[str, Quantity]) -> None:
    for name, quantity in other.items():
        known = total.get(name)
        if known is None:
            total[name] = quantity
        elif quantity.exceeds(known):
            # Go's comparison converts its operands to its other form.
            total[name] = quantity._replace(big=quantity.big or known.big)
