"""One Berth with a cluster for each way in which kube-scheduler hands over nodes."""

from collections.abc import Iterator

import pytest

from tests.stack import Stack, make_node

NODES = [
    make_node("n1", team="web"),
    make_node("node-two", team="web", policy="by-node-label"),
    make_node("the-third-node", team="data", policy="by-node-label"),
]


@pytest.fixture(scope="session", params=[True, False], ids=["names", "full nodes"])
def shared_stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("stack"), nodes=NODES, node_cache_capable=request.param) as stack:
        yield stack


@pytest.fixture
def stack(shared_stack: Stack) -> Iterator[Stack]:
    """The shared stack, without Pods."""
    shared_stack.delete_all_pods()
    yield shared_stack
    shared_stack.delete_all_pods()
