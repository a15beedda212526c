"""The layers, and what the engine may load."""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from django.core.checks import Tags

from tests.architecture.tracked import ROOT, named, tracked_files

FOREIGN = ("celery", "django", "kubernetes", "psycopg", "redis", "rest_framework", "unfold", "yaml")
LOADED = "import sys, policies.engine.decision; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
ENGINE = ("numpy", "policies.engine.cel", "policies.engine.decision", "scheduler.gate.runs")
PAGES_AND_CLIENTS = ("celery", "kubernetes", "policies.admin", "pydantic", "rest_framework.views", "scheduler.admin")
# Whatever becomes of the command: there is no database.
COMMAND = """
import contextlib, sys
from django.core.management import execute_from_command_line
with contextlib.suppress(BaseException):
    execute_from_command_line(["manage.py", *sys.argv[1:]])
print("loaded", *sys.modules)
"""
NO_ROOM = {"common", "helpers", "services", "utils"}


def test_deciding_loads_no_framework_and_no_client() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, check=True, text=True)
    loaded = set(done.stdout.split())
    assert {"policies", "msgspec", "numpy"} <= loaded
    assert loaded.isdisjoint(FOREIGN)


@pytest.mark.parametrize(
    ("command", "neither"),
    [
        (["lint", "examples/shortest-name.yaml"], (*ENGINE, "policies.publishing", "redis")),
        (["change", "list"], (*ENGINE, "redis")),
        (["export"], (*ENGINE, "redis")),
        (["token", "list"], (*ENGINE, "redis")),
        (["events"], (*ENGINE, "redis")),
        (["plan", "examples/shortest-name.yaml"], (*ENGINE, "redis")),
        (["apply", "examples/shortest-name.yaml"], (*ENGINE, "redis")),
        (["which", "--help"], (*ENGINE, "redis")),
        # What these are about is what the engine decides, or decided.
        (["explain", "web-0"], ("redis", "scheduler.backtest")),
        (["replay", "1"], ("redis", "scheduler.backtest")),
        (["verify"], ("redis", "scheduler.backtest", "urllib3")),
        (["doctor", "--help"], ("scheduler.backtest",)),
    ],
    ids=lambda value: " ".join(value[:1]),
)
def test_a_command_loads_neither_pages_nor_clients_that_it_does_not_need(
    command: list[str], neither: tuple[str, ...], tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *command],
        cwd=ROOT,
        env={
            **os.environ,
            "BERTH_STATE_DIR": str(tmp_path),
            "BERTH_DATABASE_URL": "",
            "DJANGO_SETTINGS_MODULE": "controlplane.settings",
        },
        capture_output=True,
        check=True,
        text=True,
    )
    loaded = set(done.stdout.rpartition("loaded ")[2].split())
    assert any(name.endswith(f".management.commands.{command[0]}") for name in loaded)
    assert loaded.isdisjoint((*PAGES_AND_CLIENTS, *neither))


def test_every_command_leaves_the_checks_of_pages_to_check() -> None:
    commands = [
        import_module(named(path).removesuffix(".py").replace("/", "."))
        for path in ROOT.glob("*/management/commands/[a-z]*.py")
        if path.stem != "migrate"  # before tables change, all that is wrong is said
    ]
    assert len(commands) > 20
    assert [
        found.__name__ for found in commands if not set(found.Command.requires_system_checks) <= {Tags.security}
    ] == []


def test_import_contracts_are_kept() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--config", "pyproject.toml", "--no-cache"], cwd=ROOT, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_models_and_migrations_say_the_same(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "makemigrations", "--check", "--dry-run"],
        cwd=ROOT,
        env={**os.environ, "BERTH_STATE_DIR": str(tmp_path), "BERTH_DATABASE_URL": ""},
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_module_has_a_name_that_says_what_is_in_it() -> None:
    names = [path for path in tracked_files() if path.suffix == ".py"]
    assert [named(path) for path in names if NO_ROOM & {path.stem, path.parent.name}] == []
