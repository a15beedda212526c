"""Whether a Pod fits nodes with other Pods on them: each node is asked about as if it alone were different."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies.engine.decision import CompiledRuleSet
from policies.engine.default_set import default_rule_set
from policies.engine.filters.registry import BUILTIN_FILTERS, FILTER_ALIASES
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.fit import Fitting
from policies.engine.rule import Cycle
from policies.engine.scheduling import default_profile
from tests.builders import make_node, make_pod, make_rule_set

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ONE_A_ZONE = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
        ]
    }
}
COUNTING = {"name": "alone", "expression": "cluster.count({'app': 'web'}) == 0"}


def placed(name: str, node: str = "", **spec: Any) -> Pod:
    named = {"nodeName": node} if node else {}
    return Pod.from_json(make_pod(name, labels={"app": "web"}, **named, **spec))


def two_nodes(*pods: Pod, **spec: Any) -> Snapshot:
    return Snapshot.of([Node.from_json(make_node(f"n{i}", labels={"zone": "z"}, **spec)) for i in (1, 2)], pods)


def refusals(
    rules: CompiledRuleSet, pod: Pod, snapshot: Snapshot, infos: list[NodeInfo], **nominated: list[Pod]
) -> list[str]:
    found = Fitting(rules, Cycle(pod=pod, snapshot=snapshot.changed({}, nominated=nominated), now=NOW)).refusals(infos)
    return ["" if status is None else status.reason for status in found]


def emptied(snapshot: Snapshot) -> list[NodeInfo]:
    return [NodeInfo(info.node) for info in snapshot.nodes.values()]


def test_a_filter_that_looks_at_other_nodes_sees_them_as_they_are() -> None:
    snapshot = two_nodes(placed("a", "n1"), placed("b", "n2"))
    incoming = placed("web", affinity=ONE_A_ZONE)
    reason = "node(s) didn't match pod anti-affinity rules"
    assert refusals(default_rule_set(), incoming, snapshot, emptied(snapshot)) == [reason, reason]

    alone = two_nodes(placed("a", "n1"))
    assert refusals(default_rule_set(), incoming, alone, emptied(alone)) == ["", reason]


def test_a_node_that_is_full_is_not_asked_about_its_neighbours() -> None:
    snapshot = two_nodes(pods="0")
    incoming = placed("web", affinity=ONE_A_ZONE)
    assert refusals(default_rule_set(), incoming, snapshot, emptied(snapshot)) == ["Too many pods"] * 2


def test_a_pod_must_fit_with_those_nominated_there_and_without_them() -> None:
    together = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}
            ]
        }
    }
    incoming = Pod.from_json(make_pod("db", affinity=together))
    snapshot = two_nodes()
    coming = placed("coming", priority=5)
    reason = "node(s) didn't match pod affinity rules"
    assert refusals(default_rule_set(), incoming, snapshot, emptied(snapshot), n1=[coming]) == [reason, reason]


def test_a_nominated_pod_counts_on_its_own_node_only() -> None:
    snapshot = two_nodes()
    full = placed("full", requests={"cpu": "4"})
    incoming = placed("web", requests={"cpu": "1"})
    assert refusals(default_rule_set(), incoming, snapshot, emptied(snapshot), n1=[full]) == ["Insufficient cpu", ""]


def test_rules_in_mode_shadow_refuse_nobody_and_no_rules_refuse_nobody() -> None:
    never = {"name": "never", "expression": "false"}
    snapshot = two_nodes()
    for rules in ([{**never, "mode": "shadow"}], []):
        compiled = CompiledRuleSet(make_rule_set(filters=rules, scores=[{"builtin": "LeastRequestedPriority"}]))
        assert refusals(compiled, placed("web"), snapshot, emptied(snapshot)) == ["", ""]
    enforced = CompiledRuleSet(make_rule_set(filters=[never]))
    assert refusals(enforced, placed("web"), snapshot, emptied(snapshot)) == ["refused by rule never"] * 2


@pytest.mark.parametrize("name", sorted(set(BUILTIN_FILTERS) - set(FILTER_ALIASES)))
def test_only_built_ins_about_other_pods_look_around_and_only_when_there_are_some(name: str) -> None:
    [(_, made)] = CompiledRuleSet(make_rule_set(filters=[_rule(name)])).filters
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    claim = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    asking = placed("web", affinity=ONE_A_ZONE, topologySpreadConstraints=[spread], volumes=[claim])
    always = {"MaxReplicasPerDomain", "ServiceAffinity"}  # for Pods with the label app, as these
    around = {"EvenPodsSpread", "MatchInterPodAffinity", "NoDiskConflict", *always}

    assert made.looks_around(asking, two_nodes(), []) == (name in around)
    assert made.looks_around(placed("plain"), two_nodes(), []) == (name in always)


def _rule(name: str) -> dict[str, Any]:
    given = {
        "CheckNodeLabelPresence": {"labels": ["zone"], "presence": True},
        "MaxReplicasPerDomain": {"maxReplicas": 1},
    }
    arguments = given.get(name)
    return {"builtin": name, "arguments": arguments} if arguments else {"builtin": name}


def test_an_expression_looks_around_when_it_counts_pods() -> None:
    [(_, counting), (_, plain)] = CompiledRuleSet(
        make_rule_set(filters=[COUNTING, {"name": "plain", "expression": "usage.free.pods > 0"}])
    ).filters
    assert counting.looks_around(placed("web"), two_nodes(), [])
    assert not plain.looks_around(placed("web"), two_nodes(), [])


def test_affinity_looks_around_for_the_terms_of_those_there_and_of_those_coming() -> None:
    [(_, made)] = CompiledRuleSet(make_rule_set(filters=[{"builtin": "MatchInterPodAffinity"}])).filters
    shy = placed("shy", "n1", affinity=ONE_A_ZONE)
    assert made.looks_around(placed("web"), two_nodes(shy), [])
    assert made.looks_around(placed("web"), two_nodes(), [shy])
    assert not made.looks_around(placed("web"), two_nodes(placed("plain", "n1")), [placed("plain")])


def test_nothing_in_the_classic_default_set_looks_around_for_a_plain_pod() -> None:
    filters = default_profile().filters
    assert {type(made).__name__ for _, made in filters} >= {"CheckVolumeBinding", "CheckResourceClaims"}
    assert not any(made.looks_around(placed("plain"), two_nodes(placed("a", "n1")), []) for _, made in filters)
