"""What CEL's C++ implementation makes of expressions that Kubernetes' implementation takes otherwise: the table in docs/rules.md."""

import pytest

from policies.engine.cel import EvaluationFault, Result
from tests.unit.engine.cel.asking import value_of

PARAMS = {"a": "x", "nothing": None, "list": [1]}


@pytest.mark.parametrize(
    "source",
    [
        "''.split('') == ['']",
        "int(' 1') == 1 && uint(' 1') == 1u && double(' 1') == 1.0 && double('0x10') == 16.0",
        "1e400 == 1.0 / 0.0 && double('1e400') == 1.0 / 0.0",
        "!(0.0 / 0.0 < 1.0) && math.greatest(1.0, 0.0 / 0.0) == 1.0",
        "'%s'.format([2.4580338]) == '2.45803' && string(2.4580338) == '2.4580338'",
        "'%d'.format([1.0]) == '1.000000' && '%.1f'.format([1]) == '1.0'",
        "string(duration('1.5s')) == '1.500s'",
        "string(timestamp('2026-05-01T20:00:00.1234+02:00')) == '2026-05-01T18:00:00.123400Z'",
        "string(1.0 / 0.0) == 'inf' && string(0.0 / 0.0) in ['nan', '-nan']",
        "duration('1.5s').getMilliseconds() == 500",
        "duration('3000000h') > duration('2999999h')",
        "timestamp('2026-5-1T20:00:00Z') == timestamp('2026-05-01T20:00:00Z')",
        "timestamp('26-05-01T20:00:00Z') == timestamp('0026-05-01T20:00:00Z')",
        "timestamp('2026-05-01T20:00:60Z') == timestamp('2026-05-01T20:01:00Z')",
        "timestamp(' 2026-05-01t20:00:00+0200 ') == timestamp('2026-05-01T18:00:00Z')",
        "!optional.ofNonZeroValue(timestamp(0)).hasValue()",
        "'a'.matches('\\\\C')",
        "params.`a` == params['a']",
        "[?params.?a, ?optional.none().or(params[?'b'])] == ['x']",
        "quantity('1') == quantity('1').add(0)",
    ],
)
def test_an_expression_means_what_the_table_says(source: str) -> None:
    assert value_of(source, Result.BOOLEAN, params=PARAMS) is True


@pytest.mark.parametrize(
    "source",
    [
        "has(params.a.b)",
        "has(params.nothing.b)",
        "params.?a.?b.hasValue()",
        "[1] in {}",
        "params.list[?0.0].hasValue()",
        "{'a': 1, 'a': 2}.size() == 1",
        "{null: 1}.size() == 1",
        "'web'.indexOf('b', 9) == -1",
        "'web'.lastIndexOf('b', 9) == -1",
        "double('1_0') == 10.0",
        "bool('T')",
        "int(duration('1s')) == 1000000000",
        "duration('1µs') == duration('1us')",
        "timestamp('2026-05-01T20:00:00,5Z') < now",
        "timestamp('2026-05-01T20:00:00+24:00') < now",
        "now.getHours('Local') >= 0",
        "'a'.matches(params.a + '\\\\p{Letter}')",
        "'%q'.format(['a']) == ''",
    ],
)
def test_an_expression_is_an_error_as_the_table_says(source: str) -> None:
    assert isinstance(value_of(source, Result.BOOLEAN, params=PARAMS), EvaluationFault)
