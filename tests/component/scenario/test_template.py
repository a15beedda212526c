"""Templates: the Pods that the manifest of a Pod or of a workload makes."""

from typing import Any

import pytest

from policies.engine.objects.owners import workload_of
from scheduler.scenario import ScenarioError, rules_of, template_of, work_out
from tests.builders import make_assignment, make_pod, make_rule_set
from tests.component.pages import publish_all
from tests.component.scenario.cases import DEPLOYMENT, POD_SPEC, REQUIRED, cluster

pytestmark = pytest.mark.django_db


def test_pods_of_a_deployment_are_of_its_workload_and_ask_for_their_limits() -> None:
    first, second = template_of(DEPLOYMENT).pods(2)
    assert workload_of(first) == workload_of(second) == "Deployment/shop/web"
    assert (first.namespace, first.labels["app"], first.requests.get("cpu")) == ("shop", "web", 1000)
    assert first.uid != second.uid


def test_rules_see_a_single_pod_under_its_own_name() -> None:
    rule = {"name": "short", "expression": "size(pod.metadata.name) < 5", "reason": "too long"}
    publish_all(make_rule_set("short", filters=[rule]), make_assignment("all", "short"))
    pod = template_of({"kind": "Pod", "metadata": {"name": "web"}, "spec": POD_SPEC})
    assert work_out(pod, 1, rules_of(None), cluster()).live.fits == 1
    assert [each.name for each in pod.pods(2)] == ["web-scenario-1", "web-scenario-2"]
    assert work_out(template_of(DEPLOYMENT), 1, rules_of(None), cluster()).live.fits == 0


def test_pods_made_of_a_pod_are_of_its_workload() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "u", "controller": True}
    pod = make_pod("web-abc-x", namespace="shop", labels={"pod-template-hash": "abc"})
    pod["metadata"]["ownerReferences"] = [owner]
    publish_all(make_rule_set("web"), make_assignment("deployments", "web", match={"ownerKinds": ["Deployment"]}))
    found = work_out(template_of(pod), 2, rules_of(None), cluster())
    assert found.live.rule_set == "web"
    assert workload_of(template_of(pod).pods(1)[0]) == "Deployment/shop/web"


def test_pods_of_something_that_the_cluster_has_are_its_own() -> None:
    found = {**DEPLOYMENT, "kind": "StatefulSet", "metadata": {"name": "web", "uid": "u1"}}
    assert workload_of(template_of(found).pods(1)[0]) == "u1"
    assert workload_of(template_of({**found, "metadata": {"name": "web"}}).pods(1)[0]) == "scenario"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ([], "no object"),
        ({"kind": "Service", "metadata": {}}, "a Service makes no Pods"),
        ({"kind": "Deployment", "metadata": {}, "spec": {}}, "template is missing"),
        ({"kind": "Pod", "metadata": {}}, "spec is missing"),
        ({"kind": "Pod", "metadata": 3, "spec": {}}, "metadata is missing from the manifest, or no object"),
    ],
)
def test_what_makes_no_pods_is_refused(document: object, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        template_of(document)


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        ({"metadata": {"labels": ["web"]}}, "metadata.labels is no object"),
        ({"metadata": {"labels": {"app": "\ud800"}}}, "half of a character"),
        ({"spec": {"nodeSelector": {"disk": "\ud800"}}}, "half of a character"),
        ({"spec": {"containers": [{"resources": {"limits": {}, "requests": ["cpu"]}}]}}, "the template makes no Pod"),
        (
            {"spec": {"containers": [{"resources": []}], "resources": {"limits": {"cpu": 1}}}},
            "the template makes no Pod",
        ),
        (
            {"spec": {"containers": [{"ports": [{"containerPort": "web"}]}], "hostNetwork": True}},
            "the template makes no Pod",
        ),
        (
            {"spec": {"affinity": {"podAffinity": {REQUIRED: [{"labelSelector": {"matchExpressions": 1}}]}}}},
            "the template makes no Pod",
        ),
        ({"metadata": {"ownerReferences": 3}, "spec": {}}, "the template makes no Pod"),
        ({"spec": {"containers": [], "overhead": {"cpu": 10**30}}}, "more than 64 bits"),
        ({"spec": {"containers": [], "priority": 10**30}}, "more than 64 bits"),
        ({"spec": {"containers": [{"resources": {"requests": {"cpu": "-1"}}}]}}, "requests less than nothing of cpu"),
    ],
)
def test_a_pod_with_what_no_pod_has_is_refused(pod: dict[str, Any], says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        work_out(template_of({"metadata": {}, "spec": {}, **pod}), 2, rules_of(None), cluster())


@pytest.mark.parametrize(
    ("limits", "says"), [(5, "limits of resources are no object"), ({"cpu": "much"}, "'much' is not a quantity")]
)
def test_limits_that_no_api_server_takes_make_no_pods(limits: object, says: str) -> None:
    pod = make_pod("a")
    pod["spec"]["containers"][0]["resources"] = {"limits": limits, "requests": {"cpu": "0"}}
    with pytest.raises(ScenarioError, match=says):
        template_of(pod).pods(1)
