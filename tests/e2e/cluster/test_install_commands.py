"""The commands of kubernetes.md in docs/, as its reader types them, at a real API server: installed, labelled, upgraded, and taken out again.

No kubelet is here: what waits for Pods, and what runs inside one, is asked for its object alone.
"""

import json
import os
import re
import subprocess
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduler.priority_classes.execute import LABEL, MANAGER
from tests.e2e.cluster.conftest import Cluster
from tests.e2e.cluster.test_installing import kinds_of_others, names_of  # noqa: F401 - a fixture
from tests.e2e.cluster.test_manifests import kubectl, rendered, with_components
from tests.readme import ROOT, blocks

pytestmark = pytest.mark.e2e
INSTALL = ROOT / "docs" / "kubernetes.md"
# What waits for a Pod's own doing, and the object that it waits for.
_WAITS = re.compile(
    r"^kubectl -n berth (?:wait --for=\S+ --timeout=\S+|rollout status|exec -it) (\S+).*$", re.MULTILINE
)
# Of the cluster that the second kube-scheduler is for.
VERSION = "v1.35.9"
# What an upgrade stops first.
STOPPED = ("deployment/berth-beat", "statefulset/berth-worker")
# As the worker makes it of a document (scheduler/priority_classes/execute.py).
OF_A_RULE = f"""
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {{name: made-by-berth, labels: {{{LABEL}: {MANAGER}}}}}
value: 7
"""


@pytest.fixture
def folder(tmp_path: Path, cluster: Cluster) -> Iterator[Path]:
    """A checkout as the page's reader has it, with the kustomization that the page shows."""
    own = with_components(tmp_path / "deploy", "small")
    (own / "kustomization.yaml").write_text(blocks("yaml", INSTALL)[0].replace("newTag: v1.36.3", f"newTag: {VERSION}"))
    for name in (".venv", "manage.py"):
        (tmp_path / name).symlink_to(ROOT / name)
    kubectl(cluster, "create", "namespace", "shop")
    yield tmp_path
    kubectl(cluster, "delete", "namespace", "shop")


def typed(block: str, folder: Path, cluster: Cluster) -> None:
    text = _WAITS.sub(r"kubectl -n berth get \1", block)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
    environment |= {"KUBECONFIG": str(cluster.folder / "kubeconfig")}
    done = subprocess.run(
        ["bash", "-e", "-c", text], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


def images(cluster: Cluster) -> set[str]:
    """Return the images of Berth's own Pods."""
    path = "--output=jsonpath={.items[*].spec.template.spec.containers[0].image}"
    named = kubectl(cluster, "-n", "berth", "get", "deployment,statefulset,job", path).split()
    return {image for image in named if image.startswith("REGISTRY/")}


def database_url(cluster: Cluster) -> str:
    """Return the database's URL as Berth's Pods get it."""
    return b64decode(
        kubectl(cluster, "-n", "berth", "get", "secret", "berth", "--output=jsonpath={.data.database_url}")
    ).decode()


def restarted(cluster: Cluster) -> set[str]:
    """Return what `kubectl rollout restart` was typed for."""
    found = json.loads(kubectl(cluster, "-n", "berth", "get", "deployment,statefulset", "--output=json"))["items"]
    return {
        each["metadata"]["name"]
        for each in found
        if "kubectl.kubernetes.io/restartedAt" in each["spec"]["template"]["metadata"].get("annotations", {})
    }


@pytest.mark.usefixtures("kinds_of_others")
def test_the_commands_of_the_page_install_berth_and_take_it_out_again(cluster: Cluster, folder: Path) -> None:
    secrets, ledger, apply, label, upgrade, replace, delete = blocks("sh", INSTALL)
    assert apply.count("\n") == 4
    for block in (secrets, ledger, apply, label):
        typed(block, folder, cluster)
    documents = rendered(cluster, folder / "deploy" / "kubernetes" / "own")
    wanted = {
        "/".join((each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])) for each in documents
    }
    assert wanted <= names_of(cluster, documents)
    assert "berth-extended" in kubectl(cluster, "get", "namespace", "shop", "--output=jsonpath={.metadata.labels}")
    assert images(cluster) == {"REGISTRY/berth:TAG"}
    assert f"registry.k8s.io/kube-scheduler:{VERSION}" in json.dumps(documents)

    own = folder / "deploy" / "kubernetes" / "own" / "kustomization.yaml"
    own.write_text(own.read_text().replace("newTag: TAG", "newTag: NEXT"))
    typed(upgrade, folder, cluster)
    assert images(cluster) == {"REGISTRY/berth:NEXT"}
    replicas = kubectl(cluster, "-n", "berth", "get", *STOPPED, "--output=jsonpath={.items[*].spec.replicas}")
    assert replicas == "1 1", "what was stopped for it runs again"

    before = database_url(cluster)
    typed(replace, folder, cluster)
    shape = r"postgresql://berth_app:\w{30,}@berth-postgres:5432/berth"
    assert before != database_url(cluster)
    assert all(re.fullmatch(shape, url) for url in (before, database_url(cluster)))
    assert restarted(cluster) == {f"berth-{name}" for name in ("admin", "beat", "binder", "extender", "worker")}

    kubectl(cluster, "apply", "-f", "-", given=OF_A_RULE)
    typed(delete, folder, cluster)
    assert names_of(cluster, documents) == set()
    assert "made-by-berth" not in kubectl(cluster, "get", "priorityclasses", "--output=name")
    assert "berth/" not in kubectl(cluster, "get", "namespaces", "--output=jsonpath={.items[*].metadata.labels}")
