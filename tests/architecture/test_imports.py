"""The layers, and what the engine may load."""

import os
import subprocess
import sys
from pathlib import Path

from tests.architecture.tracked import ROOT, named, tracked_files

FOREIGN = ("celery", "django", "kubernetes", "psycopg", "redis", "rest_framework", "unfold", "yaml")
LOADED = "import sys, policies.engine.decision; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
NO_ROOM = {"common", "helpers", "services", "utils"}


def test_deciding_loads_no_framework_and_no_client() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, check=True, text=True)
    loaded = set(done.stdout.split())
    assert {"policies", "msgspec", "numpy"} <= loaded
    assert loaded.isdisjoint(FOREIGN)


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
