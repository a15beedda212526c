"""Preemption: which Pods would have to go, from which node, and when nobody may be asked to."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.decision import Answer, CompiledRuleSet, decide
from policies.engine.default_set import default_rule_set
from policies.engine.errors import DeadlineError
from policies.engine.objects.cluster_kinds import PodDisruptionBudget
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.dry_run import (
    BY_SCHEDULER,
    NEVER,
    NO_TIME,
    STILL_LEAVING,
    Preemption,
    Search,
    importance,
    is_leaving,
    search,
    wanted,
)
from policies.engine.rule import Cycle, go_on
from policies.engine.status import Code, Status
from tests.builders import make_node, make_pod, make_rule_set

NOW = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
RULES = default_rule_set()
Json = dict[str, Any]


def running(
    name: str, node: str = "n1", *, cpu: str = "1", priority: int = 0, started: str = "01:00:00", **spec: Any
) -> Json:
    pod = make_pod(name, requests={"cpu": cpu}, nodeName=node, priority=priority, **spec)
    pod["status"] = {"phase": "Running"}
    if started:
        pod["status"]["startTime"] = f"2026-03-01T{started}Z"
    return pod


def labelled(pod: Json, **labels: str) -> Json:
    return {**pod, "metadata": {**pod["metadata"], "labels": labels}}


def leaving(
    pod: Json, *, status: str = "True", reason: str = BY_SCHEDULER, condition: str = "DisruptionTarget"
) -> Json:
    metadata = {**pod["metadata"], "deletionTimestamp": "2026-03-04T05:06:00Z"}
    conditions = [{"type": "Ready", "status": "True"}, {"type": condition, "status": status, "reason": reason}]
    return {**pod, "metadata": metadata, "status": {**pod["status"], "conditions": conditions}}


def waiting(name: str, node: str, *, cpu: str = "1", priority: int = 0) -> Pod:
    pod = make_pod(name, requests={"cpu": cpu}, priority=priority)
    return Pod.from_json({**pod, "status": {"phase": "Pending", "nominatedNodeName": node}})


def urgent(cpu: str = "2", *, nominated: str = "", **spec: Any) -> Pod:
    pod = make_pod("urgent", requests={"cpu": cpu}, **{"priority": 1000, **spec})
    return Pod.from_json({**pod, "status": {"nominatedNodeName": nominated}})


def budget(allowed: int, **labels: str) -> PodDisruptionBudget:
    document = {"spec": {"selector": {"matchLabels": labels}}, "status": {"disruptionsAllowed": allowed}}
    return msgspec.convert(document, PodDisruptionBudget)


def snapshot_of(pods: Sequence[Json], nodes: int = 1, cpu: str = "4", **labels: str) -> Snapshot:
    named = [make_node(f"n{number}", cpu=cpu, labels=labels) for number in range(1, nodes + 1)]
    return Snapshot.of(map(Node.from_json, named), map(Pod.from_json, pods))


def searched(
    pod: Pod,
    snapshot: Snapshot,
    *budgets: PodDisruptionBudget,
    rules: CompiledRuleSet = RULES,
    give_way: Callable[[], None] = go_on,
    **more: Any,
) -> Search:
    answer = decide(rules, Cycle(pod=pod, snapshot=snapshot, now=NOW), snapshot.table.all_rows(), scoring=False)
    assert not answer.feasible_count
    cycle = Cycle(pod=pod, snapshot=snapshot, now=NOW, give_way=give_way)
    return search(cycle=cycle, rule_set=rules, budgets=budgets, answer=answer, **more)


def found(pod: Pod, snapshot: Snapshot, *budgets: PodDisruptionBudget, **more: Any) -> Preemption:
    preemption = searched(pod, snapshot, *budgets, **more).preemption
    assert preemption is not None
    return preemption


def names(pods: Sequence[Pod]) -> list[str]:
    return [pod.name for pod in pods]


class TestVictims:
    def test_as_few_and_as_unimportant_pods_go_as_make_room(self) -> None:
        pods = [
            running("high", priority=100),
            running("low"),
            running("lowest", priority=-10),
            running("mid", priority=50),
        ]
        preemption = found(urgent(), snapshot_of(pods))
        assert (preemption.node, names(preemption.victims)) == ("n1", ["low", "lowest"])

    def test_of_equal_priority_the_one_that_runs_longest_stays(self) -> None:
        pods = [
            running("new", cpu="2", started="09:00:00"),
            running("old", cpu="2"),
            running("coming", cpu="1m", started=""),
        ]
        assert names(found(urgent("2"), snapshot_of(pods)).victims) == ["new", "coming"]

    def test_equal_priority_never_goes(self) -> None:
        result = searched(urgent(), snapshot_of([running("a", cpu="4", priority=1000)]))
        assert result.preemption is None
        assert result.reason == "0/1 nodes are available: 1 No preemption victims found for incoming pod."

    def test_a_pod_without_a_priority_has_0(self) -> None:
        pods = [running("a", cpu="4")]
        del pods[0]["spec"]["priority"]
        assert names(found(urgent(priority=1), snapshot_of(pods)).victims) == ["a"]

    def test_where_the_pod_has_no_room_without_all_of_them_nobody_goes(self) -> None:
        pods = [running("stays", cpu="3", priority=2000), running("low")]
        result = searched(urgent(), snapshot_of(pods))
        assert result.preemption is None
        assert result.reason == "0/1 nodes are available: 1 Insufficient cpu."

    def test_nodes_that_preemption_cannot_help_are_not_candidates(self) -> None:
        snapshot = snapshot_of([running("low", cpu="4")], disk="hdd")
        result = searched(urgent(nodeSelector={"disk": "ssd"}), snapshot)
        assert result == Search(reason="0/1 nodes are available: 1 Preemption is not helpful for scheduling.")

    def test_a_node_that_is_refused_although_nobody_is_in_the_way_is_left_out(self) -> None:
        snapshot = snapshot_of([running("low")])
        pod = urgent()
        answer = Answer.about(snapshot.table, snapshot.table.all_rows())
        answer.refusal[:] = 0
        answer.refusals = [Status(Code.UNSCHEDULABLE, "full")]
        result = search(cycle=Cycle(pod=pod, snapshot=snapshot, now=NOW), rule_set=RULES, budgets=[], answer=answer)
        assert result.reason == "0/1 nodes are available: 1 expected at least one victim pod."

    def test_affinity_within_a_zone_is_asked_of_one_node_after_another(self) -> None:
        near = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}]}}  # fmt: skip
        snapshot = snapshot_of([labelled(running("a"), app="web"), running("b", "n2", cpu="4")], nodes=2, zone="z1")
        preemption = found(urgent("1", affinity=near), snapshot)
        assert (preemption.node, names(preemption.victims)) == ("n1", ["a"])
        assert [candidate.node for candidate in preemption.candidates] == ["n1"]


class TestTime:
    PODS = (running("a", priority=1, cpu="2"), running("b", priority=2, cpu="2"))

    @staticmethod
    def turns(most: int) -> Callable[[], None]:
        left = iter(range(most))

        def give_way() -> None:
            if next(left, None) is None:
                raise DeadlineError

        return give_way

    @pytest.mark.parametrize("most", range(8))
    def test_nobody_goes_for_what_there_was_no_time_to_look_at(self, most: int) -> None:
        """Not even where the rule set lets pass what there is no time for: the third time one of them comes back."""
        spec = {"filters": [{"builtin": "PodFitsResources"}], "failures": {"deadline": "pass"}}
        rules = CompiledRuleSet(make_rule_set(**spec))
        tried = searched(urgent(), snapshot_of(self.PODS), rules=rules, give_way=self.turns(most))
        assert (tried.preemption, tried.reason, tried.keeps_nomination) == (None, NO_TIME, True)

    def test_nobody_goes_whom_there_was_no_time_to_ask_a_victims_rule_about(self) -> None:
        victims = [{"name": "all-may-go", "expression": "victim.metadata.name != ''", "reason": "stays"}]
        filters = [{"builtin": "PodFitsResources"}]
        rules = CompiledRuleSet(make_rule_set(filters=filters, victims=victims, failures={"deadline": "pass"}))
        tried = searched(urgent(), snapshot_of(self.PODS), rules=rules, give_way=self.turns(8))
        assert (tried.preemption, tried.reason, tried.keeps_nomination) == (None, NO_TIME, True)

    @pytest.mark.parametrize(("most", "said"), [(8, 0), (99, 1)])
    def test_a_victims_rule_in_mode_shadow_without_time_keeps_nobody_waiting(self, most: int, said: int) -> None:
        victims = [{"name": "none-may-go", "expression": "false", "reason": "stays", "mode": "shadow"}]
        filters = [{"builtin": "PodFitsResources"}]
        rules = CompiledRuleSet(make_rule_set(filters=filters, victims=victims))
        tried = searched(urgent(), snapshot_of(self.PODS), rules=rules, give_way=self.turns(most))
        assert tried.preemption is not None
        assert names(tried.preemption.victims) == ["a"]
        assert len(tried.vetoes) == said

    def test_with_enough_of_it_one_goes(self) -> None:
        rules = CompiledRuleSet(make_rule_set(filters=[{"builtin": "PodFitsResources"}]))
        assert names(found(urgent(), snapshot_of(self.PODS), rules=rules, give_way=self.turns(99)).victims) == ["a"]


class TestBudgets:
    def test_a_pod_that_a_budget_keeps_stays_before_a_more_important_one(self) -> None:
        pods = [labelled(running("kept", cpu="2"), app="web"), running("important", cpu="2", priority=100)]
        preemption = found(urgent(), snapshot_of(pods), budget(0, app="web"))
        assert (names(preemption.victims), preemption.pdb_violations) == (["important"], 0)

    def test_one_that_must_go_all_the_same_is_counted(self) -> None:
        pods = [labelled(running("kept", cpu="2"), app="web"), running("other", cpu="2", priority=100)]
        preemption = found(urgent("4"), snapshot_of(pods), budget(0, app="web"))
        assert (names(preemption.victims), preemption.pdb_violations) == (["other", "kept"], 1)

    def test_a_node_where_no_budget_is_violated_comes_first(self) -> None:
        pods = [labelled(running("kept", cpu="4"), app="web"), running("free", "n2", cpu="4", priority=500)]
        preemption = found(urgent(), snapshot_of(pods, nodes=2), budget(0, app="web"))
        assert preemption.node == "n2"
        assert [each.node for each in preemption.candidates] == ["n2", "n1"]


class TestPick:
    """By the first difference: least violations, lowest highest priority, smallest sum, fewest, latest start."""

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ([("a", "4", 100, "01:00:00")], [("b", "4", 50, "01:00:00")]),
            ([("a", "2", 50, "01:00:00"), ("b", "2", 40, "01:00:00")], [("c", "4", 50, "01:00:00")]),
            ([("a", "2", 50, "01:00:00"), ("b", "2", -5, "01:00:00")], [("c", "4", 50, "01:00:00")]),
            ([("a", "4", 50, "01:00:00")], [("b", "4", 50, "02:00:00")]),
            ([("a", "4", 50, "23:00:00")], [("b", "4", 50, "")]),
        ],
        ids=["highest priority", "sum", "more Pods of a negative priority never weigh less", "start", "not started"],
    )
    def test_the_node_whose_victims_are_missed_least(self, one: list[Any], other: list[Any]) -> None:
        def on(node: str, pods: list[Any]) -> list[Json]:
            return [running(name, node, cpu=cpu, priority=priority, started=at) for name, cpu, priority, at in pods]

        for worse, better in (("n1", "n2"), ("n2", "n1")):
            snapshot = snapshot_of(on(worse, one) + on(better, other), nodes=2)
            assert found(urgent("4"), snapshot).node == better

    def test_fewer_victims_when_the_sums_are_equal(self) -> None:
        least = -(2**31)
        pods = [running("a", cpu="4", priority=50), running("b", "n2", cpu="2", priority=50)]
        pods += [running("c", "n2", cpu="2", priority=least)]
        assert found(urgent("4"), snapshot_of(pods, nodes=2)).node == "n1"

    def test_of_the_most_important_victims_the_longest_running_one_counts(self) -> None:
        pods = [running("a", cpu="2", priority=50), running("b", cpu="2", priority=50, started="09:00:00")]
        pods += [running("c", "n2", cpu="2", priority=50, started="02:00:00")]
        pods += [running("d", "n2", cpu="2", priority=50, started="03:00:00")]
        assert found(urgent("4"), snapshot_of(pods, nodes=2)).node == "n2"

    def test_of_equals_the_first(self) -> None:
        pods = [running("a", cpu="4"), running("b", "n2", cpu="4")]
        assert found(urgent("4"), snapshot_of(pods, nodes=2)).node == "n1"
        assert found(urgent("4"), snapshot_of(pods, nodes=2), offset=1).node == "n2"

    def test_a_pod_that_has_not_started_is_the_least_important_of_its_priority(self) -> None:
        fresh, this_second = (Pod.from_json(running(name, started="")) for name in "ab")
        this_second.parsed = msgspec.structs.replace(
            this_second.parsed,
            status=msgspec.structs.replace(this_second.parsed.status, start_time="2026-03-04T05:06:07Z"),
        )
        assert importance(this_second, NOW) < importance(fresh, NOW)


class TestHowManyAreLookedAt:
    @pytest.mark.parametrize(("nodes", "number"), [(0, 0), (5, 5), (100, 100), (101, 100), (1000, 100), (2345, 234)])
    def test_a_tenth_but_at_least_a_hundred(self, nodes: int, number: int) -> None:
        assert wanted(nodes) == number

    def test_the_search_ends_once_there_are_enough_and_goes_around(self) -> None:
        pods = [running(f"p{number}", f"n{number}", cpu="4") for number in range(1, 104)]
        result = searched(urgent(), snapshot_of(pods, nodes=103), offset=103 + 101)
        assert [each.node for each in result.candidates][:3] == ["n102", "n103", "n1"]
        assert len(result.candidates) == 100

    def test_it_goes_on_until_one_violates_no_budget(self) -> None:
        pods = [labelled(running(f"p{number}", f"n{number}", cpu="4"), app="web") for number in range(1, 104)]
        pods[101] = running("free", "n102", cpu="4", priority=900)
        result = searched(urgent(), snapshot_of(pods, nodes=103), budget(0, app="web"))
        assert [each.node for each in result.candidates][:2] == ["n102", "n1"]
        assert len(result.candidates) == 101
        assert result.preemption is not None
        assert result.preemption.node == "n102"


class TestEligibility:
    def test_a_pod_with_the_policy_never_preempts_nobody(self) -> None:
        result = searched(urgent(preemptionPolicy="Never"), snapshot_of([running("low", cpu="4")]))
        assert result == Search(reason=NEVER, keeps_nomination=True)

    def test_nobody_else_goes_while_victims_are_still_leaving_its_node(self) -> None:
        pods = [leaving(running("going", cpu="2")), running("low", cpu="2"), running("other", "n2", cpu="4")]
        result = searched(urgent(nominated="n1"), snapshot_of(pods, nodes=2))
        assert result == Search(reason=STILL_LEAVING, keeps_nomination=True)

    @pytest.mark.parametrize(
        "going",
        [
            running("a", cpu="2"),
            leaving(running("a", cpu="2"), reason="EvictionByEvictionAPI"),
            leaving(running("a", cpu="2"), status="False"),
            leaving(running("a", cpu="2"), condition="Other"),
            leaving(running("a", cpu="2", priority=1000)),
        ],
        ids=["not leaving", "evicted", "not any more", "no condition", "as important"],
    )
    def test_who_leaves_for_another_reason_holds_nothing_up(self, going: Json) -> None:
        snapshot = snapshot_of([going, running("low", cpu="2", priority=-1)])
        assert found(urgent(nominated="n1"), snapshot).node == "n1"

    def test_a_nomination_that_the_pods_status_does_not_have_yet_counts_and_one_that_was_taken_away_does_not(
        self,
    ) -> None:
        snapshot = snapshot_of([leaving(running("going", cpu="2")), running("low", cpu="2")])
        assert searched(urgent(), snapshot, nomination="n1").reason == STILL_LEAVING
        assert searched(urgent(nominated="n1"), snapshot, nomination="").preemption is not None

    def test_a_nomination_to_a_node_that_is_gone_or_can_never_be_used_holds_nothing_up(self) -> None:
        pods = [leaving(running("going", cpu="4")), running("other", "n2", cpu="4")]
        snapshot = snapshot_of(pods, nodes=2)
        assert found(urgent(nominated="n9"), snapshot).node in {"n1", "n2"}
        named = {"nodeSelector": {"kubernetes.io/hostname": "n2"}}
        assert found(urgent(nominated="n1", **named), snapshot).node == "n2"

    def test_a_pod_that_is_only_counted_keeps_that_it_is_leaving(self) -> None:
        parsed = Pod.from_json(leaving(running("a"))).parsed
        assert is_leaving(Pod.counting(parsed))


class TestNominatedPods:
    def test_one_at_least_as_important_counts_as_if_it_were_there(self) -> None:
        pods = [running("a", cpu="2"), running("b", cpu="2", priority=5)]
        nominated = {"n1": [waiting("first", "n1", cpu="2", priority=1000)]}
        preemption = found(urgent(), snapshot_of(pods).changed({}, nominated=nominated))
        assert names(preemption.victims) == ["b", "a"]
        assert preemption.yielding == []

    def test_a_less_important_one_does_not_count_and_yields(self) -> None:
        pods = [running("a", cpu="2"), running("b", cpu="2", priority=5)]
        nominated = {"n1": [waiting("late", "n1", cpu="2", priority=999)], "n2": [waiting("elsewhere", "n2")]}
        preemption = found(urgent(), snapshot_of(pods).changed({}, nominated=nominated))
        assert (names(preemption.victims), names(preemption.yielding)) == (["a"], ["late"])

    def test_the_pods_own_nomination_does_not_count_twice(self) -> None:
        pod = urgent(nominated="n1")
        snapshot = snapshot_of([running("a", cpu="2"), running("b", cpu="2", priority=5)])
        assert names(found(pod, snapshot.changed({}, nominated={"n1": [pod]})).victims) == ["a"]


class TestVictimsRules:
    STAYS = {
        "name": "stays",
        "expression": "victim.metadata.?labels.env.orValue('') != 'prod'",
        "reason": "production Pods are not preempted",
    }

    def rules(self, **rule: Any) -> CompiledRuleSet:
        return CompiledRuleSet(
            make_rule_set(filters=[{"builtin": "PodFitsResources"}], victims=[{**self.STAYS, **rule}])
        )

    def test_a_candidate_with_a_protected_victim_is_not_picked_however_good(self) -> None:
        pods = [labelled(running("a", cpu="4"), env="prod"), running("b", "n2", cpu="4", priority=900)]
        result = searched(urgent(), snapshot_of(pods, nodes=2), rules=self.rules())
        assert result.preemption is not None
        assert result.preemption.node == "n2"
        assert [candidate.node for candidate in result.candidates] == ["n1", "n2"]
        assert [veto.node for veto in result.vetoes] == ["n1"]

    def test_when_all_are_protected_the_reason_says_so(self) -> None:
        result = searched(urgent(), snapshot_of([labelled(running("a", cpu="4"), env="prod")]), rules=self.rules())
        assert result.preemption is None
        assert not result.keeps_nomination
        assert result.reason == "0/1 nodes are available: 1 production Pods are not preempted."

    def test_a_shadow_rule_changes_nothing(self) -> None:
        snapshot = snapshot_of([labelled(running("a", cpu="4"), env="prod")])
        result = searched(urgent(), snapshot, rules=self.rules(mode="shadow"))
        assert result.preemption is not None
        assert [veto.mode for veto in result.vetoes] == ["shadow"]


# The same, slowly: one node, one Pod after another, nothing but cpu.

POD = st.tuples(st.sampled_from([250, 500, 1000, 2000]), st.sampled_from([-5, 0, 0, 100, 1000]), st.integers(0, 5))


@given(
    loads=st.lists(st.lists(POD, max_size=7), min_size=1, max_size=4),
    cpu=st.integers(500, 4500),
    allowed=st.integers(0, 2),
)
def test_victims_are_those_of_a_plain_search_node_by_node(loads: list[list[Any]], cpu: int, allowed: int) -> None:
    pods = [
        labelled(
            running(f"p{node}-{number}", f"n{node}", cpu=f"{size}m", priority=priority, started=f"0{start}:00:00"),
            app=["web", "db"][number % 2],
        )
        for node, load in enumerate(loads, 1)
        for number, (size, priority, start) in enumerate(load)
    ]
    snapshot = snapshot_of(pods, nodes=len(loads))
    pod = urgent(f"{cpu}m")
    cycle = Cycle(pod=pod, snapshot=snapshot, now=NOW)
    answer = decide(RULES, cycle, snapshot.table.all_rows(), scoring=False)
    result = search(cycle=cycle, rule_set=RULES, budgets=[budget(allowed, app="web")], answer=answer)
    given = {
        each.node: (names([v.pod for v in each.victims if v.pod]), each.pdb_violations) for each in result.candidates
    }
    refused = [name for name, _ in answer.refused()]
    expected = {name: plainly(snapshot.nodes[name].pods, pod, allowed) for name in refused}
    assert given == {name: each for name, each in expected.items() if each is not None}


def plainly(pods: Sequence[Pod], incoming: Pod, allowed: int) -> tuple[list[str], int] | None:
    def size(pod: Pod) -> int:
        return pod.requests.get("cpu")

    lower = sorted((pod for pod in pods if pod.priority < incoming.priority), key=lambda pod: importance(pod, NOW))
    free = 4000 - size(incoming) - sum(size(pod) for pod in pods if pod.priority >= incoming.priority)
    if not lower or free < 0:
        return None
    covered = [pod for pod in lower if pod.labels["app"] == "web"]
    kept = covered[allowed:]
    victims = []
    for pod in [*kept, *(pod for pod in lower if pod not in kept)]:
        if size(pod) <= free:
            free -= size(pod)
        else:
            victims.append(pod)
    victims.sort(key=lambda pod: importance(pod, NOW))
    return (names(victims), sum(pod in kept for pod in victims)) if victims else None
