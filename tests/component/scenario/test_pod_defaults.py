"""The defaults that the API server would give Pods of a template."""

import pytest

from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler.scenario import rules_of, template_of, work_out
from tests.builders import make_assignment, make_pod, make_rule_set
from tests.component.pages import publish_all
from tests.component.scenario.cases import REQUIRED, cluster, deployment

pytestmark = pytest.mark.django_db


def test_pods_on_the_hosts_network_take_its_ports_though_their_template_names_none() -> None:
    """The API server fills them in of Pods, and not of templates."""
    ports = [{"name": "main", "ports": [{"containerPort": 80}]}]
    found = work_out(template_of(deployment(containers=ports, hostNetwork=True)), 6, rules_of(None), cluster())
    assert (found.live.fits, found.live.nodes) == (4, {"n0": 1, "n1": 1, "n2": 1, "n3": 1})
    assert found.live.stop is not None
    assert found.live.stop.refusals[0].rule == "PodFitsHostPorts"
    assert work_out(template_of(deployment(containers=ports)), 6, rules_of(None), cluster()).live.fits == 6


def test_pods_ask_for_the_limits_of_the_whole_pod_but_for_what_their_containers_ask_for() -> None:
    asks = [{"name": "main", "resources": {"requests": {"memory": "1Gi"}}}]
    limits = {"cpu": "1500m", "memory": "2Gi"}
    (made,) = template_of(deployment(containers=asks, resources={"limits": limits})).pods(1)
    assert (made.requests.get("cpu"), made.requests.get("memory")) == (1500, 2**30)


def test_rules_see_what_the_api_server_sets_where_a_manifest_leaves_it_out() -> None:
    rule = {
        "name": "names",
        "expression": "pod.spec.schedulerName == 'default-scheduler' && pod.spec.restartPolicy == 'Always'",
        "reason": "another scheduler's",
    }
    publish_all(make_rule_set("web", filters=[rule]), make_assignment("all", "web"))
    assert work_out(template_of(deployment(schedulerName="")), 2, rules_of(None), cluster()).live.fits == 2
    assert work_out(template_of(deployment(schedulerName="berth")), 2, rules_of(None), cluster()).live.fits == 0
    kept = {
        "hostUsers": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "restartPolicy": "Never",
    }
    (made,) = template_of(deployment(**kept)).pods(1)
    assert kept.items() <= made.json["spec"].items()


@pytest.mark.parametrize(("key", "fits"), [("matchLabelKeys", 4), ("mismatchLabelKeys", 6)])
def test_keys_of_labels_that_have_to_match_are_put_into_the_selectors_of_affinity(key: str, fits: int) -> None:
    """As the API server does with new Pods: schedulers don't look at them."""
    term = {"labelSelector": {"matchLabels": {"app": "web"}}, key: ["version"], "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {REQUIRED: [term]}}
    old = make_pod("old", namespace="shop", labels={"app": "web", "version": "1"}, nodeName="n0")
    nodes = [info.node for info in cluster().table.infos]
    there = Snapshot.of(nodes, [Pod.from_json(old)], objects=ClusterObjects())
    found = work_out(template_of(deployment(affinity=apart)), 6, rules_of(None), there)
    assert found.live.fits == fits
    assert ("n0" in found.live.nodes) == (key == "matchLabelKeys")


def test_preferred_affinity_goes_by_these_keys_too() -> None:
    term = {
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["version", "absent"],
        "topologyKey": "zone",
    }
    near = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}]}
    (made,) = template_of(deployment(affinity={"podAffinity": near})).pods(1)
    (preferred,) = made.terms.preferred
    assert not preferred.term.selector.matches({"app": "web", "version": "1"})
    assert preferred.term.selector.matches({"app": "web", "version": "2"})
