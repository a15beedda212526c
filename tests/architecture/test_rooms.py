"""A module without a room fails: every folder that is too large to be seen at once has an exhaustive list of its rooms."""

import tomllib
from pathlib import Path

from tests.architecture.tracked import ROOT, named, tracked_files

MOST_WITHOUT_A_LIST = 10
# Django finds these by their names, and nobody imports them.
NOT_ROOMS = {"commands", "migrations"}


def test_every_folder_with_more_than_ten_modules_lists_its_rooms() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    listed = {folder for each in contracts if each.get("exhaustive") for folder in each["containers"]}
    large = {named(folder).replace("/", ".") for folder in _folders() if len(_rooms(folder)) > MOST_WITHOUT_A_LIST}
    assert large - listed == set()


def _folders() -> set[Path]:
    modules = [path for path in tracked_files() if path.suffix == ".py" and path.exists()]
    ours = [path for path in modules if path.relative_to(ROOT).parts[0] in {"controlplane", "policies", "scheduler"}]
    return {path.parent for path in ours if path.parent.name not in NOT_ROOMS}


def _rooms(folder: Path) -> list[Path]:
    inside = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()]
    return [path for path in inside if path.stem != "__init__"]
