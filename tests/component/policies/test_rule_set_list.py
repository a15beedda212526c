"""The list of rule sets: a line each, with what each is asked about, what gives it, and who answers for it."""

import re
from datetime import timedelta

import msgspec
import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.models import RuleSet
from scheduler.decisions import today
from scheduler.decisions.today import asked_since, shares_since
from tests.builders import TEAM_FILTER, make_assignment, make_pause, make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import get, opened, publish_all, text_of

pytestmark = pytest.mark.django_db

LIST = "/admin/policies/ruleset/"


def test_a_line_says_what_is_live_who_is_asked_and_who_answers(operator: Client) -> None:
    publish_all(make_rule_set(filters=[TEAM_FILTER], scores=[{"builtin": "LeastRequestedPriority"}]), by="alice")
    publish_all(make_assignment(), make_assignment("also", mode="shadow"))
    opened(make_rule_set("new"), by="bob")
    for pod, feasible in (("a", 0), ("a", 0), ("b", 2)):
        make_decision(pod_uid=pod, feasible=feasible)
    text = text_of(get(operator, LIST))
    assert "live, version 1" in text
    assert "1 filter, 1 score" in text
    assert "2, 1 refused" in text
    assert "alice" in text
    assert "not live" in text
    assert get(operator, "/admin/policies/assignment/?rule_set__name=web").context["cl"].result_count == 2


def test_what_is_paused_is_not_said_to_be_live_or_enforced(operator: Client) -> None:
    publish_all(make_rule_set(filters=[TEAM_FILTER]), make_rule_set("other", filters=[TEAM_FILTER]))
    publish_all(make_assignment(), make_assignment("tried", mode="canary", percent=5), make_assignment("shop", "other"))
    past = (timezone.now() - timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    pauses = (
        make_pause(),
        make_pause("rule", "RuleSet/other/team"),
        make_pause("tried", "Assignment/tried"),
        make_pause("ended", "Assignment/shop", until=past),
    )
    edits = [publishing.Edit.of(each) for each in pauses]
    change = publishing.open_change(title="paused", edits=edits, by="ops", reason="storm")
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    rows = get(operator, LIST).content.decode().partition('id="result_list"')[2]
    assert re.findall(r"(?:live|paused), version 1", rows) == ["live, version 1", "paused, version 1"]
    modes = get(operator, "/admin/policies/assignment/").content.decode().partition('id="result_list"')[2]
    assert re.findall(r"(enforce|canary 5 %)(, paused)?\s*<", modes) == [
        ("enforce", ", paused"),
        ("enforce", ""),
        ("canary 5 %", ", paused"),
    ]
    publish_all(make_pause("all", "everything"))
    rows = get(operator, LIST).content.decode().partition('id="result_list"')[2]
    assert re.findall(r"(?:live|paused), version 1", rows) == ["paused, version 1"] * 2
    modes = get(operator, "/admin/policies/assignment/").content.decode().partition('id="result_list"')[2]
    assert len(re.findall(r"(?:enforce|canary 5 %), paused\s*<", modes)) == 3


def test_a_long_description_is_cut_in_the_list(operator: Client) -> None:
    publish_all(msgspec.structs.replace(make_rule_set(), description="night jobs " * 50_000))
    assert len(get(operator, LIST).content) < 200_000


def test_a_line_is_no_longer_for_a_long_description_and_names_the_open_change(operator: Client) -> None:
    words = "Nodes of the team first, then those that nobody has taken for the night, then the rest of the pool"
    publish_all(msgspec.structs.replace(make_rule_set(), description=words))
    change = opened(msgspec.structs.replace(make_rule_set(), description=f"{words}, in that order"))
    shown = get(operator, LIST).content.decode().split('id="result_list"')[1]
    assert f'class="berth-one-line" title="{words}"' in shown
    assert "open in <a" in shown
    assert f"/change/{change.pk}/" in shown


def test_the_number_of_todays_pods_leads_to_their_decisions(operator: Client) -> None:
    publish_all(make_rule_set())
    make_decision(pod_name="now")
    make_decision(pod_name="before", at=timezone.now() - timedelta(days=2))
    (link,) = re.findall(
        r'href="([^"]*/decision/[^"]*rule_set=[^"]*)"',
        get(operator, LIST).content.decode().split('id="result_list"')[1],
    )
    assert [each["row"].pod_name for each in get(operator, link.replace("&amp;", "&")).context["rows"]] == ["now"]


def test_the_owner_is_the_group_that_has_to_approve(operator: Client) -> None:
    publish_all(make_rule_set())
    Group.objects.create(name="storage people")
    publishing.set_review(rule_set="web", approvals=1, group="storage people", by="root")
    assert "storage people" in text_of(get(operator, LIST))


def test_it_is_found_by_what_its_live_rules_say(operator: Client) -> None:
    publish_all(make_rule_set(filters=[TEAM_FILTER]), make_rule_set("other"))
    publish_all(make_rule_set("other", filters=[{"builtin": "PodFitsHost"}]))
    found = {
        word: [row.name for row in get(operator, f"{LIST}?q={word}").context["cl"].result_list]
        for word in ("team", "PodFitsHost", "PodFitsResources")
    }
    assert found == {"team": ["web"], "PodFitsHost": ["other"], "PodFitsResources": []}


def test_it_is_narrowed_by_state_owner_and_built_in(operator: Client) -> None:
    publish_all(make_rule_set(), make_rule_set("stores", filters=[{"builtin": "PodFitsHost"}]), by="operator")
    publish_all(make_rule_set("old", filters=[{"builtin": "PodFitsHost"}]), by="alice")
    publish_all(make_rule_set("old", filters=[{"builtin": "MatchNodeSelector"}]), by="alice")
    opened(make_rule_set("new"), make_rule_set("old", filters=[{"builtin": "NoDiskConflict"}]))
    Group.objects.create(name="storage people")
    publishing.set_review(rule_set="stores", approvals=1, group="storage people", by="root")

    def listed(query: str) -> set[str]:
        return {row.name for row in get(operator, f"{LIST}?{query}").context["cl"].result_list}

    assert listed("state=live") == {"web", "stores", "old"}
    assert listed("state=draft") == {"new", "old"}
    assert listed("state=new") == {"new"}
    assert listed("builtin=PodFitsHost") == {"stores"}
    assert listed("builtin=NoDiskConflict") == set()
    assert listed("owner=mine") == {"web"}
    assert listed("owner=group:storage people") == {"stores"}
    assert listed("owner=group:nobody") == set()
    assert listed("owner=mine&state=draft") == set()


def test_the_page_says_behind_each_published_rule_how_often_it_refused(operator: Client) -> None:
    publish_all(make_rule_set(filters=[TEAM_FILTER, {"builtin": "PodFitsHost"}]))
    name = TEAM_FILTER["name"]
    make_decision(refused_by=f"\n{name}\n")
    make_decision(refused_by=f"\n{name}\n", pod_uid="b")
    page = get(operator, f"/admin/policies/ruleset/{RuleSet.objects.get().pk}/change/")
    lines = re.findall(r"<li>(.*?)</li>", page.content.decode())
    assert [
        line.count("; refused nodes in 2 of 2 Decisions in 24 h") for line in lines if name in line or "Host" in line
    ] == [1, 0]


def test_decisions_of_before_shadows_and_faults_count_for_nothing() -> None:
    now = timezone.now()
    make_decision(pod_uid="old", at=now - timedelta(days=2), feasible=0)
    make_decision(pod_uid="shadow", mode="shadow", feasible=0)
    make_decision(pod_uid="fault", error="no Snapshot", feasible=0)
    assert asked_since(["web", "none"], now - timedelta(days=1)) == {"web": (1, 0, False), "none": (0, 0, False)}
    assert asked_since([], now) == {}


def test_an_assignment_has_its_share_of_the_pods_asked_about_today(operator: Client) -> None:
    publish_all(make_rule_set())
    publish_all(make_assignment("most"), make_assignment("some", order=200), make_assignment("idle", order=300))
    now = timezone.now()
    for pod in ("a", "a", "b", "c"):
        make_decision(assignment="most", pod_uid=pod, verb="filter")
    make_decision(assignment="some", pod_uid="d")
    make_decision(assignment="", pod_uid="e")
    make_decision(assignment="some", pod_uid="f", mode="shadow")
    make_decision(assignment="some", pod_uid="g", at=now - timedelta(days=2))
    shares = shares_since(now - timedelta(hours=24))
    assert (shares.of("most"), shares.of("some"), shares.of("idle"), shares.all) == (60, 20, 0, 5)
    rows = get(operator, "/admin/policies/assignment/").content.decode().split('id="result_list"')[1]
    assert re.findall(r"field-share[^>]*>\s*([^<]*?)\s*<", rows) == ["60 %", "20 %", "none"]


def test_a_share_of_a_part_of_the_day_says_so(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(today, "MOST_SHARED", 2)
    publish_all(make_rule_set())
    publish_all(make_assignment("most"))
    for pod in ("a", "b", "c"):
        make_decision(assignment="most", pod_uid=pod)
    rows = get(operator, "/admin/policies/assignment/").content.decode().split('id="result_list"')[1]
    assert re.findall(r"field-share[^>]*>\s*([^<]*?)\s*<", rows) == ["100 % of the newest"]


def test_nothing_asked_has_no_shares() -> None:
    shares = shares_since(timezone.now())
    assert (shares.of("web"), shares.all) == (0, 0)
