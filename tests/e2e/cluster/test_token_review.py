"""Tokens of ServiceAccounts, judged by the real API server."""

import contextlib
import json

import pytest

from controlplane.token_review import service_account_of
from controlplane.tokens import RefusedError
from scheduler.cluster.errors import APIConflictError
from tests.e2e.cluster.conftest import Cluster
from tests.e2e.cluster.waiting import eventually

pytestmark = pytest.mark.e2e

_ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


def token_for(cluster: Cluster, *audiences: str) -> str:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deployer"}}
    with contextlib.suppress(APIConflictError):
        cluster.client.post(path=_ACCOUNTS, body=json.dumps(account).encode())
    wish = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": list(audiences)}}
    answer = cluster.client.post(path=f"{_ACCOUNTS}/deployer/token", body=json.dumps(wish).encode())
    return str(json.loads(answer)["status"]["token"])


def test_a_token_comes_in_for_its_audience_alone_and_goes_with_its_account(cluster: Cluster) -> None:
    own, other = token_for(cluster, "berth"), token_for(cluster, "another")
    assert service_account_of(own, "berth", cluster.client) == "default/deployer"
    for token in (other, token_for(cluster), own.rpartition(".")[0] + "." + "A" * 86, "no-token"):
        with pytest.raises(RefusedError):
            service_account_of(token, "berth", cluster.client)
    cluster.client.delete(path=f"{_ACCOUNTS}/deployer")
    # The API server remembers for some seconds whom it let in; Berth doesn't.
    assert eventually(lambda: is_refused(cluster, own))


def is_refused(cluster: Cluster, token: str) -> bool:
    try:
        service_account_of(token, "berth", cluster.client)
    except RefusedError:
        return True
    return False
