"""A forecast for Pods that are all there at once, and not listed page by page."""

from collections.abc import Iterable
from datetime import datetime

from policies.engine.decision import CompiledRevision
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.gate.forecast import Forecast, Gathered, OwnScheduler, forecast


def forecast_at_once(
    before: CompiledRevision,
    after: CompiledRevision,
    snapshot: Snapshot,
    pods: Iterable[Pod],
    now: datetime,
    *,
    own: OwnScheduler | None = None,
) -> Forecast:
    gathered = Gathered(before, after, snapshot.namespaces, now, own or OwnScheduler())
    for pod in pods:
        gathered.add(pod)
    return forecast(gathered, snapshot)
