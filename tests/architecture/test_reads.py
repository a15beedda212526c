"""What operators are told about what rules read is what rules say of themselves."""

import re
from pathlib import Path

from policies.engine.filters.registry import BUILTIN_FILTERS
from policies.engine.objects.cluster_kinds import ALL_KINDS
from policies.engine.scores.registry import BUILTIN_SCORES
from scheduler.cluster.kinds import OBJECTS
from scheduler.doctor.rights import rights_of

# What these read depends on their arguments; the table has what it is without any.
BY_ARGUMENTS = {"EvenPodsSpread", "EvenPodsSpreadPriority"}

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


def section() -> str:
    return OPERATIONS.read_text().split("## What it reads of the cluster")[1].split("\n## ")[0]


def test_the_table_of_what_rules_read_is_true() -> None:
    written: dict[str, set[str]] = {}
    for rules, kinds in re.findall(r"^\| (`.*`) \| (`.*`) \|$", section(), re.MULTILINE):
        for name in re.findall(r"`(\w+)`", rules):
            written[name] = set(re.findall(r"`(\w+)`", kinds))
    kinds = {kind.__name__: kind for kind in (*BUILTIN_FILTERS.values(), *BUILTIN_SCORES.values())}
    made = {name: kind(kind.Arguments()) if name in BY_ARGUMENTS else kind for name, kind in kinds.items()}
    said = {name: set(rule.reads) for name, rule in made.items() if rule.reads}
    assert written == said


def test_the_binders_cluster_role_allows_every_kind_that_can_be_watched() -> None:
    allowed = {(right.group, right.resource) for right in rights_of("binder") if right.verbs == ("list", "watch")}
    needed = {
        (kind.path.split("/")[2] if kind.path.startswith("/apis/") else "", name) for name, kind in OBJECTS.items()
    }
    assert allowed == needed | {("", "nodes"), ("", "pods"), ("", "namespaces")}
    assert {name for _, name in needed} == ALL_KINDS
