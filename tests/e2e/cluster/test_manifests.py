"""The manifests of deploy/kubernetes, and a real API server: it admits their Pods, and each account may do what it needs and no more."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from scheduler.doctor.reviews import lacking, may
from scheduler.doctor.rights import COMPONENTS, READABLE_KINDS, Right, account_of, questions, rights_of
from tests.e2e.cluster.conftest import Cluster

MANIFESTS = Path(__file__).parents[3] / "deploy" / "kubernetes"

Document = dict[str, Any]


def kubectl(cluster: Cluster, *arguments: str, given: str = "") -> str:
    found = shutil.which("kubectl")
    assert found is not None
    command = [found, "--kubeconfig", str(cluster.folder / "kubeconfig"), *arguments]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(cluster: Cluster, folder: Path) -> list[Document]:
    return list(yaml.safe_load_all(kubectl(cluster, "kustomize", str(folder))))


def with_components(folder: Path, overlay: str) -> Path:
    """Write the kustomization of somebody who takes an overlay and all components."""
    components = sorted(path.name for path in (MANIFESTS / "components").iterdir())
    # kustomize takes relative paths only.
    shutil.copytree(MANIFESTS.parent / "kubernetes", folder / "kubernetes")
    shutil.copytree(MANIFESTS.parent / "postgres", folder / "postgres")
    own = folder / "kubernetes" / "own"
    own.mkdir()
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"../overlays/{overlay}"],
        "components": [f"../components/{name}" for name in components],
    }
    (own / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    return own


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[None]:
    """Apply the namespace and the rights, for real."""
    for name in ("namespace", "accounts", "rbac"):
        kubectl(cluster, "apply", "--server-side", "--namespace=berth", "-f", str(MANIFESTS / "base" / f"{name}.yaml"))
    yield
    kubectl(cluster, "delete", "-f", str(MANIFESTS / "base" / "rbac.yaml"))


@pytest.mark.parametrize("overlay", ["small", "ha"])
@pytest.mark.usefixtures("installed")
def test_every_pod_is_one_that_a_restricted_namespace_admits(cluster: Cluster, overlay: str, tmp_path: Path) -> None:
    made = 0
    for each in rendered(cluster, with_components(tmp_path, overlay)):
        if each["kind"] not in {"Deployment", "StatefulSet", "Job"}:
            continue
        template = each["spec"]["template"]
        claims = [claim["metadata"]["name"] for claim in each["spec"].get("volumeClaimTemplates", ())]
        template["spec"].setdefault("volumes", []).extend({"name": name, "emptyDir": {}} for name in claims)
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
        pod["metadata"] = template["metadata"] | {"name": each["metadata"]["name"], "namespace": "berth"}
        cluster.client.post(path="/api/v1/namespaces/berth/pods?dryRun=All", body=msgspec.json.encode(pod))
        made += 1
    assert made >= 7


@pytest.mark.parametrize("overlay", ["small", "ha"])
def test_no_pod_is_given_variables_of_the_services_beside_it(cluster: Cluster, overlay: str, tmp_path: Path) -> None:
    """A kubelet makes BERTH_REDIS_PORT of the Service berth-redis, which is no setting of Berth."""
    documents = rendered(cluster, with_components(tmp_path, overlay))
    templates = [each["spec"]["template"]["spec"] for each in documents if "template" in each.get("spec", {})]
    assert [each["enableServiceLinks"] for each in templates] == [False] * len(templates)
    assert len(templates) >= 7


@pytest.mark.parametrize("overlay", ["small", "ha"])
def test_with_the_component_for_ipv6_every_listener_takes_it(cluster: Cluster, overlay: str, tmp_path: Path) -> None:
    """Named in settings, and for gunicorn of the admin by its command."""
    listening: list[str] = []
    command: list[str] = []
    for each in rendered(cluster, with_components(tmp_path, overlay)):
        if each["kind"] in {"Deployment", "StatefulSet"} and each["metadata"]["name"] != "berth-scheduler":
            for container in each["spec"]["template"]["spec"]["containers"]:
                listening += [one["value"] for one in container.get("env", ()) if one["name"].endswith("_BIND")]
                listening += [word for word in container["command"] if ":80" in word] if "command" in container else []
                if container["name"] == "admin":
                    command = container["command"]
    assert sorted(listening) == [f"[::]:80{port}" for port in ("00", "10", "11", "12", "13", "14")]

    admin = next(yaml.safe_load_all((MANIFESTS / "base" / "admin.yaml").read_text()))
    (before,) = admin["spec"]["template"]["spec"]["containers"]
    assert command == [word.replace("0.0.0.0", "[::]") for word in before["command"]], "nothing else is changed"


def test_a_pod_behind_an_address_takes_calls_until_proxies_know_that_it_ends() -> None:
    """A process that is told to end closes its listener at once; Services name it for a moment longer."""
    documents = [each for path in (MANIFESTS / "base").glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    # Nothing calls the Services without an address.
    called = [each for each in documents if each["kind"] == "Service" and each["spec"].get("clusterIP") != "None"]
    behind: set[str] = set()
    for service in called:
        for each in documents:
            spec = each.get("spec", {}).get("template", {})
            if spec.get("metadata", {}).get("labels") != service["spec"]["selector"]:
                continue
            for container in spec["spec"]["containers"]:
                behind.add(container["name"])
                waits = container["lifecycle"]["preStop"]["sleep"]["seconds"]
                assert 5 <= waits < spec["spec"]["terminationGracePeriodSeconds"]
    assert behind == {"admin", "extender"}


@pytest.mark.usefixtures("installed")
def test_each_account_may_do_what_its_process_needs(cluster: Cluster) -> None:
    assert lacking(cluster.client, "berth", READABLE_KINDS) == []


@pytest.mark.usefixtures("installed")
def test_no_account_may_do_what_only_another_needs(cluster: Cluster) -> None:
    """Each verb of the table, asked for each account; and what none needs."""
    foreign = [
        Right("", "secrets", ("get", "list"), "nobody's"),
        Right("", "pods/exec", ("create",), "nobody's"),
        Right("rbac.authorization.k8s.io", "clusterroles", ("update",), "nobody's"),
        Right("", "nodes", ("patch", "delete"), "nobody's"),
    ]
    everything = [*foreign, *(right for component in COMPONENTS for right in rights_of(component))]
    asked = {tuple(sorted(each.items())): each for right in everything for each in questions(right, "berth")}
    for component in COMPONENTS:
        own = [each for right in rights_of(component) for each in questions(right, "berth")]
        for attributes in asked.values():
            if attributes in own:
                continue
            # A named object is within what may be done with all of them.
            assert not may(cluster.client, attributes, account_of(component, "berth")), (component, attributes)


@pytest.mark.usefixtures("installed")
def test_a_right_that_was_taken_away_is_named_with_its_process(cluster: Cluster) -> None:
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/berth-binder"
    role = msgspec.json.decode(cluster.client.get(path=path))
    rules = [rule for rule in role["rules"] if rule["resources"] != ["pods/status"]]
    cluster.client.put(path=path, body=msgspec.json.encode(role | {"rules": rules}))
    found = [(each.component, each.verb, each.resource) for each in lacking(cluster.client, "berth", ())]
    kubectl(cluster, "apply", "--server-side", "--force-conflicts", "-f", str(MANIFESTS / "base" / "rbac.yaml"))
    assert found == [("binder", "patch", "pods/status")]
