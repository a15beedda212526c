"""Selectors, as Kubernetes parses and matches them."""

import pytest

from policies.engine.objects.matching import match_selector
from policies.engine.objects.node import Node
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import go_on
from policies.engine.selectors import (
    EVERYTHING,
    NOTHING,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SelectorError,
    is_label_key,
    is_label_value,
    matches,
    matches_labels,
    parse_selector,
    selector_of,
    to_integer,
)
from tests.builders import make_node

LABELS = {"app": "web", "tier": ""}


def expression(key: str, operator: str, *values: str) -> Requirement:
    return Requirement(key, operator, list(values) or None)


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (expression("app", "In", "web", "api"), True),
        (expression("app", "In", "api"), False),
        (expression("gone", "In", "api"), False),
        (expression("app", "NotIn", "web"), False),
        (expression("gone", "NotIn", "web"), True),
        (expression("tier", "In", ""), True),
        (expression("tier", "Exists"), True),
        (expression("gone", "Exists"), False),
        (expression("gone", "DoesNotExist"), True),
        (expression("app", "DoesNotExist"), False),
    ],
)
def test_an_expression_matches_as_in_kubernetes(requirement: Requirement, expected: bool) -> None:
    selector = LabelSelector(match_expressions=[requirement])
    assert parse_selector(selector).matches(LABELS) is expected
    assert matches_labels(selector, LABELS) is expected


@pytest.mark.parametrize("values", [("1",), ("1", "2"), ()])
@pytest.mark.parametrize("operator", ["Gt", "Lt"])
def test_numbers_are_compared_with_one_value_and_only_where_the_label_is_there(
    operator: str, values: tuple[str, ...]
) -> None:
    labels = {"cores": "2" if operator == "Gt" else "0"}
    assert not matches(expression("gone", operator, *values), labels)
    assert matches(expression("cores", operator, *values), labels) is (len(values) == 1)


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert parse_selector(None) is NOTHING
    assert not NOTHING.matches({})
    assert not NOTHING.is_empty
    assert parse_selector(LabelSelector()) == EVERYTHING
    assert EVERYTHING.matches(LABELS)
    assert EVERYTHING.is_empty


@pytest.mark.parametrize(
    "requirement",
    [
        expression("app", "Gt", "1"),
        expression("app", "Is", "1"),
        expression("app", "In"),
        expression("app", "Exists", "web"),
        expression("not a key", "Exists"),
        expression("app", "In", "not a value"),
        expression("app", "In", "x" * 64),
    ],
)
def test_a_label_selector_that_kubernetes_refuses_is_refused(requirement: Requirement) -> None:
    with pytest.raises(SelectorError):
        parse_selector(LabelSelector(match_expressions=[requirement]))


def test_match_labels_are_checked_but_plain_labels_are_not() -> None:
    with pytest.raises(SelectorError):
        parse_selector(LabelSelector(match_labels={"app": "not a value"}))
    assert selector_of({"app": "not a value"}).matches({"app": "not a value"})


def test_joined_selectors_ask_for_both() -> None:
    both = selector_of({"app": "web"}).joined(parse_selector(LabelSelector(match_labels={"tier": ""})))
    assert both.matches(LABELS)
    assert not both.matches({"app": "web"})


@pytest.mark.parametrize(
    ("key", "valid"),
    [
        ("app", True),
        ("example.com/app", True),
        ("Example.com/app", False),
        ("example.com/", False),
        ("/app", False),
        ("a/b/c", False),
        ("-app", False),
        ("x" * 63, True),
        ("x" * 64, False),
        ("a." * 126 + "a/app", True),
        ("a." * 127 + "a/app", False),
    ],
)
def test_a_label_key_is_a_qualified_name(key: str, valid: bool) -> None:
    assert is_label_key(key) is valid


@pytest.mark.parametrize(("value", "valid"), [("", True), ("a-b_c.d", True), ("a-", False), ("ä", False)])
def test_a_label_value_may_be_empty(value: str, valid: bool) -> None:
    assert is_label_value(value) is valid


def node_matches(*terms: NodeSelectorTerm) -> bool:
    labels = {"disk": "ssd", "generation": "7", "zone": "a"}
    table = Snapshot.of([Node.from_json(make_node("n1", labels=labels))]).table
    return bool(match_selector(table, table.all_rows(), NodeSelector(list(terms)), go_on)[0])


def term(*expressions: Requirement, fields: list[Requirement] | None = None) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=list(expressions) or None, match_fields=fields)


class TestNodeSelector:
    def test_any_term_may_match(self) -> None:
        assert node_matches(term(expression("zone", "In", "b")), term(expression("disk", "Exists")))

    def test_all_of_a_term_must_match(self) -> None:
        assert not node_matches(term(expression("disk", "Exists"), expression("zone", "In", "b")))

    def test_no_term_and_an_empty_term_match_no_node(self) -> None:
        assert not node_matches()
        assert not node_matches(term())

    @pytest.mark.parametrize(
        ("requirement", "expected"),
        [
            (expression("generation", "Gt", "6"), True),
            (expression("generation", "Gt", "7"), False),
            (expression("generation", "Lt", "8"), True),
            (expression("disk", "Gt", "1"), False),
            (expression("gone", "Lt", "1"), False),
        ],
    )
    def test_gt_and_lt_compare_whole_numbers(self, requirement: Requirement, expected: bool) -> None:
        assert node_matches(term(requirement)) is expected

    @pytest.mark.parametrize(
        ("field", "expected"),
        [
            (expression("metadata.name", "In", "n1"), True),
            (expression("metadata.name", "NotIn", "n1"), False),
            (expression("metadata.name", "In", "n1", "n2"), False),
            (expression("metadata.name", "Exists"), False),
            (expression("spec.other", "In", "n1"), False),
            (expression("spec.other", "NotIn", "n1"), True),
        ],
    )
    def test_fields_are_the_name_with_exactly_one_value(self, field: Requirement, expected: bool) -> None:
        assert node_matches(term(fields=[field])) is expected

    def test_a_term_that_can_not_be_parsed_is_passed_over(self) -> None:
        bad = term(expression("disk", "NotIn", "not a value"))
        assert not node_matches(bad)
        assert node_matches(bad, term(expression("disk", "Exists")))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("-0", 0),
        ("", None),
        ("7.0", None),
        ("٧", None),
        ("1_0", None),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        (str(2**63), None),
        ("9" * 5_000, None),
        ("-" + "0" * 5_000 + "7", -7),
    ],
    ids=lambda value: str(value)[:30],
)
def test_whole_numbers_are_read_as_go_reads_them(text: str, number: int | None) -> None:
    assert to_integer(text) == number
