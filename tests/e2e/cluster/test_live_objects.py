"""Claims, volumes, Services and the like in the live Snapshot, against a real API server."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.objects.cluster_kinds import CLAIMS, DISRUPTION_BUDGETS, SERVICES
from policies.engine.objects.pod import Pod
from policies.engine.rule import Cycle
from scheduler.cluster.errors import APINotFoundError
from scheduler.cluster.live import LiveSnapshot
from tests.builders import make_rule_set
from tests.e2e.cluster.conftest import Cluster
from tests.e2e.cluster.waiting import eventually

pytestmark = pytest.mark.e2e

JSON = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
DRIVER = "csi.example.org"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CORE = "/api/v1"
HERE = "/api/v1/namespaces/default"
STORAGE = "/apis/storage.k8s.io/v1"


class Things:
    """Objects that a test makes, and that are gone after it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._paths: list[str] = []

    def make(self, path: str, api_version: str, kind: str, name: str, **rest: Any) -> JSON:
        """Create an object and give it as it was stored."""
        metadata = {"name": name} | rest.pop("metadata", {})
        body = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}
        answer = self._cluster.client.post(path=path, body=msgspec.json.encode(body))
        self._paths.append(f"{path}/{name}")
        found: JSON = msgspec.json.decode(answer)
        return found

    def volume(self, name: str, *, zone: str = "", claim: str) -> None:
        """Make a volume of a CSI driver, and a claim bound to it."""
        amount = {"storage": "1Gi"}
        self.make(
            f"{CORE}/persistentvolumes",
            "v1",
            "PersistentVolume",
            name,
            metadata={"labels": {ZONE: zone} if zone else {}},
            spec={
                "accessModes": ["ReadWriteOnce"],
                "capacity": amount,
                "storageClassName": "",
                "claimRef": {"namespace": "default", "name": claim},
                "csi": {"driver": DRIVER, "volumeHandle": name},
            },
        )
        self.make(
            f"{HERE}/persistentvolumeclaims",
            "v1",
            "PersistentVolumeClaim",
            claim,
            spec={
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": amount},
                "storageClassName": "",
                "volumeName": name,
            },
        )

    def node(self, name: str, **labels: str) -> None:
        """Make a node."""
        self._cluster.create_node(name, **labels)
        self._paths.append(f"{CORE}/nodes/{name}")

    def pod(self, name: str, *, node: str, claim: str = "", labels: dict[str, str] | None = None) -> JSON:
        """Put a Pod on a node."""
        spec = pod_json(name, claim=claim)["spec"] | {"nodeName": node, "terminationGracePeriodSeconds": 0}
        return self.make(f"{HERE}/pods", "v1", "Pod", name, metadata={"labels": labels or {}}, spec=spec)

    def delete(self, path: str) -> None:
        """Delete an object now, whatever holds it."""
        options = msgspec.json.encode({"gracePeriodSeconds": 0})
        try:
            self._cluster.client.patch(
                path=path, body=b'{"metadata":{"finalizers":null}}', content_type="application/merge-patch+json"
            )
            self._cluster.client.delete(path=path, body=options)
        except APINotFoundError:
            return  # It went by itself, or with its test.

    def clean(self) -> None:
        """Delete all that is left, the last first."""
        for path in reversed(self._paths):
            self.delete(path)


@pytest.fixture
def things(cluster: Cluster) -> Iterator[Things]:
    """Iterate over what makes objects and takes them away again."""
    made = Things(cluster)
    yield made
    made.clean()


def pod_json(name: str, *, claim: str = "", labels: dict[str, str] | None = None) -> JSON:
    """Return a Pod as kube-scheduler asks about it."""
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}] if claim else []
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels or {}},
        "spec": {
            "schedulerName": "nobody",
            "containers": [{"name": "main", "image": "busybox"}],
            "volumes": volumes,
        },
    }


def ask(live: LiveSnapshot, rule_set: CompiledRuleSet, pod: JSON) -> tuple[dict[str, str], dict[str, int]]:
    """Return the refused nodes with their reasons, and the raw scores of the others, from the Snapshot of now."""
    snapshot = live.snapshot()
    cycle = Cycle(pod=Pod.from_json(pod), snapshot=snapshot, now=NOW)
    answer = decide(rule_set, cycle, snapshot.table.all_rows())
    refused = {name: status.reason for name, status in answer.refused()}
    scored = [answer.names[position] for position in answer.scored.tolist()]
    raw = answer.scores[0].raw.tolist() if answer.scores else [0] * len(scored)
    return refused, dict(zip(scored, raw, strict=True))


def requiring(live: LiveSnapshot, **spec: Any) -> CompiledRuleSet:
    """Compile rules and have watched what they read."""
    rule_set = CompiledRuleSet(make_rule_set(**spec))
    live.require(rule_set.reads)
    assert live.wait_until_listed(rule_set.reads, 30.0) == frozenset()
    return rule_set


def test_a_claim_in_another_zone_keeps_the_pod_off_a_node(live: LiveSnapshot, things: Things) -> None:
    """As soon as the claim is seen; before that it isn't found."""
    rules = requiring(live, filters=[{"builtin": "NoVolumeZoneConflict"}])
    things.node("in-a", **{ZONE: "a"})
    things.node("in-b", **{ZONE: "b"})
    assert live.wait_for_nodes(["in-a", "in-b"], 30.0)
    pod = pod_json("p", claim="zoned")
    assert ask(live, rules, pod)[0]["in-b"] == 'persistentvolumeclaim "zoned" not found'
    things.volume("zoned-volume", zone="b", claim="zoned")
    assert eventually(lambda: "in-b" in ask(live, rules, pod)[1])
    assert ask(live, rules, pod)[0]["in-a"] == "node(s) had no available volume zone"
    live.require(frozenset())
    assert ask(live, rules, pod)[0] == {}


def test_a_node_takes_as_many_volumes_as_its_csinode_says(live: LiveSnapshot, things: Things) -> None:
    """Volumes of Pods count and attached ones do; a Pod that goes makes room."""
    rules = requiring(live, filters=[{"builtin": "MaxVolumeCount"}])
    things.node("full")
    drivers = [{"name": DRIVER, "nodeID": "full", "allocatable": {"count": 1}}]
    things.make(f"{STORAGE}/csinodes", "storage.k8s.io/v1", "CSINode", "full", spec={"drivers": drivers})
    for name in ("one", "two", "three"):
        things.volume(f"limited-{name}", claim=f"limited-{name}")
    pod = pod_json("p", claim="limited-two")
    assert eventually(lambda: "full" in ask(live, rules, pod)[1])
    things.pod("uses-one", node="full", claim="limited-one")
    refused = {"full": "node(s) exceed max volume count"}
    assert eventually(lambda: ask(live, rules, pod)[0] == refused)
    assert ask(live, rules, pod_json("q", claim="limited-one"))[0] == {}
    things.delete(f"{HERE}/pods/uses-one")
    assert eventually(lambda: ask(live, rules, pod)[0] == {})
    source = {"persistentVolumeName": "limited-three"}
    spec = {"attacher": DRIVER, "nodeName": "full", "source": source}
    things.make(f"{STORAGE}/volumeattachments", "storage.k8s.io/v1", "VolumeAttachment", "limited", spec=spec)
    assert eventually(lambda: ask(live, rules, pod)[0] == refused)


def test_pods_of_a_service_are_spread_while_there_is_the_service(live: LiveSnapshot, things: Things) -> None:
    """Without it the nodes are all the same."""
    rules = requiring(live, scores=[{"builtin": "SelectorSpreadPriority"}])
    labels = {"app": "spread"}
    pod = things.pod("spread-one", node="node-1", labels=labels)
    assert live.wait_for_pods_version(pod["metadata"]["resourceVersion"], 30.0)
    assert pod["metadata"]["uid"] in {each.uid for each in live.snapshot().nodes["node-1"].pods}
    asked = pod_json("p", labels=labels)
    assert set(ask(live, rules, asked)[1].values()) == {100}
    ports = [{"port": 80}]
    things.make(f"{HERE}/services", "v1", "Service", "spread", spec={"selector": labels, "ports": ports})
    assert eventually(lambda: ask(live, rules, asked)[1]["node-1"] == 0)
    assert ask(live, rules, asked)[1]["node-2"] == 100
    things.delete(f"{HERE}/services/spread")
    assert eventually(lambda: ask(live, rules, asked)[1]["node-1"] == 100)


def test_a_disruption_budget_comes_with_what_its_controller_says(live: LiveSnapshot, things: Things) -> None:
    """Its status changes by itself."""
    live.require(frozenset({DISRUPTION_BUDGETS}))
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
    things.make(path, "policy/v1", "PodDisruptionBudget", "guarded", spec=spec)

    def budgets() -> dict[str, Any]:
        objects = live.snapshot().knowing(frozenset({DISRUPTION_BUDGETS}))
        return dict(objects.disruption_budgets.get("default", {})) if objects else {}

    assert eventually(lambda: "guarded" in budgets())
    assert budgets()["guarded"].spec.selector.match_labels == {"app": "guarded"}
    for name in ("guarded-1", "guarded-2"):
        things.pod(name, node="node-1", labels={"app": "guarded"})
    assert eventually(lambda: budgets()["guarded"].status.disruptions_allowed == 1, seconds=60.0)


def test_claims_are_followed_again_after_the_api_server_was_killed(
    cluster: Cluster, live: LiveSnapshot, things: Things
) -> None:
    """Nothing that is gone stays, nothing that came is missed, and while it is away that is said."""
    live.require(frozenset({CLAIMS, SERVICES}))
    assert live.wait_until_listed(frozenset({CLAIMS, SERVICES}), 30.0) == frozenset()
    things.volume("survives", claim="survives")
    things.volume("vanishes", claim="vanishes")

    def claims() -> set[str]:
        objects = live.snapshot().objects
        return {name for _, name in objects.claims} if objects else set()

    assert eventually(lambda: claims() >= {"survives", "vanishes"})
    killed = cluster.api_server_pid()
    cluster.kill_api_server()
    assert eventually(lambda: CLAIMS in live.failing())
    assert claims() >= {"survives", "vanishes"}
    assert eventually(lambda: cluster.api_server_pid() != killed and cluster.answers(), seconds=60.0)
    things.delete(f"{HERE}/persistentvolumeclaims/vanishes")
    things.volume("comes", claim="comes")
    assert eventually(lambda: "comes" in claims() and "vanishes" not in claims(), seconds=60.0)
    assert eventually(lambda: live.failing() == frozenset(), seconds=60.0)
    assert max(live.ages().values()) < 120.0
