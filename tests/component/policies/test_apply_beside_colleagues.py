"""`apply` beside colleagues: whose edit it touches is said, nothing of theirs is lost or published."""

from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError

from policies import manifests, publishing
from policies.engine.ruleset import Revision
from policies.models import Assignment, Change, PriorityClass, RuleSet, RuleSetVersion
from policies.publishing import current_revision
from tests.builders import (
    assignment_document,
    make_assignment,
    make_priority_class,
    make_rule_set,
    priority_class_document,
    rule_set_document,
)
from tests.component.pages import draft_of, publish, publish_all
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
    def test_a_colleagues_draft_stays_and_goes_on_behind_what_was_published(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        draft = draft_by("alice", ALICES)
        said = run("apply", "--publish", write(rule_set_document(**MINE)))
        assert f"draft version 2 of alice (saved at {draft.saved_at:%Y-%m-%d %H:%M:%S} UTC); it stays a draft" in said
        assert [rule.key for rule in live().rule_sets[0].spec.filters] == ["PodToleratesNodeTaints"]
        assert live().rule_sets[0].version == 2
        theirs = draft_of("web")
        assert (theirs.number, theirs.author, builtins_of(theirs)) == (3, "alice", ["MatchNodeSelector"])
        made = publishing.publish(version=theirs, by="alice", reason="", expected_digest=theirs.digest)
        assert made is not None
        assert [rule.key for rule in live().rule_sets[0].spec.filters] == ["MatchNodeSelector"]

    def test_opening_a_change_touches_no_draft(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        before = draft_by("alice", ALICES)
        assert "! rule set web has draft version 2 of alice" in run("apply", write(rule_set_document(**MINE)))
        assert (draft_of("web").pk, draft_of("web").digest) == (before.pk, before.digest)

    def test_a_file_that_is_live_touches_no_draft(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        draft_by("alice", ALICES)
        assert "rule set web is unchanged" in run("apply", "--publish", write(rule_set_document(**FIRST)))
        assert builtins_of(draft_of("web")) == ["MatchNodeSelector"]
        assert live().number == 1

    def test_a_colleagues_draft_with_the_same_content_becomes_the_version(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        draft = draft_by("alice", MINE)
        assert "Revision 2 was made" in run("apply", "--publish", write(rule_set_document(**MINE)))
        draft.refresh_from_db()
        assert (draft.state, draft.number, draft.author) == ("published", 2, "alice")

    def test_open_changes_that_touch_the_same_are_named(self, write: Any) -> None:
        publish(make_rule_set(**FIRST))
        run("apply", write(rule_set_document(**ALICES)))
        number = Change.objects.get(state="draft").pk
        said = run("apply", write(rule_set_document(**MINE), rule_set_document("other")))
        assert f"! Change {number}, which is open, edits rule set web as well" in said


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
        assert "Assignment alices changed" not in said
        assert "Assignment alices is never reached: mine before it takes every Pod" in said

    def test_a_colleagues_faulty_row_stands_against_nobody_elses(self, write: Any) -> None:
        Assignment.objects.filter(name="alices").update(pod_selector={"nonsense": 1}, author="alice")
        publishing.create_rule_set(name="unpublished", description="", by="alice")
        publishing.save_assignment(assignment=make_assignment("new", "unpublished"), by="alice")
        assert "Revision 3 was made" in run("apply", "--publish", write(assignment_document("mine", order=5)))

    def test_a_colleagues_unpublished_edit_stays_and_is_named(self, write: Any) -> None:
        publishing.save_assignment(assignment=make_assignment("mine", order=7), by="alice")
        said = run("apply", "--publish", write(assignment_document("mine", order=5)))
        assert "! Assignment mine has an unpublished edit (changed); it stays" in said
        assert (Assignment.objects.get(name="mine").order, Assignment.objects.get(name="mine").author) == (7, "alice")
        assert {each.order for each in live().assignments if each.name == "mine"} == {5}

    def test_a_row_that_nobody_edited_follows_what_goes_live(self, write: Any) -> None:
        run("apply", "--publish", write(assignment_document("mine", order=5)))
        assert Assignment.objects.get(name="mine").order == 5
        assert publishing.unpublished_assignments() == {}

    def test_a_removal_that_is_not_published_stays(self, write: Any) -> None:
        Assignment.objects.get(name="gone").delete()
        assert "Assignment gone is unchanged" in run("apply", "--publish", write(assignment_document("gone")))
        run("apply", "--publish", write(assignment_document("gone", order=5)))
        assert publishing.unpublished_assignments() == {"gone": "removed"}

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

    def test_a_colleagues_unpublished_edit_stays_and_is_named(self, write: Any) -> None:
        publishing.save_priority_class(priority_class=make_priority_class("mine", 7), by="alice")
        said = run("apply", "--publish", write(priority_class_document("mine", 5)))
        assert "! PriorityClass mine has an unpublished edit (changed); it stays" in said
        assert PriorityClass.objects.get(name="mine").value == 7
        assert publishing.live_priority_classes()["mine"].value == 5

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
    publish_all(make_assignment(order=1), make_priority_class(), by="alice")
    publishing.save_assignment(assignment=make_assignment(order=2), by="alice")
    publishing.save_priority_class(priority_class=make_priority_class(value=2), by="alice")
    publishing.publish_assignments(by="alice", reason="")
    publishing.publish_priority_classes(by="alice", reason="")
    publishing.roll_back(to_number=2, by="bob", reason="")
    assert (Assignment.objects.get().order, Assignment.objects.get().author) == (1, "bob")
    assert (PriorityClass.objects.get().value, PriorityClass.objects.get().author) == (1000, "bob")
