"""Scenarios: a template's Pods, placed by what is live and by what a Change would make live, side by side."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core.management import CommandError, call_command

from policies import publishing
from policies.engine.decision import CompiledRevision
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.owners import workload_of
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from scheduler import scenario
from scheduler.admin.scenario import ScenarioForm
from scheduler.models import BinderState, Decision
from scheduler.scenario import MOST_PODS, ScenarioError, rules_of, template_of, template_of_deployment, work_out
from tests.builders import make_assignment, make_node, make_pod, make_rule_set
from tests.component.backtest.corpus import AT, Corpus
from tests.component.pages import opened, publish_all
from tests.recording import History

pytestmark = pytest.mark.django_db

POD_SPEC = {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
DEPLOYMENT: dict[str, Any] = {
    "kind": "Deployment",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"template": {"metadata": {"labels": {"app": "web"}}, "spec": POD_SPEC}},
}


def cluster() -> Snapshot:
    nodes = [Node.from_json(make_node(f"n{number}", cpu="2", labels={"zone": "ab"[number % 2]})) for number in range(4)]
    return Snapshot.of(nodes, objects=ClusterObjects())


def only_a() -> int:
    """A Change by which Pods go to zone a alone."""
    rule = {"name": "zone", "expression": "node.metadata.labels.zone == 'a'", "reason": "another zone"}
    return opened(make_rule_set("web", filters=[rule]), make_assignment("all", "web")).pk


def test_both_sides_stand_beside_each_other() -> None:
    found = work_out(template_of(DEPLOYMENT), 6, rules_of(only_a()), cluster())
    assert found.drafted is not None
    assert (found.live.fits, found.live.nodes) == (6, {"n0": 2, "n1": 2, "n2": 1, "n3": 1})
    assert (found.drafted.fits, found.drafted.nodes) == (4, {"n0": 2, "n2": 2})
    assert (found.live.before, found.live.after.cpu.max) == (found.drafted.before, 1.0)
    assert found.sentences == [
        "By what is live (the default set), 6 of 6 fit, on 4 nodes",
        f"By Change {found.change} (rule set web), 4 of 6 fit, on 2 nodes",
        "The 5th gets none: 2 nodes by PodFitsResources (Insufficient cpu), 2 nodes by zone (another zone)",
        found.sentences[-1],
    ]
    assert found.unknown == []
    assert found.sentences[-1].startswith('filter PodFitsResources refused n0: "Insufficient cpu"')


def test_pods_that_nothing_controls_are_told_on_both_sides_of_a_canary() -> None:
    publish_all(make_rule_set("next"), make_assignment("half", "next", mode="canary", percent=50))
    bare = {"kind": "Pod", "metadata": {"name": "web"}, "spec": POD_SPEC}
    found = work_out(template_of(bare), 8, rules_of(None), cluster())
    assert set(found.live.decided) == {"", "next"}
    assert sum(found.live.decided.values()) == 8
    for number, by in ((found.live.decided["next"], "rule set next"), (found.live.decided[""], "the default set")):
        assert f"{number} Pod{'s' * (number != 1)} by {by}" in found.sentences[0]
    assert ": a canary draws for each Pod), 8 of 8 fit" in found.sentences[0]
    assert len(work_out(template_of(DEPLOYMENT), 8, rules_of(None), cluster()).live.decided) == 1


def test_nodes_that_are_not_the_schedulers_take_none(settings: Any) -> None:
    settings.BERTH = msgspec.structs.replace(settings.BERTH, scheduler_node_label=("zone", "b"))
    found = work_out(template_of(DEPLOYMENT), 6, rules_of(only_a()), cluster())
    assert found.drafted is not None
    assert (found.live.nodes, found.drafted.nodes) == ({"n1": 2, "n3": 2}, {})


def test_it_comes_to_the_same_each_time() -> None:
    change = only_a()
    one, other = (work_out(template_of(DEPLOYMENT), 6, rules_of(change), cluster()) for _ in range(2))
    assert (one.live, one.drafted) == (other.live, other.drafted)


def test_pods_of_a_deployment_are_of_its_workload_and_ask_for_their_limits() -> None:
    first, second = template_of(DEPLOYMENT).pods(2)
    assert workload_of(first) == workload_of(second) == "Deployment/shop/web"
    assert (first.namespace, first.labels["app"], first.requests.get("cpu")) == ("shop", "web", 1000)
    assert first.uid != second.uid


def deployment(**spec: Any) -> dict[str, Any]:
    labels = {"app": "web", "version": "2"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main"}], **spec}}
    return {**DEPLOYMENT, "spec": {"template": template}}


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


@pytest.mark.parametrize(
    ("number", "running", "said"),
    [
        (2, 3, "2 Pods can't be placed, for 3 run already: ask for 4 to 5,003 in all"),
        (3, 3, "3 Pods can't be placed, for 3 run already: ask for 4 to 5,003 in all"),
        (1, 1, "1 Pod can't be placed, for 1 runs already: ask for 2 to 5,001 in all"),
        (5_001, 0, "5,001 Pods can't be placed: ask for 1 to 5,000"),
    ],
    ids=["fewer than run", "as many as run", "one", "too many"],
)
def test_how_many_pods_may_be_asked_for_is_said_by_those_that_run(number: int, running: int, said: str) -> None:
    template = msgspec.structs.replace(template_of(DEPLOYMENT), running=running)

    with pytest.raises(ScenarioError, match=f"^{said}$"):
        work_out(template, number, rules_of(None), cluster())


def test_a_page_asks_for_a_few_pods_more_of_a_deployment_however_many_run() -> None:
    form = ScenarioForm({"deployment": "shop/web", "pods": str(MOST_PODS + 10)})

    assert form.is_valid(), form.errors


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


def test_the_command_says_it_for_people_and_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "live_snapshot", lambda *_: cluster())
    monkeypatch.setattr("scheduler.management.commands.scenario.live_snapshot", lambda *_: cluster())
    file, change = tmp_path / "web.json", only_a()
    file.write_text(json.dumps(DEPLOYMENT))
    out = StringIO()
    call_command("scenario", str(file), "--pods", "6", "--change", str(change), "--output", "json", stdout=out)
    found = json.loads(out.getvalue())
    assert (found["ok"], found["live"]["fits"], found["drafted"]["nodes"]) == (True, 6, {"n0": 2, "n2": 2})
    out = StringIO()
    call_command("scenario", str(file), "--pods", "6", "--change", str(change), stdout=out)
    lines = out.getvalue().splitlines()
    assert (
        "cpu requested, live: 0.0% to 0.0% before, 50.0% to 100.0% after; standard deviation 0.0%, then 25.0%" in lines
    )
    assert [line.split() for line in lines if line.startswith("n1")] == [["n1", "2", "0"]]


def test_equal_nodes_go_on_behind_the_one_that_berths_scheduler_picked_last(tmp_path: Path) -> None:
    history = History(tmp_path / "spool")
    corpus = Corpus(history, CompiledRevision(publishing.current_revision()), nodes=4)
    at = AT + timedelta(hours=1)

    def first_of_three() -> dict[str, int]:
        history.settle()
        return dict(work_out(template_of(DEPLOYMENT), 1, rules_of(None), cluster(), at).live.nodes)

    assert first_of_three() == {"n0": 1}
    corpus.schedule("first")
    corpus.schedule("second")
    corpus.schedule("too large", cpu="1000")
    assert first_of_three() == {"n1": 1}  # behind n0001, where the second went
    Decision.objects.update(body=b"damaged")
    assert first_of_three() == {"n0": 1}
    history.spool.close()


@pytest.mark.parametrize(("leads", "seconds_ago", "node"), [(True, 1, "n2"), (True, 120, "n0"), (False, 1, "n0")])
def test_a_scenario_of_now_goes_on_where_berths_scheduler_says_that_it_stands(
    *, leads: bool, seconds_ago: int, node: str
) -> None:
    """One that was started anew stands nowhere yet, whatever is recorded of the one before it."""
    heard = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    BinderState.objects.create(identity="b", process="p", heartbeat_at=heard, leads=leads, last_node="n1")
    assert work_out(template_of(DEPLOYMENT), 1, rules_of(None), cluster()).live.nodes == {node: 1}


def test_a_recorded_snapshot_stands_in_for_the_cluster(tmp_path: Path) -> None:
    publish_all(make_rule_set("web"), make_assignment("all", "web"))
    history = History(tmp_path / "spool")
    Corpus(history, CompiledRevision(publishing.current_revision()), nodes=3).ask("first")
    history.settle()
    history.spool.close()
    file = tmp_path / "web.json"
    file.write_text(json.dumps(DEPLOYMENT))
    out = StringIO()
    decision = Decision.objects.order_by("sequence")[0]
    call_command("scenario", str(file), "--pods", "3", "--decision", str(decision.pk), "--output", "json", stdout=out)
    found = json.loads(out.getvalue())
    assert found["live"]["nodes"] == {"n0000": 1, "n0001": 1, "n0002": 1}
    # Nobody watched volumes for these rules.
    assert "persistentvolumeclaims" in found["unknown"]
    out = StringIO()
    call_command("scenario", str(file), "--pods", "3", "--decision", str(decision.pk), stdout=out)
    assert f"What rules read of {', '.join(found['unknown'])} was not recorded: by that they refuse no node." in (
        out.getvalue().splitlines()
    )
    decision.chain = 99
    decision.save()
    for named, says in (
        (str(decision.pk), "the Snapshot that the Decision was made on is not there"),
        ("x", "no Decision has the id x"),
    ):
        with pytest.raises(CommandError, match=says):
            call_command("scenario", str(file), "--pods", "3", "--decision", named)


def test_files_and_changes_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"gone\.yaml"):
        call_command("scenario", str(tmp_path / "gone.yaml"), "--pods", "3")
    with pytest.raises(ScenarioError, match="there is no Change 4711"):
        rules_of(4711)
