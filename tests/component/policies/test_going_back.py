"""Changes that go back at a time: exactly what they made, never over somebody else's work, and never to what has expired itself."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client

from policies import publishing
from policies.models import Change, Revision, RuleSet, RuleSetVersion
from policies.publishing import Edit, PublishingError, schedules
from tests.builders import make_assignment, make_exemption, make_pause, make_priority_class, make_rule_set
from tests.component.pages import get, publish_all, text_of
from tests.component.policies.people import person
from tests.component.policies.test_changes import A, B, C, do, filters_of, free, live, opened
from tests.component.policies.test_schedules import DAY, HOUR, fresh, scheduled, tick

pytestmark = pytest.mark.django_db


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

    def test_nor_where_its_target_was_brought_back_as_it_was_and_all_else_goes_back(
        self, alice: User, now: datetime
    ) -> None:
        assigned = make_assignment("all", "web")
        publish_all(
            make_rule_set("web", **A), make_rule_set("data", **A), assigned, make_pause(target="Assignment/all")
        )
        edits = [Edit("Assignment", "all", None), Edit.of(make_rule_set("data", **B))]
        change = publishing.open_change(title="for an hour", edits=edits, by=alice)
        do(change, publishing.set_expiry, alice, expires_at=now + HOUR)
        do(change, publishing.publish_change, alice)
        publish_all(assigned)
        tick(now + HOUR)
        assert (filters_of("data"), live().assignments, live().pauses) == (["PodFitsHost"], [assigned], [])

    def test_a_pause_whose_target_a_later_change_leaves_out_too_keeps_nothing_else_from_going_back(
        self, alice: User, now: datetime
    ) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("data", **A), make_pause(target="RuleSet/web/PodFitsHost"))
        first = opened(make_rule_set("web", **B), make_rule_set("data", **B), by=alice)
        do(first, publishing.set_expiry, alice, expires_at=now + HOUR)
        do(first, publishing.publish_change, alice)
        second = opened(make_rule_set("web", **C), by=alice)
        do(second, publishing.set_expiry, alice, expires_at=now + DAY)
        do(second, publishing.publish_change, alice)
        tick(now + HOUR)
        assert (filters_of("data"), filters_of("web")) == (["PodFitsHost"], ["PodToleratesNodeTaints"])
        assert live().pauses == []

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
        with pytest.raises(PublishingError, match="It needs 1 more approval"):
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
