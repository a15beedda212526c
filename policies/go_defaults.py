"""Fills in what kube-scheduler's decoder makes of omitted numbers in a file: Go leaves them 0, and its defaults follow. Pure."""

from typing import Any


def with_whole_points(ratio: dict[str, Any]) -> dict[str, Any]:
    """Return a shape with its omitted zeros."""
    shape = ratio.get("shape")
    if not isinstance(shape, list):
        return ratio
    zeros = {"utilization": 0, "score": 0}
    return ratio | {"shape": [zeros | each if isinstance(each, dict) else each for each in shape]}


def with_weights(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return resources with their omitted weights, which kube-scheduler takes as 1."""
    resources = arguments.get("resources")
    if not isinstance(resources, list):
        return arguments
    rest = {key: each for key, each in arguments.items() if key != "resources"}
    weighed = [each | {"weight": each.get("weight") or 1} if isinstance(each, dict) else each for each in resources]
    return rest | ({"resources": weighed} if weighed else {})
