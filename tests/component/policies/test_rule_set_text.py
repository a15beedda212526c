"""A rule set as text: one truth with its form, saved by the same verb; and the help that both have."""

import pytest
from django.test import Client

from policies import manifests, publishing
from policies.admin.help import HELP
from policies.engine.cel import Expression, Result
from policies.engine.documents import document_of
from policies.engine.errors import ExpressionError
from policies.models import Change
from tests.builders import TEAM_FILTER, make_rule_set
from tests.component.pages import edit_page, form_data, get, opened, publish, rows, text_of

pytestmark = pytest.mark.django_db

PAGE = "/admin/policies/rule-set-text/web/"
KEY = ("RuleSet", "web")


@pytest.fixture(autouse=True)
def web(db: None) -> None:
    publish(make_rule_set(filters=[TEAM_FILTER]))


def text_data(response: object) -> dict[str, str]:
    form = response.context["form"]  # type: ignore[attr-defined] # a test client's
    return {name: form[name].value() or "" for name in ("text", "goes_into", "new_title", "loaded_digest")}


def test_text_and_form_are_the_same_document(operator: Client) -> None:
    page = get(operator, PAGE)
    assert page.context["form"]["text"].value() == manifests.to_yaml(document_of(make_rule_set(filters=[TEAM_FILTER])))
    data = text_data(page) | {"_continue": "1"}
    data["text"] = data["text"].replace("another team", "other people")
    saved = operator.post(PAGE, data, follow=True)
    change = Change.objects.get(state="draft")
    assert saved.redirect_chain == [(f"{PAGE}?change={change.pk}", 302)]
    form = get(operator, edit_page("web", change))
    assert rows(form, "filters").forms[0]["reason"].value() == "node belongs to other people"
    data = form_data(form) | {"filters-0-reason": "theirs"}
    operator.post(edit_page("web", change), data)
    assert "reason: theirs" in get(operator, f"{PAGE}?change={change.pk}").context["form"]["text"].value()


def test_what_is_unchanged_makes_no_change(operator: Client) -> None:
    assert "there was nothing to save" in text_of(operator.post(PAGE, text_data(get(operator, PAGE)), follow=True))
    assert not Change.objects.filter(state="draft").exists()


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: [1", 1, "not readable as YAML"),
        ("a: 1\n---\nb: 2\n", 1, "this has 2 documents, but one is expected"),
        (
            "apiVersion: berth/v1\nkind: RuleSet\nmetadata: {name: web}\nspec:\n  filters:\n  - builtn: X\n",
            6,
            "did you mean builtin?",
        ),
        (
            "apiVersion: berth/v1\nkind: RuleSet\nmetadata:\n  name: other\nspec: {filters: [{builtin: PodFitsHost}]}\n",
            4,
            "this is the text of web",
        ),
    ],
)
def test_faults_have_their_line_saved_or_typed(operator: Client, text: str, line: int, says: str) -> None:
    faults = operator.post(f"{PAGE}check/", {"text": text}).json()["faults"]
    assert (faults[0]["line"], says in faults[0]["message"]) == (line, True)
    refused = operator.post(PAGE, text_data(get(operator, PAGE)) | {"text": text})
    assert refused.context["form"]["text"].value() == text
    assert f"line {line}" in text_of(refused)
    assert says in text_of(refused)


def test_who_saves_second_is_told_and_keeps_what_was_typed(operator: Client) -> None:
    change = opened(make_rule_set(filters=[TEAM_FILTER, {"builtin": "PodFitsHost"}]))
    page = f"{PAGE}?change={change.pk}"
    data = text_data(get(operator, page))
    data["text"] = data["text"].replace("another team", "mine")
    theirs = publishing.Edit.of(make_rule_set(filters=[{"builtin": "PodFitsResources"}]))
    digest = Change.objects.get(pk=change.pk).digest
    publishing.edit_change(change=change, edits=[theirs], by="carol", expected_digest=digest)
    refused = operator.post(page, data)
    assert "Somebody was faster" in text_of(refused)
    assert refused.context["form"]["text"].value() == data["text"]
    operator.post(page, text_data(refused))
    assert "mine" in manifests.to_yaml(document_of(publishing.found_in(change, KEY).value))  # type: ignore[arg-type]


def test_who_saves_beside_another_change_is_told(operator: Client) -> None:
    data = text_data(get(operator, PAGE))
    theirs = opened(make_rule_set(filters=[{"builtin": "PodFitsResources"}]), by="carol")
    data["text"] = data["text"].replace("another team", "mine")
    assert f"Change {theirs.pk} also edits web" in text_of(operator.post(PAGE, data, follow=True))


def test_an_auditor_has_no_text_to_write(auditor: Client) -> None:
    assert auditor.get(PAGE).status_code == 403
    assert auditor.post(f"{PAGE}check/", {"text": ""}).status_code == 403


@pytest.mark.parametrize("each", HELP, ids=lambda each: each.written)
def test_each_example_of_the_help_is_an_expression(each: object) -> None:
    source = each.example  # type: ignore[attr-defined] # Helped
    try:
        Expression(source, Result.BOOLEAN)
    except ExpressionError:
        Expression(source, Result.NUMBER)
