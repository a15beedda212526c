"""The shipped examples: each is valid, holds its own tests' promises, and evaluates as the library does."""

from pathlib import Path
from typing import Any

import pytest

from policies.engine.cel import MAX_RULE_SET_MILLISECONDS, EvaluationFault
from policies.engine.cel.cost import MAX_EXPRESSION_MILLISECONDS
from policies.engine.decision import EPOCH, CompiledRevision, CompiledRuleSet, run_tests
from policies.engine.documents import document_of, read_assignment
from policies.engine.filters.expression import ExpressionFilter
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import Assignment, Revision, RuleSet
from policies.engine.scores.expression import ExpressionScore
from policies.engine.validation import read_rule_set
from policies.manifests import read_documents, to_yaml

FOLDER = Path(__file__).parents[3] / "examples"
FILES = sorted(path for path in FOLDER.glob("*") if path.suffix in {".yaml", ".yml", ".json"})
READERS: dict[str, Any] = {"RuleSet": read_rule_set, "Assignment": read_assignment}


def read(path: Path) -> list[RuleSet | Assignment]:
    documents = [found.document for found in read_documents(path.read_text(), path.name)]
    return [READERS[found["kind"]](found) for found in documents if found["kind"] in READERS]


def rule_sets(path: Path) -> list[RuleSet]:
    return [value for value in read(path) if isinstance(value, RuleSet)]


def test_there_are_examples_for_the_tests_below() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
class TestExample:
    def test_is_valid_and_reads_back_from_what_is_exported(self, path: Path) -> None:
        for value in read(path):
            (found,) = read_documents(to_yaml(document_of(value)), "export.yaml")
            assert READERS[type(value).__name__](found.document) == value

    def test_makes_a_revision_by_itself(self, path: Path) -> None:
        assignments = [value for value in read(path) if isinstance(value, Assignment)]
        CompiledRevision(Revision(number=1, rule_sets=rule_sets(path), assignments=assignments))

    def test_holds_what_its_tests_promise(self, path: Path) -> None:
        for rule_set in rule_sets(path):
            assert rule_set.spec.tests, f"{rule_set.name} has no tests"
            assert run_tests(rule_set) == []

    def test_costs_less_than_half_of_what_is_allowed(self, path: Path) -> None:
        for rule_set in rule_sets(path):
            compiled = CompiledRuleSet(rule_set)
            made = [made for _, made in [*compiled.filters, *compiled.scores]]
            rules = [rule for rule in made if isinstance(rule, ExpressionFilter | ExpressionScore)]
            costs = [rule.expression.cost(rule_set.spec.params).milliseconds() for rule in rules]
            assert 2 * sum(costs) <= MAX_RULE_SET_MILLISECONDS
            assert all(2 * cost <= MAX_EXPRESSION_MILLISECONDS for cost in costs)

    def test_gives_at_once_what_each_node_gives_by_itself(self, path: Path) -> None:
        for rule_set in rule_sets(path):
            compiled = CompiledRuleSet(rule_set)
            made = [made for _, made in [*compiled.filters, *compiled.scores]]
            rules = [rule for rule in made if isinstance(rule, ExpressionFilter | ExpressionScore)]
            for test in rule_set.spec.tests:
                snapshot = Snapshot.of(map(Node.from_json, test.nodes), map(Pod.from_json, test.pods))
                cycle = Cycle(pod=Pod.from_json(test.pod), snapshot=snapshot, now=EPOCH, params=compiled.params)
                for rule in rules:
                    values = rule.expression.evaluate(cycle, snapshot.table.all_rows()).listed()
                    plain = [rule.expression.evaluate_plainly(cycle, row) for row in range(len(snapshot.table))]
                    assert _without_texts(values) == _without_texts(plain)


def _without_texts(values: Any) -> list[Any]:
    return ["fault" if isinstance(value, EvaluationFault) else value for value in values]
