"""Preemption on a real cluster: kube-scheduler and Berth are given the same, and remove the same Pods from the same node."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from typing import Any, NamedTuple

import pytest

from policies.engine.preemption.dry_run import pods_of
from tests.differential.deviations import may_preempt_otherwise
from tests.differential.preemption import Outcome, decided, equals_of
from tests.e2e.preemption_pools import Json, Pool, at_once, make_classes, settled
from tests.stack import Stack, eventually, make_node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

CASES = int(os.environ.get("PREEMPTION_CASES", "20"))
SEED = int(os.environ.get("PREEMPTION_SEED", "6"))
AT_A_TIME = 20
# Until the watches of both schedulers have seen a batch, before the Pods are let in; a busy machine takes over half a second.
SETTLING_SECONDS = 2.0

# Who would give Pods another start, end those that leave, and settle budgets by themselves.
PLAYERS = ("kwok", "kube-controller-manager")

UNINTERESTED = [{"name": "example.org/nothing-asks-for-this", "ignoredByScheduler": False}]


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A cluster in which nothing moves but the two schedulers; kube-scheduler doesn't ask Berth."""
    folder = tmp_path_factory.mktemp("preemption")
    with Stack(folder, nodes=[make_node("elsewhere")], managedResources=UNINTERESTED) as stack:
        players = [stack.cluster_status()["components"][name]["pid"] for name in PLAYERS]
        for pid in players:
            os.kill(pid, signal.SIGSTOP)
        yield stack
        for pid in players:
            os.kill(pid, signal.SIGCONT)


class Twins(NamedTuple):
    """A case, what may become of it, and the pools of both schedulers."""

    number: int
    outcome: Outcome
    kube: Pool
    berth: Pool

    @property
    def pools(self) -> tuple[Pool, Pool]:
        return self.kube, self.berth

    @property
    def allowed(self) -> dict[str, list[str]]:
        """The nodes that may be freed, each with the Pods that have to go: only those that chance may choose from."""
        leaving = {pod["metadata"]["uid"] for pod in self.kube.case["pods"] if "deletionTimestamp" in pod["metadata"]}
        everywhere = {each.node: each for each in self.outcome.search.candidates}
        victims = {node: pods_of(everywhere[node]) for node in equals_of(self.outcome.search)}
        return {
            node: sorted(f"{pod.namespace}/{pod.name}" for pod in pods if pod.uid not in leaving)
            for node, pods in victims.items()
        }

    def victims(self, node: str) -> set[str]:
        """Return all Pods that have to be gone from a node, those that were leaving before too. Others may be what the Pod needs."""
        (found,) = (each for each in self.outcome.search.candidates if each.node == node)
        return {f"{pod.namespace}/{pod.name}" for pod in pods_of(found)}


def chosen_cases() -> Iterator[tuple[int, Json, Outcome]]:
    """Iterate over cases in which the Pod fits nowhere."""
    for number in count():
        case = settled(number, seed=SEED)
        if case is None or may_preempt_otherwise(case):
            continue
        outcome = decided(case)
        if not outcome.feasible:
            yield number, case, outcome


def laid_out(stack: Stack, case: tuple[int, Json, Outcome]) -> Twins:
    number, document, outcome = case
    kube = Pool(stack.client, f"k{number}", document, "default-scheduler")
    berth = Pool(stack.client, f"b{number}", document, "berth")
    for pool in (kube, berth):
        pool.make()
    return Twins(number, outcome, kube, berth)


def is_done(pool: Pool, allowed: dict[str, list[str]]) -> bool:
    freed = pool.freed
    if not allowed:
        return pool.is_judged() and not freed and not pool.evicted()
    return freed in allowed and pool.evicted() == allowed[freed]


def check_choice(twins: Twins) -> str:
    """Wait for what both do; returns what is wrong, "" when nothing is."""
    allowed = twins.allowed
    faults = []
    for pool in twins.pools:
        try:
            eventually(lambda pool=pool: is_done(pool, allowed), seconds=30, every=0.3)
        except AssertionError:
            faults.append(f"{pool.name}: freed {pool.freed!r}, removed {pool.evicted()}; may be {allowed}")
    return "; ".join(faults)


def check_placement(twins: Twins) -> str:
    """Let the victims go, and wait until both Pods are on the nodes that were freed for them."""
    faults = []
    for pool in twins.pools:
        freed = pool.freed
        pool.let_go(freed, twins.victims(freed))
        try:
            eventually(lambda pool=pool: pool.node, seconds=30, every=0.3)
        except AssertionError:
            faults.append(f"{pool.name}: on no node, {freed} was freed")
            continue
        if pool.node != freed:
            faults.append(f"{pool.name}: on {pool.node}, {freed} was freed")
    return "; ".join(faults)


def test_both_schedulers_free_the_same_node_of_the_same_pods_and_use_it(still: Stack) -> None:
    cases = list(islice(chosen_cases(), CASES))
    make_classes(still.client, [case for _, case, _ in cases])
    faults: dict[int, str] = {}
    seen: Counter[str] = Counter()
    with at_once(8) as each:
        for start in range(0, CASES, AT_A_TIME):
            batch = each(lambda case: laid_out(still, case), cases[start : start + AT_A_TIME])
            time.sleep(SETTLING_SECONDS)
            each(lambda pool: pool.open(), [pool for twins in batch for pool in twins.pools])
            faults |= {
                twins.number: fault for twins, fault in zip(batch, each(check_choice, batch), strict=True) if fault
            }
            freed = [twins for twins in batch if twins.allowed and twins.number not in faults]
            faults |= {
                twins.number: fault for twins, fault in zip(freed, each(check_placement, freed), strict=True) if fault
            }
            seen.update(kind for twins in batch for kind in kinds_of(twins))
            each(lambda pool: pool.remove(), [pool for twins in batch for pool in twins.pools])
    print(f"{len(faults)} of {CASES} cases differ; {dict(seen)}")
    assert not faults
    assert seen["preempts"] >= CASES // 2


def kinds_of(twins: Twins) -> Iterator[str]:
    allowed: dict[str, Any] = twins.allowed
    yield "preempts" if allowed else "can't preempt"
    candidates = twins.outcome.search.candidates
    for kind, holds in {
        "by chance": len(allowed) > 1,
        "several candidates": len(candidates) > 1,
        "several victims": any(len(victims) > 1 for victims in allowed.values()),
        "a violated budget": any(candidate.pdb_violations for candidate in candidates),
    }.items():
        if holds:
            yield kind


# What happens around a preemption, on pools of Berth's own.


def urgent(cpu: str = "2", *, name: str = "urgent", priority: int = 1000, **spec: Any) -> Json:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [containing(cpu)], "priority": priority, **spec},
        "status": {},
    }


def running(name: str, *, cpu: str = "2", priority: int = 0, node: str = "n1", **metadata: Any) -> Json:
    spec = {"containers": [containing(cpu)], "priority": priority, "nodeName": node}
    status = {"phase": "Running", "startTime": "2024-01-01T00:00:00Z"}
    return {"metadata": {"name": name, **metadata}, "spec": spec, "status": status}


def containing(cpu: str) -> Json:
    return {"name": "c", "image": "web", "resources": {"requests": {"cpu": cpu}}}


def node(name: str, cpu: str = "4") -> Json:
    room = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
    return {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": {"allocatable": room, "capacity": room}}


def pool_of(stack: Stack, name: str, pod: Json, pods: list[Json], nodes: int = 1) -> Pool:
    """Make a pool of nodes n1, n2, … with these Pods on it, and let the Pod in."""
    case = {
        "pod": pod,
        "pods": pods,
        "nodes": [node(f"n{number}") for number in range(1, nodes + 1)],
        "podDisruptionBudgets": [],
    }
    make_classes(stack.client, [case])
    pool = Pool(stack.client, name, case, "berth")
    pool.make()
    time.sleep(SETTLING_SECONDS)
    pool.open()
    return pool


def test_the_victim_the_pod_and_the_decision_say_what_happened(still: Stack) -> None:
    pool = pool_of(still, "told", urgent(), [running("low"), running("mid", priority=100)])
    eventually(lambda: pool.evicted() == ["default/low"])

    victim = pool.read("low")
    (marked,) = [each for each in victim["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert (marked["status"], marked["reason"]) == ("True", "PreemptionByScheduler")
    assert marked["message"] == "berth: preempting to accommodate a higher priority pod"
    events = eventually(lambda: [event for event in pool.events("low") if event["reason"] == "Preempted"])
    assert [(event["note"], event["related"]["name"], event["action"], event["type"]) for event in events] == [
        (f"Preempted by pod {pool.pod['metadata']['uid']} on node told-n1", "urgent", "Preempting", "Normal")
    ]

    eventually(lambda: pool.pod["status"].get("nominatedNodeName") == "told-n1")
    explained = eventually(
        lambda: [text for text in [explanation(still, pool)] if "was to leave told-n1" in text], seconds=20, every=1
    )
    assert "preemption: told-default/low (priority 0) was to leave told-n1, the only node" in explained[0]
    pool.remove()


def explanation(stack: Stack, pool: Pool) -> str:
    """Explain the newest Decision about the pool's Pod; "" while there is none."""
    uid = pool.pod["metadata"]["uid"]
    if not stack.sql(f"SELECT COUNT(*) FROM scheduler_decision WHERE pod_uid = '{uid}'")[0][0]:
        return ""
    return stack.manage("explain", f"{pool.name}-default/urgent")


def test_room_that_was_made_for_a_pod_is_not_taken_by_one_as_important(still: Stack) -> None:
    pool = pool_of(still, "kept", urgent(), [running("low"), running("stays", priority=1000)])
    eventually(lambda: pool.evicted() == ["default/low"])

    pool.add(urgent(name="second"))
    eventually(lambda: "preemption" in pool.message("second"))
    pool.let_go("n1")

    assert eventually(lambda: pool.node) == "n1"
    second = pool.read("second")
    assert "nodeName" not in second["spec"]
    uid = second["metadata"]["uid"]
    decided = eventually(lambda: still.sql(f"SELECT id FROM scheduler_decision WHERE pod_uid = '{uid}'"), every=0.5)
    assert "the same answer" in still.manage("replay", str(decided[-1][0]))
    pool.remove()


def test_pods_that_follow_make_room_of_their_own(still: Stack) -> None:
    pool = pool_of(still, "queue", urgent(), [running("low"), running("mid", priority=100)])
    eventually(lambda: pool.evicted() == ["default/low"])

    pool.add(urgent(name="second"))
    eventually(lambda: pool.evicted() == ["default/low", "default/mid"])
    pool.let_go("n1")

    assert eventually(lambda: pool.node) == "n1"
    assert eventually(lambda: pool.read("second")["spec"].get("nodeName")) == "queue-n1"
    pool.remove()


def test_a_less_important_pod_yields_and_looks_elsewhere(still: Stack) -> None:
    pool = pool_of(
        still,
        "yields",
        urgent(priority=500),
        [running("low", cpu="4"), running("high", cpu="3", priority=900, node="n2")],
        nodes=2,
    )
    eventually(lambda: pool.evicted() == ["default/low"])

    pool.add(urgent("4", name="more-urgent", priority=600))
    eventually(lambda: pool.read("more-urgent")["status"].get("nominatedNodeName") == "yields-n1")
    eventually(lambda: "nominatedNodeName" not in pool.pod["status"])

    pool.let_go("n1")
    assert eventually(lambda: pool.read("more-urgent")["spec"].get("nodeName")) == "yields-n1"
    assert not pool.node
    pool.remove()


def test_a_nomination_is_cleared_once_nobody_can_be_preempted(still: Stack) -> None:
    pool = pool_of(still, "cleared", urgent(), [running("low"), running("mid", priority=100)])
    eventually(lambda: pool.pod["status"].get("nominatedNodeName") == "cleared-n1")

    pool.taint("n1")
    # Nodes and Pods are watched apart: the victims could be seen to go before the taint.
    time.sleep(SETTLING_SECONDS)
    pool.let_go("n1")

    eventually(lambda: "nominatedNodeName" not in pool.pod["status"])
    assert not pool.node
    pool.remove()


def test_a_pod_that_preempts_nobody_waits_and_says_so(still: Stack) -> None:
    pool = pool_of(still, "never", urgent(preemptionPolicy="Never"), [running("low", cpu="4")])
    eventually(lambda: pool.message("urgent").endswith(" preemption: not eligible due to preemptionPolicy=Never."))
    assert pool.evicted() == []
    pool.remove()


def test_a_pod_that_rules_protect_stays(still: Stack) -> None:
    rules = {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": "keep"},
        "spec": {
            "victims": [{"name": "keep", "expression": "victim.metadata.name != 'kept'", "reason": "kept for good"}]
        },
    }
    assignment = {
        "apiVersion": "berth/v1",
        "kind": "Assignment",
        "metadata": {"name": "keep"},
        "spec": {"order": 1, "ruleSet": "keep", "match": {"namespaces": ["keeps-default"]}},
    }
    still.publish_all([rules, assignment])
    pods = [running("kept", cpu="4"), running("dearer", cpu="4", priority=100, node="n2")]
    pool = pool_of(still, "keeps", urgent(), pods, nodes=2)
    eventually(lambda: pool.evicted() == ["default/dearer"])
    pool.remove()


def test_a_scheduler_that_is_killed_in_the_middle_removes_no_more_pods_than_are_needed(still: Stack) -> None:
    low = [running(f"low-{number}", cpu="4", node=f"n{number}") for number in range(1, 31)]
    pool = pool_of(still, "killed", urgent("4"), low, nodes=30)
    names = [f"urgent-{number}" for number in range(14)]
    with at_once(8) as each:
        each(lambda name: pool.add(urgent("4", name=name)), names)
    eventually(lambda: len(pool.evicted()) > 2, every=0.02)
    still.kill("binder")

    names.append("urgent")
    eventually(lambda: all(pool.read(name)["status"].get("nominatedNodeName") for name in names), every=0.5)
    eventually(lambda: len(pool.evicted()) == len(names), every=0.5)
    for number in range(1, 31):
        pool.let_go(f"n{number}")
    eventually(lambda: all(pool.read(name)["spec"].get("nodeName") for name in names), every=0.5)
    assert len({pool.read(name)["spec"]["nodeName"] for name in names}) == len(names)
    assert sum("deletionTimestamp" not in pod["metadata"] for pod in pool.all_pods()) == 30
    pool.remove()
