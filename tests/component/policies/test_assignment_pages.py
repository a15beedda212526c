"""The list of Assignments, with who stands in whose way; the form, whose menu of rule sets asks the database."""

import pytest
from django.test import Client

from policies import publishing
from policies.engine import ruleset as engine
from policies.models import Assignment, Change, RuleSet
from tests.builders import TEAM_FILTER, make_assignment, make_pause, make_rule_set
from tests.component.pages import change_url, form_data, get, opened, publish_all, text_of

pytestmark = pytest.mark.django_db

LIST, ADD = "/admin/policies/assignment/", "/admin/policies/assignment/add/"
MENU = "/admin/autocomplete/?app_label=policies&model_name=assignment&field_name=rule_set&term="


def test_the_list_says_who_is_never_reached(auditor: Client) -> None:
    rule_sets = [make_rule_set(name, filters=[TEAM_FILTER]) for name in ("web", "data")]
    wide = make_assignment("wide", "web", order=10, match={"namespaces": ["shop"]})
    within = {"namespaces": ["shop"], "podSelector": {"matchLabels": {"app": "x"}}}
    narrow = make_assignment("narrow", "data", order=20, match=within)
    publish_all(*rule_sets, wide, narrow)
    text = text_of(get(auditor, LIST))
    assert "! Assignment narrow is never reached: wide before it takes every Pod that it could take." in text
    assert text.count("is never reached") == 1


def test_what_a_paused_assignment_hides_is_said_to_be_hidden_once_it_comes_back(auditor: Client) -> None:
    rule_set = make_rule_set("web", filters=[TEAM_FILTER])
    publish_all(rule_set, make_assignment("all", "web", order=1), make_assignment("late", "web", order=9))
    publish_all(make_pause("moved", "Assignment/all"))
    assert "takes every Pod that it could take, once Assignment all isn" in text_of(get(auditor, LIST))


def test_of_many_conflicts_the_list_says_the_first_ones(auditor: Client) -> None:
    rule_sets = [make_rule_set(name, filters=[TEAM_FILTER]) for name in ("web", "data")]
    ahead = [make_assignment(f"a{n}", "web", order=n, match={"namespaces": [f"n{n}", "shop"]}) for n in range(1, 6)]
    both = {"namespaces": ["shop", "other"], "schedulerNames": ["default-scheduler"]}
    publish_all(*rule_sets, *ahead, make_assignment("last", "data", order=9, match=both))
    text = text_of(get(auditor, LIST))
    assert text.count("last doesn't get the Pods that") == 3
    assert "…and 2 more." in text


def test_the_menu_of_rule_sets_is_asked_of_the_database_by_name_and_page(operator: Client) -> None:
    names = [f"set-{number:02}" for number in range(25)]
    publish_all(*(make_rule_set(name, filters=[TEAM_FILTER]) for name in names))
    publishing.archive(rule_set=RuleSet.objects.get(name="set-24"), by="ops", reason="unused")
    coming = publishing.Edit.of(make_rule_set("coming", filters=[TEAM_FILTER]))
    publishing.open_change(title="t", edits=[coming], by="ops")
    assert b"set-03" not in get(operator, ADD).content
    first, found = get(operator, MENU).json(), get(operator, f"{MENU}ET-2").json()
    assert (len(first["results"]), first["pagination"]["more"]) == (20, True)
    assert first["results"][0]["text"] == "coming"
    assert [each["text"] for each in found["results"]] == ["set-20", "set-21", "set-22", "set-23"]


def test_all_that_is_wrong_with_an_assignment_is_said_at_once(operator: Client) -> None:
    data = form_data(get(operator, ADD)) | {"name": "All", "order": "x", "percent": "1000", "namespaces": "Shop"}
    errors = operator.post(ADD, data).context["adminform"].form.errors
    assert sorted(errors) == ["name", "namespaces", "order", "percent", "rule_set"]


def test_who_may_not_pause_is_not_led_to_a_page_that_refuses(operator: Client, auditor: Client) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]), make_assignment("all", "web"))
    for url in (
        f"/admin/policies/ruleset/{RuleSet.objects.get().pk}/change/",
        f"{LIST}{Assignment.objects.get().pk}/change/",
    ):
        assert "Pause…" in text_of(get(operator, url))
        text = text_of(get(auditor, url))
        assert "Pause…" not in text
        assert "Only Operators can pause and resume it." in text


def test_who_may_not_change_it_reads_a_sentence_and_has_no_button(approver: Client) -> None:
    publish_all(make_rule_set("web"), make_assignment("shop", "web", match={"namespaces": ["shop"]}))
    page = get(approver, change_url("assignment", Assignment.objects.get().pk))
    text = text_of(page)
    assert "gets web" in text
    assert "namespace shop" in text
    assert "save_and_publish" not in page.content.decode()
    assert ' style="' not in page.content.decode()


def test_a_form_of_what_is_not_live_links_to_no_page_that_there_is_not(operator: Client) -> None:
    change = opened(make_rule_set("new"))
    page = get(operator, f"/admin/policies/rulesetversion/edit:new/change/?change={change.pk}")
    assert "/None/" not in page.content.decode()


def test_a_selector_that_asks_for_an_empty_value_stays_as_it_is_when_something_else_is_edited(operator: Client) -> None:
    asked = [
        {"key": "team", "operator": "In", "values": ["", "web"]},
        {"key": "tier", "operator": "NotIn", "values": [""]},
    ]
    match = {"podSelector": {"matchExpressions": asked}}
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]), make_assignment("all", "web", match=match))
    page = change_url("assignment", Assignment.objects.get().pk)
    typed = form_data(get(operator, page))
    assert typed["pod_selector"] == "team in (,web),tier notin ()"
    operator.post(page, typed | {"description": "edited"}, follow=True)
    (edit,) = publishing.edits_of(Change.objects.latest("pk"))
    assert isinstance(edit.value, engine.Assignment)
    assert edit.value.description == "edited"
    assert edit.value.match.pod_selector.match_expressions == asked
