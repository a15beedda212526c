"""A Change with an edit that a newer version of Berth wrote: the pages that would open it, and the forms that would save into it."""

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from policies.models import Change, Part, RuleSet
from tests.builders import make_rule_set
from tests.component.pages import form_data, get, opened, publish, text_of

pytestmark = pytest.mark.django_db
SAYS = "can't be read: it was written by a newer version of Berth. Upgrade, or withdraw the Change."
PRIORITY_CLASS, ASSIGNMENT = "/admin/policies/priorityclass/add/", "/admin/policies/assignment/add/"


def newer(kind: str) -> Change:
    change = opened(make_rule_set("other"))
    change.edits.create(kind=kind, name="all", document='{"name": []}', author="ann", edited_at=timezone.now())
    return change


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("RuleSet", "/admin/policies/rulesetversion/edit_3Aall/change/?change={}"),
        ("RuleSet", "/admin/scheduler/preview/?rule_set=all&change={}"),
        ("Assignment", f"{ASSIGNMENT}?name=all&change={{}}"),
        ("PriorityClass", f"{PRIORITY_CLASS}?name=all&change={{}}"),
    ],
)
def test_a_page_that_would_open_it_says_why_it_cannot(operator: Client, kind: str, path: str) -> None:
    change = newer(kind)
    answer = operator.get(path.format(change.pk))
    assert answer.status_code == 409
    assert f"{kind} all in {change} {SAYS}" in text_of(answer)


def test_a_form_that_would_save_into_it_says_why_it_cannot_and_keeps_what_was_typed(operator: Client) -> None:
    change = newer("PriorityClass")
    typed = {"name": "night", "value": "5", "description": "Batch", "goes_into": str(change.pk)}
    answer = operator.post(PRIORITY_CLASS, form_data(get(operator, PRIORITY_CLASS)) | typed)
    assert answer.status_code == 200
    assert f"PriorityClass all in {change} {SAYS}" in text_of(answer)
    assert form_data(answer).items() >= typed.items()
    assert change.edits.count() == 2


def test_which_pods_an_assignment_would_take_beside_it_is_not_asked(operator: Client) -> None:
    publish(make_rule_set("web"))
    change = newer("PriorityClass")
    typed = {"name": "night", "rule_set": str(RuleSet.objects.get(name="web").pk), "goes_into": str(change.pk)}
    data = form_data(get(operator, ASSIGNMENT)) | typed
    answer = operator.post(reverse("admin:policies_assignment_takes_new"), data, HTTP_HX_REQUEST="true")
    assert answer.status_code == 200
    assert f"PriorityClass all in {change} {SAYS}" in text_of(answer)


def test_the_page_of_the_change_does_not_say_that_it_has_no_edits(operator: Client) -> None:
    change = newer("RuleSet")
    page = text_of(get(operator, f"/admin/policies/change/{change.pk}/change/"))
    assert f"RuleSet all in {change} {SAYS}" in page
    assert "Not all of it can be shown" in page
    assert "This can't be done" not in page, "nobody tried anything"
    assert "Nothing: this Change has no edits." not in page
    assert "rule set other added" in page


@pytest.mark.parametrize("path", ["/admin/policies/change/{}/change/", "/admin/policies/change/", "/api/v1/changes/{}"])
def test_a_change_of_what_a_newer_berth_published_and_took_back_is_shown(operator: Client, path: str) -> None:
    publish(make_rule_set("all"))
    change = opened(make_rule_set("other"))
    base = Part.objects.create(digest="f" * 64, document='{"name": []}').digest
    change.edits.create(kind="RuleSet", name="all", base_digest=base, author="ann", edited_at=timezone.now())
    answer = operator.get(path.format(change.pk))
    assert answer.status_code == 200
    assert str(change.pk) in text_of(answer)
