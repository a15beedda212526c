"""Filters about other Pods: ports, affinity, spreading."""

from typing import Any

import pytest

from policies.engine.status import Code, Status
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import (
    HOSTNAME,
    JSON,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    ZONE,
    on,
    refused,
    snapshot_of,
    verdicts,
)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NODES = [
    make_node("n1", labels={ZONE: "z1"}),
    make_node("n2", labels={ZONE: "z1"}),
    make_node("n3", labels={ZONE: "z2"}),
    make_node("n4"),
]
WEB = make_pod("web", labels={"app": "web"})
SELECTOR = {"matchLabels": {"app": "web"}}


def there(*nodes: str, pod: JSON = WEB, **metadata: Any) -> list[JSON]:
    return [on(node, pod, name=f"e{i}", uid=f"e{i}", **metadata) for i, node in enumerate(nodes)]


class TestPodFitsHostPorts:
    def with_port(self, **port: Any) -> JSON:
        return make_pod(containers=[{"name": "c", "ports": [port]}])

    @pytest.mark.parametrize(
        ("wanted", "taken", "conflict"),
        [
            ({"hostPort": 80}, {"hostPort": 80}, True),
            ({"hostPort": 80}, {"hostPort": 81}, False),
            ({"hostPort": 80}, {"hostPort": 80, "protocol": "TCP"}, True),
            ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, False),
            ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, True),
            ({"hostPort": 80}, {"hostPort": 80, "hostIP": "10.0.0.1"}, True),
            ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "0.0.0.0"}, True),
            ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, False),
            ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, True),
            ({"containerPort": 80}, {"containerPort": 80}, False),
        ],
    )
    def test_ports_conflict_by_number_protocol_and_address(self, wanted: JSON, taken: JSON, conflict: bool) -> None:
        snapshot = snapshot_of([make_node("n1")], [on("n1", self.with_port(**taken), name="e")])
        said = verdicts("NodePorts", self.with_port(**wanted), snapshot)
        reason = "node(s) didn't have free ports for the requested pod ports"
        assert said["n1"] == (Status(UNSCHEDULABLE, reason) if conflict else None)

    @pytest.mark.parametrize(("policy", "conflict"), [("Always", True), (None, False)])
    def test_ports_of_init_containers_count_only_for_sidecars(self, policy: str | None, conflict: bool) -> None:
        init = {"name": "i", "ports": [{"hostPort": 80}], "restartPolicy": policy}
        snapshot = snapshot_of([make_node("n1")], [on("n1", make_pod(initContainers=[init]), name="e")])
        assert bool(refused("PodFitsHostPorts", self.with_port(hostPort=80), snapshot)) is conflict


class TestMatchInterPodAffinity:
    def pod(self, *, near: list[JSON] | None = None, far: list[JSON] | None = None, **others: Any) -> JSON:
        affinity = {}
        if near is not None:
            affinity["podAffinity"] = {REQUIRED: near}
        if far is not None:
            affinity["podAntiAffinity"] = {REQUIRED: far}
        return make_pod("p", affinity=affinity, **others)

    def term(self, key: str = ZONE, **others: Any) -> JSON:
        return {"labelSelector": SELECTOR, "topologyKey": key, **others}

    def test_affinity_needs_a_matching_pod_in_the_domain(self) -> None:
        said = verdicts("InterPodAffinity", self.pod(near=[self.term()]), snapshot_of(NODES, there("n1")))
        not_near = Status(UNRESOLVABLE, "node(s) didn't match pod affinity rules")
        assert said == {"n1": None, "n2": None, "n3": not_near, "n4": not_near}

    def test_one_pod_must_match_all_terms(self) -> None:
        pods = [*there("n1"), *there("n3", pod=make_pod("db", labels={"app": "db"}))]
        other = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": ZONE}
        assert refused("MatchInterPodAffinity", self.pod(near=[self.term(), other]), snapshot_of(NODES, pods)) == {
            "n1",
            "n2",
            "n3",
            "n4",
        }

    def test_all_topologies_of_the_node_count(self) -> None:
        pod = self.pod(near=[self.term(), self.term(HOSTNAME)])
        assert refused("MatchInterPodAffinity", pod, snapshot_of(NODES, there("n1"))) == {"n2", "n3", "n4"}

    def test_the_first_of_a_group_may_go_where_the_labels_are(self) -> None:
        pod = self.pod(near=[self.term()], labels={"app": "web"})
        assert refused("MatchInterPodAffinity", pod, snapshot_of(NODES)) == {"n4"}

    def test_one_that_does_not_match_itself_is_not_the_first_of_a_group(self) -> None:
        assert len(refused("MatchInterPodAffinity", self.pod(near=[self.term()]), snapshot_of(NODES))) == 4

    def test_a_matching_pod_outside_of_the_topology_does_not_count_against_the_first(self) -> None:
        pod = self.pod(near=[self.term()], labels={"app": "web"})
        assert refused("MatchInterPodAffinity", pod, snapshot_of(NODES, there("n4"))) == {"n4"}

    def test_anti_affinity_refuses_the_domain(self) -> None:
        said = verdicts("InterPodAffinity", self.pod(far=[self.term()]), snapshot_of(NODES, there("n1")))
        not_far = Status(UNSCHEDULABLE, "node(s) didn't match pod anti-affinity rules")
        assert said == {"n1": not_far, "n2": not_far, "n3": None, "n4": None}

    def test_the_anti_affinity_of_pods_that_are_there_counts(self) -> None:
        keeping_off = self.pod(far=[self.term()])
        said = verdicts("InterPodAffinity", WEB, snapshot_of(NODES, there("n1", pod=keeping_off)))
        kept_off = Status(UNSCHEDULABLE, "node(s) didn't satisfy existing pods anti-affinity rules")
        assert said == {"n1": kept_off, "n2": kept_off, "n3": None, "n4": None}

    def test_affinity_is_told_before_anti_affinity(self) -> None:
        pod = self.pod(near=[self.term(HOSTNAME)], far=[self.term()])
        said = verdicts("InterPodAffinity", pod, snapshot_of(NODES, there("n1")))
        assert [said[name].reason if said[name] else "" for name in ("n1", "n2")] == [
            "node(s) didn't match pod anti-affinity rules",
            "node(s) didn't match pod affinity rules",
        ]

    def test_pods_on_their_way_out_count(self) -> None:
        leaving = there("n1", deletionTimestamp="2026-01-01T00:00:00Z")
        assert refused("MatchInterPodAffinity", self.pod(far=[self.term()]), snapshot_of(NODES, leaving)) == {
            "n1",
            "n2",
        }

    SPACES = {"default": {"env": "prod"}, "other": {"env": "test"}, "third": {}}

    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            ({}, set()),
            ({"namespaces": []}, set()),
            ({"namespaces": ["other"]}, {"n1", "n2"}),
            ({"namespaceSelector": {}}, {"n1", "n2"}),
            ({"namespaceSelector": {"matchLabels": {"env": "test"}}}, {"n1", "n2"}),
            ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, set()),
            ({"namespaces": ["default"], "namespaceSelector": {"matchLabels": {"env": "test"}}}, {"n1", "n2"}),
            (
                {"namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["test"]}]}},
                {"n1", "n2"},
            ),
        ],
        ids=[
            "own namespace",
            "an empty list is none",
            "by name",
            "an empty selector means all",
            "by labels",
            "by other labels",
            "by name or by labels",
            "v1.36.3: a selector that matches no labels at all means all",
        ],
    )
    def test_namespaces_of_the_incoming_pods_terms(self, selection: JSON, expected: set[str]) -> None:
        pods = there("n1", namespace="other")
        pod = self.pod(far=[self.term(**selection)])
        assert refused("MatchInterPodAffinity", pod, snapshot_of(NODES, pods, self.SPACES)) == expected

    @pytest.mark.parametrize(
        ("selection", "expected"),
        [
            ({}, set()),
            ({"namespaces": ["default"]}, {"n1", "n2"}),
            ({"namespaceSelector": {}}, {"n1", "n2"}),
            ({"namespaceSelector": {"matchLabels": {"env": "prod"}}}, {"n1", "n2"}),
            (
                {"namespaceSelector": {"matchExpressions": [{"key": "env", "operator": "NotIn", "values": ["prod"]}]}},
                set(),
            ),
        ],
    )
    def test_namespaces_of_existing_pods_terms(self, selection: JSON, expected: set[str]) -> None:
        keeping_off = there("n1", pod=self.pod(far=[self.term(**selection)]), namespace="other")
        assert refused("MatchInterPodAffinity", WEB, snapshot_of(NODES, keeping_off, self.SPACES)) == expected

    def test_a_missing_label_selector_means_no_pod_and_an_empty_one_every_pod(self) -> None:
        none = self.pod(far=[{"topologyKey": ZONE}])
        every = self.pod(far=[{"topologyKey": ZONE, "labelSelector": {}}])
        snapshot = snapshot_of(NODES, there("n1"))
        assert refused("MatchInterPodAffinity", none, snapshot) == set()
        assert refused("MatchInterPodAffinity", every, snapshot) == {"n1", "n2"}

    def test_a_selector_that_can_not_be_parsed_refuses_the_pod_but_is_ignored_on_others(self) -> None:
        bad = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "not a value"}}}
        said = verdicts("MatchInterPodAffinity", self.pod(far=[bad]), snapshot_of(NODES))
        assert {status.code for status in said.values() if status} == {Code.UNRESOLVABLE}
        assert not refused("MatchInterPodAffinity", WEB, snapshot_of(NODES, there("n1", pod=self.pod(far=[bad]))))


class TestEvenPodsSpread:
    def pod(self, *constraints: JSON, labels: dict[str, str] | None = None, **spec: Any) -> JSON:
        labels = {"app": "web"} if labels is None else labels
        return make_pod("p", labels=labels, topologySpreadConstraints=list(constraints), **spec)

    def constraint(self, key: str = ZONE, **others: Any) -> JSON:
        return {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": SELECTOR,
        } | others

    def refused(self, pod: JSON, *nodes: str, **metadata: Any) -> set[str]:
        return refused("EvenPodsSpread", pod, snapshot_of(NODES[:3], there(*nodes, **metadata)))

    def test_the_fuller_domain_is_refused(self) -> None:
        assert self.refused(self.pod(self.constraint()), "n1") == {"n1", "n2"}

    def test_codes_and_reasons_are_kube_schedulers(self) -> None:
        said = verdicts("PodTopologySpread", self.pod(self.constraint()), snapshot_of(NODES, there("n1")))
        text = "node(s) didn't match pod topology spread constraints"
        assert said["n1"] == Status(UNSCHEDULABLE, text)
        assert said["n3"] is None
        assert said["n4"] == Status(UNRESOLVABLE, f"{text} (missing required label)")

    def test_the_skew_may_reach_its_maximum(self) -> None:
        assert self.refused(self.pod(self.constraint(maxSkew=2)), "n1") == set()
        assert self.refused(self.pod(self.constraint(maxSkew=2)), "n1", "n2") == {"n1", "n2"}

    def test_a_pod_that_does_not_match_itself_adds_nothing(self) -> None:
        assert self.refused(self.pod(self.constraint(), labels={"app": "db"}), "n1") == set()

    @pytest.mark.parametrize(
        "metadata", [{"namespace": "other"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, {"labels": {"app": "db"}}]
    )
    def test_pods_elsewhere_on_their_way_out_or_of_others_do_not_count(self, metadata: JSON) -> None:
        assert self.refused(self.pod(self.constraint()), "n1", **metadata) == set()

    def test_constraints_that_only_score_are_passed_over(self) -> None:
        assert self.refused(self.pod(self.constraint(whenUnsatisfiable="ScheduleAnyway")), "n1") == set()

    def test_fewer_domains_than_wanted_make_the_fewest_zero(self) -> None:
        both = there("n1", "n3")
        pod, more = self.pod(self.constraint()), self.pod(self.constraint(minDomains=3))
        assert refused("EvenPodsSpread", pod, snapshot_of(NODES[:3], both)) == set()
        assert refused("EvenPodsSpread", more, snapshot_of(NODES[:3], both)) == {"n1", "n2", "n3"}

    def test_nodes_that_lack_another_constraints_key_are_no_domain(self) -> None:
        nodes = [*NODES[:2], make_node("n3", labels={ZONE: "z2"})]
        del nodes[2]["metadata"]["labels"][HOSTNAME]
        pod = self.pod(self.constraint(), self.constraint(HOSTNAME))
        said = verdicts("EvenPodsSpread", pod, snapshot_of(nodes, there("n1")))
        assert said["n1"] is not None
        assert said["n2"] is None
        assert said["n3"] == Status(
            UNRESOLVABLE, "node(s) didn't match pod topology spread constraints (missing required label)"
        )

    def test_node_affinity_takes_domains_out_unless_ignored(self) -> None:
        chosen = {"nodeSelector": {ZONE: "z1"}}
        assert self.refused(self.pod(self.constraint(), **chosen), "n1") == set()
        ignoring = self.pod(self.constraint(nodeAffinityPolicy="Ignore"), **chosen)
        assert self.refused(ignoring, "n1") == {"n1", "n2"}

    def test_taints_take_domains_out_only_when_honoured(self) -> None:
        nodes = [*NODES[:2], make_node("n3", labels={ZONE: "z2"}, taints=[{"key": "k", "effect": "NoSchedule"}])]
        snapshot = snapshot_of(nodes, there("n1"))
        assert refused("EvenPodsSpread", self.pod(self.constraint()), snapshot) == {"n1", "n2"}
        honouring = self.pod(self.constraint(nodeTaintsPolicy="Honor"))
        assert refused("EvenPodsSpread", honouring, snapshot) == set()

    def test_match_label_keys_add_the_pods_own_values(self) -> None:
        pod = self.pod(self.constraint(matchLabelKeys=["version", "gone"]), labels={"app": "web", "version": "2"})
        assert self.refused(pod, "n1", labels={"app": "web", "version": "1"}) == set()
        assert self.refused(pod, "n1", labels={"app": "web", "version": "2"}) == {"n1", "n2"}

    def test_an_empty_selector_counts_no_pods_but_the_pod_itself(self) -> None:
        pod = self.pod(self.constraint(labelSelector={}))
        assert self.refused(pod, "n1", "n1", "n1") == set()

    def test_a_selector_that_can_not_be_parsed_is_an_error(self) -> None:
        pod = self.pod(self.constraint(labelSelector={"matchLabels": {"app": "not a value"}}))
        said = verdicts("EvenPodsSpread", pod, snapshot_of(NODES))
        assert {status.code for status in said.values() if status} == {Code.ERROR}

    def test_default_constraints_use_the_selector_of_the_service(self) -> None:
        default = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        services = [{"metadata": {"name": "s", "namespace": "default"}, "spec": {"selector": {"app": "web"}}}]
        snapshot = snapshot_of(NODES[:3], there("n1"), services=services)
        assert refused("EvenPodsSpread", WEB, snapshot, defaultConstraints=[default]) == {"n1", "n2"}
        assert (
            refused("EvenPodsSpread", WEB, snapshot_of(NODES[:3], there("n1")), defaultConstraints=[default]) == set()
        )

    @pytest.mark.parametrize(
        "arguments",
        [
            {"defaultConstraints": [{"topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}]},
            {"defaultConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
            {"defaultConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "Never"}]},
            {
                "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
                ]
            },
            {
                "defaultingType": "System",
                "defaultConstraints": [{"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}],
            },
            {"defaultingType": "Other"},
        ],
    )
    def test_default_constraints_are_checked(self, arguments: JSON) -> None:
        import msgspec

        with pytest.raises(msgspec.ValidationError):
            refused("EvenPodsSpread", WEB, snapshot_of(NODES), **arguments)
