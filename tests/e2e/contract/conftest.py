"""A real kube-scheduler whose extenders answer as a test says.

What kube-scheduler makes of an answer is what Berth's own answers rest on (docs/architecture.md, "The wire"). There are
three entries of extenders, and a Pod chooses one by the extended resource that it asks for.
"""

import json
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scheduler.cluster.client import MERGE_PATCH, Client
from scheduler.cluster.errors import APIError, APINotFoundError
from tests.stack import BASE_DIR, eventually, make_node
from tests.unit.cluster.scripted_server import Answer, Request, ScriptedServer

LOCALCLUSTER = BASE_DIR / "deploy" / "localcluster" / "localcluster"
READY_SECONDS = 900.0
TIMEOUT_SECONDS = 1.0
NODES = ("n1", "n2", "n3")

Script = Callable[[dict[str, Any]], Answer]


def ok(document: Any) -> Answer:
    return Answer(200, json.dumps(document).encode(), {"Content-Type": "application/json"})


def passing(names: list[str] | None = None) -> Script:
    """Let these nodes pass, or all."""

    def answer(args: dict[str, Any]) -> Answer:
        if args["Nodes"] is None:
            return ok({"NodeNames": [name for name in args["NodeNames"] if names is None or name in names]})
        items = [item for item in args["Nodes"]["items"] if names is None or item["metadata"]["name"] in names]
        return ok({"Nodes": {"items": items}})

    return answer


def entry(name: str, url: str, **members: Any) -> dict[str, Any]:
    return {
        "urlPrefix": f"{url}/{name}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 1,
        "nodeCacheCapable": True,
        "httpTimeout": f"{TIMEOUT_SECONDS}s",
        "managedResources": [{"name": f"berth.test/{name}", "ignoredByScheduler": True}],
        **members,
    }


class Contract:
    """The cluster, its client, what the extenders answer, and what they were asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.server = ScriptedServer(self._answer)
        self.scripts: dict[str, Script] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.methods: list[tuple[str, str]] = []
        self._lock = threading.Lock()
        self._names = 0
        config = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "extenders": [
                entry("names", self.server.url, bindVerb="bind"),
                entry("full", self.server.url, nodeCacheCapable=False),
                entry("ignorable", self.server.url, ignorable=True),
            ],
        }
        (folder / "scheduler.yaml").write_text(yaml.safe_dump(config))
        (folder / "nodes.yaml").write_text(yaml.safe_dump_all([make_node(name, place=name) for name in NODES]))
        self.client = Client.connect(folder / "kubeconfig")

    def _answer(self, request: Request) -> Answer:
        verb = request.path.rpartition("/")[2]
        with self._lock:
            self.methods.append((request.method, request.path))
            if request.method != "POST":
                return Answer(405)
            args = json.loads(request.body)
            self.calls.append((verb, args))
        return self.scripts.get(verb, self._defaults()[verb])(args)

    def _defaults(self) -> dict[str, Script]:
        return {
            "filter": passing(),
            "prioritize": lambda _: ok([]),
            "bind": self._bind,
            "preempt": lambda args: ok({"NodeNameToMetaVictims": args["NodeNameToMetaVictims"]}),
        }

    def _bind(self, args: dict[str, Any]) -> Answer:
        self.bind(args)
        return ok({"Error": ""})

    def bind(self, args: dict[str, Any]) -> None:
        """Bind as an extender does."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": args["PodName"], "uid": args["PodUID"]},
            "target": {"kind": "Node", "name": args["Node"]},
        }
        path = f"/api/v1/namespaces/{args['PodNamespace']}/pods/{args['PodName']}/binding"
        self.client.post(path=path, body=json.dumps(body).encode())

    def count(self, verb: str) -> int:
        """How often a verb was asked."""
        return sum(1 for asked, _ in list(self.calls) if asked == verb)

    def post(self, path: str, document: dict[str, Any]) -> dict[str, Any]:
        return dict(json.loads(self.client.post(path=path, body=json.dumps(document).encode())))

    def create_pod(self, extender: str = "", *, name: str = "", cpu: str = "", **spec: Any) -> str:
        """Create a Pod that the extender of that name is asked about; returns the Pod's name."""
        self._names += 1
        name = name or f"pod-{self._names}"
        limits = {f"berth.test/{extender}": "1"} if extender else {}
        requests = {"cpu": cpu} if cpu else {}
        container = {"name": "main", "image": "busybox", "resources": {"limits": limits, "requests": requests | limits}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container], **spec},
        }
        self.post("/api/v1/namespaces/default/pods", pod)
        return name

    def pod(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(json.loads(self.client.get(path=f"/api/v1/namespaces/default/pods/{name}")))
        except APINotFoundError:
            return None

    def node_of(self, name: str) -> str:
        found = self.pod(name)
        return str(found["spec"].get("nodeName", "")) if found else ""

    def wait_for_node(self, name: str, seconds: float = 20) -> str:
        return eventually(lambda: self.node_of(name), seconds=seconds, every=0.05, what=f"{name} on a node")

    def condition(self, name: str) -> dict[str, str]:
        """The condition PodScheduled; empty while there is none."""
        found = self.pod(name)
        conditions = (found or {}).get("status", {}).get("conditions") or []
        return next((dict(each) for each in conditions if each["type"] == "PodScheduled"), {})

    def wait_for_refusal(self, name: str) -> dict[str, str]:
        """Wait until kube-scheduler says why a Pod waits."""
        return eventually(
            lambda: found if (found := self.condition(name)).get("status") == "False" else {}, what=f"{name} refused"
        )

    def annotate(self, name: str) -> None:
        body = json.dumps({"metadata": {"annotations": {"berth.test/poke": str(time.time())}}}).encode()
        self.client.patch(path=f"/api/v1/namespaces/default/pods/{name}", body=body, content_type=MERGE_PATCH)

    def delete_pod(self, name: str) -> None:
        self.client.delete(
            path=f"/api/v1/namespaces/default/pods/{name}", body=json.dumps({"gracePeriodSeconds": 0}).encode()
        )

    def reset(self) -> None:
        """Take all Pods away, and forget what was asked and scripted."""
        for pod in self.client.list_pods():
            if pod["metadata"]["namespace"] == "default":
                try:
                    self.delete_pod(pod["metadata"]["name"])
                except APINotFoundError:
                    continue
        eventually(
            lambda: not [pod for pod in self.client.list_pods() if pod["metadata"]["namespace"] == "default"],
            what="all Pods gone",
        )
        self.scripts.clear()
        self.calls.clear()
        self.methods.clear()


@pytest.fixture(scope="session")
def shared_contract(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contract]:
    folder = tmp_path_factory.mktemp("contract")
    contract = Contract(folder)
    bash = shutil.which("bash")
    assert bash is not None
    command = [bash, str(LOCALCLUSTER), "up", "--dir", str(folder), "--no-controller-manager"]
    command += ["--scheduler-config", str(folder / "scheduler.yaml"), "--nodes-file", str(folder / "nodes.yaml")]
    with (folder / "output.log").open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        eventually(lambda: _is_ready(folder, process), seconds=READY_SECONDS, what="the control plane is ready")
        eventually(lambda: _can_create(contract), what="Pods can be created")
        yield contract
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        contract.server.close()


@pytest.fixture
def contract(shared_contract: Contract) -> Iterator[Contract]:
    """The shared cluster without Pods."""
    shared_contract.reset()
    yield shared_contract
    shared_contract.reset()


def _is_ready(folder: Path, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, (folder / "output.log").read_text()
    try:
        return bool(json.loads((folder / "status.json").read_text())["phase"] == "ready")
    except FileNotFoundError:
        return False


def _can_create(contract: Contract) -> bool:
    try:
        contract.delete_pod(contract.create_pod(nodeName="n1"))
    except APIError:
        return False
    return True
