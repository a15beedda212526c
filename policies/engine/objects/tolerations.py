"""Which taints a Pod tolerates.

Sources: k8s.io/api v0.36.3 core/v1 toleration.go (ToleratesTaint; its Lt and Gt are off by default);
k8s.io/component-helpers v0.36.3 scheduling/corev1/helpers.go.
"""

from collections.abc import Sequence

import numpy as np

from policies.engine.objects.columns import Mask, taints
from policies.engine.objects.node import Taint
from policies.engine.objects.pod_spec import PodSpec, Toleration
from policies.engine.objects.table import Numbers, Rows, Table

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"
_KEEPING_OFF = frozenset({NO_SCHEDULE, NO_EXECUTE})


class Tolerated:
    """The taints that a Pod tolerates: a look-up takes as long with thousands of tolerations as with one."""

    def __init__(self, tolerations: Sequence[Toleration] | None) -> None:
        # By key: effect and value. An empty key matches all keys, an empty effect all effects, None any value.
        self._known: dict[str, set[tuple[str, str | None]]] = {}
        for each in tolerations or ():
            if each.operator in {"", "Equal"}:
                self._known.setdefault(each.key, set()).add((each.effect, each.value))
            elif each.operator == "Exists":
                self._known.setdefault(each.key, set()).add((each.effect, None))

    def __contains__(self, taint: Taint) -> bool:
        return self._has(taint.key, taint) or (bool(taint.key) and self._has("", taint))

    def _has(self, key: str, taint: Taint) -> bool:
        found = self._known.get(key)
        if found is None:
            return False
        effect, value = taint.effect, taint.value
        return not found.isdisjoint(((effect, value), (effect, None), ("", value), ("", None)))


def match_tolerated(table: Table, rows: Rows, spec: PodSpec) -> Mask:
    """Return on which nodes a Pod tolerates all taints that keep Pods off: NoSchedule and NoExecute."""
    tolerated = Tolerated(spec.tolerations)

    def all_tolerated(found: tuple[Taint, ...]) -> bool:
        return all(taint in tolerated for taint in found if taint.effect in _KEEPING_OFF)

    column = taints(table)
    answers = [all_tolerated(found) for found in column.values]  # type: ignore[arg-type] # what the column holds
    return np.array(answers, dtype=np.bool_)[column.codes[rows]]


def count_unpreferred(table: Table, rows: Rows, spec: PodSpec) -> Numbers:
    """Count the PreferNoSchedule taints that a Pod doesn't tolerate."""
    tolerated = Tolerated(spec.tolerations)

    def count(found: tuple[Taint, ...]) -> int:
        return sum(taint not in tolerated for taint in found if taint.effect == PREFER_NO_SCHEDULE)

    column = taints(table)
    counts = [count(found) for found in column.values]  # type: ignore[arg-type] # what the column holds
    if not any(counts):
        return np.zeros(len(rows), dtype=np.int64)
    return np.array(counts, dtype=np.int64)[column.codes[rows]]
