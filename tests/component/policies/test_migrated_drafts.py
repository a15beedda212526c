"""Drafts and rows that weren't live, as the version before kept them, become Changes: nobody's work is lost."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from policies import publishing
from policies.models import Assignment, Change, PriorityClass, RuleSetVersion
from tests.builders import make_assignment, make_priority_class, make_rule_set
from tests.component.pages import publish_all

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def published(request: pytest.FixtureRequest) -> None:
    """What is live when the models become as they were."""
    for values in request.param:
        publish_all(*values)


@pytest.fixture
def before(published: None) -> Iterator[Any]:
    """The models as they were."""
    executor = MigrationExecutor(connection)
    executor.migrate([("policies", "0015_gate_settings")])
    yield executor.loader.project_state([("policies", "0015_gate_settings")]).apps
    migrate()


def migrate() -> None:
    executor = MigrationExecutor(connection)
    executor.migrate(executor.loader.graph.leaf_nodes())


@pytest.mark.parametrize(
    "published",
    [
        [
            [make_rule_set("web"), make_assignment("all", "web"), make_assignment("gone", "web")],
            [make_priority_class("high", 5, globalDefault=True)],
        ]
    ],
    indirect=True,
    ids=["two Revisions"],
)
def test_each_draft_and_row_becomes_an_edit_with_its_author_and_base(before: Any) -> None:
    drafts = before.get_model("policies", "RuleSetVersion").objects
    web = before.get_model("policies", "RuleSet").objects.get()
    draft = drafts.create(rule_set=web, number=2, author="alice", note="nights", saved_at=datetime.now(UTC))
    before.get_model("policies", "Rule").objects.create(version=draft, builtin="MatchNodeSelector", weight=1)
    rows = before.get_model("policies", "Assignment").objects
    rows.filter(name="all").update(order=7, author="alice")
    rows.filter(name="gone").delete()
    rows.create(name="new", rule_set=web, author="bob")
    classes = before.get_model("policies", "PriorityClass").objects
    classes.update(value=9, global_default=False, author="bob")
    classes.create(name="low", value=1, global_default=True, author="alice")
    migrate()
    made = {change.title: change for change in Change.objects.filter(state="draft")}
    assert set(made) == {
        "Draft of web v2",
        "Assignments that were not published",
        "PriorityClasses that were not published",
    }
    of_web = made["Draft of web v2"]
    assert (of_web.opened_by, of_web.reason) == ("alice", "nights")
    assert publishing.standing_of(made["Assignments that were not published"]).authors >= {"alice", "bob"}
    assert not RuleSetVersion.objects.filter(state="draft").exists()
    assert sorted(Assignment.objects.values_list("name", "order")) == [("all", 100), ("gone", 100)]
    assert list(PriorityClass.objects.values_list("name", "value", "global_default")) == [("high", 5, True)]
    for change in made.values():
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    live = publishing.current_revision()
    assert [rule.key for rule in live.rule_sets[0].spec.filters] == ["MatchNodeSelector"]
    assert {each.name: each.order for each in live.assignments} == {"all": 7, "new": 100}
    assert {each.name: (each.value, each.global_default) for each in live.priority_classes} == {
        "high": (9, False),
        "low": (1, True),
    }


@pytest.mark.parametrize(
    "published",
    [[[make_rule_set("web"), make_assignment("all", "web"), make_priority_class("high", 5)]]],
    indirect=True,
    ids=["all of it"],
)
def test_where_all_of_it_is_live_nothing_is_opened(before: Any) -> None:
    migrate()
    assert not Change.objects.filter(state="draft").exists()


@pytest.mark.parametrize("published", [[[make_rule_set("web")]]], indirect=True, ids=["a rule set"])
def test_a_draft_that_is_what_is_live_and_an_empty_one_are_only_dropped(before: Any) -> None:
    drafts, rules = before.get_model("policies", "RuleSetVersion").objects, before.get_model("policies", "Rule").objects
    sets = before.get_model("policies", "RuleSet").objects
    same = drafts.create(rule_set=sets.get(), number=2, author="alice")
    rules.create(version=same, builtin="PodFitsResources")
    drafts.create(rule_set=sets.create(name="empty"), number=1, author="alice")
    migrate()
    assert not Change.objects.filter(state="draft").exists()
    assert not RuleSetVersion.objects.filter(state="draft").exists()


@pytest.mark.parametrize(
    "published",
    [[[make_rule_set("web"), make_assignment("all", "web")]]],
    indirect=True,
    ids=["a rule set and an Assignment"],
)
def test_what_this_version_refuses_is_kept_too_and_its_change_names_the_faults(before: Any) -> None:
    drafts = before.get_model("policies", "RuleSetVersion").objects
    web = before.get_model("policies", "RuleSet").objects.get()
    draft = drafts.create(rule_set=web, number=2, author="alice")
    expression = "node.metadata.labels[?'team'] == 'web'"
    before.get_model("policies", "Rule").objects.create(version=draft, name="team", expression=expression, reason="no")
    rows = before.get_model("policies", "Assignment").objects
    rows.create(name="new", rule_set=web, namespaces=["Not_A_Name"], author="bob")
    migrate()
    of_rows, of_draft = Change.objects.filter(state="draft")
    for change, fault in ((of_draft, "say what holds then"), (of_rows, "'Not_A_Name' is not a namespace's name")):
        with pytest.raises(publishing.PublishingError, match=fault):
            publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    assert [edit.name for edit in of_rows.edits.all()] == ["new"]
    assert expression in of_draft.edits.get().document


@pytest.mark.parametrize(
    "published",
    [[[make_rule_set("web"), make_assignment("all", "web")]]],
    indirect=True,
    ids=["a rule set and an Assignment"],
)
def test_what_no_version_can_read_is_named_and_left_out_and_the_rest_becomes_a_change(
    before: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    web = before.get_model("policies", "RuleSet").objects.get()
    draft = before.get_model("policies", "RuleSetVersion").objects.create(rule_set=web, number=2, author="alice")
    before.get_model("policies", "Rule").objects.create(version=draft, builtin="PodFitsResources", arguments=["a list"])
    rows = before.get_model("policies", "Assignment").objects
    rows.create(name="broad", rule_set=web, pod_selector={"team": "web"}, author="bob")
    rows.create(name="odd", rule_set=web, pod_selector={"matchLabels": {"a": 1}}, author="bob")
    rows.create(name="new", rule_set=web, author="bob")
    migrate()
    (change,) = Change.objects.filter(state="draft")
    assert [edit.name for edit in change.edits.all()] == ["new"]
    said = capsys.readouterr().out
    for name in ("RuleSet web", "Assignment broad", "Assignment odd"):
        assert f"{name}: what was not published can't be read, and is left out" in said
