"""Templates of Deployments that the cluster has."""

import json
from typing import Any

import pytest

from policies.engine.objects.owners import workload_of
from scheduler.scenario import ScenarioError, rules_of, template_of_deployment, work_out
from tests.component.scenario.cases import DEPLOYMENT, POD_SPEC, cluster

pytestmark = pytest.mark.django_db


class Server:
    """Stands in for the API server."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def get(self, *, path: str, timeout_seconds: float, query: Any = None) -> bytes:
        del timeout_seconds
        kind = next(each for each in ("deployments", "replicasets", "pods") if f"/{each}" in path)
        assert query == ({"fieldSelector": "spec.nodeName=,status.phase=Pending"} if kind == "pods" else None)
        return json.dumps(self._answers.get(kind, {})).encode()


def test_a_deployment_of_the_cluster_is_scaled_by_what_is_missing() -> None:
    own = [{"uid": "u1", "kind": "Deployment", "name": "web", "controller": True}]
    template = {"metadata": {"labels": {"app": "web", "pod-template-hash": "abc"}}, "spec": POD_SPEC}
    sets = [
        {"metadata": {"name": "web-old", "uid": "u2", "creationTimestamp": "2026-01-01", "ownerReferences": own},
         "spec": {"template": {"spec": {}}}},
        {"metadata": {"name": "web-abc", "uid": "u3", "creationTimestamp": "2026-01-02", "ownerReferences": own},
         "spec": {"template": template}},
        {"metadata": {"name": "other", "uid": "u4"}, "spec": {"template": {}}},
    ]  # fmt: skip
    deployment = {"metadata": {"name": "web", "uid": "u1"}, "spec": {"replicas": 2, "template": template}}
    server: Any = Server(deployments=deployment, replicasets={"items": sets})
    made = template_of_deployment(server, "shop/web")
    found = work_out(made, 5, rules_of(None), cluster())
    assert (found.running, found.pods, found.live.fits, found.drafted) == (2, 3, 3, None)
    owner = made.pods(1)[0].metadata.controller
    assert owner is not None
    assert (owner.kind, owner.name, owner.uid) == ("ReplicaSet", "web-abc", "u3")


def test_a_deployment_that_was_rolled_back_makes_pods_of_the_older_replica_set_again() -> None:
    own = [{"uid": "u1", "kind": "Deployment", "name": "web", "controller": True}]
    sets = [
        {"metadata": {"name": f"web-{name}", "uid": name, "creationTimestamp": at, "ownerReferences": own,
                      "annotations": {"deployment.kubernetes.io/revision": revision}},
         "spec": {"template": {"metadata": {"labels": {"version": name}}, "spec": POD_SPEC}}}
        for name, at, revision in (("one", "2026-01-01", "10"), ("two", "2026-01-02", "9"), ("odd", "2026-01-03", "x"))
    ]  # fmt: skip
    server: Any = Server(
        deployments={"metadata": {"name": "web", "uid": "u1"}, "spec": {"replicas": 0, "template": {}}},
        replicasets={"items": sets},
    )
    assert template_of_deployment(server, "shop/web").pods(1)[0].labels["version"] == "one"


def test_pods_of_a_deployment_that_wait_are_placed_with_those_that_are_missing() -> None:
    """They have no node that the Snapshot could count them on."""
    own = [{"uid": "u1", "kind": "Deployment", "name": "web", "controller": True}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": POD_SPEC}
    sets = [
        {"metadata": {"name": name, "uid": name, "ownerReferences": own}, "spec": {"template": template}}
        for name in ("web-abc", "web-old")
    ]
    waiting = [
        {"metadata": {"name": f"p{place}", "ownerReferences": [{"uid": uid, "controller": True}], **more}}
        for place, (uid, more) in enumerate(
            [
                ("web-abc", {}),
                ("web-old", {}),
                ("other", {}),
                ("web-abc", {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
            ]
        )
    ]
    server: Any = Server(
        deployments={"metadata": {"name": "web", "uid": "u1"}, "spec": {"replicas": 3, "template": template}},
        replicasets={"items": sets},
        pods={"items": waiting},
    )
    found = work_out(template_of_deployment(server, "shop/web"), 3, rules_of(None), cluster())
    assert (found.running, found.pods, found.live.fits) == (1, 2, 2)


def test_a_deployment_that_made_nothing_yet_is_taken_by_its_own_template() -> None:
    deployment = {"metadata": {"name": "web", "uid": "u1"}, "spec": DEPLOYMENT["spec"]}
    server: Any = Server(deployments=deployment, replicasets={"items": []})
    assert workload_of(template_of_deployment(server, "shop/web").pods(1)[0]) == "Deployment/shop/web"
    with pytest.raises(ScenarioError, match="name a Deployment as NAMESPACE/NAME"):
        template_of_deployment(server, "shop/")
