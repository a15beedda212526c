"""Kill -9 of each process in turn, under load: every Decision whose answer went out is in the database, once.

FAULT_RUNS says how many rounds of kills there are, and FAULT_SEED chooses their moments; `make long` makes 50.
"""

import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from tests.faults.planes import Postgres
from tests.stack import Stack, eventually, make_node

pytestmark = pytest.mark.e2e
RUNS = int(os.environ.get("FAULT_RUNS", "2"))
VICTIMS = ("extender", "worker", "redis", "postgres")
# For the Pods that are placed while each process is killed: `FAULT_RUNS=50` has 1,000 for each scheduler.
CHAIN_RUNS = int(os.environ.get("FAULT_RUNS", "1"))
CHAIN_VICTIMS = (*VICTIMS, "binder")
PODS_A_KILL = 4 if CHAIN_RUNS > 1 else 6
SEED = int(os.environ.get("FAULT_SEED", "1"))
SCHEDULERS = ("default-scheduler", "berth")
NAMES = [f"n{number}" for number in range(20)]
RULES = (
    {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": "even"},
        "spec": {
            "filters": [{"builtin": "PodFitsResources"}, {"name": "even", "expression": "node.metadata.name != 'n3'"}],
            "scores": [{"builtin": "LeastRequestedPriority"}],
        },
    },
    {
        "apiVersion": "berth/v1",
        "kind": "Assignment",
        "metadata": {"name": "even"},
        "spec": {"ruleSet": "even", "match": {"podSelector": {"matchLabels": {"policy": "even"}}}},
    },
)


@pytest.fixture(scope="module")
def stack(
    database: Postgres, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Stack]:
    patch = pytest.MonkeyPatch()
    patch.setenv("BERTH_DATABASE_URL", database.url)
    made = Stack(tmp_path_factory.mktemp("faults"), nodes=[make_node(name) for name in NAMES], bindVerb="bind")
    patch.undo()
    with made:
        made.publish(*RULES)
        yield made


class Caller(threading.Thread):
    """Asks as kube-scheduler does, over one connection, as fast as it is answered; notes what was answered."""

    def __init__(self, stack: Stack, name: str) -> None:
        super().__init__(name=name)
        self._port = stack.extender_port
        self.answered: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        number = 0
        while not self.enough.is_set():
            number += 1
            uid = f"{self.name}-{number}"
            verb = ("filter", "prioritize")[number % 2]
            body = json.dumps({"Pod": _pod(uid, number), "NodeNames": NAMES})
            try:
                connection.request("POST", f"/{verb}", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                time.sleep(0.05)
                continue
            if answer.status == 200 and b'"Error":"Berth' not in text:
                self.answered.append(uid)
        connection.close()


def _pod(uid: str, number: int) -> dict[str, Any]:
    labels = {"policy": "even"} if number % 5 else {}
    container = {"name": "main", "resources": {"requests": {"cpu": f"{number % 9}00m"}}}
    return {"metadata": {"name": uid, "uid": uid, "labels": labels}, "spec": {"containers": [container]}}


def kill(stack: Stack, database: Postgres, victim: str) -> None:
    """Kill, and wait until it is back."""
    if victim == "postgres":
        database.kill()
        time.sleep(0.5)
        database.start()
        return
    killed = stack.kill(victim)
    eventually(lambda: stack.pid(victim) not in {0, killed}, what=f"{victim} is back")


def test_no_answered_decision_is_lost_and_none_is_stored_twice(stack: Stack, database: Postgres) -> None:
    callers = [Caller(stack, f"caller{number}") for number in range(2)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(RUNS):
            for victim in VICTIMS:
                before = sum(len(caller.answered) for caller in callers)
                eventually(lambda: sum(len(caller.answered) for caller in callers) > before + 50)  # noqa: B023 - at once
                kill(stack, database, victim)
                eventually(lambda: stack.is_up(stack.extender_url))
    finally:
        for caller in callers:
            caller.enough.set()
        for caller in callers:
            caller.join()

    answered = {uid for caller in callers for uid in caller.answered}
    assert len(answered) == sum(len(caller.answered) for caller in callers)
    assert len(answered) > 50 * RUNS * len(VICTIMS)
    found = eventually(lambda: stored(stack, answered), seconds=120, what="every answered Decision is stored")
    assert set(found.values()) == {1}
    assert stack.sql("SELECT * FROM scheduler_decisiongap") == []
    corrupt = stack.sql("SELECT reason FROM scheduler_deadletter")
    assert all("corrupt" in reason for (reason,) in corrupt), corrupt
    rows = stack.sql("SELECT process, MIN(sequence), MAX(sequence), COUNT(*) FROM scheduler_decision GROUP BY process")
    assert len(rows) > RUNS
    assert [row for row in rows if (row[1], row[2]) != (1, row[3])] == []

    print(f"{RUNS * len(VICTIMS)} kills, {len(answered)} Decisions answered, all stored, by {len(rows)} processes")

    some = stack.sql("SELECT id FROM scheduler_decision WHERE rule_set = 'even' ORDER BY at DESC LIMIT 1")
    assert json.loads(stack.manage("replay", str(some[0][0]), "--output", "json"))["ok"] is True


class Chain(NamedTuple):
    """What the history has of a Pod: Decisions of each verb, each with its error and node, and where the Pod was seen."""

    decisions: dict[str, tuple[str, str, str]]
    outcome: tuple[str, str] | None


def test_each_pod_leads_to_a_whole_chain_whoever_is_killed_while_it_is_placed(stack: Stack, database: Postgres) -> None:
    """Pods of both schedulers come while each process in turn is killed, at a moment that chance chooses."""
    uids: dict[str, str] = {}
    for run in range(CHAIN_RUNS):
        random = Random(f"{SEED}/{run}")
        for victim in random.sample(CHAIN_VICTIMS, len(CHAIN_VICTIMS)):
            creator = threading.Thread(target=create, args=(stack, f"{run}-{victim}", uids))
            creator.start()
            time.sleep(random.uniform(0, 0.5))
            kill(stack, database, victim)
            creator.join()
            eventually(lambda: all_bound(stack, uids), seconds=180, every=0.5, what=f"all bound after {victim}")

    pods = stack.pods()
    last: dict[str, str] = {}

    def whole() -> bool:
        last.clear()
        last.update(broken(stack, uids, pods))
        return not last and not stack.sql("SELECT 1 FROM scheduler_decisiongap")

    try:
        eventually(whole, seconds=180, every=1, what="every chain is whole")
    except AssertionError:
        pytest.fail(
            f"{len(last)} broken: {list(last.items())[:5]}; gaps {stack.sql('SELECT * FROM scheduler_decisiongap')}"
        )
    corrupt = stack.sql("SELECT reason FROM scheduler_deadletter")
    assert all("corrupt" in reason for (reason,) in corrupt), corrupt
    by = stack.sql("SELECT COUNT(*), SUM(CASE WHEN sequence = 0 THEN 1 ELSE 0 END) FROM scheduler_outcome")
    print(
        f"{CHAIN_RUNS * len(CHAIN_VICTIMS)} kills, {len(uids)} Pods, each with a whole chain, 0 gaps; (outcomes, by the sweep): {by}"
    )
    for verb in ("bind", "schedule"):
        (row,) = stack.sql(
            f"SELECT id FROM scheduler_decision WHERE verb = '{verb}' AND error = '' ORDER BY at DESC LIMIT 1"
        )
        assert json.loads(stack.manage("replay", str(row[0]), "--output", "json"))["ok"] is True


def create(stack: Stack, prefix: str, uids: dict[str, str]) -> None:
    for number in range(PODS_A_KILL):
        for scheduler in SCHEDULERS:
            name = f"{prefix}-{number}-{scheduler}"
            labels = {"policy": "even"} if number % 2 else {}
            uids[name] = stack.create_pod(name, labels=labels, schedulerName=scheduler)
        time.sleep(0.1)


def all_bound(stack: Stack, uids: dict[str, str]) -> bool:
    pods = stack.pods()
    return all(pods[name]["spec"].get("nodeName") for name in uids)


def broken(stack: Stack, uids: dict[str, str], pods: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Which Pods don't lead from their UID to the node that they are on, and where that ends."""
    chains = {uid: Chain({}, None) for uid in uids.values()}
    rows = stack.sql("SELECT pod_uid, id, verb, error, best, placed_on FROM scheduler_decision WHERE mode = 'enforce'")
    placed: dict[str, set[str]] = {}
    for uid, key, verb, error, best, placed_on in rows:
        if uid in chains:
            chains[uid].decisions[str(UUID(str(key)))] = (verb, error, best)
            placed.setdefault(uid, set()).add(placed_on)
    for uid, node, decision in stack.sql(
        "SELECT pod_uid, node_name, decision FROM scheduler_outcome WHERE kind = 'bound'"
    ):
        if uid in chains:
            chains[uid] = chains[uid]._replace(outcome=(node, str(UUID(str(decision))) if decision else ""))
    found = {}
    for name, uid in uids.items():
        pod, chain = pods[name], chains[uid]
        node, named = pod["spec"]["nodeName"], pod["metadata"]["annotations"].get("berth/decision", "")
        wanted = {"schedule"} if pod["spec"]["schedulerName"] == "berth" else {"filter", "prioritize", "bind"}
        if missing := wanted - {verb for verb, error, _ in chain.decisions.values() if not error}:
            found[name] = f"no {missing}"
        elif named not in chain.decisions:
            found[name] = f"its annotation names {named!r}, and there are {chain.decisions}"
        elif chain.decisions[named][0] not in {"bind", "schedule"}:
            found[name] = f"its annotation names a {chain.decisions[named][0]}"
        elif chain.outcome is None or chain.outcome[0] != node or chain.outcome[1] not in {named, ""}:
            found[name] = f"on {node} by {named}, and the outcome says {chain.outcome}"
        elif placed[uid] != {node}:
            found[name] = f"on {node}, and its Decisions say {placed[uid]}"
    return found


def stored(stack: Stack, answered: set[str]) -> dict[str, int] | None:
    """How often each answered Decision is stored; None while one is missing."""
    found = dict(stack.sql("SELECT pod_uid, COUNT(*) FROM scheduler_decision GROUP BY pod_uid"))
    return {uid: found[uid] for uid in answered} if answered <= found.keys() else None


def test_dead_writers_leave_nothing_on_disk_once_all_is_stored(stack: Stack) -> None:
    """Those that live, the extender and the binder, keep their folders."""
    eventually(lambda: len([path for path in (stack.state / "spool").iterdir() if path.is_dir()]) == 2, seconds=60)
