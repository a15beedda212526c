"""Recorded Decisions to run backtests over: of a kube-scheduler that asks /filter and /prioritize, and whose Pods are then bound."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from policies.engine.decision import CompiledRevision, decide
from policies.engine.failures import Conditions
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod, PodObject
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.binder.cycle import Profile
from scheduler.binder.recording import cycle_entry
from scheduler.cluster.building import SnapshotBuilder
from scheduler.cluster.reflection import Change
from scheduler.decisions.record import NodesEntry
from tests.builders import make_node, make_pod
from tests.recording import History

AT = datetime(2026, 1, 1, tzinfo=UTC)


class Corpus:
    """A cluster that fills up with Pods, one after another, as a Revision decides.

    Args:
        history: where to record.
        revision: which decides.
        nodes: how many there are, in zones a and b by turns.
        has_objects: whether volumes, Services and the like are watched: there are none.
    """

    def __init__(
        self, history: History, revision: CompiledRevision, nodes: int = 6, *, has_objects: bool = False
    ) -> None:
        self.history, self._revision = history, revision
        self._objects = ClusterObjects() if has_objects else None
        self._builder = SnapshotBuilder()
        self.count = 0
        self._after = ""
        made = [
            Node.from_json(make_node(f"n{number:04}", labels={"zone": "ab"[number % 2]}, cpu="64", pods="1000"))
            for number in range(nodes)
        ]
        self._builder.on_nodes([Change("added", node.name, node, None, "1") for node in made])

    def ask(self, name: str, **labels: str) -> None:
        """Ask about a Pod by both verbs, and bind it to its best node."""
        self.count += 1
        json = make_pod(name, labels={"app": "web", **labels}, requests={"cpu": "100m", "memory": "64Mi"})
        pod = Pod.from_json(json)
        snapshot = self._live(self._objects)
        at = AT + timedelta(seconds=self.count)
        chosen = self._revision.choose(pod, snapshot, at).enforced
        assert chosen is not None
        assignment, rule_set = chosen
        names: list[str] = list(snapshot.table.names)
        best = ""
        for verb in ("filter", "prioritize"):
            cycle = Cycle(pod=pod, snapshot=snapshot, now=at, params=rule_set.params)
            scoring = verb == "prioritize"
            answer = decide(rule_set, cycle, snapshot.table.rows(names), filtering=not scoring, scoring=scoring)
            entry = NodesEntry(
                verb=verb, pod=pod, now=at, revision=self._revision, assignment=assignment, rule_set=rule_set,
                snapshot=snapshot, names=names, answer=answer,
            )  # fmt: skip
            self.history.recorder.record(entry)
            names, best = answer.feasible, answer.best
            if not names:
                return
        self._bind(json, best)

    def schedule(
        self,
        name: str,
        *,
        nominated: str = "",
        denied: Sequence[str] = (),
        conditions: Conditions | None = None,
        cpu: str = "100m",
        **labels: str,
    ) -> None:
        """Decide on a Pod as Berth's own scheduler does, and bind it.

        A node was made free for it where one is nominated; others may have denied its binding, and something may be away.
        """
        self.count += 1
        json = make_pod(name, labels={"app": "web", **labels}, requests={"cpu": cpu, "memory": "64Mi"})
        pod, snapshot = Pod.from_json(json), self._live(ClusterObjects())
        if nominated:
            snapshot = snapshot.changed({}, nominated={nominated: [pod]})
        placement = Profile(self._revision).place(
            pod,
            snapshot,
            snapshot.table.all_rows(),
            now=AT + timedelta(seconds=self.count),
            after=self._after,
            nominated=nominated,
            denied=denied,
            conditions=conditions,
        )
        self._after = placement.node
        left_out = {"denied": sorted(denied)} if denied else {}
        self.history.recorder.record(cycle_entry(placement, 0.001, {"node": placement.node, **left_out}))
        if placement.node:
            self._bind(json, placement.node)

    def _live(self, objects: ClusterObjects | None) -> Snapshot:
        built = self._builder.build()
        return built if objects is None else built.changed({}, objects=objects)

    def _bind(self, json: dict[str, Any], node: str) -> None:
        bound = Pod(msgspec.convert({**json, "spec": {**json["spec"], "nodeName": node}}, PodObject))
        self._builder.on_pods([Change("added", bound.uid, bound, None, "1")])
