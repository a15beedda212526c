"""Tried on `457d843` and the commit before: rows that a form with a fault only says there were aren't made."""

import pytest
from django.test import Client

from policies import publishing
from policies.models import Rule
from tests.builders import TEAM_FILTER, make_rule_set
from tests.component.pages import change_url, form_data, get

pytestmark = pytest.mark.django_db


def test_two_hundred_thousand_rows_that_are_not_there_take_nothing(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    def make(*args: object, **values: object) -> Rule:
        made.append(1)
        assert len(made) < 1_000, "rows without end"
        return Rule(*args, **values)

    version = publishing.create_rule_set(name="web", description="", by="ops")
    draft = publishing.save_draft(version=version, rule_set=make_rule_set(filters=[TEAM_FILTER]), by="ops")
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page)) | {"filters-INITIAL_FORMS": 200_000, "params": "["}
    monkeypatch.setattr("policies.admin.rule_forms.Rule", make)

    assert operator.post(page, data).status_code == 200
