"""Where Berth answers otherwise than kube-scheduler v1.36.3 on purpose, each with the reason."""

from typing import Any

import msgspec

from policies.engine.quantity import parse
from tests.differential.generator import BEYOND

Json = dict[str, Any]

_RESOURCE_RULES = (
    "PodFitsResources",
    "LeastRequestedPriority",
    "MostRequestedPriority",
    "RequestedToCapacityRatioPriority",
    "NodeResourcesFit",
    "BalancedResourceAllocation",
)


def is_deviation(case: Json, builtin: str) -> bool:
    """Tell whether the rule's answers to the case may differ."""
    if not builtin.startswith(_RESOURCE_RULES):
        return False
    return any(map(_grows_when_asked, (case["pod"], *case.get("pods", ())))) or _is_beyond(case)


def _is_beyond(case: Json) -> bool:
    """Tell whether a single request is more than 64 bits can hold.

    What kube-scheduler takes such a quantity for (0, or what is left of it in 64 bits, even negative scores, which fail
    the cycle) depends on whether it was compared with another one before: k8s.io/apimachinery v0.36.3
    pkg/api/resource/quantity.go, Cmp, changes the form of its operands.
    """
    text = msgspec.json.encode(case)
    return any(b'"%s"' % amount.encode() in text for amount in BEYOND)


def _grows_when_asked(pod: Json) -> bool:
    """Tell whether kube-scheduler changes the Pod whenever it adds up what the Pod asks for.

    k8s.io/component-helpers v0.36.3 resource/helpers.go, PodRequests, puts the pod-level quantity itself into the sum
    and then adds the overhead to it. A quantity that doesn't fit Go's 64-bit form (1.5Gi) is held by a pointer, so the overhead
    is added to the Pod's own spec, once more with each call: the answer depends on how many plugins asked before.
    """
    spec = pod.get("spec", {})
    pod_level = (spec.get("resources") or {}).get("requests") or {}
    overhead = spec.get("overhead") or {}
    return any(parse(pod_level[name]).big for name in pod_level if name in overhead)
