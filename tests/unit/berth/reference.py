"""The reference of the command, made from its arguments.

python -m tests.unit.berth.reference writes it into docs/command.md
"""

import re
from argparse import SUPPRESS, Action
from collections.abc import Iterator
from pathlib import Path

from berth.arguments import build_parser
from berth.completion import commands_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "command.md"
_EVERYWHERE = {"--help", "--output", "--server", "--from-kubeconfig", "--context"}
_MADE = re.compile(r"(?<=<!-- made by tests/unit/berth/reference.py -->\n).*?(?=<!-- end -->)", re.DOTALL)


def lines() -> Iterator[str]:
    """Iterate over the lines of the reference."""
    for name, parser in commands_of(build_parser()).items():
        yield f"### {name}"
        yield str(parser.description)
        yield ""
        rows = [row for action in parser._actions if (row := _row(action))]
        if rows:
            yield "| | |"
            yield "|---|---|"
            yield from rows
            yield ""


def _row(action: Action) -> str:
    if action.help == SUPPRESS or _EVERYWHERE & {*action.option_strings}:
        return ""
    value = "\\|".join(action.choices) if action.choices else str(action.metavar or action.dest.upper())
    takes_value = action.nargs != 0
    if action.option_strings:
        value = f"[{value}]" if action.nargs == "?" else value
        shown = ", ".join(action.option_strings) + (f" {value}" if takes_value else "")
        said = " (needed)" if action.required else ""
    else:
        shown, said = value, ""
    return f"| `{shown}` | {(action.help or '').replace('|', chr(92) + '|')}{said} |"


def page(text: str) -> str:
    """Return the page with the reference as it is now."""
    made = "\n".join(lines()) + "\n"
    return _MADE.sub(lambda _: made, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
