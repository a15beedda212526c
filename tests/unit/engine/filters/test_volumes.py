"""Filters about volumes."""

from typing import Any

import pytest

from policies.engine.status import Code, Status
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import (
    JSON,
    REGION,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    ZONE,
    on,
    refused,
    snapshot_of,
    verdicts,
)

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"


def using(*volumes: JSON, name: str = "p") -> JSON:
    return make_pod(name, volumes=[{"name": f"v{i}", **volume} for i, volume in enumerate(volumes)])


def claiming(*names: str, name: str = "p") -> JSON:
    return using(*({"persistentVolumeClaim": {"claimName": claim}} for claim in names), name=name)


def claim(name: str, **spec: Any) -> JSON:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


class TestNoDiskConflict:
    @pytest.mark.parametrize(
        ("wanted", "used", "conflict"),
        [
            ({"gcePersistentDisk": {"pdName": "d"}}, {"gcePersistentDisk": {"pdName": "d"}}, True),
            ({"gcePersistentDisk": {"pdName": "d"}}, {"gcePersistentDisk": {"pdName": "e"}}, False),
            (
                {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
                {"gcePersistentDisk": {"pdName": "d", "readOnly": True}},
                False,
            ),
            ({"gcePersistentDisk": {"pdName": "d", "readOnly": True}}, {"gcePersistentDisk": {"pdName": "d"}}, True),
            (
                {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
                {"awsElasticBlockStore": {"volumeID": "v", "readOnly": True}},
                True,
            ),
            ({"iscsi": {"iqn": "q", "lun": 0}}, {"iscsi": {"iqn": "q", "lun": 1}}, True),
            ({"iscsi": {"iqn": "q", "readOnly": True}}, {"iscsi": {"iqn": "q", "readOnly": True}}, False),
            (
                {"rbd": {"monitors": ["a", "b"], "pool": "p", "image": "i"}},
                {"rbd": {"monitors": ["b", "c"], "pool": "p", "image": "i"}},
                True,
            ),
            (
                {"rbd": {"monitors": ["a"], "pool": "p", "image": "i"}},
                {"rbd": {"monitors": ["c"], "pool": "p", "image": "i"}},
                False,
            ),
            (
                {"rbd": {"monitors": ["a"], "pool": "p", "image": "i"}},
                {"rbd": {"monitors": ["a"], "pool": "q", "image": "i"}},
                False,
            ),
            ({"emptyDir": {}}, {"emptyDir": {}}, False),
        ],
    )
    def test_the_same_disk_may_be_shared_only_read_only(self, wanted: JSON, used: JSON, conflict: bool) -> None:
        snapshot = snapshot_of([make_node("n1"), make_node("n2")], [on("n1", using(used, name="e"))])
        said = verdicts("VolumeRestrictions", using(wanted), snapshot)
        assert said["n1"] == (Status(UNSCHEDULABLE, "node(s) had no available disk") if conflict else None)
        assert said["n2"] is None

    def test_a_claim_for_one_pod_only_is_taken_wherever_that_pod_is(self) -> None:
        claims = [claim("data", accessModes=["ReadWriteOncePod"])]
        nodes = [make_node("n1"), make_node("n2")]
        free = snapshot_of(nodes, persistentVolumeClaims=claims)
        taken = snapshot_of(nodes, [on("n1", claiming("data", name="e"))], persistentVolumeClaims=claims)
        assert refused("NoDiskConflict", claiming("data"), free) == set()
        said = verdicts("NoDiskConflict", claiming("data"), taken)
        assert said["n2"] == Status(
            UNSCHEDULABLE,
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
        )

    def test_other_claims_may_be_shared(self) -> None:
        claims = [claim("data", accessModes=["ReadWriteOnce"])]
        snapshot = snapshot_of([make_node("n1")], [on("n1", claiming("data", name="e"))], persistentVolumeClaims=claims)
        assert not refused("NoDiskConflict", claiming("data"), snapshot)

    def test_a_claim_of_the_same_name_elsewhere_does_not_count(self) -> None:
        claims = [claim("data", accessModes=["ReadWriteOncePod"])]
        other = on("n1", claiming("data", name="e"), namespace="other")
        assert not refused(
            "NoDiskConflict", claiming("data"), snapshot_of([make_node("n1")], [other], persistentVolumeClaims=claims)
        )

    def test_a_claim_that_does_not_exist_can_not_be_helped(self) -> None:
        said = verdicts("NoDiskConflict", claiming("gone"), snapshot_of([make_node("n1")], services=[]))
        assert said["n1"] == Status(UNRESOLVABLE, 'persistentvolumeclaim "gone" not found')

    def test_claims_are_left_alone_where_nobody_watches_them(self) -> None:
        assert not refused("NoDiskConflict", claiming("gone"), snapshot_of([make_node("n1")]))


class TestNoVolumeZoneConflict:
    NODES = (
        make_node("n1", labels={ZONE: "a", REGION: "r"}),
        make_node("n2", labels={ZONE: "b"}),
        make_node("n3", labels={BETA_ZONE: "a"}),
        make_node("n4"),
    )

    def world(self, claims: list[JSON], volumes: list[JSON] = (), classes: list[JSON] = ()) -> Any:
        return snapshot_of(
            list(self.NODES),
            persistentVolumeClaims=claims,
            persistentVolumes=list(volumes),
            storageClasses=list(classes),
        )

    @pytest.mark.parametrize(
        ("labels", "expected"),
        [
            ({ZONE: "a"}, {"n2", "n3"}),
            ({ZONE: "a__b"}, {"n3"}),
            ({ZONE: " a __b"}, {"n3"}),
            ({ZONE: "a__"}, set()),
            ({BETA_ZONE: "a"}, {"n2"}),
            ({REGION: "r"}, {"n2", "n3"}),
            ({ZONE: "a", REGION: "other"}, {"n1", "n2", "n3"}),
            ({}, set()),
        ],
        ids=[
            "a zone",
            "one of two zones",
            "spaces don't matter",
            "a label with an empty part is passed over",
            "a node's GA label stands in for the beta one",
            "a region",
            "zone and region",
            "no labels",
        ],
    )
    def test_the_node_is_where_the_volume_is(self, labels: dict[str, str], expected: set[str]) -> None:
        snapshot = self.world([claim("c", volumeName="v")], [{"metadata": {"name": "v", "labels": labels}}])
        assert refused("VolumeZone", claiming("c"), snapshot) == expected

    def test_the_reason_is_kube_schedulers(self) -> None:
        snapshot = self.world([claim("c", volumeName="v")], [{"metadata": {"name": "v", "labels": {ZONE: "z"}}}])
        said = verdicts("NoVolumeZoneConflict", claiming("c"), snapshot)
        assert said["n1"] == Status(UNRESOLVABLE, "node(s) had no available volume zone")

    @pytest.mark.parametrize(
        ("spec", "mode", "reason"),
        [
            ({"storageClassName": "fast"}, "WaitForFirstConsumer", ""),
            ({"storageClassName": "fast"}, "Immediate", "PersistentVolume had no name"),
            ({"storageClassName": "fast"}, None, 'VolumeBindingMode not set for StorageClass "fast"'),
            ({"storageClassName": "gone"}, "Immediate", 'storageclass.storage.k8s.io "gone" not found'),
            ({}, "Immediate", "PersistentVolumeClaim had no pv name and storageClass name"),
            ({"volumeName": "gone"}, "Immediate", 'persistentvolume "gone" not found'),
        ],
    )
    def test_an_unbound_claim_passes_only_if_it_waits(self, spec: JSON, mode: str | None, reason: str) -> None:
        fast = {"metadata": {"name": "fast"}, "volumeBindingMode": mode}
        said = verdicts("NoVolumeZoneConflict", claiming("c"), self.world([claim("c", **spec)], classes=[fast]))
        assert set(said.values()) == {Status(UNRESOLVABLE, reason) if reason else None}

    def test_the_beta_annotation_names_the_class_first(self) -> None:
        waiting = {"metadata": {"name": "slow"}, "volumeBindingMode": "WaitForFirstConsumer"}
        annotated = claim("c", storageClassName="gone")
        annotated["metadata"]["annotations"] = {"volume.beta.kubernetes.io/storage-class": "slow"}
        assert not refused("NoVolumeZoneConflict", claiming("c"), self.world([annotated], classes=[waiting]))

    @pytest.mark.parametrize(
        ("name", "reason"),
        [("gone", 'persistentvolumeclaim "gone" not found'), ("", "PersistentVolumeClaim had no name")],
    )
    def test_a_claim_that_is_not_there_refuses_all(self, name: str, reason: str) -> None:
        said = verdicts("NoVolumeZoneConflict", claiming(name), self.world([]))
        assert set(said.values()) == {Status(UNRESOLVABLE, reason)}

    def test_claims_are_left_alone_where_nobody_watches_them(self) -> None:
        assert not refused("NoVolumeZoneConflict", claiming("gone"), snapshot_of(list(self.NODES)))


class TestMaxVolumeCount:
    def world(self, *there: JSON, limit: int | None = 2, **objects: list[JSON]) -> Any:
        claims = [claim(f"c{i}", volumeName=f"v{i}") for i in range(5)]
        volumes = [
            {"metadata": {"name": f"v{i}"}, "spec": {"csi": {"driver": "csi.one", "volumeHandle": f"h{i}"}}}
            for i in range(5)
        ]
        drivers = [{"name": "csi.one", "allocatable": None if limit is None else {"count": limit}}]
        return snapshot_of(
            [make_node("n1"), make_node("n2")],
            [on("n1", pod, name=f"e{i}", uid=f"e{i}") for i, pod in enumerate(there)],
            persistentVolumeClaims=[*claims, *objects.pop("claims", [])],
            persistentVolumes=[*volumes, *objects.pop("volumes", [])],
            csiNodes=[{"metadata": {"name": "n1"}, "spec": {"drivers": [*drivers, *objects.pop("drivers", [])]}}],
            **objects,
        )

    def test_a_node_takes_as_many_as_its_csi_node_says(self) -> None:
        one_there = claiming("c0")
        assert refused("MaxVolumeCount", claiming("c1"), self.world(one_there)) == set()
        said = verdicts("NodeVolumeLimits", claiming("c1", "c2"), self.world(one_there))
        assert said == {"n1": Status(UNSCHEDULABLE, "node(s) exceed max volume count"), "n2": None}

    def test_a_volume_that_is_there_already_counts_once(self) -> None:
        assert (
            refused("MaxCSIVolumeCountPred", claiming("c0", "c1"), self.world(claiming("c0"), claiming("c1"))) == set()
        )

    def test_no_limit_is_no_limit(self) -> None:
        everything = claiming("c0", "c1", "c2", "c3", "c4")
        assert refused("MaxVolumeCount", everything, self.world(limit=None)) == set()
        assert refused("MaxVolumeCount", everything, self.world()) == {"n1"}

    def test_a_limit_below_zero_takes_no_volume(self) -> None:
        assert refused("MaxVolumeCount", claiming("c0"), self.world(limit=-1)) == {"n1"}

    def test_attached_volumes_count_once(self) -> None:
        def attached(name: str, **spec: Any) -> JSON:
            return {"metadata": {"name": name}, "spec": {"attacher": "csi.one", "nodeName": "n1", **spec}}

        attachments = [
            attached("a", source={"persistentVolumeName": "v0"}),
            attached("b", source={"persistentVolumeName": "v1"}),
            attached("c", source={}),
            attached("d", source={"persistentVolumeName": "gone"}),
        ]
        assert refused("MaxVolumeCount", claiming("c2"), self.world(claiming("c0"), volumeAttachments=attachments)) == {
            "n1"
        }
        assert refused("MaxVolumeCount", claiming("c2"), self.world(claiming("c0"))) == set()

    def test_an_unbound_claim_counts_by_its_class(self) -> None:
        classes = [{"metadata": {"name": "fast"}, "provisioner": "csi.one"}]
        waiting = [claim("w", storageClassName="fast")]
        snapshot = self.world(claiming("c0"), claiming("c1"), claims=waiting, storageClasses=classes)
        assert refused("MaxVolumeCount", claiming("w"), snapshot) == {"n1"}

    def test_a_claim_without_class_or_volume_does_not_count(self) -> None:
        snapshot = self.world(claiming("c0"), claiming("c1"), claims=[claim("w"), claim("x", storageClassName="gone")])
        assert refused("MaxVolumeCount", claiming("w", "x"), snapshot) == set()

    @pytest.mark.parametrize(
        ("disk", "driver"),
        [
            ({"awsElasticBlockStore": {"volumeID": "vol-1"}}, "ebs.csi.aws.com"),
            ({"awsElasticBlockStore": {"volumeID": "aws://zone/vol-1"}}, "ebs.csi.aws.com"),
            ({"gcePersistentDisk": {"pdName": "d"}}, "pd.csi.storage.gke.io"),
            ({"azureDisk": {"diskURI": "u"}}, "disk.csi.azure.com"),
            ({"cinder": {"volumeID": "c"}}, "cinder.csi.openstack.org"),
            ({"portworxVolume": {"volumeID": "p"}}, "pxd.portworx.com"),
        ],
    )
    def test_in_tree_disks_count_for_the_drivers_that_replaced_them(self, disk: JSON, driver: str) -> None:
        full = [{"name": driver, "allocatable": {"count": 0}}]
        bound = [claim("t", volumeName="tree")]
        volumes = [{"metadata": {"name": "tree", "labels": {ZONE: "r-a-1"}}, "spec": disk}]
        snapshot = self.world(drivers=full, claims=bound, volumes=volumes)
        assert refused("MaxVolumeCount", using(disk), snapshot) == {"n1"}
        assert refused("MaxVolumeCount", claiming("t"), snapshot) == {"n1"}

    @pytest.mark.parametrize("disk", [{"azureFile": {}}, {"vsphereVolume": {}}, {"emptyDir": {}}])
    def test_other_in_tree_volumes_do_not_count(self, disk: JSON) -> None:
        assert refused("MaxVolumeCount", using(disk), self.world()) == set()

    @pytest.mark.parametrize(
        ("provisioner", "counts"),
        [("kubernetes.io/aws-ebs", True), ("kubernetes.io/azure-file", False)],
    )
    def test_in_tree_provisioners_count_for_their_drivers(self, provisioner: str, counts: bool) -> None:
        classes = [{"metadata": {"name": "old"}, "provisioner": provisioner}]
        full = [
            {"name": "ebs.csi.aws.com", "allocatable": {"count": 0}},
            {"name": provisioner, "allocatable": {"count": 0}},
        ]
        snapshot = self.world(drivers=full, claims=[claim("w", storageClassName="old")], storageClasses=classes)
        assert refused("MaxVolumeCount", claiming("w"), snapshot) == ({"n1"} if counts else set())

    def test_a_claim_that_does_not_exist_can_not_be_helped(self) -> None:
        said = verdicts("MaxVolumeCount", claiming("gone"), self.world())
        reason = 'looking up PVC default/gone: persistentvolumeclaim "gone" not found'
        assert set(said.values()) == {Status(UNRESOLVABLE, reason)}

    def test_an_ephemeral_volume_is_the_claim_named_after_the_pod(self) -> None:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}
        own = claim("p-v0", volumeName="v4")
        own["metadata"]["ownerReferences"] = [owner]
        pod = using({"ephemeral": {}})
        assert refused("MaxVolumeCount", pod, self.world(claiming("c0"), claiming("c1"), claims=[own])) == {"n1"}
        foreign = claim("p-v0", volumeName="v4")
        said = verdicts("MaxVolumeCount", pod, self.world(claims=[foreign]))
        assert {status.code for status in said.values() if status} == {Code.ERROR}

    @pytest.mark.parametrize(
        ("zones", "counts"),
        [("", True), ("r-a-1", True), ("r-a-1__r-a-2", True), ("r-a-1__r-b-1", False), ("a__b", False)],
    )
    def test_a_gce_disk_counts_unless_its_zones_make_no_sense(self, zones: str, counts: bool) -> None:
        tree = {"metadata": {"name": "t", "labels": {ZONE: zones}}, "spec": {"gcePersistentDisk": {"pdName": "d"}}}
        full = [{"name": "pd.csi.storage.gke.io", "allocatable": {"count": 0}}]
        snapshot = self.world(drivers=full, claims=[claim("t", volumeName="t")], volumes=[tree])
        assert refused("MaxVolumeCount", claiming("t"), snapshot) == ({"n1"} if counts else set())

    def test_the_claims_of_pods_that_are_there_need_not_exist(self) -> None:
        assert refused("MaxVolumeCount", claiming("c0"), self.world(claiming("gone"), claiming("c1"))) == set()

    def test_a_volume_without_a_handle_does_not_count(self) -> None:
        odd = {"metadata": {"name": "odd"}, "spec": {"csi": {"driver": "csi.one"}}}
        snapshot = self.world(claims=[claim("o", volumeName="odd")], volumes=[odd], limit=0)
        assert refused("MaxVolumeCount", claiming("o"), snapshot) == set()

    def test_a_pod_that_is_there_with_a_faulty_volume_is_an_error(self) -> None:
        said = verdicts("MaxVolumeCount", claiming("c0"), self.world(claiming("")))
        assert said["n1"] == Status(Code.ERROR, "PersistentVolumeClaim had no name")
        assert said["n2"] is None

    @pytest.mark.parametrize("kind", ["Dedicated", None, "Managed"])
    def test_an_azure_disk_must_be_managed(self, kind: str | None) -> None:
        said = verdicts("MaxVolumeCount", using({"azureDisk": {"diskURI": "u", "kind": kind}}), self.world())
        assert (said["n1"] is None) is (kind != "Dedicated")

    def test_a_faulty_claim_of_the_pod_is_an_error_everywhere(self) -> None:
        said = verdicts("MaxVolumeCount", claiming(""), self.world())
        assert set(said.values()) == {Status(Code.ERROR, "PersistentVolumeClaim had no name")}

    def test_a_faulty_disk_is_an_error_where_it_would_count(self) -> None:
        pod = using({"awsElasticBlockStore": {"volumeID": "aws://zone/other"}})
        said = verdicts("MaxVolumeCount", pod, self.world())
        assert said["n1"] is not None
        assert said["n1"].code is Code.ERROR
        assert said["n2"] is None

    def test_the_first_volume_that_can_not_be_read_says_why(self) -> None:
        disk = {"awsElasticBlockStore": {"volumeID": "aws://zone/other"}}
        gone = {"persistentVolumeClaim": {"claimName": "gone"}}
        for volumes, code in (([disk, gone], Code.ERROR), ([gone, disk], UNRESOLVABLE)):
            said = verdicts("MaxVolumeCount", using(*volumes), self.world())
            assert {name: status.code for name, status in said.items() if status} == {"n1": code, "n2": UNRESOLVABLE}

    def test_a_missing_claim_is_told_behind_one_that_an_in_tree_class_will_bind(self) -> None:
        classes = [{"metadata": {"name": "old"}, "provisioner": "kubernetes.io/aws-ebs"}]
        snapshot = self.world(claims=[claim("w", storageClassName="old")], storageClasses=classes)
        said = verdicts("MaxVolumeCount", claiming("w", "gone"), snapshot)
        reason = 'looking up PVC default/gone: persistentvolumeclaim "gone" not found'
        assert said == dict.fromkeys(("n1", "n2"), Status(UNRESOLVABLE, reason))

    def test_claims_are_left_alone_where_nobody_watches_them(self) -> None:
        assert not refused("MaxVolumeCount", claiming("gone"), snapshot_of([make_node("n1")]))
