"""Pages of two people at once: nothing is published that wasn't shown. What forms save: see test_desk."""

from typing import Any

import pytest
from django.test import Client

from policies.models import Revision, RuleSet, RuleSetVersion
from policies.publishing import current_revision
from tests.builders import make_rule_set
from tests.component.pages import change_url, get, publish, text_of

pytestmark = pytest.mark.django_db


def confirmed(page: Any, reason: str = "ticket 7") -> dict[str, str]:
    """Return what the browser sends when the button is pressed on a page that was loaded."""
    return {"reason": reason, "digest": page.context["confirmation"].digest}


class TestRevisions:
    def test_a_roll_back_over_a_later_revision_is_refused(self, operator: Client) -> None:
        publish(make_rule_set())
        publish(make_rule_set(filters=[{"builtin": "MatchNodeSelector"}]))
        url = change_url("revision", 1).replace("change", "roll_back")
        page = get(operator, url)
        publish(make_rule_set("late"), by="alice")
        again = operator.post(url, confirmed(page, "ticket 9"))
        assert "Somebody was faster" in text_of(again)
        assert "rule set late archived" in text_of(again)
        assert again.context["form"]["reason"].value() == "ticket 9"
        assert Revision.objects.count() == 3
        operator.post(url, confirmed(again))
        assert [each.name for each in current_revision().rule_sets] == ["web"]

    def test_archiving_over_a_later_revision_is_refused(self, operator: Client) -> None:
        publish(make_rule_set())
        url = change_url("ruleset", RuleSet.objects.get().pk).replace("change", "archive")
        page = get(operator, url)
        publish(make_rule_set("late"), by="alice")
        assert "Somebody was faster" in text_of(operator.post(url, confirmed(page)))
        assert Revision.objects.count() == 2

    def test_who_archives_second_is_told_that_it_is_archived(self, operator: Client) -> None:
        publish(make_rule_set())
        url = change_url("ruleset", RuleSet.objects.get().pk).replace("change", "archive")
        page = get(operator, url)
        assert operator.post(url, confirmed(page)).status_code == 302
        assert "Nothing to do: web isn't live." in text_of(operator.post(url, confirmed(page)))
        assert "Nothing to do: web isn't live." in text_of(get(operator, url))

    def test_who_goes_back_second_is_told_that_it_is_live(self, operator: Client) -> None:
        publish(make_rule_set())
        publish(make_rule_set(filters=[{"builtin": "MatchNodeSelector"}]))
        first = RuleSetVersion.objects.get(number=1)
        url = change_url("rulesetversion", first.pk).replace("change", "go-back")
        page = get(operator, url)
        assert operator.post(url, confirmed(page)).status_code == 302
        assert "Nothing to do: web v1 is already live." in text_of(operator.post(url, confirmed(page)))
