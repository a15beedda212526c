"""Metrics of admin, worker and beat about requeues. They are read from a table, so they outlive processes."""

import logging
from collections.abc import Iterable

from django.db import DatabaseError
from django.db.models import Sum
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from scheduler.metrics import WITHOUT_DATABASE
from scheduler.models import Requeue

logger = logging.getLogger("berth.requeue")

CAUSES = ("revision", "time", "namespace")


class _Requeues(Collector):
    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily("berth_requeues", "Waiting Pods that were requeued", labels=["cause"])
        try:
            rows = Requeue.objects.order_by("cause").values_list("cause").annotate(pods=Sum("pods"))
            found = dict(rows)
        except DatabaseError as error:
            logger.warning("requeues can't be counted, the database is unreachable: %s", error, extra=WITHOUT_DATABASE)
            return []
        for cause in CAUSES:
            family.add_metric([cause], found.get(cause, 0))
        return [family]

    def describe(self) -> Iterable[Metric]:
        """Describe nothing: collecting would query the database on import."""
        return []


REQUEUES = CollectorRegistry()
REQUEUES.register(_Requeues())
