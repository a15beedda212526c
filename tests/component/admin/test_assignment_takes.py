"""The form of an Assignment asks which Pods it would take as it is typed."""

from typing import Any

import pytest
from django.test import Client

from policies.models import Assignment, Change
from scheduler.admin import assignments
from scheduler.cluster.errors import APIError
from scheduler.takes import Group, Takes
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import form_data, get, publish, publish_all, text_of

pytestmark = pytest.mark.django_db
ADD = "/admin/policies/assignment/add/"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The cluster as a stand-in: what was asked of it."""
    found: list[Any] = []

    def look(name: str, before: Any, after: Any) -> Takes:
        found.append((name, before, after))
        return Takes(9, [Group("", 2, ["shop/a"]), Group("gives", 1, ["shop/b"])], 4)

    monkeypatch.setattr(assignments, "takes_of_cluster", look)
    publish(make_rule_set())
    publish_all(make_assignment("gives", order=10, match={"namespaces": ["shop"]}))
    return found


def page_of(name: str) -> str:
    return f"/admin/policies/assignment/{Assignment.objects.get(name=name).pk}/change/"


def test_it_says_who_takes_them_now_and_what_stands_in_its_way_and_writes_nothing(
    operator: Client, asked: list[Any]
) -> None:
    before = Change.objects.count()
    page = page_of("gives")
    data = form_data(get(operator, page)) | {"order": "3", "namespaces": ""}
    answer = operator.post(page.replace("change/", "takes/"), data, HTTP_HX_REQUEST="true")
    text = text_of(answer)
    assert "Of the 9 Pods now in the cluster it would take 3, and give up 4" in text
    assert "none: kube-scheduler decides alone 2 shop/a" in text
    assert 'href="/admin/scheduler/pods/shop/a/">shop/a</a>' in answer.content.decode()
    assert "this one already 1 shop/b" in text
    assert "Its match is empty" in text
    name, live, wanted = asked[0]
    assert (name, live.assignments[0].order, wanted.assignments[0].order) == ("gives", 10, 3)
    assert Change.objects.count() == before
    assert Assignment.objects.get().order == 10


def test_a_shadow_says_that_it_takes_none_and_what_it_would_take_if_it_were_enforced(
    operator: Client, asked: list[Any]
) -> None:
    page = page_of("gives")
    data = form_data(get(operator, page)) | {"mode": "shadow"}
    text = text_of(operator.post(page.replace("change/", "takes/"), data))
    assert "In mode shadow it takes no Pod" in text
    assert "If it were enforced: Of the 9 Pods now in the cluster it would take 3" in text
    assert [each.mode for each in asked[0][2].assignments] == ["enforce"]


def test_a_new_one_is_asked_about_and_a_faulty_form_says_so(operator: Client, asked: list[Any]) -> None:
    data = form_data(get(operator, ADD)) | {"name": "new", "order": "10"}
    url = "/admin/policies/assignment/takes/"
    assert "Correct the form first. Rule set: This field is required." in text_of(operator.post(url, data))
    data["rule_set"] = Assignment.objects.get().rule_set_id
    text = text_of(operator.post(url, data))
    assert "Order 10 is that of gives, too" in text
    assert [each.name for each in asked[0][2].assignments] == ["gives", "new"]


def test_without_the_cluster_what_it_says_alone_is_still_said(
    operator: Client, auditor: Client, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> Takes:
        message = "nobody answers"
        raise APIError(message)

    monkeypatch.setattr(assignments, "takes_of_cluster", away)
    page = page_of("gives")
    data = form_data(get(operator, page)) | {"namespaces": ""}
    text = text_of(operator.post(page.replace("change/", "takes/"), data))
    assert "The cluster can't be reached: nobody answers" in text
    assert "Its match is empty" in text
    assert auditor.post(page.replace("change/", "takes/"), data).status_code == 403
    assert "takes-now" not in get(auditor, page).content.decode()
