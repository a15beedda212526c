"""The built-in scores, by their classic names."""

from typing import Any

from policies.engine.scores.node_resources import LeastRequestedPriority

BUILTIN_SCORES: dict[str, Any] = {
    "LeastRequestedPriority": LeastRequestedPriority,
}
"""Name -> class with an `Arguments` struct, made with an instance of it; a `policies.engine.cycle.Score`."""
