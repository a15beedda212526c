"""How many have to approve, of which group; who is asked by name; what a token does for its owner."""

import io
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client

from policies import publishing
from policies.engine import ruleset as engine
from policies.models import Change, ReviewSetting, Revision, RuleSet, RuleSetVersion
from policies.publishing import Edit, OnBehalf, PublishingError
from policies.publishing.changes import open_roll_back
from tests.builders import make_assignment, make_exemption, make_priority_class, make_rule_set
from tests.component.pages import confirmed, get, publish_all, text_of
from tests.component.policies.people import person
from tests.component.policies.test_changes import A, B, C, do, free_publish, live, opened
from tests.component.rest.asking import ask, told

pytestmark = pytest.mark.django_db


def in_review(*values: Any, by: Any) -> Change:
    change = opened(*values, by=by)
    return do(change, publishing.submit_change, by)


def into(group: str, *users: User) -> None:
    made, _ = Group.objects.get_or_create(name=group)
    for user in users:
        user.groups.add(made)


class TestSettings:
    def test_a_rule_sets_setting_asks_for_review_where_nothing_else_does(self, alice: User, carol: User) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("batch", **A))
        publishing.set_review(rule_set="web", approvals=1, by="root")
        web, batch = opened(make_rule_set("web", **B), by=alice), opened(make_rule_set("batch", **B), by=alice)
        assert do(batch, publishing.publish_change, alice).number == 2
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(web, publishing.publish_change, alice)
        do(web, publishing.submit_change, alice)
        do(web, publishing.approve_change, carol)
        assert do(web, publishing.publish_change, alice).number == 3

    def test_no_door_goes_round_it(self, alice: User) -> None:
        publish_all(make_rule_set("web", **A))
        publishing.set_review(rule_set="web", approvals=1, by="root")
        version, web = RuleSetVersion.objects.get(), RuleSet.objects.get()
        doors = [
            lambda: publish_all(make_rule_set("web", **B), by=alice),
            lambda: publish_all(make_assignment("all", "web"), by=alice),
            lambda: publishing.archive(rule_set=web, by=alice, reason=""),
        ]
        for door in doors:
            with pytest.raises(PublishingError, match="It needs 1 more approval"):
                door()
        with pytest.raises(PublishingError, match="Nothing would change"):
            publishing.go_back(version=version, by=alice, reason="")
        assert publish_all(make_priority_class(), by=alice).number == 2

    def test_the_stricter_wins_and_each_rule_set_that_is_touched_has_its_say(
        self, reviewed: None, alice: User, carol: User, dave: User
    ) -> None:
        for name, approvals in (("web", 2), ("data", 1)):
            RuleSet.objects.create(name=name)
            publishing.set_review(rule_set=name, approvals=approvals, by="root")
        both = in_review(make_rule_set("web", **A), make_rule_set("data", **A), by=alice)
        data = in_review(make_rule_set("data", **A), by=alice)
        assert do(both, publishing.approve_change, carol).state == "in_review"
        assert do(data, publishing.approve_change, carol).state == "approved"
        assert do(both, publishing.approve_change, dave).state == "approved"

    def test_an_assignment_touches_the_rule_sets_that_it_gives_and_gave(self, alice: User) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("data", **A), make_assignment("all", "web"))
        publishing.set_review(rule_set="web", approvals=1, by="root")
        away = opened(make_assignment("all", "data"), by=alice)
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(away, publishing.publish_change, alice)

    def test_an_exemption_and_a_pause_touch_the_rule_set_that_they_are_about(self, alice: User) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("data", **A))
        publishing.set_review(rule_set="web", approvals=1, by="root")
        for number, target in enumerate(("RuleSet/web", "RuleSet/web/PodFitsHost", "RuleSet/data")):
            pause = engine.Pause(name=f"p{number}", target=target, reason="x")
            change = opened(pause, by=alice)
            assert publishing.standing_of(change).needed == (target != "RuleSet/data")
            assert publishing.needs_review([Edit.of(pause)]) == (target != "RuleSet/data")

    @pytest.mark.parametrize(
        ("edit", "touched"),
        [
            (Edit.of(make_rule_set("new", **A)), {"new"}),
            (Edit("RuleSet", "old", None), {"old"}),
            (Edit.of(make_assignment("all", "data")), {"web", "data"}),
            (Edit("Assignment", "all", None), {"web"}),
            (Edit.of(engine.Pause(name="p", target="everything", reason="x")), {"web", "data", "old"}),
            (Edit.of(engine.Pause(name="p", target="Assignment/all", reason="x")), {"web"}),
            (Edit("Pause", "paused", None), {"data"}),
            (Edit.of(engine.Pause(name="paused", target="RuleSet/old", reason="x")), {"data", "old"}),
            (Edit.of(make_exemption("more", "RuleSet/web/PodFitsHost")), {"web"}),
            (Edit("Exemption", "cart", None), {"old"}),
            (Edit.of(make_priority_class("high", value=1)), set()),
        ],
    )
    def test_review_and_gate_ask_for_the_same_rule_sets_of_a_change_and_of_its_edits(
        self, alice: User, edit: Edit, touched: set[str]
    ) -> None:
        publish_all(
            *(make_rule_set(name, **A) for name in ("web", "data", "old")),
            make_assignment("all", "web"),
            make_assignment("another", "old", order=1),
            engine.Pause(name="paused", target="RuleSet/data", reason="x"),
            make_exemption("cart", "RuleSet/old"),
        )
        change = publishing.open_change(title="t", edits=[edit], by=alice)
        assert publishing.rule_sets_touched(change, live()) == publishing.rule_sets_of([edit], live()) == touched

    def test_only_approvals_of_the_group_count_for_it(
        self, reviewed: None, alice: User, carol: User, dave: User
    ) -> None:
        RuleSet.objects.create(name="web")
        into("Payments", dave)
        publishing.set_review(rule_set="web", approvals=1, group="Payments", by="root")
        change = in_review(make_rule_set("web", **A), by=alice)
        assert do(change, publishing.approve_change, carol).state == "in_review"
        with pytest.raises(PublishingError, match="For rule set web it needs 1 more approval from Payments"):
            do(change, publishing.publish_change, alice)
        assert do(change, publishing.approve_change, dave).state == "approved"
        dave.groups.remove(Group.objects.get(name="Payments"))
        with pytest.raises(PublishingError, match="of Payments"):
            do(change, publishing.publish_change, alice)

    def test_a_group_that_is_renamed_or_gone_is_said(self, reviewed: None, alice: User, dave: User) -> None:
        RuleSet.objects.create(name="web")
        into("Payments", dave)
        publishing.set_review(rule_set="web", approvals=1, group="Payments", by="root")
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.approve_change, dave)
        Group.objects.filter(name="Payments").update(name="Money")
        gone = (
            "1 more approval from Payments. There is no such group any more: an administrator has to name another one"
        )
        with pytest.raises(PublishingError, match=gone):
            do(change, publishing.publish_change, alice)
        publishing.set_review(rule_set="web", approvals=1, group="Money", by="root")
        do(change, publishing.publish_change, alice)

    def test_a_group_with_too_few_who_may_approve_is_said(self, reviewed: None, alice: User, dave: User) -> None:
        RuleSet.objects.create(name="web")
        into("Payments", alice)
        publishing.set_review(rule_set="web", approvals=2, group="Payments", by="root")
        change = in_review(make_rule_set("web", **A), by=alice)
        with pytest.raises(PublishingError, match=r"2 more approvals from Payments\. Nobody of Payments may approve"):
            do(change, publishing.publish_change, alice)
        into("Payments", dave)
        with pytest.raises(PublishingError, match=r"2 more approvals from Payments\. Only 1 of Payments may approve"):
            do(change, publishing.publish_change, alice)
        into("Payments", person("frank", "Approver"))
        assert "Only" not in " ".join(publishing.standing_of(change).missing)

    def test_a_group_with_too_few_besides_those_who_edited_it_is_said(
        self, reviewed: None, alice: User, carol: User, dave: User
    ) -> None:
        RuleSet.objects.create(name="web")
        into("Payments", carol)
        into("Payments", dave)
        carol.groups.add(Group.objects.get(name="Operator"))
        publishing.set_review(rule_set="web", approvals=2, group="Payments", by="root")
        assert "Only" not in " ".join(publishing.standing_of(in_review(make_rule_set("web", **A), by=alice)).missing)
        change = in_review(make_rule_set("web", **B), by=carol)
        said = "Only 1 of Payments may approve, not counting those who edited it."
        assert said in " ".join(publishing.standing_of(change).missing)
        erin = person("erin", "Emergency")
        for group in ("Approver", "Payments"):
            into(group, erin)
        do(change, publishing.publish_urgently, erin, reason="fire")
        said = "Only 1 of Payments may approve, not counting those who edited or published it."
        assert said in " ".join(publishing.standing_of(change).missing)

    def test_a_setting_holds_for_what_is_approved_already(
        self, reviewed: None, alice: User, carol: User, dave: User
    ) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.approve_change, carol)
        publishing.set_review(approvals=2, by="root")
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(change, publishing.publish_change, alice)
        do(change, publishing.approve_change, dave)
        assert do(change, publishing.publish_change, alice)

    def test_roll_backs_are_free_only_where_every_setting_says_so(
        self, alice: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for spec in (A, B):
            publish_all(make_rule_set("web", **spec))
        looser = msgspec.structs.replace(settings.BERTH, review_required=True, review_roll_backs=False)
        monkeypatch.setattr(settings, "BERTH", looser)
        publishing.set_review(rule_set="web", approvals=1, by="root")
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            publishing.roll_back(to_number=1, by=alice, reason="x")
        publishing.set_review(rule_set="web", approvals=1, roll_backs=False, by="root")
        made = publishing.roll_back(to_number=1, by=alice, reason="x")
        assert made
        assert made.number == 3

    def test_who_set_what_and_when_is_kept_and_the_newest_holds(self, alice: User) -> None:
        root = User.objects.create_superuser("root")
        publishing.set_review(approvals=2, by=root, reason="audit")
        publishing.set_review(approvals=0, by=root, reason="audit is over")
        assert [(row.set_by, row.approvals, row.reason) for row in ReviewSetting.objects.all()] == [
            ("root", 0, "audit is over"),
            ("root", 2, "audit"),
        ]
        assert [row.approvals for row in publishing.review_settings()] == [0]
        assert publishing.needs_of(()) == []

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ({"rule_set": "none", "approvals": 1}, "There is no rule set none."),
            ({"approvals": 1, "group": "none"}, "There is no group none"),
            ({"approvals": 0, "group": "Approver"}, "Say how many people of Approver"),
            ({"approvals": 99}, "99 isn't a number of approvals"),
        ],
    )
    def test_what_can_not_be_met_is_refused(self, wrong: dict[str, Any], said: str) -> None:
        with pytest.raises(PublishingError, match=said):
            publishing.set_review(by="root", **wrong)

    def test_only_administrators_change_them(self, alice: User, carol: User) -> None:
        for user in (alice, carol):
            with pytest.raises(PublishingError, match="an administrator may"):
                publishing.set_review(approvals=0, by=user)
        assert not ReviewSetting.objects.exists()


@pytest.mark.usefixtures("reviewed")
class TestAsking:
    def test_who_is_asked_is_waited_for_until_they_approve(self, alice: User, carol: User, dave: User) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        for name in ("carol", "dave"):
            publishing.ask_for_review(change=change, by=alice, whom=name)
        assert [(each.name, each.asked_by) for each in publishing.waiting_for(change)] == [
            ("carol", "alice"),
            ("dave", "alice"),
        ]
        assert [found for found, _ in publishing.changes_waiting_for("carol")] == [change]
        do(change, publishing.approve_change, carol)
        change.refresh_from_db()
        assert publishing.waiting_for(change) == []
        assert publishing.changes_waiting_for("dave") == []

    @pytest.mark.parametrize("gone", ["role", "account"])
    def test_who_was_asked_and_may_not_approve_any_more_is_not_waited_for(
        self, alice: User, carol: User, dave: User, gone: str
    ) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        for name in ("carol", "dave"):
            publishing.ask_for_review(change=change, by=alice, whom=name)
        if gone == "role":
            carol.groups.clear()
        else:
            User.objects.filter(pk=carol.pk).update(is_active=False)
        assert [each.name for each in publishing.waiting_for(change)] == ["dave"]
        assert publishing.changes_waiting_for("carol") == []

    def test_who_was_asked_has_nothing_to_do_until_a_moved_change_is_rebased(
        self, alice: User, carol: User, dave: User
    ) -> None:
        first, second = (in_review(make_rule_set("web", **rules), by=alice) for rules in (A, B))
        publishing.ask_for_review(change=second, by=alice, whom="carol")
        do(first, publishing.approve_change, dave)
        do(first, publishing.publish_change, alice)
        assert publishing.changes_waiting_for("carol") == []
        do(second, publishing.rebase_change, alice, expected_revision=1)
        assert [found for found, _ in publishing.changes_waiting_for("carol")] == [second]

    def test_an_edit_makes_it_wait_again_since_then(self, alice: User, carol: User, dave: User) -> None:
        publishing.set_review(approvals=2, by="root")
        change = in_review(make_rule_set("web", **A), by=alice)
        publishing.ask_for_review(change=change, by=alice, whom="carol")
        do(change, publishing.approve_change, carol)
        change.refresh_from_db()
        assert publishing.waiting_for(change) == []
        change = do(change, publishing.edit_change, alice, edits=[Edit.of(make_rule_set("web", **B))])
        (waiting,) = publishing.waiting_for(change)
        assert (waiting.name, waiting.since) == ("carol", change.events.get(act="edit").at)

    def test_a_rejection_makes_who_approved_wait_again_since_then(self, alice: User, carol: User, dave: User) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        publishing.ask_for_review(change=change, by=alice, whom="carol")
        do(change, publishing.approve_change, carol)
        do(change, publishing.reject_change, dave, text="no")
        publishing.reopen_change(change=change, by=alice)
        change = do(change, publishing.submit_change, alice)
        (waiting,) = publishing.waiting_for(change)
        assert (waiting.name, waiting.since) == ("carol", change.events.get(act="reject").at)

    def test_an_emergency_makes_who_approved_wait_again_since_then(self, alice: User, carol: User) -> None:
        publishing.set_review(approvals=2, by="root")
        change = in_review(make_rule_set("web", **A), by=alice)
        publishing.ask_for_review(change=change, by=alice, whom="carol")
        do(change, publishing.approve_change, carol)
        do(change, publishing.publish_urgently, person("erin", "Emergency"), reason="fire")
        change.refresh_from_db()
        (waiting,) = publishing.waiting_for(change)
        assert (waiting.name, waiting.since) == ("carol", change.events.get(act="urgent").at)
        do(change, publishing.approve_change, carol)
        with pytest.raises(PublishingError, match="carol has approved its current result"):
            do(change, publishing.approve_change, carol)
        assert publishing.waits_for_approval_afterwards(change)

    def test_who_published_it_in_an_emergency_is_not_waited_for(self, alice: User, carol: User, dave: User) -> None:
        dave.groups.add(Group.objects.get(name="Emergency"))
        change = in_review(make_rule_set("web", **A), by=alice)
        for name in ("carol", "dave"):
            publishing.ask_for_review(change=change, by=alice, whom=name)
        do(change, publishing.publish_urgently, User.objects.get(pk=dave.pk), reason="fire")
        change.refresh_from_db()
        assert [each.name for each in publishing.waiting_for(change)] == ["carol"]
        assert publishing.changes_waiting_for("dave") == []

    def test_who_has_edited_it_since_is_not_waited_for(self, alice: User, carol: User, dave: User) -> None:
        carol.groups.add(Group.objects.get(name="Operator"))
        change = in_review(make_rule_set("web", **A), by=alice)
        for name in ("carol", "dave"):
            publishing.ask_for_review(change=change, by=alice, whom=name)
        edits = [Edit.of(make_rule_set("web", **B))]
        change = do(change, publishing.edit_change, User.objects.get(pk=carol.pk), edits=edits)
        assert [each.name for each in publishing.waiting_for(change)] == ["dave"]
        assert publishing.changes_waiting_for("carol") == []

    def test_what_waits_longest_comes_first(self, alice: User, carol: User) -> None:
        changes = [in_review(make_rule_set(name, **A), by=alice) for name in ("web", "data", "batch")]
        asked = [changes[n] for n in (1, 0, 2)]
        for change in asked:
            publishing.ask_for_review(change=change, by=alice, whom="carol")
        assert [found for found, _ in publishing.changes_waiting_for("carol")] == asked

    def test_who_can_not_approve_it_can_not_be_asked(self, alice: User, carol: User) -> None:
        carol.groups.add(Group.objects.get(name="Operator"))
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.edit_change, User.objects.get(pk=carol.pk), edits=[Edit.of(make_rule_set("web", **B))])
        for whom, said in (
            ("carol", "nobody can approve what they edited"),
            ("alice", "may not approve Changes"),
            ("nobody", "There is no account nobody"),
        ):
            with pytest.raises(PublishingError, match=said):
                publishing.ask_for_review(change=change, by=alice, whom=whom)

    def test_who_has_approved_it_is_not_asked(self, alice: User, carol: User) -> None:
        publishing.set_review(approvals=2, by="root")
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.approve_change, carol)
        with pytest.raises(PublishingError, match="carol has approved its current result"):
            publishing.ask_for_review(change=change, by=alice, whom="carol")

    def test_nobody_is_asked_twice_and_drafts_wait_for_nobody(self, alice: User, carol: User) -> None:
        draft = opened(make_rule_set("web", **A), by=alice)
        with pytest.raises(PublishingError, match="Send it to review first"):
            publishing.ask_for_review(change=draft, by=alice, whom="carol")
        do(draft, publishing.submit_change, alice)
        publishing.ask_for_review(change=draft, by=alice, whom="carol")
        with pytest.raises(PublishingError, match="carol was asked already"):
            publishing.ask_for_review(change=draft, by=alice, whom="carol")

    def test_who_is_renamed_is_asked_still(self, alice: User, carol: User) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        publishing.ask_for_review(change=change, by=alice, whom="carol")
        for name in ("alice", "carol"):
            User.objects.filter(username=name).update(username=f"{name}-new")
        assert [(each.name, each.asked_by) for each in publishing.waiting_for(change)] == [("carol-new", "alice-new")]
        assert [found for found, _ in publishing.changes_waiting_for("carol-new")] == [change]
        assert publishing.changes_waiting_for("carol") == []
        with pytest.raises(PublishingError, match="carol-new was asked already"):
            publishing.ask_for_review(change=change, by=User.objects.get(pk=alice.pk), whom="carol-new")
        do(change, publishing.approve_change, User.objects.get(pk=carol.pk))
        assert publishing.changes_waiting_for("carol-new") == []

    def test_an_emergency_can_ask_for_its_approval_afterwards(self, alice: User, carol: User) -> None:
        erin = person("erin", "Emergency")
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.publish_urgently, erin, reason="fire")
        change.refresh_from_db()
        publishing.ask_for_review(change=change, by=alice, whom="carol")
        assert [found for found, _ in publishing.changes_waiting_for("carol")] == [change]


@pytest.mark.usefixtures("reviewed")
class TestApprovals:
    def test_a_rejection_ends_the_approvals_before_it(self, alice: User, carol: User, dave: User) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.approve_change, carol)
        do(change, publishing.reject_change, dave, text="no")
        publishing.reopen_change(change=change, by=alice)
        assert do(change, publishing.submit_change, alice).state == "in_review"
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(change, publishing.publish_change, alice)

    @pytest.mark.parametrize(
        ("lost", "why"),
        [
            ("switched off", "the account is inactive"),
            ("role", "that account may not approve Changes now"),
            ("account", "the account is gone"),
        ],
    )
    def test_who_may_not_approve_any_more_approves_nothing_and_the_page_says_why(
        self, operator: Client, alice: User, carol: User, dave: User, lost: str, why: str
    ) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.approve_change, carol)
        match lost:
            case "switched off":
                User.objects.filter(username="carol").update(is_active=False)
            case "role":
                carol.groups.clear()
            case _:
                carol.delete()
        said = f"The approval of carol doesn't count any more: {why}."
        with pytest.raises(PublishingError, match="It needs 1 more approval") as refused:
            do(change, publishing.publish_change, alice)
        assert said in str(refused.value)
        page = text_of(get(operator, f"/admin/policies/change/{change.pk}/change/"))
        assert said in page
        assert "0 of 1 approval" in page
        short = "approved, but no longer by enough people"
        assert short in text_of(get(operator, "/admin/policies/change/"))
        assert short in text_of(get(operator, "/admin/"))
        assert f"Change, {short}: " in get(operator, f"/admin/search/?extended=1&s={change.pk}").content.decode()
        assert told(ask(operator, "get", "/changes"))["results"][0]["is_short"]
        listed = io.StringIO()
        call_command("change", "list", stdout=listed)
        assert short in listed.getvalue()
        do(change, publishing.approve_change, dave)
        assert do(change, publishing.publish_change, alice).number == 1

    @pytest.mark.parametrize("rule_set", ["", "web"])
    def test_approvals_that_no_longer_suffice_by_a_stricter_setting_are_said_everywhere(
        self, operator: Client, alice: User, carol: User, dave: User, rule_set: str
    ) -> None:
        change, other = in_review(make_rule_set("web", **A), by=alice), in_review(make_rule_set("data", **A), by=alice)
        for each in (change, other):
            do(each, publishing.approve_change, carol)
        assert publishing.short_of_approvals(Change.objects.all()) == set()
        publishing.set_review(rule_set=rule_set, approvals=2, by=User.objects.create_superuser("root"))
        assert publishing.short_of_approvals(Change.objects.all()) == {change.pk, *([] if rule_set else [other.pk])}
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(change, publishing.publish_change, alice)
        short = "approved, but no longer by enough people"
        number = 1 if rule_set else 2
        shown = text_of(get(operator, "/admin/policies/change/"))
        assert (shown.count(short), shown.count("anybody who may approve")) == (number, number)
        assert text_of(get(operator, "/admin/")).count(short) == number
        assert f"Change, {short}: " in get(operator, f"/admin/search/?extended=1&s={change.pk}").content.decode()
        listed = {each["number"]: each["is_short"] for each in told(ask(operator, "get", "/changes"))["results"]}
        assert listed == {change.pk: True, other.pk: not rule_set}
        out = io.StringIO()
        call_command("change", "list", stdout=out)
        assert out.getvalue().count(short) == number
        publishing.ask_for_review(change=change, by=alice, whom="dave")
        assert [found for found, _ in publishing.changes_waiting_for("dave")] == [change]
        do(change, publishing.approve_change, dave)
        assert publishing.changes_waiting_for("dave") == []
        with pytest.raises(PublishingError, match=r"It is approved\. Publish it\.$"):
            publishing.ask_for_review(change=change, by=alice, whom="carol")
        assert short not in get(operator, f"/admin/search/?extended=1&s={change.pk}").content.decode()

    def test_who_has_the_right_again_has_approved_again(self, alice: User, carol: User) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.approve_change, carol)
        assert publishing.short_of_approvals([change]) == set()
        carol.groups.clear()
        assert publishing.standing_of(change).counting == set()
        carol.groups.add(Group.objects.get(name="Approver"))
        assert do(change, publishing.publish_change, alice).number == 1

    def test_a_new_account_of_the_name_approves_for_itself(self, alice: User, carol: User) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.approve_change, carol)
        carol.delete()
        again = person("carol", "Approver")
        assert publishing.standing_of(change).counting == set()
        do(change, publishing.approve_change, again)
        standing = publishing.standing_of(change)
        assert (standing.counting, standing.lapsed) == ({"carol"}, ())

    def test_what_was_approved_after_an_emergency_stays_so_when_its_approver_leaves(
        self, alice: User, carol: User
    ) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.publish_urgently, person("erin", "Emergency"), reason="fire")
        do(change, publishing.approve_change, carol)
        carol.delete()
        assert publishing.unapproved_changes() == []

    @pytest.mark.parametrize("later", ["another group", "the account goes", "more are needed"])
    def test_what_was_approved_after_an_emergency_stays_so_whatever_is_needed_later(
        self, alice: User, carol: User, later: str
    ) -> None:
        change = in_review(make_rule_set("web", **A), by=alice)
        into("Payments", carol)
        publishing.set_review(rule_set="web", approvals=1, group="Payments", by="root")
        do(change, publishing.publish_urgently, person("erin", "Emergency"), reason="fire")
        do(change, publishing.approve_change, carol)
        assert publishing.unapproved_changes() == []
        match later:
            case "another group":
                carol.groups.remove(Group.objects.get(name="Payments"))
            case "the account goes":
                carol.delete()
            case _:
                publishing.set_review(approvals=2, by="root")
        assert publishing.unapproved_changes() == []

    def test_an_approval_that_no_longer_counted_before_an_emergency_counts_no_more_behind_it(
        self, alice: User, carol: User, dave: User
    ) -> None:
        publishing.set_review(approvals=2, by=User.objects.create_superuser("root"))
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.approve_change, carol)
        carol.groups.clear()
        do(change, publishing.publish_urgently, person("erin", "Emergency"), reason="fire")
        do(change, publishing.approve_change, dave)
        assert publishing.unapproved_changes() == [change.pk]
        do(change, publishing.approve_change, person("frank", "Approver"))
        assert publishing.unapproved_changes() == []

    def test_one_of_two_approvals_after_an_emergency_no_longer_counts_when_its_approver_leaves(
        self, alice: User, carol: User, dave: User
    ) -> None:
        publishing.set_review(approvals=2, by="root")
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.publish_urgently, person("erin", "Emergency"), reason="fire")
        do(change, publishing.approve_change, carol)
        User.objects.filter(pk=carol.pk).update(is_active=False)
        do(change, publishing.approve_change, dave)
        assert publishing.unapproved_changes() == [change.pk]
        said = "The approval of carol doesn't count any more: the account is inactive."
        assert said in publishing.standing_of(Change.objects.get(pk=change.pk)).missing
        do(change, publishing.approve_change, person("frank", "Approver"))
        assert publishing.unapproved_changes() == []

    def test_an_emergency_is_looked_at_afterwards_even_where_it_was_approved(self, alice: User, carol: User) -> None:
        erin = person("erin", "Emergency")
        change = in_review(make_rule_set("web", **A), by=alice)
        do(change, publishing.approve_change, carol)
        do(change, publishing.publish_urgently, erin, reason="the gate can't look")
        assert publishing.unapproved_changes() == [change.pk]
        do(change, publishing.approve_change, carol)
        assert publishing.unapproved_changes() == []

    def test_a_token_acts_for_its_owner_and_never_for_more(self, alice: User) -> None:
        alice.groups.add(Group.objects.get(name="Approver"))
        alice = User.objects.get(pk=alice.pk)
        edits, reviews = OnBehalf(alice, "ci", frozenset({"edit"})), OnBehalf(alice, "bot", frozenset({"review"}))
        change = opened(make_rule_set("web", **A), by=edits)
        event = change.events.get()
        assert (event.by, event.by_user, event.via) == ("alice", alice, "ci")
        with pytest.raises(PublishingError, match="alice may not do this by bot: it doesn't have the scope edit"):
            opened(make_rule_set("web", **C), by=reviews)
        do(change, publishing.submit_change, edits)
        for by in (reviews, alice):
            with pytest.raises(PublishingError, match="nobody can approve what they edited"):
                do(change, publishing.approve_change, by)
        assert not Revision.objects.exists()

    def test_a_token_of_somebody_who_may_not_approve_does_not_either(self, alice: User) -> None:
        change = in_review(make_rule_set("web", **A), by="ops")
        token = OnBehalf(alice, "bot", frozenset({"edit", "review", "publish"}))
        with pytest.raises(PublishingError, match="alice may not approve"):
            do(change, publishing.approve_change, token)

    def test_a_roll_back_by_its_page_goes_as_far_as_it_may(
        self, operator: Any, alice: User, carol: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for spec in (A, B):
            change = in_review(make_rule_set("web", **spec), by=alice)
            do(change, publishing.approve_change, carol)
            do(change, publishing.publish_change, alice)
        monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_roll_backs=False))
        assert "Revision 3 was made" in confirmed(operator, "/admin/policies/revision/1/roll_back/", "wrong")
        assert [each.version for each in live().rule_sets] == [1]

    def test_an_edited_roll_back_needs_what_any_change_needs(
        self, alice: User, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        free_publish(make_rule_set("web", **A))
        free_publish(make_rule_set("web", **B))
        berth = msgspec.structs.replace(settings.BERTH, review_required=True, review_roll_backs=False)
        monkeypatch.setattr(settings, "BERTH", berth)
        change = open_roll_back(to_number=1, by=alice, reason="wrong")
        assert change is not None
        assert publishing.standing_of(change).missing == []
        do(change, publishing.edit_change, alice, edits=[Edit.of(make_rule_set("new", **A))])
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
            do(change, publishing.publish_change, alice)

    @pytest.mark.usefixtures("reviewed")
    def test_a_single_act_that_is_in_review_already_is_not_sent_there_twice(self, alice: User, carol: User) -> None:
        for spec in (A, B):
            change = in_review(make_rule_set("web", **spec), by=alice)
            do(change, publishing.approve_change, carol)
            do(change, publishing.publish_change, alice)
        first = publishing.propose_roll_back(to_number=1, by=alice, reason="wrong")
        said = f"{first} of alice has the same result and is already in review: approve or publish that one"
        bob = person("bob", "Operator")
        for by in (alice, bob):
            with pytest.raises(PublishingError, match=said):
                publishing.bring_back(to_number=1, by=by, reason="wrong")
        publishing.pause(target="everything", by=alice, reason="storm")
        with pytest.raises(PublishingError, match="has the same result and is already in review"):
            publishing.pause(target="everything", by=bob, reason="storm")
        assert Change.objects.filter(state="in_review").count() == 2
        do(first, publishing.approve_change, carol)
        with pytest.raises(PublishingError, match=said):
            publishing.bring_back(to_number=1, by=bob, reason="wrong")
        # What was rejected may be proposed anew.
        do(first, publishing.reject_change, carol, text="not now")
        assert publishing.propose_roll_back(to_number=1, by=alice, reason="wrong").state == "in_review"
