"""Expressions over all nodes at once give what the library gives for each node by itself."""

import contextlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zoneinfo import TZPATH

import numpy as np
import pytest
from cel.expr import checked_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.engine.cel import Answers, EvaluationFault, Expression, Result, Value
from policies.engine.cel.expressions import _group
from policies.engine.cel.language import MAX_LENGTH
from policies.engine.cel.syntax import pack, unpack
from policies.engine.errors import ExpressionError
from policies.engine.objects.node import Node, NodeInfo
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from policies.engine.ruleset import ScoreRule
from policies.engine.scores.expression import ExpressionScore
from tests.unit.engine.cel.asking import (
    DEEP,
    NOW,
    RUNAWAY,
    SIZED,
    cycle_of,
    evaluate,
    node,
    pod_on,
    same,
    value_of,
)

NAMES = ("team", "zone", "app")
READS = st.sampled_from(
    [f"{owner}.metadata.labels{step}" for owner in ("node", "pod") for step in ("", ".team", "['zone']", ".app")]
    + [f"{owner}.metadata.labels[?'{name}'].orValue('none')" for owner in ("node", "pod") for name in NAMES]
    + ["node.metadata.?labels.team.orValue('none')", "node.?extra.?rack.?row.orValue(7)", "node.?metadata.labels.zone"]
    + ["node.extra", "node.extra.rack", "node.extra.rack.row", "node.extra.rack['row']", "node.extra.shelves[0]"]
    + ["node.extra.shelves", "node.extra.shelves[0].key", "node.metadata.name", "pod.metadata.name", "node", "pod.spec"]
    + ["usage.free.cpu", "usage.requested.pods", "usage.?free[?'gpu'].orValue(0)", "usage.free", "usage.nothing"]
    + ["requests.cpu", "requests.?gpu.orValue(0)", "requests['memory']", "requests", "requests.gpu"]
    + [
        "namespaceObject.metadata.name",
        "namespaceObject.metadata.labels",
        "namespaceObject.metadata.labels.?app.orValue(0)",
    ]
    + ["params.limit", "params.names", "params.nothing", "params.?nothing.orValue(2)", "params['team']"]
    + ["node.metadata.labels[pod.metadata.labels.app]", "node.extra.rack[params.team]", "'none'", "dyn(null)"]
)
OPTIONALS = st.sampled_from(
    [f"{owner}.metadata.labels.?{name}" for owner in ("node", "pod") for name in NAMES]
    + ["node.metadata.?labels.team", "node.metadata.labels[?pod.metadata.name]", "node.?extra.rack.row", "node.?extra"]
    + ["params.?nothing", "params.?limit", "optional.none()", "optional.of(pod.metadata.name)", "node.extra.rack.?row"]
    + ["namespaceObject.metadata.labels.?app", "pod.metadata.?labels.app.or(params.?limit)"]
)
COUNTS = st.sampled_from(
    [f"node.count({{'app': '{app}'}})" for app in "xy"]
    + ["cluster.count({'app': 'x'})", "topology.count('zone', {'app': 'x'})", "topology.count('team', {})"]
    + ["node.count({'app': pod.metadata.labels.app})", "node.count({'app': params.nothing})", "node.count({})"]
    + ["node.countInAllNamespaces({'app': 'x'})", "topology.countInAllNamespaces('zone', {})"]
)


def expressions() -> tuple[st.SearchStrategy[str], st.SearchStrategy[str]]:
    """Return strategies of boolean and of numeric expressions."""
    booleans: st.SearchStrategy[str] = st.deferred(lambda: boolean)
    numbers: st.SearchStrategy[str] = st.deferred(lambda: number)
    operand = READS | numbers
    lists = st.sampled_from(
        ["node.extra.shelves", "params.names", "['team', 'zone']", "node.metadata.labels", "dyn([1])"]
    )
    boolean = st.one_of(
        st.sampled_from(["true", "false", "dyn(1)", "has(node.metadata.labels)", "has(node.extra.rack.row)"]),
        st.sampled_from(NAMES).map("has(node.metadata.labels.{0})".format),
        st.sampled_from(NAMES).map("'{0}' in node.metadata.labels".format),
        st.builds("{} in {}".format, READS, lists),
        st.builds(
            "({} {} {})".format, operand, st.sampled_from(["==", "!=", "<", ">="]), operand.map("dyn({})".format)
        ),
        st.builds("({} && {})".format, booleans, booleans),
        st.builds("({} || {})".format, booleans, booleans),
        st.builds("({} {} {})".format, OPTIONALS, st.sampled_from(["==", "!="]), OPTIONALS),
        booleans.map("!({})".format),
        st.builds("({} ? {} : {})".format, booleans, booleans, booleans),
        st.builds("{}.{}(v, {} == v)".format, lists, st.sampled_from(["exists", "all", "exists_one"]), READS),
        st.builds("node.metadata.labels.exists(k, node.metadata.labels[k] == {})".format, READS),
    )
    number = st.one_of(
        st.sampled_from(["1", "-3", "2.5", "usage.free.cpu", "params.limit", "now.getHours('Europe/Berlin')"]),
        COUNTS,
        READS.map("size({})".format),
        numbers.map("double({})".format),
        numbers.map("(-{})".format),
        st.builds("({} {} {})".format, numbers, st.sampled_from("+-*/%"), numbers.map("dyn({})".format)),
        st.builds("({} ? dyn({}) : dyn({}))".format, booleans, numbers, operand),
        st.builds("size({}.filter(v, v != {}))".format, lists, READS),
        st.builds("{}.map(v, dyn({}))[0]".format, lists, numbers),
    )
    return boolean, number


BOOLEANS, NUMBERS = expressions()
WEIRD = st.sampled_from([None, 0, 1, 1.0, 2.5, True, "", "a", [], ["a"], {}, {"row": None}, {"row": 3}, {"a": "x"}])
LABELS = st.none() | st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["a", "b", "none", ""]))
EXTRAS = st.fixed_dictionaries(
    {},
    optional={"rack": WEIRD, "shelves": WEIRD | st.just([{"key": "team"}, {"key": "zone", "value": "a"}])},
)


@st.composite
def infos(draw: st.DrawFn, names: Sequence[str]) -> list[NodeInfo]:
    found = []
    for name in names:
        metadata: dict[str, Any] = {"name": name}
        if draw(st.booleans()):
            metadata["labels"] = draw(LABELS)
        whole = {"metadata": metadata, "status": {"allocatable": {"cpu": draw(st.sampled_from(["1", "2"]))}}}
        if draw(st.booleans()):
            whole["extra"] = draw(EXTRAS | WEIRD)
        pods = [pod_on(f"{name}-{place}", name, app=app) for place, app in enumerate(draw(st.text("xyz", max_size=3)))]
        found.append(NodeInfo(Node.from_json(whole), pods))
    return found


PODS = st.builds(
    lambda labels, name: {"metadata": {"name": name} | ({} if labels is None else {"labels": labels})},
    LABELS,
    st.sampled_from(["web", "none"]),
)
PARAMS = st.fixed_dictionaries(
    {}, optional={"limit": WEIRD | st.integers(0, 9), "names": WEIRD | st.just(["team", "a"]), "team": st.just("row")}
)
SIZES = st.integers(1, 6).map(lambda size: [f"n{place}" for place in range(size)])


def check(expression: Expression, cycle: Cycle) -> None:
    fast = expression.evaluate(cycle, cycle.table.all_rows()).listed()
    plain = [expression.evaluate_plainly(cycle, row) for row in range(len(cycle.table))]
    assert same(fast, plain), (expression.source, fast, plain)


def compiled(draw: st.DrawFn) -> Expression:
    boolean = draw(st.booleans())
    source = draw(BOOLEANS if boolean else NUMBERS)
    try:
        return Expression(source, Result.BOOLEAN if boolean else Result.NUMBER)
    except ExpressionError:  # types that can't meet are refused at once; that is as good
        return Expression("1 + node.extra.rack.row", Result.NUMBER)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Expression, Cycle]:
    known = draw(SIZES.flatmap(infos))
    snapshot = Snapshot({info.name: info for info in known})
    cycle = Cycle(pod=Pod.from_json(draw(PODS)), snapshot=snapshot, now=NOW, params=draw(PARAMS))
    return compiled(draw), cycle


class TestEvaluate:
    @settings(max_examples=700)
    @given(questions())
    def test_all_nodes_at_once_give_what_each_gives_by_itself(self, question: tuple[Expression, Cycle]) -> None:
        check(*question)

    @settings(max_examples=250)
    @given(questions(), st.data())
    def test_columns_carried_on_to_the_next_snapshot_equal_fresh_ones(
        self, question: tuple[Expression, Cycle], data: st.DataObject
    ) -> None:
        expression, cycle = question
        check(expression, cycle)
        names = data.draw(st.lists(st.sampled_from(["n0", "n1", "n2", "new"]), unique=True))
        changes: dict[str, NodeInfo | None] = {info.name: info for info in data.draw(infos(names))}
        for name in data.draw(st.lists(st.sampled_from(["n0", "n1"]), max_size=1)):
            changes[name] = None
        followed = cycle.snapshot.changed(changes)
        following = Cycle(pod=cycle.pod, snapshot=followed, now=NOW, params=cycle.params)
        fresh = Cycle(pod=cycle.pod, snapshot=Snapshot(followed.nodes), now=NOW, params=cycle.params)
        check(expression, following)
        rows = followed.table.all_rows()
        assert same(expression.evaluate(following, rows).listed(), expression.evaluate(fresh, rows).listed())
        check(expression, cycle)

    @settings(max_examples=150)
    @given(questions(), st.data())
    def test_any_rows_in_any_order_get_their_own_values(
        self, question: tuple[Expression, Cycle], data: st.DataObject
    ) -> None:
        expression, cycle = question
        rows = data.draw(st.lists(st.integers(0, len(cycle.table) - 1)))
        plain = [expression.evaluate_plainly(cycle, row) for row in rows]
        answers = expression.evaluate(cycle, np.array(rows, dtype=np.intp))
        assert same(answers.listed(), plain)

    def test_nodes_that_look_the_same_share_one_value(self) -> None:
        cycle = cycle_of([node(f"n{place}", {"team": "ab"[place % 2]}) for place in range(50)])
        answers = Expression("node.metadata.labels.team == 'a'", Result.BOOLEAN).evaluate(cycle, cycle.table.all_rows())
        assert len(answers.values) == 2
        assert answers.listed() == [True, False] * 25

    def test_an_expression_that_reads_no_node_is_evaluated_once(self) -> None:
        cycle = cycle_of([node("n1"), node("n2")])
        answers = Expression("size(pod.metadata.name)", Result.NUMBER).evaluate(cycle, cycle.table.all_rows())
        assert answers.values == [3]
        assert answers.listed() == [3, 3]

    def test_no_rows_give_no_values(self) -> None:
        rows = np.empty(0, dtype=np.intp)
        answers = Expression("node.count({'app': 'x'})", Result.NUMBER).evaluate(cycle_of([node("n1")]), rows)
        assert answers.listed() == []

    @pytest.mark.parametrize(
        ("left", "right"),
        [
            pytest.param(1, 1.0, id="a whole number and a fraction"),
            pytest.param(1, True, id="a number and true"),
            pytest.param(1, "1", id="a number and a text"),
            pytest.param([1], [1.0], id="lists of them"),
            pytest.param(None, {}, id="null and an empty object"),
            pytest.param({"a": None}, {}, id="a null member and none"),
        ],
    )
    def test_values_that_only_look_alike_are_told_apart(self, left: object, right: object) -> None:
        cycle = cycle_of([node("n1", x=left), node("n2", x=right), node("n3"), node("n4", x=left)])
        kinds = ["int", "double", "bool", "string", "list", "map", "null_type"]
        source = " : ".join(f"type(node.spec.x) == {kind} ? {place}" for place, kind in enumerate(kinds)) + " : 99"
        evaluate(source, cycle)
        evaluate("size(node.spec.x)", cycle)
        evaluate("type(node.spec.x[0]) == int", cycle, Result.BOOLEAN)

    def test_floats_that_json_can_not_write_are_told_apart(self) -> None:
        cycle = cycle_of(
            [node(f"n{place}", {"x": text}) for place, text in enumerate(["inf", "-inf", "nan", "0", "-0"])]
        )
        assert evaluate("double(node.metadata.labels.x) > pod.metadata.?x.orValue(0.5)", cycle, Result.BOOLEAN) == [
            True, False, False, False, False,
        ]  # fmt: skip
        evaluate("double(node.metadata.labels.x)", cycle)
        evaluate("1.0 / double(node.metadata.labels.x)", cycle)
        evaluate("[double(node.metadata.labels.x)][size(pod.metadata.name) - 3]", cycle)

    @pytest.mark.parametrize(
        "source",
        [
            pytest.param("{1: node.metadata.name, 2: ''}[size(pod.metadata.name) - 2] == 'n1'", id="by number"),
            pytest.param("[{1: node.metadata.name}][size(pod.metadata.name) - 3][1] == 'n1'", id="in a list"),
            pytest.param(
                "{true: node.metadata.name, false: ''}[has(pod.metadata.name)] == 'n1'", id="by true or false"
            ),
            pytest.param(
                "{1u: node.metadata.name}[uint(size(pod.metadata.name) - 2)] == 'n1'", id="by unsigned number"
            ),
        ],
    )
    def test_a_map_of_the_node_has_keys_of_any_type(self, source: str) -> None:
        assert evaluate(source, cycle_of([node("n1"), node("n2")]), Result.BOOLEAN) == [True, False]

    @pytest.mark.parametrize(
        ("source", "values"),
        [
            pytest.param(
                "[node.spec.x].map(text, timestamp(text)).exists(time, time > timestamp(pod.metadata.since))",
                ["2026-01-01T00:00:00.000000002Z", "2026-01-01T00:00:00.000000001Z"],
                id="times in a list",
            ),
            pytest.param(
                "{'at': timestamp(node.spec.x)}[pod.metadata.key] > timestamp(pod.metadata.since)",
                ["2026-01-01T00:00:00.000000002Z", "2026-01-01T00:00:00.000000001Z"],
                id="a time in a map",
            ),
            pytest.param(
                "dyn(duration(node.spec.x)) > dyn(duration(pod.metadata.limit))", ["2h", "1h"], id="a length of time"
            ),
            pytest.param(
                "[uint(node.spec.x)][size(pod.metadata.name) - 3] > 18446744073709551614u",
                ["18446744073709551615", "1"],
                id="a number without sign in a list",
            ),
            pytest.param("[type(node.spec.x)][size(pod.metadata.name) - 3] == int", [1, "1"], id="a type in a list"),
            pytest.param("[bytes(node.spec.x)] == [bytes(pod.metadata.key)]", ["at", "to"], id="bytes"),
            pytest.param("node.spec.x > pod.metadata.size", [2**63, 1], id="a number beyond 64 bits with a sign"),
            pytest.param(
                "node.spec.?x in ['m'].map(each, optional.of(each + pod.metadata.key))",
                ["mat", "at"],
                id="optionals that a loop makes",
            ),
            pytest.param(
                "[dyn(node.spec.?x)] == [dyn(pod.metadata.?key)]", ["at", "to"], id="an optional of no type in a list"
            ),
            pytest.param(
                "[node.spec.?x] + [optional.of(1)] == [pod.metadata.?key, optional.of(dyn(1))]",
                ["at", "to"],
                id="optionals in two lists",
            ),
        ],
    )
    def test_what_python_has_no_like_for_meets_the_pod_all_the_same(self, source: str, values: list[object]) -> None:
        cycle = cycle_of(
            [node(f"n{place}", x=value) for place, value in enumerate(values)],
            pod={"metadata": {"name": "web", "since": "2026-01-01T00:00:00.000000001Z", "limit": "90m", "key": "at", "size": 3}},
        )  # fmt: skip
        assert evaluate(source, cycle, Result.BOOLEAN) == [True, False]

    def test_a_value_may_be_given_the_name_of_the_loop_variable_that_it_comes_from(self) -> None:
        kept = "pod.spec.containers.all(c, c.?image.optMap(c, c.startsWith(node.metadata.name)).orValue(true))"
        pod = {"metadata": {"name": "web"}, "spec": {"containers": [{"image": "own/web"}, {"image": "own/log"}, {}]}}
        cycle = cycle_of([node("own"), node("other")], pod=pod)
        assert evaluate(kept, cycle, Result.BOOLEAN) == [True, False]

    def test_an_optional_that_can_not_be_taken_out_is_a_fault(self) -> None:
        hidden = "node.spec.?x.optMap(found, [optional.of(found)]).orValue([]) == [pod.metadata.?name]"
        cycle = cycle_of([node("n1", x="web")])
        (found,) = Expression(hidden, Result.BOOLEAN).evaluate(cycle, cycle.table.all_rows()).listed()
        assert isinstance(found, EvaluationFault)
        assert found.message.startswith("has an optional value inside a list")

    def test_numbers_without_sign_do_not_become_others_on_the_way(self) -> None:
        values = evaluate("dyn(uint(node.spec.x)) + pod.metadata.size", cycle_of([node("n1", x=1)], pod=SIZED))
        assert isinstance(values[0], EvaluationFault)

    def test_a_member_is_missing_but_null_is_there(self) -> None:
        cycle = cycle_of([node("n1", x=None), node("n2"), node("n3", x={"y": None}), node("n4", x="text")])
        assert evaluate("has(node.spec.x)", cycle, Result.BOOLEAN) == [True, False, True, True]
        assert evaluate("node.spec.?x.hasValue() ? 1 : 0", cycle) == [1, 0, 1, 1]

    def test_two_paths_through_the_same_object_meet_in_it(self) -> None:
        cycle = cycle_of([node("n1", rack={"row": 1, "slot": 2}), node("n2", rack={"row": 1}), node("n3", rack=[1])])
        values = evaluate("node.spec.rack.row + node.spec.rack.slot", cycle)
        assert values[0] == 3
        assert all(isinstance(value, EvaluationFault) for value in values[1:])
        assert evaluate("'slot' in node.spec.rack", cycle, Result.BOOLEAN) == [True, False, False]

    def test_many_columns_of_many_values_are_grouped_without_overflow(self) -> None:
        rng = np.random.default_rng(1)
        size = 300
        columns = [rng.integers(0, 1000, size) for _ in range(5)]
        groups = _group([(column, 2_000_000) for column in columns], size)  # 2e6 ** 5: far beyond 64 bits
        looks = list(zip(*(column.tolist() for column in columns), strict=True))
        assert [looks[position] for position in groups.first[groups.index].tolist()] == looks
        assert len(groups.first) == len(set(looks))

    def test_time_zones_change_with_the_season(self) -> None:
        assert value_of("now.getHours('Europe/Berlin')") == 3
        assert value_of("now.getHours()") == 1

    @pytest.mark.parametrize("name", ["{}", "file:{}", "file://{}", "../../../../../../../../..{}"])
    def test_the_name_of_a_zone_leads_to_no_other_file(self, tmp_path: Path, name: str) -> None:
        """CEL opens the file that a zone is named for; what a pipe is asked for never comes."""
        zone = tmp_path / "Berlin"
        found = (Path(place) / "Europe" / "Berlin" for place in TZPATH)
        shutil.copy(next(filter(Path.exists, found)), zone)
        for source in (f"'{name.format(zone)}'", f"'{name.format(zone)}'.reverse().reverse()"):
            made = value_of(f"now.getHours({source})")
            assert isinstance(made, EvaluationFault)
            assert "no name of a time zone" in made.message

    @pytest.mark.parametrize("name", ["Europe/Nowhere", "europe/berlin", "Europe", "posixrules", "UTC-1", "A/B/C/D"])
    def test_a_zone_that_is_not_there_is_not_looked_for(self, name: str) -> None:
        """CEL keeps each name that it is asked for, and looks for its file: there are as many names as labels have values."""
        made = value_of(f"now.getHours('{name}')")
        assert isinstance(made, EvaluationFault)
        assert "no name of a time zone" in made.message

    @pytest.mark.parametrize("zone", ["''", "'UTC'", "'+00:00'", "'Etc/GMT+0'", "dyn('UTC')", "[{'z': 'UTC'}][0].z"])
    def test_any_zone_may_be_worked_out(self, zone: str) -> None:
        assert value_of(f"now.getHours({zone}) + [3].map(h, now.getHours({zone}))[0]") == 2

    def test_answers_list_the_value_of_each_row(self) -> None:
        assert Answers([1, 2], np.array([1, 0, 1])).listed() == [2, 1, 2]


class TestFaults:
    @pytest.mark.parametrize(
        "source",
        [
            pytest.param("true || node.count({'app': pod.nothing}) > 0", id="or, the fault on the right"),
            pytest.param("node.count({'app': pod.nothing}) > 0 || true", id="or, the fault on the left"),
            pytest.param("!(false && node.count({'app': pod.nothing}) > 0)", id="and, the fault on the right"),
            pytest.param("!(node.count({'app': pod.nothing}) > 0 && false)", id="and, the fault on the left"),
            pytest.param("node.spec.nothing == 1 || true", id="a field that isn't there"),
            pytest.param("1 / 0 == 1 || true", id="a division by zero"),
            pytest.param("true ? true : node.count({'app': pod.nothing}) > 0", id="the branch not taken"),
        ],
    )
    def test_a_fault_that_does_not_decide_is_passed_by(self, source: str) -> None:
        assert value_of(source, Result.BOOLEAN) is True

    @pytest.mark.parametrize(
        "source",
        [
            pytest.param("false || node.count({'app': pod.nothing}) > 0", id="or"),
            pytest.param("true && node.count({'app': pod.nothing}) > 0", id="and"),
            pytest.param("node.spec.nothing == 1", id="a field that isn't there"),
            pytest.param("cluster.count({'app': pod.metadata}) > 0", id="labels that aren't texts"),
            pytest.param(
                "cluster.count(params) > 0 || topology.count(params.key, {}) > 0", id="a key that isn't there"
            ),
        ],
    )
    def test_a_fault_that_decides_is_the_value(self, source: str) -> None:
        assert isinstance(value_of(source, Result.BOOLEAN, params={"x": 1}), EvaluationFault)

    def test_the_fault_of_a_count_names_what_was_missing_in_its_arguments(self) -> None:
        fault = value_of("node.count({'app': pod.metadata.labels.nothing}) + 1")
        assert isinstance(fault, EvaluationFault)
        assert "nothing" in fault.message

    def test_one_node_that_fails_leaves_the_others_alone(self) -> None:
        values = evaluate("node.metadata.labels.rank == '1' ? 1 : 0", cycle_of([node("n1", {"rank": "1"}), node("n2")]))
        assert values[0] == 1
        assert isinstance(values[1], EvaluationFault)

    def test_a_runaway_comprehension_ends_as_a_fault(self) -> None:
        fault = value_of(RUNAWAY, Result.BOOLEAN)
        assert isinstance(fault, EvaluationFault)
        assert "budget" in fault.message

    @pytest.mark.parametrize(
        ("source", "result", "found"),
        [
            pytest.param("dyn('x')", Result.BOOLEAN, "str", id="a text for a boolean"),
            pytest.param("dyn(1)", Result.BOOLEAN, "int", id="a number for a boolean"),
            pytest.param("dyn(true)", Result.NUMBER, "bool", id="a boolean for a number"),
            pytest.param("dyn([1])", Result.NUMBER, "list", id="a list for a number"),
            pytest.param("dyn(null)", Result.NUMBER, "NoneType", id="null for a number"),
        ],
    )
    def test_a_dynamic_value_of_another_type_is_a_fault_that_names_it(
        self, source: str, result: Result, found: str
    ) -> None:
        assert value_of(source, result) == EvaluationFault(f"gave {found}, but {result.value} is needed")

    @pytest.mark.parametrize(
        "source", ["1", "1u", "1.5", "dyn(2)", "size('abc')", "google.protobuf.Int64Value{value: 3} + 1"]
    )
    def test_whole_numbers_and_fractions_are_numbers(self, source: str) -> None:
        assert isinstance(value_of(source), int | float)


class TestCount:
    NODES = (node("n1", {"zone": "a"}), node("n2", {"zone": "a"}), node("n3", {"zone": "b"}), node("n4"))
    PODS = (
        pod_on("p1", "n1", app="x", tier="web"),
        pod_on("p2", "n1", app="x"),
        pod_on("p3", "n3", app="x"),
        pod_on("p4", "n4", app="x"),
        pod_on("p5", "n2", app="y"),
        pod_on("p6", "n2", app="x", namespace="other"),
        pod_on("p7", "n2", app="x", phase="Succeeded"),
        pod_on("p8", "gone", app="x"),
    )

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            pytest.param("node.count({'app': 'x'})", [2, 0, 1, 1], id="the node's own Pods"),
            pytest.param("node.count({'app': 'x', 'tier': 'web'})", [1, 0, 0, 0], id="all labels must be there"),
            pytest.param("node.count({})", [2, 1, 1, 1], id="no labels take every Pod of the namespace"),
            pytest.param("cluster.count({'app': 'x'})", [4, 4, 4, 4], id="all nodes"),
            pytest.param("topology.count('zone', {'app': 'x'})", [2, 2, 1, 0], id="a node without the label has none"),
            pytest.param("topology.count('nothing', {'app': 'x'})", [0, 0, 0, 0], id="a label that no node has"),
            pytest.param("node.count({'app': pod.metadata.labels.app})", [2, 0, 1, 1], id="labels from the Pod"),
            pytest.param("node.count(params.labels)", [0, 1, 0, 0], id="labels from params"),
            pytest.param(
                "node.count({'app': now > timestamp('2020-01-01T00:00:00Z') ? 'x' : ''})", [2, 0, 1, 1], id="now"
            ),
            pytest.param("node.count({'app': ['y', 'x'].filter(v, v == 'x')[0]})", [2, 0, 1, 1], id="a loop inside"),
            pytest.param("node.count({'app': 'x'}) * 10 + node.count({'app': 'y'})", [20, 1, 10, 10], id="two counts"),
            pytest.param("[5].map(_count0, node.count({'app': 'x'}))[0]", [2, 0, 1, 1], id="beside a loop variable"),
            pytest.param("[1, 2].map(v, v * node.count({'app': 'x'}))[1]", [4, 0, 2, 2], id="inside a loop"),
            pytest.param("-node.count({'app': 'x'})", [-2, 0, -1, -1], id="negated"),
        ],
    )
    def test_counts_live_pods_of_the_namespace(self, source: str, expected: list[int]) -> None:
        assert evaluate(source, cycle_of(self.NODES, self.PODS, params={"labels": {"app": "y"}})) == expected

    @pytest.mark.parametrize(
        ("source", "expected"),
        [
            pytest.param("node.countInAllNamespaces({'app': 'x'})", [2, 1, 1, 1], id="the node's own Pods"),
            pytest.param("node.countInAllNamespaces({})", [2, 2, 1, 1], id="no labels take every Pod"),
            pytest.param("cluster.countInAllNamespaces({'app': 'x'})", [5, 5, 5, 5], id="all nodes"),
            pytest.param("topology.countInAllNamespaces('zone', {'app': 'x'})", [3, 3, 1, 0], id="by a label of nodes"),
            pytest.param(
                "cluster.countInAllNamespaces({'app': 'x'}) - cluster.count({'app': 'x'})", [1] * 4, id="beside count"
            ),
        ],
    )
    def test_counts_live_pods_of_all_namespaces(self, source: str, expected: list[int]) -> None:
        assert evaluate(source, cycle_of(self.NODES, self.PODS)) == expected

    def test_an_expression_knows_whether_it_counts_pods(self) -> None:
        assert Expression("node.count({}) > 0", Result.BOOLEAN).counts_pods
        assert Expression("node.countInAllNamespaces({}) > 0", Result.BOOLEAN).counts_pods
        assert not Expression("usage.free.pods > 0", Result.BOOLEAN).counts_pods

    @pytest.mark.parametrize(
        ("source", "message", "column"),
        [
            pytest.param(
                "count({'a': 'b'})",
                "undeclared reference to 'count'; it is called on a value, as in node.count(…)",
                1,
                id="without a target",
            ),
            pytest.param("pod.count({'a': 'b'})", "count belongs to node, topology or cluster", 10, id="of the Pod"),
            pytest.param("node.metadata.count({'a': 'b'})", "count belongs to node", 20, id="of a part of the node"),
            pytest.param("topology.count({'a': 'b'})", "write topology.count('key', {labels})", 15, id="no key"),
            pytest.param("node.count('zone', {'a': 'b'})", "write node.count({labels})", 11, id="a key too many"),
            pytest.param("cluster.count('zone', {})", "write cluster.count({labels})", 14, id="a key for the cluster"),
            pytest.param("node.count({'a': node.metadata.name})", "not node", 18, id="an argument of the node"),
            pytest.param("node.count({'a': string(usage.free.cpu)})", "not usage", 25, id="an argument of the usage"),
            pytest.param("['b'].map(v, node.count({'a': v}))[0]", "not v", 31, id="an argument of the loop"),
            pytest.param(
                "node.count({'a': string(cluster.count({}))})",
                "not cluster",
                25,
                id="a count in the arguments of count",
            ),
            pytest.param(
                "node.count({'a': string(pod.count({}))})", "count can't stand inside", 34, id="any count inside"
            ),
            pytest.param(
                "node.countInAllNamespaces({'a': string(pod.count({}))})",
                "count can't stand inside the arguments of countInAllNamespaces",
                49,
                id="a count inside another one",
            ),
            pytest.param(
                "topology.countInAllNamespaces({})",
                "write topology.countInAllNamespaces('key', {labels})",
                30,
                id="no key for all namespaces",
            ),
            pytest.param("1 + topology", "topology has no value of its own", 5, id="topology by itself"),
            pytest.param("cluster.size", "cluster has no value of its own", 1, id="a member of the cluster"),
        ],
    )
    def test_is_refused_with_the_form_to_write(self, source: str, message: str, column: int) -> None:
        with pytest.raises(ExpressionError, match=r"\w") as caught:
            Expression(source, Result.NUMBER)
        assert message in caught.value.message
        assert (caught.value.line, caught.value.column) == (1, column)


class TestRefusal:
    @pytest.mark.parametrize(
        ("source", "line", "column"),
        [
            pytest.param("1 +", 1, 4, id="cut off"),
            pytest.param("true &&\n  nothing", 2, 3, id="an unknown name on the second line"),
            pytest.param("true\n&& 'a' + 1 == 'b'", 2, 8, id="types that can't be added"),
            pytest.param("nothing('1') == 1", 1, 1, id="an unknown function"),
            pytest.param("quantity('1') == 1", 1, 15, id="a quantity and a number"),
            pytest.param(DEEP, 1, len("[1].all(a, [1].all(b, [1].all") + 1, id="loops three deep"),
            pytest.param("pod.metadata.name.matches('(')", 1, 26, id="a pattern that can't compile"),
            pytest.param("true ||\n[1].exists(node, true)", 2, 1 + len("[1].exists"), id="a name of Berth's"),
        ],
    )
    def test_carries_the_line_and_column_of_the_fault(self, source: str, line: int, column: int) -> None:
        with pytest.raises(ExpressionError, match=r"\w") as caught:
            Expression(source, Result.BOOLEAN)
        assert (caught.value.line, caught.value.column) == (line, column)
        assert "container" not in caught.value.message

    @pytest.mark.parametrize(
        ("source", "hint"),
        [
            ("pod.metadata.name.startswith('x')", "'startswith'; did you mean startsWith()?"),
            ("pod.metadata.name.startsWit ('x')", "'startsWit'; did you mean startsWith()?"),
            ("node.countt({'a': 'b'}) > 1", "'countt'; did you mean count()?"),
            ("quantty('1') == 1", "'quantty'; did you mean quantity()?"),
            ("nothing(1)", "'nothing'; no function has this name"),
            (
                "contains(pod.metadata.name, 'x')",
                "'contains'; it takes other arguments, or another value before its dot",
            ),
            ("pod.metadata.labels.exists('x')", "'exists'; it takes other arguments, or another value before its dot"),
            ("pot.metadata.name == '('", "'pot'; did you mean pod?"),
        ],
    )
    def test_names_what_a_misspelt_name_may_have_meant(self, source: str, hint: str) -> None:
        with pytest.raises(ExpressionError, match="^" + re.escape(f"undeclared reference to {hint}") + "$"):
            Expression(source, Result.BOOLEAN)

    @pytest.mark.parametrize("name", ["pod", "node", "usage", "params", "now", "topology", "cluster"])
    @pytest.mark.parametrize(
        "form", ["[1].exists({0}, true)", "[1].map({0}, 1) == [1]", "optional.of(1).optMap({0}, 1).hasValue()"]
    )
    def test_a_loop_variable_may_not_hide_a_name_of_berths(self, form: str, name: str) -> None:
        with pytest.raises(ExpressionError, match=f"{name} is a name of Berth's"):
            Expression(form.format(name), Result.BOOLEAN)

    @pytest.mark.parametrize(
        "form",
        [
            "[1, 2].exists({0}, {0} == 2)",
            "[1].map({0}, [2].map(b, {0} + b)[0]) == [3]",
            "[1].all({0}, [{0} + 1].all({0}, {0} == 2))",
            "optional.of(1).optMap({0}, {0} + 1).orValue(0) == 2",
            "['a'].exists({0}, has(pod.metadata.name) && pod.metadata.name.startsWith({0}) || {0} == node.metadata.name)",
            # The name that came since reads the Pod's requests beside it, and in what the loop goes over.
            "requests.cpu == 0 && [requests.cpu].exists({0}, {0} == 0)",
            "optional.of(requests.cpu).optMap({0}, {0}).orValue(1) == 0",
            "pod.spec.?containers.orValue([]).all({0}, {0}.resources.requests.cpu == '1')",
        ],
    )
    @pytest.mark.parametrize("name", ["requests", "namespaceObject"])
    def test_a_loop_variable_older_than_the_name_goes_on_and_is_refused_when_it_is_written(
        self, form: str, name: str
    ) -> None:
        cycle = cycle_of([node("a"), node("b")])
        former = Expression(form.format(name), Result.BOOLEAN)
        renamed = Expression(form.format("each"), Result.BOOLEAN)
        rows = cycle.table.all_rows()
        assert former.evaluate(cycle, rows).listed() == renamed.evaluate(cycle, rows).listed() != [False, False]
        assert former.reads == renamed.reads
        assert [former.evaluate_plainly(cycle, row) for row in (0, 1)] == renamed.evaluate(cycle, rows).listed()
        renamed.check_fields()
        with pytest.raises(ExpressionError, match=f"{name} is a name of Berth's; give the loop variable another one"):
            former.check_fields()

    @pytest.mark.parametrize("source", ["", "  \n"])
    def test_an_empty_one_is_refused(self, source: str) -> None:
        with pytest.raises(ExpressionError, match="an expression is needed"):
            Expression(source, Result.BOOLEAN)

    def test_the_length_limit_is_told_with_what_to_do(self) -> None:
        Expression("1" + " " * (MAX_LENGTH - 1), Result.NUMBER)
        with pytest.raises(ExpressionError, match=r"4097 characters; at most 4096 are allowed: split"):
            Expression("1" + " " * MAX_LENGTH, Result.NUMBER)

    @pytest.mark.parametrize(
        "source",
        [
            pytest.param("+".join(["1"] * 100), id="a long sum"),
            pytest.param("(" * 500 + "1" + ")" * 500, id="brackets"),
            pytest.param("[1].map(v, " * 60 + "1" + ")" * 60 + ".size()", id="loops"),
            pytest.param("pod" + ".a" * 500, id="a long path"),
        ],
    )
    def test_deep_nesting_is_refused_in_words(self, source: str) -> None:
        with pytest.raises(ExpressionError, match="nested more than 32 levels deep"):
            Expression(source, Result.NUMBER)

    @pytest.mark.parametrize(
        ("source", "result", "message"),
        [
            pytest.param("1", Result.BOOLEAN, "gives int, but a boolean is needed", id="a number for a boolean"),
            pytest.param("'a'", Result.NUMBER, "gives string, but a number is needed", id="a text for a number"),
            pytest.param("true", Result.NUMBER, "gives bool, but a number is needed", id="a boolean for a number"),
            pytest.param("now", Result.NUMBER, "gives timestamp", id="a time for a number"),
            pytest.param("{null: 1}", Result.NUMBER, "gives a map whose keys can't be", id="a map of no such keys"),
            pytest.param("[{1.5: 1}]", Result.BOOLEAN, "gives a map whose keys can't be", id="a list of such maps"),
        ],
    )
    def test_a_wrong_type_is_refused_before_anything_runs(self, source: str, result: Result, message: str) -> None:
        with pytest.raises(ExpressionError, match=message) as caught:
            Expression(source, result)
        assert (caught.value.line, caught.value.column) == (1, 1)

    @pytest.mark.parametrize(
        "source",
        [
            "pod.metadata.?labels.team == 'web'",
            "!pod.spec.?hostNetwork",
            "pod.spec.?tolerations.size() > 0",
        ],
    )
    def test_an_optional_that_is_used_as_a_value_is_refused_with_what_to_do(self, source: str) -> None:
        with pytest.raises(ExpressionError, match=r"may be missing; say what holds then, with orValue\(…\)"):
            Expression(source, Result.BOOLEAN)

    @pytest.mark.parametrize(
        ("source", "message", "column"),
        [
            ("now - timestamp(0) > duration('1d')", "'1d' is not a duration; write it like 90s, 20m or 1h30m", 30),
            ("now > timestamp('2026-05-01')", "'2026-05-01' is not a time; write it like 2026-05-01T20:00:00Z", 16),
            ("quantity('16GB').isInteger()", "'16GB' is not a quantity; write it like 250m, 2, 1.5Gi or 2e3", 9),
            (
                "now.getHours('Europe/Berln') < 6",
                "'Europe/Berln' is not a time zone; write it like Europe/Berlin, UTC or +05:30",
                13,
            ),
            (
                "['a'].exists(a, duration('x') < duration('1h'))",
                "'x' is not a duration; write it like 90s, 20m or 1h30m",
                25,
            ),
        ],
    )
    def test_a_constant_that_cant_be_read_is_refused_before_anything_runs(
        self, source: str, message: str, column: int
    ) -> None:
        with pytest.raises(ExpressionError) as caught:
            Expression(source, Result.BOOLEAN).check_fields()
        assert (caught.value.message, caught.value.line, caught.value.column) == (message, 1, column)

    @pytest.mark.parametrize(
        "source",
        [
            "now - timestamp('2026-05-01T22:00:00+02:00') > duration('-1h30m')",
            "now.getHours('+05:30') < 6 && now.getHours('UTC') < now.getHours()",
            "quantity('1.5Gi') == quantity(node.status.allocatable.memory)",
            "duration(params.time) > duration('1s') && now.getMinutes(pod.metadata.labels.zone) == 0",
        ],
    )
    def test_constants_that_can_be_read_pass_and_others_are_seen_at_evaluation(self, source: str) -> None:
        Expression(source, Result.BOOLEAN).check_fields()

    @settings(max_examples=300)
    @given(st.text(st.characters(exclude_categories=["Cs"])) | BOOLEANS.map(lambda source: source[::2]))
    def test_any_text_compiles_or_is_refused(self, source: str) -> None:
        with contextlib.suppress(ExpressionError):
            Expression(source, Result.BOOLEAN)


def as_fault(value: Value) -> Value | str:
    """The texts of faults may differ; that there is one may not."""
    return "fault" if isinstance(value, EvaluationFault) else value


class TestParts:
    """What is worked out once a Pod and once a node version."""

    def test_a_pattern_that_compiles_is_taken(self) -> None:
        assert value_of("node.metadata.name.matches('^n[0-9]+$')", Result.BOOLEAN) is True

    @pytest.mark.parametrize(
        "source",
        [
            "node.metadata.labels[?'a'].orValue(pod.metadata.name) == 'x'",
            "node.metadata.?labels.a.orValue(pod.metadata.name) == 'p'",
            "(pod.metadata.name == 'p' ? node.metadata.labels[?'a'] : node.metadata.labels[?'b']).orValue('') == 'x'",
            "[node.metadata.labels[?'a']][0].orValue(pod.metadata.name) == 'x'",
            "{'k': node.metadata.labels[?'a']}.k.orValue(pod.metadata.name) == 'x'",
            "node.metadata.labels[?'a'].or(optional.of(pod.metadata.name)).value() == 'x'",
            "node.metadata.labels[?'a'].optMap(v, string(v) + pod.metadata.name).orValue('') == 'xp'",
            "uint(size(node.metadata.name)) == uint(size(pod.metadata.name))",
            "timestamp('2026-01-01T00:00:00.123456789Z') < now || node.metadata.name == pod.metadata.name",
            "type(node.metadata.name) == type(pod.metadata.name)",
        ],
    )
    def test_what_cannot_leave_cel_stays_inside(self, source: str) -> None:
        cycle = cycle_of([node("n1", {"a": "x"}), node("n2", {"b": "x"}), node("n3"), node("p", {})])
        expression = Expression(source, Result.BOOLEAN)
        rows = cycle.table.all_rows()
        plain = [expression.evaluate_plainly(cycle, row) for row in rows.tolist()]
        assert [as_fault(value) for value in expression.evaluate(cycle, rows).listed()] == list(map(as_fault, plain))

    def test_a_part_forgets_when_it_remembers_too_much(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("policies.engine.cel.expressions._MAX_REMEMBERED", 2)
        cycle = cycle_of([node(f"node-{'x' * place}") for place in range(7)])
        answers = Expression("size(node.metadata.name)", Result.NUMBER).evaluate(cycle, cycle.table.all_rows())
        assert answers.listed() == [5 + place for place in range(7)]

    def test_a_score_takes_no_notice_of_being_asked_for_its_faults(self) -> None:
        cycle = cycle_of([node("n1"), node("n22")])
        score = ExpressionScore(ScoreRule(name="s", expression="size(node.metadata.name)"))
        raw, faults = score.score_with_faults(cycle, cycle.table.all_rows())
        assert score.score(cycle, cycle.table.all_rows()).tolist() == raw.tolist() == [0, 100]
        assert faults == {}


def test_an_expression_that_protobuf_cannot_read_back_is_refused_as_too_deep() -> None:
    """Macros add levels to the tree that the source doesn't show."""
    source = "true"
    for depth in range(20):
        source = f"[1].exists(v{depth}, {source})" if depth < 2 else f"(has(pod.metadata.name) ? {source} : false)"
        source = f"({source} || [{source}][0])" if depth in {0, 5} else source
    refused = None
    for extra in range(40):
        try:
            Expression("!(" * extra + source + ")" * extra, Result.BOOLEAN)
        except ExpressionError as error:
            refused = error
            break
    assert refused is not None
    assert "deep" in refused.message


def test_a_tree_deeper_than_protobuf_reads_is_an_error_of_ours() -> None:
    checked = checked_pb2.CheckedExpr()
    expr = checked.expr
    for _ in range(200):
        expr = expr.call_expr.args.add()
    with pytest.raises(ExpressionError, match="nested too deep"):
        unpack(pack(checked))
