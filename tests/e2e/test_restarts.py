"""Processes die one after the other while Pods come: none is lost, none is placed by a mix of rules."""

import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import NODES
from tests.stack import Stack, eventually, make_node

pytestmark = pytest.mark.e2e
COLOURS = ("red", "blue")
KILLED = ("extender", "worker", "beat", "admin", "redis")


@pytest.fixture(scope="module")
def own_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two nodes of each colour."""
    nodes = [make_node(f"{colour}-{index}", colour=colour) for index, colour in enumerate(COLOURS * 2)]
    for node in nodes:
        node["status"]["allocatable"] = node["status"]["capacity"] = {"cpu": "64", "memory": "256Gi", "pods": "2000"}
    with Stack(tmp_path_factory.mktemp("restarts"), nodes=nodes) as stack:
        yield stack


def rules(colour: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Filter and score agree in every version: only nodes of the colour pass, and they alone score. A mix would show."""
    is_colour = f"node.metadata.labels.colour == '{colour}'"
    rule_set = {
        "apiVersion": "berth/v1",
        "kind": "RuleSet",
        "metadata": {"name": "colour", "description": f"only {colour} nodes"},
        "spec": {
            "filters": [{"name": "colour", "expression": is_colour, "reason": "node has another colour"}],
            "scores": [{"name": "colour", "expression": f"{is_colour} ? 10 : 0", "bounds": [0, 10]}],
        },
    }
    assignment = {
        "apiVersion": "berth/v1",
        "kind": "Assignment",
        "metadata": {"name": "colour"},
        "spec": {"ruleSet": "colour", "match": {"podSelector": {"matchLabels": {"policy": "colour"}}}},
    }
    return rule_set, assignment


class Creator(threading.Thread):
    """Creates Pods until it is told to end."""

    def __init__(self, stack: Stack, *, every: float = 0.1) -> None:
        super().__init__()
        self.stack = stack
        self.every = every
        self.names: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        while not self.enough.is_set():
            name = f"pod-{len(self.names)}"
            self.stack.create_pod(name, labels={"policy": "colour"})
            self.names.append(name)
            time.sleep(self.every)


def decided(stack: Stack) -> set[str]:
    """The Pods that the history has a Decision about."""
    return {name for (name,) in stack.sql("SELECT pod_name FROM scheduler_decision WHERE rule_set = 'colour'")}


def mixed_decisions(stack: Stack) -> list[tuple[Any, ...]]:
    """Scores that were given by another Revision than the last filter before them."""
    rows = stack.sql(
        "SELECT pod_uid, verb, revision FROM scheduler_decision WHERE rule_set = 'colour' ORDER BY at, sequence"
    )
    filtered: dict[str, int] = {}
    mixed = []
    for uid, verb, revision in rows:
        if verb == "filter":
            filtered[uid] = revision
        elif filtered.get(uid) not in {None, revision}:
            mixed.append((uid, filtered[uid], revision))
    return mixed


def test_no_pod_is_lost_and_none_is_placed_by_a_mix_while_each_process_is_killed(own_stack: Stack) -> None:
    stack = own_stack
    stack.publish(*rules("red"))
    creator = Creator(stack)
    creator.start()
    try:
        for turn, name in enumerate(KILLED):
            eventually(lambda: len(creator.names) > 10 * (turn + 1))  # noqa: B023 - called before the next turn
            killed = stack.kill(name)
            stack.publish(rules(COLOURS[(turn + 1) % 2])[0])
            eventually(lambda: stack.pid(name) not in {0, killed}, what=f"{name} is back")  # noqa: B023 - as above
            eventually(lambda: stack.is_up(stack.extender_url) and stack.is_up(stack.admin_url))
    finally:
        creator.enough.set()
        creator.join()

    placed = {name: stack.wait_for_node(name, seconds=60) for name in creator.names}
    assert len(placed) == len(creator.names)
    assert {node.partition("-")[0] for node in placed.values()} == set(COLOURS)
    eventually(lambda: decided(stack) >= placed.keys(), what="every Pod's Decision is in the history")
    assert mixed_decisions(stack) == []


def test_a_published_revision_replaces_the_last_one_whole(own_stack: Stack) -> None:
    """While rules change colour to and fro, every answer is by one of them: all red or all blue, in filter and scores."""
    stack = own_stack
    stack.publish(*rules("red"))
    names = [f"{colour}-{index}" for index, colour in enumerate(COLOURS * 2)]
    seen: list[frozenset[str]] = []
    enough = threading.Event()

    def ask() -> None:
        while not enough.is_set():
            body = json.dumps(
                {"Pod": {"metadata": {"name": "p", "uid": "u", "labels": {"policy": "colour"}}}, "NodeNames": names}
            )
            _, answer = stack.call("filter", body.encode())
            seen.append(frozenset(name.partition("-")[0] for name in answer["NodeNames"]))

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for turn in range(6):
            stack.publish(rules(COLOURS[turn % 2])[0])
    finally:
        enough.set()
        asking.join()

    assert set(seen) == {frozenset({"red"}), frozenset({"blue"})}


def test_the_extender_serves_the_last_revision_while_the_database_and_redis_are_away(own_stack: Stack) -> None:
    stack = own_stack
    stack.publish(*rules("blue"))
    stack.kill("redis")
    stack.kill("extender")

    eventually(lambda: stack.is_up(stack.extender_url))
    stack.create_pod("after-the-kill", labels={"policy": "colour"})

    assert stack.wait_for_node("after-the-kill").startswith("blue")


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked about yet doesn't."""
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_ending_leaves_no_process_and_no_port(tmp_path: Path) -> None:
    stack = Stack(tmp_path, nodes=NODES)
    stack.start()
    children = [int(path.read_text()) for path in (stack.state / "pids").iterdir()]
    children += [int(part["pid"]) for part in stack.cluster_status()["components"].values()]
    assert len(children) >= 10
    assert stack._process is not None
    stack._process.send_signal(signal.SIGKILL)
    stack._process.wait()

    eventually(lambda: not any(map(is_alive, children)), seconds=40, what="all processes ended")
    for port in (stack.admin_port, stack.extender_port):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0
    stack._log.close()
