"""What the gate forecasts of whole Changes, on clusters of odd Pods as an API server lists them: what each Pod alone gives, by both sides."""

import copy
import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine.decision import CompiledRevision, CompiledRuleSet, decide
from policies.engine.documents import read_exemption
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import Revision
from policies.engine.scheduling import default_profile, with_default_filters
from policies.engine.which import which
from scheduler.gate.cluster import list_cluster
from scheduler.gate.forecast import Forecast, Handed, OwnScheduler, Refused, Shadowed, Taken, Waiting, forecast
from tests.builders import exemption_document, make_assignment, make_node, make_pause, make_pod, make_rule_set

NAMESPACES = {"default": {"env": "prod"}, "other": {}}
NODES = [
    make_node("n0", labels={"zone": "z0", "team": "a"}),
    make_node("n1", labels={"zone": "z1", "team": "b"}, cpu="2"),
    make_node("n2", labels={"zone": "z0"}, pods="2"),
    make_node("n3", unschedulable=True, taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]),
]
EXPRESSIONS = [
    "node.metadata.?labels.team.orValue('') == params.team",
    "usage.free.cpu >= 1500",
    "node.count({'app': 'web'}) < 1",
    "node.count({'app': 'web'}) < params.most",
    "topology.count('zone', {'app': pod.metadata.labels.app}) < 2",
    "!has(pod.spec.nodeName) && pod.spec.?priorityClassName.orValue('') != 'high'",
]
BUILTINS = [
    "PodFitsHostPorts",
    "MatchInterPodAffinity",
    "NoDiskConflict",
    "CheckNodeUnschedulable",
    "MatchNodeSelector",
]
RULES = [{"name": f"r{place}", "expression": each, "reason": f"by {place}"} for place, each in enumerate(EXPRESSIONS)]
RULES += [{"name": name, "builtin": name} for name in BUILTINS]
RULE_SETS = st.fixed_dictionaries(
    {
        "filters": st.lists(st.sampled_from(RULES), min_size=1, max_size=3, unique_by=str),
        "params": st.fixed_dictionaries({"team": st.sampled_from("ab"), "most": st.integers(1, 2)}),
    }
)
MATCHES = st.sampled_from(
    [
        *(
            {},
            {},
            {"podSelector": {"matchLabels": {"app": "web"}}},
            {"namespaceSelector": {"matchLabels": {"env": "prod"}}},
        ),
        *({"ownerKinds": ["Deployment", "none"]}, {"priorityClassNames": ["high"]}, {"schedulerNames": ["berth"]}),
    ]
)
ASSIGNMENTS = st.dictionaries(
    st.sampled_from(["x", "y", "z"]),
    st.fixed_dictionaries(
        {
            "rule_set": st.sampled_from(["one", "two"]),
            "order": st.integers(0, 2),
            "match": MATCHES,
            "mode": st.sampled_from(["enforce", "enforce", "enforce", "shadow", "canary"]),
            "params": st.sampled_from([{}, {"team": "a"}, {"most": 3}]),
        }
    ),
    min_size=1,
    max_size=3,
)
TARGETS = st.sampled_from(["", "", "", "RuleSet/one", "RuleSet/two/r0", "RuleSet/one/r1"])
SIDES = st.fixed_dictionaries(
    {"one": RULE_SETS, "two": RULE_SETS, "assignments": ASSIGNMENTS, "paused": TARGETS, "exempt": TARGETS}
)
ANTI = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "zone", "namespaceSelector": {}}
SPECS = [
    *(
        {},
        {},
        {"priorityClassName": "high"},
        {"nodeSelector": {"team": "a"}},
        {"tolerations": [{"operator": "Exists"}]},
    ),
    {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [ANTI]}}},
    {"volumes": [{"name": "v", "awsElasticBlockStore": {"volumeID": "disk"}}]},
    {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]},
]
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "shop-abc", "uid": "o", "controller": True}
MORE = [
    *({}, {}, {"ownerReferences": [OWNER], "labels": {"pod-template-hash": "abc", "app": "web"}}, {"labels": None}),
    *({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"annotations": {"kubernetes.io/config.mirror": "x"}}),
]
PODS = st.lists(
    st.tuples(
        st.sampled_from(["", "", "n0", "n1", "n2", "n3", "gone"]),
        *(st.sampled_from(each) for each in (["default", "other"], ["web", "db"], SPECS, MORE)),
        st.sampled_from(["Pending", "Running", "Running", "Succeeded"]),
    ),
    min_size=3,
    max_size=9,
)


class Listed:
    """An API server that lists, three objects a page."""

    def __init__(self, **objects: list[Any]) -> None:
        self._objects = objects

    def list_pages(self, *, path: str, query: Any = None) -> Iterator[bytes]:
        del query
        found = self._objects.get(path.rpartition("/")[2], [])
        for start in range(0, len(found) or 1, 3):
            yield json.dumps({"metadata": {"resourceVersion": "1"}, "items": found[start : start + 3]}).encode()


def revision(number: int, side: dict[str, Any]) -> Revision:
    pods = [{"namespace": "other", "selector": {"matchLabels": {"app": "web"}}}]
    exemption = exemption_document("e", side["exempt"], until="9000-01-01T00:00:00Z", pods=pods)
    return Revision(
        number=number,
        rule_sets=[make_rule_set(name, **side[name]) for name in ("one", "two")],
        assignments=[
            make_assignment(name, **(each | ({"percent": 50} if each["mode"] == "canary" else {})))
            for name, each in side["assignments"].items()
        ],
        pauses=[make_pause("p", side["paused"])] if side["paused"] else [],
        exemptions=[read_exemption(exemption)] if side["exempt"] else [],
    )


def made(found: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    pods = []
    for place, (node, namespace, app, spec, more, phase) in enumerate(found):
        pod = make_pod(f"p{place}", namespace=namespace, labels={"app": app}, requests={"cpu": "1"}, **spec)
        pod["spec"] |= {"nodeName": node} if node else {}
        pod["metadata"] = {name: value for name, value in (pod["metadata"] | more).items() if value is not None}
        pods.append({**pod, "status": {"phase": phase}})
    return pods


def asked(rule_set: CompiledRuleSet, pod: Pod, snapshot: Snapshot, now: datetime) -> Any:
    cycle = Cycle(pod=pod, snapshot=snapshot, now=now, params=rule_set.params)
    return decide(rule_set.enforced, cycle, snapshot.table.all_rows())


def by_each_alone(sides: tuple[Revision, Revision], pods: list[dict[str, Any]], now: datetime) -> Forecast:
    before, after = map(CompiledRevision, sides)
    live = [Pod.from_json(each) for each in pods if each["status"]["phase"] != "Succeeded"]
    nodes = list(map(Node.from_json, NODES))
    whole = Snapshot.of(nodes, live, NAMESPACES)
    waiting, refused, count = [], [], 0
    taken: dict[str, list[int]] = {}
    handed, shadowed = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for pod in live:
        node, name = pod.spec.node_name, f"{pod.namespace}/{pod.name}"
        if pod.is_deleting and not node:
            continue
        count += 1
        labels = NAMESPACES.get(pod.namespace, {})
        was, will = (side.choose(pod, whole, now) for side in (before, after))
        known, then = ({(each.name, each.rule_set) for each, _ in side.shadows} for side in (was, will))
        shadowed.update(then - known)
        one, other = was.enforced, will.enforced
        if (pair := tuple(which(side, pod, labels, now).assignment for side in sides)) and pair[0] != pair[1]:
            handed[pair[0], pair[1]] += 1
        lost, gained = (each[1].name if each else "" for each in (one, other))
        if lost != gained:
            taken.setdefault(lost, [0, 0])[1] += 1
            taken.setdefault(gained, [0, 0])[0] += 1
        if not node:
            profiles = [with_default_filters(each[1]) if each else default_profile() for each in (one, other)]
            do, would = (set(asked(each, pod, whole, now).feasible) for each in profiles)
            if do != would:
                waiting.append(Waiting(name, len(do), len(would - do), len(do - would)))
        elif node in whole.table.row_of and other and "annotations" not in pod.json["metadata"]:
            bare = copy.deepcopy(pod.json)
            del bare["spec"]["nodeName"]
            others = Snapshot.of(nodes, [each for each in live if each is not pod], NAMESPACES)
            row, new = whole.table.row_of[node], asked(other[1], Pod.from_json(bare), others, now)
            is_new = one is None or asked(one[1], Pod.from_json(bare), others, now).refusal[row] < 0
            if new.refusal[row] >= 0 and is_new:
                rule = next(column.rule.key for column in new.filters if column.at(row) is not None)
                refused.append(Refused(name, node, rule, new.refusals[new.refusal[row]].reason))
    return Forecast(
        len(NODES),
        count,
        waiting,
        refused,
        [Taken(name, *each) for name, each in sorted(taken.items())],
        handed=[Handed(*names, each) for names, each in sorted(handed.items())],
        shadowed=[Shadowed(*names, each) for names, each in sorted(shadowed.items())],
    )


@settings(max_examples=150)
@given(SIDES, SIDES, PODS)
def test_the_forecast_of_a_change_is_what_each_pod_alone_gives(
    before: dict[str, Any], after: dict[str, Any], found: list[tuple[Any, ...]]
) -> None:
    pods, sides = made(found), (revision(1, before), revision(2, after))
    namespaces = [{"metadata": {"name": name, "labels": labels}} for name, labels in NAMESPACES.items()]
    live = CompiledRevision(sides[0])
    compiled = (live, CompiledRevision(sides[1], former=live))
    listed: Any = Listed(nodes=NODES, pods=pods, namespaces=namespaces)  # it lists, and no more
    cluster = list_cluster(listed, lambda: compiled, lambda _: None, OwnScheduler())
    assert forecast(cluster.pods, cluster.snapshot) == by_each_alone(sides, pods, cluster.pods.now)
