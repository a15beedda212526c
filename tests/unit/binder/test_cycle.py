"""One cycle: a Pod, a Revision and a Snapshot lead to a node, or to why there is none."""

from datetime import UTC, datetime
from typing import Any

import pytest

from policies.engine.decision import CompiledRevision
from policies.engine.errors import DeadlineError
from policies.engine.failures import Conditions
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import NAMESPACE, NODE, NODE_GONE, POD_CHANGES, POD_GONE
from policies.engine.ruleset import Revision
from policies.engine.scheduling import default_profile
from scheduler.binder.cycle import Placement, Profile, judge_shadow, message_of, opens_at, requeued_by
from scheduler.binder.recording import cycle_entry
from tests.builders import make_assignment, make_node, make_pod, make_rule_set

NOW = datetime(2026, 1, 1, 12, 30, tzinfo=UTC)


def book_of(spec: dict[str, Any] | None = None, *, mode: str = "enforce") -> Profile:
    if spec is None:
        return Profile(CompiledRevision(Revision(number=0)))
    rule_sets, assignments = [make_rule_set("web", **spec)], [make_assignment("web", "web", mode=mode)]
    return Profile(CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=assignments)))


def placed(book: Profile, snapshot: Snapshot, json: dict[str, Any] | None = None, **more: Any) -> Placement:
    rows = more.pop("rows", snapshot.table.all_rows())
    return book.place(Pod.from_json(json or make_pod()), snapshot, rows, now=NOW, **more)


def nodes(*found: dict[str, Any]) -> Snapshot:
    return Snapshot.of(map(Node.from_json, found))


TWO = nodes(make_node("n1"), make_node("n2", cpu="1"))


def test_a_pod_that_no_assignment_takes_is_placed_by_the_default_set() -> None:
    placement = placed(book_of(), TWO, make_pod(requests={"cpu": "2"}))

    assert placement.node == "n1"
    assert placement.enforced is not None
    assert (placement.enforced.assignment, placement.enforced.rule_set) == (None, default_profile())


def test_an_assignments_rules_decide_behind_the_default_filters() -> None:
    rules = {"filters": [{"name": "second", "expression": "node.metadata.name == 'n2'", "reason": "not the second"}]}

    placement = placed(book_of(rules), TWO)
    refused = placed(book_of(rules), TWO, make_pod(requests={"cpu": "2"}))

    assert placement.node == "n2"
    assert placement.enforced is not None
    assert placement.enforced.assignment is not None
    assert refused.node == ""
    assert message_of(refused) == "0/2 nodes are available: 1 Insufficient cpu, 1 not the second."


def test_rule_sets_in_mode_shadow_are_noted_and_change_nothing() -> None:
    rules = {"filters": [{"name": "none", "expression": "false", "reason": "never"}]}

    placement = placed(book_of(rules, mode="shadow"), TWO)

    assert placement.node == "n1"
    [(assignment, rule_set)] = placement.shadows
    judged = judge_shadow(placement, assignment, rule_set, lambda: None)
    assert (judged.assignment, judged.answer.feasible) == (assignment, [])


def test_a_slow_shadow_is_no_part_of_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """It brought the binder from some 150 Pods a second down to 1.5."""
    book = book_of({"filters": [{"name": "slow", "expression": "false", "reason": "never"}]}, mode="shadow")
    asked: list[str] = []
    own = book.of(book.revision.rule_sets["web"]).filters[-1][1]
    monkeypatch.setattr(own, "filter", lambda *_: asked.append("slow"))

    placement = placed(book, TWO)

    assert (placement.node, asked) == ("n1", [])
    assert [rule_set.name for _, rule_set in placement.shadows] == ["web"]


def test_rules_in_mode_shadow_of_the_rule_set_that_decides_are_asked_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {
        "filters": [
            {"name": "dry", "expression": "false", "mode": "shadow", "reason": "never"},
            {"name": "second", "expression": "node.metadata.name == 'n2'"},
        ],
        "scores": [
            {"name": "first", "expression": "node.metadata.name == 'n1' ? 9 : 0", "mode": "shadow", "bounds": [0, 9]}
        ],
    }
    book = book_of(rules)
    asked: list[str] = []
    own = book.of(book.revision.rule_sets["web"])
    monkeypatch.setattr(own.scores[0][1], "score_with_faults", lambda *_: asked.append("first") or (None, {}))

    placement = placed(book, TWO)

    assert (placement.node, asked) == ("n2", [])
    assert placement.enforced is not None
    assert "dry" not in [column.rule.key for column in placement.enforced.answer.filters]
    [(assignment, rule_set)] = placement.shadows
    judged = judge_shadow(placement, assignment, rule_set, lambda: None)
    [dry] = [column for column in judged.answer.filters if column.rule.key == "dry"]
    assert ([status.reason for status in dry.statuses][:1], judged.answer.feasible, asked) == (
        ["never"],
        ["n2"],
        ["first"],
    )


def test_rules_in_mode_shadow_arent_asked_where_the_rule_set_steps_back() -> None:
    rules = {
        "filters": [{"name": "dry", "expression": "false", "mode": "shadow"}],
        "failures": {"apiServer": "pass"},
    }
    placement = placed(book_of(rules), TWO, conditions=Conditions(snapshot_age_seconds=0.0, api_server_reachable=False))
    assert (placement.node, placement.shadows) == ("n1", [])


def test_a_shadow_is_judged_on_the_cycles_snapshot_nodes_and_moment() -> None:
    rules = {
        "filters": [
            {
                "name": "second",
                "expression": "(node.metadata.name + pod.metadata.name).startsWith('n2')",
                "reason": "not the second",
            },
            {"name": "then", "expression": f"now == timestamp('{NOW.isoformat()}')", "reason": "another time"},
        ]
    }
    placement = placed(book_of(rules, mode="shadow"), TWO, rows=TWO.table.rows(["n2"]))
    turns: list[int] = []

    [(assignment, rule_set)] = placement.shadows
    judged = judge_shadow(placement, assignment, rule_set, lambda: turns.append(1))

    assert judged.answer.names == ["n2"]
    assert judged.answer.feasible == ["n2"]
    assert len(turns) > len(rule_set.filters)  # before each rule, and before each evaluation


def test_a_shadow_that_has_no_more_time_ends_where_it_gives_way() -> None:
    class OverError(Exception):
        pass

    def give_way() -> None:
        raise OverError

    placement = placed(book_of({"filters": [{"builtin": "PodFitsResources"}]}, mode="shadow"), TWO)
    with pytest.raises(OverError):
        judge_shadow(placement, *placement.shadows[0], give_way)


def test_a_rule_set_that_steps_back_leaves_the_pod_to_the_default_set_and_its_shadows_are_noted() -> None:
    rule_sets = [make_rule_set("real", failures={"redis": "pass"}), make_rule_set("dry")]
    assignments = [
        make_assignment("dry", "dry", order=1, mode="shadow"),
        make_assignment("real", "real", order=2),
    ]
    book = Profile(CompiledRevision(Revision(number=1, rule_sets=rule_sets, assignments=assignments)))
    away = Conditions(snapshot_age_seconds=0.0, redis_reachable=False)

    placement = placed(book, TWO, conditions=away)

    assert placement.enforced is not None
    assert placement.enforced.rule_set is default_profile()
    assert [assignment.name for assignment, _ in placement.shadows] == ["dry"]


def test_only_the_nodes_of_the_label_are_used_and_the_message_says_so() -> None:
    placement = placed(book_of(), TWO, make_pod(requests={"cpu": "2"}), rows=TWO.table.rows(["n2"]))

    assert placement.node == ""
    assert message_of(placement) == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) are reserved for another scheduler."
    )


def test_what_a_node_lacks_of_several_resources_is_counted_each_as_kube_scheduler_does() -> None:
    placement = placed(book_of(), TWO, make_pod(requests={"cpu": "2", "memory": "100Gi"}))

    assert message_of(placement) == "0/2 nodes are available: 1 Insufficient cpu, 2 Insufficient memory."


def test_a_reason_of_an_operators_with_a_comma_is_one_reason() -> None:
    rules = {"filters": [{"name": "none", "expression": "false", "reason": "not here, not there"}]}

    assert message_of(placed(book_of(rules), TWO)) == "0/2 nodes are available: 2 not here, not there."


def test_a_cluster_without_nodes_is_named_as_such() -> None:
    assert message_of(placed(book_of(), nodes())) == "0/0 nodes are available: no nodes available to schedule pods."


def test_while_something_is_away_the_rule_sets_own_choice_counts() -> None:
    away = Conditions(snapshot_age_seconds=0.0, database_reachable=False)
    refuse = {"filters": [{"builtin": "HostName"}], "failures": {"database": "refuse"}}
    step_back = {
        "filters": [{"name": "none", "expression": "false", "reason": "never"}],
        "failures": {"database": "pass"},
    }

    refused = placed(book_of(refuse), TWO, conditions=away)
    passed = placed(book_of(step_back), TWO, make_pod(requests={"cpu": "2"}), conditions=away)

    assert (refused.node, refused.enforced) == ("", None)
    assert message_of(refused) == "0/2 nodes are available: 2 Berth can't reach its database."
    assert requeued_by(refused) == {NODE, NAMESPACE, "Berth can't reach its database"}
    assert opens_at(refused) is None
    assert passed.node == "n1"


def test_a_pod_without_room_is_helped_by_nodes_and_by_pods_that_go() -> None:
    placement = placed(book_of(), TWO, make_pod(requests={"cpu": "9"}))

    assert requeued_by(placement) == {NODE, NAMESPACE, POD_GONE}
    assert opens_at(placement) is None


def test_a_pod_that_wants_to_be_near_others_is_helped_by_pods_that_come() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    found = requeued_by(placed(book_of(), TWO, make_pod(affinity=affinity)))
    assert found == {NODE, NODE_GONE, NAMESPACE, *POD_CHANGES}


USING = make_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])
CLAIM: dict[str, Any] = {"metadata": {"name": "c", "namespace": "default"}, "spec": {"volumeName": "v"}}
_ELSEWHERE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["elsewhere"]}]}
VOLUME = {
    "metadata": {"name": "v"},
    "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [_ELSEWHERE]}}},
}
BOUND = CLAIM | {"metadata": CLAIM["metadata"] | {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}


def test_a_pod_whose_claims_are_not_seen_yet_is_helped_by_claims_volumes_and_classes() -> None:
    assert requeued_by(placed(book_of(), TWO, USING)) >= {
        "persistentvolumeclaims",
        "persistentvolumes",
        "storageclasses",
    }


@pytest.mark.parametrize("claims", [[], [CLAIM]], ids=["missing", "unbound"])
def test_a_pod_whose_claim_is_not_bound_is_helped_by_claims_and_not_by_their_volumes(claims: list[Any]) -> None:
    objects = ClusterObjects.from_json({"persistentVolumeClaims": claims, "persistentVolumes": [VOLUME]})

    found = requeued_by(placed(book_of(), TWO.changed({}, objects=objects), USING))

    assert found == {NODE, NAMESPACE, "persistentvolumeclaims"}


def test_a_pod_whose_volume_no_node_reaches_is_helped_by_volumes() -> None:
    objects = ClusterObjects.from_json({"persistentVolumeClaims": [BOUND], "persistentVolumes": [VOLUME]})

    found = requeued_by(placed(book_of(), TWO.changed({}, objects=objects), USING))

    assert found >= {NODE, "persistentvolumeclaims", "persistentvolumes"}


def test_an_expression_over_usage_is_helped_by_pods_and_one_over_time_by_a_moment() -> None:
    usage = {"filters": [{"name": "room", "expression": "usage.free.cpu > 99999", "reason": "full"}]}
    hours = {"filters": [{"name": "hours", "expression": "now.getHours() >= 14", "reason": "too early"}]}

    assert requeued_by(placed(book_of(usage), TWO)) == {NODE, NAMESPACE, *POD_CHANGES}
    at_noon = placed(book_of(hours), TWO)
    assert requeued_by(at_noon) == {NODE, NAMESPACE}
    assert opens_at(at_noon) is not None
    assert NOW < opens_at(at_noon) <= datetime(2026, 1, 1, 14, tzinfo=UTC)


def test_a_pod_whose_rules_were_not_asked_in_time_is_helped_by_what_these_rules_go_by() -> None:
    refuse, step_back = (
        {"filters": [{"builtin": "HostName"}], "failures": {"deadline": choice}} for choice in ("refuse", "pass")
    )
    full = make_pod(requests={"cpu": "9"}, ports=[{"containerPort": 80, "hostPort": 80}])

    in_no_time = placed(book_of(refuse), TWO, full, give_way=raise_deadline)

    assert in_no_time.node == ""
    assert requeued_by(in_no_time) >= {NODE, NODE_GONE, NAMESPACE, *POD_CHANGES}
    assert placed(book_of(step_back), TWO, full, give_way=raise_deadline).node


def raise_deadline() -> None:
    raise DeadlineError


def test_warming_asks_every_rule_once() -> None:
    book = book_of({"filters": [{"name": "room", "expression": "usage.free.cpu > 1", "reason": "full"}]})

    book.warm(Pod.from_json({}), TWO, now=NOW)

    assert placed(book, TWO).node == "n1"


def test_assignments_of_one_rule_set_place_by_their_own_params_and_canaries_are_noted() -> None:
    rules = {
        "filters": [{"name": "one", "expression": "node.metadata.name == params.node", "reason": "another one"}],
        "params": {"node": "n0"},
    }
    assignments = [make_assignment("canary", "web", order=1, mode="canary", percent=1)]
    assignments += [
        make_assignment(name, "web", match={"namespaces": [name]}, params={"node": name}) for name in ("n1", "n2")
    ]
    revision = Revision(number=1, rule_sets=[make_rule_set("web", **rules)], assignments=assignments)
    book = Profile(CompiledRevision(revision))
    for name in ("n1", "n2", "n1", "n2"):
        placement = placed(book, TWO, make_pod(namespace=name))
        assert placement.node == name
        assert [(assignment.name, drawn > 0) for assignment, drawn in placement.draws] == [("canary", True)]
        entry = cycle_entry(placement, 0.1, {})
        assert entry._of_assignments()["params"] == {"node": name}
    assert book.of(book.revision.rule_sets["web"]).params == {"node": "n0"}
