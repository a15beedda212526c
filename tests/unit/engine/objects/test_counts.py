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


def counted(snapshot: Snapshot, selector: Selector, *, deleting: bool) -> list[int]:
    return columns.count_selected(snapshot.table, "default", selector, deleting=deleting).tolist()


def by_the_words(snapshot: Snapshot, selector: Selector, *, deleting: bool) -> list[int]:
    return [
        sum(
            pod.namespace == "default" and selector.matches(pod.labels) and (deleting or not pod.is_deleting)
            for pod in info.pods
        )
        for info in snapshot.table.infos
    ]


@pytest.mark.parametrize("deleting", [True, False])
@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("number", [5, columns._MAX_ADDED + 10])
def test_pods_are_counted_however_many_looks_they_have(number: int, selector: Selector, deleting: bool) -> None:
    pods = [a_pod(index) for index in range(number)]
    pods += [a_pod(100, namespace="other"), a_pod(101, deletionTimestamp="2026-01-01T00:00:00Z")]
    snapshot = snapshot_of([make_node(f"n{index}") for index in range(3)], pods)
    assert counted(snapshot, selector, deleting=deleting) == by_the_words(snapshot, selector, deleting=deleting)
    info = snapshot.nodes["n1"]
    followed = snapshot.changed({"n1": NodeInfo(info.node, (*info.pods[1:], Pod.from_json(a_pod(200))))})
    assert counted(followed, selector, deleting=deleting) == by_the_words(followed, selector, deleting=deleting)


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
