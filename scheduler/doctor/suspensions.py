"""Reports Pauses and Exemptions: their ends as metrics, and Exemptions in the log before they end."""

import logging
from collections.abc import Iterable
from datetime import datetime

from django.db import DatabaseError
from django.utils import timezone
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from policies.engine.ruleset import Exemption
from policies.publishing import Suspended, ending_soon, suspended
from scheduler.metrics import WITHOUT_DATABASE

logger = logging.getLogger("berth.suspensions")


def announce(now: datetime) -> None:
    """Log each Exemption that ends soon, or has ended, with its owner."""
    for each in ending_soon(now):
        logger.warning("%s", ending_sentence(each))


def ending_sentence(each: Suspended) -> str:
    """Return in words when an Exemption ends, and whom to ask."""
    owner = each.value.owner if isinstance(each.value, Exemption) else each.by
    head = f"Exemption {each.value.name} of {owner}"
    at = f"{each.ends_at:%Y-%m-%d %H:%M} UTC" if each.ends_at else each.value.until
    if each.has_ended:
        return f"{head} ended at {at}: {each.what} decides about its Pods again"
    return f"{head} ends at {at}: {each.what} passes over its Pods until then"


class _Ends(Collector):
    def collect(self) -> Iterable[Metric]:
        family = GaugeMetricFamily(
            "berth_suspension_ends_at_seconds",
            "When a live Pause or Exemption ends, in Unix time; 0 without an end",
            labels=["kind", "name"],
        )
        try:
            found = suspended(timezone.now())
        except DatabaseError as error:
            logger.warning("Pauses can't be listed, the database is unreachable: %s", error, extra=WITHOUT_DATABASE)
            return []
        for each in found:
            labels = [type(each.value).__name__, each.value.name]
            family.add_metric(labels, each.ends_at.timestamp() if each.ends_at else 0)
        return [family]

    def describe(self) -> Iterable[Metric]:
        """Return no metrics for registration: listing them would query the database at import."""
        return []


SUSPENSIONS = CollectorRegistry()
SUSPENSIONS.register(_Ends())
