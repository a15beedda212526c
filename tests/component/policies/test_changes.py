"""Changes: what they hold, when approvals fall, what happens to those who publish second; by several people."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command

from policies import publishing
from policies.engine import ruleset as engine
from policies.models import Assignment, Change, ChangeEvent, RuleSet, RuleSetVersion
from policies.publishing import Edit, PublishingError, changes
from tests.builders import TEAM_FILTER, make_assignment, make_priority_class, make_rule_set
from tests.component.pages import publish, publish_all
from tests.component.policies.people import person

pytestmark = pytest.mark.django_db

A = {"filters": [{"builtin": "PodFitsHost"}]}
B = {"filters": [{"builtin": "MatchNodeSelector"}]}
C = {"filters": [{"builtin": "PodToleratesNodeTaints"}]}


@contextmanager
def free() -> Iterator[None]:
    """What is done within needs no approval."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
        yield


def free_publish(*values: Any) -> None:
    with free():
        publish_all(*values)


def opened(*values: Any, by: Any = "ops", title: str = "tested") -> Change:
    return publishing.open_change(title=title, edits=[Edit.of(value) for value in values], by=by, reason="why")


def do(change: Change, act: Any, by: Any, **more: Any) -> Any:
    """Do an act, having looked at the Change as it is now."""
    return act(change=change, by=by, expected_digest=Change.objects.get(pk=change.pk).digest, **more)


def live() -> engine.Revision:
    return publishing.current_revision()


def filters_of(name: str) -> list[str]:
    return [rule.key for each in live().rule_sets if each.name == name for rule in each.spec.filters]


class TestPublishing:
    def test_it_makes_one_revision_of_all_its_edits_and_numbers_the_versions(self, alice: User) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("old", **A), make_priority_class("high"))
        edits = [Edit.of(make_rule_set("web", **B)), Edit.of(make_assignment("all", "web"))]
        edits += [Edit("RuleSet", "old", None), Edit("PriorityClass", "high", None)]
        change = publishing.open_change(title="many", edits=edits, by=alice)
        made = do(change, publishing.publish_change, alice)
        assert made.number == 2
        assert [(each.name, each.version) for each in live().rule_sets] == [("web", 2)]
        assert [each.name for each in live().assignments] == ["all"]
        assert live().priority_classes == []
        change.refresh_from_db()
        assert (change.state, change.revision, change.base) == ("published", made, 1)
        states = RuleSetVersion.objects.order_by("rule_set__name", "number").values_list(
            "rule_set__name", "number", "state"
        )
        assert list(states) == [("old", 1, "superseded"), ("web", 1, "superseded"), ("web", 2, "published")]

    def test_rows_of_the_forms_follow(self) -> None:
        publish_all(make_rule_set("web"), make_assignment("all", "web"))
        assert Assignment.objects.get().order == 100
        publish_all(make_assignment("all", "web", order=3))
        assert Assignment.objects.get().order == 3

    def test_what_equals_what_is_live_is_no_edit(self) -> None:
        publish_all(make_rule_set("web", **A))
        with pytest.raises(PublishingError, match="Nothing would change: Revision 1 already has all of it"):
            opened(make_rule_set("web", **A))
        change = opened(make_rule_set("web", **A), make_rule_set("new"))
        assert [edit.name for edit in publishing.edits_of(change)] == ["new"]

    def test_a_rule_set_that_an_assignment_needs_is_not_removed(self) -> None:
        publish_all(make_rule_set("web"), make_assignment("all", "web"))
        change = publishing.open_change(title="x", edits=[Edit("RuleSet", "web", None)], by="ops")
        with pytest.raises(PublishingError, match="all: rule set web would no longer be live"):
            do(change, publishing.publish_change, "ops")
        assert (live().number, Change.objects.get(pk=change.pk).state) == (1, "draft")

    @pytest.mark.parametrize("act", [publishing.submit_change, publishing.publish_change])
    def test_faults_are_said_by_thing_and_place_before_anything_moves(self, act: Any) -> None:
        failing = {"name": "t", "pod": {}, "nodes": [{"metadata": {"name": "n"}}], "expect": {"feasible": []}}
        change = opened(make_rule_set("web", **A, tests=[failing]), make_rule_set("empty", filters=[]))
        with pytest.raises(PublishingError) as caught:
            do(change, act, "ops")
        said = str(caught.value)
        assert "empty: " in said
        assert "has no rule" in said
        assert "web: spec.tests[0]" in said
        assert Change.objects.get(pk=change.pk).state == "draft"

    def test_what_is_edited_after_its_documents_were_checked_does_not_go_live(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change, checked = opened(make_rule_set("web", **A)), changes.check_contents

        def check_and_edit(*arguments: Any) -> None:
            checked(*arguments)
            other = Edit.of(make_rule_set("web", **B))
            publishing.edit_change(change=change, edits=[other], by="ops", expected_digest="")

        monkeypatch.setattr(changes, "check_contents", check_and_edit)
        with pytest.raises(PublishingError, match="was edited meanwhile"):
            publishing.publish_change(change=change, by="ops", expected_digest="")
        assert live().number == 0

    def test_what_somebody_else_has_removed_is_not_sent_to_review_to_be_removed_again(self) -> None:
        publish_all(make_rule_set("web", **A))
        change, other = (
            publishing.open_change(title=title, edits=[Edit("RuleSet", "web", None)], by="ops") for title in "xy"
        )
        do(other, publishing.publish_change, "ops")
        with pytest.raises(PublishingError, match="web: isn't live, so it can't be removed"):
            do(change, publishing.submit_change, "ops")

    def test_who_may_not_or_comes_too_late_is_told_so_rather_than_of_faults(self, alice: User) -> None:
        publish_all(make_rule_set("web", **A))
        removal = Edit("RuleSet", "web", None)
        first, second = (publishing.open_change(title=title, edits=[removal], by=alice) for title in "ab")
        do(first, publishing.publish_change, alice)
        for act in (publishing.submit_change, publishing.publish_change):
            with pytest.raises(publishing.ForbiddenError, match=r"^dave.* may not"):
                do(second, act, person(f"dave{act.__name__}", "Auditor"))
            with pytest.raises(PublishingError, match="It is published"):
                do(first, act, alice)
        with pytest.raises(PublishingError, match="published another RuleSet web since; rebase it"):
            do(second, publishing.publish_change, alice)

    def test_each_revision_is_made_by_one_change_whichever_door_it_came_through(self, alice: User) -> None:
        publish(make_rule_set("web", **A))
        publish_all(make_rule_set("web", **B), make_priority_class(), by=alice)
        publishing.go_back(version=RuleSetVersion.objects.get(number=1), by=alice, reason="c")
        publishing.roll_back(to_number=1, by=alice, reason="d")
        publishing.archive(rule_set=RuleSet.objects.get(), by=alice, reason="e")
        assert list(Change.objects.order_by("pk").values_list("revision", flat=True)) == [1, 2, 3, 4, 5]
        assert set(Change.objects.values_list("state", flat=True)) == {"published"}
        assert ChangeEvent.objects.filter(act="publish").count() == 5


class TestReview:
    @pytest.fixture(autouse=True)
    def _required(self, reviewed: None) -> None:
        """Review is required."""

    def test_nothing_goes_live_that_nobody_else_approved(self, alice: User, carol: User) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(change, publishing.publish_change, alice)
        do(change, publishing.submit_change, alice)
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(change, publishing.publish_change, carol)
        assert do(change, publishing.approve_change, carol).state == "approved"
        assert do(change, publishing.publish_change, alice).number == 1

    def test_an_edit_drops_approvals_and_says_so(self, alice: User, bob: User, carol: User) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        edited = do(change, publishing.edit_change, bob, edits=[Edit.of(make_rule_set("web", **B))])
        assert edited.state == "in_review"
        assert publishing.standing_of(edited).approvals == 0
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(change, publishing.publish_change, alice)

    def test_what_an_edit_dropped_stays_so_when_another_edit_undoes_it(self, alice: User, carol: User) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        digest = do(change, publishing.submit_change, alice).digest
        publishing.ask_for_review(change=change, by=alice, whom="carol")
        do(change, publishing.approve_change, carol)
        for rules in (B, A):
            edited = do(change, publishing.edit_change, alice, edits=[Edit.of(make_rule_set("web", **rules))])
        assert (edited.digest, edited.state) == (digest, "in_review")
        assert [each.name for each in publishing.waiting_for(edited)] == ["carol"]
        assert not ChangeEvent.objects.approvals().exists()
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(change, publishing.publish_change, alice)
        assert do(change, publishing.approve_change, carol).state == "approved"
        assert [event.by for event in ChangeEvent.objects.approvals()] == ["carol"]

    @pytest.mark.parametrize("back", ["rolled back", "by another Change"])
    def test_a_moved_base_drops_approvals_for_good_and_says_so(self, back: str, alice: User, carol: User) -> None:
        free_publish(make_rule_set("web", **A), make_assignment("all", "web"), make_rule_set("data", **A))
        change = opened(make_assignment("all", "web", order=7), by=alice)
        other = opened(make_rule_set("data", **C), by=alice)
        for each in (change, other):
            do(each, publishing.submit_change, alice)
        publishing.ask_for_review(change=change, by=alice, whom="carol")
        for each in (change, other):
            do(each, publishing.approve_change, carol)
        free_publish(make_assignment("all", "web", order=3))
        change.refresh_from_db()
        assert (change.state, publishing.standing_of(change).approvals) == ("in_review", 0)
        assert [each.name for each in publishing.waiting_for(change)] == ["carol"]
        (event,) = change.events.filter(act="overtake")
        said = f"{Change.objects.get(revision=2)} moved Assignment all"
        assert (event.by, event.text) == ("ops", said)
        with free():
            if back == "rolled back":
                publishing.roll_back(to_number=1, by="ops", reason="")
            else:
                publish_all(make_assignment("all", "web"))
        assert publishing.standing_of(change).moved == ()
        missing = ["It needs 1 more approval from people who didn't edit it."]
        missing += [f"The approval of carol doesn't count any more: {said}."]
        assert publishing.standing_of(change).missing == missing
        assert publishing.overview_of([change])[change.pk].approvals == [(0, 1, "")]
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(change, publishing.publish_change, alice)
        assert do(change, publishing.approve_change, carol).state == "approved"
        assert Change.objects.get(pk=other.pk).state == "approved", "nobody has moved what it stands on"

    def test_a_base_that_is_removed_and_comes_back_drops_approvals_for_good(self, alice: User, carol: User) -> None:
        free_publish(make_rule_set("web", **A))
        change = opened(make_rule_set("web", **B), by=alice)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        with free():
            publishing.archive(rule_set=RuleSet.objects.get(name="web"), by="ops", reason="old")
            publishing.roll_back(to_number=1, by="ops", reason="not that old")
        standing = publishing.standing_of(Change.objects.get(pk=change.pk))
        assert (standing.state, standing.moved, standing.approvals) == ("in_review", (), 0)

    def test_what_an_edit_made_unapproved_before_is_not_said_to_be_overtaken(self, alice: User, carol: User) -> None:
        free_publish(make_rule_set("web", **A))
        change = opened(make_rule_set("web", **B), by=alice)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        do(change, publishing.edit_change, alice, edits=[Edit.of(make_rule_set("web", **C))])
        free_publish(make_rule_set("web", filters=[TEAM_FILTER]))
        assert not change.events.filter(act="overtake").exists()

    def test_what_dropped_an_approval_is_said_until_the_change_is_another(self, alice: User, carol: User) -> None:
        free_publish(make_rule_set("web", **A))
        change = opened(make_rule_set("web", **B), by=alice)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        free_publish(make_rule_set("web", **C))
        publishing.comment_on_change(change=change, by=alice, text="Why?")
        change.refresh_from_db()
        assert "The approval of carol doesn't count" in " ".join(publishing.standing_of(change).missing)
        do(change, publishing.rebase_change, alice, expected_revision=2)
        change.refresh_from_db()
        assert publishing.standing_of(change).missing == ["It needs 1 more approval from people who didn't edit it."]

    def test_a_moved_order_of_assignments_drops_approvals_for_good(self, alice: User, carol: User) -> None:
        free_publish(
            make_rule_set("web", **A),
            *(make_assignment(name, "web", order=n) for name, n in zip("abc", (10, 20, 30), strict=True)),
        )
        change = opened(make_assignment("c", "web", order=15), by=alice)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        free_publish(make_assignment("a", "web", order=17))
        assert Change.objects.get(pk=change.pk).state == "in_review"
        assert "moved order of Assignments" in change.events.get(act="overtake").text
        free_publish(make_assignment("a", "web", order=10))
        assert publishing.standing_of(change).approvals == 0

    def test_an_approval_is_for_what_was_looked_at(self, alice: User, bob: User, carol: User) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.submit_change, alice)
        seen = Change.objects.get(pk=change.pk).digest
        do(change, publishing.edit_change, bob, edits=[Edit.of(make_rule_set("web", **B))])
        with pytest.raises(PublishingError, match="changed since you looked at it: bob edited it"):
            publishing.approve_change(change=change, by=carol, expected_digest=seen)

    def test_all_authors_are_kept_and_none_of_them_approves(self, alice: User, bob: User) -> None:
        for user in (alice, bob):
            user.groups.add(Group.objects.get(name="Approver"))
        alice, bob = User.objects.get(username="alice"), User.objects.get(username="bob")
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.edit_change, bob, edits=[Edit.of(make_rule_set("other", **A))])
        do(change, publishing.submit_change, alice)
        for user in (alice, bob):
            with pytest.raises(PublishingError, match="nobody can approve what they edited"):
                do(change, publishing.approve_change, user)

    def test_whoever_is_renamed_is_the_same_person_still(
        self, alice: User, carol: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither approves what they edited under their former name, nor what they approved under it."""
        monkeypatch.setattr(
            settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True, review_approvals=2)
        )
        alice.groups.add(Group.objects.get(name="Approver"))
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        for name in ("alice", "carol"):
            User.objects.filter(username=name).update(username=f"{name}-new")
        with pytest.raises(PublishingError, match="alice-new edited it, and nobody can approve what they edited"):
            do(change, publishing.approve_change, User.objects.get(username="alice-new"))
        with pytest.raises(PublishingError, match="carol-new has approved its current result"):
            do(change, publishing.approve_change, User.objects.get(username="carol-new"))
        standing = publishing.standing_of(Change.objects.get())
        assert (standing.authors, standing.counting) == ({"alice-new"}, {"carol-new"})

    def test_a_moved_base_drops_approvals_by_the_rebase(self, alice: User, bob: User, carol: User) -> None:
        first, second = opened(make_rule_set("web", **A), by=alice), opened(make_rule_set("web", **B), by=bob)
        for change in (first, second):
            do(change, publishing.submit_change, alice)
            do(change, publishing.approve_change, carol)
        do(first, publishing.publish_change, alice)
        with pytest.raises(PublishingError, match="published another RuleSet web since"):
            do(second, publishing.publish_change, bob)
        rebased = do(second, publishing.rebase_change, bob, expected_revision=1)
        assert (rebased.state, publishing.standing_of(rebased).approvals) == ("in_review", 0)
        do(second, publishing.approve_change, carol)
        do(second, publishing.publish_change, bob)
        assert filters_of("web") == ["MatchNodeSelector"]

    def test_a_rejected_change_says_why_and_can_be_opened_again(self, alice: User, carol: User) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.submit_change, alice)
        with pytest.raises(PublishingError, match="A rejection needs its reason"):
            do(change, publishing.reject_change, carol, text=" ")
        assert do(change, publishing.reject_change, carol, text="too wide").state == "rejected"
        with pytest.raises(PublishingError, match=re.escape("It is rejected. Open it again first.")):
            do(change, publishing.publish_change, alice)
        assert publishing.reopen_change(change=change, by=alice).state == "draft"

    def test_a_roll_back_and_archiving_are_reviewed_like_all_else(self, alice: User, carol: User) -> None:
        for spec in (A, B):
            change = opened(make_rule_set("web", **spec), by=alice)
            do(change, publishing.submit_change, alice)
            do(change, publishing.approve_change, carol)
            do(change, publishing.publish_change, alice)
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            publishing.roll_back(to_number=1, by=alice, reason="wrong")
        change = publishing.propose_roll_back(to_number=1, by=alice, reason="wrong")
        do(change, publishing.approve_change, carol)
        do(change, publishing.publish_change, alice)
        assert [(each.name, each.version) for each in live().rule_sets] == [("web", 1)]
        change = publishing.propose_archiving(rule_set=RuleSet.objects.get(), by=alice, reason="unused")
        do(change, publishing.approve_change, carol)
        do(change, publishing.publish_change, alice)
        assert live().rule_sets == []

    def test_an_emergency_is_published_with_a_reason_and_marked_until_somebody_approves(
        self, alice: User, carol: User
    ) -> None:
        erin = person("erin", "Emergency")
        change = opened(make_rule_set("web", **A), by=alice)
        with pytest.raises(PublishingError, match="alice may not publish without approvals"):
            do(change, publishing.publish_urgently, alice, reason="fire")
        with pytest.raises(PublishingError, match="An emergency needs its reason"):
            do(change, publishing.publish_urgently, erin, reason=" ")
        made = do(change, publishing.publish_urgently, erin, reason="fire")
        assert (made.number, made.reason) == (1, "fire")
        assert publishing.unapproved_changes() == [change.pk]
        erin.groups.add(Group.objects.get(name="Approver"))
        erin = User.objects.get(pk=erin.pk)
        with pytest.raises(PublishingError, match="erin published it without approval; somebody else has to approve"):
            do(change, publishing.approve_change, erin)
        do(change, publishing.approve_change, carol)
        assert publishing.unapproved_changes() == []
        assert Change.objects.get().state == "published"

    def test_a_roll_back_needs_none_where_the_setting_says_so(
        self, alice: User, carol: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for spec in (A, B):
            change = opened(make_rule_set("web", **spec), by=alice)
            do(change, publishing.submit_change, alice)
            do(change, publishing.approve_change, carol)
            do(change, publishing.publish_change, alice)
        monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_roll_backs=False))
        change = publishing.propose_roll_back(to_number=1, by=alice, reason="wrong")
        edited = do(change, publishing.edit_change, alice, edits=[Edit.of(make_rule_set("more", **C))])
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(edited, publishing.publish_change, alice)
        assert publishing.roll_back(to_number=1, by=alice, reason="wrong").number == 3
        assert filters_of("web") == ["PodFitsHost"]


class TestBeside:
    def test_who_publishes_second_is_shown_both_sides_and_keeps_theirs(self) -> None:
        publish_all(make_rule_set("web", **A))
        first, second = opened(make_rule_set("web", **B)), opened(make_rule_set("web", **C))
        do(first, publishing.publish_change, "ops")
        (moved,) = publishing.moved_of(second)
        sides = [
            [rule.key for rule in side.spec.filters]
            for side in (moved.base, moved.live, moved.mine)
            if isinstance(side, engine.RuleSet)
        ]
        assert sides == [["PodFitsHost"], ["MatchNodeSelector"], ["PodToleratesNodeTaints"]]
        do(second, publishing.rebase_change, "ops", expected_revision=2)
        do(second, publishing.publish_change, "ops")
        assert filters_of("web") == ["PodToleratesNodeTaints"]

    def test_taking_theirs_gives_the_edit_up_and_leaves_the_others(self) -> None:
        publish_all(make_rule_set("web", **A))
        second = opened(make_rule_set("web", **C), make_rule_set("other", **C))
        publish_all(make_rule_set("web", **B))
        do(second, publishing.rebase_change, "ops", expected_revision=2, take_theirs=[("RuleSet", "web")])
        do(second, publishing.publish_change, "ops")
        assert (filters_of("web"), filters_of("other")) == (["MatchNodeSelector"], ["PodToleratesNodeTaints"])

    def test_edits_of_different_rules_are_put_together(self) -> None:
        room, host, taints = (
            {"builtin": name} for name in ("PodFitsResources", "PodFitsHost", "PodToleratesNodeTaints")
        )
        publish_all(make_rule_set("web", filters=[room]))
        second = opened(make_rule_set("web", filters=[room, host]))
        publish_all(make_rule_set("web", filters=[room, taints]))
        do(second, publishing.rebase_change, "ops", expected_revision=2, merge={("RuleSet", "web"): {}})
        do(second, publishing.publish_change, "ops")
        assert filters_of("web") == ["PodFitsResources", "PodFitsHost", "PodToleratesNodeTaints"]

    def test_an_edit_that_is_in_theirs_already_is_none_any_more_when_both_are_put_together(self) -> None:
        room, host, taints = (
            {"builtin": name} for name in ("PodFitsResources", "PodFitsHost", "PodToleratesNodeTaints")
        )
        publish_all(make_rule_set("web", filters=[room]))
        second = opened(make_rule_set("web", filters=[room, host]), make_rule_set("more"))
        publish_all(make_rule_set("web", filters=[room, host, taints]))
        do(second, publishing.rebase_change, "ops", expected_revision=2, merge={("RuleSet", "web"): {}})
        assert [edit.name for edit in publishing.edits_of(second)] == ["more"]
        do(second, publishing.publish_change, "ops")
        assert {each.name: each.version for each in live().rule_sets} == {"web": 2, "more": 1}
        assert not RuleSetVersion.objects.filter(state="draft").exists()

    def test_edits_of_one_rule_are_not_put_together(self) -> None:
        def weighted(weight: int) -> engine.RuleSet:
            return make_rule_set("web", scores=[{"builtin": "LeastRequestedPriority", "weight": weight}])

        publish_all(weighted(1))
        second = opened(weighted(2), make_priority_class("high", 2))
        publish_all(weighted(3), make_priority_class("high", 3))
        for key in (("RuleSet", "web"), ("PriorityClass", "high")):
            with pytest.raises(PublishingError, match=r"take .*theirs, or keep the edit"):
                do(second, publishing.rebase_change, "ops", expected_revision=2, merge={key: {}})
        assert len(publishing.moved_of(second)) == 2

    def test_of_what_both_changed_each_part_is_taken_as_chosen_and_the_rest_is_put_together(self) -> None:
        def pools(*labels: str, weight: int) -> engine.RuleSet:
            rules = [
                {"name": f"pool-{number}", "expression": f"node.metadata.name != '{label}'", "reason": "no"}
                for number, label in enumerate(labels)
            ]
            return make_rule_set("web", filters=rules, scores=[{"builtin": "LeastRequestedPriority", "weight": weight}])

        def rebased(chosen: dict[str, str]) -> Change:
            return do(second, publishing.rebase_change, "ops", expected_revision=2, merge={("RuleSet", "web"): chosen})

        publish_all(pools("a", "a", "a", weight=1))
        second = opened(pools("mine", "mine", "a", weight=2))
        publish_all(pools("theirs", "theirs", "theirs", weight=3))
        chosen = {"filters/pool-0": "mine", "filters/pool-1": "theirs"}
        with pytest.raises(PublishingError, match="choose a side for scores/LeastRequestedPriority") as refused:
            rebased(chosen)
        assert len(refused.value.messages) == 1
        with pytest.raises(PublishingError, match="filters/pool-2 wasn't changed on both sides"):
            rebased({**chosen, "scores/LeastRequestedPriority": "mine", "filters/pool-2": "mine"})
        rebased({**chosen, "scores/LeastRequestedPriority": "theirs"})
        assert "theirs of filters/pool-1" in second.events.get(act="rebase").text
        do(second, publishing.publish_change, "ops")
        (made,) = live().rule_sets
        assert engine.encode(made.spec) == engine.encode(pools("mine", "theirs", "theirs", weight=3).spec)

    def test_a_part_whose_name_nobody_sees_whole_can_be_chosen_too(self) -> None:
        def tested(node: str) -> engine.RuleSet:
            test = {
                "name": "un\u200bseen",
                "pod": {},
                "nodes": [{"metadata": {"name": node}}],
                "expect": {"feasible": [node]},
            }
            return make_rule_set("web", **A, tests=[test])

        publish_all(tested("a"))
        second = opened(tested("b"))
        publish_all(tested("c"))
        merge = {("RuleSet", "web"): {"tests/un\u200bseen": "mine"}}
        do(second, publishing.rebase_change, "ops", expected_revision=2, merge=merge)
        assert "mine of tests/un\\u200bseen" in second.events.get(act="rebase").text

    def test_a_command_rebases_part_by_part(self) -> None:
        def pool(label: str) -> engine.RuleSet:
            expression = f"node.metadata.name != '{label}'"
            return make_rule_set("web", filters=[{"name": "pool", "expression": expression, "reason": "no"}])

        publish_all(pool("a"), make_priority_class("high", 1))
        edits = [Edit.of(pool("mine")), Edit.of(make_priority_class("high", 2))]
        change = publishing.open_change(title="mine", edits=edits, by="ops")
        publish_all(pool("theirs"), make_priority_class("high", 3))
        out = io.StringIO()
        call_command("change", "show", change.pk, stdout=out)
        assert "both sides changed pool of filters: RuleSet/web/filters/pool" in out.getvalue()
        with pytest.raises(CommandError, match="choose a side for filters/pool"):
            call_command("change", "rebase", change.pk, merge=["RuleSet/web"])
        with pytest.raises(CommandError, match="--theirs 'web' names no object"):
            call_command("change", "rebase", change.pk, theirs=["web"])
        for sides in (
            {"mine": ["RuleSet/web/filters/pool"], "theirs": ["RuleSet/web"]},
            {"mine": ["RuleSet/web/filters/pool"], "theirs": ["RuleSet/web/filters/pool"]},
            {"merge": ["RuleSet/web"], "theirs": ["RuleSet/web"]},
        ):
            with pytest.raises(CommandError, match="contradicts another choice for RuleSet/web"):
                call_command("change", "rebase", change.pk, **sides)
        call_command(
            "change", "rebase", change.pk, mine=["RuleSet/web/filters/pool"], theirs=["PriorityClass/high"], stdout=out
        )
        assert [edit.key for edit in publishing.edits_of(change)] == [("RuleSet", "web")]
        assert publishing.moved_of(change) == []

    @pytest.mark.parametrize("side", ["theirs", "merge"])
    @pytest.mark.parametrize("what", ["RuleSet/wbe", "Ruleset/web", "RuleSet/beside", "Assignments/order"])
    def test_a_side_of_what_has_not_moved_is_refused(self, side: str, what: str) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("beside", **A))
        second = opened(make_rule_set("web", **B), make_rule_set("beside", **B))
        publish_all(make_rule_set("web", **C))
        before = Change.objects.get(pk=second.pk).digest
        with pytest.raises(CommandError, match=f"{what.replace('/', ' ')} hasn't moved since; what has: RuleSet web"):
            call_command("change", "rebase", second.pk, **{side: [what]})
        assert Change.objects.get(pk=second.pk).digest == before
        assert publishing.standing_of(second).moved == ("RuleSet web",)

    def test_what_others_did_elsewhere_needs_no_rebase(self) -> None:
        second = opened(make_rule_set("web", **C))
        publish_all(make_rule_set("other", **B))
        assert publishing.moved_of(second) == []
        do(second, publishing.publish_change, "ops")
        assert {each.name for each in live().rule_sets} == {"web", "other"}

    def test_a_rebase_of_what_has_not_moved_is_no_edit(
        self, reviewed: None, alice: User, bob: User, carol: User
    ) -> None:
        with free():
            publish_all(make_rule_set("data", **A))
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        with free():
            publish_all(make_rule_set("data", **B))
        do(change, publishing.rebase_change, bob, expected_revision=publishing.current_revision().number)
        standing = publishing.standing_of(Change.objects.get(pk=change.pk))
        assert (standing.state, standing.authors, standing.approved_by) == ("approved", {"alice"}, {"carol"})
        assert not change.events.filter(act="rebase").exists()
        with pytest.raises(PublishingError, match="RuleSet web hasn't moved since"):
            do(change, publishing.rebase_change, bob, expected_revision=2, take_theirs=[("RuleSet", "web")])

    def test_a_rebase_on_what_was_not_looked_at_is_refused(self) -> None:
        second = opened(make_rule_set("web", **C))
        publish_all(make_rule_set("web", **A))
        publish_all(make_rule_set("web", **B))
        with pytest.raises(PublishingError, match="Revision 2 was made since you looked"):
            do(second, publishing.rebase_change, "ops", expected_revision=1)

    def test_an_edit_over_an_edit_that_was_not_seen_is_refused(self) -> None:
        change = opened(make_rule_set("web", **A))
        seen = change.digest
        publishing.edit_change(
            change=change, edits=[Edit.of(make_rule_set("web", **B))], by="bob", expected_digest=seen
        )
        with pytest.raises(PublishingError, match="bob edited it"):
            publishing.edit_change(
                change=change, edits=[Edit.of(make_rule_set("web", **C))], by="ops", expected_digest=seen
            )
        (edit,) = publishing.edits_of(change)
        assert isinstance(edit.value, engine.RuleSet)
        assert [rule.key for rule in edit.value.spec.filters] == ["MatchNodeSelector"]

    def test_an_edit_over_ones_own_leaves_what_moved_meanwhile_to_be_looked_at(self) -> None:
        publish_all(make_rule_set("web", **A))
        change = opened(make_rule_set("web", **B))
        publish_all(make_rule_set("web", **C))
        edit = Edit.of(make_rule_set("web", filters=[TEAM_FILTER]))
        change = do(change, publishing.edit_change, "ops", edits=[edit])
        assert publishing.standing_of(change).moved == ("RuleSet web",)
        with pytest.raises(PublishingError, match="published another RuleSet web"):
            do(change, publishing.publish_change, "ops")

    def test_an_edit_that_it_holds_already_keeps_no_other_out(self) -> None:
        change = opened(make_rule_set("web", **A))
        edits = [Edit.of(make_rule_set("web", **A)), Edit.of(make_rule_set("new", **B))]
        change = do(change, publishing.edit_change, "ops", edits=edits)
        assert [edit.name for edit in publishing.edits_of(change)] == ["new", "web"]

    def test_an_edit_that_goes_back_to_what_is_live_takes_its_edit_out(self) -> None:
        publish_all(make_rule_set("web", **A))
        change = opened(make_rule_set("web", **B), make_rule_set("new", **B))
        do(change, publishing.edit_change, "ops", edits=[Edit.of(make_rule_set("web", **A))])
        assert [edit.name for edit in publishing.edits_of(change)] == ["new"]


class TestGoingBack:
    def test_one_rule_set_goes_back_to_an_older_version_and_nothing_else_does(self) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("other", **A))
        publish_all(make_rule_set("web", **B), make_rule_set("other", **B))
        first = RuleSetVersion.objects.get(rule_set__name="web", number=1)
        made = publishing.go_back(version=first, by="ops", reason="B was wrong")
        assert made.number == 3
        assert {each.name: each.version for each in live().rule_sets} == {"web": 1, "other": 2}
        assert filters_of("web") == ["PodFitsHost"]
        states = RuleSetVersion.objects.filter(rule_set__name="web").order_by("number").values_list("state", flat=True)
        assert list(states) == ["published", "superseded"]
        publish_all(make_rule_set("web", **C))
        assert {each.name: each.version for each in live().rule_sets}["web"] == 3

    def test_the_older_version_has_the_numbers_with_which_it_was_live(self) -> None:
        doubles = {"factor": 1e16, "limit": 1e300, "least": -0.0}
        publish(make_rule_set("web", **A, params=doubles))
        (before,) = live().rule_sets
        publish(make_rule_set("web", **B, params={"factor": 2.5}))
        publishing.go_back(version=RuleSetVersion.objects.get(number=1), by="ops", reason="B was wrong")
        (after,) = live().rule_sets
        assert engine.encode(after) == engine.encode(before)

    def test_what_is_live_is_no_way_back(self) -> None:
        publish(make_rule_set("web", **A))
        version = RuleSetVersion.objects.get()
        with pytest.raises(PublishingError, match="Nothing would change"):
            publishing.go_back(version=version, by="ops", reason="")

    def test_where_review_is_required_it_is_reviewed(self, reviewed: None, alice: User, carol: User) -> None:
        for spec in (A, B):
            change = opened(make_rule_set("web", **spec), by=alice)
            for act, by in (
                (publishing.submit_change, alice),
                (publishing.approve_change, carol),
                (publishing.publish_change, alice),
            ):
                do(change, act, by)
        first = RuleSetVersion.objects.get(number=1)
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            publishing.go_back(version=first, by=alice, reason="")
        change = publishing.propose_going_back(version=first, by=alice, reason="B was wrong")
        do(change, publishing.approve_change, carol)
        do(change, publishing.publish_change, alice)
        assert filters_of("web") == ["PodFitsHost"]


class TestWithdrawing:
    def test_its_authors_may_and_a_viewer_may_not(self, alice: User) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        with pytest.raises(PublishingError, match="dave may not withdraw it"):
            publishing.withdraw_change(change=change, by=person("dave", "Auditor"))
        assert publishing.withdraw_change(change=change, by=alice, text="not needed").state == "withdrawn"
        with pytest.raises(PublishingError, match=re.escape("It is withdrawn. Open another Change.")):
            do(change, publishing.publish_change, alice)

    def test_who_may_not_edit_opens_none(self) -> None:
        with pytest.raises(PublishingError, match=re.escape("dave may not edit; an Operator may.")):
            opened(make_rule_set("web", **A), by=person("dave", "Auditor"))
        assert not Change.objects.exists()

    def test_a_comment_needs_its_text_and_is_kept(self, alice: User) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        with pytest.raises(PublishingError, match="A comment needs its text"):
            publishing.comment_on_change(change=change, by=alice, text="")
        publishing.comment_on_change(change=change, by=alice, text="look at the taints")
        assert change.events.filter(act="comment").get().text == "look at the taints"
