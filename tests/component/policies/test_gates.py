"""The gate's runs: who asks for one, what becomes of it, and what publishing makes of what it found."""

import re
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from policies import publishing
from policies.models import AuditEvent, Change, ClusterPriorityClass, GateRun, GateSetting, RuleSetVersion
from policies.publishing import Edit, PublishingError, Result, gates
from policies.publishing.gates import FOUND, PASSED, UNKNOWN
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import confirmed, get, publish_all, text_of
from tests.conftest import HTTPSClient

pytestmark = pytest.mark.django_db

A = {"filters": [{"builtin": "PodFitsHost"}]}
B = {"filters": [{"builtin": "MatchNodeSelector"}]}
NOTHING = [Result("refused", PASSED, "every Pod that runs could run where it is"), Result("tests", PASSED, "no tests")]
FIVE = [Result("refused", FOUND, "5 Pods run where their rules would refuse them", ["shop/web-1 runs on n1"], count=5)]


def set_(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **fields))


@pytest.fixture
def required(monkeypatch: pytest.MonkeyPatch) -> None:
    set_(monkeypatch, gate_required=True)


def opened(*values: Any) -> Change:
    return publishing.open_change(
        title="tested", edits=[Edit.of(value) for value in values or [make_rule_set(**A)]], by="ops", reason="why"
    )


def gated(change: Change, results: list[Result], **more: Any) -> GateRun:
    """Run the gate of a Change, which finds this."""
    asked = publishing.run_gate(change=change, by="ops")
    run = publishing.take_gate(asked.pk)
    assert run is not None
    facts = {"revision": publishing.current_revision().number, "snapshot_at": timezone.now()} | more
    assert publishing.end_gate(run, results, **facts)
    return run


def publish(change: Change) -> Any:
    return publishing.publish_change(change=change, by="ops", expected_digest="")


def state_of(run: GateRun) -> str:
    return str(GateRun.objects.get(pk=run.pk).state)


class TestAsking:
    def test_what_is_sent_to_review_waits_for_the_gate(self, reviewed: None) -> None:
        change = opened()
        assert not change.gate_runs.exists()
        publishing.submit_change(change=change, by="ops", expected_digest="")
        assert [(run.state, run.digest, run.asked_by) for run in change.gate_runs.all()] == [
            ("queued", change.digest, "ops")
        ]

    def test_an_edit_in_review_cancels_the_run_and_asks_for_another(self, reviewed: None) -> None:
        change = opened()
        publishing.submit_change(change=change, by="ops", expected_digest="")
        publishing.edit_change(change=change, edits=[Edit.of(make_rule_set(**B))], by="ops", expected_digest="")
        assert [run.state for run in change.gate_runs.all()] == ["queued", "cancelled"]

    def test_an_edit_of_a_draft_cancels_the_run_of_what_it_was(self, required: None) -> None:
        change, right = opened(), Edit.of(make_rule_set(**B))
        was = publishing.run_gate(change=change, by="ops")
        publishing.edit_change(change=change, edits=[right], by="ops", expected_digest="")
        assert (state_of(was), publishing.take_gate()) == ("cancelled", None)
        now = publishing.run_gate(change=change, by="ops")
        assert publishing.take_gate() == now
        publishing.edit_change(change=change, edits=[Edit.of(make_rule_set(**A))], by="ops", expected_digest="")
        assert not publishing.end_gate(now, NOTHING, revision=0, snapshot_at=None)
        with pytest.raises(PublishingError, match="has to run first"):
            publish(change)

    def test_whoever_asks_twice_gets_one_run(self) -> None:
        change = opened()
        assert publishing.run_gate(change=change, by="a") == publishing.run_gate(change=change, by="b")

    def test_what_is_withdrawn_needs_no_run_any_more(self) -> None:
        change = opened()
        run = publishing.run_gate(change=change, by="ops")
        publishing.withdraw_change(change=change, by="ops")
        assert state_of(run) == "cancelled"
        with pytest.raises(PublishingError, match="It is withdrawn"):
            publishing.run_gate(change=change, by="ops")

    def test_who_may_do_nothing_with_changes_may_not_run_it(self) -> None:
        auditor = User.objects.create_user("auditor")
        auditor.groups.add(Group.objects.get(name="Auditor"))
        with pytest.raises(PublishingError, match="auditor may not run the gate"):
            publishing.run_gate(change=opened(), by=auditor)

    def test_the_oldest_runs_go_when_there_are_too_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gates, "_KEPT", 3)
        change = opened()
        for _ in range(5):
            gated(change, NOTHING)
        assert change.gate_runs.count() == 3

    def test_other_changes_keep_their_runs_and_each_its_newest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(gates, "_KEPT", 2)
        changes = [opened(make_rule_set(name, **A)) for name in ("a", "b")]
        made = {change: [gated(change, NOTHING) for _ in range(3)] for change in changes}
        gated(changes[0], NOTHING)
        assert changes[0].gate_runs.count() == 2
        assert set(changes[1].gate_runs.all()) == {*made[changes[1]][1:]}


class TestRunning:
    def test_one_run_is_taken_at_a_time_and_each_once(self) -> None:
        first, second = (publishing.run_gate(change=opened(make_rule_set(name, **A)), by="ops") for name in ("a", "b"))
        taken = publishing.take_gate()
        assert taken == first
        assert publishing.take_gate() is None
        assert publishing.take_gate(first.pk) is None
        assert taken is not None
        publishing.end_gate(taken, NOTHING, revision=0, snapshot_at=None)
        assert publishing.take_gate() == second

    def test_a_run_whose_process_is_gone_is_taken_up_again_once_and_who_was_taken_for_dead_writes_nothing(self) -> None:
        asked = publishing.run_gate(change=opened(), by="ops")
        lost = publishing.take_gate()
        GateRun.objects.update(heartbeat_at=timezone.now() - gates.SILENT * 2)
        again = publishing.take_gate()
        assert lost is not None
        assert again == asked
        assert not publishing.note_gate(lost, "late", 1, 2)
        assert not publishing.end_gate(lost, FIVE, revision=0, snapshot_at=None)
        GateRun.objects.update(heartbeat_at=timezone.now() - gates.SILENT * 2)
        assert publishing.take_gate() is None
        failed = GateRun.objects.get()
        assert "ended before it was done, twice" in failed.fault
        assert failed.ended_at is not None

    def test_a_process_that_ends_without_a_word_is_noticed_at_once(self) -> None:
        publishing.run_gate(change=opened(), by="ops")
        for state in ("queued", "failed"):
            run = publishing.take_gate()
            assert run is not None
            publishing.lose_gate(run)
            assert state_of(run) == state
        assert GateRun.objects.get().ended_at is not None

    def test_a_run_that_another_process_has_taken_up_or_that_is_over_is_not_lost_with_the_first(self) -> None:
        change = opened()
        publishing.run_gate(change=change, by="ops")
        first = publishing.take_gate()
        assert first is not None
        publishing.lose_gate(first)
        second = publishing.take_gate()
        assert second is not None
        publishing.lose_gate(first)
        assert state_of(second) == "running", "the second process goes on"
        assert publishing.end_gate(second, NOTHING, revision=0, snapshot_at=None)
        publishing.lose_gate(second)
        assert state_of(second) == "done", "its process may still be ended after its last word"

    def test_a_run_that_is_cancelled_as_it_is_taken_up_stays_so(self) -> None:
        asked = publishing.run_gate(change=opened(), by="ops")

        def cancelling(execute: Any, sql: str, *arguments: Any) -> Any:
            if '"started_at"' in sql and sql.startswith("UPDATE"):
                GateRun.objects.filter(pk=asked.pk).update(state=GateRun.State.CANCELLED)
            return execute(sql, *arguments)

        with connection.execute_wrapper(cancelling):
            assert publishing.take_gate() is None
        assert state_of(asked) == "cancelled"

    def test_what_a_run_found_long_ago_is_kept_while_lost_ones_are_looked_for(self) -> None:
        run = gated(opened(), NOTHING)
        GateRun.objects.update(heartbeat_at=timezone.now() - gates.SILENT * 2)
        assert publishing.take_gate() is None
        assert state_of(run) == "done"

    @pytest.mark.parametrize("days", [-1, 1])
    def test_a_machine_whose_clock_is_wrong_takes_nobody_for_dead_nor_is_taken_for_it(
        self, days: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publishing.run_gate(change=opened(), by="ops")
        right = timezone.now
        monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(days=days))
        run = publishing.take_gate()
        assert run is not None
        monkeypatch.setattr(timezone, "now", right)
        assert publishing.take_gate() is None
        monkeypatch.setattr(timezone, "now", lambda: right() + timedelta(days=days))
        assert publishing.take_gate() is None
        assert publishing.note_gate(run, "deciding on Pods", 3, 7)

    def test_who_showed_itself_before_the_clock_was_set_back_is_taken_for_dead(self) -> None:
        asked = publishing.run_gate(change=opened(), by="ops")
        publishing.take_gate()
        GateRun.objects.update(heartbeat_at=timezone.now() + timedelta(days=1))
        assert publishing.take_gate() == asked

    def test_who_shows_itself_is_not_taken_for_dead(self) -> None:
        publishing.run_gate(change=opened(), by="ops")
        run = publishing.take_gate()
        assert run is not None
        GateRun.objects.update(heartbeat_at=timezone.now() - gates.SILENT * 2)
        assert publishing.note_gate(run, "deciding on Pods", 3, 7)
        assert publishing.take_gate() is None
        row = GateRun.objects.get()
        assert (row.phase, row.done, row.total, row.state) == ("deciding on Pods", 3, 7, "running")


class TestPublishing:
    def test_without_the_setting_nobody_waits_for_the_gate(self) -> None:
        assert publish(opened())

    def test_what_a_blocking_check_found_is_not_published(self, monkeypatch: pytest.MonkeyPatch) -> None:
        change = opened()
        gated(change, FIVE)
        assert publishing.gate_of(change).refusal == ""
        set_(monkeypatch, gate_checks={**settings.BERTH.gate_checks, "refused": "blocking"})
        with pytest.raises(PublishingError, match=r"The gate blocks it: 5 Pods run .* \(shop/web-1 runs on n1\)"):
            publish(change)
        publishing.edit_change(change=change, edits=[Edit.of(make_rule_set(**B))], by="ops", expected_digest="")
        assert publish(change)

    def test_what_a_blocking_check_could_not_look_at_is_not_published(self, monkeypatch: pytest.MonkeyPatch) -> None:
        change = opened()
        gated(change, [Result("refused", UNKNOWN, "refused could not look at the cluster: away")])
        assert publishing.gate_of(change).refusal == ""
        set_(monkeypatch, gate_checks={**settings.BERTH.gate_checks, "refused": "blocking"})
        with pytest.raises(PublishingError, match="could not look at the cluster: away"):
            publish(change)

    def test_the_rule_sets_level_counts_where_it_is_stricter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        publish_all(make_rule_set("web", **A))
        change = opened(make_assignment("all", "web"))
        gated(change, FIVE)
        publishing.set_gate_level(rule_set="web", check="refused", level="blocking", by="ops")
        assert "5 Pods run" in publishing.gate_of(change).refusal
        set_(monkeypatch, gate_checks={**settings.BERTH.gate_checks, "refused": "blocking"})
        publishing.set_gate_level(rule_set="web", check="refused", level="warning", by="ops")
        assert "5 Pods run" in publishing.gate_of(change).refusal
        set_(monkeypatch, gate_checks={**settings.BERTH.gate_checks, "refused": "warning"})
        publishing.set_gate_level(rule_set="web", check="refused", level="off", by="ops")
        assert publishing.gate_of(change).refusal == ""
        with pytest.raises(PublishingError, match="There is no check nonsense"):
            publishing.set_gate_level(rule_set="web", check="nonsense", level="off", by="ops")

    def test_a_rule_set_whose_pods_are_taken_has_its_say_though_nobody_touches_it(self) -> None:
        publish_all(make_rule_set("web", **A), make_rule_set("pay", **A), make_assignment("pays", "pay"))
        publishing.set_gate_level(rule_set="pay", check="taken", level="blocking", by="ops")
        publishing.set_gate_level(rule_set="pay", check="refused", level="blocking", by="ops")
        change = opened(make_assignment("first", "web", order=1))
        gated(change, [*FIVE, Result("taken", FOUND, "rule sets lose Pods", found=[{"ruleSet": "web", "gained": 3}])])
        assert publishing.gate_of(change).refusal == "", "of pay nothing was found"
        gated(change, [*FIVE, Result("taken", FOUND, "rule sets lose Pods", found=[{"ruleSet": "pay", "lost": 3}])])
        assert publishing.gate_of(change).refusal.startswith("The gate blocks it: rule sets lose Pods.")
        assert publishing.overview_of([change])[change.pk].gate == publishing.GateMark.BLOCKS
        with pytest.raises(PublishingError, match="rule sets lose Pods"):
            publish(change)

    def test_where_it_is_required_only_what_it_has_looked_at_goes_live(self, required: None) -> None:
        change = opened()
        with pytest.raises(PublishingError, match="has to run first"):
            publish(change)
        publishing.run_gate(change=change, by="ops")
        with pytest.raises(PublishingError, match="still running"):
            publish(change)
        run = publishing.take_gate()
        assert run is not None
        publishing.fail_gate(run, "It took too long.")
        with pytest.raises(PublishingError, match=r"failed: It took too long\."):
            publish(change)
        gated(change, [*NOTHING, Result("documents", PASSED, "no faults")])
        assert publish(change)

    def test_a_blocking_check_that_was_not_asked_is_missing(self, required: None) -> None:
        change = opened()
        gated(change, [Result("tests", PASSED, "no tests")])
        with pytest.raises(PublishingError, match="hasn't checked: documents"):
            publish(change)
        assert publishing.gate_of(change).needs_run, "the clock asks for another run"

    def test_a_result_that_no_longer_counts_is_said_with_what_became_of_the_run_after_it(self, required: None) -> None:
        change = opened()
        gated(change, [*NOTHING, Result("documents", PASSED, "no faults")], revision=99)
        with pytest.raises(PublishingError, match=r"no longer counts: .* is live now\. Run it again\."):
            publish(change)
        publishing.run_gate(change=change, by="ops")
        with pytest.raises(PublishingError, match=r"no longer counts: .* is live now\. The gate is still running\."):
            publish(change)
        run = publishing.take_gate()
        assert run is not None
        publishing.fail_gate(run, "It took too long.")
        with pytest.raises(PublishingError, match=r"is live now\. The gate failed: It took too long\. Run it again\."):
            publish(change)

    def test_an_edit_needs_another_look(self, required: None) -> None:
        change = opened()
        gated(change, [*NOTHING, Result("documents", PASSED, "no faults")])
        publishing.edit_change(change=change, edits=[Edit.of(make_rule_set(**B))], by="ops", expected_digest="")
        with pytest.raises(PublishingError, match="has to run first"):
            publish(change)

    def test_what_is_old_or_of_another_revision_or_engine_needs_another_look(
        self, required: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        change = opened()
        looked = [*NOTHING, Result("documents", PASSED, "no faults")]
        gated(change, looked, snapshot_at=timezone.now() - timedelta(hours=3))
        assert "3 hours old, and may be 60 minutes" in publishing.gate_of(change).refusal
        gated(change, looked)
        assert publishing.gate_of(change).refusal == ""
        monkeypatch.setattr(gates, "engine_version", lambda: "another")
        assert "it was made by another version of Berth" in publishing.gate_of(change).refusal
        gated(change, looked)
        assert publishing.gate_of(change).refusal == ""
        publishing.publish_urgently(
            change=opened(make_rule_set("db", **A)), by=emergency(), expected_digest="", reason="!"
        )
        gate = publishing.gate_of(change)
        assert "it compared with Revision 0, and Revision 1 is live now" in gate.refusal
        assert gate.needs_run

    def test_roll_backs_and_emergencies_do_not_wait(self, required: None) -> None:
        publishing.publish_urgently(change=opened(), by=emergency(), expected_digest="", reason="now")
        publishing.publish_urgently(change=opened(make_rule_set(**B)), by=emergency(), expected_digest="", reason="now")
        made = publishing.roll_back(to_number=1, by="ops", reason="back")
        assert made is not None
        assert made.number == 3


class TestSingleActs:
    """What a page or a command publishes at once waits for the gate where that is required, as a Change on which it looks."""

    WAYS = "once the gate has run and it is published"

    def is_asked_for(self) -> Change:
        change = Change.objects.latest("pk")
        assert (change.state, GateRun.objects.get().change) == ("in_review", change)
        gated(change, [*NOTHING, Result("documents", PASSED, "no faults")])
        assert publish(change)
        return change

    def test_going_back_and_archiving(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        publish_all(make_rule_set("web", **A))
        publish_all(make_rule_set("web", **B))
        set_(monkeypatch, gate_required=True)
        version = RuleSetVersion.objects.get(number=1)
        back = f"/admin/policies/rulesetversion/{version.pk}/go-back/"
        assert "The gate has to check this first" in text_of(get(operator, back))
        assert self.WAYS in confirmed(operator, back, "worse")
        self.is_asked_for()
        assert RuleSetVersion.objects.get(state="published") == version
        GateRun.objects.all().delete()
        assert self.WAYS in confirmed(operator, f"/admin/policies/ruleset/{version.rule_set_id}/archive/", "unused")
        self.is_asked_for()
        assert publishing.current_revision().rule_sets == []

    def test_taking_over_a_class_of_the_cluster(self, operator: Client, required: None) -> None:
        now = timezone.now()
        there = {"value": 7, "preemption_policy": "PreemptLowerPriority", "looked_at": now, "changed_at": now}
        ClusterPriorityClass.objects.create(name="batch", present=True, managed=False, **there)
        assert self.WAYS in confirmed(operator, "/admin/scheduler/priority-classes/adopt/?name=batch", "ours")
        self.is_asked_for()
        assert publishing.live_priority_classes()["batch"].value == 7

    def test_exempting_and_ending_it(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        publish_all(make_rule_set("web", **A))
        set_(monkeypatch, gate_required=True)
        page, end = "/admin/policies/pauses/exempt/", "/admin/policies/pauses/end-exemption/?name=cart"
        typed = {"name": "cart", "owner": "cart", "target": "RuleSet/web", "pods": "shop/cart", "until": "2126-01-01"}
        digest = get(operator, page).context["form"]["digest"].value()
        said = operator.post(page, {**typed, "reason": "moving", "digest": digest}, follow=True)
        assert self.WAYS in text_of(said)
        self.is_asked_for()
        assert [each.name for each in publishing.current_revision().exemptions] == ["cart"]
        GateRun.objects.all().delete()
        assert self.WAYS in confirmed(operator, end, "moved")
        self.is_asked_for()
        assert publishing.current_revision().exemptions == []


def emergency() -> User:
    user, _ = User.objects.get_or_create(username="emergency")
    user.groups.add(Group.objects.get(name="Emergency"))
    return User.objects.get(pk=user.pk)


class TestPage:
    def page(self, change: Change) -> str:
        User.objects.filter(username="admin").delete()
        client = HTTPSClient()
        client.force_login(User.objects.create_superuser("admin"))
        return text_of(get(client, f"/admin/policies/change/{change.pk}/change/"))

    def test_it_says_how_far_the_gate_is_and_what_it_found_pods_first(self) -> None:
        change = opened()
        assert (
            "The gate hasn't run for the current state of this Change. Run it to see which Pods this would affect."
            in self.page(change)
        )
        publishing.run_gate(change=change, by="ops")
        assert "Waiting for a worker." in self.page(change)
        GateRun.objects.update(asked_at=timezone.now() - timedelta(minutes=1))
        assert f"manage.py gate {change.pk} runs it at once" in self.page(change)
        run = publishing.take_gate()
        assert run is not None
        publishing.note_gate(run, "deciding on Pods", 1_200, 3_400)
        assert "The gate is running: deciding on Pods: 1,200 of 3,400." in self.page(change)
        publishing.end_gate(run, [Result("tests", PASSED, "no tests"), *FIVE], revision=0, snapshot_at=timezone.now())
        said = self.page(change)
        assert "on Revision 0, with the cluster as of" in said
        assert said.index("! 5 Pods run where their rules would refuse them.") < said.index("✓ No tests.")
        assert said.index("shop/web-1 runs on n1") < said.index("What it changes")

    def test_a_finding_heads_its_list_as_a_thing_of_the_change_does(self) -> None:
        change = opened()
        gated(change, FIVE)
        client = HTTPSClient()
        client.force_login(User.objects.create_superuser("viewing"))
        piece = get(client, f"/admin/policies/change/{change.pk}/gate/").content.decode()
        assert '<p class="berth-thing">! 5 Pods run where' in piece

    def test_what_is_of_before_is_marked(self) -> None:
        change = opened()
        gated(change, NOTHING, snapshot_at=timezone.now() - timedelta(days=3))
        assert "! This result is outdated: it is 3 days old" in self.page(change)

    def test_only_what_moves_is_asked_for_again(self) -> None:
        client = HTTPSClient()
        client.force_login(User.objects.create_superuser("somebody"))
        change = opened()
        publishing.run_gate(change=change, by="ops")
        piece = get(client, f"/admin/policies/change/{change.pk}/gate/").content.decode()
        assert 'hx-trigger="every 1s"' in piece
        assert "<html" not in piece
        run = publishing.take_gate()
        assert run is not None
        publishing.fail_gate(run, "The cluster is too large.")
        piece = get(client, f"/admin/policies/change/{change.pk}/gate/").content.decode()
        assert "hx-trigger" not in piece
        assert "The gate failed: The cluster is too large." in piece


class TestSettings:
    def test_an_administrator_asks_more_of_a_check_for_a_rule_set_on_a_page(self) -> None:
        publish_all(make_rule_set("web", **A))
        client = HTTPSClient()
        client.force_login(User.objects.create_superuser("root"))
        typed = {"rule_set": "web", "check_name": "refused", "level": "blocking", "reason": "it hurt once"}
        client.post("/admin/policies/gatesetting/add/", typed)
        change = opened(make_assignment("all", "web"))
        gated(change, FIVE)
        assert "5 Pods run" in publishing.gate_of(change).refusal
        said = text_of(get(client, "/admin/policies/gatesetting/"))
        assert "it hurt once" in said
        assert "root" in said
        (row,) = GateSetting.objects.all()
        said = text_of(get(client, f"/admin/policies/gatesetting/{row.pk}/change/"))
        for words in ("rule set web", "Effect it isn't published", r"root ?, \d+ s ago", "it hurt once"):
            assert re.search(words, said), words

    def test_a_level_that_is_sent_twice_is_set_once(self) -> None:
        publish_all(make_rule_set("web", **A))
        client = HTTPSClient()
        client.force_login(User.objects.create_superuser("root"))
        typed = {"rule_set": "web", "check_name": "refused", "level": "blocking", "reason": "it hurt once"}
        for _again in range(2):
            assert client.post("/admin/policies/gatesetting/add/", typed).status_code == 302
        assert GateSetting.objects.count() == AuditEvent.objects.filter(kind="gate.set").count() == 1
        for level in ("warning", "blocking"):
            client.post("/admin/policies/gatesetting/add/", typed | {"level": level})
        assert GateSetting.objects.count() == 3

    def test_the_same_level_for_another_check_or_another_reason_is_set_too(self) -> None:
        root = User.objects.create_superuser("root")
        for check, reason in (("refused", "it hurt"), ("taken", "it hurt"), ("taken", "it hurt again")):
            publishing.set_gate_level(rule_set="web", check=check, level="blocking", by=root, reason=reason)
        made = GateSetting.objects.order_by("pk").values_list("check_name", "reason")
        assert list(made) == [("refused", "it hurt"), ("taken", "it hurt"), ("taken", "it hurt again")]
        before = AuditEvent.objects.filter(kind="gate.set").order_by("pk").values_list("before", flat=True)
        assert [bool(digest) for digest in before] == [False, False, True], "each check has a history of its own"

    def test_the_settings_of_a_rule_set_that_a_change_does_not_touch_do_not_count(self) -> None:
        levels = gates.strictest(["web"], {("pay", "taken"): "blocking", ("web", "refused"): "blocking"})
        assert (levels["taken"], levels["refused"]) == (settings.BERTH.gate_checks["taken"], "blocking")


class TestResults:
    def test_findings_come_first_and_among_them_those_that_block(self) -> None:
        levels = {"refused": "warning", "taken": "warning", "tests": "blocking", "documents": "blocking"}
        verdicts = {"documents": PASSED, "taken": FOUND, "tests": UNKNOWN, "refused": FOUND}
        results = [Result(check, verdict, check) for check, verdict in verdicts.items()]
        assert [each.check for each in gates.in_order(results, levels)] == ["tests", "refused", "taken", "documents"]

    @pytest.mark.parametrize(("count", "named"), [(3, "a, b, c"), (4, "a, b, c, …")])
    def test_a_refusal_names_the_first_findings_and_says_that_there_are_more(self, count: int, named: str) -> None:
        result = Result("refused", FOUND, "Pods run where they may not", list("abcd")[:count])
        assert f"may not ({named}). Edit it" in gates.blocked([result], {"refused": "blocking"})

    def test_its_form_chooses_no_rule_set_for_anybody(self) -> None:
        publish_all(make_rule_set("web", **A))
        client = HTTPSClient()
        client.force_login(User.objects.create_superuser("root"))
        page = "/admin/policies/gatesetting/add/"
        form = get(client, page).context["adminform"].form
        assert form.fields["rule_set"].choices == [("", "choose a rule set"), ("web", "web")]
        typed = {"rule_set": "", "check_name": "refused", "level": "blocking", "reason": "it hurt once"}
        assert "This field is required" in text_of(client.post(page, typed))
        assert not GateSetting.objects.exists()

    def test_a_level_below_the_installations_says_that_the_installation_asks_for_more(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        set_(monkeypatch, gate_checks={**settings.BERTH.gate_checks, "refused": "blocking"})
        root = User.objects.create_superuser("root")
        publishing.set_gate_level(rule_set="web", check="refused", level="warning", by=root)
        client = HTTPSClient()
        client.force_login(root)
        said = text_of(get(client, "/admin/policies/gatesetting/"))
        assert "a warning; BERTH_GATE_CHECKS is stricter: it isn't published" in said

    def test_a_list_of_many_asks_no_more_than_one_of_one(self) -> None:
        root = User.objects.create_superuser("root")
        client = HTTPSClient()
        client.force_login(root)
        asked = []
        for _ in range(2):
            for level in ("warning", "blocking", "off"):
                publishing.set_gate_level(rule_set="web", check="refused", level=level, by=root)
            with CaptureQueriesContext(connection) as queries:
                said = text_of(get(client, "/admin/policies/gatesetting/"))
            asked.append(len(queries))
        assert asked[0] == asked[1]
        assert (said.count("replaced"), said.count("holds")) == (5, 1)

    def test_who_may_not_change_its_checks_is_refused(self) -> None:
        operator = User.objects.create_user("operator")
        operator.groups.add(Group.objects.get(name="Operator"))
        with pytest.raises(PublishingError, match="operator may not change the gate's checks"):
            publishing.set_gate_level(rule_set="web", check="refused", level="blocking", by=operator)
