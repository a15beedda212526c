"""What doctor says of the API server, and of the rights there."""

import pytest

from scheduler.doctor.checkup import check
from tests.component.doctor.checkups import Cluster, part

pytestmark = pytest.mark.django_db


@pytest.mark.usefixtures("healthy")
def test_an_api_server_that_is_away_is_an_error(cluster: Cluster) -> None:
    cluster.is_away = True
    found = check()
    assert part(found, "API server").state == "error"
    assert not found.ok


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize(("verb", "state"), [("list", "error"), ("patch", "warning"), ("create", "warning")])
def test_rights_that_are_missing_are_named(cluster: Cluster, verb: str, state: str) -> None:
    cluster.refused = (verb,)
    found = part(check(), "rights")
    assert (found.state, f" {verb} " in found.says) == (state, True)


@pytest.mark.usefixtures("healthy")
def test_an_account_of_one_process_is_asked_what_that_process_needs(cluster: Cluster) -> None:
    cluster.account, cluster.refused = "system:serviceaccount:berth:berth-worker", ("update",)
    assert part(check(), "rights").says == "this account may do what the worker needs"
