"""The documentation's tables of built-ins say what these say of themselves."""

import re
from collections import defaultdict

import msgspec
import pytest

from policies.engine.filters.registry import BUILTIN_FILTERS, FILTER_ALIASES
from policies.engine.rule import Filter, Score
from policies.engine.scores.registry import BUILTIN_SCORES, SCORE_ALIASES
from tests.architecture.tracked import ROOT
from tests.unit.engine.test_declarations import registered

DOCS = ROOT / "docs"
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", re.MULTILINE)
_NAME = re.compile(r"`(\w+)`")


def _section(page: str, heading: str, end: str) -> str:
    return (DOCS / page).read_text().partition(heading)[2].partition(end)[0]


@pytest.mark.parametrize(
    ("heading", "built_ins", "aliases"),
    [("Filters:", BUILTIN_FILTERS, FILTER_ALIASES), ("Scores, 0 to 100", BUILTIN_SCORES, SCORE_ALIASES)],
)
def test_the_table_of_built_ins_has_each_with_its_other_names_arguments_and_help(
    heading: str, built_ins: dict[str, type[Filter | Score]], aliases: dict[str, str]
) -> None:
    rows = _ROW.findall(
        _section("rules.md", f"\n{heading}", "\n\n" + ("Scores" if heading == "Filters:" else "Arguments"))
    )
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


def test_the_table_of_what_is_read_names_each_built_in_that_reads_and_what() -> None:
    section = _section("operations.md", "## What it reads of the cluster", "\n## ")
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    said = {rule: set(_NAME.findall(kinds)) for rules, kinds in rows for rule in _NAME.findall(rules)}
    # By which arguments it reads less is said below the table, so arguments count together.
    read: dict[str, set[str]] = defaultdict(set)
    for rule in registered().values():
        if type(rule).__name__ in {made.__name__ for made in (*BUILTIN_FILTERS.values(), *BUILTIN_SCORES.values())}:
            read[type(rule).__name__] |= rule.reads

    # What it reads with a default that doesn't schedule anyway stands below the table, too.
    assert "`EvenPodsSpread` reads the\nsame as it" in section
    assert said == {name: kinds for name, kinds in read.items() if kinds and name != "EvenPodsSpread"}
