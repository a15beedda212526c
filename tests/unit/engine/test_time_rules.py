"""When rules over `now` can next change: never later than they do, and not early for the usual forms."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cel.expr import checked_pb2, syntax_pb2
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies.engine.cel.clock import read_clock
from policies.engine.cel.cost import too_costly
from policies.engine.cel.expressions import Expression, Result
from policies.engine.cel.language import BOOLEAN_TYPES, compile_checked
from policies.engine.cel.syntax import pack, unpack
from policies.engine.decision import CompiledRuleSet, decide
from policies.engine.errors import ExpressionError
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.objects.table import Rows
from policies.engine.rule import Cycle
from policies.engine.time_rules import next_change, time_filters
from policies.engine.validation import read_rule_set
from tests.builders import make_node, make_pod, make_rule_set

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
MICROSECOND = timedelta(microseconds=1)
TEXT = "2026-05-01T20:00:00Z"


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def node(name: str, **annotations: str) -> dict[str, Any]:
    made = make_node(name)
    made["metadata"]["annotations"] = annotations
    return made


def rules(*expressions: str, params: dict[str, Any] | None = None, **rule: Any) -> CompiledRuleSet:
    filters = [
        {"name": f"r{place}", "expression": expression, "reason": "no", **rule}
        for place, expression in enumerate(expressions)
    ]
    return CompiledRuleSet(make_rule_set(filters=filters, params=params or {}))


def cycle_of(
    rule_set: CompiledRuleSet, now: datetime, nodes: Sequence[dict[str, Any]] = (), pod: dict[str, Any] | None = None
) -> Cycle:
    snapshot = Snapshot.of(map(Node.from_json, nodes or [node("n1")]))
    return Cycle(pod=Pod.from_json(pod or make_pod()), snapshot=snapshot, now=now, params=rule_set.params)


def change(
    expression: str,
    now: str = "2026-03-29T00:10:00Z",
    *,
    params: dict[str, Any] | None = None,
    nodes: Sequence[dict[str, Any]] = (),
    pod: dict[str, Any] | None = None,
) -> str | None:
    rule_set = rules(expression, params=params)
    cycle = cycle_of(rule_set, moment(now), nodes, pod)
    found = next_change(rule_set, cycle, cycle.table.all_rows())
    return None if found is None else found.isoformat().replace("+00:00", "Z")


# Generated rules. Times lie near the moments that `now` is drawn from, so that they are met.

NOWS = st.timedeltas(timedelta(0), timedelta(days=2)).map(lambda passed: moment("2026-03-28T00:00:00Z") + passed) | (
    st.sampled_from(
        ["2026-03-29T01:00:00Z", "2026-03-28T23:59:59.999999Z", "2026-10-25T00:59:59Z", "1960-01-01T00:00:00Z"]
    )
).map(moment)
TIMES = [
    "2026-03-29T01:00:00Z",
    "2026-03-29T01:00:00.0000005Z",
    "2026-03-28T12:00:00.123456+02:00",
    "1734-06-01T00:00:00Z",
]
LENGTHS = ["1h", "-90m", "0.25s", "1ns", "36h", "3h0.0000007s", "2562047h"]
ZONES = ["", "UTC", "Europe/Berlin", "Asia/Kathmandu", "+01:07", "-05:30", "Nowhere/Else", "America/St_Johns", "9:15"]
TEXTS = st.sampled_from(
    [
        "pod.metadata.annotations.time",
        "params.times[0]",
        "node.metadata.annotations.time",
        "node.metadata.?annotations[?'time'].orValue(params.times[0])",
    ]
) | st.sampled_from(TIMES).map("'{}'".format)
PARTS = [
    "Hours",
    "Minutes",
    "Seconds",
    "DayOfWeek",
    "Date",
    "DayOfMonth",
    "DayOfYear",
    "Month",
    "FullYear",
    "Milliseconds",
]


@st.composite
def booleans(draw: st.DrawFn, depth: int = 2, time: str = "") -> str:
    """Draw a rule; inside a loop `time` is the variable that stands for a text of a time."""
    texts = TEXTS if not time else st.just(time) | TEXTS
    length = st.sampled_from(LENGTHS).map("duration('{}')".format) | st.just("duration(pod.metadata.annotations.takes)")
    fixed = texts.map("timestamp({})".format)
    moved = st.sampled_from(["now"]) | st.builds("(now {} {})".format, st.sampled_from("+-"), length)
    moved = (
        moved
        | st.builds("({} + (now - {}))".format, fixed, fixed)
        | st.builds("({} - (now - {}))".format, fixed, fixed)
    )
    span = st.builds("({} - {})".format, moved, fixed) | st.builds("({} - {})".format, fixed, moved)
    span = span | st.builds("({} {} {})".format, span, st.sampled_from("+-"), length)
    order = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    zone = st.sampled_from([f"'{zone}'" for zone in ZONES] + ["params.zone", "pod.metadata.annotations.zone", ""])
    forms = [
        st.builds("{} {} {}".format, moved, order, fixed),
        st.builds("{} {} {}".format, fixed, order, moved),
        st.builds("{} {} {}".format, span, order, length | span),
        st.builds("{}.get{}({}) {} {}".format, moved, st.sampled_from(PARTS), zone, order, st.integers(0, 40)),
        st.builds(
            "{}.get{}() {} {}".format, span, st.sampled_from(["Hours", "Minutes", "Seconds"]), order, st.integers(-3, 3)
        ),
        st.builds("int(now) % 7 {} 3".format, order),
    ]
    if depth:
        inner = booleans(depth - 1, time)
        looped = booleans(depth - 1, "t")
        forms += [
            st.builds("({} && {})".format, inner, inner),
            st.builds("({} || {})".format, inner, inner),
            st.builds("({} ? {} : {})".format, inner, inner, inner),
            st.builds("!({})".format, inner),
            st.builds("{} {} ({} ? {} : {})".format, moved, order, inner, fixed, fixed),
            st.builds("params.times.{}(t, {})".format, st.sampled_from(["all", "exists", "exists_one"]), looped),
            st.builds("params.times.filter(t, {}).size() {} 1".format, looped, order),
            st.builds("params.times.filter(t, {}).exists(t, {})".format, looped, looped),
            st.builds("node.metadata.?annotations[?'time'].optMap(t, {}).orValue(true)".format, looped),
            st.builds("[now].exists(m, m {} {})".format, order, fixed),
            st.builds("params.times.map(t, now - timestamp(t)).exists(s, s {} {})".format, order, length),
        ]
    return draw(st.one_of(forms))


ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        "time": st.sampled_from([*TIMES, "rubbish"]),
        "takes": st.sampled_from(LENGTHS),
        "zone": st.sampled_from(ZONES),
    },
)
PARAMS = st.fixed_dictionaries(
    {"times": st.lists(st.sampled_from([*TIMES, "rubbish"]), max_size=3)}, optional={"zone": st.sampled_from(ZONES)}
)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Expression, Cycle]:
    source = draw(booleans())
    pod = make_pod()
    pod["metadata"]["annotations"] = draw(ANNOTATIONS)
    nodes = [
        node(f"n{place}", **found) for place, found in enumerate(draw(st.lists(ANNOTATIONS, min_size=1, max_size=3)))
    ]
    cycle = Cycle(
        pod=Pod.from_json(pod), snapshot=Snapshot.of(map(Node.from_json, nodes)), now=draw(NOWS), params=draw(PARAMS)
    )
    try:
        return Expression(source, Result.BOOLEAN), cycle
    except ExpressionError:  # loops three deep
        return Expression("now.getHours() < 3", Result.BOOLEAN), cycle


def answers(rule_set: CompiledRuleSet, cycle: Cycle, at: datetime) -> list[bool]:
    asked = Cycle(pod=cycle.pod, snapshot=cycle.snapshot, now=at, params=cycle.params)
    refusal: list[int] = decide(rule_set, asked, cycle.table.all_rows(), scoring=False).refusal.tolist()
    return [code < 0 for code in refusal]


class TestNextChange:
    @settings(max_examples=150)
    @given(questions(), st.data())
    def test_until_then_the_answer_stays(self, question: tuple[Expression, Cycle], data: st.DataObject) -> None:
        expression, cycle = question
        assume(too_costly(expression.cost({})) is None)
        rule_set = rules(expression.source)
        before = answers(rule_set, cycle, cycle.now)
        then = next_change(rule_set, cycle, cycle.table.all_rows())
        assert then is None or then > cycle.now
        if then is not None and then - cycle.now <= timedelta(seconds=1):
            return  # What can't be told is looked at in each full second; inside of it the answer may change.
        last = min(then or cycle.now + timedelta(days=40_000), cycle.now + timedelta(days=40_000)) - MICROSECOND
        between = st.datetimes(cycle.now.replace(tzinfo=None), last.replace(tzinfo=None))
        marks = [moment(text).replace(tzinfo=UTC) for text in ("2026-03-29T01:00:00Z", "2026-10-25T01:00:00Z")]
        tried = [last, min(cycle.now + MICROSECOND, last), min(cycle.now + timedelta(seconds=1), last)]
        tried += [mark for mark in marks if cycle.now <= mark <= last]
        tried += [found.replace(tzinfo=UTC) for found in data.draw(st.lists(between, min_size=4, max_size=4))]
        for at in tried:
            assert answers(rule_set, cycle, at) == before, (expression.source, at, then)

    def test_a_difference_of_times_near_the_longest_duration_is_looked_at_a_second_before(self) -> None:
        """The library takes whole seconds from each other first, so some differences end before the longest duration."""
        there = "timestamp('2026-03-29T01:00:00Z')"
        now = "now - timestamp('1734-06-01T00:00:00Z')"

        assert change(f"{there} - ({there} - ({now})) > duration('1h')") == "2026-09-09T23:47:15.854776Z"

    @pytest.mark.parametrize(
        ("expression", "then"),
        [
            ("now < timestamp('2026-05-01T20:00:00Z')", TEXT),
            ("timestamp('2026-05-01T22:00:00+02:00') <= now", TEXT),
            ("now <= timestamp('2026-05-01T20:00:00Z')", "2026-05-01T20:00:00.000001Z"),
            ("timestamp('2026-05-01T20:00:00Z') < now", "2026-05-01T20:00:00.000001Z"),
            ("now == timestamp('2026-05-01T20:00:00Z')", TEXT),
            ("now >= timestamp('2026-05-01T20:00:00.0000001Z')", "2026-05-01T20:00:00.000001Z"),
            ("now + duration('2h') >= timestamp('2026-05-01T22:00:00Z')", TEXT),
            ("duration('2h') + now >= timestamp('2026-05-01T22:00:00Z')", TEXT),
            ("now - duration('1h30m') >= timestamp('2026-05-01T18:30:00Z')", TEXT),
            ("now - timestamp('2026-05-01T19:00:00Z') >= duration('1h')", TEXT),
            ("timestamp('2026-05-01T21:00:00Z') - now < duration('1h')", "2026-05-01T20:00:00.000001Z"),
            ("timestamp('2026-05-01T21:00:00Z') - now <= duration('1h')", TEXT),
            ("now - timestamp('2026-05-01T20:00:00Z') < timestamp('2026-05-01T20:00:00Z') - now", TEXT),
        ],
    )
    def test_a_comparison_changes_at_its_time_exactly(self, expression: str, then: str) -> None:
        assert change(expression) == then

    def test_the_equal_moment_is_a_change_of_its_own(self) -> None:
        assert change("now == timestamp('2026-05-01T20:00:00Z')", TEXT) == "2026-05-01T20:00:00.000001Z"
        assert change("now != timestamp('2026-05-01T20:00:00Z')", "2026-05-01T20:00:00.000001Z") is None

    @pytest.mark.parametrize(
        "expression",
        [
            "now < timestamp('2020-01-01T00:00:00Z')",
            "node.metadata.name == 'n1'",
            "now < now + duration('1h')",
            "(now - (now - duration('1h'))).getHours() == 1",
            "now < timestamp(node.metadata.annotations.time)",
            "now < timestamp(params.text)",
            "now < params.text",
        ],
    )
    def test_what_never_changes_has_no_moment(self, expression: str) -> None:
        assert change(expression, params={"text": "rubbish", "number": 3}) is None

    def test_without_nodes_nothing_changes(self) -> None:
        rule_set = rules("now.getHours() < 3")
        cycle = cycle_of(rule_set, moment(TEXT))
        assert next_change(rule_set, cycle, cycle.table.rows([])) is None

    def test_beyond_the_calendar_is_never(self) -> None:
        assert change("now < timestamp('9999-12-31T23:00:00Z') + duration('59m')") == "9999-12-31T23:59:00Z"
        assert change("now - duration('1h') > timestamp('9999-12-31T23:59:59Z')") is None

    @pytest.mark.parametrize(
        ("part", "then"),
        [
            ("getMilliseconds()", "2026-03-29T00:10:00.001000Z"),
            ("getSeconds()", "2026-03-29T00:10:01Z"),
            ("getMinutes('Europe/Berlin')", "2026-03-29T00:11:00Z"),
            ("getHours()", "2026-03-29T01:00:00Z"),
            ("getHours('UTC')", "2026-03-29T01:00:00Z"),
            ("getHours('Europe/Berlin')", "2026-03-29T00:15:00Z"),
            ("getHours(params.zone)", "2026-03-29T00:15:00Z"),
            ("getHours('+01:07')", "2026-03-29T00:53:00Z"),
            ("getHours('-00:07')", "2026-03-29T01:07:00Z"),
            ("getDayOfWeek()", "2026-03-30T00:00:00Z"),
            ("getDate('05:30')", "2026-03-29T18:30:00Z"),
            ("getFullYear('Asia/Kathmandu')", "2026-03-29T00:15:00Z"),
        ],
    )
    def test_a_part_of_the_clock_changes_at_the_next_boundary_of_its_unit(self, part: str, then: str) -> None:
        assert change(f"now.{part} == 3", params={"zone": "Asia/Tokyo"}) == then

    def test_a_moved_clock_changes_at_moved_boundaries(self) -> None:
        assert change("(now + duration('20m')).getHours() == 3") == "2026-03-29T00:40:00Z"
        backwards = "(timestamp('2026-03-29T01:05:00Z') - (now - timestamp('2026-03-29T00:00:00Z')))"
        assert change(f"{backwards}.getHours() == 3", "2026-03-29T00:04:00Z") == "2026-03-29T00:05:00.000001Z"

    def test_zones_of_old_times_are_looked_at_each_second(self) -> None:
        assert change("now.getHours('Africa/Monrovia') == 3", "1960-01-01T00:00:00Z") == "1960-01-01T00:00:01Z"

    def test_a_length_of_time_changes_at_multiples_of_its_unit(self) -> None:
        since = "(now - timestamp('2026-03-29T00:05:00Z'))"
        assert change(f"{since}.getHours() == 3") == "2026-03-29T01:05:00Z"
        assert change(f"{since}.getMinutes() == 3") == "2026-03-29T00:10:00.000001Z"
        assert change(f"{since}.getMinutes() == 3", "2026-03-29T00:10:30Z") == "2026-03-29T00:11:00Z"

    @pytest.mark.parametrize(
        "expression",
        [
            "string(now) == 'a'",
            "int(now) % 2 == 0",
            "now in [timestamp('2026-05-01T20:00:00Z')]",
            "[now].exists(m, m < timestamp('2026-05-01T20:00:00Z'))",
            "now.getHours() < 3 || string(now).size() == 3",
            "{'a': now}.size() == 1",
            "(node.metadata.name == 'a' ? now : timestamp('2026-05-01T20:00:00Z')) < timestamp('2026-05-01T20:00:00Z')",
            "now.getHours(string(now)) == 3",
            "(now + (now - timestamp('2020-01-01T00:00:00Z'))).getHours() == 3",
            "(now - params.length).getHours() == 1",
            "now + duration('9000000h') > timestamp('2026-05-01T20:00:00Z')",
            "node.count({'a': string(now)}) < 2",
            "node.count({'a': now.getHours() < 3 ? 'x' : 'y'}) < 2",
            "params.times.exists(t, now < timestamp(t))",
            "params.times.map(t, now - timestamp(t)).exists(s, s > duration('1h'))",
        ],
    )
    def test_anything_else_is_looked_at_each_second(self, expression: str) -> None:
        assert change(expression, params={"times": [TEXT, "rubbish"], "length": TEXT}) == "2026-03-29T00:10:01Z"

    def test_each_pod_and_each_node_has_its_own_times(self) -> None:
        rule = (
            "now + duration(pod.metadata.?annotations[?'takes'].orValue('1h')) "
            "<= timestamp(node.metadata.?annotations[?'until'].orValue('9999-12-31T00:00:00Z'))"
        )
        nodes = [node("n1", until="2026-05-01T21:00:00Z"), node("n2", until="2026-05-01T20:30:00Z"), node("n3")]
        pod = make_pod()
        assert change(rule, nodes=nodes, pod=pod) == "2026-05-01T19:30:00.000001Z"
        assert change(rule, "2026-05-01T19:45:00Z", nodes=nodes, pod=pod) == "2026-05-01T20:00:00.000001Z"
        pod["metadata"]["annotations"] = {"takes": "10m"}
        assert change(rule, nodes=nodes, pod=pod) == "2026-05-01T20:20:00.000001Z"
        rule_set = rules(rule)
        cycle = cycle_of(rule_set, moment("2026-03-29T00:10:00Z"), nodes, pod)
        assert next_change(rule_set, cycle, cycle.table.rows(["n1"])) == moment("2026-05-01T20:50:00.000001Z")

    def test_times_in_loops_are_each_met(self) -> None:
        params = {
            "closed": [
                {"from": "2026-05-01T20:00:00Z", "until": "2026-05-02T20:00:00Z"},
                {"from": "2027-05-01T20:00:00Z", "until": "2027-05-02T20:00:00Z"},
            ]
        }
        rule = "params.closed.all(c, now < timestamp(c.from) || now >= timestamp(c.until))"
        found = ["2026-03-29T00:10:00Z"]
        while (then := change(rule, found[-1], params=params)) is not None:
            found.append(then)
        assert found[1:] == [
            "2026-05-01T20:00:00Z",
            "2026-05-02T20:00:00Z",
            "2027-05-01T20:00:00Z",
            "2027-05-02T20:00:00Z",
        ]
        assert change(rule, params={"closed": []}) is None

    def test_values_of_one_loop_that_have_too_many_combinations_are_looked_at_each_second(self) -> None:
        tolerations = [
            {"key": f"{i}s", "value": f"{i}m", "effect": f"{i}h", "operator": f"{i + 100}s"} for i in range(30)
        ]
        lengths = " - ".join(f"duration(t.{name})" for name in ("key", "value", "effect", "operator"))
        rule = f"pod.spec.tolerations.all(t, now - {lengths} > timestamp('2020-01-01T00:00:00Z'))"
        pod = make_pod(tolerations=tolerations)
        assert change(rule, "2026-05-01T00:00:00.5Z", pod=pod) == "2026-05-01T00:00:01Z"

    def test_zones_in_loops_are_each_met(self) -> None:
        params = {"windows": [{"zone": "+00:20", "from": 3}, {"zone": "+00:10", "from": 5}]}
        assert (
            change("params.windows.exists(w, now.getHours(w.zone) >= w.from)", params=params) == "2026-03-29T00:40:00Z"
        )

    def test_loops_in_loops_and_values_given_names_are_read(self) -> None:
        params = {"days": [{"times": ["2026-05-01T20:00:00Z"]}, {"times": []}]}
        assert change("params.days.exists(d, d.times.exists(t, now < timestamp(t)))", params=params) == TEXT
        rule = "node.metadata.?annotations[?'time'].optMap(t, now < timestamp(t)).orValue(true)"
        assert change(rule, nodes=[node("n1", time=TEXT), node("n2")]) == TEXT
        assert change(rule, nodes=[node("n2")]) is None

    def test_a_value_given_the_name_of_its_loop_is_read(self) -> None:
        params = {"windows": [{"from": TEXT}]}
        rule = "params.windows.all(w, w.?from.optMap(w, now >= timestamp(w)).orValue(true))"
        assert change(rule, params=params) == TEXT

    def test_a_condition_that_moves_counts_with_the_value_it_chooses(self) -> None:
        rule = "now < (now.getHours() < 12 ? timestamp('2026-03-29T03:30:00Z') : timestamp('2026-03-29T14:30:00Z'))"
        assert change(rule, "2026-03-29T03:10:00Z") == "2026-03-29T03:30:00Z"
        assert change(rule, "2026-03-29T14:10:00Z") == "2026-03-29T14:30:00Z"

    def test_only_rules_that_count_are_asked(self) -> None:
        params = {"a": 1}
        for mode in ("shadow", "off"):
            rule_set = rules("now.getHours() < 3", mode=mode)
            cycle = cycle_of(rule_set, moment(TEXT))
            assert next_change(rule_set, cycle, cycle.table.all_rows()) is None
        rule_set = rules("now.getHours() < 3", "now.getMinutes() < 3", "node.metadata.name == 'n1'", params=params)
        cycle = cycle_of(rule_set, moment(TEXT))
        assert list(time_filters(rule_set)) == ["r0", "r1"]
        assert next_change(rule_set, cycle, cycle.table.all_rows()) == moment("2026-05-01T20:01:00Z")
        assert next_change(rule_set, cycle, cycle.table.all_rows(), rules={"r0"}) == moment("2026-05-01T21:00:00Z")
        assert next_change(rule_set, cycle, cycle.table.all_rows(), rules={"r2"}) is None


def checked(source: str) -> checked_pb2.CheckedExpr:
    return unpack(compile_checked(source, BOOLEAN_TYPES, "a boolean"))


class TestReadClock:
    """Trees that no source of today leads to."""

    def test_what_cannot_stand_outside_its_loop_is_looked_at_each_second(self) -> None:
        tree = checked("params.times.all(t, now < timestamp(t))")
        assert not read_clock(pack(tree)).each_second
        comparison = tree.expr.comprehension_expr.loop_step.call_expr.args[1]
        comparison.call_expr.args[1].call_expr.args[0].ident_expr.name = "@result"
        assert read_clock(pack(tree)).each_second
        tree = checked("params.times.all(t, now < timestamp(t))")
        tree.expr.comprehension_expr.iter_var2 = "u"
        assert read_clock(pack(tree)).each_second
        tree = checked("params.times.all(t, now < timestamp(t))")
        tree.expr.comprehension_expr.result.CopyFrom(comparison)
        assert read_clock(pack(tree)).each_second

    def test_what_is_nested_too_deep_to_stand_alone_is_looked_at_each_second(self) -> None:
        tree = checked("params.times.all(t, now < timestamp(t))")
        place = tree.expr.comprehension_expr.loop_step.call_expr.args[1].call_expr.args[1]
        inner = syntax_pb2.Expr()
        inner.CopyFrom(place)
        for _ in range(45):
            outer = syntax_pb2.Expr()
            outer.call_expr.function = "timestamp"
            outer.call_expr.args.append(inner)
            inner = outer
        place.CopyFrom(inner)
        assert read_clock(pack(tree)).each_second


class TestReadsNow:
    @pytest.mark.parametrize(
        ("expression", "reads"),
        [
            ("now.getHours() < 3", True),
            ("params.list.exists(x, now < timestamp(x))", True),
            ("node.count({'a': string(now)}) < 2", True),
            ("node.metadata.labels.now == 'now'", False),
            ("params.now == 'a'", False),
        ],
    )
    def test_an_expression_says_whether_it_reads_now(self, expression: str, reads: bool) -> None:
        assert Expression(expression, Result.BOOLEAN).reads_now is reads


def example(name: str) -> CompiledRuleSet:
    document = next(iter(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text())))
    return CompiledRuleSet(read_rule_set(document))


def next_opening(rule_set: CompiledRuleSet, cycle: Cycle, rows: Rows, *, until: datetime) -> datetime | None:
    """Return the first moment after `cycle.now` at which time alone lets the Pod on a node, found by next_change alone."""
    at = next_change(rule_set, cycle, rows)
    while at is not None and at <= until:
        cycle = Cycle(pod=cycle.pod, snapshot=cycle.snapshot, now=at, params=cycle.params)
        if decide(rule_set, cycle, rows, scoring=False).feasible_count:
            return at
        at = next_change(rule_set, cycle, rows)
    return None


class TestNextOpening:
    @pytest.mark.parametrize(
        ("now", "opens"),
        [
            pytest.param("2026-01-15T12:00:00Z", "2026-01-15T21:00:00Z", id="winter"),
            pytest.param("2026-07-15T12:00:00Z", "2026-07-15T20:00:00Z", id="summer"),
            pytest.param(
                "2026-03-28T12:00:00Z", "2026-03-28T21:00:00Z", id="the evening before the clock goes forward"
            ),
            pytest.param("2026-03-29T04:00:00Z", "2026-03-29T20:00:00Z", id="the day on which the clock goes forward"),
            pytest.param("2026-10-24T12:00:00Z", "2026-10-24T20:00:00Z", id="the evening before the clock goes back"),
            pytest.param("2026-10-25T05:00:00Z", "2026-10-25T21:00:00Z", id="the day on which the clock goes back"),
            pytest.param("2027-01-03T22:00:00Z", "2027-01-03T23:00:00Z", id="a freeze ends by night"),
        ],
    )
    def test_the_night_of_the_example_opens_to_the_second_on_any_day(self, now: str, opens: str) -> None:
        rule_set = example("night-batch")
        cycle = cycle_of(rule_set, moment(now))
        until = moment(now) + timedelta(days=2)
        assert next_opening(rule_set, cycle, cycle.table.all_rows(), until=until) == moment(opens)

    def test_a_window_that_opens_too_late_is_not_found(self) -> None:
        rule_set = rules("now >= timestamp('2026-05-01T20:00:00Z')")
        cycle = cycle_of(rule_set, moment("2026-05-01T19:00:00Z"))
        rows = cycle.table.all_rows()
        assert next_opening(rule_set, cycle, rows, until=moment("2026-05-01T19:59:59Z")) is None
        assert next_opening(rule_set, cycle, rows, until=moment(TEXT)) == moment(TEXT)
        assert next_opening(rules("false"), cycle, rows, until=moment(TEXT)) is None
