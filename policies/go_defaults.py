"""What kube-scheduler makes of a file before its plugins read it: omitted numbers, and what it leaves to extenders. Pure.

Go leaves omitted numbers 0, and null ones too, and its defaults follow.
"""

from typing import Any

from policies.engine.selectors import is_label_key


def with_whole_points(ratio: dict[str, Any]) -> dict[str, Any]:
    """Return a shape with its omitted zeros."""
    shape = ratio.get("shape")
    if not isinstance(shape, list):
        return ratio
    return ratio | {"shape": [_whole_point(each) if isinstance(each, dict) else each for each in shape]}


def _whole_point(point: dict[str, Any]) -> dict[str, Any]:
    return {"utilization": 0, "score": 0} | {key: each for key, each in point.items() if each is not None}


def with_weights(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return resources with their omitted weights, which kube-scheduler takes as 1."""
    resources = arguments.get("resources")
    if not isinstance(resources, list):
        return arguments
    rest = {key: each for key, each in arguments.items() if key != "resources"}
    weighed = [each | {"weight": each.get("weight") or 1} if isinstance(each, dict) else each for each in resources]
    return rest | ({"resources": weighed} if weighed else {})


def ignored_by_scheduler(extenders: object) -> list[str]:
    """Return the resources that kube-scheduler leaves to extenders: NodeResourcesFit then ignores these on every node, and only these.

    Source: kube-scheduler v1.36.3 scheduler.go, buildExtenders; v1.15 factory/factory.go, CreateFromConfig. Entries that
    kube-scheduler couldn't read are skipped, and names that it refuses.
    """
    found = [each for entry in _objects(extenders) for each in _objects(entry.get("managedresources"))]
    names = [each.get("name") for each in found if each.get("ignoredbyscheduler") is True]
    return list(dict.fromkeys(name for name in names if isinstance(name, str) and is_label_key(name)))


def _objects(value: object) -> list[dict[str, Any]]:
    """Return a list's objects, with their members in lower case: an extender's are read in either (`doctor configuration`)."""
    found = [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
    return [{str(name).lower(): member for name, member in each.items()} for each in found]
