"""The draft's page: rules as rows, every fault on the row and field that it belongs to, nothing typed lost."""

from typing import Any

import pytest
from django.test import Client

from policies import publishing
from policies.models import Rule, RuleSetVersion
from tests.builders import TEAM_FILTER, make_rule_set
from tests.component.pages import change_url, draft_of, form_data, get, new_row, publish, rows, text_of

SCORE = {"name": "short", "expression": "20 - size(node.metadata.name)", "bounds": [0, 20]}


@pytest.fixture
def draft(operator: Client) -> RuleSetVersion:
    version = publishing.create_rule_set(name="web", description="", by="ops")
    content = make_rule_set(filters=[TEAM_FILTER, {"builtin": "PodFitsResources"}], scores=[SCORE])
    return publishing.save_draft(version=version, rule_set=content, by="ops")


def _keys(version: RuleSetVersion, kind: str) -> list[str]:
    return [str(rule) for rule in version.rules.filter(kind=kind)]


def test_adding_a_rule_set_lands_on_its_draft(operator: Client) -> None:
    response = operator.post("/admin/policies/ruleset/add/", {"name": "batch", "description": "Nights only"})
    assert response.status_code == 302
    assert response["Location"] == change_url("rulesetversion", draft_of("batch").pk)
    assert draft_of("batch").author == "operator"


def test_a_taken_name_is_said_at_the_field(operator: Client, draft: RuleSetVersion) -> None:
    response = operator.post("/admin/policies/ruleset/add/", {"name": "web"})
    assert "already exists" in str(response.context["adminform"].form.errors["name"])


def test_a_form_that_loses_a_race_is_checked_anew(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    create = publishing.create_rule_set

    def lose(**_: Any) -> RuleSetVersion:
        monkeypatch.setattr(publishing, "create_rule_set", create)
        raise publishing.PublishingError(["A rule set called batch exists already."])

    monkeypatch.setattr(publishing, "create_rule_set", lose)
    response = operator.post("/admin/policies/ruleset/add/", {"name": "batch", "description": "Nights only"})
    # The one that was faster has gone again meanwhile; a row that stayed would be said at its field.
    assert response["Location"] == change_url("rulesetversion", draft_of("batch").pk)


def test_saving_an_untouched_page_changes_no_rule(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    assert operator.post(page, form_data(get(operator, page))).status_code == 302
    assert draft_of("web").digest == draft.digest


def test_new_rows_come_after_those_that_are_there(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page))
    new_row(data, "filters", builtin="MatchNodeSelector")
    assert operator.post(page, data).status_code == 302
    assert _keys(draft, "filter") == ["team", "PodFitsResources", "MatchNodeSelector"]


def test_dragged_rows_keep_their_new_order(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page)) | {"filters-0-position": 1, "filters-1-position": 0}
    operator.post(page, data)
    assert _keys(draft, "filter") == ["PodFitsResources", "team"]


def test_a_deleted_row_is_gone(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    operator.post(page, form_data(get(operator, page)) | {"filters-0-DELETE": "on"})
    assert _keys(draft, "filter") == ["PodFitsResources"]


def test_faults_land_on_their_row_and_field_and_keep_what_was_typed(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page)) | {"filters-1-builtin": "", "filters-1-name": "typed", "scores-0-weight": "7"}
    data["filters-1-expression"] = "pod.metadata.name == 'a' &&\n   nodee.spec.unschedulable"
    response = operator.post(page, data)
    assert response.status_code == 200
    filters = rows(response, "filters").forms
    assert not filters[0].errors
    assert list(filters[1].errors) == ["expression"]
    assert "line 2, column" in str(filters[1].errors["expression"])
    assert "   nodee.spec.unschedulable\n" in str(filters[1].errors["expression"])
    assert filters[1]["name"].value() == "typed"
    assert rows(response, "scores").forms[0]["weight"].value() == "7"
    assert _keys(draft, "filter") == ["team", "PodFitsResources"]


def test_a_caret_stands_under_the_fault(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    response = operator.post(page, form_data(get(operator, page)) | {"filters-0-expression": "true && nope"})
    source, caret = str(rows(response, "filters").forms[0].errors["expression"]).split("<pre")[1].split("\n")[:2]
    assert source.endswith("true &amp;&amp; nope")
    assert caret.startswith("        ^")


def test_a_fault_behind_a_deleted_row_lands_on_the_right_row(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page)) | {"filters-0-DELETE": "on"}
    index = new_row(data, "filters", name="late", expression="1 + 1", reason="never")
    response = operator.post(page, data)
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
def test_each_fault_has_its_field(
    operator: Client, draft: RuleSetVersion, prefix: str, fields: dict[str, str], field: str
) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page))
    index = new_row(data, prefix, **fields)
    response = operator.post(page, data)
    assert list(rows(response, prefix).forms[index].errors) == [field]


def test_a_row_with_neither_says_so_on_the_row(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page))
    new_row(data, "filters", name="empty")
    response = operator.post(page, data)
    assert list(rows(response, "filters").forms[2].errors) == ["builtin"]
    assert "needs a builtin or an expression" in text_of(response)


def test_a_corrected_page_saves_after_a_fault(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page))
    faulty = operator.post(page, data | {"filters-0-reason": "50%"})
    assert operator.post(page, form_data(faulty) | {"filters-0-reason": "half"}).status_code == 302
    assert draft.rules.get(name="team").reason == "half"


def test_faulty_tests_are_said_at_the_tests(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    response = operator.post(page, form_data(get(operator, page)) | {"tests": "- name: nothing expected"})
    assert "expect" in str(response.context["adminform"].form.errors["tests"])


def test_params_are_written_as_yaml(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    operator.post(page, form_data(get(operator, page)) | {"params": "zone: a\nlimit: 3"})
    assert draft_of("web").params == {"zone": "a", "limit": 3}


def test_a_save_by_others_is_not_overwritten_unseen(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page))
    publishing.save_draft(version=draft, rule_set=make_rule_set(), by="alice")
    index = new_row(data, "filters", name="mine", expression="true", reason="mine")
    response = operator.post(page, data)
    assert "alice saved this draft" in text_of(response)
    assert rows(response, "filters").forms[index]["name"].value() == "mine"
    assert _keys(draft, "filter") == ["PodFitsResources"]
    shown = [form.prefix for inline in response.context["inline_admin_formsets"] for form in _shown(inline)]
    assert f"filters-{index}" in shown
    assert operator.post(page, form_data(response)).status_code == 302
    assert _keys(draft, "filter") == ["team", "PodFitsResources", "mine"]


def _shown(inline: object) -> list[object]:
    return [row.form for row in inline]  # type: ignore[attr-defined]


def test_a_draft_published_meanwhile_cannot_be_saved(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page))
    publishing.publish(version=draft, by="alice", reason="now")
    assert operator.post(page, data).status_code == 403
    assert Rule.objects.filter(version=draft).count() == 3


def test_a_frozen_version_is_a_page_to_read(operator: Client) -> None:
    publish(make_rule_set(filters=[TEAM_FILTER]))
    version = RuleSetVersion.objects.get()
    text = text_of(get(operator, change_url("rulesetversion", version.pk)))
    assert "refuse nodes as “node belongs to another team”" in text
    assert "Save" not in text


def test_publishing_shows_what_changes_and_makes_the_next_revision(operator: Client, draft: RuleSetVersion) -> None:
    page = f"/admin/policies/rulesetversion/{draft.pk}/publish/"
    response = get(operator, page)
    text = text_of(response)
    assert "Makes Revision 1" in text
    assert "filter added: team" in text
    digest = response.context["form"]["digest"].value()
    done = operator.post(page, {"reason": "ticket 7", "digest": digest}, follow=True)
    assert "Revision 1 was made" in text_of(done)
    draft.refresh_from_db()
    assert (draft.state, draft.published_by) == ("published", "operator")


def test_a_name_that_can_be_taken_for_a_live_one_is_flagged_before_publishing(operator: Client) -> None:
    for name in ("team-l", "team-1"):
        version = publishing.create_rule_set(name=name, description="", by="ops")
        draft = publishing.save_draft(version=version, rule_set=make_rule_set(name, filters=[TEAM_FILTER]), by="ops")
        page = text_of(get(operator, f"/admin/policies/rulesetversion/{draft.pk}/publish/"))
        assert ("look twice at rule set “team-1”: it can be taken for “team-l”" in page) == (name == "team-1")
        publish(make_rule_set(name, filters=[TEAM_FILTER]))


def test_publishing_needs_a_reason(operator: Client, draft: RuleSetVersion) -> None:
    response = operator.post(f"/admin/policies/rulesetversion/{draft.pk}/publish/", {"reason": " "})
    assert "This field is required" in text_of(response)
    assert publishing.current_revision().number == 0


def test_what_was_not_looked_at_is_not_published(operator: Client, draft: RuleSetVersion) -> None:
    page = f"/admin/policies/rulesetversion/{draft.pk}/publish/"
    digest = get(operator, page).context["form"]["digest"].value()
    publishing.save_draft(version=draft, rule_set=make_rule_set(), by="alice")
    response = operator.post(page, {"reason": "now", "digest": digest})
    assert "changed since you looked at it" in text_of(response)
    assert publishing.current_revision().number == 0


def test_what_nobody_looked_at_is_not_published(operator: Client, draft: RuleSetVersion) -> None:
    response = operator.post(f"/admin/policies/rulesetversion/{draft.pk}/publish/", {"reason": "now"})
    assert "changed since you looked at it" in text_of(response)
    assert publishing.current_revision().number == 0


def test_an_empty_draft_has_no_button_to_publish(operator: Client) -> None:
    version = publishing.create_rule_set(name="empty", description="", by="ops")
    response = get(operator, f"/admin/policies/rulesetversion/{version.pk}/publish/")
    assert "has no rule" in text_of(response)
    assert b"berth-button-primary" not in response.content


def test_save_and_publish_goes_on_to_the_publishing_page(operator: Client, draft: RuleSetVersion) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page)) | {"policies_rulesetversion_save_and_publish": ""}
    assert operator.post(page, data)["Location"] == f"/admin/policies/rulesetversion/{draft.pk}/publish/"


@pytest.mark.parametrize("number", [200_000, 20_000_000, 10**9])
def test_rows_that_the_browser_only_says_there_were_take_nothing(
    operator: Client, draft: RuleSetVersion, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page comes again, for its params are no YAML: then each row that was there is shown."""
    made: list[int] = []

    def make(*args: object, **values: object) -> Rule:
        made.append(1)
        assert len(made) < 1_000, "rows without end"
        return Rule(*args, **values)

    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page)) | {"filters-INITIAL_FORMS": number, "scores-INITIAL_FORMS": number}
    monkeypatch.setattr("policies.admin.rule_forms.Rule", make)
    answer = operator.post(page, data | {"params": "["})
    assert answer.status_code == 200
    assert "params" in answer.context["adminform"].form.errors


@pytest.mark.parametrize("number", ["301", "20000000", "9" * 400, "9" * 5_000])
def test_more_rows_than_a_draft_may_have_are_refused_in_words(
    operator: Client, draft: RuleSetVersion, number: str
) -> None:
    page = change_url("rulesetversion", draft.pk)
    data = form_data(get(operator, page)) | {"filters-TOTAL_FORMS": number, "filters-INITIAL_FORMS": number}
    answer = operator.post(page, data)
    assert answer.status_code == 200
    assert len(rows(answer, "filters").forms) <= 300
    assert draft_of("web").digest == draft.digest
