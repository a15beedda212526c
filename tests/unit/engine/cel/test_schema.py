"""The field paths that expressions read are checked against Kubernetes' own Pod and Node."""

import re

import pytest

from policies.engine.cel.expressions import Expression, Result
from policies.engine.errors import ExpressionError


def check(source: str) -> None:
    Expression(source, Result.BOOLEAN).check_fields()


@pytest.mark.parametrize(
    "source",
    [
        "pod.metadata.name == 'x'",
        "pod.metadata.labels.anything == 'x'",
        "node.metadata.labels['a/b'] == 'x'",
        "node.metadata.labels[?'a'].orValue('') == 'x'",
        "node.metadata.?labels.team.orValue('') == 'x'",
        "has(node.spec.unschedulable) && node.spec.unschedulable",
        "node.spec.taints.exists(t, t.key == 'x' && t.effect == 'NoSchedule')",
        "pod.spec.containers[0].image == 'x'",
        "pod.spec.containers.all(c, c.env.all(e, e.name != 'x'))",
        "pod.spec.containers.map(c, c.image).exists(i, i == 'x')",
        "node.metadata.labels.exists(k, k == 'x')",
        "node.status.conditions.exists(c, c.type == 'Ready')",
        "usage.free.cpu > 0 && usage.requested['nvidia.com/gpu'] == 0 && usage.allocatable.pods > 0",
        "params.anything.goes == 1",
        "pod == node",
        "pod.spec.containers[0].livenessProbe.httpGet.port == 80",
        "pod.spec.?affinity.nodeAffinity.hasValue()",
        "{'a': [pod.metadata.name]}.a[0] == 'x'",
        "node.metadata.labels[pod.metadata.name] == 'x'",
        "optional.of(pod.metadata).value().name == 'x'",
    ],
)
def test_fields_of_kubernetes_pass(source: str) -> None:
    check(source)


@pytest.mark.parametrize(
    ("source", "message", "column"),
    [
        ("pod.metadata.nam == 'x'", "ObjectMeta has no field nam; did you mean name?", 13),
        ("pod.mtadata.name == 'x'", "Pod has no field mtadata; did you mean metadata?", 4),
        ("has(node.spec.taint)", "NodeSpec has no field taint; did you mean taints?", 4),
        ("node.spec.taints.exists(t, t.kee == 'x')", "Taint has no field kee; did you mean key?", 29),
        ("pod.spec.containers.all(c, c.env.all(e, e.nmae != 'x'))", "EnvVar has no field nmae; did you mean name?", 42),
        ("pod.spec.containers[0].imge == 'x'", "Container has no field imge; did you mean image?", 23),
        (
            "pod.spec.containers.image == 'x'",
            "a list has no field image; pick an element, or use exists() or all()",
            20,
        ),
        ("pod.metadata.name.first == 'x'", "a value of type string has no field first", 18),
        ("pod.metadata['nam'] == 'x'", "ObjectMeta has no field nam; did you mean name?", 13),
        ("pod.?metdata.name.orValue('') == 'x'", "Pod has no field metdata; did you mean metadata?", 4),
        ("usage.fre.cpu > 0", "usage has no field fre; did you mean free?", 6),
        ("node.count({'a': pod.metadata.nmae}) > 0", "ObjectMeta has no field nmae; did you mean name?", 30),
    ],
)
def test_an_unknown_field_is_refused_with_the_nearest_known_one(source: str, message: str, column: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        check(source)
    assert (caught.value.message, caught.value.line, caught.value.column) == (message, 1, column)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "node.metadata.labels.generation == 3",
            "a string with a number, which is always false; write the number in quotes, or read the string by int(…)",
        ),
        (
            "3 != pod.metadata.labels.a",
            "a number with a string, which is always true; write the number in quotes, or read",
        ),
        (
            "node.metadata.labels.a > 3",
            "a string with a number, which is an error; read the string by int(…) or quantity(…)",
        ),
        (
            "requests.cpu > '500m'",
            "a number with a string, which is an error; write a whole number without quotes (cpu in",
        ),
        ("node.status.allocatable.cpu > 5", "a string with a number, which is an error; read the string by int(…)"),
        ("pod.spec.containers.exists(c, c.name == 3)", "a string with a number, which is always false"),
        (
            "node.metadata.labels.spare == true",
            "a string with a boolean, which is always false; write 'true' or 'false' in quotes",
        ),
        (
            "node.spec.unschedulable == 'true'",
            "a boolean with a string, which is always false; write true and false without quotes",
        ),
        ("node.spec.unschedulable == 1", "a boolean with a number, which is always false; compare values of one type"),
        (
            "pod.metadata.name == usage.free.cpu",
            "a string with a number, which is always false; read the string by int(…)",
        ),
        (
            "node.spec.unschedulable == node.metadata.labels.a",
            "a boolean with a string, which is always false; compare",
        ),
    ],
)
def test_values_of_types_that_are_never_equal_are_not_compared(source: str, said: str) -> None:
    with pytest.raises(ExpressionError, match="compares " + re.escape(said)):
        check(source)


@pytest.mark.parametrize(
    "source",
    [
        "pod.spec.priority == 3.0 && pod.spec.priority < 3u",
        "pod.metadata.labels[?'w'].orValue(0) == 0",
        "(node.spec.unschedulable ? pod.metadata.name : 3) == 3",
        "has(node.spec.unschedulable) == true",
        "pod.metadata.labels.exists(k, k == 3)",
        "null != pod.metadata.name",
        "pod.metadata.labels.a == params.a",
        "pod.metadata.labels != 3",
        "int(pod.metadata.labels.a) > 3 && size(pod.metadata.name) > 3",
    ],
)
def test_values_that_may_be_equal_are_compared(source: str) -> None:
    check(source)


def test_a_field_like_no_other_is_refused_with_all_that_are_known() -> None:
    with pytest.raises(ExpressionError, match="Taint has no field zzzzzz; known are effect, key, timeAdded, value"):
        check("node.spec.taints.exists(t, t.zzzzzz == 'x')")


@pytest.mark.parametrize(
    ("source", "result", "given"),
    [
        ("pod.metadata.name", Result.BOOLEAN, "string"),
        ("node.metadata.labels['example.com/spare']", Result.BOOLEAN, "string"),
        ("usage.free.cpu", Result.BOOLEAN, "int"),
        ("pod.spec.tolerations", Result.BOOLEAN, "a list"),
        ("pod.metadata.labels", Result.BOOLEAN, "a map"),
        ("pod.spec", Result.BOOLEAN, "PodSpec"),
        ("node.metadata.?labels.weight.orValue('1')", Result.NUMBER, "string"),
        ("pod.spec.hostNetwork", Result.NUMBER, "bool"),
    ],
)
def test_a_field_of_another_type_is_no_result(source: str, result: Result, given: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        Expression(source, result).check_fields()
    wanted = "a boolean" if result is Result.BOOLEAN else "a number"
    assert caught.value.message == f"gives {given}, but {wanted} is needed"


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("has(pod.metadata.name)", Result.BOOLEAN),
        ("pod.spec.?hostNetwork.orValue(false)", Result.BOOLEAN),
        ("params.open", Result.BOOLEAN),
        ("usage.free[?'example.com/gpu'].orValue(0)", Result.NUMBER),
        ("pod.spec.containers[0].livenessProbe.httpGet.port", Result.NUMBER),
        ("params.price", Result.NUMBER),
    ],
)
def test_a_field_of_the_right_type_or_of_any_is_a_result(source: str, result: Result) -> None:
    Expression(source, result).check_fields()


@pytest.mark.parametrize(
    ("source", "column"),
    [
        ("node.metadata.labels[?'team'] == 'web'", 21),
        ("'web' != node.metadata.labels[?'team']", 30),
        ("node.metadata.labels[?'team'] in ['web', 'data']", 21),
        ("!node.spec[?'unschedulable']", 11),
        ("node.metadata.labels[?'team'].startsWith('web')", 21),
        ("pod.spec.containers.exists(c, c.resources.requests[?'cpu'] == '1')", 51),
        ("node.spec[?'unschedulable']", 1),
        ("node.metadata.labels[?'team'] == params.team", 21),
        ("node.metadata.labels[?'team'] != null", 21),
        ("node.metadata.labels[?'team'] == ['web']", 21),
        ("node.metadata.labels[?'size'] == quantity('1')", 21),
        ("node.metadata.labels[?'team'] == dyn('web')", 21),
        ("node.metadata.labels[?'team'] == (params.x == 1 ? params.y : params.z)", 21),
        ("params.teams.exists(t, node.metadata.labels[?'team'] == t)", 44),
        ("params.teams.exists(t, t.name == node.metadata.labels[?'team'])", 54),
        ("node.metadata.labels[?'team'] == pod.metadata.labels['team']", 21),
        ("pod.metadata.labels[pod.metadata.labels[?'key']] == 'web'", 40),
        ("(pod.spec.hostNetwork ? node.metadata.labels[?'a'] : node.metadata.labels[?'b']) == 'x'", 23),
    ],
)
def test_an_optional_element_is_no_value(source: str, column: int) -> None:
    with pytest.raises(ExpressionError, match="may be missing; say what holds then") as caught:
        check(source)
    assert caught.value.column == column


@pytest.mark.parametrize(
    "source",
    [
        "node.metadata.labels[?'team'].orValue('') == 'web'",
        "node.metadata.labels[?'team'] == pod.metadata.labels[?'team']",
        "node.metadata.labels[?'team'] == optional.of('web')",
        "node.metadata.labels[?'team'].hasValue()",
        "node.metadata.labels[?'team'].or(pod.metadata.labels[?'team']).orValue('') == 'web'",
        "node.metadata.labels[?'team'].optMap(t, t == 'web').orValue(false)",
        "(pod.spec.hostNetwork ? node.metadata.labels[?'a'] : node.metadata.labels[?'b']).orValue('') == 'x'",
        "pod.spec[?'tolerations'][0].key.hasValue()",
        "has(pod.spec[?'securityContext'].runAsUser)",
        "node.metadata.labels[?'a'] == (has(pod.spec.hostNetwork) ? node.metadata.labels[?'b'] : optional.none())",
        "node.metadata.labels[?'a'] in [optional.of('x'), optional.none()]",
        "[node.metadata.labels[?'a']].exists(o, o == pod.metadata.labels[?'a'])",
        "optional.ofNonZeroValue(node.metadata.labels[?'a']).hasValue()",
    ],
)
def test_an_optional_may_be_compared_with_another_or_be_given_a_value(source: str) -> None:
    check(source)
