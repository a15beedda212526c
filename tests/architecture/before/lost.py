"""Tried on `66707d2` and the commit before: Decisions that were lost are counted by every process's /metrics."""

import pytest
from django.test import Client
from django.utils import timezone

from scheduler.models import DecisionGap


@pytest.mark.django_db
def test_lost_decisions_are_in_the_metrics_though_another_process_found_them(client: Client) -> None:
    DecisionGap.objects.create(process="extender@a:1:1", first=3, last=5, reason="no room", at=timezone.now())

    lines = client.get("/metrics").content.decode().splitlines()

    assert "berth_decisions_lost_total 3.0" in lines
