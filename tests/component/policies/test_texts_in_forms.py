"""Texts of several lines in forms: browsers send two characters for a line break, and a document has one."""

from typing import Any

import msgspec
import pytest
from django.test import Client

from policies.models import Assignment, Change, PriorityClass
from tests.builders import make_assignment, make_priority_class, make_rule_set
from tests.component.pages import change_url, edit_page, form_data, get, publish_all

pytestmark = pytest.mark.django_db

TEXTS = {"lines": "one\ntwo", "as | of YAML leaves it": "one\ntwo\n", "indented": "  one"}


def saved_untouched(client: Client, page: str) -> None:
    data: dict[str, Any] = form_data(get(client, page))
    sent = {key: text.replace("\n", "\r\n") if isinstance(text, str) else text for key, text in data.items()}
    assert client.post(page, sent | {"_save": ""}, follow=True).status_code == 200


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_form_that_is_saved_untouched_changes_no_description(operator: Client, text: str) -> None:
    values = (make_rule_set(), make_assignment(), make_priority_class())
    publish_all(*(msgspec.structs.replace(each, description=text) for each in values))
    before = Change.objects.count()
    for page in (
        edit_page("web"),
        change_url("assignment", Assignment.objects.get().pk),
        change_url("priorityclass", PriorityClass.objects.get().pk),
    ):
        saved_untouched(operator, page)
    assert Change.objects.count() == before


@pytest.mark.parametrize("text", ["true\n&& true", "true\n"])
def test_a_form_that_is_saved_untouched_changes_no_expression(operator: Client, text: str) -> None:
    rule = {"name": "a", "expression": text, "reason": "x"}
    score = {"name": "b", "expression": f"{text} ? 1.0 : 0.0", "weight": 1}
    publish_all(make_rule_set(filters=[rule], scores=[score], victims=[rule | {"name": "c"}]))
    before = Change.objects.count()
    saved_untouched(operator, edit_page("web"))
    assert Change.objects.count() == before
