"""What Berth runs on, all of it as uv.lock fixes it, with the licence that each package's own metadata names."""

import importlib.metadata
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def runtime_packages() -> list[str]:
    """Return the names of all packages that an installation without the groups for tests holds."""
    locked: dict[str, list[dict[str, Any]]] = {}
    for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"]:
        locked.setdefault(package["name"], []).append(package)
    found: set[tuple[str, tuple[str, ...]]] = set()
    waiting = list(_required(locked["berth"], ()))
    while waiting:
        wanted = waiting.pop()
        if wanted not in found:
            found.add(wanted)
            waiting += _required(locked[wanted[0]], wanted[1])
    return sorted({name for name, _ in found})


def _required(packages: list[dict[str, Any]], extras: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for package in packages:
        optional = package.get("optional-dependencies", {})
        for each in [*package.get("dependencies", []), *(each for extra in extras for each in optional.get(extra, []))]:
            yield each["name"], tuple(each.get("extra", ()))


def licence(name: str) -> str | None:
    """Return a package's licence as its metadata says it; None for one that this machine doesn't need."""
    try:
        said = importlib.metadata.metadata(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    classified = [each.rpartition(" :: ")[2] for each in said.get_all("Classifier") or [] if each.startswith("License")]
    text = (said.get("License-Expression") or said.get("License") or "").strip()
    return text if text and "\n" not in text else ", ".join(classified)
