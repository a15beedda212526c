"""Changes that go live at a time and back at another: once, late after an outage, and never over somebody else's work."""

import re
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.models import Change, ChangeEvent, GateRun, Revision, RuleSet, RuleSetVersion
from policies.publishing import Edit, OnBehalf, PublishingError, schedules
from tests.builders import make_assignment, make_exemption, make_pause, make_priority_class, make_rule_set
from tests.component.pages import get, publish_all, text_of
from tests.component.policies.test_changes import A, B, C, do, filters_of, free, live, opened, person
from tests.component.policies.test_publishing import _at_once as at_once

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


@pytest.fixture
def reviewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=True))


@pytest.fixture
def now() -> datetime:
    return timezone.now()


@pytest.fixture
def alice() -> User:
    return person("alice", "Operator")


@pytest.fixture
def carol() -> User:
    return person("carol", "Approver")


def scheduled(change: Change, by: Any, at: datetime, back_at: datetime | None = None) -> Change:
    if back_at:
        do(change, publishing.set_expiry, by, expires_at=back_at)
    return do(change, publishing.schedule_change, by, publish_at=at)


def tick(at: datetime) -> list[str]:
    return publishing.publish_due(now=at)


def fresh(change: Change) -> Change:
    return Change.objects.get(pk=change.pk)


class TestGoingLive:
    def test_it_goes_live_at_its_time_and_not_before_and_once(self, alice: User, now: datetime) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        assert tick(now + HOUR - timedelta(seconds=1)) == []
        assert [*publishing.scheduled_changes()] == [change]
        assert tick(now + HOUR) == [f"{change} made Revision 1"]
        assert tick(now + HOUR) == tick(now + DAY) == []
        assert not publishing.scheduled_changes().exists()
        made = Revision.objects.get()
        assert (made.made_by, made.made_by_user) == ("alice", alice)
        assert "scheduled by alice for" in made.reason
        assert "late" not in made.reason

    def test_it_goes_live_by_its_account_when_the_token_that_set_the_time_is_over(
        self, alice: User, now: datetime
    ) -> None:
        token = OnBehalf(alice, "token ci (abcdefgh)", frozenset({"publish"}))
        scheduled(opened(make_rule_set("web", **A), by=alice), token, now + HOUR)
        # Nothing of the token is asked then: it may be revoked, or gone.
        tick(now + HOUR)
        assert Revision.objects.get().made_by_user == alice

    @pytest.mark.parametrize("kind", ["RuleSet", "Assignment", "Pause", "Exemption", "PriorityClass"])
    def test_one_that_a_newer_berth_wrote_is_held_back_and_stops_no_other(
        self, alice: User, operator: Client, now: datetime, kind: str
    ) -> None:
        publish_all(make_rule_set("web", **A))
        values = {
            "RuleSet": make_rule_set("web", **B),
            "Assignment": make_assignment("all", "web"),
            "Pause": make_pause(),
            "Exemption": make_exemption(),
            "PriorityClass": make_priority_class(),
        }
        newer = scheduled(opened(values[kind], by=alice), alice, now + HOUR)
        publish_all(make_assignment("first", "web"))
        newer.edits.update(document='{"name": [], "target": [], "ruleSet": [], "order": []}')
        other = scheduled(opened(make_rule_set("other", **A), by=alice), alice, now + HOUR)
        made, held = tick(now + HOUR)
        assert made == f"{other} made Revision 3"
        assert held.startswith(f"{newer} is held back: {kind} ")
        assert held.endswith(
            "can't be read: it was written by a newer version of Berth. Upgrade, or withdraw the Change."
        )
        for url in ("/admin/policies/change/", f"/admin/policies/change/{newer.pk}/change/", "/admin/"):
            assert get(operator, url).status_code == 200
        assert do(newer, publishing.withdraw_change, alice).state == "withdrawn"

    def test_a_pause_is_given_no_time_at_its_end_or_after_it(self, alice: User, now: datetime) -> None:
        publish_all(make_rule_set("web", **A))
        end = now.replace(microsecond=0) + HOUR
        change = opened(make_pause(until=f"{end:%Y-%m-%dT%H:%M:%SZ}"), by=alice)
        for at in (end, now + DAY):
            with pytest.raises(
                PublishingError, match=r"Pause web-paused ends at .*nothing out of force\. Set a time before that"
            ):
                do(change, publishing.schedule_change, alice, publish_at=at)
        assert scheduled(change, alice, now + HOUR / 2).publish_at == now + HOUR / 2

    def test_after_an_outage_it_is_caught_up_once_and_said_to_be_late(self, alice: User, now: datetime) -> None:
        first = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        second = scheduled(opened(make_rule_set("data", **A), by=alice), alice, now + 2 * HOUR)
        assert tick(now + 3 * HOUR) == [
            f"{first} made Revision 1, late by 120 minutes",
            f"{second} made Revision 2, late by 60 minutes",
        ]
        assert "late by 120 minutes" in Revision.objects.get(number=1).reason

    @pytest.mark.usefixtures("reviewed")
    def test_what_is_not_approved_is_held_back_and_says_why(self, alice: User, carol: User, now: datetime) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        do(change, publishing.submit_change, alice)
        assert "is held back: It needs 1 approval more" in tick(now + HOUR)[0]
        assert "did not: It needs 1 approval more" in fresh(change).held
        assert list(publishing.held_changes()) == [change]
        assert fresh(change).events.filter(act="hold").count() == 1
        # Approved afterwards it doesn't go live out of the blue: somebody publishes it, or sets a time again.
        do(change, publishing.approve_change, carol)
        assert tick(now + 2 * HOUR) == []
        scheduled(change, alice, now + 3 * HOUR)
        assert fresh(change).held == ""
        assert tick(now + 3 * HOUR) == [f"{change} made Revision 1"]

    @pytest.mark.usefixtures("reviewed")
    def test_approved_in_time_it_goes_live(self, alice: User, carol: User, now: datetime) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.submit_change, alice)
        scheduled(change, alice, now + HOUR)
        do(change, publishing.approve_change, carol)
        tick(now + HOUR)
        assert fresh(change).state == "published"

    def test_an_edit_after_the_time_was_set_ends_it(self, alice: User, now: datetime) -> None:
        bob = person("bob", "Operator")
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        assert publishing.holds_schedule(change)
        do(change, publishing.edit_change, bob, edits=[Edit.of(make_rule_set("web", **B))])
        assert not publishing.holds_schedule(fresh(change))
        assert "bob edited it" in tick(now + HOUR)[0]
        assert not Revision.objects.exists()

    def test_an_edit_that_another_one_undoes_ends_it_too(self, alice: User, now: datetime) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        bob = person("bob", "Operator")
        for rules in (B, A):
            do(change, publishing.edit_change, bob, edits=[Edit.of(make_rule_set("web", **rules))])
        assert not publishing.holds_schedule(fresh(change))
        assert "bob edited it" in tick(now + HOUR)[0]
        assert not Revision.objects.exists()

    def test_a_moved_base_holds_it_back(self, alice: User, now: datetime) -> None:
        scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        publish_all(make_rule_set("web", **B))
        assert "published another RuleSet web since" in tick(now + HOUR)[0]
        assert filters_of("web") == ["MatchNodeSelector"]

    @pytest.mark.parametrize(
        ("gone", "said"),
        [
            ("role", "alice may not publish"),
            ("account", "The account alice, who set its time, is gone"),
            ("use", "The account alice, who set its time, is inactive"),
        ],
    )
    def test_who_set_the_time_has_to_be_allowed_still(self, alice: User, now: datetime, gone: str, said: str) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        if gone == "role":
            alice.groups.remove(Group.objects.get(name="Operator"))
        elif gone == "use":
            User.objects.filter(pk=alice.pk).update(is_active=False)
        else:
            alice.delete()
        assert said in tick(now + HOUR)[0]
        assert fresh(change).state == "draft"

    def test_the_time_can_be_taken_back_and_has_to_be_ahead(self, alice: User, now: datetime) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        do(change, publishing.schedule_change, alice, publish_at=None)
        assert tick(now + HOUR) == []
        with pytest.raises(PublishingError, match="which is past"):
            scheduled(change, alice, now - HOUR)
        with pytest.raises(PublishingError, match="It would go live after it goes back"):
            scheduled(change, alice, now + 2 * HOUR, back_at=now + HOUR)

    def test_the_time_to_go_back_has_to_be_ahead_and_behind_the_one_to_go_live(
        self, alice: User, now: datetime
    ) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + 2 * HOUR)
        for at, why in ((now - HOUR, "go back at .*, which is past"), (now + 2 * HOUR, "go back before it goes live")):
            with pytest.raises(PublishingError, match=why):
                do(change, publishing.set_expiry, alice, expires_at=at)
        assert fresh(change).expires_at is None

    def test_what_expired_before_it_went_live_never_does_and_says_so(self, alice: User, now: datetime) -> None:
        """Both of its times passed in an outage."""
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR, back_at=now + 2 * HOUR)
        Change.objects.update(publish_at=now - 2 * HOUR, expires_at=now - HOUR)
        assert "It expired before it went live: it was to go back at" in tick(now)[0]
        assert list(publishing.held_changes()) == [change]
        assert tick(now + HOUR) == []
        with pytest.raises(PublishingError, match="It expired before it went live"):
            do(change, publishing.publish_change, alice)
        do(change, publishing.set_expiry, alice, expires_at=None)
        assert do(change, publishing.publish_change, alice).number == 1

    def test_a_rejected_or_withdrawn_one_never_goes_live(self, alice: User, now: datetime) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        publishing.withdraw_change(change=change, by=alice)
        assert tick(now + HOUR) == []

    @pytest.mark.django_db(transaction=True)
    def test_many_beats_at_once_publish_once(self, now: datetime) -> None:
        alice = person("alice", "Operator")
        changes = [scheduled(opened(make_rule_set(name, **A), by=alice), alice, now + HOUR) for name in ("a", "b", "c")]
        for change in changes[:1]:
            do(change, publishing.set_expiry, alice, expires_at=now + 2 * HOUR)
            scheduled(change, alice, now + HOUR)
        at_once(6, lambda _: tick(now + HOUR))
        assert Revision.objects.count() == 3
        assert not ChangeEvent.objects.filter(act="hold").exists()
        at_once(6, lambda _: tick(now + 2 * HOUR))
        assert Revision.objects.count() == 4
        assert [each.name for each in live().rule_sets] == ["b", "c"]

    def test_what_is_refused_in_words_that_nobody_sees_is_held_back_and_keeps_no_other_from_going_live(
        self, alice: User, now: datetime
    ) -> None:
        test = {"name": "un\u200bseen", "pod": {}, "nodes": [], "expect": {"feasible": ["n1"]}}
        failing = scheduled(opened(make_rule_set("web", **A, tests=[test]), by=alice), alice, now + HOUR)
        other = scheduled(opened(make_rule_set("data", **A), by=alice), alice, now + HOUR)
        made, held = tick(now + HOUR)
        assert f"{failing} is held back: web: spec.tests[0].expect.feasible: un\\u200bseen: should pass: n1" in held
        assert "un\\u200bseen" in fresh(failing).held
        assert made == f"{other} made Revision 1"

    def test_a_fault_of_one_keeps_no_other_from_its_time(
        self, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish_all(make_rule_set("web", **A))
        bad, good, later = (opened(make_rule_set(name, **A), by=alice) for name in ("bad", "good", "later"))
        back = opened(make_rule_set("web", **B), by=alice)
        do(back, publishing.set_expiry, alice, expires_at=now + 2 * HOUR)
        do(back, publishing.publish_change, alice)
        for change, at in ((bad, now + HOUR), (good, now + HOUR), (later, now + 3 * HOUR)):
            scheduled(change, alice, at)
        publish = schedules.publish_change

        def meet(*, change: Change, **more: Any) -> Revision:
            if change == bad:
                raise KeyError("a fault of Berth's own")
            return publish(change=change, **more)

        monkeypatch.setattr(schedules, "publish_change", meet)
        for after in (timedelta(0), timedelta(minutes=9)):
            with pytest.raises(ExceptionGroup, match="the others were handled on time"):
                tick(now + HOUR + after)
            assert (fresh(good).state, fresh(bad).state, fresh(bad).held) == ("published", "draft", "")
        with pytest.raises(ExceptionGroup):
            tick(now + 3 * HOUR)
        assert (filters_of("web"), fresh(later).state) == (["PodFitsHost"], "published")
        assert "a fault of Berth's own (KeyError)" in fresh(bad).held
        assert tick(now + 4 * HOUR) == []

    def test_where_the_database_is_away_nothing_else_is_tried(
        self, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        asked: list[str] = []

        def fail(**_: Any) -> None:
            asked.append("publish")
            raise OperationalError("the server closed the connection")

        monkeypatch.setattr(schedules, "publish_change", fail)
        scheduled(opened(make_rule_set("data", **A), by=alice), alice, now + HOUR)
        with pytest.raises(OperationalError):
            tick(now + HOUR)
        assert asked == ["publish"]

    def test_of_one_moment_what_needs_another_goes_live_behind_it(self, alice: User, now: datetime) -> None:
        publish_all(make_rule_set("web", **A))
        assigned = scheduled(opened(make_assignment("all", "new"), by=alice), alice, now + HOUR)
        needed = scheduled(opened(make_rule_set("new", **A), by=alice), alice, now + HOUR)
        never = scheduled(opened(make_assignment("other", "gone"), by=alice), alice, now + HOUR)
        said = tick(now + HOUR)
        assert said[:2] == [f"{needed} made Revision 2", f"{assigned} made Revision 3"]
        assert said[2].startswith(f"{never} is held back: ")
        assert len(said) == 3

    @pytest.mark.parametrize("at", ["0001-01-01T00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30T00:00Z", ""])
    @pytest.mark.parametrize("act", ["schedule", "expire"])
    def test_a_command_refuses_what_is_no_time(self, alice: User, act: str, at: str) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        with pytest.raises(
            CommandError,
            match=re.escape(f"--at {at!r} isn't a time: use 2026-01-31T22:00Z; 90m, 2h, 3d from now; or never."),
        ):
            call_command("change", act, change.pk, at=at)


class TestSeveral:
    @pytest.mark.parametrize("hours", [1, 2, 3])
    def test_of_two_that_touch_the_same_only_one_has_a_time(self, alice: User, now: datetime, hours: int) -> None:
        publish_all(make_rule_set("web", **C))
        first = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + 2 * HOUR)
        second = opened(make_rule_set("web", **B), make_rule_set("data", **B), by=alice)
        with pytest.raises(PublishingError, match=f"{first} goes live at .* and touches RuleSet web too: whichever"):
            scheduled(second, alice, now + hours * HOUR)
        assert fresh(second).publish_at is None
        tick(now + 2 * HOUR)
        do(second, publishing.rebase_change, alice, expected_revision=2)
        scheduled(second, alice, now + 4 * HOUR)
        assert tick(now + 4 * HOUR) == [f"{second} made Revision 3"]

    def test_what_stands_on_something_that_goes_back_before_gets_no_time(self, alice: User, now: datetime) -> None:
        first = opened(make_rule_set("web", **A), make_rule_set("old", **A), by=alice)
        do(first, publishing.set_expiry, alice, expires_at=now + 2 * HOUR)
        do(first, publishing.publish_change, alice)
        publish_all(make_rule_set("old", **B))  # over the first: that stays
        second = opened(make_rule_set("web", **C), make_rule_set("old", **C), by=alice)
        with pytest.raises(
            PublishingError, match=f"{first} goes back at .*, and RuleSet web with it: this was made on"
        ):
            scheduled(second, alice, now + 2 * HOUR)
        scheduled(second, alice, now + HOUR)
        assert tick(now + HOUR) == [f"{second} made Revision 3"]

    def test_what_goes_back_before_stands_only_in_the_way_of_what_stands_on_it(
        self, alice: User, now: datetime
    ) -> None:
        first = opened(make_rule_set("web", **A), by=alice)
        do(first, publishing.set_expiry, alice, expires_at=now + 2 * HOUR)
        do(first, publishing.publish_change, alice)
        other = scheduled(opened(make_rule_set("data", **A), by=alice), alice, now + 3 * HOUR)
        assert fresh(other).publish_at == now + 3 * HOUR

    def test_what_could_not_go_back_at_its_time_stands_in_nobodys_way(self, alice: User, now: datetime) -> None:
        first = opened(make_rule_set("web", **A), by=alice)
        do(first, publishing.set_expiry, alice, expires_at=now + HOUR)
        do(first, publishing.publish_change, alice)
        publish_all(make_assignment("all", "web"))
        tick(now + HOUR)
        publishing.withdraw_change(change=publishing.held_changes().get(), by=alice)
        second = scheduled(opened(make_rule_set("web", **B), by=alice), alice, now + 2 * HOUR)
        assert tick(now + 2 * HOUR) == [f"{second} made Revision 3"]

    def test_a_time_that_was_taken_back_or_set_for_a_former_state_or_held_back_stands_in_nobodys_way(
        self, alice: User, now: datetime
    ) -> None:
        changes = [opened(make_rule_set("web", **content), by=alice) for content in (A, B)]
        for way in ("taken back", "edited", "held"):
            first, second = changes
            scheduled(first, alice, now + HOUR)
            if way == "taken back":
                do(first, publishing.schedule_change, alice, publish_at=None)
            elif way == "edited":
                do(first, publishing.edit_change, alice, edits=[Edit.of(make_rule_set("data", **A))])
            else:
                Change.objects.filter(pk=first.pk).update(held="x")
            scheduled(second, alice, now + 2 * HOUR)
            do(second, publishing.schedule_change, alice, publish_at=None)

    def test_what_needs_another_one_goes_live_behind_it_and_waits_with_it(self, alice: User, now: datetime) -> None:
        first = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        second = scheduled(opened(make_assignment("all", "web"), by=alice), alice, now + 2 * HOUR)
        third = scheduled(opened(make_assignment("more", "data"), by=alice), alice, now + 2 * HOUR)
        assert tick(now + 2 * HOUR) == [
            f"{first} made Revision 1, late by 60 minutes",
            f"{second} made Revision 2",
            f"{third} is held back: more: rule set data has no published version; publish it first",
        ]

    @pytest.mark.django_db(transaction=True)
    def test_two_people_at_once_do_not_get_two_times_for_one_thing(self, now: datetime) -> None:
        alice = person("alice", "Operator")
        changes = [opened(make_rule_set("web", **content), by=alice) for content in (A, B)]
        at_once(2, lambda number: scheduled(changes[number], alice, now + (number + 1) * HOUR))
        assert Change.objects.filter(publish_at__isnull=False).count() == 1


class TestGoingBack:
    def test_exactly_what_it_touched_goes_back(self, alice: User, now: datetime) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("old", **A), make_priority_class("high", value=1))
        edits = [Edit.of(make_rule_set("web", **B)), Edit.of(make_assignment("all", "web"))]
        edits += [Edit("RuleSet", "old", None), Edit.of(make_priority_class("high", value=2))]
        change = publishing.open_change(title="for a day", edits=edits, by=alice)
        scheduled(change, alice, now + HOUR, back_at=now + DAY)
        tick(now + HOUR)
        publish_all(make_rule_set("other", **C))
        said = tick(now + DAY)
        assert said[0].startswith(f"{change} is taken back by")
        assert [(each.name, each.version) for each in live().rule_sets] == [("old", 1), ("other", 1), ("web", 1)]
        assert live().assignments == []
        assert [(each.name, each.value) for each in live().priority_classes] == [("high", 1)]
        assert tick(now + 2 * DAY) == []
        assert fresh(change).expiry.revision == Revision.objects.first()
        assert set(RuleSetVersion.objects.filter(state="published").values_list("rule_set__name", "number")) == {
            ("old", 1),
            ("other", 1),
            ("web", 1),
        }

    def test_a_pause_whose_target_is_gone_stays_ended_and_keeps_nothing_else_from_going_back(
        self, alice: User, now: datetime
    ) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("data", **A), make_pause(target="RuleSet/web"))
        edits = [Edit("Pause", "web-paused", None), Edit.of(make_rule_set("data", **B))]
        change = publishing.open_change(title="for an hour", edits=edits, by=alice)
        do(change, publishing.set_expiry, alice, expires_at=now + HOUR)
        do(change, publishing.publish_change, alice)
        removal = publishing.open_change(title="gone", edits=[Edit("RuleSet", "web", None)], by=alice)
        do(removal, publishing.publish_change, alice)
        said = tick(now + HOUR)
        assert said[0].endswith("; Pause web-paused doesn't come back: no rule set web is live")
        assert "Pause web-paused doesn't come back" in fresh(change).events.get(act="expire").text
        assert (filters_of("data"), live().pauses) == (["PodFitsHost"], [])
        assert not publishing.held_changes().exists()

    @pytest.mark.parametrize("gone", ["rule set", "rule"])
    def test_a_pause_that_ended_with_what_it_removed_for_a_while_comes_back_with_it(
        self, operator: Client, alice: User, now: datetime, gone: str
    ) -> None:
        target = "RuleSet/web/PodFitsHost" if gone == "rule" else "RuleSet/web"
        pause, exemption = make_pause(target=target), make_exemption(target=target, until=f"{now + DAY:%FT%TZ}")
        past = make_exemption("past", target=target, until=f"{now + HOUR:%FT%TZ}")
        publish_all(make_rule_set("web", **A), pause, exemption, past)
        edit = Edit.of(make_rule_set("web", **B)) if gone == "rule" else Edit("RuleSet", "web", None)
        change = publishing.open_change(title="for an hour", edits=[edit], by=alice)
        do(change, publishing.set_expiry, alice, expires_at=now + HOUR)
        said = text_of(get(operator, f"/admin/policies/change/{change.pk}/change/"))
        assert said.count("both come back when the Change goes back") == 2
        do(change, publishing.publish_change, alice)
        assert (live().pauses, live().exemptions) == ([], [])
        tick(now + HOUR)
        assert (live().pauses, live().exemptions) == ([pause], [exemption])
        assert not publishing.held_changes().exists()

    def test_a_pause_does_not_come_back_where_somebody_brought_its_target_back_before(
        self, alice: User, now: datetime
    ) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("data", **A), make_pause(target="RuleSet/web"))
        edits = [Edit("RuleSet", "web", None), Edit.of(make_rule_set("data", **B))]
        change = publishing.open_change(title="for an hour", edits=edits, by=alice)
        do(change, publishing.set_expiry, alice, expires_at=now + HOUR)
        do(change, publishing.publish_change, alice)
        publish_all(make_rule_set("web", **A))
        tick(now + HOUR)
        assert (filters_of("data"), live().pauses) == (["MatchNodeSelector"], [])

    def test_published_by_hand_it_goes_back_too_and_late_after_an_outage(self, alice: User, now: datetime) -> None:
        publish_all(make_rule_set("web", **A))
        change = opened(make_rule_set("web", **B), by=alice)
        do(change, publishing.set_expiry, alice, expires_at=now + HOUR)
        do(change, publishing.publish_change, alice)
        assert "late by 60 minutes" in tick(now + 2 * HOUR)[1]
        assert filters_of("web") == ["PodFitsHost"]

    def test_what_somebody_else_changed_since_is_not_overwritten(self, alice: User, now: datetime) -> None:
        publish_all(make_rule_set("web", **A))
        change = scheduled(opened(make_rule_set("web", **B), by=alice), alice, now + HOUR, back_at=now + DAY)
        tick(now + HOUR)
        publish_all(make_rule_set("web", **C))
        tick(now + DAY)
        assert filters_of("web") == ["PodToleratesNodeTaints"]
        (waits,) = publishing.held_changes()
        assert waits.expiry_of == change
        assert "published another RuleSet web since" in waits.held
        (moved,) = publishing.moved_of(waits)
        sides = [side.spec.filters[0].key for side in (moved.base, moved.live, moved.mine)]  # type: ignore[union-attr]
        assert sides == ["MatchNodeSelector", "PodToleratesNodeTaints", "PodFitsHost"]
        assert tick(now + 2 * DAY) == []

    @pytest.mark.parametrize("way", ["roll back", "go back to a version", "remove and bring back"])
    def test_what_somebody_else_made_the_same_for_good_is_not_taken_back(
        self, alice: User, now: datetime, way: str
    ) -> None:
        bob = person("bob", "Operator")
        publish_all(make_rule_set("web", **A), make_assignment("all", "web", order=100))
        first = live().number
        change = opened(make_rule_set("web", **B), make_assignment("all", "web", order=5), by=alice)
        scheduled(change, alice, now + HOUR, back_at=now + DAY)
        tick(now + HOUR)
        match way:
            case "roll back":
                publishing.roll_back(to_number=first, by=bob, reason="not now")
                publish_all(make_assignment("all", "web", order=5), by=bob)
                kept = "Assignment all"
            case "go back to a version":
                publishing.go_back(version=RuleSetVersion.objects.get(number=1), by=bob, reason="not now")
                publishing.go_back(version=RuleSetVersion.objects.get(number=2), by=bob, reason="for good")
                kept = "RuleSet web"
            case _:
                for edit in (Edit("Assignment", "all", None), Edit.of(make_assignment("all", "web", order=5))):
                    do(
                        publishing.open_change(title="all", edits=[edit], by=bob),
                        publishing.publish_change,
                        bob,
                    )
                kept = "Assignment all"
        before = live()
        tick(now + DAY)
        assert live() == before
        (waits,) = publishing.held_changes()
        assert f"published another {kept} since" in waits.held
        (moved,) = publishing.moved_of(waits)
        assert f"{moved.kind} {moved.name}" == kept
        assert moved.live != moved.mine

    @pytest.mark.parametrize("way", ["taken back", "rolled back"])
    def test_what_another_brought_back_is_still_taken_back(self, alice: User, now: datetime, way: str) -> None:
        publish_all(make_rule_set("web", **A))
        scheduled(opened(make_rule_set("web", **B), by=alice), alice, now + HOUR, back_at=now + DAY)
        tick(now + HOUR)
        number = live().number
        over = opened(make_rule_set("web", **C), by=alice)
        if way == "taken back":
            do(over, publishing.set_expiry, alice, expires_at=now + 2 * HOUR)
        do(over, publishing.publish_change, alice)
        if way == "taken back":
            tick(now + 2 * HOUR)
        else:
            publishing.roll_back(to_number=number, by=alice, reason="worse")
        assert filters_of("web") == ["MatchNodeSelector"]
        tick(now + DAY)
        assert filters_of("web") == ["PodFitsHost"]
        assert not publishing.held_changes()

    def test_a_title_of_before_titles_were_checked_keeps_it_from_nothing(self, alice: User, now: datetime) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.set_expiry, alice, expires_at=now + HOUR)
        do(change, publishing.publish_change, alice)
        Change.objects.filter(pk=change.pk).update(title="Allow \u202enimda")
        assert tick(now + HOUR)[1] == f"Change {change.pk + 1} made Revision 2"
        assert Change.objects.latest("pk").title == f"Take back {change}: Allow \\u202enimda"

    def test_what_is_back_already_needs_nothing(self, alice: User, now: datetime) -> None:
        publish_all(make_rule_set("web", **A))
        change = scheduled(opened(make_rule_set("web", **B), by=alice), alice, now + HOUR, back_at=now + DAY)
        tick(now + HOUR)
        publishing.roll_back(to_number=1, by=alice, reason="x")
        assert tick(now + DAY) == [f"{change} has nothing to take back"]
        assert tick(now + DAY) == []

    def test_a_rule_set_that_others_use_by_now_stays_and_says_so(self, alice: User, now: datetime) -> None:
        scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR, back_at=now + DAY)
        tick(now + HOUR)
        publish_all(make_assignment("all", "web"))
        tick(now + DAY)
        assert "all: rule set web would no longer be live" in publishing.held_changes().get().held

    def test_after_a_fault_between_its_two_steps_the_next_tick_goes_on(
        self, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish_all(make_rule_set("web", **A))
        scheduled(opened(make_rule_set("web", **B), by=alice), alice, now + HOUR, back_at=now + DAY)
        tick(now + HOUR)

        def fail(**_: Any) -> None:
            raise OSError("down")

        with monkeypatch.context() as broken:
            broken.setattr("policies.publishing.schedules.publish_change", fail)
            with pytest.raises(ExceptionGroup, match="the others were handled on time") as met:
                tick(now + DAY)
        assert [str(each) for each in met.value.exceptions] == ["down"]
        assert filters_of("web") == ["MatchNodeSelector"]
        tick(now + DAY)
        assert filters_of("web") == ["PodFitsHost"]

    @pytest.mark.usefixtures("reviewed")
    def test_a_way_back_that_was_rejected_is_approved_no_more(self, alice: User, carol: User, now: datetime) -> None:
        with free():
            publish_all(make_rule_set("web", **A), make_assignment("all", "web"))
        change = publishing.open_change(title="off", edits=[Edit("Assignment", "all", None)], by=alice)
        do(change, publishing.set_expiry, alice, expires_at=now + DAY)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        do(change, publishing.publish_change, alice)
        with free():
            publishing.archive(rule_set=RuleSet.objects.get(name="web"), by=alice, reason="moved")
        tick(now + DAY)
        (back,) = publishing.held_changes()
        with free():
            publish_all(make_rule_set("web", **A))
        do(back, publishing.submit_change, alice)
        do(back, publishing.reject_change, carol, text="it stays off")
        do(back, publishing.reopen_change, alice)
        with pytest.raises(PublishingError, match="approval"):
            do(back, publishing.publish_change, alice)
        assert publishing.standing_of(fresh(back)).missing

    @pytest.mark.usefixtures("reviewed")
    def test_the_way_back_is_approved_with_the_way_there(self, alice: User, carol: User, now: datetime) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        do(change, publishing.set_expiry, alice, expires_at=now + DAY)
        assert fresh(change).state == "in_review"
        do(change, publishing.approve_change, carol)
        do(change, publishing.publish_change, alice)
        tick(now + DAY)
        assert live().rule_sets == []

    @pytest.mark.usefixtures("reviewed")
    def test_edited_the_way_back_needs_approvals_of_its_own(
        self, alice: User, carol: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.set_expiry, alice, expires_at=now + DAY)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        do(change, publishing.publish_change, alice)
        with monkeypatch.context() as unreviewed:
            unreviewed.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_required=False))
            publish_all(make_rule_set("web", **B))
        tick(now + DAY)
        waits = publishing.held_changes().get()
        do(waits, publishing.rebase_change, alice, expected_revision=2)
        with pytest.raises(PublishingError, match="It needs 1 approval more"):
            do(waits, publishing.publish_change, alice)

    @pytest.mark.usefixtures("reviewed")
    @pytest.mark.parametrize("hours", [None, 2])
    def test_the_time_to_go_back_that_it_has_already_is_no_edit(
        self, alice: User, carol: User, now: datetime, hours: int | None
    ) -> None:
        at = now + hours * HOUR if hours else None
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.set_expiry, alice, expires_at=at)
        do(change, publishing.submit_change, alice)
        do(change, publishing.approve_change, carol)
        scheduled(change, alice, now + HOUR)
        do(change, publishing.set_expiry, alice, expires_at=at)
        assert publishing.standing_of(fresh(change)).counting == {"carol"}
        assert tick(now + HOUR) == [f"{change} made Revision 1"]


class TestPausedAndGoneForAWhile:
    """What is removed for a while ends its Pauses and Exemptions; they come back with it, as long as they aren't over."""

    GONE = (Edit("Assignment", "all", None), Edit("RuleSet", "web", None))

    @pytest.fixture(autouse=True)
    def _paused(self, now: datetime) -> None:
        publish_all(make_rule_set("web", **A), make_assignment("all", "web"))
        ends = {"short": now + 2 * HOUR, "long": now + 2 * DAY}
        publish_all(
            make_pause("open", "RuleSet/web"),
            *(make_pause(name, "Assignment/all", until=end.isoformat()) for name, end in ends.items()),
            make_exemption("cart", target="RuleSet/web", until=ends["long"].isoformat()),
        )

    def gone(self, by: User, until: datetime) -> Change:
        change = publishing.open_change(title="gone", edits=self.GONE, by=by)
        do(change, publishing.set_expiry, by, expires_at=until)
        do(change, publishing.publish_change, by)
        assert (live().pauses, live().exemptions) == ([], [])
        return fresh(change)

    def test_what_has_not_ended_meanwhile_comes_back_with_it(self, alice: User, now: datetime) -> None:
        before = live()
        self.gone(alice, now + 3 * HOUR)
        tick(now + 3 * HOUR)
        assert [each.name for each in live().rule_sets] == ["web"]
        assert live().pauses == [each for each in before.pauses if each.name != "short"]
        assert live().exemptions == before.exemptions
        assert not publishing.held_changes().exists()

    def test_what_somebody_brought_back_in_force_stays_in_force(self, alice: User, now: datetime) -> None:
        change = self.gone(alice, now + 3 * HOUR)
        publishing.go_back(version=RuleSetVersion.objects.get(), by=alice, reason="needed")
        publish_all(make_assignment("all", "web"))
        assert tick(now + 3 * HOUR) == [f"{change} has nothing to take back"]
        assert (live().pauses, live().exemptions) == ([], [])

    def test_a_pause_that_has_expired_itself_does_not_come_back(self, alice: User, now: datetime) -> None:
        publishing.resume(target="RuleSet/web", by=alice, reason="over")
        pause = publishing.open_change(title="pause", edits=[Edit.of(make_pause("mine", "RuleSet/web"))], by=alice)
        do(pause, publishing.set_expiry, alice, expires_at=now + 2 * HOUR)
        do(pause, publishing.publish_change, alice)
        self.gone(alice, now + 3 * HOUR)
        for hours in (2, 3):
            tick(now + hours * HOUR)
        assert [each.name for each in live().pauses] == ["long"]

    def test_one_whose_name_is_taken_meanwhile_does_not_come_back(self, alice: User, now: datetime) -> None:
        self.gone(alice, now + 3 * HOUR)
        other = make_pause("open", "everything")
        publish_all(other)
        tick(now + 3 * HOUR)
        assert [each.target for each in live().pauses if each.name == "open"] == [other.target]

    def test_its_page_says_which_come_back(self, operator: Client, alice: User, now: datetime) -> None:
        change = publishing.open_change(title="gone", edits=self.GONE, by=alice)
        do(change, publishing.set_expiry, alice, expires_at=now + 3 * HOUR)
        page = text_of(get(operator, f"/admin/policies/change/{change.pk}/change/"))
        assert "Pause open ends with it: rule set web would be gone; both come back when the Change goes back" in page
        assert "Pause short ends with it: Assignment all would be gone; if it comes back, it is in force" in page


class TestOneOverAnother:
    """Two that go back by themselves and touch the same thing: what has expired never comes back with the other."""

    @pytest.fixture(autouse=True)
    def _before(self) -> None:
        publish_all(make_rule_set("web", **C))

    def for_a_while(self, by: User, until: datetime, *values: Any) -> Change:
        change = opened(*values, by=by)
        do(change, publishing.set_expiry, by, expires_at=until)
        do(change, publishing.publish_change, by)
        return fresh(change)

    def test_the_first_to_expire_leaves_it_to_the_one_over_it_which_goes_back_before_both(
        self, alice: User, now: datetime
    ) -> None:
        first = self.for_a_while(alice, now + HOUR, make_rule_set("web", **A), make_rule_set("data", **A))
        second = self.for_a_while(alice, now + 2 * HOUR, make_rule_set("web", **B))
        back, done = tick(now + HOUR)
        assert f"{first} is taken back by" in back
        assert f"RuleSet web is left to {second}" in back
        assert "made Revision 4" in done
        assert (filters_of("web"), [each.name for each in live().rule_sets]) == (["MatchNodeSelector"], ["web"])
        assert f"RuleSet web is left to {second}" in fresh(first).events.get(act="expire").text
        tick(now + 2 * HOUR)
        assert filters_of("web") == ["PodToleratesNodeTaints"]
        assert not publishing.held_changes().exists()

    def test_one_within_another_goes_back_to_it(self, alice: User, now: datetime) -> None:
        self.for_a_while(alice, now + 2 * HOUR, make_rule_set("web", **A))
        self.for_a_while(alice, now + HOUR, make_rule_set("web", **B))
        tick(now + HOUR)
        assert filters_of("web") == ["PodFitsHost"]
        tick(now + 2 * HOUR)
        assert filters_of("web") == ["PodToleratesNodeTaints"]

    @pytest.mark.parametrize("way", ["taken back", "rolled back"])
    def test_what_came_back_in_between_and_has_expired_is_not_restored_by_what_was_over_it(
        self, alice: User, now: datetime, way: str
    ) -> None:
        self.for_a_while(alice, now + 3 * HOUR, make_rule_set("web", **A))
        number = live().number
        self.for_a_while(alice, now + HOUR, make_rule_set("web", **B))
        if way == "taken back":
            tick(now + HOUR)
        else:
            publishing.roll_back(to_number=number, by=alice, reason="worse")
        assert filters_of("web") == ["PodFitsHost"]
        self.for_a_while(alice, now + 4 * HOUR, make_rule_set("web", **B))
        tick(now + 3 * HOUR)
        assert filters_of("web") == ["MatchNodeSelector"]
        tick(now + 4 * HOUR)
        assert filters_of("web") == ["PodToleratesNodeTaints"]
        assert not publishing.held_changes().exists()

    def test_the_first_to_expire_leaves_it_to_one_that_came_back(self, alice: User, now: datetime) -> None:
        first = self.for_a_while(alice, now + 2 * HOUR, make_rule_set("web", **A))
        second = self.for_a_while(alice, now + 3 * HOUR, make_rule_set("web", **B))
        self.for_a_while(alice, now + HOUR, make_rule_set("web", filters=[{"builtin": "PodFitsHostPorts"}]))
        tick(now + HOUR)
        assert tick(now + 2 * HOUR) == [f"{first} has nothing to take back; RuleSet web is left to {second}"]
        assert filters_of("web") == ["MatchNodeSelector"]
        tick(now + 3 * HOUR)
        assert filters_of("web") == ["PodToleratesNodeTaints"]
        assert not publishing.held_changes().exists()

    def test_what_stands_on_one_that_came_back_gets_no_time_after_its_end(self, alice: User, now: datetime) -> None:
        first = self.for_a_while(alice, now + 2 * HOUR, make_rule_set("web", **A))
        self.for_a_while(alice, now + HOUR, make_rule_set("web", **B))
        tick(now + HOUR)
        with pytest.raises(PublishingError, match=f"{first} goes back at .*, and RuleSet web with it"):
            scheduled(opened(make_rule_set("web", **B), by=alice), alice, now + 3 * HOUR)

    def test_a_way_back_that_was_edited_has_content_of_its_own_which_comes_back(
        self, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.for_a_while(alice, now + 3 * HOUR, make_rule_set("web", **A))
        self.for_a_while(alice, now + HOUR, make_rule_set("web", **B))
        with monkeypatch.context() as patch:
            patch.setattr(schedules._Tick, "go_live", lambda *_: None)  # so that somebody edits it before
            tick(now + HOUR)
        back = Change.objects.get(expiry_of__isnull=False)
        kept = make_rule_set("web", filters=[{"builtin": "PodFitsHostPorts"}])
        do(back, publishing.edit_change, alice, edits=[Edit.of(kept)])
        do(back, publishing.publish_change, alice)
        self.for_a_while(alice, now + 4 * HOUR, make_rule_set("web", **B))
        for hours in (3, 4):
            tick(now + hours * HOUR)
        assert filters_of("web") == ["PodFitsHostPorts"]

    @pytest.mark.parametrize("hours", [(1, 2), (2, 1)])
    def test_after_an_outage_over_both_ends_neither_is_left(
        self, alice: User, now: datetime, hours: tuple[int, int]
    ) -> None:
        for content, hour in zip((A, B), hours, strict=True):
            self.for_a_while(alice, now + hour * HOUR, make_rule_set("web", **content))
        tick(now + DAY)
        assert filters_of("web") == ["PodToleratesNodeTaints"]
        assert not publishing.held_changes().exists()

    @pytest.mark.parametrize("ticks", [(2, 4), (4,)], ids=["in time", "after an outage"])
    @pytest.mark.parametrize("back_at", [None, DAY], ids=["for good", "for a day"])
    def test_what_was_to_go_live_over_it_before_it_ended_does(
        self, alice: User, now: datetime, ticks: tuple[int, ...], back_at: timedelta | None
    ) -> None:
        self.for_a_while(alice, now + 3 * HOUR, make_rule_set("web", **A))
        second = opened(make_rule_set("web", **B), by=alice)
        scheduled(second, alice, now + 2 * HOUR, back_at=back_at and now + back_at)
        for hours in ticks:
            tick(now + hours * HOUR)
        assert fresh(second).state == "published"
        assert filters_of("web") == ["MatchNodeSelector"]

    def test_of_two_that_end_together_the_one_that_uses_the_other_ends_first(self, alice: User, now: datetime) -> None:
        self.for_a_while(alice, now + HOUR, make_rule_set("data", **A))
        self.for_a_while(alice, now + HOUR, make_assignment("all", "data"))
        tick(now + HOUR)
        assert not publishing.held_changes().exists()
        assert ([each.name for each in live().rule_sets], live().assignments) == (["web"], [])

    def test_three_over_each_other_go_back_before_all(self, alice: User, now: datetime) -> None:
        for hour, content in enumerate((A, B, {"filters": [{"builtin": "PodFitsHostPorts"}]}), 1):
            self.for_a_while(alice, now + hour * HOUR, make_rule_set("web", **content))
        for hour, holds in ((1, "PodFitsHostPorts"), (2, "PodFitsHostPorts"), (3, "PodToleratesNodeTaints")):
            tick(now + hour * HOUR)
            assert filters_of("web") == [holds]

    def test_what_was_made_new_for_a_while_is_gone_after_both(self, alice: User, now: datetime) -> None:
        self.for_a_while(alice, now + HOUR, make_rule_set("data", **A))
        self.for_a_while(alice, now + 2 * HOUR, make_rule_set("data", **B))
        tick(now + HOUR)
        tick(now + 2 * HOUR)
        assert [each.name for each in live().rule_sets] == ["web"]


class TestGate:
    @pytest.fixture(autouse=True)
    def _required(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, gate_required=True))

    def looked_at(self, change: Change) -> None:
        checks = settings.BERTH.gate_checks
        results = [publishing.Result(check=check, verdict="passed", says="fine") for check in checks]
        GateRun.objects.filter(change=change, state="queued").delete()
        publishing.record_gate(fresh(change), "ops", results, revision=live().number, snapshot_at=timezone.now())

    def test_what_is_due_waits_until_the_gate_has_looked_at_it(self, alice: User, now: datetime) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        soon = timezone.now() + timedelta(seconds=5)
        Change.objects.update(publish_at=now)
        assert tick(soon) == tick(soon) == []
        assert GateRun.objects.filter(change=change, state="queued").count() == 1
        self.looked_at(change)
        assert tick(soon) == [f"{change} made Revision 1"]

    def test_a_check_that_was_made_blocking_since_the_gate_looked_is_asked_before_it_goes_live(
        self, alice: User, now: datetime
    ) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        self.looked_at(change)
        GateRun.objects.update(results=[each for each in GateRun.objects.get().results if each["check"] != "backtest"])
        publishing.set_gate_level(rule_set="web", check="backtest", level="blocking", by="root")
        Change.objects.update(publish_at=now)
        soon = timezone.now() + timedelta(seconds=5)
        assert tick(soon) == tick(soon) == []
        assert GateRun.objects.filter(change=change, state="queued").count() == 1
        self.looked_at(change)
        assert tick(soon) == [f"{change} made Revision 1"]

    def test_going_back_as_it_was_approved_waits_for_no_gate(self, alice: User, now: datetime) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.set_expiry, alice, expires_at=now + HOUR)
        self.looked_at(change)
        do(change, publishing.publish_change, alice)
        assert [said.split()[-2:] for said in tick(now + HOUR)] == [["Change", str(change.pk + 1)], ["Revision", "2"]]
        assert live().rule_sets == []

    def test_a_gate_that_comes_to_no_end_holds_it_back(self, alice: User, now: datetime) -> None:
        scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        Change.objects.update(publish_at=now)
        assert tick(timezone.now()) == []
        assert "is held back: The gate is still running" in tick(timezone.now() + timedelta(minutes=11))[0]

    def test_a_gate_that_failed_holds_it_back(self, alice: User, now: datetime) -> None:
        scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        Change.objects.update(publish_at=now)
        assert tick(timezone.now()) == []
        GateRun.objects.update(state="failed", fault="No Snapshot.", ended_at=timezone.now())
        assert "is held back: The gate failed: No Snapshot." in tick(timezone.now())[0]

    def test_a_gate_that_failed_before_its_time_is_asked_again(self, alice: User, now: datetime) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        publishing.run_gate(change=change, by=alice)
        GateRun.objects.update(state="failed", fault="No Snapshot.", ended_at=timezone.now())
        Change.objects.update(publish_at=timezone.now())
        assert tick(timezone.now()) == []
        assert GateRun.objects.filter(change=change, state="queued").count() == 1
        self.looked_at(change)
        assert tick(timezone.now()) == [f"{change} made Revision 1"]
