"""The database is dumped and restored while Pods come, and the restored one takes the place of the first under running processes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.e2e.test_restarts import Creator, rules
from tests.postgres import binaries
from tests.stack import BASE_DIR, Stack, eventually, make_node

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not os.environ.get("BERTH_DATABASE_URL", "").startswith("postgres"), reason="beside PostgreSQL: make test-e2e"
    ),
]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    nodes = [make_node(f"{colour}-1", colour=colour) for colour in ("red", "blue")]
    for node in nodes:
        node["status"]["allocatable"] = node["status"]["capacity"] = {"cpu": "64", "memory": "256Gi", "pods": "2000"}
    running = Stack(tmp_path, nodes=nodes)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def named(url: str, name: str) -> str:
    """Return the URL of another database of the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def restored(url: str, folder: Path) -> str:
    """Dump a database, and restore it into an empty one; returns that one's URL."""
    dump, target = folder / "berth.dump", named(url, f"{urlsplit(url).path[1:]}_restored")
    subprocess.run([binaries() / "pg_dump", "--format=custom", f"--file={dump}", url], check=True)
    with psycopg.connect(named(url, "postgres"), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {urlsplit(target).path[1:]}")
    subprocess.run([binaries() / "pg_restore", "--exit-on-error", f"--dbname={target}", dump], check=True)
    return target


def exchange(first: str, second: str) -> None:
    """Let a database have the name of another, whose connections end."""
    old, new = (urlsplit(url).path[1:] for url in (first, second))
    with psycopg.connect(named(first, "postgres"), autocommit=True) as server:
        server.execute(f"ALTER DATABASE {old} ALLOW_CONNECTIONS false")
        server.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname IN (%s, %s)", (old, new))
        eventually(
            lambda: not server.execute("SELECT 1 FROM pg_stat_activity WHERE datname = %s", (old,)).fetchall(),
            what="all connections ended",
        )
        server.execute(f"ALTER DATABASE {old} RENAME TO {old}_before")
        server.execute(f"ALTER DATABASE {new} RENAME TO {old}")


def chain(stack: Stack) -> list[int]:
    """The numbers of the Revisions."""
    return [number for (number,) in stack.sql("SELECT number FROM policies_revision ORDER BY number")]


def verified(stack: Stack, *arguments: str, url: str = "") -> bool:
    """Whether the history of a database is what was recorded."""
    environment = {**stack.environment, **({"BERTH_DATABASE_URL": url} if url else {})}
    command = [sys.executable, "manage.py", "verify", "--output", "json", *arguments]
    done = subprocess.run(command, cwd=BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    print([log["faults"] for log in found["logs"]])
    assert all(log["checkpoints"] for log in found["logs"])
    return bool(found["ok"])


def test_a_restored_database_verifies_and_goes_on_under_running_extenders(stack: Stack, tmp_path: Path) -> None:
    stack.publish(*rules("red"))
    checkpoints, before = stack.state / "checkpoints", tmp_path / "checkpoints-of-the-backup"
    creator = Creator(stack, every=0.5)
    creator.start()
    try:
        eventually(lambda: stack.sql("SELECT 1 FROM scheduler_outcome"), what="a Pod has its outcome")
        stack.manage("ledger", "checkpoint")
        shutil.copytree(checkpoints, before)
        backup = restored(stack.database_url, tmp_path)
        assert verified(stack, "--checkpoints", str(before), url=backup)

        # A Revision that the backup doesn't have: its number is given a second time.
        stack.publish(rules("blue")[0])
        lost = stack.newest_revision()
        eventually(
            lambda: stack.sql(f"SELECT 1 FROM scheduler_decision WHERE revision = {lost}"),
            what="a Decision of it is stored",
        )
        exchange(stack.database_url, backup)
        checkpoints.rename(tmp_path / "checkpoints-of-what-was-lost")
        eventually(lambda: stack.metric("berth_revision") == lost - 1, what="the restored Revision is served")
        first = len(creator.names)
        eventually(lambda: len(creator.names) > first + 3, what="Pods come")

        stack.publish(renamed(rules("blue")[0]))
        assert stack.newest_revision() == lost
    finally:
        creator.enough.set()
        creator.join()

    placed = {name: stack.wait_for_node(name, seconds=60) for name in creator.names}
    assert placed[creator.names[first + 2]] == "red-1"
    stack.create_pod("afterwards", labels={"policy": "colour"})
    assert stack.wait_for_node("afterwards") == "blue-1"
    assert chain(stack) == list(range(1, lost + 1))
    stack.manage("ledger", "checkpoint")
    eventually(lambda: verified(stack), every=2.0, what="the history verifies, and says where it has gaps")


def renamed(rule_set: dict[str, Any]) -> dict[str, Any]:
    """Return the rules with other words: another Revision than the one that was lost."""
    return rule_set | {"metadata": rule_set["metadata"] | {"description": "only blue nodes, again"}}
