"""Operators over columns give what CEL gives, or leave it to CEL."""

from typing import Any

import numpy as np
import pytest
from cel.expr import syntax_pb2

from policies.engine.cel.expressions import Result
from policies.engine.cel.language import BOOLEAN_TYPES, NUMBER_TYPES, compile_checked
from policies.engine.cel.syntax import unpack
from policies.engine.cel.vectors import Members, Operand, Texts, vectorised

NUMBERS = np.array([1, 2, 3], dtype=np.int64)
FLAGS = np.array([True, False, True])
TEXTS = Texts(np.array([0, 1, 0], dtype=np.int32), ["a", "b"])
OPERANDS: dict[str, Operand] = {"node": NUMBERS, "usage": FLAGS, "pod": TEXTS, "params": 2, "now": True}


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
        pytest.param("node > 1.5", id="fractions"),
        pytest.param("node / 2 == 1", id="division"),
        pytest.param("size(pod) > 1", id="a function"),
        pytest.param("usage ? node > 1 : pod", id="a choice of two kinds"),
        pytest.param("node ? true : false", id="a condition that is a number"),
        pytest.param("topology == 1", id="a variable that isn't known"),
        pytest.param("[1].exists(x, x == node)", id="a loop"),
        pytest.param("usage + 1 == 2", id="a boolean in arithmetic"),
        pytest.param("pod in ['a', 1]", id="a list of texts and numbers"),
        pytest.param("pod in [pod]", id="a column of texts in a list, and one that is looked for"),
        pytest.param("node in [1.5]", id="a list of fractions"),
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


@pytest.mark.parametrize("source", ["node + 1 > 0", "node - params < 0", "node * node > 0"])
def test_what_could_overflow_is_left_to_cel(source: str) -> None:
    large = np.array([2**63 - 1, -(2**63)], dtype=np.int64)
    assert evaluated(source, node=large) is None


def test_no_rows_overflow_nothing() -> None:
    assert evaluated("node + 1 > 0", node=np.array([], dtype=np.int64)) == []
