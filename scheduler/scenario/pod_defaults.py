"""What the API server makes of the spec of a new Pod, as far as rules read it."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from policies.engine.assignments import DEFAULT_SCHEDULER

# The API server's defaults for members that a spec omits.
_SET: Mapping[str, Any] = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "restartPolicy": "Always",
    "schedulerName": DEFAULT_SCHEDULER,
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}
_HUGE_PAGES = "hugepages-"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED, _TERM = "preferredDuringSchedulingIgnoredDuringExecution", "podAffinityTerm"


def as_made(spec: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return a spec with the API server's defaults for new Pods (not for templates), as far as rules read them.

    An invalid spec is returned unchanged. Source: k8s.io/kubernetes v1.36.3 pkg/apis/core/v1/defaults.go (SetDefaults_Pod) and
    pkg/registry/core/pod/strategy.go (mutatePodAffinity); for templates in manifests also its defaults for both (SetDefaults_PodSpec).
    """
    given = {name: value for name, value in spec.items() if name not in _SET or value not in (None, "")}
    found = {**_SET, **given}
    for kind in ("containers", "initContainers"):
        found[kind] = _mapped(found.get(kind), _container)
        if found.get("hostNetwork") is True:
            found[kind] = _mapped(found[kind], _with_host_ports)
    if isinstance(found.get("resources"), dict):
        containers = [*_list(found["containers"]), *_list(found["initContainers"])]
        found["resources"] = _of_pod(found["resources"], map(_object, containers))
    if isinstance(found.get("affinity"), dict):
        found["affinity"] = {kind: _with_keys(terms, labels) for kind, terms in found["affinity"].items()}
    return {key: value for key, value in found.items() if value is not None or key in spec}


def _object(found: Any) -> dict[str, Any]:
    return found if isinstance(found, dict) else {}


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _set(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value}


def _mapped(found: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """Return a list with a function applied to its objects."""
    if not isinstance(found, list):
        return found
    return [change(each) if isinstance(each, dict) else each for each in found]


def _container(container: dict[str, Any]) -> dict[str, Any]:
    """Return a container with its limits as the default of its requests."""
    resources = container.get("resources")
    if not isinstance(resources, dict) or not isinstance(resources.get("limits"), dict):
        return container
    requests = resources.get("requests") or {}
    if not isinstance(requests, dict):
        return container  # it makes no valid Pod
    requests = {**resources["limits"], **requests}
    return {**container, "resources": {**resources, "requests": requests}}


def _with_host_ports(container: dict[str, Any]) -> dict[str, Any]:
    """Return a container of a Pod on the host's network: its ports are the host's."""
    if "ports" not in container:
        return container
    return {
        **container,
        "ports": _mapped(container["ports"], lambda port: {"hostPort": port.get("containerPort", 0)} | _set(port)),
    }


def _of_pod(resources: dict[str, Any], containers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return a Pod's own resources with limits as the default of requests, except for those that its containers request themselves."""
    limits, requests = resources.get("limits"), resources.get("requests") or {}
    if not isinstance(limits, dict) or not isinstance(requests, dict):
        return resources
    of_each = (_object(_object(each.get("resources")).get("requests")) for each in containers)
    asked = {name for each in of_each for name in each}
    made = {name: limit for name, limit in limits.items() if name not in asked or str(name).startswith(_HUGE_PAGES)}
    return {**resources, "requests": made | requests}


def _with_keys(terms: Any, labels: Mapping[str, str]) -> Any:
    """Return one kind of affinity with matchLabelKeys and mismatchLabelKeys merged into its terms' selectors."""
    if not isinstance(terms, dict):
        return terms
    found = dict(terms)
    for name, change in ((_REQUIRED, _with_own_labels), (_PREFERRED, _preferred)):
        if name in found:
            found[name] = _mapped(found[name], partial(change, labels=labels))
    return found


def _preferred(preference: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    term = preference.get(_TERM)
    return {**preference, _TERM: _with_own_labels(term, labels)} if isinstance(term, dict) else preference


def _with_own_labels(term: dict[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    selector = term.get("labelSelector")
    if not isinstance(selector, dict):
        return term  # it selects no Pod
    more = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in _list(term.get(name))
        if isinstance(key, str) and key in labels
    ]
    expressions = [*_list(selector.get("matchExpressions")), *more]
    return {**term, "labelSelector": {**selector, "matchExpressions": expressions}} if more else term
