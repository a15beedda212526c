"""When the loop looks for Pods to preempt, and until when it waits for those that it chose."""

from datetime import UTC, datetime
from typing import Any

from policies.engine.decision import CompiledRevision
from policies.engine.objects.cluster_objects import ClusterObjects
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.preemption.dry_run import Preemption, Search
from policies.engine.rule import Cycle
from policies.engine.ruleset import Revision
from policies.engine.scheduling import default_profile, judge
from scheduler.binder.cycle import Judged, Placement
from scheduler.binder.nominator import Nominator
from tests.builders import make_node, make_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEAVING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def on_node(name: str, *, cpu: str = "4", **metadata: Any) -> Pod:
    document = make_pod(name, requests={"cpu": cpu}, nodeName="n1", priority=0)
    return Pod.from_json({**document, "metadata": {**document["metadata"], **metadata}})


def snapshot_of(*pods: Pod, seen: bool = True) -> Snapshot:
    objects = ClusterObjects.from_json({}) if seen else ClusterObjects.unknown()
    return Snapshot.of([Node.from_json(make_node("n1"))], pods, objects=objects)


def refused(snapshot: Snapshot) -> Placement:
    pod = Pod.from_json(make_pod("urgent", requests={"cpu": "1"}, priority=10))
    rows = snapshot.table.all_rows()
    answer = judge(default_profile(), Cycle(pod=pod, snapshot=snapshot, now=NOW), rows)
    return Placement(
        pod=pod,
        snapshot=snapshot,
        revision=CompiledRevision(Revision(number=1, rule_sets=[], assignments=[])),
        rows=rows,
        now=NOW,
        enforced=Judged(None, default_profile(), answer),
    )


def found(nominator: Nominator, snapshot: Snapshot, nominated: str = "") -> Search | None:
    return nominator.search(refused(snapshot), nominated)


def begun(nominator: Nominator) -> Preemption:
    search = found(nominator, snapshot_of(on_node("a")))
    assert search is not None
    assert search.preemption is not None
    nominator.begin(refused(snapshot_of()).pod, search.preemption)
    return search.preemption


def test_a_refused_pod_looks_for_victims() -> None:
    assert [victim.name for victim in begun(Nominator()).victims] == ["a"]


def test_nobody_else_is_looked_for_until_the_victims_are_seen_to_leave() -> None:
    nominator = Nominator()
    begun(nominator)
    assert found(nominator, snapshot_of(on_node("a"))) is None
    after = found(nominator, snapshot_of(on_node("a", **LEAVING)), "n1")
    assert after is not None
    assert after.preemption is not None


def test_when_the_victims_or_their_node_are_gone_it_is_looked_again() -> None:
    for snapshot in (snapshot_of(on_node("b")), Snapshot.of([], objects=ClusterObjects.from_json({}))):
        nominator = Nominator()
        begun(nominator)
        assert found(nominator, snapshot) is not None


def test_when_it_could_not_be_done_it_is_looked_again() -> None:
    nominator = Nominator()
    begun(nominator)
    nominator.end("uid-urgent")
    assert found(nominator, snapshot_of(on_node("a"))) is not None


def test_nobody_is_preempted_before_budgets_were_seen_or_when_nothing_was_decided() -> None:
    assert found(Nominator(), snapshot_of(on_node("a"), seen=False)) is None
    placement = refused(snapshot_of(on_node("a")))
    placement.enforced = None
    assert Nominator().search(placement, "") is None
