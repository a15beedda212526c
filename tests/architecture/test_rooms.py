"""A module without a room fails: every folder that is too large to be seen at once has an exhaustive list of its rooms.

Or each of its modules is a room of its own, that knows none of the others: so a new rule needs no line in the list.
"""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.architecture.tracked import ROOT, named, tracked_files

MOST_WITHOUT_A_LIST = 10
# Django finds these by their names, and nobody imports them.
NOT_ROOMS = {"commands", "migrations"}
STRAYS = (
    "controlplane/stray.py",
    "policies/stray.py",
    "policies/engine/stray.py",
    "policies/publishing/stray.py",
    "scheduler/stray.py",
    "scheduler/binder/stray.py",
    "scheduler/extender/stray.py",
)


def test_every_folder_with_more_than_ten_modules_lists_its_rooms_or_has_each_alone() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    listed = {folder for each in contracts if each.get("exhaustive") for folder in each["containers"]}
    listed |= {
        name.removesuffix(".*") for each in contracts if each["type"] == "independence" for name in each["modules"]
    }
    large = {named(folder).replace("/", ".") for folder in _folders() if len(_rooms(folder)) > MOST_WITHOUT_A_LIST}
    assert large - listed == set()


def _folders() -> set[Path]:
    modules = [path for path in tracked_files() if path.suffix == ".py" and path.exists()]
    ours = [path for path in modules if path.relative_to(ROOT).parts[0] in {"controlplane", "policies", "scheduler"}]
    return {path.parent for path in ours if path.parent.name not in NOT_ROOMS}


def _rooms(folder: Path) -> list[Path]:
    inside = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    return [path for path in inside if path.stem != "__init__"]


def test_a_module_without_a_room_is_named_in_every_folder_that_has_a_list(tmp_path: Path) -> None:
    """The lists hold what they say: this is the program that `make check` runs."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for package in ("controlplane", "policies", "scheduler"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    for stray in STRAYS:
        (tmp_path / stray).write_text("")

    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--config", "pyproject.toml", "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode == 1
    missing = [stray for stray in STRAYS if stray.removesuffix(".py").replace("/", ".") not in done.stdout]
    assert missing == [], done.stdout
