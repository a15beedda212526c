"""docs/rules.md says of built-ins what these say of themselves. What they read, tests/architecture/test_reads.py compares."""

import re

import msgspec
import pytest

from policies.engine.filters.registry import BUILTIN_FILTERS, FILTER_ALIASES
from policies.engine.rule import Filter, Score
from policies.engine.scores.registry import BUILTIN_SCORES, SCORE_ALIASES
from tests.architecture.tracked import ROOT

RULES = ROOT / "docs" / "rules.md"
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
_NAME = re.compile(r"`(\w+)`")


def _section(heading: str, end: str) -> str:
    return RULES.read_text().partition(heading)[2].partition(end)[0]


@pytest.mark.parametrize(
    ("heading", "built_ins", "aliases"),
    [("Filters:", BUILTIN_FILTERS, FILTER_ALIASES), ("Scores, 0 to 100", BUILTIN_SCORES, SCORE_ALIASES)],
)
def test_the_table_of_built_ins_has_each_with_its_other_names_arguments_and_help(
    heading: str, built_ins: dict[str, type[Filter | Score]], aliases: dict[str, str]
) -> None:
    rows = _ROW.findall(_section(f"\n{heading}", "\n\n" + ("Scores" if heading == "Filters:" else "Arguments")))
    said = {
        name: (_NAME.findall(others), set(_NAME.findall(arguments)), help_) for name, others, arguments, help_ in rows
    }

    assert said == {
        made.__name__: (
            sorted(other for other, name in aliases.items() if name == made.__name__),
            {field.encode_name for field in msgspec.structs.fields(made.Arguments)},
            f"{made.summary()}.",
        )
        for made in built_ins.values()
    }
