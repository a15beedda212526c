"""`apply` beside colleagues: whose edit is in the way is said, and nothing is published but what the files hold."""

import getpass
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from policies import manifests, publishing
from policies.engine.ruleset import Revision
from policies.models import Assignment, PriorityClass, RuleSet, RuleSetVersion
from policies.publishing import current_revision
from tests.builders import (
    assignment_document,
    make_assignment,
    make_priority_class,
    make_rule_set,
    priority_class_document,
    rule_set_document,
)
from tests.component.pages import draft_of, publish
from tests.component.policies.test_commands import _run as run

pytestmark = pytest.mark.django_db

FIRST = {"filters": [{"builtin": "PodFitsResources"}]}
ALICES = {"filters": [{"builtin": "MatchNodeSelector"}]}
MINE = {"filters": [{"builtin": "PodToleratesNodeTaints"}]}


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(*documents: dict[str, Any]) -> str:
        path = tmp_path / "mine.yaml"
        path.write_text("---\n".join(manifests.to_yaml(document) for document in documents))
        return str(path)

    return write


def draft_by(author: str, spec: dict[str, Any]) -> RuleSetVersion:
    draft = publishing.new_draft(rule_set=RuleSet.objects.get(name="web"), by=author)
    return publishing.save_draft(version=draft, rule_set=make_rule_set(**spec), by=author)


def builtins_of(version: RuleSetVersion) -> list[str]:
    return [str(rule) for rule in version.rules.all()]


def live() -> Revision:
    return current_revision()


class TestDrafts:
    def test_a_colleagues_draft_is_not_overwritten_and_the_refusal_names_it(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        draft = draft_by("alice", ALICES)
        with pytest.raises(CommandError) as caught:
            run("apply", write(rule_set_document(**MINE)))
        said = str(caught.value)
        assert caught.value.returncode == 1
        assert "Nothing was applied" in said
        assert f"draft version 2 of alice (saved at {draft.saved_at:%Y-%m-%d %H:%M:%S} UTC)" in said
        assert "--replace-draft" in said
        assert builtins_of(draft_of("web")) == ["MatchNodeSelector"]
        assert draft_of("web").author == "alice"

    def test_publishing_over_it_is_refused_too_and_nothing_goes_live(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        draft_by("alice", ALICES)
        with pytest.raises(CommandError, match="draft version 2 of alice"):
            run("apply", "--publish", write(rule_set_document(**MINE), rule_set_document("other")))
        assert live().number == 1
        assert not RuleSet.objects.filter(name="other").exists()

    def test_a_file_that_is_live_touches_no_draft_and_says_whose_stays(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        draft_by("alice", ALICES)
        said = run("apply", "--publish", write(rule_set_document(**FIRST)))
        assert "rule set web is unchanged: version 1 is published" in said
        assert "; draft version 2 of alice (saved at" in said
        assert builtins_of(draft_of("web")) == ["MatchNodeSelector"]
        assert live().number == 1

    def test_every_draft_in_the_way_is_named_at_once(self, write: Any) -> None:
        for name, author in (("web", "alice"), ("batch", "bob")):
            draft = publishing.create_rule_set(name=name, description="", by=author)
            publishing.save_draft(version=draft, rule_set=make_rule_set(name, **ALICES), by=author)
        with pytest.raises(CommandError) as caught:
            run("apply", write(rule_set_document(**MINE), rule_set_document("batch", **MINE)))
        assert "of alice" in str(caught.value)
        assert "of bob" in str(caught.value)

    def test_my_own_draft_is_gone_on_with(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        draft_by(getpass.getuser(), ALICES)
        assert "rule set web changed: draft version 2" in run("apply", write(rule_set_document(**MINE)))
        assert builtins_of(draft_of("web")) == ["PodToleratesNodeTaints"]

    def test_a_colleagues_draft_with_the_same_content_is_no_hindrance(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        draft_by("alice", MINE)
        assert "Revision 2 was made" in run("apply", "--publish", write(rule_set_document(**MINE)))
        assert [rule.key for rule in live().rule_sets[0].spec.filters] == ["PodToleratesNodeTaints"]

    def test_replace_draft_says_what_it_replaces(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        draft_by("alice", ALICES)
        said = run("apply", "--publish", "--replace-draft", write(rule_set_document(**MINE)))
        assert "replaces draft version 2 of alice" in said
        assert [rule.key for rule in live().rule_sets[0].spec.filters] == ["PodToleratesNodeTaints"]

    def test_plan_is_refused_as_apply_is(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        draft_by("alice", ALICES)
        file = write(rule_set_document(**MINE))
        with pytest.raises(CommandError, match="draft version 2 of alice"):
            run("plan", "--no-cluster", file)


class TestAssignments:
    @pytest.fixture(autouse=True)
    def _published(self) -> None:
        publish(make_rule_set(**FIRST))
        for name in ("alices", "mine", "gone"):
            publishing.save_assignment(assignment=make_assignment(name), by="ops")
        publishing.publish_assignments(by="ops", reason="")

    def test_only_those_in_the_files_are_published(self, write: Any) -> None:
        publishing.save_assignment(assignment=make_assignment("alices", order=7), by="alice")
        publishing.save_assignment(assignment=make_assignment("new", order=1), by="alice")
        Assignment.objects.get(name="gone").delete()
        said = run("apply", "--publish", write(assignment_document("mine", order=5)))
        assert {each.name: each.order for each in live().assignments} == {"alices": 100, "mine": 5, "gone": 100}
        assert publishing.unpublished_assignments() == {"alices": "changed", "gone": "removed", "new": "new"}
        assert "Assignment mine changed" in said
        assert "alices" not in said

    def test_a_colleagues_faulty_row_stands_against_nobody_elses(self, write: Any) -> None:
        Assignment.objects.filter(name="alices").update(pod_selector={"nonsense": 1}, author="alice")
        publishing.create_rule_set(name="unpublished", description="", by="alice")
        publishing.save_assignment(assignment=make_assignment("new", "unpublished"), by="alice")
        assert "Revision 3 was made" in run("apply", "--publish", write(assignment_document("mine", order=5)))

    def test_a_colleagues_unpublished_edit_is_not_overwritten(self, write: Any) -> None:
        publishing.save_assignment(assignment=make_assignment("mine", order=7), by="alice")
        with pytest.raises(CommandError, match=r"Assignment mine: .*edit of alice .* isn't published"):
            run("apply", "--publish", write(assignment_document("mine", order=5)))
        assert Assignment.objects.get(name="mine").order == 7
        assert live().number == 2
        said = run("apply", "--publish", "--replace-draft", write(assignment_document("mine", order=5)))
        assert "replaces the edit of alice" in said
        assert {each.order for each in live().assignments if each.name == "mine"} == {5}

    def test_a_file_that_is_live_leaves_a_colleagues_edit_alone(self, write: Any) -> None:
        publishing.save_assignment(assignment=make_assignment("mine", order=7), by="alice")
        said = run("apply", "--publish", write(assignment_document("mine")))
        assert "Assignment mine is unchanged: it is live; the edit of alice" in said
        assert Assignment.objects.get(name="mine").order == 7
        assert live().number == 2

    def test_a_removal_that_is_not_published_is_not_undone_in_passing(self, write: Any) -> None:
        Assignment.objects.get(name="gone").delete()
        assert "its removal stays" in run("apply", "--publish", write(assignment_document("gone")))
        with pytest.raises(CommandError, match="Assignment gone: it was removed here"):
            run("apply", "--publish", write(assignment_document("gone", order=5)))
        run("apply", "--publish", "--replace-draft", write(assignment_document("gone", order=5)))
        assert {each.order for each in live().assignments if each.name == "gone"} == {5}

    def test_my_own_edit_is_gone_on_with(self, write: Any) -> None:
        publishing.save_assignment(assignment=make_assignment("mine", order=7), by=getpass.getuser())
        run("apply", "--publish", write(assignment_document("mine", order=5)))
        assert {each.order for each in live().assignments if each.name == "mine"} == {5}

    def test_an_assignment_of_an_unpublished_rule_set_is_refused_still(self, write: Any) -> None:
        publishing.create_rule_set(name="unpublished", description="", by="alice")
        with pytest.raises(CommandError, match="rule set unpublished has no published version"):
            run("apply", "--publish", write(assignment_document("mine", "unpublished")))


class TestPriorityClasses:
    @pytest.fixture(autouse=True)
    def _published(self) -> None:
        for name in ("alices", "mine", "gone"):
            publishing.save_priority_class(priority_class=make_priority_class(name), by="ops")
        publishing.publish_priority_classes(by="ops", reason="")

    def test_only_those_in_the_files_are_published(self, write: Any) -> None:
        publishing.save_priority_class(priority_class=make_priority_class("alices", 7), by="alice")
        publishing.save_priority_class(priority_class=make_priority_class("new", 7), by="alice")
        PriorityClass.objects.get(name="gone").delete()
        run("apply", "--publish", write(priority_class_document("mine", 5)))
        versions = {each.name: (each.version, each.value) for each in live().priority_classes}
        assert versions == {"alices": (1, 1000), "mine": (2, 5), "gone": (1, 1000)}
        assert publishing.unpublished_priority_classes() == {"alices": "changed", "gone": "removed", "new": "new"}

    def test_a_colleagues_faulty_row_stands_against_nobody_elses(self, write: Any) -> None:
        PriorityClass.objects.filter(name="alices").update(name="system-alices")
        assert "Revision 2 was made" in run("apply", "--publish", write(priority_class_document("mine", 5)))

    def test_a_colleagues_unpublished_edit_is_not_overwritten(self, write: Any) -> None:
        publishing.save_priority_class(priority_class=make_priority_class("mine", 7), by="alice")
        with pytest.raises(CommandError, match=r"PriorityClass mine: .*edit of alice"):
            run("apply", write(priority_class_document("mine", 5)))
        assert PriorityClass.objects.get(name="mine").value == 7

    def test_two_global_defaults_never_go_live_together(self, write: Any) -> None:
        publishing.save_priority_class(priority_class=make_priority_class("alices", globalDefault=True), by="alice")
        publishing.publish_priority_classes(by="alice", reason="")
        publishing.save_priority_class(priority_class=make_priority_class("alices"), by="alice")
        file = write(priority_class_document("mine", globalDefault=True))
        with pytest.raises(CommandError, match="alices is the live global default"):
            run("apply", "--publish", file)
        both = write(priority_class_document("mine", globalDefault=True), priority_class_document("alices"))
        run("apply", "--publish", both)
        assert [each.name for each in live().priority_classes if each.global_default] == ["mine"]


def test_who_edited_a_row_is_kept() -> None:
    publish(make_rule_set())
    publishing.save_assignment(assignment=make_assignment(), by="alice")
    publishing.save_assignment(assignment=make_assignment(), by="bob")
    assert Assignment.objects.get().author == "alice"
    publishing.save_assignment(assignment=make_assignment(order=1), by="bob")
    assert Assignment.objects.get().author == "bob"
    publishing.save_priority_class(priority_class=make_priority_class(), by="alice")
    assert PriorityClass.objects.get().author == "alice"


def test_a_row_that_follows_a_roll_back_names_who_rolled_back() -> None:
    publish(make_rule_set())
    publishing.save_assignment(assignment=make_assignment(order=1), by="alice")
    publishing.save_priority_class(priority_class=make_priority_class(), by="alice")
    publishing.publish_together(
        versions=[],
        assignments=[make_assignment(order=1)],
        priority_classes=[make_priority_class()],
        by="alice",
        reason="",
    )
    publishing.save_assignment(assignment=make_assignment(order=2), by="alice")
    publishing.save_priority_class(priority_class=make_priority_class(value=2), by="alice")
    publishing.publish_assignments(by="alice", reason="")
    publishing.publish_priority_classes(by="alice", reason="")
    publishing.roll_back(to_number=2, by="bob", reason="")
    assert (Assignment.objects.get().order, Assignment.objects.get().author) == (1, "bob")
    assert (PriorityClass.objects.get().value, PriorityClass.objects.get().author) == (1000, "bob")


def test_json_of_a_draft_that_changes_between_reading_and_publishing_is_refused() -> None:
    draft = publishing.create_rule_set(name="web", description="", by="ops")
    seen = publishing.save_draft(version=draft, rule_set=make_rule_set(**MINE), by="ops")
    publishing.save_draft(version=draft, rule_set=make_rule_set(**ALICES), by="alice")
    with pytest.raises(publishing.PublishingError, match="alice saved"):
        publishing.publish_together(versions=[seen], by="ops", reason=json.dumps({}))
    assert live().number == 0
