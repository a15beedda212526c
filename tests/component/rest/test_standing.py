"""What REST says of Berth itself, and of who asks."""

import pytest
from django.contrib.auth.models import User
from django.test import Client

from scheduler.models import DecisionGap, PendingPod
from tests.builders import TEAM_FILTER, make_rule_set
from tests.component.controlplane.test_pages import make_process
from tests.component.pages import publish_all
from tests.component.rest.asking import ask, told
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db


def test_the_status_says_what_is_live_and_what_is_wrong(auditor: Client) -> None:
    assert told(ask(auditor, "get", "/status"))["revision"]["number"] == 0
    made = publish_all(make_rule_set(filters=[TEAM_FILTER]))
    process = make_process()
    DecisionGap.objects.create(process="p", first=3, last=7, reason="disk", at=process.heartbeat_at)
    PendingPod.objects.create(
        uid="u", namespace="shop", name="web-1", created_at=made.created_at, since=made.created_at
    )
    status = told(ask(auditor, "get", "/status"))
    assert (status["revision"]["number"], status["revision"]["digest"]) == (made.number, made.digest)
    assert [each["id"] for each in status["processes"]] == [process.pk]
    assert (status["lost_decisions"], status["pending"]["pods"], status["open_changes"]) == (5, 1, 0)


def test_who_asks_is_told_what_they_may(operator: Client) -> None:
    shown = told(ask(operator, "get", "/whoami"))
    assert (shown["account"], shown["roles"], shown["token"]) == ("operator", ["Operator"], "")
    assert shown["may"] == {"read": True, "edit": True, "publish": True, "approve": False, "break_glass": False}


def test_who_has_no_role_learns_that_alone() -> None:
    client = HTTPSClient()
    client.force_login(User.objects.create(username="new", is_staff=True))
    assert told(ask(client, "get", "/whoami"))["roles"] == []
    assert told(ask(client, "get", "/status"), 403)["title"] == "Forbidden"
