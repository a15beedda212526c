"""Operators over columns give what CEL gives, or leave it to CEL."""

import math
from typing import Any

import numpy as np
import pytest
from cel.expr import syntax_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from policies.engine.cel.expressions import Result
from policies.engine.cel.language import BOOLEAN_TYPES, NUMBER_TYPES, Program, compile_checked
from policies.engine.cel.syntax import unpack
from policies.engine.cel.vectors import Members, Operand, Texts, vectorised

NUMBERS = np.array([1, 2, 3], dtype=np.int64)
FLAGS = np.array([True, False, True])
TEXTS = Texts(np.array([0, 1, 0], dtype=np.int32), ["a", "b"])
DOUBLES = np.array([1.0, 2.5, 4.0])
OPERANDS: dict[str, Operand] = {"node": NUMBERS, "usage": FLAGS, "pod": TEXTS, "params": 2, "requests": DOUBLES}


def tree(source: str, result: Result = Result.BOOLEAN) -> syntax_pb2.Expr:
    types = BOOLEAN_TYPES if result is Result.BOOLEAN else NUMBER_TYPES
    return unpack(compile_checked(source, types, result.value)).expr


def evaluated(source: str, result: Result = Result.BOOLEAN, **operands: Operand) -> Any:
    found = vectorised(tree(source, result), OPERANDS | operands)
    return found.tolist() if isinstance(found, np.ndarray) else found


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("node > 1", [False, True, True]),
        ("node >= params", [False, True, True]),
        ("node < 2", [True, False, False]),
        ("node <= 2", [True, True, False]),
        ("node == 2", [False, True, False]),
        ("2 == node", [False, True, False]),
        ("node != 2", [True, False, True]),
        ("pod == 'a'", [True, False, True]),
        ("'b' == pod", [False, True, False]),
        ("pod != 'a'", [False, True, False]),
        ("usage == false", [False, True, False]),
        ("!usage", [False, True, False]),
        ("usage && node > 1", [False, False, True]),
        ("usage || node > 1", [True, True, True]),
        ("usage && true", [True, False, True]),
        ("usage && false", [False, False, False]),
        ("false || usage", [True, False, True]),
        ("true || usage", [True, True, True]),
        ("true && (1 < 2)", True),
        ("false || 1 > 2", False),
        ("!(1 > 2)", True),
        ("'a' == 'b'", False),
        ("usage ? node > 2 : pod == 'b'", [False, True, True]),
        ("(1 < 2) ? usage : node > 1", [True, False, True]),
        ("(1 > 2) ? usage : node > 1", [False, True, True]),
        ("node * 2 + 1 - params == 3", [False, True, False]),
        ("node / 2 == 1", [False, True, True]),
        ("(0 - node) / 2 == -1", [False, True, True]),
        ("(0 - node) % 2 == -1", [True, False, True]),
        ("node % 2 == 1", [True, False, True]),
        ("-node < -1", [False, True, True]),
        ("requests * 2.0 > 2.5", [False, True, True]),
        ("requests > 1", [False, True, True]),
        ("requests == 1", [True, False, False]),
        ("double(node) == requests", [True, False, False]),
        ("requests / 0.0 > 1e308", [True, True, True]),
        ("-requests < -1.0", [False, True, True]),
        ("(usage ? requests : 0.5) < 1.0", [False, True, False]),
        ("requests in [1.0, 2.5]", [True, True, False]),
        ("node > 1.5", [False, True, True]),
        ("pod in ['b', 'c']", [False, True, False]),
        ("!(pod in ['b', 'c'])", [True, False, True]),
        ("node in [1, params + 1]", [True, False, True]),
        ("usage in [false]", [False, True, False]),
        ("'b' in ['a', pod]", [False, True, False]),
        ("pod in []", [False, False, False]),
        ("params in [1, 2]", True),
    ],
)
def test_operators_give_what_cel_gives(source: str, expected: Any) -> None:
    assert evaluated(source) == expected


def test_a_choice_of_numbers_is_a_number() -> None:
    assert evaluated("usage ? node : 0", Result.NUMBER) == [1, 0, 3]


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("node == 'a'", id="a number and a text"),
        pytest.param("pod == pod", id="two columns of texts"),
        pytest.param("pod > 'a'", id="an order of texts"),
        pytest.param("node && true", id="a number for a boolean"),
        pytest.param("node / 0 == 1", id="division by zero"),
        pytest.param("node % (node - 1) == 1", id="division by a column with a zero"),
        pytest.param("node + requests > 1.0", id="a number and a double added up"),
        pytest.param("node / 2.0 > 1.0", id="a number divided by a double"),
        pytest.param("requests % requests == 1", id="a remainder of doubles"),
        pytest.param("double(pod) > 1.0", id="a text that is to be a double"),
        pytest.param("(usage ? requests : node) > 1", id="a choice of a double or a number"),
        pytest.param("size(pod) > 1", id="a function"),
        pytest.param("usage ? node > 1 : pod", id="a choice of two kinds"),
        pytest.param("node ? true : false", id="a condition that is a number"),
        pytest.param("topology == 1", id="a variable that isn't known"),
        pytest.param("[1].exists(x, x == node)", id="a loop"),
        pytest.param("usage + 1 == 2", id="a boolean in arithmetic"),
        pytest.param("pod in ['a', 1]", id="a list of texts and numbers"),
        pytest.param("pod in [pod]", id="a column of texts in a list, and one that is looked for"),
        pytest.param("pod in {'a': 1}", id="a map that is written out"),
        pytest.param("[pod] == ['a']", id="lists that are compared"),
        pytest.param("pod in [?optional.of('a')]", id="a list with members that may be left out"),
    ],
)
def test_what_cel_treats_otherwise_is_left_to_cel(source: str) -> None:
    assert evaluated(source) is None


def test_a_list_that_is_the_same_for_all_rows_is_looked_into() -> None:
    assert evaluated("pod in params", params=Members(["b", "c"])) == [False, True, False]
    assert evaluated("node in params", params=Members([3, 1])) == [True, False, True]
    assert evaluated("pod in params", params="a") is None


@pytest.mark.parametrize(
    "source", ["node + 1 > 0", "node - params < 0", "node * node > 0", "-node > 0", "node / -1 > 0", "1 / node == 0"]
)
def test_what_could_overflow_is_left_to_cel(source: str) -> None:
    large = np.array([2**63 - 1, -(2**63)], dtype=np.int64)
    assert evaluated(source, node=large) is None


INTS = st.sampled_from([0, 1, -1, 2, 7, -10, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63)])
FLOATS = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 2.5, 1e16, 2.0**63, 1e308, 5e-324, math.inf, -math.inf, math.nan])


def computed() -> st.SearchStrategy[str]:
    """Return a strategy of numbers that are computed from columns and single values."""
    number: st.SearchStrategy[str] = st.deferred(lambda: numbers)
    comparison = st.builds("({} {} {})".format, number, st.sampled_from(["<", ">=", "==", "!="]), number)
    numbers = st.one_of(
        st.sampled_from(["node", "requests", "params", "usage"]),
        INTS.filter(lambda value: value > -(2**63)).map("dyn({})".format),
        st.sampled_from(["dyn(0.5)", "dyn(0.0)", "dyn(1e308)"]),
        st.builds("({} {} {})".format, number, st.sampled_from("+-*/%"), number),
        number.map("(-{})".format),
        number.map("dyn(double({}))".format),
        st.builds("({} ? {} : {})".format, comparison, number, number),
        st.builds("dyn({} in [{}, {}] ? 1 : 0)".format, number, number, number),
    )
    return numbers


@given(
    source=computed(),
    whole=st.lists(INTS, min_size=3, max_size=3),
    doubles=st.lists(FLOATS, min_size=3, max_size=3),
    one=INTS,
    other=FLOATS,
)
@example(source="(node % requests)", whole=[1, 2, 3], doubles=[1.0, 2.0, 3.0], one=1, other=1.0)
def test_numbers_that_are_computed_over_columns_are_what_cel_gives(
    source: str, whole: list[int], doubles: list[float], one: int, other: float
) -> None:
    compiled = compile_checked(source, NUMBER_TYPES, Result.NUMBER.value)
    operands: dict[str, Operand] = {
        "node": np.array(whole),
        "requests": np.array(doubles),
        "params": one,
        "usage": other,
    }
    found = vectorised(unpack(compiled).expr, operands)
    if found is None:
        return
    columns = np.broadcast_to(np.asarray(found), (3,)).tolist()
    for row, value in enumerate(columns):
        data = {"node": whole[row], "requests": doubles[row], "params": one, "usage": other}
        wanted = Program(compiled).run(data)
        assert type(wanted) is type(value)
        assert wanted == value or (math.isnan(wanted) and math.isnan(value))


def test_no_rows_overflow_nothing() -> None:
    assert evaluated("node + 1 > 0", node=np.array([], dtype=np.int64)) == []
