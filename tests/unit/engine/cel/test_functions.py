"""Functions inside expressions besides CEL's own: Kubernetes' quantity library, and substring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.cel import EvaluationFault, Expression, Result, Value
from policies.engine.errors import ExpressionError
from tests.unit.engine.cel.asking import cycle_of, node

LARGE = "9223372036854775807"


def value_of(source: str, result: Result = Result.BOOLEAN) -> Value:
    cycle = cycle_of([node("n1")])
    return Expression(source, result).evaluate(cycle, cycle.table.all_rows()).listed()[0]


@pytest.mark.parametrize(
    "source",
    [
        "quantity('1Gi') == quantity('1024Mi')",
        "quantity('1500m') == quantity('1.5')",
        "quantity('0') == quantity('0Ki')",
        "quantity('1Gi').isGreaterThan(quantity('1G'))",
        "!quantity('1G').isGreaterThan(quantity('1G'))",
        "quantity('500m').isLessThan(quantity('1'))",
        "quantity('2').compareTo(quantity('1')) == 1",
        "quantity('1').compareTo(quantity('2')) == -1",
        "quantity('1k').compareTo(quantity('1000')) == 0",
        "quantity('1').add(quantity('500m')) == quantity('1500m')",
        "quantity('1').add(2) == quantity('3')",
        "quantity('1').sub(quantity('500m')) == quantity('500m')",
        "quantity('1').sub(2) == quantity('-1')",
        "quantity('-1').sign() == -1 && quantity('0').sign() == 0 && quantity('1n').sign() == 1",
        "sign(quantity('-1')) == -1 && sign(quantity(node.status.allocatable.cpu)) == 1",
        "quantity('1k').isInteger() && !quantity('500m').isInteger() && quantity('1.5k').isInteger()",
        "!quantity('2000m').isInteger() && !quantity('1.5Gi').isInteger() && quantity('1536Mi').isInteger()",
        "!quantity('1500m').add(quantity('500m')).isInteger() && quantity('1').add(1).isInteger()",
        "quantity('2000m') == quantity('2') && [quantity('1.5Gi')] == [quantity('1536Mi')]",
        "quantity('1k').asInteger() == 1000 && quantity('1e2').asInteger() == 100",
        "quantity('500m').asApproximateFloat() == 0.5 && quantity('2').asApproximateFloat() == 2.0",
        "quantity('300m').asApproximateFloat() == 0.3 && quantity('1200m').asApproximateFloat() == 1.2",
        "quantity('1e309').asApproximateFloat() > 1.7e308 && quantity('-1e309').asApproximateFloat() < -1.7e308",
        "!isQuantity(' 1Gi ') && !isQuantity('1 ')",
        "isQuantity('1.5Gi') && !isQuantity('1.5gi') && !isQuantity('')",
        "quantity(node.status.allocatable.cpu).isGreaterThan(quantity('1'))",
    ],
)
def test_quantities_compare_add_and_convert_as_in_kubernetes(source: str) -> None:
    assert value_of(source) is True


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("quantity('much').sign()", id="a text that is no quantity"),
        pytest.param("quantity('1 ').sign()", id="space behind a quantity"),
        pytest.param("quantity('500m').asInteger()", id="a fraction as a whole number"),
        pytest.param("quantity('2000m').asInteger()", id="thousandths as a whole number"),
        pytest.param("quantity('1.5Gi').asInteger()", id="a binary fraction as a whole number"),
        pytest.param(f"quantity('{LARGE}').add(1).asInteger()", id="a number beyond 64 bits"),
        pytest.param("pod.metadata.labels.sign()", id="something else than a quantity"),
    ],
)
def test_what_has_no_answer_is_a_fault(source: str) -> None:
    assert isinstance(value_of(source, Result.NUMBER), EvaluationFault)


@pytest.mark.parametrize(
    ("source", "operator", "given"),
    [
        ("quantity('1') > quantity('2')", "_>_", "quantity, quantity"),
        ("quantity(node.status.allocatable.cpu) < 4", "_<_", "quantity, int"),
        ("quantity('1') + 1 == quantity('2')", "_+_", "quantity, int"),
    ],
)
def test_an_operator_between_quantities_is_refused_with_what_to_use(source: str, operator: str, given: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        Expression(source, Result.BOOLEAN)
    said = f"found no matching overload for '{operator}' applied to '({given})': a quantity takes only == and !="
    assert str(refused.value).startswith(said)


def test_a_wrong_argument_of_a_function_over_quantities_is_refused_by_its_name() -> None:
    with pytest.raises(ExpressionError, match=r"'isLessThan' applied to '\(quantity, int\)'( \(line|$)"):
        Expression("quantity('1').isLessThan(2)", Result.BOOLEAN)


def test_a_sum_beyond_all_floats_is_infinite() -> None:
    largest = f"quantity('{'9' * 240}').add(quantity('{'9' * 200}e109'))"
    assert value_of(f"{largest}.asApproximateFloat()", Result.NUMBER) == float("inf")
    assert value_of(f"quantity('0').sub({largest}).asApproximateFloat()", Result.NUMBER) == float("-inf")


@given(st.integers(-(10**18), 10**18), st.integers(-(10**18), 10**18))
def test_whole_quantities_behave_like_whole_numbers(left: int, right: int) -> None:
    source = f"quantity('{left}').add(quantity('{right}')).asInteger() == {left + right}"
    if -(2**63) < left + right < 2**63:
        assert value_of(source) is True
    assert value_of(f"quantity('{left}').isLessThan(quantity('{right}'))") is (left < right)


@pytest.mark.parametrize(
    "source",
    [
        "node.metadata.name.substring(0, 2) == 'n1' && node.metadata.name.substring(1, 2) == '1'",
        "node.metadata.name.substring(node.metadata.name.size() - 1, node.metadata.name.size()) == '1'",
        "'n' + pod.metadata.labels.app.substring(0, 1) == 'nx' && 'zoné'.substring(3, 4) == 'é'",
        "'ab'.substring(0, 1) == 'a' && 'ab'.substring(2, 2) == '' && ''.substring(0, 0) == ''",
    ],
)
def test_a_substring_may_reach_to_the_end_of_its_text(source: str) -> None:
    assert value_of(source) is True


@pytest.mark.parametrize("ends", ["0, 3", "3, 3", "-1, 1", "2, 1"])
def test_a_substring_that_reaches_beyond_its_text_is_a_fault(ends: str) -> None:
    fault = value_of(f"node.metadata.name.substring({ends}) == ''")
    assert isinstance(fault, EvaluationFault)
    assert f"a text of 2 characters has no substring({ends})" in fault.message
