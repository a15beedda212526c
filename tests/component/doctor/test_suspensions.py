"""Pauses and Exemptions, as doctor, the log and metrics say them."""

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from django.db import DatabaseError
from prometheus_client import generate_latest

from policies import publishing
from scheduler.doctor import suspensions
from scheduler.doctor.checkup import check
from scheduler.doctor.suspensions import SUSPENSIONS
from scheduler.tasks import announce_exemptions
from tests.builders import make_exemption, make_pause, make_rule_set
from tests.component.doctor.checkups import part
from tests.component.pages import publish_all

pytestmark = pytest.mark.django_db


def test_what_is_paused_has_ended_or_ends_soon_is_said(caplog: pytest.LogCaptureFixture) -> None:
    publish_all(make_rule_set("web"))
    publishing.pause(target="everything", by="eve", reason="storm")
    publish_all(make_pause(until="2020-01-01T00:00:00Z"))
    soon = (datetime.now(UTC) + timedelta(days=3)).replace(microsecond=0)
    publish_all(make_exemption(until=soon.isoformat()))
    found = part(check(), "Pauses")
    assert found.state == "warning"
    ends = f"Exemption cart of team cart ends at {soon:%Y-%m-%d %H:%M} UTC"
    assert found.says == (
        f"everything is paused by eve: storm; the pause of rule set web has ended; {ends}: rule set web passes over its "
        "Pods until then"
    )
    announce_exemptions()
    assert ends in caplog.text
    ends_at = partial(SUSPENSIONS.get_sample_value, "berth_suspension_ends_at_seconds")
    assert ends_at({"kind": "Exemption", "name": "cart"}) == soon.timestamp()
    assert ends_at({"kind": "Pause", "name": "everything"}) == 0


def test_metrics_go_on_without_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_now: datetime) -> None:
        raise DatabaseError

    monkeypatch.setattr(suspensions, "suspended", away)
    assert generate_latest(SUSPENSIONS) == b""
