"""Assignments with params, percents and kinds of owners, by the form and by files, and what publishing refuses of them."""

import io
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction
from django.test import Client

from policies import compiler, publishing
from policies.engine import ruleset as engine
from policies.engine.errors import Fault
from policies.models import Assignment, Change
from policies.publishing import PublishingError
from tests.builders import TEAM_FILTER, make_assignment, make_rule_set
from tests.component.pages import change_url, form_data, get, opened, publish_all, text_of

pytestmark = pytest.mark.django_db

ADD = "/admin/policies/assignment/add/"
TEAMS = make_rule_set("teams", filters=[TEAM_FILTER], params={"team": "web", "spare": 0.2})
FULL: dict[str, Any] = {
    "order": 5,
    "mode": "canary",
    "percent": 25,
    "params": {"team": "shop", "spare": 1},
    "match": {"namespaces": ["shop"], "ownerKinds": ["Deployment", "none"]},
}


@pytest.fixture(autouse=True)
def teams() -> None:
    """A live rule set with params."""
    publish_all(TEAMS)


def write(folder: Path, *documents: dict[str, Any]) -> str:
    import json

    file = folder / "rules.json"
    file.write_text("\n---\n".join(map(json.dumps, documents)))
    return str(file)


def document(name: str = "shop", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": "berth/v1", "kind": "Assignment", "metadata": metadata, "spec": {"ruleSet": "teams", **spec}}


def rule_set_document(**params: Any) -> dict[str, Any]:
    metadata = {"name": "teams"}
    spec = {"filters": [TEAM_FILTER], "params": params}
    return {"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": metadata, "spec": spec}


class TestFiles:
    def test_come_in_go_live_and_come_out_as_they_were(self, tmp_path: Path) -> None:
        call_command("apply", "--publish", write(tmp_path, document(**FULL)), stdout=io.StringIO())
        (live,) = publishing.current_revision().assignments
        assert live == make_assignment("shop", "teams", **FULL)
        out = io.StringIO()
        call_command("export", "--kind", "Assignment", stdout=out)
        assert "percent: 25" in out.getvalue()
        assert "ownerKinds:" in out.getvalue()
        row = Assignment.objects.get()
        assert (row.mode, row.percent, row.params) == ("canary", 25, FULL["params"])

    def test_doubles_that_look_like_whole_numbers_come_out_as_doubles(self, tmp_path: Path) -> None:
        doubles = {"factor": 1e16, "limit": 1e300, "least": -0.0}
        file = write(tmp_path, rule_set_document(**doubles), document(params={"factor": 2e16}))
        call_command("apply", "--publish", file, stdout=io.StringIO())
        out, planned = io.StringIO(), io.StringIO()
        call_command("export", stdout=out)
        exported = tmp_path / "exported.yaml"
        exported.write_text(out.getvalue())
        call_command("plan", "--no-cluster", str(exported), stdout=planned)
        assert "Nothing would be published" in planned.getvalue()

    def test_saving_a_form_keeps_the_numbers_that_are_live(self, tmp_path: Path, operator: Client) -> None:
        file = write(tmp_path, rule_set_document(factor=1e16), document(params={"factor": 1e300}))
        call_command("apply", "--publish", file, stdout=io.StringIO())
        page = change_url("assignment", Assignment.objects.get().pk)
        answer = operator.post(page, form_data(get(operator, page)) | {"description": "same"})
        assert answer.status_code == 302
        (edit,) = publishing.edits_of(Change.objects.latest("pk"))
        assert isinstance(edit.value, engine.Assignment)
        assert edit.value.description == "same"
        assert repr(edit.value.params["factor"]) == "1e+300"

    @pytest.mark.parametrize(
        ("params", "said"),
        [
            ({"taem": "a"}, "shop: spec.params.taem: rule set teams has no such param; did you mean team?"),
            ({"team": 1}, "shop: spec.params.team: must be a text, as in rule set teams, not a whole number"),
        ],
    )
    @pytest.mark.parametrize("arguments", [["apply", "--publish"], ["plan", "--no-cluster"]])
    def test_with_wrong_params_are_refused(
        self, tmp_path: Path, params: dict[str, Any], said: str, arguments: list[str]
    ) -> None:
        with pytest.raises(CommandError) as refused:
            call_command(*arguments, write(tmp_path, document(params=params)), stdout=io.StringIO())
        assert said in str(refused.value)

    def test_are_checked_against_the_rule_set_that_comes_with_them(self, tmp_path: Path) -> None:
        both = write(tmp_path, rule_set_document(team="web", zone="a"), document(params={"zone": "b"}))
        call_command("apply", "--publish", both, stdout=io.StringIO())
        assert publishing.current_revision().assignments[0].params == {"zone": "b"}

    def test_a_whole_number_that_becomes_one_with_a_fraction_goes_live_for_expressions_tell_them_apart(
        self, tmp_path: Path
    ) -> None:
        call_command(
            "apply", "--publish", write(tmp_path, rule_set_document(team="web", spare=1)), stdout=io.StringIO()
        )
        file = write(tmp_path, rule_set_document(team="web", spare=1.0), document(params={"spare": 0.5}))
        out = io.StringIO()
        with pytest.raises(SystemExit, match="2"):
            call_command("plan", "--no-cluster", file, stdout=out)
        assert "teams: params changed: spare 1 → 1.0" in out.getvalue()
        call_command("apply", "--publish", file, stdout=io.StringIO())
        (live,) = publishing.current_revision().rule_sets
        assert repr(live.spec.params["spare"]) == "1.0"


class TestPublishing:
    def test_a_rule_set_that_drops_a_param_in_use_is_refused_with_the_assignment_that_gives_it(self) -> None:
        publish_all(make_assignment("shop", "teams", params={"spare": 0.5}))
        with pytest.raises(PublishingError, match=r"shop: spec\.params\.spare: rule set teams has no such param"):
            publish_all(make_rule_set("teams", filters=[TEAM_FILTER], params={"team": "web"}))

    def test_params_for_a_rule_set_that_is_not_there_are_refused_for_its_absence(self) -> None:
        with pytest.raises(PublishingError) as refused:
            publish_all(make_assignment("all", "gone", params={"team": "shop"}))
        (fault,) = refused.value.faults
        assert str(fault) == "all: rule set gone has no published version; publish it first"

    def test_a_change_with_wrong_params_is_not_sent_to_review(self) -> None:
        wrong = make_assignment("shop", "teams", params={"team": ["a"]})
        change = publishing.open_change(title="t", edits=[publishing.Edit.of(wrong)], by="ops")
        with pytest.raises(PublishingError, match=r"shop: spec\.params\.team: must be a text"):
            publishing.submit_change(change=change, by="ops", expected_digest=change.digest)

    def test_what_nobody_touched_is_not_asked_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        publish_all(make_assignment("shop", "teams", params={"team": "shop"}))
        asked: list[str] = []

        def faults(assignment: engine.Assignment, _rule_set: engine.RuleSet) -> list[Fault]:
            asked.append(assignment.name)
            return []

        monkeypatch.setattr("policies.checking.params_faults", faults)
        publish_all(make_assignment("bank", "teams", params={"team": "only this test's"}), make_rule_set("other"))
        assert asked == ["bank"]

    def test_what_changed_is_said_with_percent_and_params(self) -> None:
        publish_all(make_assignment("shop", "teams"))
        made = publish_all(make_assignment("shop", "teams", **FULL))
        assert (
            'order 5, namespace shop and owner of kind Deployment or none gets teams (canary 25 %) with spare 1, team "shop"'
            in made.summary
        )

    @pytest.mark.parametrize("columns", [{"mode": "canary"}, {"percent": 5}, {"mode": "canary", "percent": 0}])
    def test_the_database_keeps_percents_with_canaries(self, columns: dict[str, Any]) -> None:
        publish_all(make_assignment("shop", "teams"))
        row = Assignment.objects.get()
        with pytest.raises(IntegrityError), transaction.atomic():
            Assignment.objects.filter(pk=row.pk).update(**columns)


class TestTheForm:
    def data(self, operator: Client, **fields: Any) -> dict[str, Any]:
        rule_set = get(operator, ADD).context["adminform"].form.fields["rule_set"].queryset.get()
        seen = publishing.seen_of(None, ("Assignment", ""))
        return {
            "name": "shop",
            "order": 5,
            "mode": "enforce",
            "rule_set": rule_set.pk,
            "loaded_digest": seen,
            **fields,
        }

    def test_saves_all_of_it_and_shows_it_again(self, operator: Client) -> None:
        fields = {"mode": "canary", "percent": 25, "params": "team: shop\nspare: 1", "namespaces": "shop"}
        fields["policies_assignment_save_and_publish"] = "1"
        operator.post(ADD, self.data(operator, **fields, owner_kinds="Deployment, none"))
        row = Assignment.objects.get()
        assert compiler.assignment_document(row)["spec"] == {"ruleSet": "teams", **FULL}
        page = get(operator, change_url("assignment", row.pk))
        data = form_data(page)
        assert (data["percent"], data["owner_kinds"]) == (25, "Deployment, none")
        assert "team: shop" in data["params"]
        assert "canary 25 %" in text_of(get(operator, "/admin/policies/assignment/"))

    @pytest.mark.parametrize(
        ("fields", "field", "said"),
        [
            ({"mode": "canary"}, "percent", "is needed: of 100 workloads, how many"),
            ({"percent": 10}, "percent", "belongs to mode canary"),
            ({"owner_kinds": "CronJob"}, "owner_kinds", "say Job, whose Pods they are"),
            ({"params": "taem: a"}, "params", "did you mean team?"),
            ({"params": "team: 1"}, "params", "must be a text, as in rule set teams"),
            ({"params": "- a"}, "params", "must be one YAML or JSON document: an object"),
        ],
    )
    def test_says_at_the_field_what_is_wrong(
        self, operator: Client, fields: dict[str, Any], field: str, said: str
    ) -> None:
        page: Any = operator.post(ADD, self.data(operator, **fields))
        assert said in str(page.context["adminform"].form.errors[field])
        assert not Assignment.objects.exists()

    def test_asks_the_rule_set_as_its_change_makes_it(self, operator: Client) -> None:
        change = opened(make_rule_set("new", params={"a": 1}))
        data = self.data_for(operator, "new", "a: text")
        page: Any = operator.post(ADD, data | {"goes_into": str(change.pk)})
        assert "must be a whole number" in str(page.context["adminform"].form.errors["params"])
        assert operator.post(ADD, data | {"goes_into": str(change.pk), "params": "a: 2"}).status_code == 302
        assert [edit.name for edit in publishing.edits_of(change)] == ["x", "new"]

    def data_for(self, operator: Client, name: str, params: str) -> dict[str, Any]:
        rule_set = get(operator, ADD).context["adminform"].form.fields["rule_set"].queryset.get(name=name)
        return {
            "name": "x",
            "order": 5,
            "mode": "enforce",
            "rule_set": rule_set.pk,
            "params": params,
            "loaded_digest": " ",
        }
