"""The version of the tests' cluster: that of the local cluster, or of the binaries in BERTH_KUBE_ASSETS."""

import msgspec
import pytest

from scheduler.cluster.client import Client


class _Version(msgspec.Struct):
    major: str
    minor: str


def needs_kubernetes(client: Client, minor: int) -> None:
    """Skip the test if the API server is older than 1.`minor`."""
    found = msgspec.json.decode(client.get(path="/version"), type=_Version)
    if (int(found.major), int(found.minor.rstrip("+"))) < (1, minor):
        pytest.skip(f"needs Kubernetes 1.{minor}, this is {found.major}.{found.minor}")
