"""Pods alike are decided once, and many nodes at once: what comes of it is what deciding on each Pod alone gives."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine.decision import CompiledRevision, CompiledRuleSet, decide
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import Revision
from policies.engine.scheduling import with_default_filters
from scheduler.gate.forecast import Gathered, Refused, Shifted, Waiting, forecast
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.unit.gate.at_once import forecast_at_once

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def expression(name: str, source: str) -> dict[str, Any]:
    return {"name": name, "expression": source, "reason": name}


# Rules of every reach: the node alone, the Pods on it, all Pods; the Pod's own fields.
FILTERS = [
    expression("team", "node.metadata.?labels.team.orValue('') == pod.metadata.?labels.team.orValue('')"),
    expression("room", "usage.free.cpu >= 1000"),
    expression("few", "node.count({'app': 'web'}) < 1"),
    expression("zone", "topology.count('zone', {'app': 'web'}) < 2"),
    expression("own", "node.count({'app': pod.metadata.labels.app}) < 1"),
    expression("like", "topology.count('zone', {'app': pod.metadata.?annotations.like.orValue('web')}) < 1"),
    expression("both", "usage.free.cpu >= 1000 && cluster.count({'app': 'web', 'team': 'a'}) < 2"),
    expression("faulty", "node.count({'app': pod.metadata.annotations.like}) < 2"),
    expression("all", "cluster.count({'app': 'web'}) < 3"),
    expression("site", "cluster.countInAllNamespaces({'app': 'web'}) < 4"),
    expression("name", "pod.metadata.name != 'p1' || node.metadata.name == 'n0'"),
    {"builtin": "PodFitsResources"},
    {"builtin": "PodFitsHostPorts"},
    {"builtin": "PodFitsHost"},
    {"builtin": "MatchInterPodAffinity"},
    {"builtin": "EvenPodsSpread"},
    expression("left", "usage.free.cpu - requests.cpu >= 1000"),
    expression("theirs", "node.metadata.?labels.team in [optional.none(), namespaceObject.metadata.labels.?team]"),
]
SCORES = [
    {"builtin": "LeastRequestedPriority", "weight": 1},
    {"name": "far", "expression": "node.metadata.name == 'n0' ? 0 : 9", "bounds": [0, 9], "weight": 2},
]
ALONE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone"}
        ]
    }
}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]

specs = st.builds(
    lambda filters, scores: {"filters": filters} | ({"scores": scores} if scores else {}),
    st.lists(st.sampled_from(FILTERS), min_size=1, max_size=3, unique_by=str),
    st.lists(st.sampled_from(SCORES), max_size=2, unique_by=str),
)
pods = st.lists(
    st.fixed_dictionaries(
        {
            "app": st.sampled_from(["web", "db"]),
            "team": st.sampled_from(["a", ""]),
            "node": st.integers(-1, 4),
            "more": st.sampled_from([{}, {"affinity": ALONE}, {"topologySpreadConstraints": SPREAD}]),
            "cpu": st.sampled_from(["1", "3"]),
            "like": st.sampled_from(["", "web", "db"]),
        }
    ),
    max_size=8,
)


def cluster(found: list[dict[str, Any]]) -> tuple[Snapshot, list[Pod]]:
    nodes = [
        make_node(f"n{place}", labels={"zone": f"z{place % 2}", "team": "a" if place else "b"}) for place in range(4)
    ]
    made = []
    for place, each in enumerate(found):
        labels = {"app": each["app"], "own": str(place)} | ({"team": each["team"]} if each["team"] else {})
        where = {"nodeName": f"n{each['node']}"} if each["node"] >= 0 else {}
        pod = make_pod(f"p{place}", labels=labels, requests={"cpu": each["cpu"]}, **where, **each["more"])
        if each.get("like"):
            pod["metadata"]["annotations"] = {"like": each["like"]}
        made.append(Pod.from_json(pod))
    return Snapshot.of(map(Node.from_json, nodes), made, {"default": {"team": "a"}}), made


def compiled(number: int, spec: dict[str, Any]) -> CompiledRevision:
    return CompiledRevision(
        Revision(number=number, rule_sets=[make_rule_set("web", **spec)], assignments=[make_assignment("all", "web")])
    )


def alone(rule_set: CompiledRuleSet, pod: Pod, snapshot: Snapshot) -> Any:
    table = snapshot.table
    return decide(rule_set, Cycle(pod=pod, snapshot=snapshot, now=NOW, params={}), table.all_rows())


def unbound(pod: Pod) -> Pod:
    spec = {name: value for name, value in pod.json["spec"].items() if name != "nodeName"}
    return Pod.from_json({**pod.json, "spec": spec})


@settings(max_examples=200)
@given(specs, specs, pods)
def test_the_forecast_is_what_each_pod_alone_gives(
    before: dict[str, Any], after: dict[str, Any], found: list[dict[str, Any]]
) -> None:
    snapshot, made = cluster(found)
    live, wanted = compiled(1, before), compiled(2, after)
    old, new = live.rule_sets["web"], wanted.rule_sets["web"]
    waiting, refused, shifted = [], [], []
    for pod in made:
        name, node = f"default/{pod.name}", snapshot.node(pod.spec.node_name)
        if pod.spec.node_name and node is not None:
            rest = NodeInfo(node.node, [each for each in node.pods if each.uid != pod.uid])
            without = snapshot.branched({node.name: rest})
            was, will = (alone(side, unbound(pod), without) for side in (old, new))
            place = snapshot.table.row_of[node.name]
            if will.refusal[place] >= 0 > was.refusal[place]:
                rule = next(column.rule.key for column in will.filters if column.at(place) is not None)
                refused.append(Refused(name, node.name, rule, will.refusals[will.refusal[place]].reason))
        elif not pod.spec.node_name:
            was, will = (alone(with_default_filters(side), pod, snapshot) for side in (old, new))
            one, other = set(was.feasible), set(will.feasible)
            if one != other:
                waiting.append(Waiting(name, len(one), len(other - one), len(one - other)))
            best = {
                will.name_at(will.scored[place])
                for place in range(len(will.scored))
                if will.totals[place] == max(will.totals)
            }
            if was.best and will.best and was.best not in best:
                shifted.append(Shifted(name, was.best, will.best))
    said = forecast_at_once(live, wanted, snapshot, made, NOW)
    assert said.waiting == waiting
    assert said.refused == refused
    assert said.shifted == shifted


def test_pods_of_one_workload_are_one_group_and_one_of_them_stays_whole() -> None:
    live, wanted = compiled(1, {"filters": [FILTERS[0]]}), compiled(2, {"filters": [FILTERS[1]]})
    gathered = Gathered(live, wanted, {}, NOW)
    for place in range(100):
        where = {"nodeName": f"n{place % 4}"} if place % 2 else {}
        gathered.add(Pod.from_json(make_pod(f"p{place}", labels={"team": "a"}, **where)))
    (alike,) = gathered.groups.values()
    assert (len(alike.waiting), sorted(alike.running)) == (50, ["n1", "n3"])


def test_how_far_it_is_is_said() -> None:
    live, wanted = compiled(1, {"filters": [FILTERS[0]]}), compiled(2, {"filters": [FILTERS[1]]})
    snapshot, made = cluster([{"app": "web", "team": team, "node": -1, "more": {}, "cpu": "1"} for team in ("a", "")])
    gathered = Gathered(live, wanted, {}, NOW)
    for pod in made:
        gathered.add(pod)
    steps: list[tuple[int, int]] = []
    forecast(gathered, snapshot, lambda done, total: steps.append((done, total)))
    assert steps == [(0, 2), (1, 2)]


def test_what_there_is_no_time_for_is_counted() -> None:
    live, wanted = compiled(1, {"filters": [FILTERS[0]]}), compiled(2, {"filters": [FILTERS[3]]})
    kinds = [("web", "a", -1), ("web", "a", 1), ("web", "a", 2), ("db", "", 0)]
    snapshot, made = cluster([{"app": a, "team": t, "node": n, "more": {}, "cpu": "1"} for a, t, n in kinds])
    gathered = Gathered(live, wanted, {}, NOW)
    for pod in made:
        gathered.add(pod)
    asked = iter([False, False, False, True])
    found = forecast(gathered, snapshot, is_up=lambda: next(asked, True))
    assert (found.waiting_left_out, found.running_left_out) == (0, 2)
    none = forecast(gathered, snapshot, is_up=lambda: True)
    assert (none.waiting_left_out, none.running_left_out, none.pods) == (1, 3, 4)


def test_pods_that_rules_of_their_nodes_alone_cannot_tell_apart_are_one_group_whatever_else_differs() -> None:
    live, wanted = compiled(1, {"filters": [FILTERS[0]]}), compiled(2, {"filters": [FILTERS[0], FILTERS[5]]})
    gathered = Gathered(live, wanted, {}, NOW)
    for place in range(6):
        labels = {"team": "a", "own": str(place)}
        gathered.add(Pod.from_json(make_pod("same", uid=f"u{place}", labels=labels, nodeName="n1")))
    (alike,) = gathered.groups.values()
    assert alike.many_running == 6


def test_pods_that_counts_of_labels_cannot_tell_apart_are_one_group_whatever_else_differs() -> None:
    live, wanted = compiled(1, {"filters": [FILTERS[2]]}), compiled(2, {"filters": [FILTERS[3]]})
    gathered = Gathered(live, wanted, {}, NOW)
    for place in range(9):
        labels = {"app": "db" if place % 3 else "web", "own": str(place)}
        gathered.add(Pod.from_json(make_pod(f"p{place}", labels=labels, nodeName="n1")))
    gathered.add(Pod.from_json(make_pod("elsewhere", namespace="other", labels={"app": "web"}, nodeName="n1")))
    assert sorted(alike.many_running for alike in gathered.groups.values()) == [1, 3, 6]
