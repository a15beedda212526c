"""Berth frees the node, and preempts the Pods, that kube-scheduler's own DefaultPreemption does."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.differential.plugins import Conversation, build
from tests.differential.preemption import Finding, compare_preemptions, decided, differences, report

CASES = max(int(os.environ.get("DIFFERENTIAL_CASES", "20000")) // 10, 2000)
SEED = int(os.environ.get("DIFFERENTIAL_SEED", "20260"))
SHOWN = 5

pytestmark = pytest.mark.timeout(max(1800, CASES // 5))


@pytest.fixture(scope="module")
def program() -> Path:
    return build()


@pytest.fixture(scope="module")
def compared(program: Path) -> tuple[list[Finding], Counter[str]]:
    return compare_preemptions(program, SEED, range(CASES))


def test_victims_and_node_are_those_of_kube_scheduler(
    program: Path, compared: tuple[list[Finding], Counter[str]]
) -> None:
    findings, _ = compared
    text = "\n\n".join(report(program, SEED, finding) for finding in findings[:SHOWN])
    assert not findings, f"{len(findings)} of {CASES} cases differ, for example:\n\n{text}"


def test_the_cases_are_mixed(compared: tuple[list[Finding], Counter[str]]) -> None:
    _, seen = compared

    assert seen["preempts"] > 400
    assert seen["can't preempt"] > 200
    assert seen["several candidates"] > 200
    assert seen["several victims"] > 200
    assert seen["a violated budget"] > 50
    for rarity in ("never", "still leaving", "a Pod yields", "fewer candidates wanted than there are"):
        assert seen[rarity] > 3, rarity


def test_a_nominated_pod_doesnt_count_for_a_spread_by_an_empty_selector_which_counts_no_others(program: Path) -> None:
    spread = {"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1, "labelSelector": {}}
    room = {"allocatable": {"pods": "5"}}
    case: dict[str, Any] = {
        "pod": {"metadata": {"name": "a", "uid": "a"}, "spec": {"topologySpreadConstraints": [spread]}},
        "nodes": [
            {"metadata": {"name": "n1", "labels": {"zone": "full"}}},
            {"metadata": {"name": "n2", "labels": {"zone": "free"}}, "status": room},
        ],
        "pods": [{"metadata": {"name": "b", "uid": "b"}, "spec": {}, "status": {"nominatedNodeName": "n2"}}],
        "offset": 0,
    }
    with Conversation(program, "preemption") as conversation:
        answer = conversation.ask(case)

    assert answer["feasible"] == []
    assert decided(case).feasible == ["n2"]
    assert not differences(case, answer)


def test_a_claim_that_a_pod_has_twice_frees_no_other_claim(program: Path) -> None:
    def running(name: str, priority: int, *claims: str) -> dict[str, Any]:
        volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": claim}} for n, claim in enumerate(claims)]
        spec = {"nodeName": "n1", "priority": priority, "volumes": volumes}
        return {"metadata": {"name": name, "uid": name}, "spec": spec}

    wanted = running("a", 100, "c1", "c2")
    del wanted["spec"]["nodeName"]
    case: dict[str, Any] = {
        "pod": wanted,
        "nodes": [{"metadata": {"name": "n1"}, "status": {"allocatable": {"pods": "5"}}}],
        "pods": [running("b", 0, "c1", "c1"), running("c", 50, "c2")],
        "persistentVolumeClaims": [
            {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "pv"}}
            for name in ("c1", "c2")
        ],
        "persistentVolumes": [{"metadata": {"name": "pv"}, "spec": {"csi": {"driver": "d", "volumeHandle": "h"}}}],
        "offset": 0,
    }
    with Conversation(program, "preemption") as conversation:
        answer = conversation.ask(case)

    assert answer["evicted"] == ["b"]
    assert {victim.uid for victim in decided(case).candidates[0].victims} == {"b", "c"}
    assert not differences(case, answer)
