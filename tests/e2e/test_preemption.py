"""Preemption on a real cluster: kube-scheduler and Berth are given the same, and remove the same Pods from the same node."""

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count, islice
from typing import Any, NamedTuple

import pytest

from policies.engine.selection import pods_of
from tests.differential.deviations import may_preempt_otherwise
from tests.differential.preemption import Outcome, decided, equals_of
from tests.e2e.preemption_pools import Json, Pool, at_once, make_classes, settled
from tests.stack import Stack, eventually, make_node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

CASES = int(os.environ.get("PREEMPTION_CASES", "20"))
SEED = int(os.environ.get("PREEMPTION_SEED", "6"))
AT_A_TIME = 20
SETTLING_SECONDS = 0.5
"""Until the watches of both schedulers have seen a batch, before the Pods are let in."""

PLAYERS = ("kwok", "kube-controller-manager")
"""Who would give Pods another start, end those that leave, and settle budgets by themselves."""

UNINTERESTED = [{"name": "example.org/nothing-asks-for-this", "ignoredByScheduler": False}]


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A cluster in which nothing moves but the two schedulers; kube-scheduler doesn't ask Berth."""
    stack = Stack(tmp_path_factory.mktemp("preemption"), nodes=[make_node("elsewhere")], managedResources=UNINTERESTED)
    stack.start()
    players = [stack.cluster_status()["components"][name]["pid"] for name in PLAYERS]
    for pid in players:
        os.kill(pid, signal.SIGSTOP)
    yield stack
    for pid in players:
        os.kill(pid, signal.SIGCONT)
    stack.stop()


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


def chosen_cases() -> Iterator[tuple[int, Json, Outcome]]:
    """Give cases in which the Pod fits nowhere."""
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
    """Wait for what both do; gives what is wrong, "" when nothing is."""
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
        pool.let_go(freed)
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
