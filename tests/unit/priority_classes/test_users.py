"""Who uses a PriorityClass, counted of Pods as the API server lists them."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIUnavailableError
from scheduler.priority_classes.users import Count, Key, read_users


class Pods(Client):
    """A client that lists these Pods, two on a page."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = pods
        self.pages = 0

    def list_pages(self, **_: Any) -> Iterator[bytes]:
        for start in range(0, len(self.pods), 2):
            self.pages += 1
            yield json.dumps({"items": self.pods[start : start + 2]}).encode()


def pod(
    name: str, *, owner: tuple[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    references = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else None
    metadata = {"name": name, "namespace": "shop", "labels": labels, "ownerReferences": references}
    return {"metadata": metadata, "spec": {"priorityClassName": "batch", "priority": 1000, **spec}}


def counted(*pods: dict[str, Any]) -> dict[Key, Count]:
    counts, fault = read_users(Pods(*pods))
    assert fault == ""
    return counts


def test_pods_are_counted_by_workload_and_number() -> None:
    web = {"pod-template-hash": "abc"}
    counts = counted(
        pod("web-1", owner=("ReplicaSet", "web-abc"), labels=web),
        pod("web-2", owner=("ReplicaSet", "web-abc"), labels=web),
        pod("web-0", owner=("ReplicaSet", "web-abc"), labels=web, priority=7),
        pod("nightly-x", owner=("Job", "nightly")),
        pod("alone", priority=None),
        pod("other", priorityClassName=None, priority=0),
    )
    assert {(key.kind, key.name, key.priority): found.pods for key, found in counts.items()} == {
        ("Deployment", "web", 1000): 2,
        ("Deployment", "web", 7): 1,
        ("Job", "nightly", 1000): 1,
        ("Pod", "alone", 0): 1,
    }
    assert counts[Key("batch", "shop", "Deployment", "web", 1000)].examples == ["web-1", "web-2"]


def test_owners_names_are_kept_as_a_database_stores_them() -> None:
    """The API server takes any text as an owner's kind and name, which whoever makes a Pod chooses."""
    counts = counted(pod("a", owner=("J\0ob", "night\0ly")), pod("b", owner=("Job", "n" * 9_000)))
    assert {(key.kind, key.name) for key in counts} == {("Job", "nightly"), ("Job", "n" * 253)}


def test_a_replica_set_of_nobody_is_the_workload() -> None:
    assert {key.kind for key in counted(pod("a", owner=("ReplicaSet", "web-abc")))} == {"ReplicaSet"}


def test_names_are_kept_of_some_pods_only() -> None:
    (found,) = counted(*(pod(f"p{number}", owner=("Job", "j")) for number in range(40))).values()
    assert (found.pods, len(found.examples)) == (40, 10)


def test_a_list_that_takes_too_long_is_cut_short_and_says_so() -> None:
    client = Pods(*(pod(f"p{number}") for number in range(9)))
    counts, fault = read_users(client, longest_seconds=0)
    assert (len(counts), client.pages) == (2, 1)
    assert fault == "The list took too long: only the first 2 Pods are counted."


def test_what_is_no_list_of_pods_is_a_fault_of_the_server() -> None:
    with pytest.raises(APIUnavailableError, match="isn't what Kubernetes gives"):
        read_users(Pods({"metadata": {"name": 7}}))
