"""Which taints a Pod tolerates.

Sources: k8s.io/api v0.36.3 core/v1 toleration.go (ToleratesTaint; its Lt and Gt are off by default);
k8s.io/component-helpers v0.36.3 scheduling/corev1/helpers.go.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np

from policies.engine.objects.columns import Mask, taints
from policies.engine.objects.node import Taint
from policies.engine.objects.pod_spec import PodSpec, Toleration
from policies.engine.objects.table import Numbers, Rows, Table

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"


class Tolerated:
    """The taints that a Pod tolerates: asking whether one is among them takes as long with thousands of tolerations as with one."""

    def __init__(self, tolerations: Sequence[Toleration] | None) -> None:
        # Key, effect and value; an empty key or effect stands for all, None for any value.
        self._known: set[tuple[str, str, str | None]] = set()
        for each in tolerations or ():
            if each.operator in {"", "Equal"}:
                self._known.add((each.key, each.effect, each.value))
            elif each.operator == "Exists":
                self._known.add((each.key, each.effect, None))

    def __contains__(self, taint: Taint) -> bool:
        if not self._known:
            return False
        asked = product((taint.key, ""), (taint.effect, ""), (taint.value, None))
        return not self._known.isdisjoint(asked)


def match_tolerated(table: Table, rows: Rows, spec: PodSpec) -> Mask:
    """Return on which nodes a Pod tolerates all taints that keep Pods off: NoSchedule and NoExecute."""
    tolerated = Tolerated(spec.tolerations)

    def all_tolerated(found: tuple[Taint, ...]) -> bool:
        keeping_off = [taint for taint in found if taint.effect in {NO_SCHEDULE, NO_EXECUTE}]
        return all(taint in tolerated for taint in keeping_off)

    column = taints(table)
    answers = [all_tolerated(found) for found in column.values]  # type: ignore[arg-type] # what the column holds
    return np.array(answers, dtype=np.bool_)[column.codes[rows]]


def count_unpreferred(table: Table, rows: Rows, spec: PodSpec) -> Numbers:
    """Count the PreferNoSchedule taints that a Pod doesn't tolerate."""
    tolerated = Tolerated(spec.tolerations)

    def count(found: tuple[Taint, ...]) -> int:
        unpreferred = [taint for taint in found if taint.effect == PREFER_NO_SCHEDULE]
        return sum(taint not in tolerated for taint in unpreferred)

    column = taints(table)
    counts = [count(found) for found in column.values]  # type: ignore[arg-type] # what the column holds
    if not any(counts):
        return np.zeros(len(rows), dtype=np.int64)
    return np.array(counts, dtype=np.int64)[column.codes[rows]]
