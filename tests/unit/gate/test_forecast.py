"""A forecast lists exactly the Pods that another Revision would touch, on a cluster where they are known beforehand."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.decision import CompiledRevision
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.owners import draw
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.ruleset import Revision
from scheduler.gate.forecast import Forecast, Handed, OwnScheduler, Refused, Taken, Waiting
from tests.builders import make_assignment, make_node, make_pause, make_pod, make_rule_set
from tests.unit.gate.at_once import forecast_at_once

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NODES, PODS = 300, 3_000
# Of a team whose label only node 7 has.
PLANTED = 7


def by_team(*, strict: bool) -> dict[str, Any]:
    """Nodes are those of the Pod's team; strict ones refuse Pods of a team on nodes without a team, too."""
    own = "node.metadata.?labels.team.orValue('') == pod.metadata.?labels.team.orValue('')"
    free = "" if strict else " || !has(node.metadata.labels) || !('team' in node.metadata.labels)"
    return {"filters": [{"name": "team", "expression": own + free, "reason": "another team's"}]}


def revision(number: int, *, strict: bool, **more: Any) -> Revision:
    return Revision(
        number=number,
        rule_sets=[make_rule_set("web", **by_team(strict=strict)), make_rule_set("other")],
        assignments=[make_assignment("teams", "web", match={"podSelector": {"matchLabels": {"kind": "team"}}}, **more)],
    )


def planted() -> tuple[list[Any], list[Any]]:
    """300 nodes, a third of them a team's; 3,000 Pods. Strict rules leave 7 waiting ones no node, and refuse 5 that run."""
    nodes = [make_node(f"n{number}", labels={"team": f"t{number % 3}"}) for number in range(100)]
    nodes += [make_node(f"n{number}") for number in range(100, NODES)]
    pods = [make_pod(f"plain-{number}", nodeName=f"n{number % NODES}", uid=f"u{number}") for number in range(2_900)]
    for number in range(80):
        labels = {"kind": "team", "team": f"t{number % 3}"}
        pods.append(make_pod(f"own-{number}", nodeName=f"n{number % 99}", uid=f"o{number}", labels=labels))
    labels = {"kind": "team", "team": "nobody"}
    pods += [make_pod(f"waits-{number}", uid=f"w{number}", labels=labels) for number in range(PLANTED)]
    pods += [
        make_pod(f"runs-{number}", nodeName=f"n{200 + number}", uid=f"r{number}", labels={"kind": "team", "team": "t0"})
        for number in range(5)
    ]
    pods += [make_pod(f"idle-{number}", uid=f"i{number}") for number in range(8)]
    return nodes, pods


def asked(nodes: list[Any], pods: list[Any], before: Revision, after: Revision) -> Forecast:
    made = list(map(Pod.from_json, pods))
    snapshot = Snapshot.of(map(Node.from_json, nodes), made)
    live = CompiledRevision(before)
    return forecast_at_once(live, CompiledRevision(after, former=live), snapshot, made, NOW)


def test_exactly_the_planted_pods_are_listed() -> None:
    nodes, pods = planted()
    found = asked(nodes, pods, revision(1, strict=False), revision(2, strict=True))
    assert (found.nodes, found.pods) == (NODES, PODS)
    assert {each.pod for each in found.left_with_none} == {f"default/waits-{number}" for number in range(PLANTED)}
    assert [each for each in found.waiting if not each.is_left_with_none] == []
    assert found.refused == [
        Refused(f"default/runs-{number}", f"n{200 + number}", "team", "another team's") for number in range(5)
    ]
    assert found.taken == []


def test_the_same_revision_changes_nothing() -> None:
    nodes, pods = planted()
    found = asked(nodes, pods, revision(1, strict=True), revision(2, strict=True))
    assert (found.waiting, found.refused, found.taken) == ([], [], [])


def test_pods_that_an_assignment_gains_and_loses_are_counted() -> None:
    nodes, pods = planted()
    before, after = revision(1, strict=False), revision(2, strict=False)
    after.assignments.append(make_assignment("all", "other", order=500))
    found = asked(nodes, pods, before, after)
    assert found.taken == [Taken("", 0, 2_908), Taken("other", 2_908, 0)]
    assert found.handed == [Handed("", "all", 2_908)]


def test_the_pods_of_a_paused_rule_set_stay_with_their_assignment() -> None:
    rule_sets = [make_rule_set("web"), make_rule_set("other")]
    takes_all = make_assignment("all", "web")
    live = Revision(number=1, rule_sets=rule_sets, assignments=[takes_all])
    paused = Revision(number=2, rule_sets=rule_sets, assignments=[takes_all], pauses=[make_pause(target="RuleSet/web")])
    nodes, pods = [make_node("n1")], [make_pod("p"), make_pod("q", nodeName="n1")]
    found = asked(nodes, pods, live, paused)
    assert (found.handed, found.taken) == ([], [Taken("", 2, 0), Taken("web", 0, 2)])
    paused.assignments.append(make_assignment("first", "other", order=1))
    assert asked(nodes, pods, live, paused).handed == [Handed("all", "first", 2)]


def test_a_shadow_assignment_touches_nobody() -> None:
    nodes, pods = planted()
    before = Revision(number=1, rule_sets=[make_rule_set("web", **by_team(strict=True)), make_rule_set("other")])
    shadowing = revision(2, strict=True, mode="shadow")
    found = asked(nodes, pods, before, shadowing)
    assert (found.waiting, found.refused, found.taken) == ([], [], [])
    assert [(each.rule_set, each.pods) for each in found.shadowed] == [("web", 92)]
    assert asked(nodes, pods, shadowing, shadowing).shadowed == [], "it shadows them already"


def test_what_waits_and_gains_nodes_is_said_with_how_many() -> None:
    nodes = [make_node("n1", labels={"team": "a"}), make_node("n2")]
    pods = [make_pod("p", uid="u", labels={"kind": "team", "team": "a"})]
    found = asked(nodes, pods, revision(1, strict=True), revision(2, strict=False))
    assert found.waiting == [Waiting("default/p", 1, 1, 0)]


def test_a_pod_does_not_stand_in_its_own_way() -> None:
    """A rule that counts would refuse the node of the only Pod there, were it counted itself."""
    alone = {"filters": [{"name": "alone", "expression": "node.count({'app': 'x'}) < 1", "reason": "one a node"}]}
    pods = [make_pod("p", uid="u", nodeName="n1", labels={"app": "x"})]
    before = Revision(number=1, rule_sets=[make_rule_set("web")], assignments=[make_assignment("all", "web")])
    after = Revision(number=2, rule_sets=[make_rule_set("web", **alone)], assignments=[make_assignment("all", "web")])
    assert asked([make_node("n1")], pods, before, after).refused == []
    pods.append(make_pod("q", uid="v", nodeName="n1", labels={"app": "x"}))
    assert [each.pod for each in asked([make_node("n1")], pods, before, after).refused] == ["default/p", "default/q"]


@pytest.mark.parametrize("resized", [0, 1])
def test_a_pod_that_is_resized_is_not_like_one_that_asks_for_the_same(resized: int) -> None:
    """Without the one that counts for 3 cpu while its spec says 1, 3 of the node's 4 are free; without the other, 1 is."""
    spare = {"filters": [{"name": "spare", "expression": "usage.free.cpu >= 2000", "reason": "no spare"}]}
    before = Revision(number=1, rule_sets=[make_rule_set("web")], assignments=[make_assignment("all", "web")])
    after = Revision(number=2, rule_sets=[make_rule_set("web", **spare)], assignments=[make_assignment("all", "web")])
    pods = [make_pod(name, uid=name, nodeName="n1", requests={"cpu": "1"}) for name in ("p", "q")]
    given = {"name": "main", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"}}
    pods[resized]["status"] = {"containerStatuses": [given]}
    refused = asked([make_node("n1", cpu="4")], pods, before, after).refused
    assert [each.pod for each in refused] == [f"default/{'qp'[resized]}"]


def test_the_rule_that_is_named_is_the_one_that_refuses_though_another_has_the_same_reason() -> None:
    def rules(second: str) -> dict[str, Any]:
        first = {"name": "first", "expression": "true", "reason": "no"}
        return {"filters": [first, {"name": "second", "expression": second, "reason": "no"}]}

    nodes = [make_node("n1"), make_node("n2", labels={"odd": "yes"})]
    assignments = [make_assignment("all", "web")]
    live = Revision(number=1, rule_sets=[make_rule_set("web", **rules("true"))], assignments=assignments)
    # The first has refused a node before, in the same words.
    wanted = rules("'odd' in node.metadata.labels")
    wanted["filters"][0]["expression"] = "!('odd' in node.metadata.labels)"
    after = Revision(number=2, rule_sets=[make_rule_set("web", **wanted)], assignments=assignments)
    pods = [make_pod("p", uid="u", nodeName="n1"), make_pod("q", uid="v", nodeName="n2")]
    assert [(each.pod, each.rule) for each in asked(nodes, pods, live, after).refused] == [
        ("default/p", "second"),
        ("default/q", "first"),
    ]


def test_pods_that_ended_and_nodes_that_are_gone_count_for_nothing() -> None:
    ended = make_pod("done", uid="d", nodeName="n1", labels={"kind": "team", "team": "b"})
    ended["status"] = {"phase": "Succeeded"}
    lost = make_pod("lost", uid="l", nodeName="gone", labels={"kind": "team", "team": "b"})
    found = asked([make_node("n1")], [ended, lost], revision(1, strict=False), revision(2, strict=True))
    assert (found.pods, found.refused) == (1, [])


def test_a_pod_that_is_deleted_before_it_got_a_node_waits_for_none() -> None:
    """A finalizer keeps it; kube-scheduler tries it no more (v1.36.3 schedule_one.go, skipPodSchedule)."""
    deleted = make_pod("p", uid="u", labels={"kind": "team", "team": "a"})
    deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = asked([make_node("n1")], [deleted], revision(1, strict=False), revision(2, strict=True))
    assert (found.pods, found.waiting) == (0, [])


LATE = ClusterObjects(
    persistent_volume_claims=[
        {"metadata": {"name": "data", "namespace": "default"}, "spec": {"storageClassName": "late"}}
    ],
    storage_classes=[{"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}],
)
CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


@pytest.mark.parametrize("spec", [CLAIM, {"resourceClaims": [{"name": "gpu"}]}])
def test_what_kube_scheduler_binds_and_allocates_keeps_its_pods_from_no_node(spec: dict[str, Any]) -> None:
    """Berth's own scheduler does neither, so that its Pods have no node that they could lose."""
    names = {"theirs": "default-scheduler", "own": "berth"}
    pods = [
        Pod.from_json(make_pod(name, labels={"kind": "team", "team": "b"}, **spec, schedulerName=scheduler))
        for name, scheduler in names.items()
    ]
    snapshot = Snapshot.of([Node.from_json(make_node("n1", labels={"team": "a"})), Node.from_json(make_node("n2"))])
    live = CompiledRevision(revision(1, strict=False))
    found = forecast_at_once(
        live,
        CompiledRevision(revision(2, strict=True), former=live),
        snapshot.changed({}, objects=LATE),
        pods,
        NOW,
        own=OwnScheduler(frozenset({"berth"})),
    )
    assert found.waiting == [Waiting("default/theirs", 1, 0, 1)]
    assert found.left_with_none == found.waiting


def test_pods_of_berths_own_scheduler_have_the_nodes_that_it_uses_alone() -> None:
    names = {"theirs": "default-scheduler", "own": "berth"}
    pods = [
        Pod.from_json(make_pod(name, labels={"kind": "team", "team": "a"}, schedulerName=scheduler))
        for name, scheduler in names.items()
    ]
    nodes = [make_node("n1", labels={"team": "a"}), make_node("n2", labels={"pool": "berth"})]
    snapshot = Snapshot.of(map(Node.from_json, nodes))
    live = CompiledRevision(revision(1, strict=False))
    after = CompiledRevision(revision(2, strict=True), former=live)
    own = OwnScheduler(frozenset({"berth"}), ("pool", "berth"))
    found = forecast_at_once(live, after, snapshot, pods, NOW, own=own)
    assert found.waiting == [Waiting("default/theirs", 2, 0, 1), Waiting("default/own", 1, 0, 1)]
    assert [each.pod for each in found.left_with_none] == ["default/own"]


def test_a_node_that_is_kept_free_for_a_nominated_pod_is_no_node_for_less_important_ones() -> None:
    """Of its own scheduler alone: kube-scheduler and Berth's own know nothing of each other's."""
    team = {"kind": "team", "team": "a"}
    pods = [
        make_pod(name, labels=team, requests={"cpu": "3"}, priority=priority, schedulerName=scheduler)
        for scheduler in ("default-scheduler", "berth")
        for name, priority in ((f"{scheduler}-first", 10), (f"{scheduler}-later", 0))
    ]
    nodes = [make_node("n1", labels={"team": "a"}), make_node("n2")]
    for nominated, found in (
        (pods[0], {"default-scheduler-first": 2, "default-scheduler-later": 1, "berth-first": 2, "berth-later": 2}),
        (pods[2], {"default-scheduler-first": 2, "default-scheduler-later": 2, "berth-first": 2, "berth-later": 1}),
    ):
        for pod in pods:
            pod["status"] = {"nominatedNodeName": "n1"} if pod is nominated else {}
        made = list(map(Pod.from_json, pods))
        live = CompiledRevision(revision(1, strict=False))
        after = CompiledRevision(revision(2, strict=True), former=live)
        snapshot = Snapshot.of(map(Node.from_json, nodes), made)
        said = forecast_at_once(live, after, snapshot, made, NOW, own=OwnScheduler(frozenset({"berth"})))
        assert {each.pod.removeprefix("default/"): each.nodes for each in said.waiting} == found
        assert len(said.left_with_none) == 1


@pytest.mark.parametrize(("scheduler", "gaining"), [("default-scheduler", ["first", "later"]), ("berth", ["first"])])
def test_rules_count_nominated_pods_for_berths_own_scheduler_alone(scheduler: str, gaining: list[str]) -> None:
    """kube-scheduler asks its extenders about the Pods that are on nodes."""

    def rules(number: int, most: int) -> Revision:
        few = {"name": "few", "expression": "node.count({'app': 'x'}) < params.most", "reason": "enough"}
        rule_set = make_rule_set("web", filters=[few], params={"most": most})
        return Revision(number=number, rule_sets=[rule_set], assignments=[make_assignment("all", "web")])

    pods = [make_pod(name, labels={"app": "x"}, schedulerName=scheduler) for name in ("first", "later")]
    pods[0]["status"] = {"nominatedNodeName": "n1"}
    made = list(map(Pod.from_json, pods))
    live = CompiledRevision(rules(1, 0))
    after = CompiledRevision(rules(2, 1), former=live)
    snapshot = Snapshot.of([Node.from_json(make_node("n1"))], made)
    said = forecast_at_once(live, after, snapshot, made, NOW, own=OwnScheduler(frozenset({"berth"})))
    assert [each.pod.removeprefix("default/") for each in said.waiting] == gaining


def test_a_pod_with_scheduling_gates_is_taken_by_its_assignment_and_waits_for_no_node() -> None:
    labels = {"kind": "team", "team": "nobody"}
    gated = make_pod("gated", labels=labels, schedulingGates=[{"name": "example.org/wait"}])
    nodes, live = [make_node("n1")], revision(1, strict=False)
    assert len(asked(nodes, [make_pod("free", labels=labels), gated], live, revision(2, strict=True)).waiting) == 1
    found = asked(nodes, [gated], Revision(number=1, rule_sets=live.rule_sets), live)
    assert (found.pods, found.taken) == (1, [Taken("", 0, 1), Taken("web", 1, 0)])


def test_a_static_pod_is_refused_by_none_for_its_kubelet_runs_it_unasked() -> None:
    static = make_pod("kube-apiserver-n1", uid="u", nodeName="n1", labels={"kind": "team", "team": "a"})
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "5c9b1a"}
    found = asked([make_node("n1")], [static], revision(1, strict=False), revision(2, strict=True))
    assert (found.pods, found.refused) == (1, [])


teams = st.sampled_from(["a", "b", ""])


@given(
    st.lists(teams, min_size=1, max_size=6), st.lists(st.tuples(teams, st.integers(-1, 5)), max_size=8), st.booleans()
)
def test_it_says_what_deciding_on_each_pod_alone_says(
    of_nodes: list[str], of_pods: list[tuple[str, int]], strict: bool
) -> None:
    nodes = [make_node(f"n{index}", labels={"team": team} if team else {}) for index, team in enumerate(of_nodes)]
    pods = []
    for index, (team, place) in enumerate(of_pods):
        where = {"nodeName": f"n{place}"} if 0 <= place < len(nodes) else {}
        pods.append(make_pod(f"p{index}", uid=f"u{index}", labels={"kind": "team", "team": team}, **where))
    found = asked(nodes, pods, revision(1, strict=not strict), revision(2, strict=strict))

    def fits(team: str, node: str, *, tight: bool) -> bool:
        return node == team or (not tight and not node)

    waiting, refused = {}, set()
    for index, (team, place) in enumerate(of_pods):
        if 0 <= place < len(nodes):
            node = of_nodes[place]
            if fits(team, node, tight=not strict) and not fits(team, node, tight=strict):
                refused.add(f"default/p{index}")
            continue
        was = [fits(team, node, tight=not strict) for node in of_nodes]
        will = [fits(team, node, tight=strict) for node in of_nodes]
        gained, lost = (
            sum(w and not b for b, w in zip(was, will, strict=True)),
            sum(b and not w for b, w in zip(was, will, strict=True)),
        )
        if gained or lost:
            waiting[f"default/p{index}"] = (sum(was), gained, lost)
    assert {each.pod: (each.nodes, each.gained, each.lost) for each in found.waiting} == waiting
    assert {each.pod for each in found.refused} == refused


TEAM = {"name": "team", "expression": "node.metadata.labels.team == params.team", "reason": "another team's"}


def test_a_canary_touches_the_workloads_that_are_below_its_percent_and_no_others() -> None:
    nodes = [make_node("n1", labels={"team": "a"})]
    # Alike to every rule, but for the draw of each.
    pods = [make_pod(f"p{number}", uid=f"u{number}") for number in range(40)]
    rules = make_rule_set("web", filters=[TEAM], params={"team": "b"})
    before = Revision(number=1, rule_sets=[rules])
    after = Revision(number=2, rule_sets=[rules], assignments=[make_assignment("c", "web", mode="canary", percent=30)])
    below = {f"default/p{number}" for number, pod in enumerate(pods) if draw("c", Pod.from_json(pod)) < 30}
    assert 5 < len(below) < 20
    found = asked(nodes, pods, before, after)
    assert {each.pod for each in found.left_with_none} == below
    assert found.taken == [Taken("", 0, len(below)), Taken("web", len(below), 0)]


def test_other_params_of_an_assignment_touch_its_pods_alone() -> None:
    nodes = [make_node("n1", labels={"team": "a"}), make_node("n2", labels={"team": "b"})]
    pods = [make_pod(f"{name}-{number}", namespace=name, uid=f"{name}{number}") for name in "ab" for number in (1, 2)]

    def teams(number: int, **team_of: str) -> Revision:
        assignments = [
            make_assignment(name, "web", params={"team": team}, match={"namespaces": [name]})
            for name, team in team_of.items()
        ]
        rules = make_rule_set("web", filters=[TEAM], params={"team": ""})
        return Revision(number=number, rule_sets=[rules], assignments=assignments)

    found = asked(nodes, pods, teams(1, a="a", b="b"), teams(2, a="a", b="nobody"))
    assert {(each.pod, each.nodes, each.gained, each.lost) for each in found.waiting} == {
        ("b/b-1", 1, 0, 1),
        ("b/b-2", 1, 0, 1),
    }
    assert asked(nodes, pods, teams(1, a="a", b="b"), teams(2, a="a", b="b")).waiting == []
