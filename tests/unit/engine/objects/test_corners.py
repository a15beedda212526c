"""Corners that the other tests don't come by."""

from typing import Any

import msgspec

from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.csi import used_volumes
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.pod_spec import PodSpec, slim_spec
from policies.engine.objects.snapshot import Snapshot
from policies.engine.quantity import parse


def make_pod(**members: Any) -> Pod:
    return Pod.from_json({"metadata": {"name": "p", "uid": "u"}, **members})


def make_info(*pods: Pod) -> NodeInfo:
    return NodeInfo(Node.from_json({"metadata": {"name": "n1"}}), pods)


def test_a_pod_without_volumes_uses_none() -> None:
    assert used_volumes(make_info(make_pod(), make_pod(spec={"volumes": [{"name": "v"}]})), ClusterObjects()) == set()


def test_a_container_without_requests_stays_as_it_is() -> None:
    spec = msgspec.convert({"containers": [{"name": "a"}, {"name": "b", "resources": {}}]}, PodSpec)
    slim = slim_spec(spec)
    assert [container.name for container in slim.containers or ()] == ["a", "b"]


def test_a_resize_is_infeasible_only_by_its_own_condition() -> None:
    def requested(reason: str) -> int:
        conditions = [{"type": "Ready", "status": "True"}, {"type": "PodResizePending", "reason": reason}]
        statuses = [{"name": "a", "allocatedResources": {"cpu": "100m"}, "resources": {"requests": {"cpu": "100m"}}}]
        pod = make_pod(
            spec={"containers": [{"name": "a", "resources": {"requests": {"cpu": "2"}}}]},
            status={"conditions": conditions, "containerStatuses": statuses},
        )
        return make_info(pod).requested.get("cpu")

    assert requested("Deferred") == 2000
    assert requested("Infeasible") == 100


def test_a_column_that_nobody_asked_for_in_a_long_time_is_made_anew() -> None:
    snapshot = Snapshot.of([Node.from_json({"metadata": {"name": name}}) for name in ("n1", "n2")])
    assert snapshot.table.numbers("pods", lambda info: len(info.pods)).tolist() == [0, 0]
    for _ in range(600):
        snapshot = snapshot.assume(make_pod(), "n2")
    assert snapshot.table.numbers("pods", lambda info: len(info.pods)).tolist() == [0, 600]


def test_amounts_of_any_size_add_up_exactly() -> None:
    assert parse("1.5Gi").plus(parse("512Mi")).value() == 2 * 1024**3
    assert parse("1").plus(parse("1.5Gi")).value() == 1 + 3 * 512 * 1024**2
