"""Something that Berth needs is away for real: each rule set's own choice is what kube-scheduler is told."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.stack import Stack, eventually, make_node

pytestmark = pytest.mark.e2e

CAUSES = ("database", "redis", "apiServer")
CHOICES = ("lastKnown", "pass", "refuse")
NODES = ["n1", "n2"]


def _documents() -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = []
    for cause in CAUSES:
        for choice in CHOICES:
            name = f"{cause}-{choice}".lower()
            rule = {"name": "not-n2", "expression": "node.metadata.name != 'n2'", "reason": "not here"}
            spec = {"filters": [rule], "failures": {cause: choice}}
            match = {"podSelector": {"matchLabels": {"policy": name}}}
            envelope = {"apiVersion": "berth/v1", "metadata": {"name": name}}
            documents.append({**envelope, "kind": "RuleSet", "spec": spec})
            documents.append({**envelope, "kind": "Assignment", "spec": {"ruleSet": name, "match": match}})
    return documents


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("outages"), nodes=[make_node(name) for name in NODES]) as stack:
        stack.publish_all(_documents())
        yield stack


@contextmanager
def _redis_is_stopped(stack: Stack) -> Iterator[None]:
    stack.kill("redis", signal.SIGSTOP)
    try:
        yield
    finally:
        stack.kill("redis", signal.SIGCONT)


@contextmanager
def _database_lets_nobody_in(stack: Stack) -> Iterator[None]:
    url = stack.database_url
    if not url:
        pytest.skip("SQLite is a file: it can't be away; `python -m tests.postgres` runs this beside PostgreSQL")
    name = urlsplit(url).path.removeprefix("/")
    with psycopg.connect(os.environ["BERTH_DATABASE_URL"], autocommit=True) as server:
        server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        try:
            yield
        finally:
            server.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')


@contextmanager
def _api_server_is_dead(stack: Stack) -> Iterator[None]:
    status = stack.cluster_status()
    os.kill(int(status["pid"]), signal.SIGSTOP)  # or it would be started again at once
    try:
        stack.kill_component("kube-apiserver")
        yield
    finally:
        os.kill(int(status["pid"]), signal.SIGCONT)


OUTAGES: dict[str, Callable[[Stack], Any]] = {
    "database": _database_lets_nobody_in,
    "redis": _redis_is_stopped,
    "apiServer": _api_server_is_dead,
}


def _passing(stack: Stack, cause: str, choice: str) -> tuple[str, ...]:
    """Ask /filter, and give the nodes that pass."""
    labels = {"policy": f"{cause}-{choice}".lower()}
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "u", "labels": labels}}
    code, answer = stack.call("filter", json.dumps({"Pod": pod, "NodeNames": NODES}).encode())
    assert (code, answer["Error"]) == (200, "")
    assert set(answer["FailedAndUnresolvableNodes"]) == set(NODES) - set(answer["NodeNames"])
    return tuple(answer["NodeNames"])


@pytest.mark.parametrize("cause", CAUSES)
def test_each_rule_set_answers_as_it_chose_while_this_is_away_and_decides_again_afterwards(
    stack: Stack, cause: str
) -> None:
    assert {_passing(stack, cause, choice) for choice in CHOICES} == {("n1",)}

    with OUTAGES[cause](stack):
        eventually(lambda: _passing(stack, cause, "refuse") == (), seconds=30, what=f"{cause} noticed as away")
        assert _passing(stack, cause, "lastKnown") == ("n1",)
        assert _passing(stack, cause, "pass") == ("n1", "n2")
        others = [other for other in CAUSES if other != cause]
        assert {_passing(stack, other, "refuse") for other in others} == {("n1",)}

    eventually(
        lambda: _passing(stack, cause, "refuse") == _passing(stack, cause, "pass") == ("n1",),
        seconds=60,
        what=f"{cause} noticed as back",
    )
