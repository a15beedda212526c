"""Who is requeued, by what, how often and how fast: the rows and the ticks, with a stand-in for the cluster."""

import logging
import threading
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.db.models.functions import Now
from prometheus_client import generate_latest

from policies.engine.decision import CompiledRevision, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import FilterRule, Revision, RuleSet, RuleSetSpec
from scheduler.cluster.errors import (
    APIConflictError,
    APIForbiddenError,
    APIInvalidError,
    APINotFoundError,
    APIUnavailableError,
)
from scheduler.decisions.reading import Names
from scheduler.decisions.record import NodesEntry
from scheduler.models import Decision, Requeue, RequeueState, WaitingPod
from scheduler.requeue import lease, requeuer
from scheduler.requeue.lease import LEASE_SECONDS, RENEW_SECONDS, Lease, LeaseLostError, leased
from scheduler.requeue.metrics import REQUEUES
from scheduler.requeue.refusals import Judgement
from scheduler.requeue.requeuer import ANNOTATION, Requeuer, _recorded
from tests.builders import make_assignment, make_node, make_pause, make_rule_set
from tests.component.requeue.world import ALWAYS, HALF_PAST, NEVER, NOON, World, make_pod, rules
from tests.component.revisions import store_revision
from tests.recording import row_of

pytestmark = pytest.mark.django_db


class TestAPause:
    def test_requeues_the_pods_that_the_paused_rule_had_refused(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER), rules("data", 1, NEVER))
        for name, policy in [("web-1", "web"), ("data-1", "data")]:
            world.refuse(first, name, policy)
        assert world.tick() == []
        world.pass_time(seconds=1)
        world.publish(rules("web", 1, NEVER), rules("data", 1, NEVER), pauses=[make_pause(target="RuleSet/web/f")])
        assert world.tick() == ["web-1"]

    def test_requeues_those_whose_assignment_is_back_at_its_end(self, world: World) -> None:
        end = world.now + timedelta(minutes=5)
        pause = make_pause(target="Assignment/open", until=end.isoformat())
        revision = world.publish(rules("open", 1, ALWAYS), rules("web", 1, NEVER), pauses=[pause])
        world.refuse(revision, "web-1", "web")
        # Taken by the Assignment that is paused, once it is back.
        world.cluster.pods["uid-web-1"]["metadata"]["labels"]["policy"] = "open"
        assert world.tick() == []
        world.pass_time(minutes=4)
        assert world.tick() == []
        world.pass_time(minutes=1)
        assert world.tick() == ["web-1"]

    def test_requeues_those_whose_assignment_came_back_while_no_worker_ran(self, world: World) -> None:
        end = world.now + timedelta(minutes=5)
        pause = make_pause(target="Assignment/open", until=end.isoformat())
        revision = world.publish(rules("open", 1, ALWAYS), rules("web", 1, NEVER), pauses=[pause])
        world.refuse(revision, "web-1", "web")
        world.cluster.pods["uid-web-1"]["metadata"]["labels"]["policy"] = "open"
        assert world.tick() == []
        world.pass_time(minutes=7)
        assert world.tick() == ["web-1"]


class TestAPublish:
    def test_requeues_exactly_the_pods_whose_refusal_it_changes(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER), rules("data", 1, NEVER))
        for name, policy in [("web-1", "web"), ("web-2", "web"), ("data-1", "data")]:
            world.refuse(first, name, policy)
        world.add(make_pod("in-tree", labels={"policy": "web"}), "0/2 nodes are available: 2 Insufficient cpu.", age=60)
        assert world.tick() == []
        world.pass_time(seconds=1)
        world.publish(rules("web", 2, ALWAYS), rules("data", 1, NEVER))

        assert world.tick() == ["web-1", "web-2"]

        annotations = world.cluster.pods["uid-web-1"]["metadata"]["annotations"]
        assert annotations == {ANNOTATION: "Revision 2 at 2026-05-01T12:00:01.000000Z"}
        assert not any("annotations" in world.cluster.pods[f"uid-{name}"]["metadata"] for name in ("data-1", "in-tree"))
        rows = Requeue.objects.order_by("revision").values_list("cause", "revision", "pods", "looked_at")
        assert list(rows) == [("revision", 1, 0, 1), ("revision", 2, 2, 4)]

    def test_that_helps_nobody_wakes_nobody(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "a", "web")
        world.publish(rules("web", 2, "node.metadata.name == 'n3'"))
        assert world.tick() == []
        assert Requeue.objects.get(revision=2).pods == 0

    def test_requeues_pods_though_the_workers_clock_is_ahead_of_the_databases(self, world: World) -> None:
        world.ahead = timedelta(minutes=1)
        world.refuse(world.publish(rules("web", 1, NEVER)), "a", "web")
        assert world.tick() == []
        world.publish(rules("web", 2, ALWAYS))
        assert world.tick() == ["a"]

    def test_requeues_a_pod_refused_late_by_a_former_one_though_the_workers_clock_was_set_back(
        self, world: World
    ) -> None:
        world.ahead = timedelta(days=1)
        first = world.publish(rules("web", 1, NEVER))
        world.publish(rules("web", 2, ALWAYS))
        assert world.tick() == []
        world.ahead = timedelta(0)
        world.refuse(first, "a", "web")
        assert world.tick() == ["a"]

    def test_that_lets_go_of_a_pod_wakes_it(self, world: World) -> None:
        world.refuse(world.publish(rules("web", 1, NEVER)), "a", "web")
        world.publish()
        assert world.tick() == ["a"]

    def test_requeues_a_pod_once(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "a", "web")
        world.publish(rules("web", 2, ALWAYS))
        assert world.tick() == ["a"]
        for _ in range(3):
            world.pass_time(seconds=20)
            assert world.tick() == []
        world.refuse(first, "a", "web")  # a Decision of before that came late
        world.pass_time(seconds=31)
        assert world.tick() == []
        world.publish(rules("web", 3, "node.metadata.name == 'n1'"))
        assert world.tick() == ["a"]

    def test_waits_until_all_living_extenders_serve_it(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.serve(1, "extender@b")
        world.refuse(first, "a", "web")
        world.publish(rules("web", 2, ALWAYS))
        assert world.tick() == []
        world.serve(2, "extender@b")
        assert world.tick() == ["a"]

    def test_does_not_wait_for_an_extender_that_is_silent(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "a", "web")
        world.serve(1, "extender@b")
        world.now += timedelta(seconds=6)
        world.publish(rules("web", 2, ALWAYS))
        assert world.tick() == ["a"]

    def test_does_nothing_while_no_extender_lives(self, world: World) -> None:
        world.refuse(world.publish(rules("web", 1, NEVER)), "a", "web")
        world.now += timedelta(seconds=6)
        assert world.tick() == []
        assert world.cluster.listed == []

    def test_takes_a_decision_by_a_later_revision_for_newer(self, world: World) -> None:
        world.publish(rules("web", 1, ALWAYS))
        second = world.publish(rules("web", 2, NEVER))
        world.refuse(second, "a", "web")
        world.serve(1)
        assert world.tick() == []

    def test_is_judged_with_the_pods_on_nodes_where_rules_look_at_them(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "a", "web")
        world.publish(rules("web", 2, ALWAYS))
        world.tick()
        assert world.cluster.listed == ["waiting", "nodes", "namespaces"]
        world.refuse(first, "b", "web")
        world.publish(rules("web", 3, "node.count({}) == 0"))
        world.cluster.listed.clear()
        assert world.tick() == ["a", "b"]
        assert world.cluster.listed == ["waiting", "nodes", "namespaces", "pods"]

    def test_that_this_process_does_not_understand_is_reported(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        spec = RuleSetSpec(filters=[FilterRule(name="f", expression="unknown()")])
        broken = Revision(number=1, rule_sets=[RuleSet(name="web", version=1, spec=spec)])
        store_revision(broken, at=NOON)
        world.serve(1)
        assert world.tick() == []
        assert "Revision 1 can't be used, no Pods are requeued for it: rule set web: " in caplog.text

    def test_compiled_revisions_are_kept_and_old_ones_let_go(self, world: World) -> None:
        for version in range(1, 7):
            world.publish(rules("web", version, ALWAYS))
            world.tick()
            world.pass_time(seconds=1)
        assert [revision.number for revision in world.requeuer._revisions.values()] == [3, 4, 5, 6]


class TestARefusalWithoutARecord:
    """Its Decision is on its way, or lost."""

    def test_is_waited_for_and_then_judged_by_the_revision_in_force_then(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "a", "web", record=False)
        world.add(make_pod("in-tree", labels={"policy": "web"}), "0/2 nodes are available: 2 Insufficient cpu.")
        world.pass_time(seconds=1)
        world.publish(rules("web", 2, ALWAYS))
        assert world.tick() == []
        world.pass_time(seconds=5)
        assert world.tick() == ["a"]
        world.pass_time(seconds=31)
        assert world.tick() == []

    def test_is_judged_by_its_decision_when_that_comes(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "a", "web", record=False)
        world.pass_time(seconds=1)
        world.publish(rules("web", 2, ALWAYS))
        assert world.tick() == []
        world.pass_time(seconds=1)
        world.refuse(first, "a", "web")
        assert world.tick() == ["a"]

    def test_does_not_concern_a_revision_that_was_in_force_already(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.pass_time(seconds=60)
        world.refuse(first, "a", "web", record=False)
        world.pass_time(seconds=60)
        assert world.tick() == []
        assert world.cluster.listed == ["waiting"]

    def test_of_before_the_first_revision_was_by_others(self, world: World) -> None:
        world.add(make_pod("a", labels={"policy": "web"}), "2 web refuses", age=3600)
        world.publish(rules("web", 1, ALWAYS))
        assert world.tick() == []

    def test_is_let_pass_by_time_like_others(self, world: World) -> None:
        first = world.publish(rules("web", 1, HALF_PAST))
        world.pass_time(seconds=1)
        world.refuse(first, "a", "web", record=False)
        world.pass_time(minutes=10)
        assert world.tick() == []
        world.pass_time(minutes=20)
        assert world.tick() == ["a"]
        world.pass_time(minutes=20)
        assert world.tick() == []

    def test_that_cannot_be_judged_is_reported_and_left(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "a", "web")
        world.refuse(first, "b", "web")
        Decision.objects.filter(pod_name="a").update(body=b"nonsense")
        world.cluster.pods["uid-b"]["spec"]["containers"] = 3
        world.publish(rules("web", 2, ALWAYS))
        assert world.tick() == []
        assert "default/a can't be evaluated" in caplog.text
        assert "default/b can't be evaluated" in caplog.text

    def test_stands_in_its_decision_with_the_params_of_then(self) -> None:
        gives = make_assignment("all", "web", params={"node": "nowhere"})
        named = {"name": "one", "expression": "node.metadata.name == params.node", "reason": "another one"}
        rule_sets = [make_rule_set("web", filters=[named], params={"node": "n1"})]
        revision = CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=[gives]))
        pod, snapshot = Pod.from_json(make_pod("a")), Snapshot.of([Node.from_json(make_node("n1"))])
        chosen = revision.choose(pod, snapshot, NOON).enforced
        assert chosen is not None
        cycle = Cycle(pod=pod, snapshot=snapshot, now=NOON, params=chosen[1].params)
        answer = decide(chosen[1], cycle, snapshot.table.all_rows(), scoring=False)
        about: dict[str, Any] = {"pod": pod, "now": NOON, "revision": revision, "rule_set": chosen[1]}
        row = row_of(NodesEntry(verb="filter", snapshot=snapshot, names=answer.names, answer=answer, **about))
        refusal = _recorded(row, Names())
        assert refusal is not None
        assert (refusal.params, refusal.nodes_by_rule) == ({"node": "nowhere"}, {"one": ["n1"]})


class TestTime:
    def test_requeues_a_pod_when_its_window_opens_and_not_before(self, world: World) -> None:
        first = world.publish(rules("web", 1, HALF_PAST), rules("data", 1, NEVER))
        world.refuse(first, "a", "web")
        world.refuse(first, "b", "data")
        assert world.tick() == []
        assert WaitingPod.objects.get(name="a").next_at == NOON + timedelta(minutes=30)
        world.pass_time(minutes=29, seconds=59)
        assert world.tick() == []
        world.pass_time(seconds=1)
        assert world.tick() == ["a"]
        assert world.cluster.pods["uid-a"]["metadata"]["annotations"][ANNOTATION].startswith("time at 2026-05-01T12:30")
        assert list(Requeue.objects.filter(cause="time").values_list("revision", "pods")) == [(1, 1)]

    def test_requeues_a_pod_once_for_a_refusal(self, world: World) -> None:
        hours = "now.getHours() >= 13"
        first = world.publish(rules("web", 1, hours))
        world.refuse(first, "a", "web")
        world.pass_time(minutes=61)
        assert world.tick() == ["a"]
        world.pass_time(minutes=60)
        assert world.tick() == []
        world.now = NOON + timedelta(minutes=1)
        world.refuse(first, "a", "web")  # refused once more, by an extender whose clock is behind
        world.pass_time(minutes=61)
        assert world.tick() == ["a"]

    def test_is_looked_for_in_new_refusals_at_once(self, world: World) -> None:
        first = world.publish(rules("web", 1, HALF_PAST))
        assert world.tick() == []
        world.pass_time(minutes=29, seconds=58)
        world.refuse(first, "a", "web")
        world.pass_time(seconds=1)
        assert world.tick() == []
        world.pass_time(seconds=1)
        assert world.tick() == ["a"]

    def test_costs_nothing_while_nothing_happens(self, world: World) -> None:
        first = world.publish(rules("web", 1, HALF_PAST))
        world.refuse(first, "a", "web")
        world.tick()
        world.cluster.listed.clear()
        for _ in range(10):
            world.pass_time(seconds=1)
            assert world.tick() == []
        assert world.cluster.listed == []
        world.pass_time(seconds=25)
        world.tick()
        assert world.cluster.listed == ["waiting"]

    def test_a_pod_that_is_gone_is_forgotten(self, world: World) -> None:
        first = world.publish(rules("web", 1, HALF_PAST))
        uid = world.refuse(first, "a", "web")
        world.tick()
        del world.cluster.pods[uid]
        world.pass_time(minutes=30)
        assert world.tick() == []
        assert not WaitingPod.objects.exists()


class TestRate:
    def test_pods_beyond_the_rate_wait_for_the_next_ticks_and_the_oldest_come_first(self, world: World) -> None:
        world.requeuer = world.make_requeuer(per_second=3)
        first = world.publish(rules("web", 1, NEVER))
        for place in range(7):
            world.refuse(first, f"p{place}", "web", age=place)
        world.publish(rules("web", 2, ALWAYS))
        assert world.tick() == ["p6", "p5", "p4"]
        assert world.tick() == ["p3", "p2", "p1"]
        assert world.tick() == ["p0"]
        assert Requeue.objects.get(revision=2).pods == 7
        assert (world.now - NOON).total_seconds() == pytest.approx(6 / 3, abs=0.001)
        assert max(world.paused) <= 1 / 3

    def test_pods_are_a_part_of_a_second_apart_also_from_tick_to_tick(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        for place in range(3):
            world.refuse(first, f"p{place}", "web")
        world.publish(rules("web", 2, ALWAYS))
        world.tick()
        assert world.paused == pytest.approx([1 / 50, 1 / 50])
        world.refuse(first, "late", "web")
        world.publish(rules("web", 3, "node.metadata.name == 'n1'"))
        assert len(world.tick()) == 4
        assert len(world.paused) == 6

    def test_a_long_look_is_followed_by_a_rest(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        passed = [0.0]
        monkeypatch.setattr(requeuer, "time", SimpleNamespace(monotonic=lambda: passed[0]))
        listing = world.cluster.list_pods

        def slow(**arguments: Any) -> list[dict[str, Any]]:
            passed[0] += 1.5
            return listing(**arguments)

        monkeypatch.setattr(world.cluster, "list_pods", slow)
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "a", "web")
        assert world.requeuer.tick() == 0
        world.publish(rules("web", 2, ALWAYS))
        passed[0] = 4.4
        assert world.requeuer.tick() == 0
        passed[0] = 4.5
        assert world.requeuer.tick() == 1


class TestTheCluster:
    def ready(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "a", "web")
        world.publish(rules("web", 2, ALWAYS))

    @pytest.mark.parametrize("fault", [APIConflictError("changed"), APINotFoundError("gone")])
    def test_a_pod_that_changed_meanwhile_is_seen_to_by_the_next_tick(self, world: World, fault: Exception) -> None:
        self.ready(world)
        world.cluster.fault = fault
        assert world.tick() == []
        world.cluster.fault = None
        world.pass_time(seconds=1)
        assert world.tick() == ["a"]

    def test_a_pod_that_cannot_be_patched_is_not_tried_for_ever(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        self.ready(world)
        world.cluster.fault = APIInvalidError("no")
        assert world.tick() == []
        assert "default/a can't be requeued" in caplog.text
        world.cluster.fault = None
        world.pass_time(seconds=31)
        assert world.tick() == []

    @pytest.mark.parametrize("fault", [APIForbiddenError("denied"), APIUnavailableError("no webhook", status=500)])
    def test_a_pod_that_admission_keeps_from_being_patched_holds_up_no_others(
        self, world: World, caplog: pytest.LogCaptureFixture, fault: Exception
    ) -> None:
        world.requeuer = world.make_requeuer(per_second=2)
        first = world.publish(rules("web", 1, NEVER))
        for age, name in enumerate(["d", "c", "b", "a"]):
            world.refuse(first, name, "web", age=age)
        world.cluster.faults = {"a": fault, "b": fault}
        world.publish(rules("web", 2, ALWAYS))

        assert world.tick() == []
        assert "2 Pods can't be requeued yet, the last one default/b: " in caplog.text
        assert world.tick() == ["c", "d"]
        assert world.tick() == []
        assert world.cluster.patched == ["a", "b", "c", "d"]

        world.cluster.faults = {}
        world.pass_time(seconds=requeuer.PUT_OFF_SECONDS)
        assert world.tick() == ["a", "b"]

    def test_refused_credentials_put_off_no_pod(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        for age, name in enumerate(["b", "a"]):
            world.refuse(first, name, "web", age=age)
        world.cluster.fault = APIForbiddenError("Unauthorized", status=401)
        world.publish(rules("web", 2, ALWAYS))
        assert world.tick() == []
        world.cluster.fault = None
        assert world.tick() == ["a", "b"]

    def test_a_webhook_that_hangs_ends_the_tick_before_the_lease_is_over(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        for age, name in enumerate(["c", "b", "a"]):
            world.refuse(first, name, "web", age=age)
        world.cluster.hanging = {"a", "b"}
        world.publish(rules("web", 2, ALWAYS))

        for expected in ([], [], ["c"]):
            world.cluster.waited_seconds = 0.0
            requeued = world.tick()
            assert world.cluster.waited_seconds < LEASE_SECONDS
            assert requeued == expected
            world.pass_time(seconds=1)

    def test_pods_of_a_namespace_whose_webhook_hangs_hold_up_others_for_one_tick(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "free", "web", namespace="other")
        for age, name in enumerate(["d", "c", "b", "a"], 1):
            world.refuse(first, name, "web", age=age)
        world.cluster.hanging = {"a", "b", "c"}
        world.publish(rules("web", 2, ALWAYS))

        assert world.tick() == []
        world.pass_time(seconds=1)
        assert world.tick() == ["free"]

    def test_pods_that_were_put_off_come_behind_all_others_and_in_turn(self, world: World) -> None:
        first = world.publish(rules("web", 1, NEVER))
        for age, name in enumerate(["d", "c", "b", "a"]):
            world.refuse(first, name, "web", age=age)
        world.cluster.hanging = {"a", "b", "c"}
        world.publish(rules("web", 2, ALWAYS))

        ticks = []
        for _ in range(4):
            ticks.append(world.tick())
            world.pass_time(seconds=requeuer.PUT_OFF_SECONDS)
        assert ticks == [[], [], [], ["d"]]

    def test_pods_that_were_requeued_before_one_that_hangs_are_counted(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "b", "web")
        world.refuse(first, "a", "web", age=1)
        world.cluster.hanging = {"b"}
        world.publish(rules("web", 2, ALWAYS))

        assert world.tick() == ["a"]
        assert Requeue.objects.get(revision=2).pods == 1
        assert "can't requeue Pods yet: no answer" in caplog.text

    def test_an_api_server_that_is_away_is_tried_again(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        self.ready(world)
        world.cluster.fault = APIUnavailableError("away")
        assert world.tick() == []
        assert "can't requeue Pods yet: away" in caplog.text
        world.cluster.fault = None
        world.pass_time(seconds=1)
        assert world.tick() == ["a"]


class TestLease:
    def test_one_at_a_time_has_it(self) -> None:
        with leased() as first:
            assert first is not None
            with leased() as second:
                assert second is None
        with leased() as third:
            assert third is not None

    def test_who_died_with_it_holds_it_up_no_longer_than_its_time(self) -> None:
        with leased():
            RequeueState.objects.update(held_until=Now() - timedelta(seconds=1))
            with leased() as second:
                assert second is not None
                with leased() as third:
                    assert third is None

    def test_it_is_kept_by_renewing_and_lost_to_whoever_took_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with leased() as lease:
            assert isinstance(lease, Lease)
            before = RequeueState.objects.get().held_until
            lease.keep()
            assert RequeueState.objects.get().held_until == before
            lease._renewed_at -= RENEW_SECONDS
            lease.keep()
            assert RequeueState.objects.get().held_until >= before
            RequeueState.objects.update(holder="somebody")
            lease.keep()
            lease._renewed_at -= RENEW_SECONDS
            with pytest.raises(LeaseLostError):
                lease.keep()
        assert RequeueState.objects.get().holder == "somebody"

    def test_a_tick_without_it_does_nothing(self, world: World) -> None:
        world.refuse(world.publish(rules("web", 1, NEVER)), "a", "web")
        with leased():
            assert world.tick() == []
        assert world.cluster.listed == []

    def test_a_tick_that_lost_it_wakes_nobody(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        first = world.publish(rules("web", 1, NEVER))
        world.refuse(first, "a", "web")
        world.publish(rules("web", 2, ALWAYS))
        listing = world.cluster.list_pages

        def taken(**arguments: Any) -> Iterator[bytes]:
            RequeueState.objects.update(holder="somebody")
            return listing(**arguments)

        world.cluster.list_pages = taken  # type: ignore[method-assign]
        assert world.tick() == []
        assert "another process requeues Pods now" in caplog.text

    def test_a_large_cluster_is_listed_and_judged_without_losing_it(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lease, "RENEW_SECONDS", 0.0)
        first = world.publish(rules("web", 1, NEVER))
        for name in ("a", "b", "c"):
            world.refuse(first, name, "web")
        world.publish(rules("web", 2, ALWAYS))

        def pass_six_seconds() -> None:
            state = RequeueState.objects.get()
            RequeueState.objects.update(held_until=state.held_until - timedelta(seconds=6))
            RequeueState.objects.filter(held_until__lt=Now()).update(holder="somebody")

        def judge(*arguments: Any) -> Judgement:
            pass_six_seconds()
            return judged(*arguments)

        judged = world.requeuer._outcome
        monkeypatch.setattr(world.requeuer, "_outcome", judge)
        world.cluster.on_page = pass_six_seconds
        assert world.tick() == ["a", "b", "c"]

    def test_a_tick_that_lost_it_while_it_listed_leaves_the_rows_alone(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lease, "RENEW_SECONDS", 0.0)
        world.refuse(world.publish(rules("web", 1, NEVER)), "a", "web")
        world.cluster.on_page = lambda: RequeueState.objects.update(holder="somebody")
        assert world.tick() == []
        assert not WaitingPod.objects.exists()

    def test_of_one_process_only_one_tick_works_at_a_time(self, world: World) -> None:
        world.refuse(world.publish(rules("web", 1, NEVER)), "a", "web")
        world.publish(rules("web", 2, ALWAYS))
        beside: list[int] = []

        def tick_too() -> None:
            RequeueState.objects.update(held_until=Now() - timedelta(seconds=1))
            beside.append(world.requeuer.tick())

        world.cluster.on_page = tick_too
        assert world.tick() == ["a"]
        assert set(beside) == {0}

    def test_a_row_of_another_process_is_left_to_it(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        world.publish(rules("web", 1, NEVER))

        def follow(waiting: object) -> None:
            WaitingPod.objects.create(uid="x", namespace="default", name="x", created_at=NOON)

        monkeypatch.setattr(requeuer, "follow", follow)
        assert world.tick() == []
        assert WaitingPod.objects.get().revision == 0


@pytest.mark.django_db(transaction=True)
def test_of_many_ticks_at_once_each_pod_is_requeued_once(world: World) -> None:
    first = world.publish(rules("web", 1, NEVER))
    for place in range(20):
        world.refuse(first, f"p{place}", "web")
    world.publish(rules("web", 2, ALWAYS))
    requeuers = [world.make_requeuer(per_second=1000) for _ in range(4)]

    def run(requeuer: Requeuer) -> None:
        requeuer.tick()
        requeuer.tick()
        connection.close()

    threads = [threading.Thread(target=run, args=[requeuer]) for requeuer in requeuers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(world.cluster.requeued) == sorted(f"p{place}" for place in range(20))
    assert Requeue.objects.get(revision=2).pods == 20


def test_requeues_are_counted_by_cause_from_the_database(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    Requeue.objects.create(cause="revision", revision=1, requeued_at=NOON, pods=3)
    Requeue.objects.create(cause="time", revision=1, requeued_at=NOON, pods=2)
    Requeue.objects.create(cause="time", revision=1, requeued_at=NOON, pods=2)
    text = client.get("/metrics").content.decode()
    assert 'berth_requeues_total{cause="revision"} 3.0' in text
    assert 'berth_requeues_total{cause="time"} 4.0' in text

    def away(*_: object) -> None:
        raise DatabaseError("away")

    monkeypatch.setattr(Requeue.objects, "order_by", away)
    caplog.set_level(logging.WARNING)
    assert b"berth_requeues" not in generate_latest(REQUEUES)
    assert "requeues can't be counted" in caplog.text


def test_the_task_uses_one_waker_a_process(settings: Any) -> None:
    assert requeuer._requeuer() is requeuer._requeuer()
    assert requeuer.requeue_waiting_pods() == 0


def test_pods_of_berths_own_scheduler_are_left_alone(world: World) -> None:
    first = world.publish(rules("web", 1, HALF_PAST))
    world.pass_time(seconds=1)
    for name in ("theirs", "ours"):
        world.refuse(first, name, "web")
    world.cluster.pods["uid-ours"]["spec"]["schedulerName"] = "berth"
    world.pass_time(minutes=31)

    assert world.tick() == ["theirs"]
