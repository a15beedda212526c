"""The metrics of webhooks in admin, worker and beat. They are read from tables, so they outlive processes."""

import logging
from collections.abc import Iterable

from django.db import DatabaseError, connection
from django.db.models import Count, Min
from django.utils import timezone
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from scheduler.metrics import WITHOUT_DATABASE
from scheduler.models import Delivery, Webhook

logger = logging.getLogger("berth.webhooks")


class _Webhooks(Collector):
    def collect(self) -> Iterable[Metric]:
        failures = GaugeMetricFamily(
            "berth_webhook_failures", "Failed attempts in a row, for enabled webhooks", labels=["webhook"]
        )
        waiting = GaugeMetricFamily("berth_webhook_waiting", "Waiting deliveries", labels=["webhook"])
        oldest = GaugeMetricFamily(
            "berth_webhook_oldest_waiting_seconds", "Age of the oldest waiting delivery", labels=["webhook"]
        )
        try:
            rows = Delivery.objects.filter(state=Delivery.State.WAITING).order_by().values_list("webhook")
            queues = {key: (number, since) for key, number, since in rows.annotate(Count("pk"), Min("made_at"))}
            found = list(Webhook.objects.filter(is_active=True).order_by("pk"))
        except DatabaseError as error:
            connection.close()
            logger.warning(
                "deliveries can't be counted, the database is unreachable: %s", error, extra=WITHOUT_DATABASE
            )
            return []
        for row in found:
            now = timezone.now()
            number, since = queues.get(row.pk, (0, now))
            # By number: anybody can read /metrics, and names are users' own text.
            webhook = [str(row.pk)]
            failures.add_metric(webhook, row.failures)
            waiting.add_metric(webhook, number)
            oldest.add_metric(webhook, max(0.0, (now - since).total_seconds()))
        return [failures, waiting, oldest]

    def describe(self) -> Iterable[Metric]:
        """Return no metrics for registration: listing them would query the database at import."""
        return []


WEBHOOKS = CollectorRegistry()
WEBHOOKS.register(_Webhooks())
