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


def tolerates(tolerations: Sequence[Toleration] | None, taint: Taint) -> bool:
    """Return whether any of the tolerations tolerates a taint."""
    return any(_tolerates(toleration, taint) for toleration in tolerations or ())


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case _:
            return False


def match_tolerated(table: Table, rows: Rows, spec: PodSpec) -> Mask:
    """Return on which nodes a Pod tolerates all taints that keep Pods off: NoSchedule and NoExecute."""

    def all_tolerated(found: tuple[Taint, ...]) -> bool:
        keeping_off = [taint for taint in found if taint.effect in {NO_SCHEDULE, NO_EXECUTE}]
        return all(tolerates(spec.tolerations, taint) for taint in keeping_off)

    column = taints(table)
    answers = [all_tolerated(found) for found in column.values]  # type: ignore[arg-type] # what the column holds
    return np.array(answers, dtype=np.bool_)[column.codes[rows]]


def count_unpreferred(table: Table, rows: Rows, spec: PodSpec) -> Numbers:
    """Count the PreferNoSchedule taints that a Pod doesn't tolerate."""

    def count(found: tuple[Taint, ...]) -> int:
        unpreferred = [taint for taint in found if taint.effect == PREFER_NO_SCHEDULE]
        return sum(not tolerates(spec.tolerations, taint) for taint in unpreferred)

    column = taints(table)
    counts = [count(found) for found in column.values]  # type: ignore[arg-type] # what the column holds
    return np.array(counts, dtype=np.int64)[column.codes[rows]]
