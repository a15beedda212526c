"""What nodes score, rule by rule."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.filters.registry import BUILTIN_FILTERS, FILTER_ALIASES
from policies.engine.scores.registry import BUILTIN_SCORES, SCORE_ALIASES
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import JSON, REGION, ZONE, on, points, snapshot_of

PREFERRED, REQUIRED = (
    "preferredDuringSchedulingIgnoredDuringExecution",
    "requiredDuringSchedulingIgnoredDuringExecution",
)
MIB = 1024 * 1024
ZONED = [make_node(name, labels={ZONE: zone}) for name, zone in (("n1", "z1"), ("n2", "z1"), ("n3", "z2"))]
WEB = make_pod("web", labels={"app": "web"})
SELECTOR = {"matchLabels": {"app": "web"}}
SERVICE = {"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}


def there(*nodes: str, pod: JSON = WEB, **metadata: Any) -> list[JSON]:
    return [on(node, pod, name=f"e{i}", uid=f"e{i}", **metadata) for i, node in enumerate(nodes)]


class TestResources:
    NODE = make_node("n1", cpu="4", memory="16Gi")

    def score(self, name: str, pod: JSON, *pods: JSON, node: JSON | None = None, **arguments: Any) -> int | None:
        found = points(
            name,
            pod,
            snapshot_of([node or self.NODE], there(*["n1"] * len(pods), pod=pods[0]) if pods else []),
            **arguments,
        )
        return None if found is None else found["n1"]

    def test_weights_of_resources_count_in_the_mean(self) -> None:
        pod = make_pod(requests={"cpu": "2", "memory": "4Gi"})
        assert self.score("LeastRequestedPriority", pod) == (50 + 75) // 2
        weighed = [{"name": "cpu", "weight": 3}, {"name": "memory"}]
        assert self.score("LeastRequestedPriority", pod, resources=weighed) == (150 + 75) // 4

    def test_what_exceeds_the_node_is_all_taken(self) -> None:
        pod = make_pod(requests={"cpu": "8", "memory": "8Gi"})
        assert self.score("LeastRequestedPriority", pod) == 25
        assert self.score("MostRequestedPriority", pod) == 75

    def test_an_explicit_zero_request_stays_zero(self) -> None:
        assert self.score("LeastRequestedPriority", make_pod(requests={"cpu": "0", "memory": "0"})) == 100

    def test_an_extended_resource_that_is_not_asked_for_does_not_count(self) -> None:
        node = make_node("n1", cpu="4", memory="16Gi")
        node["status"]["allocatable"]["example.com/gpu"] = "8"
        only = [{"name": "example.com/gpu"}]
        assert self.score("LeastRequestedPriority", make_pod(), node=node, resources=only) == 0
        asking = make_pod(requests={"example.com/gpu": "2"})
        assert self.score("LeastRequestedPriority", asking, node=node, resources=only) == 75

    @pytest.mark.parametrize("name", ["pods", "unknown"])
    def test_a_resource_that_the_scheduler_does_not_count_gives_nothing(self, name: str) -> None:
        assert self.score("LeastRequestedPriority", make_pod(), resources=[{"name": name}]) == 0

    def test_existing_pods_count_what_their_containers_have_while_they_are_resized(self) -> None:
        resizing = make_pod(requests={"cpu": "1", "memory": "0"}) | {
            "status": {
                "containerStatuses": [
                    {"name": "main", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "1500m"}}
                ]
            }
        }
        pod = make_pod(requests={"cpu": "0", "memory": "0"})
        assert self.score("MostRequestedPriority", pod, resizing, resources=[{"name": "cpu"}]) == 50
        resizing["status"]["conditions"] = [{"type": "PodResizePending", "reason": "Infeasible"}]
        resizing["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "4"
        assert self.score("MostRequestedPriority", pod, resizing, resources=[{"name": "cpu"}]) == 50
        resizing["status"]["conditions"][0]["reason"] = "Deferred"
        assert self.score("MostRequestedPriority", pod, resizing, resources=[{"name": "cpu"}]) == 100

    @pytest.mark.parametrize(
        ("shape", "cpu", "expected"),
        [
            ([(0, 0), (100, 10)], "1", 25),
            ([(0, 10), (100, 0)], "1", 75),
            ([(0, 10), (100, 0)], "1010m", 75),
            ([(40, 2), (80, 10)], "1", 20),
            ([(40, 2), (80, 10)], "2400m", 60),
            ([(40, 2), (80, 10)], "4", 100),
            ([(50, 5)], "1", 50),
        ],
    )
    def test_a_shape_maps_what_is_taken(self, shape: list[tuple[int, int]], cpu: str, expected: int) -> None:
        lines = [{"utilization": at, "score": score} for at, score in shape]
        pod = make_pod(requests={"cpu": cpu})
        found = self.score("RequestedToCapacityRatio", pod, shape=lines, resources=[{"name": "cpu"}])
        assert found == expected

    def test_a_resource_whose_shape_gives_nothing_has_no_weight(self) -> None:
        shape = [{"utilization": 50, "score": 0}, {"utilization": 100, "score": 10}]
        pod = make_pod(requests={"cpu": "3", "memory": "1Gi"})
        assert self.score("RequestedToCapacityRatioPriority", pod, shape=shape) == 50

    def test_without_a_shape_free_nodes_are_best(self) -> None:
        pod = make_pod(requests={"cpu": "1", "memory": "4Gi"})
        assert self.score("RequestedToCapacityRatioPriority", pod) == 75

    @pytest.mark.parametrize(
        ("strategy", "expected"),
        [
            ({}, 62),
            ({"type": "MostAllocated"}, 37),
            ({"type": "LeastAllocated", "resources": [{"name": "cpu"}]}, 50),
            (
                {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {
                        "shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
                    },
                },
                38,
            ),
        ],
    )
    def test_the_plugins_strategy_names_one_of_the_scores(self, strategy: JSON, expected: int) -> None:
        pod = make_pod(requests={"cpu": "2", "memory": "4Gi"})
        assert self.score("NodeResourcesFit", pod, scoringStrategy=strategy) == expected

    def test_balance_of_three_resources_is_their_standard_deviation(self) -> None:
        node = make_node("n1", cpu="4", memory="4Gi")
        node["status"]["allocatable"]["ephemeral-storage"] = "4Gi"
        pod = make_pod(requests={"cpu": "2", "memory": "1Gi", "ephemeral-storage": "0"})
        three = [{"name": "cpu"}, {"name": "memory"}, {"name": "ephemeral-storage"}]
        # f = 1/2, 1/4, 0: deviation sqrt(1/24) = 0.204; s = 79; 50 + (50 + 79 - 100) / 2
        assert self.score("BalancedResourceAllocation", pod, node=node, resources=three) == 64

    @pytest.mark.filterwarnings("error")
    def test_a_balance_below_what_64_bits_hold_is_what_go_makes_of_it(self) -> None:
        node = make_node("n1", cpu="4", memory="4Gi")
        node["status"]["allocatable"]["example.com/gpu"] = "1"
        asked = [{"example.com/gpu": "9223372036854775807"}, {"example.com/gpu": "7Ei"}]
        pod = make_pod(containers=[{"name": f"c{n}", "resources": {"requests": each}} for n, each in enumerate(asked)])
        two = [{"name": "cpu"}, {"name": "example.com/gpu"}]
        # s = -2^63 with the Pod and 100 without it: the difference overflows too. kube-scheduler v1.36.3 gave this number.
        assert self.score("BalancedResourceAllocation", pod, node=node, resources=two) == 4611686018427387929

    @pytest.mark.parametrize(
        ("name", "arguments"),
        [
            ("LeastRequestedPriority", {"resources": [{"name": "cpu", "weight": 0}]}),
            ("LeastRequestedPriority", {"resources": [{"name": "cpu", "weight": 101}]}),
            ("RequestedToCapacityRatioPriority", {"shape": []}),
            ("RequestedToCapacityRatioPriority", {"shape": [{"utilization": 5, "score": 1}] * 2}),
            ("RequestedToCapacityRatioPriority", {"shape": [{"utilization": 101, "score": 1}]}),
            ("RequestedToCapacityRatioPriority", {"shape": [{"utilization": 1, "score": 11}]}),
            ("NodeResourcesFit", {"scoringStrategy": {"type": "RequestedToCapacityRatio"}}),
            ("NodeResourcesFit", {"scoringStrategy": {"type": "Other"}}),
            ("InterPodAffinityPriority", {"hardPodAffinityWeight": 101}),
            ("NodeLabelPriority", {}),
            ("EqualPriority", {"unknown": 1}),
        ],
    )
    def test_wrong_arguments_of_a_score_are_refused(self, name: str, arguments: JSON) -> None:
        with pytest.raises(msgspec.ValidationError):
            points(name, make_pod(), snapshot_of([self.NODE]), **arguments)


class TestImages:
    def nodes(self, *names: list[str], size: int = 500) -> list[JSON]:
        nodes = [make_node(f"n{i}") for i in range(len(names))]
        for node, found in zip(nodes, names, strict=True):
            node["status"]["images"] = [{"names": found, "sizeBytes": size * MIB}]
        return nodes

    @pytest.mark.parametrize(
        ("wanted", "has", "found"),
        [
            ("web", "web:latest", True),
            ("web:1", "web:1", True),
            ("registry:5000/web", "registry:5000/web:latest", True),
            ("web@sha256:ab", "web@sha256:ab", True),
            ("web", "docker.io/library/web:latest", False),
            ("web:1", "web:2", False),
        ],
    )
    def test_names_without_a_tag_are_latest_and_otherwise_as_written(self, wanted: str, has: str, found: bool) -> None:
        pod = make_pod(containers=[{"name": "c", "image": wanted}])
        scored = points("ImageLocality", pod, snapshot_of(self.nodes([has])))
        assert scored == {"n0": 48 if found else 0}

    def test_init_containers_and_image_volumes_count_too(self) -> None:
        pod = make_pod(
            containers=[{"name": "c", "image": "a"}],
            initContainers=[{"name": "i", "image": "b"}],
            volumes=[{"name": "v", "image": {"reference": "c"}}],
        )
        nodes = self.nodes(["a:latest", "b:latest", "c:latest"])
        assert points("ImageLocalityPriority", pod, snapshot_of(nodes)) == {"n0": 100 * (1500 - 23) // (2000 - 23)}

    def test_all_nodes_count_for_the_spread_not_only_those_scored(self) -> None:
        pod = make_pod(containers=[{"name": "c", "image": "a"}])
        snapshot = snapshot_of(self.nodes(["a:latest"], [], [], []))
        assert points("ImageLocalityPriority", pod, snapshot, among=["n0"]) == {"n0": 100 * (125 - 23) // (1000 - 23)}


class TestNodeAffinity:
    def pod(self, *terms: JSON) -> JSON:
        return make_pod(affinity={"nodeAffinity": {PREFERRED: list(terms)}})

    def term(self, weight: int, **labels: str) -> JSON:
        expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
        return {"weight": weight, "preference": {"matchExpressions": expressions}}

    def test_a_pod_without_preferences_is_not_scored(self) -> None:
        assert points("NodeAffinityPriority", make_pod(), snapshot_of(ZONED)) is None

    def test_an_empty_list_of_preferences_scores_zero(self) -> None:
        assert points("NodeAffinityPriority", self.pod(), snapshot_of(ZONED)) == {"n1": 0, "n2": 0, "n3": 0}

    def test_scores_are_normalised_over_the_nodes_at_hand(self) -> None:
        pod = self.pod(
            {"weight": 8, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z2"]}]}},
            {"weight": 2, "preference": {"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}},
        )
        assert points("NodeAffinity", pod, snapshot_of(ZONED)) == {"n1": 20, "n2": 20, "n3": 100}
        assert points("NodeAffinity", pod, snapshot_of(ZONED), among=["n1", "n2"]) == {"n1": 100, "n2": 100}

    def test_terms_of_no_weight_and_empty_ones_do_not_count(self) -> None:
        pod = self.pod(
            {"weight": 0, "preference": {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}},
            {"weight": 5, "preference": {}},
        )
        assert points("NodeAffinity", pod, snapshot_of(ZONED)) == {"n1": 0, "n2": 0, "n3": 0}

    def test_a_term_that_can_not_be_parsed_leaves_the_pod_unscored(self) -> None:
        pod = self.pod({"weight": 5, "preference": {"matchExpressions": [{"key": "a b", "operator": "Exists"}]}})
        assert points("NodeAffinity", pod, snapshot_of(ZONED)) is None

    def test_added_affinity_counts_for_all_pods(self) -> None:
        added = {
            PREFERRED: [
                {"weight": 1, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["z2"]}]}}
            ]
        }
        found = points("NodeAffinityPriority", make_pod(), snapshot_of(ZONED), addedAffinity=added)
        assert found == {"n1": 0, "n2": 0, "n3": 100}


def test_only_taints_that_prefer_no_pods_count_and_may_be_tolerated() -> None:
    taints = [{"key": "a", "effect": "PreferNoSchedule"}, {"key": "b", "effect": "NoSchedule"}]
    snapshot = snapshot_of([make_node("n1", taints=taints), make_node("n2")])
    assert points("TaintToleration", make_pod(), snapshot) == {"n1": 0, "n2": 100}
    tolerant = make_pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "PreferNoSchedule"}])
    assert points("TaintToleration", tolerant, snapshot) == {"n1": 100, "n2": 100}
    other = make_pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule"}])
    assert points("TaintToleration", other, snapshot) == {"n1": 0, "n2": 100}


def test_thousands_of_taints_are_looked_for_among_thousands_of_tolerations() -> None:
    taints = [{"key": f"k{number}", "value": "v", "effect": "PreferNoSchedule"} for number in range(4_000)]
    snapshot = snapshot_of([make_node("n1", taints=taints), make_node("n2")])
    tolerations = [{"key": f"k{number}", "value": "v"} for number in range(1, 4_001)]
    assert points("TaintToleration", make_pod(tolerations=tolerations), snapshot) == {"n1": 0, "n2": 100}


class TestInterPodAffinity:
    def liking(self, kind: str = "podAffinity", weight: int | None = 10, **term: Any) -> JSON:
        term = {"labelSelector": SELECTOR, "topologyKey": ZONE, **term}
        if weight is None:
            return make_pod("p", affinity={kind: {REQUIRED: [term]}})
        return make_pod("p", affinity={kind: {PREFERRED: [{"weight": weight, "podAffinityTerm": term}]}})

    def test_where_nothing_is_meant_the_pod_is_not_scored(self) -> None:
        assert points("InterPodAffinity", make_pod(), snapshot_of(ZONED, there("n1"))) is None
        assert points("InterPodAffinity", self.liking(), snapshot_of(ZONED)) is None
        assert points("InterPodAffinity", self.liking(topologyKey="gone"), snapshot_of(ZONED, there("n1"))) is None

    def test_equal_sums_give_zero(self) -> None:
        assert points("InterPodAffinity", self.liking(), snapshot_of(ZONED, there("n1", "n3"))) == {
            "n1": 0,
            "n2": 0,
            "n3": 0,
        }

    @pytest.mark.parametrize(
        ("pod", "expected"),
        [
            (("podAffinity", 10), {"n1": 100, "n2": 100, "n3": 0}),
            (("podAntiAffinity", 10), {"n1": 0, "n2": 0, "n3": 100}),
            (("podAffinity", None), {"n1": 100, "n2": 100, "n3": 0}),
            (("podAntiAffinity", None), None),
        ],
        ids=["they like it", "they don't", "they need it", "they can't have it: a filter's matter"],
    )
    def test_the_affinity_of_pods_that_are_there_counts(
        self, pod: tuple[str, int | None], expected: dict[str, int] | None
    ) -> None:
        assert (
            points("InterPodAffinityPriority", WEB, snapshot_of(ZONED, there("n1", pod=self.liking(*pod)))) == expected
        )

    def test_required_affinity_weighs_what_the_argument_says(self) -> None:
        pods = [*there("n1", pod=self.liking(weight=None)), on("n3", self.liking(weight=3), name="f", uid="f")]
        found = [
            points("InterPodAffinity", WEB, snapshot_of(ZONED, pods), hardPodAffinityWeight=w) for w in (0, 1, 3, 6)
        ]
        assert found == [
            {"n1": 0, "n2": 0, "n3": 100},
            {"n1": 0, "n2": 0, "n3": 100},
            {"n1": 0, "n2": 0, "n3": 0},
            {"n1": 100, "n2": 100, "n3": 0},
        ]

    def test_preferences_of_others_may_be_left_out_for_pods_that_have_none(self) -> None:
        snapshot = snapshot_of(ZONED, there("n1", pod=self.liking()))
        assert points("InterPodAffinity", WEB, snapshot, ignorePreferredTermsOfExistingPods=True) is None

    def test_a_pod_of_another_namespace_is_meant_only_when_it_is_named(self) -> None:
        snapshot = snapshot_of(ZONED, there("n1", namespace="other"), {"other": {"env": "test"}})
        assert points("InterPodAffinity", self.liking(), snapshot) is None
        found = points("InterPodAffinity", self.liking(namespaceSelector={"matchLabels": {"env": "test"}}), snapshot)
        assert found == {"n1": 100, "n2": 100, "n3": 0}


class TestEvenPodsSpread:
    def pod(self, *keys: str, **others: Any) -> JSON:
        constraints = [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": SELECTOR}
            | others
            for key in keys
        ]
        return make_pod("p", labels={"app": "web"}, topologySpreadConstraints=constraints)

    def test_without_constraints_the_pod_is_not_scored(self) -> None:
        assert points("PodTopologySpread", WEB, snapshot_of(ZONED, there("n1"))) is None
        assert (
            points("PodTopologySpread", self.pod(ZONE, whenUnsatisfiable="DoNotSchedule"), snapshot_of(ZONED)) is None
        )

    def test_fewer_pods_in_the_domain_are_better(self) -> None:
        found = points("PodTopologySpread", self.pod(ZONE), snapshot_of(ZONED, there("n1", "n2", "n3")))
        # 2 x ln 4 = 2.77 -> 3; 1 x ln 4 = 1.39 -> 1
        assert found == {"n1": 100 * (3 + 1 - 3) // 3, "n2": 33, "n3": 100}

    def test_no_pods_at_all_is_as_good_as_it_gets(self) -> None:
        assert points("PodTopologySpread", self.pod(ZONE), snapshot_of(ZONED)) == {"n1": 100, "n2": 100, "n3": 100}

    def test_a_node_without_the_key_gets_nothing(self) -> None:
        found = points("PodTopologySpread", self.pod(ZONE), snapshot_of([*ZONED, make_node("n4")], there("n1")))
        assert found == {"n1": 0, "n2": 0, "n3": 100, "n4": 0}

    def test_by_default_an_empty_zone_and_none_are_one_domain(self) -> None:
        nodes = [make_node("n1", labels={ZONE: ""}), make_node("n2"), make_node("n3", labels={ZONE: "z"})]
        found = points("EvenPodsSpreadPriority", WEB, snapshot_of(nodes, there("n2"), services=[SERVICE]))
        # hostname: 2, 1 x ln 5 + 2, 2; zone: 1 x ln 4 + 4, none, 4: 7, 4, 6
        assert found == {"n1": 100 * 4 // 7, "n2": 100, "n3": 100 * 5 // 7}

    def test_where_no_node_has_the_keys_all_get_nothing(self) -> None:
        assert points("PodTopologySpread", self.pod("rack"), snapshot_of(ZONED)) == {"n1": 0, "n2": 0, "n3": 0}

    def test_a_selector_that_can_not_be_parsed_leaves_the_pod_unscored(self) -> None:
        pod = self.pod(ZONE, labelSelector={"matchLabels": {"app": "a b"}})
        assert points("PodTopologySpread", pod, snapshot_of(ZONED)) is None

    OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}

    def owned(self, kind: str, version: str = "apps/v1", *, controller: bool = True) -> JSON:
        pod = make_pod("p", labels={"app": "web"})
        owner = self.OWNER | {"kind": kind, "apiVersion": version, "controller": controller}
        return pod | {"metadata": pod["metadata"] | {"ownerReferences": [owner]}}

    @pytest.mark.parametrize(
        ("pod", "objects", "counts"),
        [
            (WEB, {"services": [SERVICE]}, True),
            (WEB, {"services": [SERVICE | {"spec": {"selector": None}}]}, False),
            (WEB, {"services": [SERVICE | {"spec": {"selector": {"app": "db"}}}]}, False),
            (WEB, {"services": [SERVICE | {"metadata": {"name": "s", "namespace": "other"}}]}, False),
            ("ReplicaSet", {"replicaSets": [{"selector": SELECTOR}]}, True),
            ("StatefulSet", {"statefulSets": [{"selector": SELECTOR}]}, True),
            ("ReplicationController", {"replicationControllers": [{"selector": {"app": "web"}}]}, True),
            ("Job", {"replicaSets": [{"selector": SELECTOR}]}, False),
            ("ReplicaSet", {"statefulSets": [{"selector": SELECTOR}]}, False),
            ("ReplicaSet", {"replicaSets": [{"selector": {"matchLabels": {"app": "a b"}}}]}, False),
        ],
        ids=[
            "a Service",
            "a Service without a selector",
            "a Service of others",
            "a Service elsewhere",
            "a ReplicaSet",
            "a StatefulSet",
            "a ReplicationController",
            "a Job",
            "an owner that is not there",
            "an owner whose selector can't be parsed",
        ],
    )
    def test_pods_that_belong_together_are_spread_by_default(
        self, pod: JSON | str, objects: JSON, counts: bool
    ) -> None:
        if isinstance(pod, str):
            incoming = self.owned(pod, "v1" if pod == "ReplicationController" else "apps/v1")
            objects = {
                kind: [{"metadata": {"name": "r", "namespace": "default"}, "spec": entry} for entry in entries]
                for kind, entries in objects.items()
            }
        else:
            incoming = pod
        found = points("EvenPodsSpreadPriority", incoming, snapshot_of(ZONED, there("n1", "n1", "n1"), **objects))
        # hostname: 3 x ln 5 + 2, zone: 3 x ln 4 + 4 on n1; 2 and 3 x ln 4 + 4 on n2; 2 and 4 on n3: 15, 10, 6
        assert found == ({"n1": 40, "n2": 73, "n3": 100} if counts else None)

    @pytest.mark.parametrize(("version", "counts"), [("/v1", True), ("v1/", False), ("/apps/v1", False)])
    def test_a_version_with_a_slash_in_front_is_one_of_no_group(self, version: str, counts: bool) -> None:
        pod = self.owned("ReplicationController", version)
        controllers = [{"metadata": {"name": "r", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}]
        found = points(
            "EvenPodsSpreadPriority", pod, snapshot_of(ZONED, there("n1"), replicationControllers=controllers)
        )
        assert (found is not None) == counts

    def test_an_owner_that_is_not_the_controller_does_not_count(self) -> None:
        sets = [{"metadata": {"name": "r", "namespace": "default"}, "spec": {"selector": SELECTOR}}]
        pod = self.owned("ReplicaSet", controller=False)
        assert points("EvenPodsSpreadPriority", pod, snapshot_of(ZONED, there("n1"), replicaSets=sets)) is None

    def test_by_default_nodes_may_lack_the_zone(self) -> None:
        nodes = [make_node("n1"), make_node("n2")]
        found = points("EvenPodsSpreadPriority", WEB, snapshot_of(nodes, there("n1"), services=[SERVICE]))
        # 1 x ln 4 + 2 = 3.39 -> 3; 2
        assert found == {"n1": 100 * 2 // 3, "n2": 100}

    def test_defaults_may_be_given(self) -> None:
        default = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"}
        snapshot = snapshot_of([*ZONED, make_node("n4")], there("n1"), services=[SERVICE])
        found = points("EvenPodsSpreadPriority", WEB, snapshot, defaultConstraints=[default], defaultingType="List")
        assert found == {"n1": 0, "n2": 0, "n3": 100, "n4": 0}


class TestSelectorSpread:
    def test_nodes_and_zones_count_one_to_two(self) -> None:
        found = points("SelectorSpreadPriority", WEB, snapshot_of(ZONED, there("n1", "n1", "n2"), services=[SERVICE]))
        # node 0, 50, 100; zone 0, 0, 100
        assert found == {"n1": 0, "n2": 16, "n3": 100}

    def test_without_zones_nodes_count_alone(self) -> None:
        nodes = [make_node(name) for name in ("n1", "n2", "n3")]
        found = points("SelectorSpread", WEB, snapshot_of(nodes, there("n1", "n1", "n1", "n2"), services=[SERVICE]))
        assert found == {"n1": 0, "n2": 66, "n3": 100}

    def test_region_and_zone_together_are_the_zone(self) -> None:
        nodes = [make_node(name, labels={REGION: region, ZONE: "z"}) for name, region in (("n1", "r1"), ("n2", "r2"))]
        found = points("SelectorSpread", WEB, snapshot_of(nodes, there("n1"), services=[SERVICE]))
        assert found == {"n1": 0, "n2": 100}

    def test_where_nothing_selects_the_pod_all_nodes_are_equal(self) -> None:
        assert set((points("SelectorSpread", WEB, snapshot_of(ZONED, there("n1"))) or {}).values()) == {100}

    def test_pods_with_constraints_of_their_own_get_nothing(self) -> None:
        pod = make_pod(labels={"app": "web"}, topologySpreadConstraints=[{"maxSkew": 1, "topologyKey": ZONE}])
        assert set((points("SelectorSpread", pod, snapshot_of(ZONED, services=[SERVICE])) or {}).values()) == {0}

    def test_service_spreading_looks_at_services_only(self) -> None:
        pod = TestEvenPodsSpread().owned("ReplicaSet")
        sets = [{"metadata": {"name": "r", "namespace": "default"}, "spec": {"selector": SELECTOR}}]
        by_owner = snapshot_of(ZONED, there("n1"), replicaSets=sets)
        assert points("SelectorSpreadPriority", pod, by_owner) == {"n1": 0, "n2": 33, "n3": 100}
        assert set((points("ServiceSpreadingPriority", pod, by_owner) or {}).values()) == {100}
        by_service = snapshot_of(ZONED, there("n1"), services=[SERVICE])
        assert points("ServiceSpreadingPriority", pod, by_service) == {"n1": 0, "n2": 33, "n3": 100}

    def test_service_anti_affinity_spreads_over_a_label(self) -> None:
        snapshot = snapshot_of([*ZONED, make_node("n4")], there("n1", "n2", "n2", "n3"), services=[SERVICE])
        found = points("ServiceAntiAffinityPriority", WEB, snapshot, label=ZONE)
        assert found == {"n1": 25, "n2": 25, "n3": 75, "n4": 0}
        assert points("ServiceAffinity", make_pod(), snapshot, label=ZONE) == {"n1": 100, "n2": 100, "n3": 100, "n4": 0}

    def test_service_anti_affinity_takes_the_first_service_by_name_in_whichever_order_they_came(self) -> None:
        back = make_pod("back", labels={"app": "web", "tier": "back"})
        tier = {"metadata": {"name": "tier", "namespace": "default"}, "spec": {"selector": {"tier": "back"}}}
        pods = [*there("n1"), on("n3", back)]
        for services in ([SERVICE, tier], [tier, SERVICE]):
            snapshot = snapshot_of(ZONED, pods, services=services)
            found = points("ServiceAntiAffinityPriority", back, snapshot, label=ZONE)
            assert found == {"n1": 50, "n2": 50, "n3": 50}


class TestLabelsAndAnnotations:
    def test_a_label_is_wanted_or_not(self) -> None:
        nodes = [make_node("n1", labels={"a": ""}), make_node("n2")]
        assert points("NodeLabelPriority", make_pod(), snapshot_of(nodes), label="a") == {"n1": 100, "n2": 0}
        found = points("NodeLabelPriority", make_pod(), snapshot_of(nodes), label="a", presence=False)
        assert found == {"n1": 0, "n2": 100}

    def test_several_labels_are_averaged(self) -> None:
        nodes = [make_node("n1", labels={"a": "", "b": ""}), make_node("n2")]
        arguments = {"presentLabelsPreference": ["a", "c"], "absentLabelsPreference": ["b"]}
        assert points("NodeLabel", make_pod(), snapshot_of(nodes), **arguments) == {"n1": 33, "n2": 33}

    @pytest.mark.parametrize(
        ("owner", "annotation", "expected"),
        [
            (("ReplicaSet", "u1"), ("ReplicaSet", "u1"), 0),
            (("ReplicaSet", "u2"), ("ReplicaSet", "u1"), 100),
            (("ReplicationController", "u1"), ("ReplicaSet", "u1"), 100),
            (("StatefulSet", "u1"), ("StatefulSet", "u1"), 100),
            (None, ("ReplicaSet", "u1"), 100),
            (("ReplicaSet", "u1"), None, 100),
        ],
    )
    def test_a_node_may_ask_to_be_spared_a_controllers_pods(
        self, owner: tuple[str, str] | None, annotation: tuple[str, str] | None, expected: int
    ) -> None:
        node, pod = make_node("n1"), make_pod()
        if annotation:
            signature = {"podSignature": {"podController": {"kind": annotation[0], "uid": annotation[1]}}}
            text = json.dumps({"preferAvoidPods": [signature]})
            node["metadata"]["annotations"] = {"scheduler.alpha.kubernetes.io/preferAvoidPods": text}
        if owner:
            pod["metadata"]["ownerReferences"] = [{"kind": owner[0], "uid": owner[1], "controller": True}]
        assert points("NodePreferAvoidPods", pod, snapshot_of([node])) == {"n1": expected}

    @pytest.mark.parametrize(
        "text",
        ["{", '{"other": ' + "[" * 5_000 + "]" * 5_000 + "}"],
        ids=["no JSON", "nested deeper than can be read"],
    )
    def test_an_annotation_that_can_not_be_read_asks_for_nothing(self, text: str) -> None:
        node, pod = make_node("n1"), make_pod()
        node["metadata"]["annotations"] = {"scheduler.alpha.kubernetes.io/preferAvoidPods": text}
        pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "uid": "u", "controller": True}]
        assert points("NodePreferAvoidPodsPriority", pod, snapshot_of([node])) == {"n1": 100}

    def test_equal_priority_is_one(self) -> None:
        assert points("EqualPriority", make_pod(), snapshot_of([make_node("n1")])) == {"n1": 1}


@pytest.mark.parametrize("name", sorted(set(BUILTIN_SCORES) - {"NodeLabelPriority", "NodeLabel"}))
def test_no_nodes_give_no_scores(name: str) -> None:
    assert points(name, WEB, snapshot_of([], services=[SERVICE])) in ({}, None)


@given(st.lists(st.tuples(st.integers(0, 9000), st.integers(0, 20_000)), min_size=1, max_size=6), st.integers(0, 5000))
def test_resource_scores_stay_between_0_and_100(nodes: list[tuple[int, int]], milli: int) -> None:
    made = [make_node(f"n{i}", cpu=f"{cpu}m", memory=f"{memory}Mi") for i, (cpu, memory) in enumerate(nodes)]
    pod = make_pod(requests={"cpu": f"{milli}m", "memory": "512Mi"})
    snapshot = snapshot_of(made, [on("n0", pod, name="e", uid="e")])
    for name in (
        "LeastRequestedPriority",
        "MostRequestedPriority",
        "RequestedToCapacityRatioPriority",
        "BalancedResourceAllocation",
    ):
        found = points(name, pod, snapshot)
        assert found is not None
        assert all(0 <= number <= 100 for number in found.values())


def test_every_builtin_explains_itself_in_one_line() -> None:
    for name, made in (BUILTIN_FILTERS | BUILTIN_SCORES).items():
        first, _, rest = (made.__doc__ or "").partition("\n")
        assert 20 < len(first) < 120, name
        assert first.endswith("."), name
        assert "Source: " in rest, name


def test_every_alias_is_the_classic_rule() -> None:
    for aliases, builtins in ((FILTER_ALIASES, BUILTIN_FILTERS), (SCORE_ALIASES, BUILTIN_SCORES)):
        for alias, classic in aliases.items():
            assert builtins[alias] is builtins[classic]
            assert classic not in aliases
