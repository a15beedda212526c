"""Deciding on Pods alike again gives what deciding anew gives, to the byte."""

from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine import reuse
from policies.engine.decision import Answer, CompiledRuleSet
from policies.engine.filters.expression import ExpressionFilter
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.reuse import Judge
from policies.engine.rule import Cycle
from policies.engine.scheduling import default_profile, judge, pick, with_default_filters
from policies.engine.status import Verdicts
from scheduler.decisions.columns import store_answer
from tests.builders import make_node, make_pod, make_rule_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ZONE = "topology.kubernetes.io/zone"
NEAR = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": ZONE}
FAR = {"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": "kubernetes.io/hostname"}
TEMPLATES: list[dict[str, Any]] = [
    {"labels": {"app": "a"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
    {"labels": {"app": "a"}},
    {
        "labels": {"app": "b"},
        "requests": {"cpu": "1"},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [FAR]}},
    },
    {
        "labels": {"app": "c"},
        "affinity": {
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": NEAR}]}
        },
    },
    {
        "labels": {"app": "d"},
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "d"}},
            },
            {
                "maxSkew": 2,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "d"}},
            },
        ],
    },
    {"labels": {"app": "e"}, "tolerations": [{"operator": "Exists"}], "requests": {"memory": "2Gi"}},
    {"labels": {"app": "f"}, "nodeSelector": {"pool": "x"}, "requests": {"cpu": "1500m"}},
]
PORT = [{"name": "main", "image": "i", "ports": [{"hostPort": 80, "protocol": "TCP"}]}]
RULES = [
    None,
    with_default_filters(
        CompiledRuleSet(
            make_rule_set(
                filters=[
                    {"name": "room", "expression": "usage.free.cpu >= 700", "reason": "too full"},
                    {"name": "few", "expression": "node.count({'app': 'a'}) < 3", "reason": "many", "mode": "shadow"},
                    {"name": "name", "expression": "size(pod.metadata.name) < 4", "reason": "long", "onError": "pass"},
                ],
                scores=[
                    {"builtin": "MostRequestedPriority", "weight": 3},
                    {"name": "free", "expression": "usage.free.cpu"},
                    {"builtin": "SelectorSpreadPriority", "mode": "shadow"},
                    {"builtin": "EqualPriority"},
                ],
            )
        )
    ),
]


def nodes_of(random: Random) -> list[dict[str, Any]]:
    nodes = []
    for number in range(random.randint(1, 9)):
        labels = {ZONE: random.choice("abc"), "pool": random.choice("xy")} if random.random() < 0.9 else {}
        taints = [{"key": "k", "effect": random.choice(["NoSchedule", "PreferNoSchedule"])}]
        spec = {"taints": taints} if random.random() < 0.3 else {}
        nodes.append(make_node(f"n{number}", labels=labels, cpu=random.choice("248"), pods="6", **spec))
    return nodes


def contents(answer: Answer) -> bytes:
    parts = [store_answer(answer), answer.totals.tolist(), answer.points.tolist(), answer.refusal.tolist()]
    return msgspec.msgpack.encode([*parts, answer.scored.tolist(), [status.reason for status in answer.refusals]])


def changed(random: Random, snapshot: Snapshot) -> Snapshot:
    """Let something happen that isn't a placement."""
    if not snapshot.table.names:
        return snapshot
    name = random.choice(list(snapshot.table.names))
    info = snapshot.nodes[name]
    match random.randrange(8):
        case 0:
            return snapshot.changed({name: NodeInfo(info.node, info.pods[1:])})
        case 1:
            json = make_node(name, labels={ZONE: "c", "pool": "x"}, cpu="3", pods="6")
            return snapshot.changed({name: NodeInfo(Node.from_json(json), info.pods)})
        case 2:
            return snapshot.changed({name: None})
        case 3:
            return snapshot.changed({}, {"default": {"team": random.choice("xy")}})
        case 4:
            return snapshot.changed({}, objects=ClusterObjects.from_json({}))
        case 5:
            other = Pod.from_json(make_pod("nominated", requests={"cpu": "3"}, priority=5))
            return snapshot.changed({}, nominated={name: [other]} if random.random() < 0.5 else {})
        case _:
            return snapshot


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    whole: Callable[[CompiledRuleSet, Cycle, Rows], Answer] = judge

    def judged(rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows) -> Answer:
        calls.append(1)
        return whole(rule_set, cycle, rows)

    monkeypatch.setattr(reuse, "judge", judged)
    return calls


@given(st.randoms(use_true_random=False))
def test_whatever_happens_in_between_the_answer_is_the_one_that_is_worked_out_anew(random: Random) -> None:
    snapshot = Snapshot.of([Node.from_json(json) for json in nodes_of(random)])
    kept = Judge()
    templates = random.sample(TEMPLATES, 3)
    # The binder asks in the table's order, kube-scheduler in its own.
    step = random.choice((1, -1))
    last = ""
    for number in range(25):
        template = random.choice(templates)
        json = make_pod(f"p{number}", **template)
        if template["labels"]["app"] == "e":
            json["spec"]["containers"] = PORT
        pod = Pod.from_json(json)
        rule_set = random.choice(RULES) or default_profile()
        cycle = Cycle(pod=pod, snapshot=snapshot, now=NOW, params=rule_set.params)
        rows = snapshot.table.all_rows()
        if random.random() < 0.2:
            rows = rows[::2]
        rows = rows[::step]

        answer = kept.judge(rule_set, cycle, rows)

        assert contents(answer) == contents(judge(rule_set, cycle, rows))
        position = pick(answer, cycle, rows, after=last, is_default_profile=rule_set is default_profile())
        if position is not None:
            last = answer.name_at(position)
            snapshot = snapshot.assume(pod, last)
        if random.random() < 0.3:
            snapshot = changed(random, snapshot)


def test_pods_alike_are_judged_whole_once_in_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    nodes = [make_node(f"n{number}", cpu="1000", memory="1000Gi", pods="2000") for number in range(3)]
    snapshot = Snapshot.of(map(Node.from_json, nodes))
    kept = Judge()
    for number in range(402):
        pod = Pod.from_json(make_pod(f"p{number}", requests={"cpu": "100m"}))
        cycle = Cycle(pod=pod, snapshot=snapshot, now=NOW)
        kept.judge(default_profile(), cycle, snapshot.table.all_rows())
        snapshot = snapshot.assume(pod, f"n{number % 3}")

    assert len(calls) == 2


def test_another_rule_set_is_never_answered_by_what_a_former_one_said(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    snapshot = Snapshot.of([Node.from_json(make_node())])
    kept = Judge()
    cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=NOW)
    for number in range(20):
        rules = with_default_filters(CompiledRuleSet(make_rule_set(f"r{number}")))
        kept.judge(rules, cycle, snapshot.table.all_rows())

    assert len(calls) == 20


def judged_again(pods: list[dict[str, Any]], changes: Callable[[Snapshot], Snapshot], rules: CompiledRuleSet) -> int:
    """Judge Pods one after another, with a change between any two; returns how often that was done anew."""
    with pytest.MonkeyPatch.context() as patch:
        calls = counted(patch)
        snapshot = Snapshot.of([Node.from_json(make_node(f"n{number:02}", cpu="90")) for number in range(70)])
        kept = Judge()
        for json in pods:
            cycle = Cycle(pod=Pod.from_json(json), snapshot=snapshot, now=NOW, params=rules.params)
            answer = kept.judge(rules, cycle, snapshot.table.all_rows())
            assert contents(answer) == contents(judge(rules, cycle, snapshot.table.all_rows()))
            snapshot = changes(snapshot)
        return len(calls)


def test_a_node_that_is_named_among_the_changes_and_is_the_same_changes_nothing() -> None:
    assert (
        judged_again(
            [make_pod("a"), make_pod("b")], lambda found: found.changed({"n01": found.nodes["n01"]}), default_profile()
        )
        == 1
    )


def test_a_volume_that_moved_to_another_zone_has_the_next_pod_alike_judged_anew() -> None:
    zones = ["a", "b"]
    nodes = [Node.from_json(make_node(f"n{zone}", labels={ZONE: zone})) for zone in zones]
    pod = make_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
    claim = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"volumeName": "pv"}}
    volume = {"metadata": {"name": "pv"}, "spec": {}}
    kept, snapshot = Judge(), Snapshot.of(nodes)
    rules = CompiledRuleSet(make_rule_set(filters=[{"builtin": "VolumeZone"}]))
    for zone in zones:
        volumes = [{**volume, "metadata": {"name": "pv", "labels": {ZONE: zone}}}]
        objects = ClusterObjects.from_json({"persistentVolumeClaims": [claim], "persistentVolumes": volumes})
        snapshot = snapshot.changed({}, objects=objects)
        cycle = Cycle(pod=Pod.from_json(pod), snapshot=snapshot, now=NOW)
        assert kept.judge(rules, cycle, snapshot.table.all_rows()).feasible == [f"n{zone}"]


def test_where_pods_on_very_many_nodes_changed_it_is_judged_anew() -> None:
    other = Pod.from_json(make_pod("other"))

    def change(found: Snapshot) -> Snapshot:
        return found.changed({name: info.joined([other]) for name, info in found.nodes.items()})

    assert judged_again([make_pod("a"), make_pod("b")], change, default_profile()) == 2


def test_scores_that_have_nothing_to_say_and_those_that_do_not_count_stay_as_they_are() -> None:
    rules = with_default_filters(
        CompiledRuleSet(
            make_rule_set(
                scores=[
                    {"builtin": "BalancedResourceAllocation"},
                    {"builtin": "MostRequestedPriority", "mode": "shadow"},
                    {"builtin": "InterPodAffinityPriority"},
                ]
            )
        )
    )
    with_terms = {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": NEAR}]}
    }
    near = Pod.from_json(make_pod("near", labels={"app": "x"}, affinity=with_terms))
    plain = make_pod("p", labels={"app": "a"})

    assert judged_again([plain] * 3, lambda found: found.assume(near, "n03"), rules) == 1
    assert judged_again([make_pod("q")] * 2, lambda found: found.changed({"n01": None}), rules) == 2


def test_a_score_about_other_pods_can_come_to_have_nothing_to_say() -> None:
    preferred = [{"weight": 1, "podAffinityTerm": {**FAR, "labelSelector": {"matchLabels": {"app": "a"}}}}]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    one = Pod.from_json(make_pod("one", labels={"app": "a"}))
    snapshot = Snapshot.of([Node.from_json(make_node(f"n{number}")) for number in range(3)]).assume(one, "n1")
    kept = Judge()
    for found in (snapshot, snapshot.changed({"n1": NodeInfo(snapshot.nodes["n1"].node)})):
        cycle = Cycle(pod=Pod.from_json(make_pod("p", affinity=affinity)), snapshot=found, now=NOW)
        answer = kept.judge(default_profile(), cycle, found.table.all_rows())
        assert contents(answer) == contents(judge(default_profile(), cycle, found.table.all_rows()))


def test_a_rule_that_could_not_be_evaluated_somewhere_has_all_judged_anew() -> None:
    rank = {"name": "rank", "expression": "int(node.metadata.labels.rank) > 3", "reason": "low", "onError": "pass"}
    rules = with_default_filters(CompiledRuleSet(make_rule_set(filters=[rank])))

    assert judged_again([make_pod("a"), make_pod("b")], lambda found: found, rules) == 2


def test_expressions_are_asked_again_about_all_nodes() -> None:
    rules = with_default_filters(
        CompiledRuleSet(make_rule_set(scores=[{"name": "free", "expression": "usage.free.cpu"}]))
    )
    other = Pod.from_json(make_pod("other", requests={"cpu": "1"}))

    assert judged_again([make_pod("a"), make_pod("b")], lambda found: found.assume(other, "n01"), rules) == 1


def test_a_score_that_can_not_be_evaluated_somewhere_is_counted_over_all_nodes() -> None:
    """The first Pod leaves the figures of all nodes sound, the second spoils one, and the third is judged with it."""
    spoiled = {"name": "s", "expression": "1000 / (int(usage.free.cpu) - 89000)", "bounds": [-9, 9]}
    rules = with_default_filters(CompiledRuleSet(make_rule_set(scores=[spoiled])))
    other = Pod.from_json(make_pod("other", requests={"cpu": "1"}))

    assert judged_again([make_pod(f"p{n}") for n in range(3)], lambda found: found.assume(other, "n01"), rules) == 1


def test_a_rule_over_nodes_alone_is_asked_once_and_one_over_the_time_for_each_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    plain = ExpressionFilter.filter

    def filter_and_note(rule: ExpressionFilter, cycle: Cycle, rows: Rows) -> Verdicts:
        asked.append(rule.expression.source)
        return plain(rule, cycle, rows)

    monkeypatch.setattr(ExpressionFilter, "filter", filter_and_note)
    kept, snapshot = Judge(), Snapshot.of([Node.from_json(make_node())])
    sources = ["size(node.metadata.name) < 9", "now.getHours() < 9", "pod.metadata.name != 'x'"]
    rules = CompiledRuleSet(make_rule_set(filters=[{"name": f"f{n}", "expression": e} for n, e in enumerate(sources)]))
    for number in range(3):
        cycle = Cycle(pod=Pod.from_json(make_pod(f"p{number}")), snapshot=snapshot, now=NOW)
        kept.judge(rules, cycle, snapshot.table.all_rows())

    assert [asked.count(source) for source in sources] == [1, 3, 3]


@pytest.mark.parametrize(
    "differing",
    [
        {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]},
        {"resourceClaims": [{"name": "device"}]},
        {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]},
    ],
    ids=["a claim called after the Pod", "a device", "limits that make it more than BestEffort"],
)
def test_pods_that_differ_in_what_built_ins_read_are_not_alike(differing: dict[str, Any]) -> None:
    plain = {"containers": [{"name": "main"}]}
    assert judged_again([make_pod("a", **plain), make_pod("b", **plain)], lambda found: found, default_profile()) == 1
    two = [make_pod("a", **plain), make_pod("b", **(plain | differing)), make_pod("c", **(plain | differing))]
    assert judged_again(two, lambda found: found, default_profile()) == (3 if "volumes" in differing else 2)


def test_a_pod_made_anew_with_the_same_name_has_claims_of_its_own() -> None:
    volumes = [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]
    pods = [make_pod("web-0", uid=uid, volumes=volumes) for uid in ("first", "second", "second")]
    assert judged_again(pods, lambda found: found, default_profile()) == 2


def test_pods_of_different_controllers_are_not_alike() -> None:
    def of(owner: str) -> dict[str, Any]:
        json = make_pod(f"p-{owner}")
        json["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
        return json

    assert judged_again([of("a"), of("a"), of("b")], lambda found: found, default_profile()) == 2
