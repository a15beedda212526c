"""Filters about the node itself: its name, state, taints, labels and room."""

from typing import Any

import pytest

from policies.engine.status import Code, Status
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import (
    JSON,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    on,
    refused,
    snapshot_of,
    verdicts,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
CORDON = "node.kubernetes.io/unschedulable"


class TestPodFitsHost:
    def test_any_node_will_do_when_none_is_named(self) -> None:
        assert not refused("PodFitsHost", make_pod(), snapshot_of([make_node("n1"), make_node("n2")]))

    def test_only_the_node_that_is_named_will_do(self) -> None:
        said = verdicts("NodeName", make_pod(nodeName="n1"), snapshot_of([make_node("n1"), make_node("n2")]))
        assert said == {
            "n1": None,
            "n2": Status(UNRESOLVABLE, "node(s) didn't match the requested node name"),
        }

    def test_a_node_that_is_not_there_refuses_all(self) -> None:
        assert refused("HostName", make_pod(nodeName="n9"), snapshot_of([make_node("n1")])) == {"n1"}


class TestCheckNodeUnschedulable:
    def test_a_cordoned_node_is_refused(self) -> None:
        said = verdicts("CheckNodeUnschedulable", make_pod(), snapshot_of([make_node("n1", unschedulable=True)]))
        assert said["n1"] == Status(UNRESOLVABLE, "node(s) were unschedulable")

    @pytest.mark.parametrize(
        ("toleration", "passes"),
        [
            ({"key": CORDON, "operator": "Exists", "effect": "NoSchedule"}, True),
            ({"operator": "Exists"}, True),
            ({"key": CORDON}, True),
            ({"key": CORDON, "value": "true"}, False),
            ({"key": CORDON, "operator": "Exists", "effect": "NoExecute"}, False),
        ],
    )
    def test_a_pod_that_tolerates_the_cordon_passes(self, toleration: JSON, passes: bool) -> None:
        snapshot = snapshot_of([make_node("n1", unschedulable=True)])
        found = refused("NodeUnschedulable", make_pod(tolerations=[toleration]), snapshot)
        assert found == (set() if passes else {"n1"})


class TestPodToleratesNodeTaints:
    @pytest.mark.parametrize(
        ("toleration", "passes"),
        [
            ({}, False),
            ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
            ({"key": "k", "operator": "Equal", "value": "v"}, True),
            ({"key": "k", "operator": "Exists"}, True),
            ({"key": "k", "value": "other"}, False),
            ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
            ({"operator": "Exists"}, True),
            ({"value": "v"}, True),
            ({"key": "k", "operator": "Lt", "value": "v"}, False),
            ({"key": "k", "operator": "Gt", "value": "v"}, False),
            ({"key": "k", "operator": "Foo", "value": "v"}, False),
        ],
    )
    def test_a_toleration_tolerates_as_in_kubernetes(self, toleration: JSON, passes: bool) -> None:
        snapshot = snapshot_of([make_node("n1", taints=[{"key": "k", "value": "v", "effect": "NoSchedule"}])])
        said = verdicts("TaintToleration", make_pod(tolerations=[toleration]), snapshot)
        assert said["n1"] == (None if passes else Status(UNRESOLVABLE, "node(s) had untolerated taint(s)"))

    @pytest.mark.parametrize(
        ("effect", "passes"), [("NoSchedule", False), ("NoExecute", False), ("PreferNoSchedule", True)]
    )
    def test_only_effects_that_keep_pods_off_count(self, effect: str, passes: bool) -> None:
        snapshot = snapshot_of([make_node("n1", taints=[{"key": "k", "effect": effect}])])
        assert refused("PodToleratesNodeTaints", make_pod(), snapshot) == (set() if passes else {"n1"})

    def test_all_taints_must_be_tolerated(self) -> None:
        taints = [{"key": key, "effect": "NoSchedule"} for key in ("a", "b")]
        snapshot = snapshot_of([make_node("n1", taints=taints), make_node("n2", taints=taints[:1])])
        assert refused("PodToleratesNodeTaints", make_pod(tolerations=[{"key": "a"}]), snapshot) == {"n1"}


class TestConditions:
    def with_conditions(self, *conditions: tuple[str, str], **spec: Any) -> JSON:
        node = make_node("n1", **spec)
        node["status"]["conditions"] = [{"type": kind, "status": status} for kind, status in conditions]
        return node

    @pytest.mark.parametrize(
        ("rule", "condition", "reason"),
        [
            ("CheckNodeDiskPressure", "DiskPressure", "node(s) had disk pressure"),
            ("CheckNodePIDPressure", "PIDPressure", "node(s) had pid pressure"),
            ("CheckNodeMemoryPressure", "MemoryPressure", "node(s) had memory pressure"),
        ],
    )
    @pytest.mark.parametrize(("status", "passes"), [("True", False), ("False", True), ("Unknown", True)])
    def test_pressure_refuses_only_when_it_is_true(
        self, rule: str, condition: str, reason: str, status: str, passes: bool
    ) -> None:
        said = verdicts(rule, make_pod(), snapshot_of([self.with_conditions((condition, status))]))
        assert said["n1"] == (None if passes else Status(UNRESOLVABLE, reason))

    @pytest.mark.parametrize(
        "pod",
        [
            make_pod(requests={"cpu": "1m"}),
            make_pod(containers=[{"name": "c", "resources": {"limits": {"memory": "1"}}}]),
            make_pod(initContainers=[{"name": "i", "resources": {"requests": {"memory": "1"}}}]),
            make_pod(resources={"requests": {"cpu": "1"}}),
            make_pod() | {"status": {"qosClass": "Burstable"}},
        ],
        ids=["request", "limit", "init container", "pod level", "its status says so"],
    )
    def test_memory_pressure_spares_pods_that_are_not_best_effort(self, pod: JSON) -> None:
        snapshot = snapshot_of([self.with_conditions(("MemoryPressure", "True"))])
        assert not refused("CheckNodeMemoryPressure", pod, snapshot)

    def test_explicit_zero_requests_are_best_effort(self) -> None:
        snapshot = snapshot_of([self.with_conditions(("MemoryPressure", "True"))])
        assert refused("CheckNodeMemoryPressure", make_pod(requests={"cpu": "0"}), snapshot) == {"n1"}

    @pytest.mark.parametrize(
        ("conditions", "spec", "reason"),
        [
            ([], {}, ""),
            ([("Ready", "True"), ("NetworkUnavailable", "False")], {}, ""),
            ([("Ready", "Unknown")], {}, "node(s) were not ready"),
            ([("NetworkUnavailable", "Unknown")], {}, "node(s) had unavailable network"),
            (
                [("NetworkUnavailable", "True"), ("Ready", "False")],
                {"unschedulable": True},
                "node(s) had unavailable network, node(s) were not ready, node(s) were unschedulable",
            ),
        ],
    )
    def test_node_condition_names_all_that_is_wrong(
        self, conditions: list[tuple[str, str]], spec: JSON, reason: str
    ) -> None:
        said = verdicts("CheckNodeCondition", make_pod(), snapshot_of([self.with_conditions(*conditions, **spec)]))
        assert said["n1"] == (Status(UNRESOLVABLE, reason) if reason else None)


class TestMatchNodeSelector:
    NODES = (
        make_node("n1", labels={"disk": "ssd", "zone": "a"}),
        make_node("n2", labels={"disk": "hdd", "zone": "a"}),
        make_node("n3", labels={"zone": "b", "size": "8"}),
    )

    def refused(self, affinity: JSON | None = None, **spec: Any) -> set[str]:
        if affinity is not None:
            spec["affinity"] = {"nodeAffinity": {REQUIRED: affinity}}
        return refused("MatchNodeSelector", make_pod(**spec), snapshot_of(list(self.NODES)))

    def terms(self, *terms: JSON) -> JSON:
        return {"nodeSelectorTerms": list(terms)}

    def expressions(self, key: str, operator: str, *values: str) -> JSON:
        return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}

    def test_every_node_will_do_when_nothing_is_asked(self) -> None:
        assert self.refused() == set()
        assert self.refused(nodeSelector={}) == set()

    def test_node_selector_asks_for_all_labels(self) -> None:
        assert self.refused(nodeSelector={"disk": "ssd", "zone": "a"}) == {"n2", "n3"}

    def test_the_reason_is_kube_schedulers(self) -> None:
        said = verdicts("NodeAffinity", make_pod(nodeSelector={"disk": "ssd"}), snapshot_of(list(self.NODES)))
        assert said["n2"] == Status(UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector")

    def test_selector_and_affinity_must_both_hold(self) -> None:
        affinity = self.terms(self.expressions("disk", "Exists"))
        assert self.refused(affinity, nodeSelector={"disk": "hdd"}) == {"n1", "n3"}

    def test_any_term_will_do(self) -> None:
        affinity = self.terms(self.expressions("disk", "In", "hdd"), self.expressions("size", "Gt", "7"))
        assert self.refused(affinity) == {"n1"}

    @pytest.mark.parametrize(
        ("operator", "values", "expected"),
        [
            ("In", ["ssd", "nvme"], {"n2", "n3"}),
            ("NotIn", ["ssd"], {"n1"}),
            ("Exists", [], {"n3"}),
            ("DoesNotExist", [], {"n1", "n2"}),
        ],
    )
    def test_operators_work_on_many_nodes_at_once(self, operator: str, values: list[str], expected: set[str]) -> None:
        assert self.refused(self.terms(self.expressions("disk", operator, *values))) == expected

    @pytest.mark.parametrize("affinity", [{}, {"nodeSelectorTerms": []}, {"nodeSelectorTerms": [{}]}])
    def test_affinity_without_a_term_matches_no_node(self, affinity: JSON) -> None:
        assert self.refused(affinity) == {"n1", "n2", "n3"}

    def test_a_term_that_can_not_be_parsed_matches_no_node(self) -> None:
        assert self.refused(self.terms(self.expressions("disk", "NotIn", "not a value"))) == {"n1", "n2", "n3"}

    def test_fields_name_one_node(self) -> None:
        named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
        assert self.refused(self.terms(named)) == {"n1", "n3"}

    @pytest.mark.parametrize(
        ("key", "operator", "expected"),
        [
            ("metadata.name", "NotIn", {"n2"}),
            ("spec.other", "In", {"n1", "n2", "n3"}),
            ("spec.other", "NotIn", set()),
            ("metadata.name", "Exists", {"n1", "n2", "n3"}),
        ],
    )
    def test_other_fields_are_empty(self, key: str, operator: str, expected: set[str]) -> None:
        field = {"matchFields": [{"key": key, "operator": operator, "values": ["n2"]}]}
        assert self.refused(self.terms(field)) == expected

    def test_terms_that_exclude_each_other_say_so(self) -> None:
        both = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("n1", "n2")]}
        pod = make_pod(affinity={"nodeAffinity": {REQUIRED: self.terms(both)}})
        said = verdicts("MatchNodeSelector", pod, snapshot_of(list(self.NODES)))
        assert set(said.values()) == {Status(UNRESOLVABLE, "pod affinity terms conflict")}

    def test_added_affinity_is_asked_first(self) -> None:
        added = {REQUIRED: self.terms(self.expressions("zone", "In", "a"))}
        snapshot = snapshot_of(list(self.NODES))
        said = verdicts("NodeAffinity", make_pod(nodeSelector={"disk": "ssd"}), snapshot, addedAffinity=added)
        assert said["n1"] is None
        assert said["n2"] == Status(UNRESOLVABLE, "node(s) didn't match Pod's node affinity/selector")
        assert said["n3"] == Status(UNRESOLVABLE, "node(s) didn't match scheduler-enforced node affinity")


class TestCheckNodeLabelPresence:
    NODES = (make_node("n1", labels={"a": "", "b": ""}), make_node("n2", labels={"a": ""}), make_node("n3"))

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ({"labels": ["a", "b"]}, {"n2", "n3"}),
            ({"labels": ["a", "b"], "presence": False}, {"n1", "n2"}),
            ({"presentLabels": ["a"], "absentLabels": ["b"]}, {"n1", "n3"}),
            ({}, set()),
        ],
    )
    def test_labels_must_be_there_or_not(self, arguments: JSON, expected: set[str]) -> None:
        assert refused("CheckNodeLabelPresence", make_pod(), snapshot_of(list(self.NODES)), **arguments) == expected


class TestServiceAffinity:
    NODES = (make_node("n1", labels={"rack": "r1"}), make_node("n2", labels={"rack": "r2"}), make_node("n3"))
    POD = make_pod(labels={"app": "web"})
    SERVICES = ({"metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"app": "web"}}},)

    def test_the_pods_of_a_service_stay_with_the_first(self) -> None:
        snapshot = snapshot_of(list(self.NODES), [on("n2", self.POD, name="e")], services=list(self.SERVICES))
        said = verdicts("ServiceAffinity", self.POD, snapshot, labels=["rack"])
        assert said["n2"] is None
        assert said["n1"] == said["n3"] == Status(UNSCHEDULABLE, "node(s) didn't match service affinity")

    def test_the_node_selector_comes_first(self) -> None:
        pod = make_pod(labels={"app": "web"}, nodeSelector={"rack": "r1"})
        snapshot = snapshot_of(list(self.NODES), [on("n2", self.POD, name="e")], services=list(self.SERVICES))
        assert refused("ServiceAffinity", pod, snapshot, labels=["rack"]) == {"n2", "n3"}

    def test_without_a_service_nothing_is_asked(self) -> None:
        snapshot = snapshot_of(list(self.NODES), [on("n2", self.POD, name="e")])
        assert not refused("ServiceAffinity", self.POD, snapshot, labels=["rack"])


class TestPodFitsResources:
    def lacking(self, pod: JSON, node: JSON, *pods: JSON, **arguments: Any) -> Status | None:
        there = [on("n1", other, name=f"e{i}") for i, other in enumerate(pods)]
        return verdicts("PodFitsResources", pod, snapshot_of([node], there), **arguments)["n1"]

    def test_what_is_free_may_be_used_to_the_last(self) -> None:
        node, half = make_node("n1", cpu="2", memory="2Gi"), make_pod(requests={"cpu": "1", "memory": "1Gi"})
        assert self.lacking(half, node, half) is None

    def test_what_others_use_can_be_helped_by_preemption(self) -> None:
        pod = make_pod(requests={"cpu": "1500m"})
        assert self.lacking(pod, make_node("n1", cpu="2"), pod) == Status(UNSCHEDULABLE, "Insufficient cpu")

    def test_more_than_there_is_at_all_can_not(self) -> None:
        pod = make_pod(requests={"cpu": "3"})
        assert self.lacking(pod, make_node("n1", cpu="2")) == Status(UNRESOLVABLE, "Insufficient cpu")

    def test_all_that_is_lacking_is_named_and_one_never_makes_it_unresolvable(self) -> None:
        pod = make_pod(requests={"cpu": "3", "memory": "1Gi", "example.com/gpu": "1"})
        other = make_pod(requests={"memory": "8Gi"})
        assert self.lacking(pod, make_node("n1", cpu="4", pods="1"), other) == Status(
            UNRESOLVABLE, "Too many pods, Insufficient memory, Insufficient example.com/gpu"
        )

    def test_a_node_that_names_no_number_of_pods_takes_none(self) -> None:
        node = make_node("n1")
        del node["status"]["allocatable"]["pods"]
        assert self.lacking(make_pod(), node) == Status(UNSCHEDULABLE, "Too many pods")

    def test_a_request_of_zero_is_not_looked_at(self) -> None:
        pod = make_pod(requests={"cpu": "0", "example.com/gpu": "0"})
        assert self.lacking(pod, make_node("n1", cpu="0")) is None

    def test_init_containers_run_one_after_the_other_and_sidecars_beside_them(self) -> None:
        def container(cpu: str, **others: Any) -> JSON:
            return {"name": "c", "resources": {"requests": {"cpu": cpu}}, **others}

        pod = make_pod(
            containers=[container("1")],
            initContainers=[container("2"), container("500m", restartPolicy="Always"), container("2")],
        )
        assert self.lacking(pod, make_node("n1", cpu="2500m")) is None
        assert self.lacking(pod, make_node("n1", cpu="2499m")) == Status(UNRESOLVABLE, "Insufficient cpu")

    def test_pod_level_requests_override_and_overhead_is_added(self) -> None:
        pod = make_pod(requests={"cpu": "4"}, resources={"requests": {"cpu": "1"}}, overhead={"cpu": "100m"})
        assert self.lacking(pod, make_node("n1", cpu="1100m")) is None
        assert self.lacking(pod, make_node("n1", cpu="1")) == Status(UNRESOLVABLE, "Insufficient cpu")

    def test_fractions_of_several_containers_are_added_before_rounding(self) -> None:
        containers = [{"name": f"c{i}", "resources": {"requests": {"memory": "500m"}}} for i in range(2)]
        assert self.lacking(make_pod(containers=containers), make_node("n1", memory="1")) is None

    @pytest.mark.parametrize(
        ("name", "counts"),
        [
            ("example.com/gpu", True),
            ("hugepages-2Mi", True),
            ("attachable-volumes-aws-ebs", True),
            ("node.kubernetes.io/thing", True),
            ("ephemeral-storage", True),
            ("unknown", False),
            ("requests.example.com/gpu", False),
            ("example.com/not/a/name", False),
        ],
    )
    def test_only_resources_that_the_scheduler_knows_count(self, name: str, counts: bool) -> None:
        status = self.lacking(make_pod(requests={name: "1"}), make_node("n1"))
        assert status == (Status(UNRESOLVABLE, f"Insufficient {name}") if counts else None)

    @pytest.mark.parametrize(
        ("arguments", "passes"),
        [
            ({"ignoredResources": ["example.com/gpu"]}, True),
            ({"ignoredResourceGroups": ["example.com"]}, True),
            ({"ignoredResources": ["example.com/other"]}, False),
            ({"ignoredResources": ["cpu"]}, False),
        ],
    )
    def test_extended_resources_may_be_ignored(self, arguments: JSON, passes: bool) -> None:
        status = self.lacking(make_pod(requests={"example.com/gpu": "1"}), make_node("n1"), **arguments)
        assert (status is None) is passes

    def test_pods_that_have_ended_take_no_room(self) -> None:
        pod = make_pod(requests={"cpu": "2"})
        ended = pod | {"status": {"phase": "Succeeded"}}
        assert self.lacking(pod, make_node("n1", cpu="2"), ended) is None

    def test_many_nodes_share_their_statuses(self) -> None:
        nodes = [make_node(f"n{i}", cpu="1" if i % 2 else "8") for i in range(64)]
        said = verdicts("PodFitsResources", make_pod(requests={"cpu": "2"}), snapshot_of(nodes))
        assert {said[f"n{i}"] for i in range(1, 64, 2)} == {Status(UNRESOLVABLE, "Insufficient cpu")}
        assert {said[f"n{i}"] for i in range(0, 64, 2)} == {None}


def test_no_reason_names_a_node_a_number_or_a_percent_sign() -> None:
    snapshot = snapshot_of(
        [make_node("node-77", cpu="1", unschedulable=True, taints=[{"key": "k", "effect": "NoSchedule"}])]
    )
    pod = make_pod(requests={"cpu": "99"}, nodeSelector={"a": "b"}, nodeName="other")
    for name in ("PodFitsResources", "PodFitsHost", "MatchNodeSelector", "PodToleratesNodeTaints"):
        status = verdicts(name, pod, snapshot)["node-77"]
        assert status is not None
        assert status.code is not Code.ERROR
        assert "77" not in status.reason
        assert "%" not in status.reason
