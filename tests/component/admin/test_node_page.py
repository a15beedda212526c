"""The page of a node: its time, and where its links lead."""

import html
from datetime import UTC, datetime

import pytest
from django.test import Client

from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import get, text_of

pytestmark = pytest.mark.django_db
PAGE = "/admin/scheduler/nodes/n1/"


@pytest.mark.parametrize("asked", ["?spn=day", "?span=day&pod_name=a", "?span=century"])
def test_what_is_no_time_is_refused_and_shows_no_other_times(auditor: Client, asked: str) -> None:
    make_decision(placed_on="n1", placed_at=datetime.now(UTC))
    answer = auditor.get(PAGE + asked)
    said = html.unescape(text_of(answer))
    assert (answer.status_code, "Pods placed on it" in said) == (400, False)
    assert "isn't a filter of this page; there are span, from, to" in said or "'century' is none of" in said


def test_the_decisions_in_which_it_was_the_best_are_those_and_not_those_of_its_pods(auditor: Client) -> None:
    make_decision(pod_name="best", best="n1", placed_on="n2")
    make_decision(pod_name="placed", best="n2", placed_on="n1")
    url = get(auditor, PAGE).context["about"]
    assert [each["row"].pod_name for each in get(auditor, url).context["rows"]] == ["best"]
