"""The form of a rule set: rules as rows, every fault on the row and field that it belongs to, nothing typed lost."""

import html
import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from policies import checking, publishing
from policies.engine import ruleset as engine
from policies.engine.errors import Fault, RuleSetError
from policies.models import Change, Rule, RuleSet, RuleSetVersion
from tests.builders import TEAM_FILTER, make_rule_set
from tests.component.pages import change_url, edit_page, form_data, get, new_row, opened, publish, rows, text_of

SCORE = {"name": "short", "expression": "20 - size(node.metadata.name)", "bounds": [0, 20]}


PAGE = edit_page("web")


@pytest.fixture(autouse=True)
def web(db: None) -> None:
    publish(make_rule_set(filters=[TEAM_FILTER, {"builtin": "PodFitsResources"}], scores=[SCORE]))


def saved() -> engine.RuleSet:
    """Return the rule set as its one open Change makes it."""
    (edit,) = publishing.edits_of(Change.objects.get(state="draft"))
    assert isinstance(edit.value, engine.RuleSet)
    return edit.value


def keys() -> list[str]:
    return [rule.key for rule in saved().spec.filters]


def nothing_saved() -> bool:
    return not Change.objects.filter(state="draft").exists()


def test_adding_a_rule_set_leads_to_its_form(operator: Client) -> None:
    response = operator.post("/admin/policies/ruleset/add/", {"name": "batch", "description": "Nights only"})
    assert response["Location"] == f"{edit_page('batch')}?description=Nights+only"


def test_a_taken_name_is_said_at_the_field(operator: Client) -> None:
    response = operator.post("/admin/policies/ruleset/add/", {"name": "web"})
    assert "already exists" in str(response.context["adminform"].form.errors["name"])


def test_the_page_of_a_new_name_has_one_button_to_go_on(operator: Client) -> None:
    page = operator.get("/admin/policies/ruleset/add/").content.decode()

    assert [name for name in ("_save", "_continue", "_addanother") if f'name="{name}"' in page] == ["_save"]


def test_a_rule_more_takes_few_templates_and_no_query(operator: Client) -> None:
    """A form may have 300 rules. A query for each constraint of each row, which nobody saves, was half the time of a save."""
    few = get(operator, PAGE)
    publish(make_rule_set(filters=[TEAM_FILTER | {"name": f"team-{each}"} for each in range(12)], scores=[SCORE]))
    many = get(operator, PAGE)
    assert (len(many.templates) - len(few.templates)) / 10 < 75

    data = form_data(many) | {"description": "told"}
    with CaptureQueriesContext(connection) as asked:
        operator.post(PAGE, data)
    assert saved().description == "told"
    assert [each["sql"] for each in asked if "_check" in each["sql"]] == []


@pytest.mark.parametrize("name", ["No-Name", "x" * 64, "a b"])
def test_a_name_that_is_none_has_no_form(operator: Client, name: str) -> None:
    assert operator.get(edit_page(name)).status_code == 404


def test_saving_an_untouched_page_changes_no_rule(operator: Client) -> None:
    assert operator.post(PAGE, form_data(get(operator, PAGE))).status_code == 302
    assert nothing_saved()


def test_new_rows_come_after_those_that_are_there(operator: Client) -> None:
    data = form_data(get(operator, PAGE))
    new_row(data, "filters", builtin="MatchNodeSelector")
    assert operator.post(PAGE, data).status_code == 302
    assert keys() == ["team", "PodFitsResources", "MatchNodeSelector"]


def test_dragged_rows_keep_their_new_order(operator: Client) -> None:
    data = form_data(get(operator, PAGE)) | {"filters-0-position": 1, "filters-1-position": 0}
    operator.post(PAGE, data)
    assert keys() == ["PodFitsResources", "team"]


def test_a_new_row_that_was_moved_stands_where_it_was_moved_to(operator: Client) -> None:
    data = form_data(get(operator, PAGE)) | {"filters-0-position": 1, "filters-1-position": 2}
    new_row(data, "filters", builtin="MatchNodeSelector", position="0")
    assert operator.post(PAGE, data).status_code == 302
    assert keys() == ["MatchNodeSelector", "team", "PodFitsResources"]


def test_the_rules_come_before_all_else_but_what_the_rule_set_is_for(operator: Client) -> None:
    shown = get(operator, PAGE).content.decode()
    fields = (
        "id_description",
        "id_filters-0-expression",
        "id_scores-0-expression",
        "id_params",
        "id_tests",
        "id_goes_into",
    )
    places = [shown.index(f'id="{field}"') for field in fields]
    assert places == sorted(places)


def test_the_form_says_nothing_of_decisions_by_a_version_that_it_is_not(operator: Client) -> None:
    assert "This version has no Decisions yet" not in text_of(get(operator, PAGE))


def test_a_deleted_row_is_gone(operator: Client) -> None:
    operator.post(PAGE, form_data(get(operator, PAGE)) | {"filters-0-DELETE": "on"})
    assert keys() == ["PodFitsResources"]


def test_faults_land_on_their_row_and_field_and_keep_what_was_typed(operator: Client) -> None:
    data = form_data(get(operator, PAGE)) | {"filters-1-builtin": "", "filters-1-name": "typed", "scores-0-weight": "7"}
    data["filters-1-expression"] = "pod.metadata.name == 'a' &&\n   nodee.spec.unschedulable"
    response = operator.post(PAGE, data)
    assert response.status_code == 200
    filters = rows(response, "filters").forms
    assert not filters[0].errors
    assert list(filters[1].errors) == ["expression"]
    assert "line 2, column" in str(filters[1].errors["expression"])
    assert "   nodee.spec.unschedulable\n" in str(filters[1].errors["expression"])
    assert filters[1]["name"].value() == "typed"
    assert rows(response, "scores").forms[0]["weight"].value() == "7"
    assert nothing_saved()


def test_rules_that_are_too_costly_only_together_are_refused_with_what_was_typed(operator: Client) -> None:
    filters = [TEAM_FILTER | {"name": f"team-{each}"} for each in range(80)]
    publish(make_rule_set(filters=filters, scores=[{"name": f"s-{each}", "expression": "1.0"} for each in range(80)]))
    data = form_data(get(operator, PAGE))
    typed = "node.metadata.?labels.team.orValue('') == 'web' ? 1.0 : 2.0"
    data |= {f"scores-{each}-expression": typed for each in range(80)}
    response = operator.post(PAGE, data)
    assert response.status_code == 200
    assert "the expressions are too costly together" in text_of(response)
    assert rows(response, "scores").forms[0]["expression"].value() == typed
    assert nothing_saved()


def test_a_caret_stands_under_the_fault(operator: Client) -> None:
    response = operator.post(PAGE, form_data(get(operator, PAGE)) | {"filters-0-expression": "true && nope"})
    source, caret = str(rows(response, "filters").forms[0].errors["expression"]).split("<pre")[1].split("\n")[:2]
    assert source.endswith("true &amp;&amp; nope")
    assert caret.startswith("        ^")


def test_a_fault_behind_a_deleted_row_lands_on_the_right_row(operator: Client) -> None:
    data = form_data(get(operator, PAGE)) | {"filters-0-DELETE": "on"}
    index = new_row(data, "filters", name="late", expression="1 + 1", reason="never")
    response = operator.post(PAGE, data)
    errors = [form.errors for form in rows(response, "filters").forms]
    assert [bool(each) for each in errors] == [False, False, True]
    assert index == 2
    assert "expression" in errors[index]


@pytest.mark.parametrize(
    ("prefix", "fields", "field"),
    [
        pytest.param(
            "filters", {"expression": "true", "name": "r", "reason": "50% full"}, "reason", id="a percent sign"
        ),
        pytest.param("filters", {"expression": "true", "reason": "no"}, "name", id="an expression without a name"),
        pytest.param("scores", {"expression": "1", "name": "s", "bounds_low": "9"}, "bounds_high", id="one bound"),
        pytest.param(
            "scores", {"expression": "1", "name": "s", "bounds_low": "9", "bounds_high": "1"}, "bounds_low", id="bounds"
        ),
        pytest.param("filters", {"builtin": "PodFitsResources", "name": "team"}, "name", id="a name used twice"),
        pytest.param(
            "filters", {"builtin": "PodFitsResources", "name": "x", "arguments": "a: [1"}, "arguments", id="YAML"
        ),
    ],
)
def test_each_fault_has_its_field(operator: Client, prefix: str, fields: dict[str, str], field: str) -> None:
    data = form_data(get(operator, PAGE))
    index = new_row(data, prefix, **fields)
    response = operator.post(PAGE, data)
    assert list(rows(response, prefix).forms[index].errors) == [field]


def test_a_fault_inside_arguments_says_where_it_stands(operator: Client) -> None:
    data = form_data(get(operator, PAGE))
    index = new_row(data, "filters", builtin="NodeAffinity", name="x", arguments="addedAffinity: {required: {}}")
    errors = rows(operator.post(PAGE, data), "filters").forms[index].errors
    assert errors["arguments"][0].startswith("addedAffinity.required: unknown member; known are ")


def test_a_row_with_neither_says_so_on_the_row(operator: Client) -> None:
    data = form_data(get(operator, PAGE))
    new_row(data, "filters", name="empty")
    response = operator.post(PAGE, data)
    assert list(rows(response, "filters").forms[2].errors) == ["builtin"]
    assert "needs a builtin or an expression" in text_of(response)


def test_a_corrected_page_saves_after_a_fault(operator: Client) -> None:
    data = form_data(get(operator, PAGE))
    faulty = operator.post(PAGE, data | {"filters-0-reason": "50%"})
    assert operator.post(PAGE, form_data(faulty) | {"filters-0-reason": "half"}).status_code == 302
    assert saved().spec.filters[0].reason == "half"


def test_faulty_tests_are_said_at_the_tests(operator: Client) -> None:
    response = operator.post(PAGE, form_data(get(operator, PAGE)) | {"tests": "- name: nothing expected"})
    assert "expect" in str(response.context["adminform"].form.errors["tests"])


def test_params_are_written_as_yaml(operator: Client) -> None:
    operator.post(PAGE, form_data(get(operator, PAGE)) | {"params": "zone: a\nlimit: 3"})
    assert saved().spec.params == {"zone": "a", "limit": 3}


def test_a_save_by_others_is_not_overwritten_unseen(operator: Client) -> None:
    data = form_data(get(operator, PAGE))
    publish(make_rule_set(), by="alice")
    index = new_row(data, "filters", name="mine", expression="true", reason="mine")
    response = operator.post(PAGE, data)
    assert "Revision 2 by alice made it live" in text_of(response)
    assert "filter removed: mine" in text_of(response)
    assert rows(response, "filters").forms[index]["name"].value() == "mine"
    assert nothing_saved()
    shown = [form.prefix for inline in response.context["inline_admin_formsets"] for form in _shown(inline)]
    assert f"filters-{index}" in shown
    assert operator.post(PAGE, form_data(response)).status_code == 302
    assert keys() == ["team", "PodFitsResources", "mine"]


def _shown(inline: object) -> list[object]:
    return [row.form for row in inline]  # type: ignore[attr-defined]


def test_a_frozen_version_is_a_page_to_read(operator: Client) -> None:
    version = RuleSetVersion.objects.get()
    text = text_of(get(operator, change_url("rulesetversion", version.pk)))
    assert "refuse nodes as “node belongs to another team”" in text
    assert "Save" not in text


def test_an_archived_rule_set_can_be_edited_though_its_version_would_be_refused_now(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version of Berth may limit what an earlier one let go live."""

    def refuse(_: object) -> engine.RuleSet:
        raise RuleSetError([Fault("spec.filters[0].expression", "is too costly")])

    publishing.archive(rule_set=RuleSet.objects.get(name="web"), by="ops", reason="unused")
    monkeypatch.setattr(checking, "read_rule_set", refuse)
    version = RuleSetVersion.objects.get(rule_set__name="web")
    for url in (
        reverse("admin:policies_rulesetversion_change", args=["edit_3Aweb"]),
        reverse("rule_set_text", args=["web"]),
        reverse("admin:policies_rulesetversion_change", args=[version.pk]),
        reverse("compare", query={"kind": "RuleSet", "name": "web", "before": 0, "after": 1}),
    ):
        assert "node belongs to another team" in get(operator, url).content.decode(), url


def test_the_change_shows_what_it_does_before_it_is_published(operator: Client) -> None:
    data = form_data(get(operator, PAGE))
    new_row(data, "filters", builtin="MatchNodeSelector")
    page = operator.post(PAGE, data, follow=True)
    assert "filter added: MatchNodeSelector" in text_of(page)
    assert b'value="publish"' in page.content
    assert publishing.current_revision().number == 1


def test_a_name_that_can_be_taken_for_a_live_one_is_flagged_before_publishing(operator: Client) -> None:
    for name in ("team-l", "team-1"):
        change = opened(make_rule_set(name, filters=[TEAM_FILTER]))
        page = text_of(get(operator, change_url("change", change.pk)))
        assert ("look twice at rule set “team-1”: it can be taken for “team-l”" in page) == (name == "team-1")
        publish(make_rule_set(name, filters=[TEAM_FILTER]))


def test_an_empty_rule_set_is_saved_but_not_published(operator: Client) -> None:
    data = form_data(get(operator, edit_page("empty"))) | {
        "description": "to come",
        "policies_rulesetversion_save_and_publish": "",
    }
    said = text_of(operator.post(edit_page("empty"), data, follow=True))
    assert "but not published: empty: " in said
    assert "has no rule" in said


@pytest.mark.parametrize("number", [200_000, 20_000_000, 10**9])
def test_rows_that_the_browser_only_says_there_were_take_nothing(
    operator: Client, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page comes again, for its params are no YAML: then each row that was there is shown."""
    made: list[int] = []

    def make(*args: object, **values: object) -> Rule:
        made.append(1)
        assert len(made) < 1_000, "rows without end"
        return Rule(*args, **values)

    data = form_data(get(operator, PAGE)) | {"filters-INITIAL_FORMS": number, "scores-INITIAL_FORMS": number}
    monkeypatch.setattr("policies.admin.rule_forms.Rule", make)
    answer = operator.post(PAGE, data | {"params": "["})
    assert answer.status_code == 200
    assert "params" in answer.context["adminform"].form.errors


@pytest.mark.parametrize("number", ["301", "20000000", "9" * 400, "9" * 5_000])
def test_more_rows_than_a_rule_set_may_have_are_refused_in_words(
    operator: Client, number: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # In place of 100 and 300, of which each takes a test 30 ms.
    monkeypatch.setattr("policies.admin.rule_forms._RuleInline.max_num", 10)
    monkeypatch.setattr("policies.admin.rule_forms._MOST_ROWS", 30)
    data = form_data(get(operator, PAGE)) | {"filters-TOTAL_FORMS": number, "filters-INITIAL_FORMS": number}
    answer = operator.post(PAGE, data)
    assert answer.status_code == 200
    assert len(rows(answer, "filters").forms) <= 30
    assert nothing_saved()


def faulty(operator: Client) -> dict[str, Any]:
    """A form with three faults: in an expression, in a reason, and in the params."""
    data = form_data(get(operator, PAGE)) | {"filters-0-expression": "true &&\nnope", "params": "a: [1"}
    new_row(data, "filters", name="full", expression="true", reason="50% full")
    return data


def test_all_faults_stand_above_the_form_each_with_a_link_to_its_field(operator: Client) -> None:
    response = operator.post(PAGE, faulty(operator))
    found = [(fault.field, fault.where) for fault in response.context["editor"]["faults"]]
    assert found == [
        ("id_params", "params"),
        ("id_filters-0-expression", "filter 1 (team), expression"),
        ("id_filters-2-reason", "filter 3 (full), reason"),
    ]
    assert 'href="#id_filters-0-expression"' in response.content.decode()
    assert "3 to fix; nothing is saved yet" in text_of(response)


def test_a_form_is_checked_while_one_types_and_nothing_is_saved(operator: Client, auditor: Client) -> None:
    check = PAGE.replace("/change/", "/check/")
    faults = operator.post(check, faulty(operator)).json()["faults"]
    assert [(each["field"], each["line"], each["column"]) for each in faults] == [
        ("id_params", 0, 0),
        ("id_filters-0-expression", 2, 1),
        ("id_filters-2-reason", 0, 0),
    ]
    assert faults[1]["message"].startswith("line 2, column 1: undeclared reference to 'nope'")
    assert operator.post(check, form_data(get(operator, PAGE))).json() == {"faults": []}
    assert nothing_saved()
    assert operator.get(check).status_code == 404
    assert auditor.post(check, {}).status_code == 403


def test_tests_run_on_each_save_and_their_count_heads_them(operator: Client) -> None:
    pod, node = {"metadata": {"name": "p", "labels": {}}, "spec": {}}, {"metadata": {"name": "n1", "labels": {}}}
    cases = [
        {"name": name, "pod": pod, "nodes": [node], "expect": {"feasible": nodes}}
        for name, nodes in (("one", ["n1"]), ("none", []))
    ]
    data = form_data(get(operator, PAGE)) | {"tests": json.dumps(cases), "filters-1-DELETE": "on", "_continue": "1"}
    response = operator.post(PAGE, data, follow=True)
    said = text_of(response)
    assert "Tests: 1 passed, 1 failed. none: should pass: none; passes: n1." in said
    assert response.context["editor"]["results"].heading == "Tests: 1 passed, 1 failed"


def test_the_page_of_a_rule_set_leads_to_its_drafts_text_tests_preview_and_decisions(
    operator: Client, auditor: Client
) -> None:
    publish(make_rule_set())
    page = change_url("ruleset", RuleSet.objects.get().pk)

    def ways(client: Client) -> dict[str, str]:
        nav = get(client, page).content.decode().split('aria-label="Views of this rule set"')[1].split("</nav>")[0]
        return {words: html.unescape(url) for url, words in re.findall(r'href="([^"]+)">([^<]+)<', nav)}

    assert list(ways(operator)) == ["Draft", "Text", "Tests", "Preview on a Pod", "Decisions"]
    change = opened(make_rule_set(filters=[TEAM_FILTER]))
    found = ways(operator)
    assert list(found) == [f"Draft in {change}", "Text", "Tests", "Preview on a Pod", "Decisions"]
    assert found[f"Draft in {change}"] == edit_page("web", change)
    assert found["Text"].endswith(f"/web/?change={change.pk}")
    assert ways(auditor)[f"Draft in {change}"] == change_url("change", change.pk)
    for client in (operator, auditor):
        for url in ways(client).values():
            get(client, url.partition("#")[0])


def test_who_may_not_edit_what_is_not_live_reads_who_may(operator: Client, auditor: Client) -> None:
    opened(make_rule_set("batch"))
    page = change_url("ruleset", RuleSet.objects.get(name="batch").pk)
    assert "It isn't live. Edit it." in text_of(get(operator, page))
    assert "It isn't live. An Operator can edit it." in text_of(get(auditor, page))


def test_the_form_says_who_else_is_editing_the_rule_set_and_in_which_change(operator: Client) -> None:
    assert "in open Changes" not in text_of(get(operator, PAGE))
    change = opened(make_rule_set("web", filters=[{"builtin": "PodFitsHost"}]), by="alice", title="words of web")
    for page in (PAGE, f"{PAGE}?change={change.pk}"):
        assert f"web edited by alice in {change}: words of web" in text_of(get(operator, page))
