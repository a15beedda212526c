"""The database is dumped and restored while Pods come, and the restored one takes the place of the first under running processes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.e2e.test_restarts import Creator, rules
from tests.postgres import binaries
from tests.readme import blocks, link_checkout
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
    with Stack(tmp_path, nodes=nodes) as running:
        yield running


# Dumps, and ends when another checkpoint was signed meanwhile: a large database takes minutes, and one is signed each minute.
_SLOW_DUMP = """#!/bin/bash -e
lines() { wc -l < "$BERTH_LEDGER_CHECKPOINT_DIR/decisions.checkpoints"; }
before=$(lines)
PATH=${PATH#*:} pg_dump "$@"
until [ "$(lines)" -gt "$before" ]; do .venv/bin/python manage.py ledger checkpoint; done
"""


def named(url: str, name: str) -> str:
    """Return the URL of another database of the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def typed(block: str, stack: Stack, folder: Path, **more: str) -> None:
    """Type a block of the how-to, with this server's names in place of its own."""
    name = urlsplit(stack.database_url).path[1:]
    text = block.replace("postgresql://…/berth_restored", named(stack.database_url, f"{name}_restored"))
    text = text.replace("berth_restored", f"{name}_restored")
    if not (folder / "manage.py").exists():
        link_checkout(folder)
        (folder / "bin").mkdir()
        (folder / "bin" / "pg_dump").write_text(_SLOW_DUMP)
        (folder / "bin" / "pg_dump").chmod(0o755)
    server = conninfo_to_dict(stack.database_url)
    given = {f"PG{key.upper()}": str(server[key]) for key in ("host", "port", "user", "password") if server.get(key)}
    path = f"{folder / 'bin'}:{binaries()}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", text],
        cwd=folder,
        env=os.environ | stack.environment | given | more | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)


def exchange(stack: Stack, statements: str) -> None:
    """Let the restored database have the name of the first, whose connections end, by the how-to's own statements."""
    old = urlsplit(stack.database_url).path[1:]
    with psycopg.connect(named(stack.database_url, "postgres"), autocommit=True) as server:
        for statement in re.sub(r"\bberth", old, statements).strip().split(";\n"):
            server.execute(statement)
            if "pg_terminate_backend" in statement:
                eventually(
                    lambda: not server.execute("SELECT 1 FROM pg_stat_activity WHERE datname = %s", (old,)).fetchall(),
                    what="all connections ended",
                )


def may_anybody(stack: Stack, what: str) -> bool:
    """Whether whoever has an account on the server may do that to the restored database."""
    name = f"{urlsplit(stack.database_url).path[1:]}_restored"
    with psycopg.connect(stack.database_url) as connection:
        row = connection.execute("SELECT has_database_privilege('public', %s, %s)", (name, what)).fetchone()
    return bool(row and row[0])


def is_readable(stack: Stack, database: str) -> bool:
    """Whether a command can read the acts in a database, by its name in the how-to."""
    name = database.replace("berth", urlsplit(stack.database_url).path[1:])
    environment = stack.environment | {"BERTH_DATABASE_URL": named(stack.database_url, name)}
    command = [sys.executable, "manage.py", "events", "--since", "2026-01-01"]
    done = subprocess.run(command, cwd=BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    print(done.stdout[:500], done.stderr)
    return done.returncode == 0 and "published" in done.stdout


def chain(stack: Stack) -> list[int]:
    """The numbers of the Revisions."""
    return [number for (number,) in stack.sql("SELECT number FROM policies_revision ORDER BY number")]


def verified(stack: Stack) -> bool:
    """Whether the history of the database is what was recorded."""
    command = [sys.executable, "manage.py", "verify", "--output", "json"]
    done = subprocess.run(command, cwd=BASE_DIR, env=stack.environment, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    print([log["faults"] for log in found["logs"]])
    assert all(log["checkpoints"] for log in found["logs"])
    return bool(found["ok"])


def test_a_restored_database_verifies_and_goes_on_under_running_extenders(stack: Stack, tmp_path: Path) -> None:
    stack.publish(*rules("red"))
    checkpoints = stack.state / "checkpoints"
    how_to = BASE_DIR / "docs" / "howto/backup.md"
    (back_up, restore), (exchange_them,) = blocks("sh", how_to), blocks("sql", how_to)
    folder = tmp_path / "backup"
    folder.mkdir()
    creator = Creator(stack, every=0.5)
    creator.start()
    try:
        eventually(lambda: stack.sql("SELECT 1 FROM scheduler_outcome"), what="a Pod has its outcome")
        stack.manage("ledger", "checkpoint")
        typed(back_up, stack, folder, BERTH_LEDGER_CHECKPOINT_DIR=str(checkpoints))
        typed(restore, stack, folder)
        assert not may_anybody(stack, "CONNECT, TEMPORARY"), "a dump doesn't have who may connect"

        # A Revision that the backup doesn't have: its number is given a second time.
        stack.publish(rules("blue")[0])
        lost = stack.newest_revision()
        eventually(
            lambda: stack.sql(f"SELECT 1 FROM scheduler_decision WHERE revision = {lost}"),
            what="a Decision of it is stored",
        )
        exchange(stack, exchange_them)
        assert is_readable(stack, "berth_before"), "what was revoked since the backup is looked up there"
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
