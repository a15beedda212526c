"""Metrics of admin, worker and beat about lost and rejected records. They are read from tables, so they outlive processes."""

import logging
from collections.abc import Iterable

from django.db import DatabaseError, connection
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from scheduler.decisions.missing import absent
from scheduler.metrics import WITHOUT_DATABASE
from scheduler.models import DeadLetter

logger = logging.getLogger("berth.decisions")


class _Gaps(Collector):
    def collect(self) -> Iterable[Metric]:
        try:
            gone = absent()
            unread = DeadLetter.objects.count()
        except DatabaseError as error:
            connection.close()
            logger.warning(
                "lost Decisions can't be counted, the database is unreachable: %s", error, extra=WITHOUT_DATABASE
            )
            return []
        return [
            CounterMetricFamily("berth_decisions_lost", "Decisions that were answered but are lost", gone.lost),
            GaugeMetricFamily(
                "berth_decisions_missing", "Decisions not stored, whose process has ended", gone.may_return
            ),
            GaugeMetricFamily("berth_dead_letters", "Records that could not be stored, kept unchanged", unread),
        ]

    def describe(self) -> Iterable[Metric]:
        """Describe nothing: collecting would query the database on import."""
        return []


GAPS = CollectorRegistry()
GAPS.register(_Gaps())
