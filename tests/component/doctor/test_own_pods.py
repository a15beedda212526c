"""Doctor warns where what is to bring Berth back would wait for Berth."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Revision
from scheduler.cluster.errors import APIForbiddenError, APIUnavailableError
from scheduler.doctor.findings import Linted, lint
from scheduler.doctor.own_pods import own_pods
from scheduler.doctor.parts import Part
from tests.builders import make_assignment, make_pod
from tests.recording import History, Prepared
from tests.unit.doctor.cases import berth

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = {"app.kubernetes.io/part-of": "berth"}
EVERY_POD = Revision(number=1, assignments=[make_assignment("all", rule_set="packed")])
NOTHING = Revision(number=1)


class Cluster:
    """An API server with Pods and their namespaces."""

    def __init__(self, *pods: dict[str, Any], fault: Exception | None = None) -> None:
        self.pods, self.fault = pods, fault

    def list_pages(self, *, path: str, query: Mapping[str, str] | None = None) -> Iterator[bytes]:
        if self.fault:
            raise self.fault
        if path.endswith("/namespaces"):
            labels = {"kubernetes.io/metadata.name": "berth"}
            yield listed({"metadata": {"name": "berth", "labels": labels}})
            return
        assert (query or {})["labelSelector"] == "app.kubernetes.io/part-of=berth"
        yield listed(*self.pods)


def listed(*items: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})


def pod(name: str = "berth-extender-0", scheduler: str = "default-scheduler") -> dict[str, Any]:
    made = make_pod(name, namespace="berth", labels=LABELS, uid=f"uid-{name}")
    made["spec"]["schedulerName"] = scheduler
    return made


def look(*pods: dict[str, Any], linted: Linted | None = None, revision: Revision = NOTHING) -> Part:
    (found,) = own_pods(Cluster(*pods), linted, revision, NOW)  # type: ignore[arg-type]
    return found


def file(members: str = "") -> Linted:
    return lint(berth(members))


def test_without_such_pods_nothing_is_said() -> None:
    assert list(own_pods(Cluster(), file(), EVERY_POD, NOW)) == []  # type: ignore[arg-type]


def test_pods_that_a_scheduler_places_which_does_not_ask_are_well_whatever_assignments_say() -> None:
    assert look(pod(), revision=EVERY_POD).state == "ok"
    assert look(pod(scheduler="another"), linted=file(), revision=EVERY_POD).state == "ok"


def test_pods_that_kube_scheduler_asks_about_are_a_warning() -> None:
    found = look(pod(), linted=file())
    assert found.state == "warning"
    assert found.says == (
        "kube-scheduler asks Berth about berth/berth-extender-0: when recreated, they wait while no extender answers"
    )
    assert "beside kube-scheduler" in found.remedy


def test_an_extender_that_may_be_passed_over_keeps_nobody_waiting() -> None:
    assert look(pod(), linted=file("ignorable: true")).state == "ok"


def test_an_extender_that_is_asked_for_a_resource_alone_is_not_asked_about_them() -> None:
    assert look(pod(), linted=file("managedResources: [{name: example.com/gpu}]")).state == "ok"


def test_a_decision_about_such_a_pod_is_proof_that_berth_is_asked(tmp_path: Path) -> None:
    history = History(tmp_path)
    history.recorder.record(Prepared(verb="filter", pod=Pod.from_json(pod()), now=NOW))
    history.settle()
    assert look(pod(), pod("berth-worker-0")).says.startswith("kube-scheduler asks Berth about berth/berth-extender-0:")
    assert look(pod(), linted=file("ignorable: true")).state == "ok"


def test_pods_that_name_berths_own_scheduler_are_a_warning() -> None:
    found = look(*(pod(f"berth-{number}", "berth") for number in range(5)))
    assert found.state == "warning"
    assert found.says == "Berth's own scheduler has to place berth/berth-0, berth/berth-1, berth/berth-2 and 2 more"
    assert "schedulerName" in found.remedy


def test_an_assignment_that_takes_them_is_named_with_what_leaves_them_out() -> None:
    found = look(pod(), linted=file("ignorable: true"), revision=EVERY_POD)
    assert (found.state, found.says) == (
        "warning",
        "rules decide on berth/berth-extender-0 by all, and may refuse every node",
    )
    key, _, values = found.remedy.partition("NotIn, values: ")
    assert ("namespaceSelector, matchExpressions: [{key: kubernetes.io/metadata.name" in key, values) == (
        True,
        "[berth]}].",
    )
    left_out = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["berth"]}]}
    mended = Revision(number=2, assignments=[make_assignment("all", match={"namespaceSelector": left_out})])
    assert look(pod(), linted=file("ignorable: true"), revision=mended).state == "ok"


def test_an_account_that_may_not_list_pods_is_told_so() -> None:
    refused = APIForbiddenError("pods is forbidden", status=403)
    (found,) = own_pods(Cluster(fault=refused), None, NOTHING, NOW)  # type: ignore[arg-type]
    assert (found.state, bool(found.remedy)) == ("unknown", True)


def test_an_api_server_that_is_away_is_the_matter_of_another_part() -> None:
    assert list(own_pods(Cluster(fault=APIUnavailableError("away")), None, NOTHING, NOW)) == []  # type: ignore[arg-type]
