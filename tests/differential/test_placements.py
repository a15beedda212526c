"""The program that judges placements finds each fault that a state has, and no other."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_node, make_pod
from tests.differential.plugins import build
from tests.placements import check

Json = dict[str, Any]
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def program() -> Path:
    return build()


def on(node: str, name: str, **more: Any) -> Json:
    return make_pod(name, nodeName=node, **more)


def port(number: int) -> Json:
    ports = [{"containerPort": number, "hostPort": number}]
    return {"containers": [{"name": "main", "image": "example.org/web:1", "ports": ports}]}


def spread(key: str) -> Json:
    selector = {"matchLabels": {"app": "spread"}}
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"topologySpreadConstraints": [constraint]}


def apart(key: str = HOSTNAME) -> Json:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "apart"}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def together() -> Json:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "together"}}}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


NODES = [
    make_node("n1", labels={ZONE: "a"}),
    make_node("n2", labels={ZONE: "b"}),
    make_node("n3", labels={ZONE: "b"}, taints=[{"key": "pool", "value": "special", "effect": "NoSchedule"}]),
]
SPREAD, APART, TOGETHER = {"app": "spread"}, {"app": "apart"}, {"app": "together"}
GOOD: list[Json] = [
    on("n1", "large-1", requests={"cpu": "2"}),
    on("n1", "large-2", requests={"cpu": "2"}),
    on("n2", "port-1", **port(80)),
    on("n1", "port-2", **port(80)),
    on("n1", "spread-1", labels=SPREAD, **spread(ZONE)),
    on("n2", "spread-2", labels=SPREAD, **spread(ZONE)),
    on("n2", "spread-3", labels=SPREAD, **spread(ZONE)),
    on("n1", "apart-1", labels=APART, **apart()),
    on("n2", "apart-2", labels=APART, **apart()),
    on("n2", "together-1", labels=TOGETHER, **together()),
    on("n3", "together-2", labels=TOGETHER, tolerations=[{"operator": "Exists"}], **together()),
    on("n2", "chosen", nodeSelector={ZONE: "b"}),
]
WAITING: list[Json] = [
    make_pod("too-large", requests={"cpu": "5"}),
    make_pod("nowhere", nodeSelector={ZONE: "c"}),
    make_pod("gated", schedulingGates=[{"name": "wait"}]),
]


def state(*more: Json, **others: Any) -> Json:
    return {"nodes": NODES, "pods": [*GOOD, *WAITING, *more], **others}


def test_a_state_without_faults_has_none(program: Path) -> None:
    found = check(program, state())

    assert found.faults == {}
    assert (found.placed, found.waiting) == (len(GOOD), 2)


MISPLACED = {
    "more is requested than the node has": (on("n1", "wrong", requests={"cpu": "1"}), "NodeResourcesFit"),
    "the taint isn't tolerated": (on("n3", "wrong"), "TaintToleration"),
    "the host port is in use": (on("n2", "wrong", **port(80)), "NodePorts"),
    "the node isn't one that was asked for": (on("n1", "wrong", nodeSelector={ZONE: "b"}), "NodeAffinity"),
    "the domains are too uneven": (on("n2", "wrong", labels=SPREAD, **spread(ZONE)), "PodTopologySpread"),
    "another Pod is to be away": (on("n1", "wrong", labels=APART, **apart()), "InterPodAffinity"),
    "a Pod that has to be there is elsewhere": (on("n1", "wrong", **together()), "InterPodAffinity"),
}


@pytest.mark.parametrize("fault", MISPLACED)
def test_a_pod_where_it_may_not_be_is_found(program: Path, fault: str) -> None:
    pod, plugin = MISPLACED[fault]

    found = check(program, state(pod))

    said = {entry["pod"]: entry for entry in found.misplaced}
    assert plugin in said["default/wrong"]["plugins"]
    assert {name for entry in found.misplaced for name in entry["plugins"]} == {plugin}
    assert found.faults.keys() == {"misplaced"}


def test_a_pod_on_a_node_that_takes_no_pods_is_found(program: Path) -> None:
    closed = {**state(), "nodes": [{**node, "spec": {"unschedulable": True}} for node in NODES]}

    found = check(program, closed)

    tolerant = {"default/together-2"}
    assert {entry["pod"] for entry in found.misplaced} == {
        f"default/{pod['metadata']['name']}" for pod in GOOD
    } - tolerant
    assert {name for entry in found.misplaced for name in entry["plugins"]} == {"NodeUnschedulable"}


def test_a_pod_on_a_node_that_is_not_there_is_found(program: Path) -> None:
    found = check(program, state(on("gone", "wrong")))

    assert found.faults == {"misplaced": [{"pod": "default/wrong", "node": "gone", "plugins": {}}]}


def test_both_of_two_pods_with_one_port_are_found(program: Path) -> None:
    found = check(program, {"nodes": NODES, "pods": [on("n1", "first", **port(80)), on("n1", "second", **port(80))]})

    assert [entry["pod"] for entry in found.misplaced] == ["default/first", "default/second"]


def test_a_claim_for_one_pod_that_two_have_is_found(program: Path) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    claim = {
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOncePod"], "volumeName": "data"},
    }
    users = [on("n1", "first", volumes=volumes), on("n2", "second", volumes=volumes)]
    volume = {"metadata": {"name": "data"}, "spec": {"capacity": {"storage": "1Gi"}}}
    kinds = {"nodes": NODES, "persistentVolumeClaims": [claim], "persistentVolumes": [volume]}

    both, one = (check(program, {**kinds, "pods": pods}) for pods in (users, users[:1]))

    assert {name for entry in both.misplaced for name in entry["plugins"]} == {"VolumeRestrictions"}
    assert len(both.misplaced) == 2
    assert one.faults == {}


def test_a_pod_that_has_ended_takes_no_place(program: Path) -> None:
    ended = on("n1", "ended", requests={"cpu": "4"})
    ended["status"] = {"phase": "Succeeded"}

    assert check(program, state(ended)).faults == {}


def test_a_pod_that_waits_and_would_fit_is_found_with_its_nodes(program: Path) -> None:
    found = check(program, state(make_pod("forgotten", requests={"cpu": "1"})))

    assert found.faults == {"left": [{"pod": "default/forgotten", "nodes": ["n2"]}]}


def test_a_pod_that_is_being_deleted_is_not_left(program: Path) -> None:
    pod = make_pod("going")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    assert check(program, state(pod)).faults == {}


def test_pods_of_other_schedulers_count_and_are_not_judged(program: Path) -> None:
    theirs = [on("n2", f"theirs-{number}", requests={"cpu": "2"}, schedulerName="other") for number in range(2)]
    waiting = make_pod("waiting", requests={"cpu": "1"}, schedulerName="other")
    ours = on("n2", "ours", requests={"cpu": "1"})

    found = check(program, state(*theirs, waiting, ours, schedulerNames=["berth"]))

    assert [entry["pod"] for entry in found.misplaced] == ["default/ours"]
    assert found.faults.keys() == {"misplaced"}


def scheduled(pod: Json, node: str, **more: Any) -> Json:
    return {
        "metadata": {"name": f"{pod['metadata']['name']}.1", "namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reason": "Scheduled",
        "note": f"Successfully assigned default/{pod['metadata']['name']} to {node}",
        "regarding": {"kind": "Pod", "namespace": "default", "uid": pod["metadata"]["uid"]},
        **more,
    }


def test_a_pod_that_events_or_a_watch_show_once_was_bound_once(program: Path) -> None:
    first = GOOD[0]
    seen = [{"uid": first["metadata"]["uid"], "node": "n1"}]
    other = scheduled(WAITING[0], "n1", reason="FailedScheduling", note="0/3 nodes are available: 3 too small.")

    assert check(program, state(events=[scheduled(first, "n1"), other, other], seen=seen)).faults == {}


AGAIN = {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}
TWICE = {
    "two events": {"events": [scheduled(GOOD[0], "n1")] * 2},
    "an event that was repeated": {"events": [scheduled(GOOD[0], "n1", series=AGAIN)]},
    "an event with another node": {"events": [scheduled(GOOD[0], "n2")]},
    "a watch with another node": {"seen": [{"uid": GOOD[0]["metadata"]["uid"], "node": "n2"}]},
}


@pytest.mark.parametrize("how", TWICE)
def test_a_pod_that_was_bound_twice_is_found_by(program: Path, how: str) -> None:
    found = check(program, state(**TWICE[how]))

    assert [entry["pod"] for entry in found.bound_twice] == ["default/large-1"]
    assert found.faults.keys() == {"bound twice"}


def test_a_pod_that_was_deleted_and_bound_twice_is_found(program: Path) -> None:
    seen = [{"uid": "uid-of-old", "node": "n1"}, {"uid": "uid-of-old", "node": "n2"}]

    assert check(program, state(seen=seen)).bound_twice == [
        {"pod": "uid-of-old", "nodes": ["n1", "n2"], "scheduled": 0}
    ]


def test_a_pod_that_is_lost_is_found(program: Path) -> None:
    uids = [pod["metadata"]["uid"] for pod in (*GOOD, *WAITING)]

    assert check(program, state(created=[*uids, "uid-lost"])).faults == {"lost": ["uid-lost"]}


def test_each_pod_is_judged_beside_the_same_others(program: Path) -> None:
    """Taking a Pod off its node and putting it back leaves the state as it was: the order doesn't matter."""
    forwards = state(*(pod for pod, _ in MISPLACED.values()))
    for number, pod in enumerate(forwards["pods"][-len(MISPLACED) :]):
        pod["metadata"] = {**pod["metadata"], "name": f"wrong-{number}", "uid": f"uid-wrong-{number}"}
    backwards = {**deepcopy(forwards), "pods": forwards["pods"][::-1]}

    one, other = check(program, forwards), check(program, backwards)

    assert len(one.misplaced) >= len(MISPLACED)
    assert sorted(one.misplaced, key=lambda entry: entry["pod"]) == sorted(
        other.misplaced, key=lambda entry: entry["pod"]
    )


@pytest.mark.parametrize(
    "wrong", [{"podz": []}, {"pods": [make_pod("a"), make_pod("a")]}], ids=["misspelt", "the same UID twice"]
)
def test_a_state_that_can_not_be_read_is_refused(program: Path, wrong: Json) -> None:
    with pytest.raises(ValueError, match="reading the state"):
        check(program, wrong)
