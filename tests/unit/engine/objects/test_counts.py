"""How many Pods of a namespace a selector means, on each node."""

from typing import Any

import pytest

from policies.engine.objects import columns
from policies.engine.objects.node import NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.selectors import NOTHING, Clause, Selector, selector_of
from tests.builders import make_node, make_pod
from tests.unit.engine.objects.asking import snapshot_of

SELECTORS = [
    selector_of({"tier": "web"}),
    selector_of({"tier": "web", "app": "app-3"}),
    selector_of({}),
    NOTHING,
    Selector((Clause("app", "In", ("app-1", "app-1", "app-2")),)),
    Selector((Clause("app", "NotIn", ("app-1",)), Clause("tier", "Exists", ()))),
    Selector((Clause("other", "DoesNotExist", ()),)),
]


def a_pod(number: int, **metadata: Any) -> dict[str, Any]:
    pod = make_pod(f"p{number}", labels={"app": f"app-{number}", "tier": "web"}, nodeName=f"n{number % 3}")
    pod["metadata"] |= metadata
    return pod


def counted(snapshot: Snapshot, selector: Selector, *, deleting: bool, namespace: str | None = "default") -> list[int]:
    return columns.count_selected(snapshot.table, namespace, selector, deleting=deleting).tolist()


def by_the_words(
    snapshot: Snapshot, selector: Selector, *, deleting: bool, namespace: str | None = "default"
) -> list[int]:
    return [
        sum(
            namespace in {None, pod.namespace} and selector.matches(pod.labels) and (deleting or not pod.is_deleting)
            for pod in info.pods
        )
        for info in snapshot.table.infos
    ]


@pytest.mark.parametrize("namespace", ["default", columns.ALL_NAMESPACES])
@pytest.mark.parametrize("deleting", [True, False])
@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("number", [5, columns._MAX_ADDED + 10])
def test_pods_are_counted_however_many_looks_they_have(
    number: int, selector: Selector, deleting: bool, namespace: str | None
) -> None:
    pods = [a_pod(index) for index in range(number)]
    pods += [a_pod(100, namespace="other"), a_pod(101, deletionTimestamp="2026-01-01T00:00:00Z")]
    snapshot = snapshot_of([make_node(f"n{index}") for index in range(3)], pods)
    asked: dict[str, Any] = {"deleting": deleting, "namespace": namespace}
    assert counted(snapshot, selector, **asked) == by_the_words(snapshot, selector, **asked)
    info = snapshot.nodes["n1"]
    pods_now = (*info.pods[1:], Pod.from_json(a_pod(200)), Pod.from_json(a_pod(201, namespace="third")))
    followed = snapshot.changed({"n1": NodeInfo(info.node, pods_now)})
    assert counted(followed, selector, **asked) == by_the_words(followed, selector, **asked)


def test_a_look_that_comes_and_goes_is_found_and_lost() -> None:
    first = snapshot_of([make_node("n1")], [])
    node = first.nodes["n1"].node
    web = selector_of({"app": "app-1"})
    assert counted(first, web, deleting=True) == [0]
    second = first.changed({"n1": NodeInfo(node, [Pod.from_json(a_pod(1)), Pod.from_json(a_pod(2))])})
    assert counted(second, web, deleting=True) == [1]
    third = second.changed({"n1": NodeInfo(node, [Pod.from_json(a_pod(2))])})
    assert counted(third, web, deleting=True) == [0]
    assert counted(third, selector_of({"app": "app-2"}), deleting=True) == [1]
