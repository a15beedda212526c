"""What holds a Pod without a node, and when it is tried next: from texts alone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from scheduler.decisions.matrix import Refusal
from scheduler.pending.holding import NOT_TRIED, Hold, hold_of, next_try, reasons_in, unbound_pods

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
TEAM = Refusal("team", "Unschedulable", "node belongs to another team", ["n1", "n2"])
FULL = Refusal("PodFitsResources", "Unschedulable", "Insufficient cpu", ["n3"])
# Of a Pod whose next try nobody knows.
NOTHING: dict[str, Any] = {
    "condition": "Unschedulable", "message": "0/1 nodes are available: 1 x.", "tried_at": None, "queued": None,
    "requeued_for": "", "requeue_at": None, "now": NOW,
}  # fmt: skip


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        ("", []),
        ("running Filter plugins: context deadline exceeded", []),
        ("0/3 nodes are available: 3 Insufficient cpu.", [("Insufficient cpu", 3)]),
        (
            (
                "0/5 nodes are available: 2 Insufficient cpu, 3 node(s) had untolerated taint(s). no new claims to deallocate, "
                "preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling."
            ),
            [("Insufficient cpu", 2), ("node(s) had untolerated taint(s)", 3)],
        ),
        (
            "0/2 nodes are available: 1 no, by no means, 1 wait for 2 nodes. preemption: 0/2 nodes are available: 2 x.",
            [("no, by no means", 1), ("wait for 2 nodes", 1)],
        ),
        ("0/3 nodes are available: no new claims to deallocate, preemption: 0/3 nodes are available: 3 No.", []),
    ],
)
def test_the_reasons_that_a_scheduler_counts_are_read_with_their_numbers(
    message: str, reasons: list[tuple[str, int]]
) -> None:
    assert reasons_in(message) == reasons


@pytest.mark.parametrize(
    ("condition", "message", "refusals", "hold"),
    [
        ("", "", [], Hold("", NOT_TRIED)),
        ("", "", [TEAM, FULL], Hold("team", "node belongs to another team")),
        ("SchedulingGated", "x", [TEAM], Hold("", "its scheduling gates are not taken off")),
        # What most nodes have holds the Pod, whoever said it; of equally many, Berth's rule.
        (
            "Unschedulable",
            "0/5 nodes are available: 2 node belongs to another team, 3 Insufficient memory.",
            [TEAM],
            Hold("", "Insufficient memory"),
        ),
        (
            "Unschedulable",
            "0/4 nodes are available: 2 Insufficient memory, 2 node belongs to another team.",
            [TEAM],
            Hold("team", "node belongs to another team"),
        ),
        # An older Decision of Berth's says nothing of what refuses the Pod now.
        ("Unschedulable", "0/3 nodes are available: 3 Insufficient memory.", [TEAM], Hold("", "Insufficient memory")),
        (
            "SchedulerError",
            "extender said: node belongs to another team",
            [TEAM],
            Hold("team", "node belongs to another team"),
        ),
        (
            "SchedulerError",
            "running Filter plugins: deadline exceeded",
            [],
            Hold("", "running Filter plugins: deadline exceeded"),
        ),
        # A rule without a reason leaves the list empty.
        (
            "Unschedulable",
            "0/3 nodes are available: no new claims to deallocate, preemption: x",
            [Refusal("silent", "Unschedulable", "", ["n1"])],
            Hold("silent", "Unschedulable"),
        ),
    ],
)
def test_what_holds_a_pod_is_what_its_scheduler_said_last_by_the_name_of_berths_rule(
    condition: str, message: str, refusals: list[Refusal], hold: Hold
) -> None:
    assert hold_of(condition=condition, message=message, refusals=refusals) == hold


def test_a_rules_reason_with_numbers_behind_commas_is_found_whole() -> None:
    licence = "the licence is for 4 nodes, 4 are used"
    longer = f"{licence}, 2 reserved"
    message = f"0/9 nodes are available: 5 {licence}, 3 {longer}, 1 Insufficient cpu. preemption: 0/9 nodes are available: 9 No."
    assert reasons_in(message, [licence, longer]) == [(licence, 5), (longer, 3), ("Insufficient cpu", 1)]
    refusals = [Refusal("licence", "UnschedulableAndUnresolvable", licence, ["n1"])]
    assert hold_of(condition="Unschedulable", message=message, refusals=refusals) == Hold("licence", licence)


def test_the_rule_that_finds_several_resources_lacking_is_named_where_the_message_counts_each() -> None:
    both = Refusal("PodFitsResources", "Unschedulable", "Insufficient cpu, Insufficient memory", ["n1", "n2"])
    message = "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory."
    held = hold_of(condition="Unschedulable", message=message, refusals=[both])
    assert held == Hold("PodFitsResources", "Insufficient cpu")
    # kube-scheduler says an extender's reason as it is.
    message = "0/2 nodes are available: 2 Insufficient cpu, Insufficient memory."
    assert hold_of(condition="Unschedulable", message=message, refusals=[both]) == Hold("PodFitsResources", both.reason)


def test_a_reason_of_any_length_becomes_one_that_a_database_takes() -> None:
    hold = hold_of(condition="", message="a\0b" + "x" * 9_000, refusals=[])
    assert hold.reason.startswith("abx")
    assert len(hold.reason) == 500


def test_a_time_that_is_past_is_not_said() -> None:
    queued = {"state": "unschedulable", "until": None, "opens_at": (NOW - timedelta(seconds=1)).isoformat()}
    said = next_try(**(NOTHING | {"queued": queued}))
    assert said.endswith("else five minutes after the last try")


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ({"condition": "SchedulingGated"}, "gates are taken off"),
        ({"queued": {"state": "backoff", "until": (NOW + timedelta(seconds=4)).isoformat()}}, "in 4 s"),
        ({"queued": {"state": "active", "until": None}}, "at once"),
        ({"queued": {"state": "gated", "until": None}}, "gates are taken off"),
        ({"queued": {"state": "unschedulable", "until": None}}, "when the cluster, the rules or the time change"),
        (
            {"queued": {"state": "unschedulable", "until": None, "opens_at": (NOW + timedelta(hours=1)).isoformat()}},
            "five minutes after the last try; time may change the answer at 2026-05-01 13:00:00 UTC",
        ),
        ({"requeued_for": "revision"}, "because of a new Revision"),
        ({"requeued_for": "time"}, "because of the time"),
        ({"requeued_for": "namespace"}, "because of the labels of its namespace"),
        ({"requeue_at": NOW + timedelta(hours=1)}, "at 2026-05-01 13:00:00 UTC, when time may change the answer"),
        ({"message": ""}, "when its scheduler takes it"),
        ({"tried_at": NOW - timedelta(minutes=1)}, "at 2026-05-01 12:04:00 UTC at the latest"),
        (
            {"tried_at": NOW - timedelta(minutes=1), "requeue_at": NOW + timedelta(hours=1)},
            "at 2026-05-01 12:04:00 UTC at the latest; time may change the answer at 2026-05-01 13:00:00 UTC",
        ),
        (
            {"tried_at": NOW - timedelta(minutes=1), "requeue_at": NOW + timedelta(minutes=2)},
            "at 2026-05-01 12:02:00 UTC, when time may change the answer",
        ),
        ({"tried_at": NOW - timedelta(minutes=9)}, "else five minutes after the last try"),
    ],
)
def test_when_a_pod_is_tried_next_is_said_as_far_as_it_is_known(known: dict[str, Any], says: str) -> None:
    assert says in next_try(**(NOTHING | known))


def listed(**more: Any) -> bytes:
    pod = {
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "creationTimestamp": "2026-05-01T11:00:00Z"},
        "spec": {"schedulerName": "default-scheduler", "priority": 7},
        "status": {"phase": "Pending"},
    }
    for path, value in more.items():
        pod[path.partition("_")[0]][path.partition("_")[2]] = value  # type: ignore[index]
    return msgspec.json.encode({"items": [pod]})


def test_a_pod_that_nobody_has_tried_waits_since_it_was_created() -> None:
    (pod,) = unbound_pods(listed())
    assert (pod.namespace, pod.name, pod.scheduler_name, pod.priority) == ("shop", "web-1", "default-scheduler", 7)
    assert pod.since == pod.created_at == datetime(2026, 5, 1, 11, tzinfo=UTC)
    assert (pod.condition, pod.message, pod.owner_kind) == ("", "", "")


def test_a_pod_that_was_refused_waits_since_then_and_belongs_to_its_deployment() -> None:
    refused = {
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 x.",
        "lastTransitionTime": "2026-05-01T11:30:00Z",
    }  # fmt: skip
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5c9", "uid": "r", "controller": True}
    page = listed(
        status_conditions=[refused], status_nominatedNodeName="n1", metadata_ownerReferences=[owner],
        metadata_labels={"pod-template-hash": "5c9"},
    )  # fmt: skip
    (pod,) = unbound_pods(page)
    assert pod.since == datetime(2026, 5, 1, 11, 30, tzinfo=UTC)
    assert (pod.owner_kind, pod.owner_name, pod.nominated_node) == ("Deployment", "web", "n1")
    assert (pod.condition, pod.message) == ("Unschedulable", "0/1 nodes are available: 1 x.")


@pytest.mark.parametrize(
    "at", ["10000-01-01T11:59:59Z", "-0001-12-31T12:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:01Z"]
)
def test_a_pod_that_was_refused_at_a_time_that_none_here_can_be_waits_since_it_was_created(at: str) -> None:
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at}
    (pod,) = unbound_pods(listed(status_conditions=[refused]))
    assert (pod.since, pod.condition) == (pod.created_at, "Unschedulable")


def test_a_pod_that_has_a_node_or_is_being_deleted_does_not_wait() -> None:
    assert unbound_pods(listed(spec_nodeName="n1")) == []
    assert unbound_pods(listed(metadata_deletionTimestamp="2026-05-01T11:59:00Z")) == []
