"""Rules that count Pods hold under haste: 200 Pods at once, never one too many, with one extender and with two.

So they do where kube-scheduler places half of these Pods, and Berth's own scheduler the others.

Half of the Pods are in another namespace: what is counted in all namespaces holds over both, what isn't in each.

COUNTING_RUNS says how often each is tried (2; `make long` tries 20 times).
"""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.balancer import Backend, Balancer
from tests.extender import Extender
from tests.stack import Stack, eventually, make_node

pytestmark = pytest.mark.e2e

RUNS = int(os.environ.get("COUNTING_RUNS", "2"))
PODS, NODES, PER_NODE, IN_ALL = 200, 40, 3, 100
RACKS, PER_RACK = 8, 4
NAMESPACES = ("default", "elsewhere")
RULES = [
    {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": "few"},
        "spec": {
            "params": {"perNode": PER_NODE, "inAll": IN_ALL},
            "filters": [
                {
                    "name": "per-node",
                    "expression": "node.count({'app': pod.metadata.labels.app}) < params.perNode",
                    "reason": "enough Pods of the app on the node",
                },
                {
                    "name": "in-all",
                    "expression": "cluster.countInAllNamespaces({'app': pod.metadata.labels.app}) < params.inAll",
                    "reason": "enough Pods of the app in the cluster",
                },
            ],
        },
    },
    {
        "apiVersion": "berth/v1",
        "kind": "Assignment",
        "metadata": {"name": "few"},
        "spec": {"ruleSet": "few", "match": {"podSelector": {"matchLabels": {"policy": "few"}}}},
    },
    {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": "racks"},
        "spec": {
            "filters": [
                {"builtin": "MaxReplicasPerDomain", "arguments": {"maxReplicas": PER_RACK, "topologyKey": "rack"}},
            ],
        },
    },
    {
        "apiVersion": "berth/v1",
        "kind": "Assignment",
        "metadata": {"name": "racks"},
        "spec": {"ruleSet": "racks", "match": {"podSelector": {"matchLabels": {"policy": "racks"}}}},
    },
]


@pytest.fixture(scope="module", params=[1, 2], ids=["one extender", "two replicas behind one address"])
def counting_stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("counting")
    nodes = [make_node(f"n{number}", rack=f"r{number % RACKS}") for number in range(NODES)]
    with Balancer() as balancer:
        stack = Stack(folder, nodes=nodes, urlPrefix=balancer.url, bindVerb="bind", httpTimeout="5s")
        second: Extender | None = None
        try:
            stack.start()
            stack.create_namespace("elsewhere")
            balancer.add(Backend(stack.extender_port))
            if request.param > 1:
                second = Extender(folder / "second", stack.environment_of_a_replica(folder / "second")).start("readyz")
                balancer.add(Backend(second.port))
            stack.publish_all(RULES)
            if second is not None:
                served = stack.newest_revision()
                eventually(lambda: second.metric("berth_revision") >= served, what="the second replica is up to date")
            yield stack
        finally:
            if second is not None:
                second.stop()
            stack.stop()


@pytest.mark.parametrize("run", range(RUNS))
def test_counts_are_never_exceeded_when_many_pods_come_at_once(counting_stack: Stack, run: int) -> None:
    placed = _placed_in_haste(counting_stack, f"p{run}", policy="few", most=IN_ALL, namespaces=NAMESPACES)
    assert len(placed) == IN_ALL
    assert {namespace for namespace, _ in placed} == set(NAMESPACES)
    assert max(Counter(placed).values()) <= PER_NODE


@pytest.mark.parametrize("run", range(RUNS))
def test_counts_are_never_exceeded_where_two_schedulers_place_the_pods(counting_stack: Stack, run: int) -> None:
    schedulers = ("default-scheduler", "berth")
    placed = _placed_in_haste(counting_stack, f"b{run}", policy="few", most=IN_ALL, schedulers=schedulers)
    assert len(placed) == IN_ALL
    assert max(Counter(placed).values()) <= PER_NODE
    by = Counter(pod["spec"]["schedulerName"] for pod in counting_stack.pods().values() if pod["spec"].get("nodeName"))
    assert by.keys() == set(schedulers), "each of them placed some"


@pytest.mark.parametrize("run", range(RUNS))
def test_no_rack_gets_more_replicas_than_it_may_have_when_many_pods_come_at_once(
    counting_stack: Stack, run: int
) -> None:
    placed = _placed_in_haste(counting_stack, f"r{run}", policy="racks", most=RACKS * PER_RACK)
    racks = Counter(int(node.removeprefix("n")) % RACKS for _, node in placed)
    assert racks == dict.fromkeys(range(RACKS), PER_RACK)


def _placed_in_haste(
    stack: Stack,
    prefix: str,
    *,
    policy: str,
    most: int,
    namespaces: Sequence[str] = NAMESPACES[:1],
    schedulers: Sequence[str] = ("default-scheduler",),
) -> list[tuple[str, str]]:
    """Create many Pods at once, in these namespaces and for these schedulers by turns, wait until as many have a node as may, and a while longer.

    Returns the namespace and the node of those.
    """
    for namespace in NAMESPACES:
        stack.delete_all_pods(namespace)
    began = time.monotonic()
    labels = {"policy": policy, "app": "x"}
    with ThreadPoolExecutor(16) as pool:

        def create(number: int) -> None:
            place, scheduler = namespaces[number % len(namespaces)], schedulers[number % len(schedulers)]
            stack.create_pod(f"{prefix}-{number}", namespace=place, labels=labels, schedulerName=scheduler)

        list(pool.map(create, range(PODS)))

    def placed() -> list[tuple[str, str]]:
        found = [(namespace, pod) for namespace in namespaces for pod in stack.pods(namespace).values()]
        return [(namespace, node) for namespace, pod in found if (node := pod["spec"].get("nodeName"))]

    eventually(lambda: len(placed()) >= most, seconds=180, every=0.5, what=f"{most} Pods on nodes")
    seconds = time.monotonic() - began
    time.sleep(2.0)  # for the one that would be too many
    found = placed()
    print(f"{most} of {PODS} Pods on {len({node for _, node in found})} nodes after {seconds:.1f} s")
    return found
