"""From a version of a rule set to the Decisions by it, and from each of them back."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from policies.models import RuleSetVersion
from tests.builders import TEAM_FILTER, make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import publish_all, text_of

pytestmark = pytest.mark.django_db
_KEY = re.compile(r"/admin/scheduler/decision/([0-9a-f-]{36})/change/")


@pytest.fixture
def page() -> str:
    """The page of a rule set's first version, which has six Decisions: one found no node, one is a shadow's."""
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    for number in range(4):
        make_decision(pod_name=f"web-{number}", refused_by="\nteam\n")
    make_decision(pod_name="none", feasible=0, refused_by="\nroom\nteam\n")
    make_decision(pod_name="tried", mode="shadow")
    make_decision(pod_name="next-version", rule_set_version=2, refused_by="\nlater\n")
    make_decision(pod_name="another", rule_set="other")
    return reverse("admin:policies_rulesetversion_change", args=[RuleSetVersion.objects.get().pk])


def names(client: Client, url: str) -> set[str]:
    return {each["row"].pod_name for each in client.get(url).context["rows"]}


def link(html: str, words: str) -> str:
    found = re.search(rf'href="([^"]+)"[^>]*>{re.escape(words)}<', html)
    assert found, words
    return found[1].replace("&amp;", "&")


@pytest.mark.parametrize("who", ["auditor", "operator", "approver"])
def test_it_leads_to_just_the_decisions_by_it_and_each_leads_back(
    page: str, who: str, request: pytest.FixtureRequest
) -> None:
    client: Client = request.getfixturevalue(who)
    html = client.get(page).content.decode()
    panel = html[html.index('id="version-decisions"') :]
    assert len(set(_KEY.findall(panel))) == 5
    assert "next-version" not in panel
    mine = {f"web-{number}" for number in range(4)} | {"none", "tried"}
    assert names(client, link(panel, "All of its Decisions")) == mine
    assert names(client, link(panel, "those without a node")) == {"none"}
    assert names(client, link(panel, "those in shadow")) == {"tried"}
    assert names(client, link(panel, "refused by room")) == {"none"}
    for key in set(_KEY.findall(panel)):
        decision = client.get(f"/admin/scheduler/decision/{key}/change/").content.decode()
        by_number = re.search(r'href="(/admin/scheduler/versions/web/1/)"', decision)
        assert by_number, "a Decision names the version that made it"
        assert client.get(by_number[1]).headers["Location"] == page


def test_a_version_that_decided_nothing_says_so(auditor: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    page = auditor.get(reverse("admin:policies_rulesetversion_change", args=[RuleSetVersion.objects.get().pk]))
    assert "This version has no Decisions yet" in text_of(page)


def test_one_that_ended_in_an_error_says_so_and_not_how_many_nodes_it_had(auditor: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    make_decision(error="too late", nodes=0, feasible=0)
    page = text_of(auditor.get(reverse("admin:policies_rulesetversion_change", args=[RuleSetVersion.objects.get().pk])))
    assert ", ! error" in page
    assert "0 of 0 nodes" not in page


def test_a_number_that_there_is_not_is_not_found(auditor: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]))
    for number in (7, 2**40):
        assert auditor.get(f"/admin/scheduler/versions/web/{number}/").status_code == 404


def test_it_says_which_of_its_decisions_are_a_shadows(page: str, auditor: Client) -> None:
    text = text_of(auditor.get(page))
    assert "filter, shadow: shop/tried" in text
    assert "filter: shop/none" in text
