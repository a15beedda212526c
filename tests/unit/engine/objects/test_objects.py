"""How Kubernetes JSON is read."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.errors import ObjectError
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node, NodeInfo, Path, trace, trace_text
from policies.engine.objects.pod import Pod, PodObject
from policies.engine.objects.resources import is_extended, is_scalar
from policies.engine.objects.snapshot import Snapshot
from policies.engine.selectors import LabelSelector
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import JSON, snapshot_of


def container(cpu: str | None = None, memory: str | None = None, **others: Any) -> JSON:
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    return {"name": "c", "resources": {"requests": requests}, **others}


DEFAULT_MEMORY = 200 * 1024 * 1024


class TestRequests:
    """What a Pod counts for: cpu and memory, plain and with the defaults that scores count."""

    @pytest.mark.parametrize(
        ("spec", "plain", "nonzero"),
        [
            ({"containers": [container()]}, (0, 0), (100, DEFAULT_MEMORY)),
            ({"containers": [container("0", "0")]}, (0, 0), (0, 0)),
            ({"containers": [container("1"), container()]}, (1000, 0), (1100, 2 * DEFAULT_MEMORY)),
            (
                {"containers": [container("100m", "1")], "initContainers": [container("1")]},
                (1000, 1),
                (1000, DEFAULT_MEMORY),
            ),
            (
                {"containers": [container("1", "1")], "initContainers": [container("1", "5", restartPolicy="Always")]},
                (2000, 6),
                (2000, 6),
            ),
            (
                {
                    "containers": [container("1", "1")],
                    "initContainers": [container("1", "1", restartPolicy="Always"), container("3", "3")],
                },
                (4000, 4),
                (4000, 4),
            ),
            (
                {
                    "containers": [container("1", "1")],
                    "initContainers": [container("3", "3"), container("1", "1", restartPolicy="Always")],
                },
                (3000, 3),
                (3000, 3),
            ),
            ({"containers": [container("1", "1")], "overhead": {"cpu": "1", "memory": "9"}}, (2000, 10), (2000, 10)),
            (
                {"containers": [container("1")], "resources": {"requests": {"memory": "9"}}},
                (1000, 9),
                (1000, 9),
            ),
            (
                {"containers": [container("1"), container()], "resources": {"requests": {"memory": "9"}}},
                (1000, 9),
                (1000, 9),
            ),
            (
                {"containers": [container(), container()], "resources": {"requests": {"memory": "9"}}},
                (0, 9),
                (200, 9),
            ),
            (
                {"containers": [container("1", "1")], "resources": {"requests": {"example.com/gpu": "9"}}},
                (1000, 1),
                (1000, 1),
            ),
        ],
        ids=[
            "missing requests",
            "explicit zeros",
            "two containers, one without",
            "an init container",
            "a sidecar",
            "an init container after a sidecar",
            "an init container before a sidecar",
            "overhead",
            "pod-level memory",
            "pod-level memory, cpu missing in one container",
            "pod-level memory, cpu missing everywhere",
            "pod-level requests of other resources don't count",
        ],
    )
    def test_requests_add_up_as_in_kube_scheduler(
        self, spec: JSON, plain: tuple[int, int], nonzero: tuple[int, int]
    ) -> None:
        pod = Pod.from_json(make_pod() | {"spec": spec})
        assert (pod.requests.get("cpu"), pod.requests.get("memory")) == plain
        assert (pod.nonzero_requests.get("cpu"), pod.nonzero_requests.get("memory")) == nonzero

    def test_pod_level_status_counts_while_the_pod_is_resized(self) -> None:
        pod = Pod.from_json(
            make_pod(containers=[container("1")], resources={"requests": {"cpu": "2"}})
            | {"status": {"resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "1"}}}
        )
        assert pod.requests.get("cpu") == 3000
        assert pod.wanted.get("cpu") == 2000

    @pytest.mark.parametrize(
        "requests", [{}, {"cpu": "100m"}, {"memory": "1Gi", "example.com/gpu": "2"}, {"cpu": "-1", "memory": "0.5"}]
    )
    def test_a_pod_of_one_container_asks_for_the_same_with_an_overhead_of_nothing(self, requests: JSON) -> None:
        plain, other = (
            Pod.from_json(make_pod(containers=[{"name": "main", "resources": {"requests": requests}}], **more))
            for more in ({}, {"overhead": {"cpu": "0", "memory": "0"}})
        )
        for name in ("cpu", "memory", "example.com/gpu", "ephemeral-storage"):
            assert plain.wanted.get(name) == other.wanted.get(name)
            assert plain.score_requests.get(name) == other.score_requests.get(name)
            assert plain.requests.get(name) == other.requests.get(name)
            assert plain.nonzero_requests.get(name) == other.nonzero_requests.get(name)

    def test_what_is_wanted_is_never_below_zero(self) -> None:
        assert Pod.from_json(make_pod(requests={"cpu": "-1"})).wanted.get("cpu") == 0

    def test_sums_beyond_64_bits_wrap_and_do_not_fail(self) -> None:
        pods = [Pod.from_json(make_pod(f"p{i}", requests={"memory": "7Ei"})) for i in range(2)]
        info = NodeInfo(Node.from_json(make_node("n1")), pods)
        assert info.requested.get("memory") == 14 * 2**60 - 2**64


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        ("cpu", False, False),
        ("example.com/gpu", True, True),
        ("kubernetes.io/thing", False, True),
        ("requests.example.com/gpu", False, False),
        ("hugepages-1Gi", False, True),
        ("attachable-volumes-x", False, True),
        ("a/b/c", False, False),
    ],
)
def test_names_of_resources_say_what_kind_they_are(name: str, extended: bool, scalar: bool) -> None:
    assert (is_extended(name), is_scalar(name)) == (extended, scalar)


class TestReading:
    @pytest.mark.parametrize("limits", [["1Gi"], "1Gi", 1])
    def test_limits_that_are_no_object_are_said_to_be_that(self, limits: object) -> None:
        pod = Pod.from_json(make_pod(containers=[{"name": "c", "resources": {"limits": limits}}]))
        with pytest.raises(ObjectError, match="limits of resources are no object"):
            _ = pod.is_best_effort

    @pytest.mark.parametrize(
        "json",
        [
            {"metadata": {"name": "p", "labels": None, "deletionTimestamp": None, "ownerReferences": None}},
            {"metadata": {"name": "p", "namespace": None, "uid": None}, "spec": None, "status": None},
            {
                "metadata": {"name": "p"},
                "spec": {"nodeName": None, "containers": None, "affinity": None, "volumes": None},
            },
            {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": None, "resources": None}]}},
            {"metadata": {"name": "p"}, "spec": {"tolerations": [{"key": None, "operator": "Exists"}]}},
        ],
    )
    def test_null_is_read_as_nothing_as_in_go(self, json: JSON) -> None:
        pod = Pod.from_json(json)
        assert pod.namespace == "default"
        assert not pod.is_deleting
        assert pod.json is json

    def test_null_amounts_are_zero(self) -> None:
        assert Pod.from_json(make_pod(requests={"cpu": None})).nonzero_requests.get("cpu") == 0  # type: ignore[dict-item]

    def test_a_label_without_a_value_is_one_with_an_empty_value_as_in_go(self) -> None:
        node = Node.from_json({"metadata": {"name": "n", "labels": {"node-role": None}, "annotations": {"a": None}}})

        assert node.labels == {"node-role": ""}
        assert node.metadata.annotations == {"a": ""}

    def test_a_selector_without_a_value_selects_an_empty_one_as_in_go(self) -> None:
        selector = {"matchLabels": {"app": None}, "matchExpressions": None}
        spread = {"topologyKey": "zone", "labelSelector": selector}
        pod = Pod.from_json({"spec": {"nodeSelector": {"node-role": None}, "topologySpreadConstraints": [spread]}})

        assert pod.spec.node_selector == {"node-role": ""}
        [constraint] = pod.spec.topology_spread_constraints or ()
        assert constraint.label_selector == LabelSelector(match_labels={"app": ""})

    def test_null_amounts_are_zero_beside_other_nulls_too(self) -> None:
        json = make_pod(requests={"cpu": None})  # type: ignore[dict-item]
        assert Pod.from_json(json | {"status": {"phase": None}}).nonzero_requests.get("cpu") == 0

    @pytest.mark.parametrize(
        "json",
        [
            [],
            {"spec": {"priority": "high"}},
            {"spec": {"containers": [{"ports": [{"hostPort": 2**40}]}]}},
            make_pod(requests={"cpu": "lots"}),
            {"spec": {"topologySpreadConstraints": [{"maxSkew": 2**31}]}},
        ],
    )
    def test_a_pod_of_the_wrong_shape_is_refused(self, json: object) -> None:
        with pytest.raises(ObjectError, match="Pod"):
            Pod.from_json(json)

    @pytest.mark.parametrize("metadata", [{"\ud800": 1}, {"namespace": None, "\ud800": 1}])
    def test_half_of_a_character_in_a_members_name_is_refused_beside_null_too(self, metadata: dict[str, Any]) -> None:
        with pytest.raises(ObjectError, match="half of a character"):
            Pod.from_json({"metadata": metadata})

    @pytest.mark.parametrize(
        "json",
        [
            "n1",
            {"metadata": {"name": 1}},
            {"status": {"allocatable": {"cpu": "lots"}}},
            {"status": {"images": [{"names": [1]}]}},
        ],
    )
    def test_a_node_of_the_wrong_shape_is_refused(self, json: object) -> None:
        with pytest.raises(ObjectError, match="Node"):
            Node.from_json(json)

    def test_half_of_a_character_in_a_members_name_is_refused_in_words(self) -> None:
        with pytest.raises(ObjectError, match=r"Pod: a text holds half of a character \(a lone surrogate\)"):
            Pod.from_json({"metadata": {"\ud800": 1}})

    def test_pods_are_the_same_straight_from_bytes(self) -> None:
        json = make_pod(requests={"cpu": "1"}, labels={"a": "b"})
        direct = Pod(msgspec.json.decode(msgspec.json.encode(json), type=PodObject))
        assert direct.requests == Pod.from_json(json).requests
        assert direct.json == {}
        assert direct.traits == Pod.from_json(json).traits

    def test_a_pod_that_is_only_counted_lets_go_of_what_counting_needed(self) -> None:
        json = make_pod(
            labels={"a": "b"},
            containers=[container("1", ports=[{"containerPort": 8080}, {"hostPort": 80}])],
            volumes=[{"name": "t", "projected": {}}, {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}],
            tolerations=[{"operator": "Exists"}],
            nodeName="n1",
        ) | {"status": {"phase": "Running", "containerStatuses": [{"name": "c", "resources": {}}]}}
        json["metadata"] |= {"resourceVersion": "7", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        pod = Pod(msgspec.json.decode(msgspec.json.encode(json), type=PodObject))
        assert pod.requests.get("cpu") == 1000
        assert pod.parsed.status.container_statuses is None
        assert [volume.name for volume in pod.spec.volumes or ()] == ["c"]
        assert [port.number for port in pod.host_ports] == [80]
        assert (pod.labels, pod.name, pod.spec.node_name) == ({"a": "b"}, "web-1", "n1")
        assert (pod.parsed.metadata.resource_version, pod.is_deleting, pod.is_live) == ("7", True, True)
        assert pod.spec.containers is not None
        assert pod.spec.containers[0].requests == {"cpu": "1"}

    def test_pods_alike_share_what_is_worked_out(self) -> None:
        one, two = (Pod.from_json(make_pod(name, requests={"cpu": "1"}, labels={"a": "b"})) for name in "ab")
        assert one.traits is two.traits
        assert one.requests is two.requests

    def test_the_last_condition_of_a_kind_counts(self) -> None:
        node = make_node("n1")
        node["status"]["conditions"] = [{"type": "A", "status": "True"}, {"type": "A", "status": "False"}]
        assert not Node.from_json(node).has_condition("A")


class TestClusterObjects:
    def test_lists_are_read_by_name_and_namespace(self) -> None:
        objects = ClusterObjects.from_json(
            {
                "persistentVolumeClaims": [{"metadata": {"name": "c"}}, {"metadata": {"name": "c", "namespace": "x"}}],
                "persistentVolumes": [{"metadata": {"name": "v", "labels": None}, "spec": None}],
                "services": None,
            }
        )
        assert set(objects.claims) == {("default", "c"), ("x", "c")}
        assert objects.volumes["v"].labels == {}
        assert objects.services == {}

    def test_an_object_of_the_wrong_shape_is_refused_with_its_place(self) -> None:
        with pytest.raises(ObjectError, match=r"CSINode 1: .*\$\.metadata\.name"):
            ClusterObjects.from_json({"csiNodes": [{}, {"metadata": {"name": 1}}]})


class TestSnapshot:
    def test_what_is_not_given_stays(self) -> None:
        first = snapshot_of([make_node("n1")], namespaces={"a": {"b": "c"}}, services=[])
        assert first.changed({}).table is first.table
        second = first.changed({"n1": None})
        assert second.objects is first.objects
        assert second.namespace_labels("a") == {"b": "c"}
        assert second.namespace_labels("gone") == {}

    def test_nominated_pods_of_at_least_the_same_priority_count(self) -> None:
        def nominated(name: str, priority: int) -> Pod:
            return Pod.from_json(make_pod(name, requests={"cpu": "1"}, priority=priority))

        snapshot = snapshot_of([make_node("n1"), make_node("n2")])
        waiting = {
            "n1": [nominated("high", 10), nominated("same", 5), nominated("low", 1)],
            "gone": [nominated("x", 9)],
        }
        with_them = Snapshot(snapshot.nodes, nominated=waiting).with_nominated(nominated("p", 5))
        assert with_them is not None
        assert [pod.name for pod in with_them.nodes["n1"].pods] == ["high", "same"]
        assert with_them.nodes["n2"] is snapshot.nodes["n2"]
        assert with_them.with_nominated(nominated("p", 5)) is None
        assert Snapshot(snapshot.nodes, nominated=waiting).with_nominated(nominated("p", 50)) is None
        alone = Snapshot(snapshot.nodes, nominated={"n1": [nominated("p", 5)]})
        assert alone.with_nominated(nominated("p", 5)) is None

    def test_live_pods_of_a_namespace_are_counted_by_labels(self) -> None:
        pods = [make_pod(f"p{i}", labels={"app": "web", "n": str(i)}, nodeName="n1") for i in range(3)]
        snapshot = snapshot_of([make_node("n1"), make_node("n2")], pods)
        assert snapshot.counts("default", {"app": "web"}).tolist() == [3, 0]
        assert snapshot.counts("default", {"n": "1"}).tolist() == [1, 0]
        assert snapshot.counts("other", {}).tolist() == [0, 0]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


class TestNodeFromText:
    @given(json=JSON_VALUES, path=st.lists(st.sampled_from("abc"), max_size=4).map(tuple))
    def test_a_path_leads_to_the_same_in_text_as_in_what_it_stands_for(self, json: object, path: Path) -> None:
        assert trace_text(msgspec.json.encode(json), path) == trace(json, path)

    def test_it_is_the_node_that_its_json_gives(self) -> None:
        json = make_node("n1", labels={"team": "a"}, taints=[{"key": "k", "effect": "NoSchedule"}])
        json["status"]["images"] = [{"names": ["one", "two"], "sizeBytes": 5}, {"sizeBytes": 6}]
        node, other = Node.from_text(msgspec.json.encode(json)), Node.from_json(json)
        assert node.json == json
        assert (node.name, node.labels, node.allocatable) == (other.name, other.labels, other.allocatable)
        assert node.images == other.images == {"one": 5, "two": 5}
        assert node.parsed.spec == other.parsed.spec
        assert node.trace(("metadata", "labels", "team")).value == "a"
        assert node.trace(("metadata", "labels", "team")) is node.trace(("metadata", "labels", "team"))

    def test_versions_with_the_same_images_share_them(self) -> None:
        json = make_node("n1")
        json["status"]["images"] = [{"names": ["one"], "sizeBytes": 5}]
        first = Node.from_text(msgspec.json.encode(json))
        json["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        second = Node.from_text(msgspec.json.encode(json))
        assert first.images is second.images
        json["status"]["images"] = None
        assert Node.from_text(msgspec.json.encode(json)).images == {}
        assert Node.from_text(b"{}").images == {}

    @pytest.mark.parametrize(
        "text",
        [b"5", b'{"metadata":{"name":5}}', b'{"status":{"allocatable":{"cpu":"many"}}}', b'{"status":{"images":[5]}}'],
        ids=str,
    )
    def test_what_is_no_node_is_refused(self, text: bytes) -> None:
        with pytest.raises(ObjectError, match=r"^Node: "):
            Node.from_text(text)


class TestDifferencesOfClusterObjects:
    """What leads from one state to another, for who keeps a history of them."""

    @staticmethod
    def _lists(**members: list[dict[str, object]]) -> ClusterObjects:
        return ClusterObjects.from_json(members)

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ({}, {"persistentVolumeClaims": [{"metadata": {"name": "a"}}]}),
            ({"persistentVolumes": [{"metadata": {"name": "a"}}]}, {}),
            (
                {"services": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}]},
                {"services": [{"metadata": {"name": "b"}}, {"metadata": {"name": "c"}}]},
            ),
        ],
    )
    def test_they_lead_from_one_to_the_other(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        old, new = self._lists(**before), self._lists(**after)
        again = old.changed(new.differences(old), known=new.known)
        assert {kind: [repr(pair) for pair in pairs] for kind, pairs in again.differences(new).items()} == {}

    def test_what_is_shared_is_no_difference(self) -> None:
        old = self._lists(persistentVolumeClaims=[{"metadata": {"name": "a"}}], services=[{"metadata": {"name": "s"}}])
        added = self._lists(services=[{"metadata": {"name": "t"}}])
        new = old.changed(added.differences(ClusterObjects.unknown()))
        assert list(new.differences(old)) == ["services"]
        assert [after.metadata.name for _, after in new.differences(old)["services"] if after] == ["t"]


def test_a_pod_that_only_counts_is_made_of_its_typed_part_and_counts_the_same() -> None:
    whole = Pod.from_json(make_pod(requests={"cpu": "2"}))
    again = Pod.counting(whole.parsed)
    assert (again.json, again.requests.amounts) == ({}, whole.requests.amounts)


def test_a_pod_is_gated_while_it_has_scheduling_gates() -> None:
    gated = Pod.from_json(make_pod(schedulingGates=[{"name": "example.org/wait"}]))
    assert gated.is_gated
    assert not Pod.from_json(make_pod(schedulingGates=[])).is_gated
    assert not Pod.counting(gated.parsed).is_gated
