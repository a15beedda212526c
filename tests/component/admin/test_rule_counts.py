"""How many Decisions of a day each rule refused nodes in."""

from datetime import timedelta

import pytest
from django.utils import timezone

from scheduler.admin import refusals
from scheduler.admin.refusals import refused_in_a_day
from scheduler.models import Decision

pytestmark = pytest.mark.django_db


def decided(number: int, *rules: str, hours: int = 1, verb: str = "filter", mode: str = "enforce") -> None:
    refused_by = "\n".join(["", *rules, ""])
    at = timezone.now() - timedelta(hours=hours)
    names = {"pod_namespace": "default", "pod_name": "p", "pod_uid": "u"}
    row = {"at": at, "process": "a", "sequence": number, "verb": verb, "mode": mode, "revision": 1}
    Decision.objects.create(rule_set="web", refused_by=refused_by, **row, **names)


def test_each_rule_is_counted_once_a_decision_of_the_last_day() -> None:
    decided(1, "team")
    decided(2, "team", "zone")
    decided(3, "zone", hours=25)
    decided(6)
    decided(4, "zone", verb="bind")
    decided(5, "zone", mode="shadow")
    assert refused_in_a_day("web") == {
        "team": "refused nodes in 2 of 3 Decisions in 24 h",
        "zone": "refused nodes in 1 of 3 Decisions in 24 h",
    }
    assert refused_in_a_day("other") == {}


def test_no_more_are_looked_at_than_a_page_can_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MOST_LOOKED_AT", 2)
    for number in range(3):
        decided(number + 1, "team")
    assert refused_in_a_day("web") == {"team": "refused nodes in 2 of 2 Decisions of the newest 2"}
