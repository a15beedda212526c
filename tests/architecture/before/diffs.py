"""Tried on `aa66f4a` and the commit before: the pages that publish show an expression to its end."""

from typing import Any

import pytest
from django.test import Client

from policies import publishing
from policies.models import RuleSet
from tests.builders import make_rule_set
from tests.component.pages import draft_of, get, publish, text_of

pytestmark = pytest.mark.django_db

LONG = " && ".join(f"node.metadata.labels[?'team-{number}'].orValue('') != 'x'" for number in range(6))


def rules(expression: str) -> dict[str, Any]:
    return {"filters": [{"name": "team", "expression": expression, "reason": "no"}]}


def test_the_publish_page_shows_the_end_of_a_long_expression(operator: Client) -> None:
    publish(make_rule_set(**rules(LONG)))
    version = publishing.new_draft(rule_set=RuleSet.objects.get(name="web"), by="alice")
    publishing.save_draft(version=version, rule_set=make_rule_set(**rules(f"{LONG} || true")), by="alice")

    page = get(operator, f"/admin/policies/rulesetversion/{draft_of('web').pk}/publish/")

    assert f"{LONG} || true" in text_of(page)
