"""Where Berth answers otherwise than kube-scheduler v1.36.3 on purpose, each with the reason."""

from typing import Any

Json = dict[str, Any]

_RESOURCE_RULES = {
    "PodFitsResources",
    "LeastRequestedPriority",
    "MostRequestedPriority",
    "RequestedToCapacityRatioPriority",
    "BalancedResourceAllocation",
}


def is_deviation(case: Json, builtin: str) -> bool:
    """Tell whether the rule's answers to the case differ on purpose."""
    return builtin in _RESOURCE_RULES and any(map(_grows_when_asked, (case["pod"], *case.get("pods", ()))))


def _grows_when_asked(pod: Json) -> bool:
    """Tell whether kube-scheduler changes the Pod whenever it adds up what the Pod asks for.

    k8s.io/component-helpers v0.36.3 resource/helpers.go, PodRequests, puts the pod-level quantity itself into the sum
    and then adds the overhead to it. A quantity written with a fraction (1.5Gi) is held by a pointer, so the overhead
    is added to the Pod's own spec, once more with each call: the answer depends on how many plugins asked before.
    """
    spec = pod.get("spec", {})
    pod_level = (spec.get("resources") or {}).get("requests") or {}
    overhead = spec.get("overhead") or {}
    return any("." in str(pod_level[name]) for name in pod_level if name in overhead)
