"""The result of a command, and its output: lines for people, JSON or YAML for programs."""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

# The first sign of a line, and its colour on a terminal.
_COLOURS = {"✓": "green", "✗": "red", "!": "yellow", "?": "cyan", "+": "green", "-": "red", "@": "cyan"}


@dataclass
class Answer:
    """The result of a command.

    Attributes:
        data: for programs; `ok` is added.
        lines: for people.
        exit_code: 0, or another code although nothing was refused.
        ok: whether all is well.
        raw: a text that is written unchanged in every output format; None for none.
    """

    data: dict[str, Any] = field(default_factory=dict)
    lines: Sequence[str] = ()
    exit_code: int = 0
    ok: bool = True
    raw: str | None = None


def write(answer: Answer, output: str, stream: IO[str] | None = None) -> None:
    """Write an answer as text, json or yaml."""
    stream = stream or sys.stdout
    if answer.raw is not None and output == "text":
        stream.write(answer.raw)
    elif output == "text":
        write_lines(answer.lines, stream)
    else:
        found = {"ok": answer.ok, **answer.data}
        stream.write(_json(found) if output == "json" else _yaml(found))


def write_lines(lines: Iterable[str], stream: IO[str]) -> None:
    """Write lines; on a terminal in colours, unless NO_COLOR is set."""
    shown = [visible(line) for line in lines]
    if not _is_coloured(stream):
        stream.writelines(f"{line}\n" for line in shown)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, soft_wrap=True)
    for line in shown:
        console.print(Text(line, style=_COLOURS.get(line.strip()[:1], "")))


def _is_coloured(stream: IO[str]) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def visible(text: str) -> str:
    """Return a text with terminal control characters made visible: names of Pods and reasons come from other people."""
    return "".join(each if each.isprintable() or each == "\n" else f"\\x{ord(each):02x}" for each in text)


def _json(found: dict[str, Any]) -> str:
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


# Texts that Kubernetes' tools, which are in Go, read as a number or as true or false unless they stand in quotes: 08 and y,
# for instance. Source: go.yaml.in/yaml/v2 v2.4.3 resolve.go. Exports are written in the same way, see policies/manifests.py.
_GO_NUMBER = re.compile(
    r"[-+]?(?:0[xXoObB][0-9a-fA-F_]+|(?:\.[0-9_]+|[0-9][0-9_]*(?:\.[0-9_]*)?)(?:[eE][-+]?[0-9_]+)?)$"
)
_GO_BOOLEAN = re.compile("[yYnN]$")
# PyYAML breaks lines at these, which then read back differently.
_RARE_LINE_ENDS = re.compile("[\x85\u2028\u2029]")


def _yaml(found: dict[str, Any]) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes YAML that every parser reads back as the same JSON."""

    def text(dumper: Dumper, given: str) -> yaml.ScalarNode:
        style = '"' if _RARE_LINE_ENDS.search(given) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", given, style=style)

    Dumper.add_representer(str, text)
    Dumper.add_implicit_resolver("tag:yaml.org,2002:float", _GO_NUMBER, list("-+.0123456789"))
    Dumper.add_implicit_resolver("tag:yaml.org,2002:bool", _GO_BOOLEAN, list("yYnN"))
    return str(yaml.dump(found, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=110))


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return rows as lines, in columns as wide as their widest text."""
    texts = [list(head), *([visible(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(row[index]) for row in texts) for index in range(len(head))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in texts]
