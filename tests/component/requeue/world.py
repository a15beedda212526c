"""A cluster, what is published in it, and a Requeuer whose clock stands still."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from policies.engine.decision import CompiledRevision, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import Pause, Revision, RuleSet
from policies.models import Revision as RevisionRow
from scheduler.cluster.client import READ_TIMEOUT_SECONDS
from scheduler.cluster.errors import APITimeoutError, APIUnavailableError
from scheduler.decisions.record import NodesEntry
from scheduler.models import Process, RelabelledNamespace
from scheduler.requeue.requeuer import Requeuer
from tests import builders
from tests.builders import make_assignment, make_node, make_rule_set
from tests.component.revisions import store_revision
from tests.recording import row_of


def make_pod(name: str, **more: Any) -> dict[str, Any]:
    """Make a Pod of kube-scheduler's: Berth's own scheduler tries its Pods again by itself."""
    return builders.make_pod(name, schedulerName="default-scheduler", **more)


NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
NEVER, ALWAYS = "false", "true"
# How long the API server waits for an admission webhook that says nothing of it.
WEBHOOK_SECONDS = 10.0
HALF_PAST = "now >= timestamp('2026-05-01T12:30:00Z')"


class Cluster:
    """What a Requeuer asks of the API server, from memory."""

    def __init__(self) -> None:
        self.nodes = [make_node("n1"), make_node("n2")]
        self.pods: dict[str, dict[str, Any]] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.requeued: list[str] = []
        self.listed: list[str] = []
        self.patched: list[str] = []
        self.fault: Exception | None = None
        self.faults: dict[str, Exception] = {}
        # The Pods for which an admission webhook doesn't answer, and how long the Requeuer waited for it.
        self.hanging: set[str] = set()
        self.waited_seconds = 0.0
        # Called before a page arrives.
        self.on_page: Callable[[], None] = lambda: None

    def list_pods(self, *, field_selector: str, on_page: Callable[[], None] = lambda: None) -> list[dict[str, Any]]:
        assert field_selector == "spec.nodeName=,status.phase=Pending"
        self.listed.append("waiting")
        # Two pages.
        for _ in range(2):
            self.on_page()
            on_page()
        return list(self.pods.values())

    def list_pages(self, *, path: str, query: Mapping[str, str]) -> Iterator[bytes]:
        self.listed.append(path.rpartition("/")[2])
        self.on_page()
        spaces = [{"metadata": {"name": name, "labels": labels}} for name, labels in self.namespaces.items()]
        items = {"/api/v1/nodes": self.nodes, "/api/v1/pods": [], "/api/v1/namespaces": spaces}[path]
        yield msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})

    def patch_pod_annotations(
        self,
        *,
        namespace: str,
        name: str,
        uid: str,
        annotations: Mapping[str, str],
        resource_version: str,
        timeout_seconds: float = READ_TIMEOUT_SECONDS,
    ) -> dict[str, Any]:
        self.patched.append(name)
        if self.fault is not None:
            raise self.fault
        if name in self.faults:
            raise self.faults[name]
        if name in self.hanging:
            self.waited_seconds += min(timeout_seconds, WEBHOOK_SECONDS)
            if timeout_seconds < WEBHOOK_SECONDS:
                raise APITimeoutError("no answer")
            raise APIUnavailableError("failed calling webhook", status=500)
        pod = self.pods[uid]
        assert pod["metadata"]["resourceVersion"] == resource_version
        pod["metadata"]["resourceVersion"] = str(int(resource_version) + 1)
        pod["metadata"].setdefault("annotations", {}).update(annotations)
        self.requeued.append(name)
        return pod


class World:
    """A cluster, what is published, and a Requeuer whose clock stands still."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.now = NOON
        # How far the worker's clock is ahead of the database's.
        self.ahead = timedelta(0)
        self.paused: list[float] = []
        self.sequence = 0
        self.requeuer = self.make_requeuer()

    def make_requeuer(self, per_second: int = 50) -> Requeuer:
        def pause(seconds: float) -> None:
            self.paused.append(seconds)
            self.now += timedelta(seconds=seconds)

        return Requeuer(
            self.cluster,  # type: ignore[arg-type]
            per_second=per_second,
            clock=lambda: self.now + self.ahead,
            database_clock=lambda: self.now,
            pause=pause,
        )

    def publish(self, *rule_sets: RuleSet, pauses: Sequence[Pause] = (), **match: Any) -> CompiledRevision:
        """Each rule set takes the Pods with its name as the label policy. All extenders serve it at once."""
        number = RevisionRow.objects.count() + 1
        assignments = [
            make_assignment(
                found.name, found.name, match={"podSelector": {"matchLabels": {"policy": found.name}}, **match}
            )
            for found in rule_sets
        ]
        revision = Revision(number=number, rule_sets=list(rule_sets), assignments=assignments, pauses=list(pauses))
        store_revision(revision, at=self.now)
        self.serve(number)
        return CompiledRevision(revision)

    def relabel(self, namespace: str, **labels: str) -> None:
        """Change the labels of a Namespace, as a watch notes it."""
        self.cluster.namespaces[namespace] = labels
        RelabelledNamespace.objects.update_or_create(name=namespace, defaults={"relabelled_at": self.now})

    def serve(self, number: int, name: str = "extender@a") -> None:
        Process.objects.update_or_create(
            id=name,
            defaults={
                "role": "extender", "host": "h", "pid": 1, "revision": number, "started_at": NOON, "heartbeat_at": self.now,
            },
        )  # fmt: skip

    def pass_time(self, **delta: float) -> None:
        self.now += timedelta(**delta)
        Process.objects.update(heartbeat_at=self.now)

    def refuse(
        self,
        revision: CompiledRevision,
        name: str,
        policy: str,
        *,
        record: bool = True,
        age: float = 0,
        namespace: str = "default",
    ) -> str:
        """Refuse a Pod as kube-scheduler and the extender do it; returns the UID."""
        pod = make_pod(name, namespace=namespace, labels={"policy": policy})
        rule_set = revision.rule_sets[policy]
        snapshot = Snapshot.of(map(Node.from_json, self.cluster.nodes), (), dict(self.cluster.namespaces))
        cycle = Cycle(pod=Pod.from_json(pod), snapshot=snapshot, now=self.now, params=rule_set.params)
        answer = decide(rule_set, cycle, snapshot.table.all_rows(), scoring=False)
        message = f"0/2 nodes are available: 2 {answer.top_reason() or 'Insufficient cpu'}."
        self.add(pod, message, age)
        if record:
            self.sequence += 1
            entry = NodesEntry(
                verb="filter",
                pod=Pod.from_json(pod),
                now=self.now,
                revision=revision,
                rule_set=rule_set,
                snapshot=snapshot,
                names=answer.names,
                answer=answer,
            )
            row_of(entry, sequence=self.sequence, pod_uid=f"uid-{name}")
        return f"uid-{name}"

    def add(self, pod: dict[str, Any], message: str, age: float = 0) -> None:
        created = f"{self.now - timedelta(seconds=age):%Y-%m-%dT%H:%M:%SZ}"
        pod["metadata"] |= {"creationTimestamp": created, "resourceVersion": "1"}
        condition = {"type": "PodScheduled", "status": "False", "message": message, "lastTransitionTime": created}
        pod["status"] = {"conditions": [condition]}
        self.cluster.pods[pod["metadata"]["uid"]] = pod

    def tick(self) -> list[str]:
        """Return the names of the Pods that a tick requeues, a second after the last one as for rests."""
        self.cluster.requeued = []
        self.requeuer._resting_until = float("-inf")
        assert self.requeuer.tick() == len(self.cluster.requeued)
        return self.cluster.requeued


def rules(name: str, version: int, expression: str, **rule: Any) -> RuleSet:
    filters = [{"name": "f", "expression": expression, "reason": f"{name} refuses", **rule}]
    return msgspec.structs.replace(make_rule_set(name, filters=filters), version=version)
