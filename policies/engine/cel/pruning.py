"""Reduces an object to the paths that an expression reads: passing the whole object costs many times an evaluation."""

from collections.abc import Mapping, Sequence
from typing import Any

from policies.engine.objects.node import MISSING, Path, Trace, trace


def pruned(json: Mapping[str, Any], paths: Sequence[Path]) -> dict[str, Any]:
    """Return the values at the paths of an object."""
    return rebuilt(paths, [trace(json, path) for path in paths])


def rebuilt(paths: Sequence[Path], traces: Sequence[Trace]) -> dict[str, Any]:
    """Build an object with the values at the paths; paths without a value are left out."""
    built: dict[str, Any] = {}
    for path, found in zip(paths, traces, strict=True):
        if not path:
            whole: dict[str, Any] = found.value  # type: ignore[assignment] # the object itself is read
            return whole
        target = built
        for key in path[: max(found.depth - 1, 0)]:
            target = target.setdefault(key, {})
        if found.depth and found.value is not MISSING:
            target[path[found.depth - 1]] = found.value
        elif found.depth:
            target.setdefault(path[found.depth - 1], {})
    return built
