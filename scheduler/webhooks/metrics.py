"""What /metrics of admin, worker and beat says of webhooks. It comes from tables, so it outlives processes."""

import logging
from collections.abc import Iterable

from django.db import DatabaseError, connection
from django.db.models import Count, Min
from django.utils import timezone
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from scheduler.models import Delivery, Webhook

logger = logging.getLogger("berth.webhooks")


class _Webhooks(Collector):
    def collect(self) -> Iterable[Metric]:
        failures = GaugeMetricFamily(
            "berth_webhook_failures", "Attempts in a row that failed, of a webhook that is on", labels=["webhook"]
        )
        waiting = GaugeMetricFamily("berth_webhook_waiting", "Deliveries that wait", labels=["webhook"])
        oldest = GaugeMetricFamily(
            "berth_webhook_oldest_waiting_seconds", "Age of the oldest delivery that waits", labels=["webhook"]
        )
        try:
            rows = Delivery.objects.filter(state=Delivery.State.WAITING).order_by().values_list("webhook")
            queues = {key: (number, since) for key, number, since in rows.annotate(Count("pk"), Min("made_at"))}
            found = list(Webhook.objects.filter(is_active=True).order_by("pk"))
        except DatabaseError as error:
            connection.close()
            logger.warning("deliveries can't be counted, the database is unreachable: %s", error)
            return []
        for row in found:
            now = timezone.now()
            number, since = queues.get(row.pk, (0, now))
            # By its number: anybody reads /metrics, and names are what people typed.
            webhook = [str(row.pk)]
            failures.add_metric(webhook, row.failures)
            waiting.add_metric(webhook, number)
            oldest.add_metric(webhook, max(0.0, (now - since).total_seconds()))
        return [failures, waiting, oldest]

    def describe(self) -> Iterable[Metric]:
        """Name nothing beforehand: asking would ask the database when this is imported."""
        return []


WEBHOOKS = CollectorRegistry()
WEBHOOKS.register(_Webhooks())
