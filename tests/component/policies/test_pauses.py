"""Pauses and Exemptions go live as parts of a Revision, by the same path as all else."""

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.engine import ruleset as engine
from policies.engine.ruleset import encode
from policies.models import Assignment, AuditEvent, Change, Revision, RuleSet, RuleSetVersion
from policies.publishing import Edit, PublishingError
from policies.publishing.changes import open_roll_back
from policies.sentences import target_in_words
from tests.builders import (
    TEAM_FILTER,
    exemption_document,
    make_assignment,
    make_exemption,
    make_pause,
    make_rule_set,
    pause_document,
)
from tests.component.pages import confirmed, get, publish_all, text_of
from tests.component.policies.people import person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def published(db: None) -> None:
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]), make_assignment("all", "web"))


def live() -> engine.Revision:
    return publishing.current_revision()


def publish(*edits: Edit) -> Revision:
    change = publishing.open_change(title="tested", edits=edits, by="ops", reason="why")
    return publishing.publish_change(change=change, by="ops", expected_digest=change.digest)


class TestPart:
    def test_goes_live_changes_and_leaves_with_a_change(self) -> None:
        pause, exemption = make_pause(target="RuleSet/web/team"), make_exemption()
        made = publish(Edit.of(pause), Edit.of(exemption))
        assert (live().pauses, live().exemptions) == ([pause], [exemption])
        passes = "rule set web passes over Pod cart in default until 2026-02-01 00:00 UTC, for team cart"
        assert made.summary.splitlines() == [
            f"Exemption cart added: {passes}: until the cart is moved",
            "Pause web-paused added: rule team of rule set web is paused until it is resumed: nodes are being moved",
        ]
        longer = make_pause(target="RuleSet/web/team", until="2026-05-01T00:00:00Z")
        made = publish(Edit.of(longer), Edit("Exemption", "cart", None))
        assert (live().pauses, live().exemptions) == ([longer], [])
        assert "Exemption cart removed: rule set web no longer passes over Pod cart in default by it" in made.summary

    def test_what_leaves_is_not_said_to_be_in_force_where_another_one_stays(self) -> None:
        publish(*(Edit.of(make_pause(name, target="RuleSet/web/team")) for name in ("one", "two")))
        made = publish(Edit("Pause", "one", None))
        assert made.summary == "Pause one removed: rule team of rule set web is no longer paused by it"

    def test_the_document_of_a_revision_is_put_together_as_it_is_encoded(self) -> None:
        made = publish(Edit.of(make_pause("all", "everything")), Edit.of(make_exemption()))
        whole = encode(live()).decode().replace(f'"digest":"{made.digest}",', "")
        assert publishing.document_text(made) == whole

    def test_comes_back_with_a_roll_back_and_stays_with_other_changes(self) -> None:
        made = publish(Edit.of(make_pause()))
        publish(Edit.of(make_assignment("more", "web", order=7)))
        assert [each.name for each in live().pauses] == ["web-paused"]
        publishing.roll_back(to_number=made.number - 1, by="ops", reason="back")
        assert live().pauses == []
        publishing.roll_back(to_number=made.number, by="ops", reason="and forth")
        assert [each.name for each in live().pauses] == ["web-paused"]

    @pytest.mark.parametrize(
        ("target", "says"),
        [
            ("RuleSet/gone", "no rule set gone is live"),
            ("Assignment/gone", "no Assignment gone is live"),
            ("RuleSet/web/gone", "rule set web has no rule gone; it has team"),
        ],
    )
    def test_of_something_that_is_not_there_is_refused(self, target: str, says: str) -> None:
        with pytest.raises(PublishingError, match=says):
            publish(Edit.of(make_pause(target=target)))
        assert live().pauses == []

    def test_of_something_that_comes_with_the_same_change_is_right(self) -> None:
        publish(Edit.of(make_rule_set("new")), Edit.of(make_pause(target="RuleSet/new/PodFitsResources")))
        assert len(live().pauses) == 1

    def test_that_somebody_else_changed_meanwhile_has_to_be_looked_at(self) -> None:
        publish(Edit.of(make_pause()))
        change = publishing.open_change(title="end", edits=[Edit("Pause", "web-paused", None)], by="ops")
        publish(Edit.of(make_pause(reason="longer than thought")))
        with pytest.raises(PublishingError, match="published another Pause web-paused"):
            publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        moved = publishing.moved_of(Change.objects.get(pk=change.pk))
        assert [(each.kind, each.name, each.mine) for each in moved] == [("Pause", "web-paused", None)]


def required(monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    changed = msgspec.structs.replace(settings.BERTH, review_required=True, **more)
    monkeypatch.setattr(settings, "BERTH", changed)


class TestVerbs:
    def test_pausing_makes_a_change_and_publishes_it(self) -> None:
        change = publishing.pause(
            target="RuleSet/web/team", by="ops", reason="nodes move", until="2030-01-01T00:00:00Z"
        )
        assert (change.state, change.title) == ("published", "Pause rule team of rule set web")
        [pause] = live().pauses
        assert (pause.target, pause.reason, pause.until) == ("RuleSet/web/team", "nodes move", "2030-01-01T00:00:00Z")
        assert change.revision is not None
        assert change.revision.number == live().number

    @pytest.mark.parametrize("target", ["everything", "RuleSet/web", "RuleSet/web/team", "Assignment/all"])
    def test_resuming_ends_what_pausing_began(self, target: str) -> None:
        publishing.pause(target=target, by="ops", reason="why")
        assert [each.target for each in live().pauses] == [target]
        change = publishing.resume(target=target, by="ops", reason="over")
        assert live().pauses == []
        assert change.state == "published"

    def test_resuming_ends_every_pause_of_a_target_and_no_other(self) -> None:
        named = {"one": "RuleSet/web", "two": "RuleSet/web", "part": "RuleSet/web/team"}
        publish(*(Edit.of(make_pause(name, target)) for name, target in named.items()))
        publishing.resume(target="RuleSet/web", by="ops", reason="over")
        assert [each.name for each in live().pauses] == ["part"]

    def test_who_looked_at_another_pause_of_a_target_does_not_resume_it(self) -> None:
        publishing.pause(target="everything", by="ops", reason="why")
        looked_at = publishing.digest_of_shown(*live().pauses)
        publishing.pause(target="everything", by="alice", reason="an incident")
        with pytest.raises(PublishingError, match="Somebody was faster"):
            publishing.resume(target="everything", by="ops", reason="over", looked_at=looked_at)
        assert [each.reason for each in live().pauses] == ["an incident"]
        looked_at = publishing.digest_of_shown(*live().pauses)
        publishing.resume(target="everything", by="ops", reason="over", looked_at=looked_at)
        assert live().pauses == []

    def test_what_is_paused_is_paused_anew_with_another_end(self) -> None:
        publishing.pause(target="everything", by="ops", reason="why")
        publishing.pause(target="everything", by="ops", reason="why", until="2030-01-01T00:00:00Z")
        assert [(each.name, each.until) for each in live().pauses] == [("everything", "2030-01-01T00:00:00Z")]
        with pytest.raises(PublishingError, match="Nothing would change"):
            publishing.pause(target="everything", by="ops", reason="why", until="2030-01-01T00:00:00Z")

    @pytest.mark.parametrize(
        ("untils", "left"),
        [
            (("2030-01-01T00:00:00Z", ""), ["second"]),
            (("", "2030-01-01T00:00:00Z"), ["first"]),
            (("", ""), ["first"]),
            (("2020-01-01T00:00:00Z", "2028-01-01T00:00:00Z"), ["first", "second"]),
        ],
    )
    def test_what_files_paused_twice_is_paused_anew_until_the_end_that_was_asked_for(
        self, untils: tuple[str, str], left: list[str]
    ) -> None:
        """What ends no later is left: its removal would have to be reviewed."""
        ends = ({"until": until} if until else {} for until in untils)
        publish(*(Edit.of(make_pause(name, **end)) for name, end in zip(("first", "second"), ends, strict=True)))
        publishing.pause(target="RuleSet/web", by="ops", reason="why", until="2029-01-01T00:00:00Z")
        assert [each.name for each in live().pauses] == left
        assert max(each.until for each in live().pauses) == "2029-01-01T00:00:00Z"

    def test_targets_that_look_alike_have_names_of_their_own(self) -> None:
        publish(Edit.of(make_rule_set("web-team", filters=[TEAM_FILTER])))
        for target in ("RuleSet/web/team", "RuleSet/web-team"):
            publishing.pause(target=target, by="ops", reason="why")
        assert sorted(each.target for each in live().pauses) == ["RuleSet/web-team", "RuleSet/web/team"]
        publish(Edit.of(make_pause("ruleset-web", "everything")))
        publishing.pause(target="RuleSet/web", by="ops", reason="why")
        assert len(live().pauses) == 4

    def test_the_log_says_until_when(self) -> None:
        until = "2999-01-01T00:00:00Z"
        publishing.pause(target="RuleSet/web", by="ops", reason="why", until=until)
        publishing.exempt(name="cart", spec=exemption_document(until=until)["spec"], by="ops")
        events = [event for event in AuditEvent.objects.all() if "target" in publishing.said_by(event).more]
        assert [publishing.said_by(event).more["until"] for event in events] == [until, until]

    def test_two_that_wait_for_targets_that_look_alike_are_two(self, monkeypatch: pytest.MonkeyPatch) -> None:
        publish(Edit.of(make_rule_set("web-team", filters=[TEAM_FILTER])))
        required(monkeypatch)
        for target in ("RuleSet/web/team", "RuleSet/web-team"):
            assert publishing.pause(target=target, by="ops", reason="why").state == "in_review"
        rows = Change.objects.filter(state="in_review")
        assert len({edit.name for row in rows for edit in publishing.edits_of(row)}) == 2

    def test_of_a_target_whose_name_is_as_long_as_names_get(self) -> None:
        name = "a" * 63
        publish(Edit.of(make_rule_set(name, filters=[TEAM_FILTER])))
        publishing.pause(target=f"RuleSet/{name}", by="ops", reason="why")
        assert [each.target for each in live().pauses] == [f"RuleSet/{name}"]

    def test_what_is_wrong_is_refused(self) -> None:
        for target, until, says in (
            ("RuleSet/gone", "", "no rule set gone is live"),
            ("Node/n1", "", "must be everything"),
            ("everything", "soon", "must be a time"),
            ("everything", "2020-01-01T00:00:00-05:00", "It would end at 2020-01-01 05:00:00 UTC, which is past"),
        ):
            with pytest.raises(PublishingError, match=says):
                publishing.pause(target=target, by="ops", reason="why", until=until)
        with pytest.raises(PublishingError, match="which is past"):
            publishing.exempt(name="cart", spec=exemption_document(until="2020-01-01T00:00:00Z")["spec"], by="ops")
        with pytest.raises(PublishingError, match=r"isn't paused\.$"):
            publishing.resume(target="everything", by="ops", reason="")
        for target in ("web", "RuleSet/", "RuleSet/a/b/c", ""):
            with pytest.raises(PublishingError, match=r"must be everything|is needed"):
                publishing.resume(target=target, by="ops", reason="")
        assert (live().pauses, live().exemptions) == ([], [])

    @pytest.mark.parametrize("role", ["Auditor", "Approver"])
    def test_who_may_not_edit_may_neither_pause_nor_resume_even_where_they_may_publish(self, role: str) -> None:
        dave = person("dave", role)
        with pytest.raises(PublishingError, match=r"^dave may not pause or resume; an Operator may\.$"):
            publishing.pause(target="everything", by=dave, reason="why")
        publishing.pause(target="RuleSet/web", by="ops", reason="why")
        with pytest.raises(PublishingError, match=r"^dave may not pause or resume; an Operator may\.$"):
            publishing.resume(target="RuleSet/web", by=dave, reason="over")
        assert [each.target for each in live().pauses] == ["RuleSet/web"]

    def test_of_several_exemptions_the_named_one_ends_and_the_record_names_its_target(self) -> None:
        publish(Edit.of(make_rule_set("data", filters=[TEAM_FILTER])))
        for name, target in (("cart", "RuleSet/web/team"), ("stock", "RuleSet/data/team")):
            spec = exemption_document(target=target, until="2999-01-01T00:00:00Z")["spec"]
            publishing.exempt(name=name, spec=spec, by="ops", replaces="")
        publishing.end_exemption(name="stock", by="ops", reason="over")
        assert [each.name for each in live().exemptions] == ["cart"]
        event = AuditEvent.objects.get(kind="exemption.end")
        more = publishing.said_by(event).more
        assert (event.thing_name, more["name"], more["target"]) == ("data", "stock", "RuleSet/data/team")
        with pytest.raises(PublishingError, match=r"^There is no Exemption stock\.$"):
            publishing.end_exemption(name="stock", by="ops", reason="over")

    def test_who_looked_at_another_revision_is_told(self) -> None:
        seen = publishing.digest_of_shown(live().number)
        publishing.pause(target="RuleSet/web", by="ops", reason="why")
        with pytest.raises(PublishingError, match="changed since you looked"):
            publishing.pause(target="everything", by="ops", reason="why", expected_digest=seen)
        with pytest.raises(PublishingError, match="changed since you looked"):
            publishing.resume(target="RuleSet/web", by="ops", reason="why", expected_digest=seen)


class TestReview:
    def test_where_it_is_required_a_pause_waits_for_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        required(monkeypatch)
        change = publishing.pause(target="everything", by="ops", reason="why")
        assert (change.state, live().pauses) == ("in_review", [])
        approver = person("carol", "Approver")
        publishing.approve_change(change=change, by=approver, expected_digest=change.digest)
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        assert len(live().pauses) == 1

    def test_a_pause_for_some_hours_that_is_sent_twice_is_reviewed_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        required(monkeypatch)
        end = timezone.now().replace(microsecond=0) + timedelta(hours=4)

        def pause(end: datetime, reason: str = "why", by: str = "ops") -> Change:
            return publishing.pause(target="RuleSet/web", by=by, reason=reason, until=end.isoformat())

        first = pause(end)
        with pytest.raises(PublishingError, match=f"{first} of ops has the same result and is already in review"):
            pause(end + timedelta(seconds=3))
        assert Change.objects.filter(state="in_review").count() == 1
        # Another duration, another reason and another person are others' Pauses.
        others = [pause(end + timedelta(hours=20)), pause(end, "another"), pause(end + timedelta(seconds=9), by="bob")]
        assert {each.state for each in others} == {"in_review"}

    def test_a_pause_may_be_set_to_need_none_but_resuming_needs_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        required(monkeypatch, review_pauses=False)
        assert publishing.pause(target="everything", by="ops", reason="why").state == "published"
        assert publishing.resume(target="everything", by="ops", reason="over").state == "in_review"
        assert len(live().pauses) == 1

    def test_what_is_paused_for_longer_needs_none_either(self, monkeypatch: pytest.MonkeyPatch) -> None:
        required(monkeypatch, review_pauses=False)
        for until in ("2029-01-01T00:00:00Z", "2030-01-01T00:00:00Z", ""):
            change = publishing.pause(target="RuleSet/web", by="ops", reason="why", until=until)
            assert change.state == "published", until
        assert [each.until for each in live().pauses] == [""]
        # From here on each would have rules decide that don't now.
        assert (
            publishing.pause(target="RuleSet/web", by="ops", reason="why", until="2031-01-01T00:00:00Z").state
            == "in_review"
        )

    def test_the_same_end_for_another_reason_needs_none_and_another_target_does(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(Edit.of(make_pause(target="RuleSet/web", until="2030-01-01T00:00:00Z")))
        required(monkeypatch, review_pauses=False)
        publish(Edit.of(make_pause(target="RuleSet/web", until="2030-01-01T00:00:00Z", reason="INC-1")))
        # What the Pause named before would come into force.
        for target in ("RuleSet/web/team", "Assignment/all", "everything"):
            with pytest.raises(PublishingError, match="approval"):
                publish(Edit.of(make_pause(target=target, reason="INC-1")))

    def test_what_does_more_than_tighten_a_pause_needs_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        publishing.pause(target="everything", by="ops", reason="why", until="2030-01-01T00:00:00Z")
        required(monkeypatch, review_pauses=False)
        shorter = publishing.pause(target="everything", by="ops", reason="why", until="2029-01-01T00:00:00Z")
        assert shorter.state == "in_review"
        with pytest.raises(PublishingError, match="approval"):
            publish(Edit.of(make_pause()), Edit.of(make_exemption()))
        with pytest.raises(PublishingError, match="approval"):
            publish(Edit.of(make_pause()), Edit("Assignment", "all", None))

    @pytest.mark.parametrize("target", ["everything", "RuleSet/web", "RuleSet/web/team", "Assignment/all"])
    def test_a_rule_set_that_needs_approvals_is_not_paused_without(self, target: str) -> None:
        admin = User.objects.create_superuser("root")
        publishing.set_review(rule_set="web", approvals=1, by=admin, reason="theirs")
        assert publishing.pause(target=target, by="ops", reason="why").state == "in_review"
        with pytest.raises(PublishingError, match="approval"):
            publish(Edit.of(make_exemption()))

    @pytest.mark.parametrize(("roll_backs", "state"), [(False, "published"), (True, "in_review")])
    def test_where_pauses_need_none_a_setting_asks_for_them_if_it_does_so_for_roll_backs(
        self, roll_backs: bool, state: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publishing.set_review(rule_set="web", approvals=1, roll_backs=roll_backs, by="root")
        assert publishing.pause(target="Assignment/all", by="ops", reason="why").state == "in_review"
        monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, review_pauses=False))
        assert publishing.pause(target="RuleSet/web", by="ops", reason="why").state == state

    def test_the_gate_does_not_keep_anybody_from_pausing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, gate_required=True))
        assert publishing.pause(target="everything", by="ops", reason="why").state == "published"
        with pytest.raises(PublishingError, match="gate"):
            publish(Edit.of(make_exemption()))

    def test_what_comes_into_force_again_waits_for_the_gate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        publishing.pause(target="RuleSet/web", by="ops", reason="why")
        monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, gate_required=True))
        sooner = f"{timezone.now() + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
        assert publishing.pause(target="RuleSet/web", by="ops", reason="why", until=sooner).state == "in_review"
        assert publishing.resume(target="RuleSet/web", by="ops", reason="done").state == "in_review"
        (paused,) = live().pauses
        with pytest.raises(PublishingError, match="gate"):
            publish(Edit("Pause", paused.name, None))


class TestEndsWithItsTarget:
    """What is paused and then removed isn't paused any more: brought back, it is in force."""

    @pytest.mark.parametrize(
        ("target", "gone", "is_again"),
        [
            ("RuleSet/web", Edit("RuleSet", "web", None), make_rule_set("web", filters=[TEAM_FILTER])),
            ("RuleSet/web/team", Edit("RuleSet", "web", None), make_rule_set("web", filters=[TEAM_FILTER])),
            ("RuleSet/web/team", Edit.of(make_rule_set("web")), make_rule_set("web", filters=[TEAM_FILTER])),
            ("Assignment/all", Edit("Assignment", "all", None), make_assignment("all", "web")),
        ],
    )
    def test_it_ends_whatever_removes_its_target(self, target: str, gone: Edit, is_again: Any) -> None:
        if gone.value is None and gone.kind == "RuleSet":
            publish(Edit("Assignment", "all", None))
        suspended: list[Any] = [make_pause(target=target)]
        suspended += [make_exemption(target=target)] if target.startswith("RuleSet") else []
        publish(*map(Edit.of, suspended))
        assert publishing.ended_with(live(), [gone]) == suspended
        made = publish(gone)
        assert (live().pauses, live().exemptions) == ([], [])
        what = target_in_words(target)
        said = {f"{type(each).__name__} {each.name} ended with {what}" for each in suspended}
        assert said <= set(made.summary.splitlines())
        ended = AuditEvent.objects.filter(kind__in=["resume", "exemption.end"], revision=made.number)
        assert [(row.by, row.reason) for row in ended] == [("ops", f"{what} is gone")] * len(suspended)
        said = [publishing.said_by(row).more for row in ended]
        assert sorted(each["name"] for each in said) == sorted(each.name for each in suspended)
        assert {each["target"] for each in said} == {target}
        publish(Edit.of(is_again))
        assert (live().pauses, live().exemptions) == ([], [])

    def test_an_exemption_alone_ends_and_is_written_down_too(self) -> None:
        publish(Edit("Assignment", "all", None), Edit.of(make_exemption()))
        made = publish(Edit("RuleSet", "web", None))
        assert live().exemptions == []
        (ended,) = AuditEvent.objects.filter(kind="exemption.end", revision=made.number)
        assert (publishing.said_by(ended).more["name"], ended.reason) == ("cart", "rule set web is gone")

    def test_what_is_there_still_stays_paused(self) -> None:
        publish(Edit.of(make_pause(target="RuleSet/web/team")), Edit.of(make_pause("storm", "everything")))
        publish(Edit.of(make_rule_set("web", filters=[TEAM_FILTER, {"builtin": "PodFitsHost"}])))
        publish(Edit("Assignment", "all", None))
        assert len(live().pauses) == 2

    def test_archived_on_its_page_it_is_said_before(self, operator: Client) -> None:
        publish(Edit("Assignment", "all", None), Edit.of(make_pause(target="RuleSet/web")))
        url = f"/admin/policies/ruleset/{RuleSet.objects.get().pk}/archive/"
        said = "ends with it: rule set web would be gone; if it comes back, it is in force"
        assert said in text_of(get(operator, url))
        confirmed(operator, url, "not used")
        assert live().pauses == []
        publishing.go_back(version=RuleSetVersion.objects.get(), by="ops", reason="wanted again")
        assert ([each.name for each in live().rule_sets], live().pauses) == (["web"], [])

    def test_a_removal_and_its_change_say_it_on_their_pages(self, operator: Client) -> None:
        publish(Edit.of(make_pause(target="Assignment/all")))
        said = "Pause web-paused ends with it: Assignment all would be gone"
        row = Assignment.objects.get()
        assert said in text_of(get(operator, f"/admin/policies/assignment/{row.pk}/delete/"))
        change = publishing.open_change(title="gone", edits=[Edit("Assignment", "all", None)], by="ops")
        assert said in text_of(get(operator, f"/admin/policies/change/{change.pk}/change/"))


class TestSuspended:
    def test_says_what_is_out_of_force_by_whom_and_whether_it_has_ended(self) -> None:
        publishing.pause(target="RuleSet/web", by="ops", reason="why", until="2030-01-01T00:00:00Z")
        publishing.pause(target="everything", by="eve", reason="storm")
        publish(Edit.of(make_exemption()))
        [all_of_it, web, cart] = publishing.suspended(datetime(2030, 1, 1, tzinfo=UTC))
        assert (all_of_it.what, all_of_it.by, all_of_it.ends_at, all_of_it.has_ended) == (
            "everything",
            "eve",
            None,
            False,
        )
        assert (web.what, web.revision, web.has_ended) == ("rule set web", live().number - 2, True)
        assert (cart.value.name, cart.has_ended) == ("cart", True)

    def test_exemptions_are_announced_before_they_end(self) -> None:
        publish(Edit.of(make_exemption()), Edit.of(make_pause(until="2026-02-01T00:00:00Z")))
        end = datetime(2026, 2, 1, tzinfo=UTC)
        assert publishing.ending_soon(end - timedelta(days=8)) == []
        assert [each.value.name for each in publishing.ending_soon(end - timedelta(days=7))] == ["cart"]
        assert [each.has_ended for each in publishing.ending_soon(end)] == [True]


def test_the_lists_of_revisions_and_events_name_the_rule_that_is_paused(auditor: Client) -> None:
    publishing.pause(target="RuleSet/web/team", by="ops", reason="fire: all of it")
    publishing.resume(target="RuleSet/web/team", by="ops", reason="over")
    revisions = text_of(get(auditor, "/admin/policies/revision/"))
    assert "rule team of rule set web is paused until it is resumed fire: all of it" in revisions
    assert "rule team of rule set web is no longer paused by it over" in revisions
    events = text_of(get(auditor, "/admin/policies/audit/"))
    assert "paused rule team of rule set web" in events
    paused = AuditEvent.objects.get(kind="pause")
    said = text_of(get(auditor, f"/admin/policies/audit/{paused.pk}/"))
    made = f"by Change {paused.change}, which made Revision {paused.revision}."
    assert f"ops paused rule team of rule set web {made}" in said


class TestCommands:
    def run(self, *args: str) -> dict[str, Any]:
        out = io.StringIO()
        try:
            call_command(*args, "--output", "json", stdout=out)
        except CommandError:
            assert '"ok": false' in out.getvalue()
        found: dict[str, Any] = json.loads(out.getvalue())
        return found

    def test_what_pause_suspends_holds_until_resume(self) -> None:
        found = self.run("pause", "RuleSet/web/team", "--reason", "nodes move", "--until", "2030-01-01T00:00:00+01:00")
        assert (found["ok"], found["revision"], found["state"]) == (True, live().number, "published")
        assert [each.until for each in live().pauses] == ["2029-12-31T23:00:00Z"]
        assert self.run("resume", "RuleSet/web/team")["ok"]
        assert live().pauses == []

    def test_a_time_without_a_zone_is_utc_as_of_all_commands(self) -> None:
        assert self.run("pause", "RuleSet/web", "--reason", "nodes move", "--until", "2030-01-01T09:00")["ok"]
        assert [each.until for each in live().pauses] == ["2030-01-01T09:00:00Z"]
        found = self.run("pause", "RuleSet/web", "--reason", "nodes move", "--until", "noon")
        assert found["error"].startswith("--until 'noon' is neither a day nor a time: ")
        assert found["error"].endswith("; or 90m, 2h, 3d from now")

    @pytest.mark.parametrize(("text", "later"), [("90m", timedelta(minutes=90)), ("2h", timedelta(hours=2))])
    def test_its_end_may_be_given_from_now_as_to_berth_pause(self, text: str, later: timedelta) -> None:
        began = timezone.now().replace(microsecond=0)
        assert self.run("pause", "RuleSet/web", "--reason", "nodes move", "--until", text)["ok"]
        (until,) = (datetime.fromisoformat(each.until) for each in live().pauses)
        assert began + later <= until <= timezone.now() + later
        found = self.run("pause", "RuleSet/web", "--reason", "nodes move", "--until", "9" * 30 + "d")
        assert found["error"].endswith(" is too far away")

    def test_what_is_refused_is_told(self) -> None:
        found = self.run("resume", "everything")
        assert (found["ok"], found["change"]) == (False, None)
        assert "isn't paused" in found["error"]

    def test_they_tell_people_what_came_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        out = io.StringIO()
        call_command("pause", "everything", "--reason", "storm", stdout=out)
        required(monkeypatch)
        call_command("resume", "everything", stdout=out)
        first, second = out.getvalue().splitlines()
        assert first.startswith(f"Revision {live().number} was made by Change ")
        assert "is in review: Resume everything" in second

    def test_an_end_that_is_past_is_said_by_plan_and_apply_and_on_the_page(
        self, tmp_path: Path, operator: Client
    ) -> None:
        path = tmp_path / "old.yaml"
        path.write_text(json.dumps(exemption_document(until="2026-02-01T00:00:00Z")))
        said = "! Exemption cart ended at 2026-02-01 00:00:00 UTC, which is past: it has nothing out of force"
        out = io.StringIO()
        with pytest.raises(SystemExit):
            call_command("plan", str(path), stdout=out)
        assert said in out.getvalue()
        out = io.StringIO()
        call_command("apply", str(path), stdout=out)
        assert said in out.getvalue()
        change = Change.objects.get(state="draft")
        assert said.removeprefix("! ") in text_of(get(operator, f"/admin/policies/change/{change.pk}/change/"))
        out = io.StringIO()
        call_command("apply", "--publish", str(path), stdout=out)
        assert said in out.getvalue()

    def test_an_end_that_passes_while_its_change_waits_is_refused_and_said_on_the_page_and_over_rest(
        self, operator: Client
    ) -> None:
        change = publishing.open_change(title="move", edits=[Edit.of(make_exemption())], by="ops")
        at = datetime(2026, 1, 1, tzinfo=UTC)
        change.edits.update(edited_at=at)
        said = "Exemption cart ended at 2026-02-01 00:00:00 UTC, while this waited: live, it would have nothing out of force. Give it another end"
        with pytest.raises(PublishingError, match=said):
            publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        emergency = person("eve", "Emergency")
        with pytest.raises(PublishingError, match=said):
            publishing.publish_urgently(change=change, by=emergency, expected_digest=change.digest, reason="now")
        assert said in text_of(get(operator, f"/admin/policies/change/{change.pk}/change/"))
        (_, line) = operator.get(f"/api/v1/changes/{change.pk}").json()["changes"]
        assert line.startswith("! Exemption cart ended at")
        out = io.StringIO()
        call_command("change", "show", change.pk, stdout=out)
        assert line in out.getvalue()
        longer = make_exemption(until="2999-01-01T00:00:00Z")
        change = publishing.edit_change(change=change, edits=[Edit.of(longer)], by="ops", expected_digest=change.digest)
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        assert live().exemptions == [longer]

    def test_an_end_that_passes_while_a_roll_back_waits_holds_nothing_up(self) -> None:
        made = publish(Edit.of(make_exemption()))
        publish(Edit("Exemption", "cart", None))
        change = open_roll_back(to_number=made.number, by="ops", reason="back")
        assert change is not None
        change.edits.update(edited_at=datetime(2026, 1, 1, tzinfo=UTC))
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        assert [each.name for each in live().exemptions] == ["cart"]

    @pytest.mark.parametrize(
        ("document", "said"),
        [
            (pause_document(target="RuleSet/wbe"), "web-paused: spec.target: no rule set wbe is live"),
            (exemption_document(target="RuleSet/web/taem"), "cart: spec.target: rule set web has no rule taem"),
        ],
    )
    def test_a_slip_in_a_target_is_refused_by_plan_as_by_apply(
        self, tmp_path: Path, document: dict[str, Any], said: str
    ) -> None:
        path = tmp_path / "slip.yaml"
        path.write_text(json.dumps(document))
        for command in (["plan", "--no-cluster"], ["apply", "--publish"]):
            with pytest.raises(CommandError, match=said):
                call_command(*command, str(path), stdout=io.StringIO())

    def test_export_writes_what_apply_reads(self, tmp_path: Path) -> None:
        publish(Edit.of(make_pause()), Edit.of(make_exemption()))
        out = io.StringIO()
        call_command("export", stdout=out)
        before = live()
        publish(Edit("Pause", "web-paused", None), Edit("Exemption", "cart", None))
        (tmp_path / "all.yaml").write_text(out.getvalue())
        call_command("apply", "--publish", str(tmp_path / "all.yaml"), stdout=io.StringIO())
        assert (live().pauses, live().exemptions) == (before.pauses, before.exemptions)
