"""Which objects besides Nodes, Pods and Namespaces rules read."""

from typing import Any

import pytest

from policies.engine.decision import CompiledRevision, CompiledRuleSet
from policies.engine.objects.cluster_kinds import ALL_KINDS, CLAIMS, OWNERS, SERVICES, STORAGE_CLASSES, VOLUMES
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.ruleset import Revision
from tests.builders import make_node, make_pod, make_rule_set
from tests.unit.engine.objects.asking import HOSTNAME, snapshot_of, verdicts


def reads(**spec: Any) -> frozenset[str]:
    return CompiledRuleSet(make_rule_set(**spec)).reads


def test_a_rule_set_reads_what_its_rules_read() -> None:
    assert reads(filters=[{"builtin": "PodFitsResources"}, {"name": "f", "expression": "true"}]) == frozenset()
    assert reads(filters=[{"builtin": "VolumeZone"}]) == {CLAIMS, VOLUMES, STORAGE_CLASSES}
    both = reads(filters=[{"builtin": "NoDiskConflict"}], scores=[{"builtin": "ServiceSpreadingPriority"}])
    assert both == {CLAIMS, SERVICES}


def test_rules_that_are_off_read_nothing_and_shadow_ones_do() -> None:
    assert reads(filters=[{"builtin": "NoDiskConflict", "mode": "off"}]) == frozenset()
    assert reads(filters=[{"builtin": "NoDiskConflict", "mode": "shadow"}]) == {CLAIMS}


@pytest.mark.parametrize(
    ("arguments", "filtering", "scoring"),
    [
        ({}, frozenset(), OWNERS),
        ({"defaultingType": "List"}, frozenset(), frozenset()),
        (
            {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"},
                ],
            },
            OWNERS,
            frozenset(),
        ),
    ],
    ids=["the system's defaults", "no defaults", "defaults that filter"],
)
def test_spreading_reads_owners_only_where_defaults_apply(
    arguments: Any, filtering: frozenset[str], scoring: frozenset[str]
) -> None:
    assert reads(filters=[{"builtin": "EvenPodsSpread", "arguments": arguments}]) == filtering
    assert reads(scores=[{"builtin": "EvenPodsSpreadPriority", "arguments": arguments}]) == scoring


def test_a_revision_reads_what_its_rule_sets_read() -> None:
    revision = Revision(
        number=1,
        rule_sets=[
            make_rule_set(name="a", filters=[{"builtin": "NoDiskConflict"}]),
            make_rule_set(name="b", scores=[{"builtin": "SelectorSpread"}]),
        ],
    )
    assert CompiledRevision(revision).reads == {CLAIMS} | OWNERS
    assert CompiledRevision(Revision(number=0)).reads == frozenset()


@pytest.mark.parametrize("name", ["NoDiskConflict", "NoVolumeZoneConflict", "MaxVolumeCount"])
def test_rules_about_claims_leave_them_to_others_until_all_that_they_read_is_known(name: str) -> None:
    pod = make_pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}])
    needed = reads(filters=[{"builtin": name}])
    for unknown in needed:
        snapshot = snapshot_of([make_node("n1")])
        knowing = ClusterObjects.unknown().changed({}, known=ALL_KINDS - {unknown})
        assert verdicts(name, pod, snapshot.changed({}, objects=knowing)) == {"n1": None}
    said = verdicts(name, pod, snapshot.changed({}, objects=knowing.changed({}, known=needed)))["n1"]
    assert said is not None
    assert '"gone" not found' in said.reason
