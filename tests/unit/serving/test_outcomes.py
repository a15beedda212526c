"""What changes of Pods say of what became of them."""

from datetime import UTC, datetime
from typing import Any, Literal

import pytest

from policies.engine.objects.pod import Pod
from scheduler.cluster.kinds import NODES, PODS
from scheduler.cluster.reflection import Change, Changes
from scheduler.decisions.record import UNWATCHED, Outcome
from scheduler.serving.outcomes import outcomes_of, record_outcomes
from tests.builders import make_pod

AT = datetime(2026, 1, 1, tzinfo=UTC)
DECISION, ANOTHER = "6f0b2f6c-0000-4000-8000-000000000001", "6f0b2f6c-0000-4000-8000-000000000002"


def pod(
    node: str = "",
    *,
    annotations: dict[str, str] | None = None,
    phase: str = "",
    disrupted: str = "",
    is_deleting: bool = False,
) -> Pod:
    json = make_pod("web")
    json["metadata"]["annotations"] = annotations or {}
    json["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"} if is_deleting else {}
    json["spec"] |= {"schedulerName": "default-scheduler"} | ({"nodeName": node} if node else {})
    json["status"] = {"phase": phase or "Running"}
    if disrupted:
        json["status"]["conditions"] = [{"type": "DisruptionTarget", "status": "True", "reason": disrupted}]
    return Pod.from_json(json)


def change(kind: Literal["added", "modified", "deleted"], now: Pod, before: Pod | None = None) -> Change[Pod]:
    return Change(kind, now.uid, now, before, "1")


def said(seen: Change[Pod], *, is_awaited: bool = False) -> list[Outcome]:
    return list(outcomes_of(seen, is_awaited=is_awaited, now=AT))


def kinds(seen: Change[Pod], *, is_awaited: bool = False) -> list[str]:
    return [each.kind for each in said(seen, is_awaited=is_awaited)]


def test_who_watched_a_pod_get_its_node_says_so_whether_or_not_it_was_asked_about_it() -> None:
    (bound,) = said(change("modified", pod("n1"), pod()))
    assert (bound.kind, bound.node_name, bound.by, bound.at) == ("bound", "n1", "default-scheduler", AT)
    assert kinds(change("modified", pod("n1"), pod()), is_awaited=True) == ["bound"]


def test_who_came_late_says_nothing_of_a_pod_that_it_was_not_asked_about() -> None:
    assert said(change("added", pod("n1"))) == []
    assert said(change("modified", pod("n1"), pod("n1"))) == []
    assert kinds(change("added", pod("n1")), is_awaited=True) == ["bound"]


def test_the_decision_that_the_binding_names_is_kept_and_not_a_copy_of_another_pods() -> None:
    named, copied = {"berth/decision": DECISION}, {"berth/decision": ANOTHER}
    assert [each.decision for each in said(change("modified", pod("n1", annotations=named), pod()))] == [DECISION]
    copy = change("modified", pod("n1", annotations=copied), pod(annotations=copied))
    assert [each.decision for each in said(copy)] == [""]
    over = change("modified", pod("n1", annotations=named), pod(annotations=copied))
    assert [each.decision for each in said(over)] == [DECISION]
    assert [
        each.decision for each in said(change("modified", pod("n1", annotations={"berth/decision": "x"}), pod()))
    ] == [""]


@pytest.mark.parametrize(
    ("node", "disrupted", "kind"),
    [
        ("n1", "", "ended"),
        ("", "", "unbound"),
        ("n1", "PreemptionByScheduler", "preempted"),
        ("n1", "EvictionByEvictionAPI", "evicted"),
        ("n1", "DeletionByTaintManager", "evicted"),
    ],
)
def test_how_a_pod_ended_is_told_by_its_node_and_its_condition(node: str, disrupted: str, kind: str) -> None:
    last = pod(node, disrupted=disrupted)
    (end,) = said(change("deleted", last, last))
    assert (end.kind, end.node_name, end.reason) == (kind, node, disrupted)


def test_a_pod_is_only_said_to_be_deleted_where_that_was_asked_for_and_not_where_it_may_have_run_to_its_end() -> None:
    leaving, running = pod("n1", is_deleting=True), pod("n1")
    assert kinds(change("deleted", leaving, leaving)) == ["deleted"]
    # As the API server sends it of a Job's Pod that has succeeded, for only Pods that haven't are watched.
    assert kinds(change("deleted", running, running)) == ["ended"]


@pytest.mark.parametrize(
    ("last", "kind", "reason"),
    [
        (pod(), "gone", ""),
        (pod(is_deleting=True), "gone", ""),
        (pod("n1"), "ended", UNWATCHED),
        (pod("n1", is_deleting=True), "deleted", ""),
        (pod("n1", disrupted="EvictionByEvictionAPI"), "evicted", "EvictionByEvictionAPI"),
    ],
)
def test_of_a_pod_that_a_new_list_lacks_no_more_is_said_than_was_seen_before(last: Pod, kind: str, reason: str) -> None:
    """While a watch is broken off, a Pod that waited may get a node and be deleted there; a new list only lacks it."""
    recorder: Any = Recorder(fails=0)
    record_outcomes(recorder, PODS.name, Changes([change("deleted", last, last)], replaced=True))
    (end,) = recorder.outcomes
    assert (end.kind, end.node_name, end.reason) == (kind, last.spec.node_name, reason)


def test_texts_of_whoever_made_the_pod_are_kept_as_a_database_takes_them() -> None:
    odd, nameless = pod("n1", disrupted="Odd\0" + "y" * 1_000), pod("n1", disrupted="\0")
    (end,) = said(change("deleted", odd, odd))
    assert end.reason == "Odd" + "y" * 250
    (end,) = said(change("deleted", nameless, nameless))
    assert end.reason == "DisruptionTarget"
    bound = make_pod("web")
    bound["spec"] |= {"schedulerName": "mine\0", "nodeName": "n1"}
    assert [each.by for each in said(change("modified", Pod.from_json(bound), pod()))] == ["mine"]


def test_a_pod_that_was_bound_and_gone_in_one_look_has_both() -> None:
    assert kinds(change("deleted", pod("n1"), pod()), is_awaited=True) == ["bound", "ended"]


def test_a_pod_that_the_kubelet_evicts_is_evicted_before_its_object_goes() -> None:
    failed = pod("n1", phase="Failed", disrupted="TerminationByKubelet")
    assert kinds(change("modified", failed, pod("n1"))) == ["evicted"]
    assert kinds(change("modified", failed, failed)) == []
    assert kinds(change("modified", pod("n1", phase="Succeeded"), pod("n1"))) == []
    assert kinds(change("modified", pod("n1", disrupted="EvictionByEvictionAPI"), pod("n1"))) == []


class Recorder:
    def __init__(self, *, fails: int = 1) -> None:
        self.kept: list[Any] = []
        self.outcomes: list[Outcome] = []
        self.fails = fails

    def awaits(self, uid: str) -> bool:
        return uid == "nobody's"

    def record_outcome(self, outcome: Outcome) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError
        self.kept.append(outcome.kind)
        self.outcomes.append(outcome)


def test_a_fault_in_one_pod_ends_no_watch(caplog: pytest.LogCaptureFixture) -> None:
    recorder: Any = Recorder()
    changes = Changes([change("modified", pod("n1"), pod()), change("deleted", pod("n1"), pod("n1"))])
    record_outcomes(recorder, NODES.name, changes)
    assert recorder.fails == 1
    record_outcomes(recorder, PODS.name, changes)
    assert recorder.kept == ["ended"]
    assert "the outcome of a Pod can't be recorded" in caplog.text
