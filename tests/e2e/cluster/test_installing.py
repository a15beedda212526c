"""The overlay `ha` with every component, put into a real API server and taken out again: it is taken whole, and nothing of it is left.

`small` is installed by the commands of the documentation: test_install_commands.py.

The kinds of cert-manager and the Prometheus operator are there, from the folder crds, so their objects are checked, too. That
anybody acts upon them, isn't seen here: neither operator runs.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.e2e.cluster.conftest import Cluster
from tests.e2e.cluster.test_manifests import MANIFESTS, Document, kubectl, rendered, with_components
from tests.kubernetes_version import needs_kubernetes

pytestmark = pytest.mark.e2e
CRDS = Path(__file__).with_name("crds")


@pytest.fixture(scope="module")
def kinds_of_others(cluster: Cluster) -> Iterator[None]:
    files = [f"--filename={path}" for path in sorted(CRDS.glob("*.json"))]
    kubectl(cluster, "apply", "--server-side", *files)
    kubectl(cluster, "wait", "--for=condition=Established", "--timeout=60s", *files)
    yield
    kubectl(cluster, "delete", *files)


def names_of(cluster: Cluster, documents: list[Document]) -> set[str]:
    """Return what the cluster has of the kinds of these objects and is Berth's, as kind/namespace/name."""
    kinds = ",".join(sorted({each["kind"] for each in documents}))
    found = msgspec.json.decode(kubectl(cluster, "get", kinds, "--all-namespaces", "--output=json"))["items"]
    places = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in found
        if "berth" in {each["metadata"].get("namespace"), each["metadata"]["name"].partition("-")[0]}
    }
    return {"/".join(place) for place in places}


@pytest.mark.usefixtures("kinds_of_others")
def test_an_overlay_with_all_components_is_taken_and_leaves_nothing(cluster: Cluster, tmp_path: Path) -> None:
    needs_kubernetes(cluster.client, 36)
    own = with_components(tmp_path, "ha")
    documents = rendered(cluster, own)
    kinds = {each["kind"] for each in documents}
    assert kinds >= {"Certificate", "Issuer", "PodMonitor", "PrometheusRule"}

    kubectl(cluster, "apply", "-f", str(MANIFESTS / "base" / "namespace.yaml"))
    said = kubectl(cluster, "apply", "--server-side", "--force-conflicts", "-k", str(own))

    assert said.count("serverside-applied") == len(documents)
    wanted = {
        "/".join((each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])) for each in documents
    }
    assert wanted <= names_of(cluster, documents)

    kubectl(cluster, "delete", "--timeout=300s", "-k", str(own))
    assert names_of(cluster, documents) == set()
