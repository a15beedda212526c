"""What a scheduler that doesn't bind volumes and devices refuses."""

from typing import Any

import pytest

from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.filters import bound_volumes
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import RuleSet
from policies.engine.scheduling import default_profile
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import JSON, NOW, snapshot_of

BOUND = {"pv.kubernetes.io/bind-completed": "yes"}
CLASSES = [
    {"metadata": {"name": "late"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"},
    {"metadata": {"name": "soon"}, "provisioner": "x", "volumeBindingMode": "Immediate"},
]


def claim(name: str, *, annotations: dict[str, str] | None = None, deleted: bool = False, **spec: Any) -> JSON:
    metadata: JSON = {"name": name, "namespace": "default", "annotations": annotations or {}}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": spec}


def owned(claim: JSON, owner: JSON | None) -> JSON:
    references = [{"kind": "Pod", "name": "web-1", **owner}] if owner else []
    return claim | {"metadata": claim["metadata"] | {"ownerReferences": references}}


def volume(name: str, *zones: str) -> JSON:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": list(zones)}]}
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if zones else {}
    return {"metadata": {"name": name}, "spec": affinity}


def refusals(pod: JSON, snapshot: Snapshot) -> dict[str, str]:
    rules = CompiledRuleSet(RuleSet(name="alone"))
    rules.filters = [
        found for found in default_profile().filters if type(found[1]).__module__ == bound_volumes.__name__
    ]
    cycle = Cycle(pod=Pod.from_json(pod), snapshot=snapshot, now=NOW)
    answer = decide(rules, cycle, snapshot.table.all_rows(), scoring=False)
    return {name: status.reason for name, status in answer.refused()}


NODES = [make_node("a", labels={"zone": "a"}), make_node("b", labels={"zone": "b"})]
EPHEMERAL = make_pod("web-1", uid="u", volumes=[{"name": "v", "ephemeral": {}}, {"name": "e", "emptyDir": {}}])
USING = make_pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}])


@pytest.mark.parametrize(
    ("claims", "volumes", "reason"),
    [
        ([], [], bound_volumes.NO_CLAIM),
        ([claim("c", deleted=True, annotations=BOUND, volumeName="v")], [volume("v")], bound_volumes.CLAIM_GOES),
        ([claim("c", storageClassName="late")], [], bound_volumes.WAITING),
        ([claim("c", storageClassName="soon")], [], bound_volumes.UNBOUND),
        ([claim("c", storageClassName="gone")], [], bound_volumes.UNBOUND),
        ([claim("c", volumeName="v", storageClassName="soon")], [volume("v")], bound_volumes.UNBOUND),
        ([claim("c", volumeName="v", storageClassName="late")], [volume("v")], bound_volumes.UNBOUND),
        ([claim("c", volumeName="v", annotations=BOUND)], [], bound_volumes.NO_VOLUME),
    ],
)
def test_a_claim_that_nobody_has_bound_refuses_all_nodes(claims: list[JSON], volumes: list[JSON], reason: Any) -> None:
    snapshot = snapshot_of(NODES, persistentVolumeClaims=claims, persistentVolumes=volumes, storageClasses=CLASSES)

    assert refusals(USING, snapshot) == dict.fromkeys("ab", reason.reason)


@pytest.mark.parametrize("names", [("bound", "soon"), ("late", "soon"), ("bound", "late", "soon")])
def test_of_several_claims_the_reason_is_the_one_that_upstream_sees_first(names: tuple[str, ...]) -> None:
    pod = make_pod(volumes=[{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names])
    claims = [
        claim("bound", volumeName="v", annotations=BOUND),
        *(claim(name, storageClassName=name) for name in ("late", "soon")),
    ]
    snapshot = snapshot_of(NODES, persistentVolumeClaims=claims, persistentVolumes=[], storageClasses=CLASSES)
    absent = make_pod(
        volumes=[*pod["spec"]["volumes"], {"name": "a", "persistentVolumeClaim": {"claimName": "absent"}}]
    )

    assert refusals(pod, snapshot) == dict.fromkeys("ab", bound_volumes.UNBOUND.reason)
    assert refusals(absent, snapshot) == dict.fromkeys("ab", bound_volumes.NO_CLAIM.reason)


def test_a_node_that_does_not_reach_one_volume_says_so_before_another_that_is_missing() -> None:
    pod = make_pod(volumes=[{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("c", "d")])
    claims = [claim("c", volumeName="v", annotations=BOUND), claim("d", volumeName="gone", annotations=BOUND)]
    snapshot = snapshot_of(NODES, persistentVolumeClaims=claims, persistentVolumes=[volume("v", "a")])

    assert refusals(pod, snapshot) == {"a": bound_volumes.NO_VOLUME.reason, "b": bound_volumes.OUT_OF_REACH.reason}


def test_a_claim_that_has_lost_its_volume_refuses_all_nodes_though_another_has_that_name() -> None:
    lost = claim("c", annotations=BOUND, volumeName="v") | {"status": {"phase": "Lost"}}
    snapshot = snapshot_of(NODES, persistentVolumeClaims=[lost], persistentVolumes=[volume("v")])

    assert refusals(USING, snapshot) == dict.fromkeys("ab", bound_volumes.CLAIM_LOST.reason)


def test_a_claim_that_nobody_has_bound_is_said_before_what_nodes_lack() -> None:
    nodes = [make_node("full", cpu="0"), make_node("tainted", taints=[{"key": "t", "effect": "NoSchedule"}])]
    claims = [claim("c", storageClassName="soon")]
    snapshot = snapshot_of(nodes, persistentVolumeClaims=claims, persistentVolumes=[], storageClasses=CLASSES)
    cycle = Cycle(pod=Pod.from_json(USING), snapshot=snapshot, now=NOW)

    answer = decide(default_profile(), cycle, snapshot.table.all_rows(), scoring=False)

    said = {name: status.reason for name, status in answer.refused()}
    assert said == dict.fromkeys(("full", "tainted"), "pod has unbound immediate PersistentVolumeClaims")


def test_only_nodes_that_reach_the_bound_volumes_pass() -> None:
    claims = [claim("c", volumeName="v", annotations=BOUND), claim("d", volumeName="w", annotations=BOUND)]
    snapshot = snapshot_of(NODES, persistentVolumeClaims=claims, persistentVolumes=[volume("v", "a"), volume("w")])
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in "cd"]

    assert refusals(make_pod(volumes=volumes), snapshot) == {
        "b": "node(s) didn't match PersistentVolume's node affinity"
    }


def test_the_claim_of_an_ephemeral_volume_is_named_after_pod_and_volume() -> None:
    claims = [owned(claim("web-1-v", volumeName="v", annotations=BOUND), {"uid": "u", "controller": True})]
    snapshot = snapshot_of(NODES, persistentVolumeClaims=claims, persistentVolumes=[volume("v")])

    assert refusals(EPHEMERAL, snapshot) == {}


@pytest.mark.parametrize(
    "owner",
    [
        None,
        {"uid": "another's", "controller": True},
        {"uid": "u", "controller": False},
        {"uid": "", "controller": True},
    ],
)
def test_a_claim_of_that_name_that_was_not_made_for_the_pod_refuses_all_nodes(owner: JSON | None) -> None:
    made = owned(claim("web-1-v", volumeName="v", annotations=BOUND), owner)
    snapshot = snapshot_of(NODES, persistentVolumeClaims=[made], persistentVolumes=[volume("v")])

    assert refusals(EPHEMERAL, snapshot) == dict.fromkeys("ab", bound_volumes.NOT_OWNER.reason)


def test_claims_that_nobody_watches_yet_are_waited_for() -> None:
    assert refusals(USING, snapshot_of(NODES)) == dict.fromkeys("ab", bound_volumes.NOT_SEEN.reason)


def test_a_pod_that_wants_devices_is_refused_with_a_reason() -> None:
    pod = make_pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "gpu"}])

    assert refusals(pod, snapshot_of(NODES)) == dict.fromkeys("ab", bound_volumes.DEVICES.reason)


ZONE_A = {"key": "zone", "operator": "In", "values": ["a"]}
NAMED_B = {"key": "metadata.name", "operator": "In", "values": ["b"]}


@pytest.mark.parametrize(
    ("term", "refused"),
    [
        ({"matchFields": [NAMED_B]}, ""),
        ({"matchFields": [NAMED_B], "matchExpressions": [ZONE_A]}, "b"),
        ({"matchFields": [NAMED_B | {"values": ["a", "b"]}]}, "ab"),
        ({}, "ab"),
    ],
)
def test_fields_in_a_volumes_affinity_are_parsed_and_not_asked(term: JSON, refused: str) -> None:
    # What CheckNodeAffinity of component-helpers v0.36.3 says of each.
    of_node = {"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}
    claims = [claim("c", volumeName="v", annotations=BOUND)]
    snapshot = snapshot_of(NODES, persistentVolumeClaims=claims, persistentVolumes=[of_node])
    assert refusals(USING, snapshot) == dict.fromkeys(refused, bound_volumes.OUT_OF_REACH.reason)


ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION, BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
GKE_ZONE = "topology.gke.io/zone"
GCE = {"gcePersistentDisk": {"pdName": "d"}}
AWS = {"awsElasticBlockStore": {"volumeID": "vol-1"}}


def one_of(key: str, *values: str) -> JSON:
    return {"key": key, "operator": "In", "values": list(values)}


def disk(source: JSON, *asked: JSON, labels: dict[str, str] | None = None) -> JSON:
    affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": list(asked)}]}}}
    return {"metadata": {"name": "v", "labels": labels or {}}, "spec": source | (affinity if asked else {})}


def reached(found: JSON, labels: dict[str, str], *plugins: str) -> bool:
    """Return whether a node with these labels, where drivers are in the place of these plugins, reaches a volume."""
    said = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(plugins)} if plugins else None
    snapshot = snapshot_of(
        [make_node("n", labels=labels)],
        persistentVolumeClaims=[claim("c", volumeName="v", annotations=BOUND)],
        persistentVolumes=[found],
        csiNodes=[{"metadata": {"name": "n", "annotations": said}}],
    )
    return not refusals(USING, snapshot)


@pytest.mark.parametrize(
    ("source", "plugin", "zone"),
    [
        (GCE, "gce-pd", GKE_ZONE),
        (AWS, "aws-ebs", "topology.ebs.csi.aws.com/zone"),
        ({"cinder": {"volumeID": "d"}}, "cinder", "topology.cinder.csi.openstack.org/zone"),
        ({"azureDisk": {"diskName": "d", "diskURI": "/d"}}, "azure-disk", ZONE),
        ({"portworxVolume": {"volumeID": "d"}}, "portworx-volume", ZONE),
    ],
)
def test_a_volume_is_its_drivers_on_nodes_where_that_is_in_the_plugins_place(
    source: JSON, plugin: str, zone: str
) -> None:
    found = disk(source, one_of(ZONE, "a"))
    assert reached(found, {zone: "a"}, "kubernetes.io/other", f"kubernetes.io/{plugin}")
    assert not reached(found, {zone: "b"}, f"kubernetes.io/{plugin}")
    for elsewhere in ((), ("kubernetes.io/other",)):
        assert reached(found, {ZONE: "a"}, *elsewhere)
        assert reached(found, {zone: "a"}, *elsewhere) is (zone == ZONE)


@pytest.mark.parametrize(
    ("found", "labels", "said"),
    [
        pytest.param(disk(GCE), {}, True, id="asks for nothing"),
        pytest.param(disk(GCE, one_of(BETA_ZONE, "a")), {GKE_ZONE: "a"}, True, id="the beta zone"),
        pytest.param(disk(GCE, one_of(ZONE, "a")), {ZONE: "a"}, False, id="a node without the driver's label"),
        pytest.param(disk(GCE, labels={ZONE: "a"}), {GKE_ZONE: "a"}, True, id="a label alone"),
        pytest.param(disk(GCE, labels={ZONE: "a"}), {ZONE: "a"}, False, id="a label alone, elsewhere"),
        pytest.param(disk(GCE, labels={ZONE: "u-c-a__u-c-b"}), {GKE_ZONE: "u-c-b"}, True, id="two zones of a label"),
        pytest.param(disk(GCE, labels={ZONE: " "}), {}, True, id="an empty label"),
        pytest.param(disk(GCE, one_of("x", "1"), labels={ZONE: "a"}), {"x": "1"}, False, id="beside a label"),
        pytest.param(disk(GCE, one_of("x", "1"), labels={ZONE: "a"}), {"x": "1", GKE_ZONE: "a"}, True, id="both"),
        pytest.param(disk(GCE, one_of("x", "1")), {"x": "1"}, True, id="another label"),
        pytest.param(
            disk(GCE, {"key": ZONE, "operator": "Exists"}, labels={ZONE: "a"}),
            {ZONE: "b", GKE_ZONE: "a"},
            True,
            id="any zone, beside a label",
        ),
        pytest.param(
            disk(AWS, one_of(BETA_ZONE, "a"), one_of(BETA_REGION, "r")),
            {"topology.ebs.csi.aws.com/zone": "a", REGION: "r"},
            True,
            id="the beta region",
        ),
        pytest.param(
            disk(AWS, one_of(ZONE, "a"), one_of(BETA_REGION, "r")),
            {"topology.ebs.csi.aws.com/zone": "a", REGION: "r"},
            False,
            id="the beta region beside a stable zone",
        ),
        pytest.param(disk(GCE, labels={ZONE: "u-c-a__w-c-a"}), {GKE_ZONE: "u-c-a"}, False, id="zones of two regions"),
        pytest.param(
            disk({"azureDisk": {"diskName": "d", "kind": "Shared"}}), {}, False, id="a disk that no driver takes"
        ),
    ],
)
def test_a_volume_asks_for_the_labels_of_its_driver(found: JSON, labels: dict[str, str], said: bool) -> None:
    # What VolumeBinding of kube-scheduler v1.36.3 says of each; where it ends with an error, the node isn't reached.
    plugins = ("kubernetes.io/gce-pd", "kubernetes.io/aws-ebs", "kubernetes.io/azure-disk")
    assert reached(found, labels, *plugins) is said
