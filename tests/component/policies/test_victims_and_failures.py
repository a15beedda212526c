"""Victims rules and the choices for outages, from the form to the Revision."""

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from policies import publishing
from policies.engine.documents import document_of
from policies.engine.ruleset import Failures, RuleSet
from policies.manifests import read_documents, to_yaml
from policies.models import Change, RuleSetVersion
from policies.sentences import failures_sentences
from tests.builders import TEAM_FILTER, make_rule_set
from tests.component.pages import change_url, edit_page, form_data, get, new_row, publish, rows, text_of

pytestmark = pytest.mark.django_db

STAYS = {
    "name": "production-stays",
    "expression": "victim.metadata.?labels.env.orValue('') != 'prod'",
    "reason": "production Pods are not preempted",
}


@pytest.fixture(autouse=True)
def web(operator: Client) -> None:
    publish(make_rule_set(filters=[TEAM_FILTER], victims=[STAYS], failures={"redis": "refuse"}))


PAGE = edit_page("web")


def save(client: Client, **typed: Any) -> Any:
    """Save the form, in the Change that is open, if one is."""
    page = edit_page("web", Change.objects.filter(state="draft").first())
    return client.post(page, form_data(get(client, page)) | typed)


def saved() -> RuleSet:
    """Return the rule set as its open Change makes it; as it is live where none does."""
    change = Change.objects.filter(state="draft").first()
    value = publishing.found_in(change, ("RuleSet", "web")).value
    assert isinstance(value, RuleSet)
    return value


def test_saving_an_untouched_page_changes_nothing(operator: Client) -> None:
    assert save(operator).status_code == 302
    assert not Change.objects.filter(state="draft").exists()


def test_a_victims_rule_is_added_changed_and_dragged_as_a_row(operator: Client) -> None:
    data = form_data(get(operator, PAGE)) | {"victims-0-reason": "never production"}
    new_row(data, "victims", name="second", expression="victim.spec.?priority.orValue(0) < 0", on_error="pass")
    assert operator.post(PAGE, data).status_code == 302
    first, second = saved().spec.victims
    assert (first.name, first.reason, first.on_error) == ("production-stays", "never production", "reject")
    assert (second.name, second.on_error, second.builtin) == ("second", "pass", "")
    save(operator, **{"victims-0-position": 1, "victims-1-position": 0})
    assert [rule.name for rule in saved().spec.victims] == ["second", "production-stays"]


@pytest.mark.parametrize(
    ("typed", "field", "message"),
    [
        ({"expression": "victim.metadata.labelz.a == 'b'"}, "expression", "did you mean labels?"),
        ({"expression": ""}, "expression", "is needed"),
        ({"name": ""}, "name", "is needed"),
        ({"reason": "50%"}, "reason", "percent sign"),
    ],
)
def test_a_fault_of_a_victims_rule_lands_on_its_field(
    operator: Client, typed: dict[str, str], field: str, message: str
) -> None:
    response = save(operator, **{f"victims-0-{name}": value for name, value in typed.items()})
    errors = rows(response, "victims").forms[0].errors
    assert list(errors) == [field]
    assert message in str(errors[field])


def test_the_page_says_what_a_victims_rule_sees(operator: Client) -> None:
    text = text_of(get(operator, PAGE))
    assert "Victims: which Pods preemption may remove" in text
    assert "Variables: victim (that Pod, on its node), pod (the Pod that needs room), node, params and now" in text
    assert "reject: protect the Pod" in text


def test_choices_for_outages_are_made_in_select_boxes(operator: Client) -> None:
    data = form_data(get(operator, PAGE))
    chosen = {name: data[name] for name in ("deadline", "stale_snapshot", "stale_after_seconds", "redis")}
    assert chosen == {
        "deadline": "refuse",
        "stale_snapshot": "lastKnown",
        "stale_after_seconds": 300,
        "redis": "refuse",
    }
    save(operator, deadline="pass", stale_snapshot="refuse", stale_after_seconds="120", redis="lastKnown")
    assert document_of(saved())["spec"]["failures"] == {
        "deadline": "pass",
        "staleSnapshot": "refuse",
        "staleAfterSeconds": 120,
    }


@pytest.mark.parametrize(
    ("typed", "field"),
    [
        ({"stale_after_seconds": "99"}, "stale_after_seconds"),
        ({"stale_after_seconds": "soon"}, "stale_after_seconds"),
        ({"database": "ignore"}, "database"),
    ],
)
def test_a_wrong_choice_is_said_at_its_box(operator: Client, typed: dict[str, str], field: str) -> None:
    assert list(save(operator, **typed).context["adminform"].form.errors) == [field]
    assert document_of(saved())["spec"]["failures"] == {"redis": "refuse"}


def test_a_box_left_out_is_the_default_choice(operator: Client) -> None:
    save(operator, redis="", stale_after_seconds="")
    assert "failures" not in document_of(saved())["spec"]


def test_a_frozen_version_says_rules_and_choices_in_sentences(operator: Client) -> None:
    text = text_of(get(operator, change_url("rulesetversion", RuleSetVersion.objects.get().pk)))
    assert "production-stays: protect Pods from preemption as “production Pods are not preempted” unless" in text
    assert "when Redis can't be reached: refuse nodes" in text


def test_a_rule_set_of_victims_rules_alone_can_be_published() -> None:
    revision = publish(make_rule_set("other", victims=[STAYS]))
    assert "victims rule added: production-stays" in revision.summary
    assert publishing.current_revision().rule_sets[0].spec.victims[0].name == "production-stays"


def test_a_revision_says_what_changed_in_victims_rules_and_choices() -> None:
    publish(make_rule_set(victims=[STAYS]))
    changed = publish(make_rule_set(victims=[STAYS | {"onError": "pass"}], failures={"deadline": "pass"}))
    assert "web: victims rule production-stays changed: onError “reject” → “pass”" in changed.summary
    assert "web: failures changed: deadline “refuse” → “pass”" in changed.summary


@pytest.mark.parametrize(
    ("failures", "sentences"),
    [
        (Failures(), []),
        (Failures(deadline="pass"), ["when the deadline has passed: let nodes pass"]),
        (
            Failures(stale_after_seconds=100),
            ["when the watch has been silent for more than 100 s: decide by the last known state"],
        ),
        (
            Failures(stale_snapshot="refuse", database="pass"),
            [
                "when the watch has been silent for more than 300 s: refuse nodes",
                "when the database can't be reached: let nodes pass",
            ],
        ),
    ],
)
def test_choices_that_differ_from_the_default_ones_are_said_in_words(failures: Failures, sentences: list[str]) -> None:
    assert failures_sentences(failures) == sentences


def test_what_is_applied_is_exported_as_it_was_written(tmp_path: Path) -> None:
    content = make_rule_set(
        victims=[STAYS | {"mode": "shadow", "onError": "pass"}], failures={"apiServer": "pass", "deadline": "pass"}
    )
    (tmp_path / "web.yaml").write_text(to_yaml(document_of(content)))
    call_command("apply", "--publish", str(tmp_path / "web.yaml"), stdout=StringIO())
    out = StringIO()
    call_command("export", stdout=out)
    (exported,) = read_documents(out.getvalue(), "export.yaml")
    assert exported.document == document_of(content)


def test_rest_gives_and_checks_the_same_document(operator: Client) -> None:
    document = operator.get("/api/v1/rule-sets/web").json()["published"]
    assert document["spec"]["victims"] == [STAYS]
    assert document["spec"]["failures"] == {"redis": "refuse"}
    assert operator.post("/api/v1/validate", document, content_type="application/json").json()["ok"]
    document["spec"]["victims"][0]["expression"] = "victim.spec.hostIPC"
    (fault,) = operator.post("/api/v1/validate", document, content_type="application/json").json()["faults"]
    assert fault["path"] == "spec.victims[0].expression"
    assert "isn't kept of Pods on nodes" in fault["message"]
