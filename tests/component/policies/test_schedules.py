"""Changes that go live at a time: once, late after an outage, and never over somebody else's work."""

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
from policies.models import Change, ChangeEvent, GateRun, Revision
from policies.publishing import Edit, OnBehalf, OvertakenError, PublishingError, changes, schedules
from tests.builders import make_assignment, make_exemption, make_pause, make_priority_class, make_rule_set
from tests.component.pages import get, publish_all
from tests.component.policies.people import person
from tests.component.policies.test_changes import A, B, C, do, filters_of, live, opened
from tests.component.threads import at_once

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def scheduled(change: Change, by: Any, at: datetime, back_at: datetime | None = None) -> Change:
    if back_at:
        do(change, publishing.set_expiry, by, expires_at=back_at)
    return do(change, publishing.schedule_change, by, publish_at=at)


def tick(at: datetime) -> list[str]:
    return publishing.publish_due(now=at)


def fresh(change: Change) -> Change:
    return Change.objects.get(pk=change.pk)


def raising(error: Exception) -> None:
    raise error


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
        assert "is held back: It needs 1 more approval" in tick(now + HOUR)[0]
        assert "did not: It needs 1 more approval" in fresh(change).held
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
        with pytest.raises(PublishingError, match="It would go live after it goes back"):
            scheduled(change, alice, now + HOUR)

    def test_a_time_that_is_sent_twice_is_set_or_taken_back_once(self, alice: User, now: datetime) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        for at, seen in [(now + HOUR, None), (None, now + HOUR)]:
            for _ in range(2):
                do(change, publishing.schedule_change, alice, publish_at=at, expected_at=seen)
        assert change.events.filter(act="schedule").count() == 2

    def test_a_time_that_an_edit_ended_is_not_taken_for_one_that_is_sent_twice(
        self, alice: User, now: datetime
    ) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        do(change, publishing.edit_change, person("bob", "Operator"), edits=[Edit.of(make_rule_set("web", **B))])
        with pytest.raises(OvertakenError, match="Somebody changed the time"):
            do(change, publishing.schedule_change, alice, publish_at=now + HOUR, expected_at=None)

    @pytest.mark.parametrize("to", [None, 2 * HOUR])
    def test_a_time_that_is_taken_back_or_set_anew_while_its_documents_are_checked_is_not_kept(
        self, to: timedelta | None, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        bob, at = person("bob", "Operator"), now + to if to else None

        def meanwhile(*_: object) -> None:
            do(change, publishing.schedule_change, bob, publish_at=at)

        monkeypatch.setattr("policies.publishing.changes.check_contents", meanwhile)
        assert tick(now + HOUR) == []
        row = fresh(change)
        assert (row.state, row.publish_at, row.held) == ("draft", at, "")

    @pytest.mark.parametrize("act", [publishing.reject_change, publishing.withdraw_change])
    def test_a_rejection_or_a_withdrawal_ends_its_time(self, act: Any, alice: User, carol: User, now: datetime) -> None:
        change = opened(make_rule_set("web", **A), by=alice)
        do(change, publishing.submit_change, alice)
        scheduled(change, alice, now + HOUR)
        do(change, act, carol if act is publishing.reject_change else alice, text="no")
        assert fresh(change).publish_at is None
        if act is publishing.reject_change:
            do(change, publishing.reopen_change, alice)
            # Whoever opens it again hasn't asked for the time of what was rejected.
            assert tick(now + DAY) == []
        assert not Revision.objects.exists()

    def test_an_edit_of_one_that_is_held_back_leaves_it_held(self, alice: User, now: datetime) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        publishing.set_review(approvals=1, by="root")
        assert "is held back" in tick(now + HOUR)[0]
        do(change, publishing.edit_change, alice, edits=[Edit.of(make_rule_set("web", **B))])
        assert list(publishing.held_changes()) == [change]

    def test_one_that_another_clock_holds_back_while_its_documents_are_checked_stays_held(
        self, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)

        def meanwhile(*_: object) -> None:
            with monkeypatch.context() as other:
                refused = PublishingError(["a test fails"])
                other.setattr("policies.publishing.changes.check_contents", lambda *_: raising(refused))
                assert tick(now + HOUR) == [f"{change} is held back: a test fails"]

        monkeypatch.setattr("policies.publishing.changes.check_contents", meanwhile)
        assert tick(now + HOUR) == []
        row = fresh(change)
        assert (row.state, row.held.endswith("a test fails")) == ("draft", True)
        assert not Revision.objects.exists()

    def test_the_time_to_go_back_has_to_be_ahead_and_behind_the_one_to_go_live(
        self, alice: User, now: datetime
    ) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + 2 * HOUR)
        for at, why in ((now - HOUR, "go back at .*, which is past"), (now + 2 * HOUR, "go back before it goes live")):
            with pytest.raises(PublishingError, match=why):
                do(change, publishing.set_expiry, alice, expires_at=at)
        assert fresh(change).expires_at is None

    def test_a_time_that_an_edit_ended_keeps_nobody_from_setting_the_one_to_go_back(
        self, alice: User, now: datetime
    ) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + 2 * HOUR)
        do(change, publishing.edit_change, alice, edits=[Edit.of(make_rule_set("web", **B))])
        do(change, publishing.set_expiry, alice, expires_at=now + HOUR)
        assert fresh(change).expires_at == now + HOUR
        with pytest.raises(PublishingError, match="It would go live after it goes back"):
            scheduled(change, alice, now + 2 * HOUR)

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

    def test_a_command_sets_no_time_over_one_that_its_user_has_not_seen(self, alice: User, now: datetime) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        later = f"{now + 2 * HOUR:%Y-%m-%dT%H:%M:%SZ}"
        with pytest.raises(
            CommandError, match=f"Somebody changed the time of Change {change.pk} since you looked at it"
        ):
            call_command("change", "schedule", change.pk, at=later, seen_at="never")
        assert fresh(change).publish_at == now + HOUR
        with pytest.raises(
            CommandError, match=f"--seen-at '2h' isn't a time: `change show {change.pk} --output json` prints it"
        ):
            call_command("change", "schedule", change.pk, at=later, seen_at="2h")
        with pytest.raises(CommandError, match="expire compares no time: --seen-at is for schedule alone"):
            call_command("change", "expire", change.pk, at=later, seen_at="never")
        call_command("change", "schedule", change.pk, at=later, seen_at=(now + HOUR).isoformat())
        assert fresh(change).publish_at == (now + 2 * HOUR).replace(microsecond=0)


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

    def test_one_that_gets_a_later_time_while_another_goes_live_waits_for_that(
        self, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first, second = (scheduled(opened(make_rule_set(n, **A), by=alice), alice, now + HOUR) for n in ("a", "b"))

        def publish(*, change: Change, **more: Any) -> Revision:
            made = publishing.publish_change(change=change, **more)
            if change == first:
                scheduled(second, alice, now + 5 * HOUR)
            return made

        monkeypatch.setattr(schedules, "publish_change", publish)
        assert tick(now + HOUR) == [f"{first} made Revision 1"]
        assert (fresh(second).state, fresh(second).held) == ("draft", "")
        assert tick(now + 5 * HOUR) == [f"{second} made Revision 2"]

    def test_a_later_time_that_is_set_as_the_clock_reads_one_that_is_due_is_kept(
        self, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        read = schedules._armed

        def armed(*of: Any) -> ChangeEvent | None:
            if fresh(change).publish_at == now + HOUR:
                scheduled(change, alice, now + 5 * HOUR)
            return read(*of)

        with monkeypatch.context() as patched:
            patched.setattr(schedules, "_armed", armed)
            assert tick(now + HOUR) == []
        assert tick(now + 5 * HOUR) == [f"{change} made Revision 1"]

    @pytest.mark.parametrize("act", ["set a later time", "edited it and took that back"])
    def test_what_is_done_while_the_clock_checks_the_documents_keeps_it_from_going_live(
        self, act: str, alice: User, now: datetime, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        checked = changes.check_contents

        def check(*of: Any) -> None:
            checked(*of)
            if act == "set a later time":
                scheduled(change, alice, now + 5 * HOUR)
                return
            for content in (B, A):
                do(change, publishing.edit_change, alice, edits=[Edit.of(make_rule_set("web", **content))])

        monkeypatch.setattr(changes, "check_contents", check)
        tick(now + HOUR)
        assert (fresh(change).state, live().number) == ("draft", 0)
        assert ("changed since its time was set, by alice" in fresh(change).held) == (act != "set a later time")

    @pytest.mark.django_db(transaction=True)
    def test_two_people_at_once_do_not_get_two_times_for_one_thing(self, now: datetime) -> None:
        alice = person("alice", "Operator")
        changes = [opened(make_rule_set("web", **content), by=alice) for content in (A, B)]
        at_once(2, lambda number: scheduled(changes[number], alice, now + (number + 1) * HOUR))
        assert Change.objects.filter(publish_at__isnull=False).count() == 1


class TestGate:
    @pytest.fixture(autouse=True)
    def _required(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, gate_required=True))

    def looked_at(self, change: Change, **found: str) -> None:
        checks = settings.BERTH.gate_checks
        results = [
            publishing.Result(
                check=check, verdict="found" if check in found else "passed", says=found.get(check, "fine")
            )
            for check in checks
        ]
        GateRun.objects.filter(change=change, state="queued").delete()
        publishing.record_gate(fresh(change), "ops", results, revision=live().number, snapshot_at=timezone.now())

    def overtaken(self, name: str) -> None:
        """Publish something else, by which earlier runs no longer count."""
        other = opened(make_rule_set(name, **A), by="ops")
        self.looked_at(other)
        do(other, publishing.publish_change, "ops")

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

    def test_one_that_others_overtake_again_and_again_is_held_back_ten_minutes_after_the_first_request_for_the_gate(
        self, alice: User, now: datetime
    ) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        Change.objects.update(publish_at=now)
        for minutes in (0, 3, 6, 9):
            assert tick(timezone.now() + timedelta(minutes=minutes)) == []
            self.looked_at(change)
            self.overtaken(f"other-{minutes}")
        said = tick(timezone.now() + timedelta(minutes=12))
        assert (
            "is held back: The gate's result no longer counts: it compared with Revision 3, and Revision 4 is live"
            in said[0]
        )
        assert fresh(change).held
        assert fresh(change).events.filter(act="hold").count() == 1

    def test_one_whose_time_passed_in_an_outage_waits_as_long_for_the_gate(self, alice: User, now: datetime) -> None:
        change = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        Change.objects.update(publish_at=now - DAY)
        publishing.run_gate(change=change, by=alice)
        for minutes in (0, 9):
            self.looked_at(change)
            self.overtaken(f"other-{minutes}")
            assert tick(timezone.now() + timedelta(minutes=minutes)) == []
        self.looked_at(change)
        assert tick(timezone.now()) == [f"{change} made Revision 3, late by 1,440 minutes"]

    @pytest.mark.parametrize("later", [timedelta(0), HOUR])
    def test_what_depends_on_one_that_waits_for_the_gate_waits_too_and_goes_live_after_it(
        self, alice: User, now: datetime, later: timedelta
    ) -> None:
        dependent = scheduled(opened(make_assignment("all", "web"), by=alice), alice, now + HOUR)
        first = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        self.looked_at(dependent, documents="no rule set web")
        Change.objects.update(publish_at=now - 2 * HOUR)
        Change.objects.filter(pk=dependent.pk).update(publish_at=now - 2 * HOUR + later)
        assert tick(timezone.now()) == []
        self.looked_at(first)
        assert tick(timezone.now()) == [f"{first} made Revision 1, late by 120 minutes"]
        self.looked_at(dependent)
        assert f"{dependent} made Revision 2" in tick(timezone.now())[0]

    def test_what_is_refused_is_held_back_beside_one_that_waits_for_the_gate_from_a_later_moment(
        self, alice: User, now: datetime
    ) -> None:
        refused = scheduled(opened(make_rule_set("web", **A), by=alice), alice, now + HOUR)
        scheduled(opened(make_rule_set("later", **A), by=alice), alice, now + HOUR)
        self.looked_at(refused, documents="broken")
        Change.objects.update(publish_at=now)
        Change.objects.filter(pk=refused.pk).update(publish_at=now - HOUR)
        assert tick(timezone.now())[0].startswith(f"{refused} is held back: The gate blocks it: broken")

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
