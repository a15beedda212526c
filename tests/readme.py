"""The commands in README and other documents, with their documented output, for tests that run them."""

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_AGE = re.compile(r"\b\d+(?:s|m|m\d+s)(?= |$)")


@dataclass(frozen=True)
class Command:
    """A line that a reader types, and the lines that README shows below it."""

    text: str
    output: str


def blocks(language: str, document: Path = README) -> list[str]:
    """Return a document's blocks of a language, in order."""
    return [body for found, body in _BLOCK.findall(document.read_text()) if found == language]


def consoles(document: Path = README) -> list[list[Command]]:
    """Return the commands of each console block."""
    found = []
    for block in blocks("console", document):
        commands = []
        for typed in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            text, _, output = typed.partition("\n")
            commands.append(Command(text, output))
        found.append(commands)
    return found


def write_files(folder: Path) -> None:
    """Write the files that README tells its reader to write, and link the checkout's files beside them."""
    (rules,) = blocks("yaml")
    (folder / "web-on-web.yaml").write_text(rules)
    (cases,) = (each.output for commands in consoles() for each in commands if each.text == "cat cases.jsonl")
    json.loads(cases)
    (folder / "cases.jsonl").write_text(cases)
    link_checkout(folder)


def link_checkout(folder: Path) -> None:
    """Link the checkout's files that the documents' commands use into a folder."""
    for name in (".venv", "manage.py", "deploy", "examples"):
        (folder / name).symlink_to(ROOT / name)


def run(text: str, folder: Path, environment: dict[str, str]) -> str:
    """Run a command in a folder; returns its output."""
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("BERTH_")} | environment,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, f"{text}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def steady(output: str) -> str:
    """Return an output without the parts that differ between runs: ages, and widths of columns."""
    lines = [" ".join(_AGE.sub("0s", line).split()) for line in output.strip().splitlines()]
    return "\n".join(lines)
