"""The files that belong to the checkout: those that git tracks, and new ones that it doesn't ignore."""

import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return the files that are there, by path."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    names = sorted(set(listed.stdout.decode().split("\0")) - {""})
    return tuple(path for path in (ROOT / name for name in names) if path.is_file() and not path.is_symlink())


def named(path: Path) -> str:
    """Name a file as people do: by its path in the checkout."""
    return path.relative_to(ROOT).as_posix()
