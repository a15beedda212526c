"""Kubernetes' own integration test of extenders, with Berth as the third of them.

Source: k8s.io/kubernetes v1.36.3 test/integration/scheduler/extender/extender_test.go, TestSchedulerExtender.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.stack import Stack, make_node
from tests.unit.cluster.scripted_server import Answer, Request, ScriptedServer

pytestmark = pytest.mark.e2e

RESOURCE = "foo.com/bar"
BERTH = [
    {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": "machines"},
        "spec": {
            "filters": [
                {
                    "name": "one-to-three",
                    "expression": "node.metadata.name in ['machine1', 'machine2', 'machine3']",
                    "reason": "not one of the first three",
                }
            ],
            "scores": [
                {
                    "name": "two",
                    "expression": "node.metadata.name == 'machine2' ? 10 : 1",
                    "bounds": [0, 10],
                    "weight": 5,
                }
            ],
        },
    },
    {"apiVersion": "berth/v1", "kind": "Assignment", "metadata": {"name": "all"}, "spec": {"ruleSet": "machines"}},
]


class Others:
    """The other two extenders: one refuses machines 4 and 5, one 1 and 4; each likes one machine best; one binds."""

    passing = {"first": {"machine1", "machine2", "machine3"}, "second": {"machine2", "machine3", "machine5"}}
    best = {"first": "machine2", "second": "machine3"}

    def __init__(self) -> None:
        self.server = ScriptedServer(self._answer)
        self.verbs: list[str] = []
        self.stack: Stack | None = None

    def entries(self) -> list[dict[str, Any]]:
        common = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "nodeCacheCapable": False}
        managed = [{"name": RESOURCE, "ignoredByScheduler": True}]
        first, second = (f"{self.server.url}/{name}" for name in ("first", "second"))
        return [
            {**common, "urlPrefix": first, "weight": 3},
            {**common, "urlPrefix": second, "weight": 4, "bindVerb": "bind", "managedResources": managed},
        ]

    def _answer(self, request: Request) -> Answer:
        _, name, verb = request.path.split("/")
        self.verbs.append(f"{name} {verb}")
        args = json.loads(request.body)
        if verb == "bind":
            self._bind(args)
            return self._ok({"Error": ""})
        nodes = args["Nodes"]["items"]
        if verb == "filter":
            return self._ok({"Nodes": {"items": [n for n in nodes if n["metadata"]["name"] in self.passing[name]]}})
        names = [node["metadata"]["name"] for node in nodes]
        return self._ok([{"Host": found, "Score": 10 if found == self.best[name] else 1} for found in names])

    def _bind(self, args: dict[str, Any]) -> None:
        assert self.stack is not None
        body = {"metadata": {"name": args["PodName"]}, "target": {"kind": "Node", "name": args["Node"]}}
        path = f"/api/v1/namespaces/{args['PodNamespace']}/pods/{args['PodName']}/binding"
        self.stack.client.post(path=path, body=json.dumps({"apiVersion": "v1", "kind": "Binding", **body}).encode())

    @staticmethod
    def _ok(document: Any) -> Answer:
        return Answer(200, json.dumps(document).encode())


@pytest.fixture
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stack, Others]]:
    others = Others()
    nodes = [make_node(f"machine{number}") for number in range(1, 6)]
    stack = Stack(tmp_path_factory.mktemp("upstream"), nodes=nodes, others=others.entries(), weight=10, bindVerb="")
    others.stack = stack
    with closing(others.server), stack:
        stack.publish_all(BERTH)
        yield stack, others


def test_three_extenders_agree_on_the_second_machine(upstream: tuple[Stack, Others]) -> None:
    stack, others = upstream
    limits = {"containers": [{"name": "main", "image": "busybox", "resources": {"limits": {RESOURCE: "1"}}}]}

    stack.create_pod("asks-for-bar", **limits)

    assert stack.wait_for_node("asks-for-bar") == "machine2"
    assert set(others.verbs) == {
        "first filter", "first prioritize", "second filter", "second prioritize", "second bind",
    }  # fmt: skip


def test_an_extender_that_does_not_manage_the_pods_resources_is_not_asked(upstream: tuple[Stack, Others]) -> None:
    stack, others = upstream

    stack.create_pod("asks-for-nothing")

    assert stack.wait_for_node("asks-for-nothing") == "machine2"
    assert not [verb for verb in others.verbs if verb.startswith("second")]
