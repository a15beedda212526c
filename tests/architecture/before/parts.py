"""Tried on `4c4ca3e` and the commit before: a small change among many rule sets is stored in few bytes."""

import pytest
from django.apps import apps

from policies import publishing
from tests.builders import TEAM_FILTER, make_assignment, make_rule_set
from tests.component.pages import publish

pytestmark = pytest.mark.django_db


def stored_bytes() -> int:
    """Return the bytes of all texts that Revisions keep, in whichever tables there are."""
    models = [
        each
        for each in apps.get_app_config("policies").get_models()
        if "Part" in each.__name__ or each.__name__ == "Revision"
    ]
    return sum(len(str(value)) for model in models for row in model.objects.values_list() for value in row)


def test_a_small_change_among_many_rule_sets_costs_few_bytes() -> None:
    drafts = []
    for number in range(60):
        draft = publishing.create_rule_set(name=f"set-{number}", description="", by="ops")
        rule_set = make_rule_set(f"set-{number}", filters=[TEAM_FILTER])
        drafts.append(publishing.save_draft(version=draft, rule_set=rule_set, by="ops"))
        publishing.save_assignment(assignment=make_assignment(f"of-{number}", f"set-{number}"), by="ops")
    publishing.publish_together(versions=drafts, assignments=True, by="ops", reason="all")
    before = stored_bytes()

    publish(make_rule_set("set-7", filters=[{"builtin": "MatchNodeSelector"}]))

    assert stored_bytes() - before < 2_000
