"""Two pools of nodes in one cluster that are alike, for two schedulers to preempt on: a generated case, laid out twice.

Pools don't touch: the Pods of each have a selector for its nodes and namespaces of their own. Nobody plays kubelet or controller
manager meanwhile, so that Pods keep the start that the case gives them, budgets their status, and victims stay while they leave.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from scheduler.cluster.client import Client
from scheduler.cluster.errors import APIForbiddenError, APINotFoundError
from tests.differential.making.words import HOSTNAME, ZONE
from tests.differential.preemption_cases import generate_preemption
from tests.stack import eventually

Json = dict[str, Any]

POOL = "berth-tests/pool"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
# Priorities of cases above those that users may have -> the highest that they may.
HIGHEST = {2_000_000_000: 999_999_999, 2_000_000_001: 1_000_000_000}

MOST_NODES = 10

_GATES = [{"name": "berth-tests/ready"}]


def takes_part(case: Json) -> bool:
    """Return whether a case can be laid out in a real cluster: a small tight one, without nominations from before."""
    return (
        len(case["nodes"]) < MOST_NODES
        and all((node["metadata"]["labels"] or {}).keys() <= {HOSTNAME, ZONE, "disk"} for node in case["nodes"])
        and all(pod["spec"].get("nodeName") for pod in case["pods"])
        and not case["pod"]["status"].get("nominatedNodeName")
    )


def settled(number: int, *, seed: int) -> Json | None:
    """Return the case with this number as a real cluster can have it; None where it can't."""
    case = generate_preemption(seed, number)
    if not takes_part(case):
        return None
    case = deepcopy(case)
    case.pop("wanted", None)
    for pod in (case["pod"], *case["pods"]):
        priority = pod["spec"].get("priority")
        if priority is not None:
            pod["spec"]["priority"] = HIGHEST.get(priority, priority)
    _add_topology(case)
    case["podDisruptionBudgets"] = [
        budget for budget in case.get("podDisruptionBudgets", ()) if not _is_unreadable(budget["spec"]["selector"])
    ]
    return case


def _add_topology(case: Json) -> None:
    """Label Pods with the zone of their node, as the API server does (admission plugin PodTopologyLabels)."""
    zones = {node["metadata"]["name"]: node["metadata"]["labels"].get(ZONE) for node in case["nodes"]}
    for pod in case["pods"]:
        if zone := zones[pod["spec"]["nodeName"]]:
            pod["metadata"]["labels"] = {**(pod["metadata"].get("labels") or {}), ZONE: zone}


def _is_unreadable(selector: Json | None) -> bool:
    return any(entry["operator"] == "Like" for entry in (selector or {}).get("matchExpressions", ()))


def class_of(spec: Json) -> str:
    """Return the name of the PriorityClass that stands for a Pod's priority and preemptionPolicy; "" for none."""
    if "priority" not in spec:
        return ""
    never = "-never" if spec.get("preemptionPolicy") == "Never" else ""
    return f"p{spec['priority']}{never}".replace("p-", "below-")


class Pool:
    """A case as it stands in the cluster for one scheduler."""

    def __init__(self, client: Client, name: str, case: Json, scheduler_name: str) -> None:
        self.name = name
        self.case = case
        self._client = client
        self._scheduler_name = scheduler_name

    # Making it

    def make(self) -> None:
        """Make everything; the Pod that finds no room is held back by a gate."""
        for namespace in sorted({self._namespace(entry) for entry in self._namespaced()}):
            self._create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        for node in self.case["nodes"]:
            self._create("/api/v1/nodes", self._node(node))
        for budget in self.case["podDisruptionBudgets"]:
            self._make_budget(budget)
        for pod in self.case["pods"]:
            self._make_running(pod)
        self._create(self._pods_path(self.case["pod"]), self._pod(self.case["pod"], schedulingGates=_GATES))

    def _namespaced(self) -> Iterator[Json]:
        yield self.case["pod"]
        yield from self.case["pods"]
        yield from self.case["podDisruptionBudgets"]

    def _node(self, node: Json) -> Json:
        name = self._named(node["metadata"]["name"])
        labels = {**node["metadata"]["labels"], HOSTNAME: name, POOL: self.name}
        status = {**node["status"], "conditions": [{"type": "Ready", "status": "True"}]}
        return {"metadata": {"name": name, "labels": labels}, "spec": node["spec"], "status": status}

    def _make_budget(self, budget: Json) -> None:
        path = f"/apis/policy/v1/namespaces/{self._namespace(budget)}/poddisruptionbudgets"
        name = budget["metadata"]["name"]
        self._create(path, {"metadata": {"name": name}, "spec": {**budget["spec"], "minAvailable": 1}})
        status = {
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
            "observedGeneration": 1,
            **budget["status"],
        }
        self._patch(f"{path}/{name}/status", {"status": status}, MERGE)

    def _make_running(self, pod: Json) -> None:
        path = f"{self._pods_path(pod)}/{pod['metadata']['name']}"
        self._create(self._pods_path(pod), self._pod(pod))
        self._patch(f"{path}/status", {"status": {"conditions": [], **pod["status"]}}, STRATEGIC)
        if "deletionTimestamp" in pod["metadata"]:
            self._client.delete(path=path)

    def _pod(self, pod: Json, **more: Any) -> Json:
        spec = {key: value for key, value in pod["spec"].items() if key not in {"priority", "preemptionPolicy"}}
        spec |= {"schedulerName": self._scheduler_name, "priorityClassName": class_of(pod["spec"]), **more}
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), POOL: self.name}
        if "nodeName" in spec:
            spec["nodeName"] = self._named(spec["nodeName"])
        metadata = {"name": pod["metadata"]["name"], "labels": pod["metadata"].get("labels") or {}}
        return {"metadata": metadata, "spec": spec}

    # What the schedulers do

    def open(self) -> None:
        """Let the Pod be scheduled."""
        self._patch(self._path_of_pod(), {"spec": {"schedulingGates": None}}, MERGE)

    @property
    def pod(self) -> Json:
        """The Pod that finds no room, as it is now."""
        return dict(json.loads(self._client.get(path=self._path_of_pod())))

    def read(self, name: str) -> Json:
        """Return one of the Pods of the default namespace."""
        return dict(json.loads(self._client.get(path=f"{self._pods_path_in(f'{self.name}-default')}/{name}")))

    def message(self, name: str) -> str:
        """Return why a Pod isn't scheduled; "" while nothing is said."""
        conditions = self.read(name)["status"].get("conditions") or []
        return next((str(each.get("message", "")) for each in conditions if each["type"] == "PodScheduled"), "")

    def events(self, name: str) -> list[Json]:
        """Return the events about a Pod of the default namespace."""
        answer = self._client.get(path=f"/apis/events.k8s.io/v1/namespaces/{self.name}-default/events")
        return [event for event in json.loads(answer)["items"] if event["regarding"]["name"] == name]

    def add(self, pod: Json) -> None:
        """Add a Pod that waits for a node."""
        make_classes(self._client, [{"pod": pod, "pods": []}])
        self._create(self._pods_path(pod), self._pod(pod))

    def taint(self, node: str) -> None:
        """Keep all Pods from a node."""
        taint = {"key": "closed", "effect": "NoSchedule"}
        self._patch(f"/api/v1/nodes/{self._named(node)}", {"spec": {"taints": [taint]}}, MERGE)

    def is_judged(self) -> bool:
        """Return whether a scheduler has had its say on the Pod."""
        pod = self.pod
        said = [each for each in pod["status"].get("conditions", ()) if each["type"] == "PodScheduled"]
        return bool(pod["spec"].get("nodeName") or any(each.get("reason") == "Unschedulable" for each in said))

    @property
    def freed(self) -> str:
        """The node that is being freed for the Pod, or that it is on already, named as in the case; "" for none.

        Spread doesn't count Pods that are leaving: then the Pod is bound while its victims are still there.
        """
        pod = self.pod
        return self._in_case(pod["spec"].get("nodeName", "") or pod["status"].get("nominatedNodeName", ""))

    @property
    def node(self) -> str:
        """The node that the Pod is on, named as in the case; "" for none."""
        return self._in_case(self.pod["spec"].get("nodeName", ""))

    def evicted(self) -> list[str]:
        """Name the Pods that were removed by a scheduler, as `namespace/name` of the case; sorted."""
        leaving = {_key(pod) for pod in self.case["pods"] if "deletionTimestamp" in pod["metadata"]}
        found = []
        for pod in self.all_pods():
            key = _key(pod, self.name)
            gone = "deletionTimestamp" in pod["metadata"]
            marked = any(each["type"] == "DisruptionTarget" for each in pod["status"].get("conditions", ()))
            if gone and marked and key not in leaving:
                found.append(key)
        return sorted(found)

    def let_go(self, node: str, only: Collection[str] | None = None) -> None:
        """Be the kubelet of a node: Pods that are leaving it are gone; `only` those, as `namespace/name` of the case."""
        for pod in self.all_pods():
            leaves = "deletionTimestamp" in pod["metadata"] and pod["spec"].get("nodeName") == self._named(node)
            if leaves and (only is None or _key(pod, self.name) in only):
                self._end(f"{self._pods_path_in(pod['metadata']['namespace'])}/{pod['metadata']['name']}")

    def remove(self) -> None:
        """Take everything away but the namespaces, which are empty then."""
        for pod in self.all_pods():
            self._end(f"{self._pods_path_in(pod['metadata']['namespace'])}/{pod['metadata']['name']}")
        for node in self.case["nodes"]:
            self._client.delete(path=f"/api/v1/nodes/{self._named(node['metadata']['name'])}")

    # Names

    def all_pods(self) -> list[Json]:
        """Return all Pods of the pool as they are now."""
        namespaces = sorted({self._namespace(entry) for entry in self._namespaced()})
        pages = [json.loads(self._client.get(path=self._pods_path_in(namespace))) for namespace in namespaces]
        return [pod for page in pages for pod in page["items"]]

    def _named(self, node: str) -> str:
        return f"{self.name}-{node}"

    def _in_case(self, node: str) -> str:
        return node.removeprefix(f"{self.name}-")

    def _namespace(self, entry: Json) -> str:
        return f"{self.name}-{entry['metadata'].get('namespace', 'default')}"

    def _pods_path(self, pod: Json) -> str:
        return self._pods_path_in(self._namespace(pod))

    def _pods_path_in(self, namespace: str) -> str:
        return f"/api/v1/namespaces/{namespace}/pods"

    def _path_of_pod(self) -> str:
        return f"{self._pods_path(self.case['pod'])}/{self.case['pod']['metadata']['name']}"

    def _create(self, path: str, document: Json) -> None:
        self._client.post(path=path, body=json.dumps(document).encode())

    def _patch(self, path: str, document: Json, content_type: str) -> None:
        self._client.patch(path=path, body=json.dumps(document).encode(), content_type=content_type)

    def _end(self, path: str) -> None:
        try:
            self._client.delete(path=path, body=json.dumps({"gracePeriodSeconds": 0}).encode())
        except APINotFoundError:
            return  # What was asked for.


def _key(pod: Json, pool: str = "") -> str:
    namespace = pod["metadata"].get("namespace", "default")
    return f"{namespace.removeprefix(f'{pool}-')}/{pod['metadata']['name']}"


def make_classes(client: Client, cases: Iterable[Json]) -> None:
    """Make the PriorityClasses that cases need and that aren't there yet, and wait until Pods may name them."""
    known = {entry["metadata"]["name"] for entry in json.loads(client.get(path=_CLASSES))["items"]}
    for spec in [pod["spec"] for case in cases for pod in (case["pod"], *case["pods"])]:
        name = class_of(spec)
        if name and name not in known:
            known.add(name)
            policy = spec.get("preemptionPolicy", "PreemptLowerPriority")
            document = {"metadata": {"name": name}, "value": spec["priority"], "preemptionPolicy": policy}
            client.post(path=_CLASSES, body=json.dumps(document).encode())
            eventually(lambda name=name: _is_admitted(client, name), what=f"the API server admits Pods of {name}")


def _is_admitted(client: Client, name: str) -> bool:
    """Whether the API server takes a Pod of a class. It looks them up in a cache, which a new one reaches a moment later."""
    spec = {"priorityClassName": name, "containers": [{"name": "main", "image": "busybox"}]}
    pod = json.dumps({"metadata": {"name": "probe"}, "spec": spec}).encode()
    try:
        client.post(path="/api/v1/namespaces/default/pods", query={"dryRun": "All"}, body=pod)
    except APIForbiddenError:
        return False
    return True


_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@contextmanager
def at_once(threads: int) -> Iterator[Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]]:
    """Yield a function that does something to many at once, and raises what one of them raised."""
    with ThreadPoolExecutor(threads) as pool:
        yield lambda do, many: list(pool.map(do, many))
