"""What /metrics of the admin says about wakes. It comes from the database: workers have no listener."""

import logging
from collections.abc import Iterable

from django.db import DatabaseError
from django.db.models import Sum
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from scheduler.models import Requeue

logger = logging.getLogger("berth.wake")

CAUSES = ("revision", "time")


class _Requeues(Collector):
    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily("berth_requeues", "Waiting Pods that were woken", labels=["cause"])
        try:
            rows = Requeue.objects.order_by("cause").values_list("cause").annotate(pods=Sum("pods"))
            found = dict(rows)
        except DatabaseError as error:
            logger.warning("wakes can't be counted, the database is unreachable: %s", error)
            return []
        for cause in CAUSES:
            family.add_metric([cause], found.get(cause, 0))
        return [family]

    def describe(self) -> Iterable[Metric]:
        """Name nothing beforehand: asking would ask the database when this is imported."""
        return []


WAKES = CollectorRegistry()
WAKES.register(_Requeues())
