"""What expressions say of requests, params, the namespace, and nodes without a value."""

from typing import Any, ClassVar, cast

import pytest

from policies.engine.cel import Expression, Result
from policies.engine.cel.expression_split import split
from policies.engine.cel.language import Program
from policies.engine.errors import ExpressionError
from policies.engine.objects.pod import Pod
from policies.engine.rule import Cycle
from policies.engine.ruleset import ScoreRule
from policies.engine.scores.expression import ExpressionScore
from tests.unit.engine.cel.asking import NOW, cycle_of, evaluate, extended, node, pod_on, same, value_of


class TestRequests:
    @pytest.mark.parametrize(
        ("spec", "amounts"),
        [
            pytest.param({"containers": [{"name": "c"}]}, {"cpu": 0, "memory": 0}, id="none"),
            pytest.param(
                {
                    "containers": [
                        {"name": "c", "resources": {"requests": {"cpu": "1500m", "example.com/gpu": "1"}}},
                        {"name": "d", "resources": {"requests": {"cpu": "0.5", "memory": "1Gi"}}},
                    ]
                },
                {"cpu": 2000, "memory": 1024**3, "example.com/gpu": 1},
                id="of all containers together",
            ),
            pytest.param(
                {
                    "initContainers": [{"name": "i", "resources": {"requests": {"cpu": "3"}}}],
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Mi"}}}],
                    "overhead": {"cpu": "100m"},
                },
                {"cpu": 3100, "memory": 1024**2},
                id="the most at any time, and the overhead",
            ),
            pytest.param(
                {
                    "resources": {"requests": {"cpu": "4"}},
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                },
                {"cpu": 4000, "memory": 0},
                id="of the whole Pod",
            ),
        ],
    )
    def test_are_added_up_as_kube_scheduler_does(self, spec: dict[str, Any], amounts: dict[str, int]) -> None:
        source = " && ".join(f"requests[{name!r}] == {amount}" for name, amount in amounts.items())
        pod = {"metadata": {"name": "web"}, "spec": spec}
        assert value_of(f"{source} && size(requests) == {len(amounts)}", Result.BOOLEAN, pod=pod) is True

    def test_are_compared_with_what_each_node_has_left(self) -> None:
        pod: dict[str, Any] = {"metadata": {"name": "a"}}
        pod["spec"] = {"containers": [{"resources": {"requests": {"cpu": "1500m"}}}]}
        busy = Pod.from_json({"metadata": {"name": "b"}, "spec": {**pod["spec"], "nodeName": "n2"}})
        cycle = cycle_of([node("n1"), node("n2")], [busy], pod=pod)
        assert evaluate("usage.free.cpu - requests.cpu", cycle) == [500, -1000]

    def test_may_say_which_pods_are_counted(self) -> None:
        pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}}
        cycle = cycle_of([node("n1"), node("n2")], [pod_on("b", "n2", size="1000")], pod=pod)
        assert evaluate("node.count({'size': string(requests.cpu)})", cycle) == [0, 1]

    def test_tell_pods_apart_by_what_they_come_from(self) -> None:
        expression = Expression("requests.cpu > 1 && pod.metadata.name != 'a'", Result.BOOLEAN)
        assert ("spec", "containers") in expression.pod_paths
        assert ("metadata", "name") in expression.pod_paths
        assert Expression("usage.free.cpu > 1", Result.BOOLEAN).pod_paths == frozenset()


class TestParams:
    @pytest.mark.parametrize(
        ("source", "parts"),
        [
            pytest.param("node.metadata.name.startsWith(params.prefix)", 1, id="a function"),
            pytest.param("node.metadata.labels[?params.key].orValue('') == 'x'", 1, id="an index"),
            pytest.param("params.names.exists(n, node.metadata.name.startsWith(n))", 1, id="a loop"),
            pytest.param("usage.free.cpu >= params.reserve", 0, id="an operator over columns"),
            pytest.param(
                "usage.free.cpu > params.reserve || node.metadata.name in params.names", 0, id="several of them"
            ),
            pytest.param("node.metadata.name.startsWith(params.prefix + pod.metadata.name)", 0, id="with the Pod"),
        ],
    )
    def test_make_a_column_with_a_node_where_no_operator_over_columns_joins_them(self, source: str, parts: int) -> None:
        of_node = split(Expression(source, Result.BOOLEAN)._serialized).of_node
        assert sum(bool(part.reads["params"]) for part in of_node) == parts

    def test_are_those_of_each_decision(self) -> None:
        nodes = [node("a1", labels={"team": "x", "crew": "y"}), node("b2")]
        cycle = cycle_of(nodes)
        source = (
            "node.metadata.name.startsWith(params.prefix) ? node.metadata.?labels[?params.key].orValue('none') : 'no'"
        )
        expression = Expression(f"size({source})", Result.NUMBER)
        for prefix, key, sizes in [("a", "team", [1, 2]), ("b", "team", [2, 4]), ("a", "nobody", [4, 2])] * 2:
            asked = Cycle(pod=cycle.pod, snapshot=cycle.snapshot, now=NOW, params={"prefix": prefix, "key": key})
            assert expression.evaluate(asked, asked.table.all_rows()).listed() == sizes

    @pytest.mark.parametrize(("one", "other"), [(1, 1.0), (1, True), ([1], [1.0]), ("1", 1), ({}, [])])
    def test_that_look_alike_in_python_are_told_apart(self, one: object, other: object) -> None:
        cycle = cycle_of([node("a")])
        expression = Expression("[node.metadata.name].map(n, params.x)[0]", Result.NUMBER)
        for value in (one, other, one):
            asked = Cycle(pod=cycle.pod, snapshot=cycle.snapshot, now=NOW, params={"x": value})
            found = expression.evaluate(asked, asked.table.all_rows()).listed()
            assert same(found, [expression.evaluate_plainly(asked, 0)])

    @pytest.mark.parametrize("names", [["a1", "c"], {"a1": 5}, [], {}, ["a1", 1], [1, 2]])
    def test_that_hold_names_of_nodes_are_looked_into(self, names: object) -> None:
        cycle = cycle_of([node("a1"), node("b2")], params={"names": names})
        is_there = "a1" in cast("list[object]", names)
        assert evaluate("node.metadata.name in params.names", cycle, Result.BOOLEAN) == [is_there, False]

    def test_are_evaluated_with_a_node_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        expression = Expression("node.metadata.name.startsWith(params.prefix)", Result.BOOLEAN)
        cycle = cycle_of([node("a1"), node("b2")], params={"prefix": "a"})
        first = expression.evaluate(cycle, cycle.table.all_rows()).listed()
        monkeypatch.setattr(Program, "run", lambda *_: pytest.fail("evaluated again"))
        assert expression.evaluate(cycle, cycle.table.all_rows()).listed() == first == [True, False]


class TestNodesWithoutAValue:
    """As long as the others have values of one kind, CEL is asked about these alone."""

    @pytest.mark.parametrize(
        "source",
        [
            "double(node.extra.load) < double(pod.metadata.labels.most)",
            "double(node.extra.load) / 2.0 < 1.0 ? pod.metadata.labels.app == 'x' : false",
            "node.extra.name == pod.metadata.labels.app",
            "int(node.extra.load) in [1, int(pod.metadata.labels.most)]",
        ],
    )
    def test_are_the_only_ones_that_cel_is_asked_about(self, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = [extended(f"n{number}", load=str(number), name=f"x{number}") for number in range(20)]
        nodes += [extended("without", other=1), extended("other", load="a lot", name=5)]
        pod = {"metadata": {"name": "a", "labels": {"app": "x", "most": "3"}}}
        cycle = cycle_of(nodes, pod=pod)
        wanted = evaluate(source, cycle, Result.BOOLEAN)
        expression = Expression(source, Result.BOOLEAN)
        rows = cycle.table.all_rows()
        expression.evaluate(cycle, rows)
        runs: list[object] = []
        run = Program.run
        monkeypatch.setattr(Program, "run", lambda *given: runs.append(given) or run(*given))
        assert same(expression.evaluate(cycle, rows).listed(), wanted)
        assert len(runs) < 8

    def test_are_few_where_optionals_are_compared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = [node(f"n{number}", labels={"team": "ab"[number % 2], "host": f"n{number}"}) for number in range(20)]
        cycle = cycle_of([*nodes, node("without", labels={})])
        expression = Expression("node.metadata.labels.?team == pod.metadata.labels.?team", Result.BOOLEAN)
        rows = cycle.table.all_rows()
        assert expression.evaluate(cycle, rows).listed() == [True, False] * 10 + [False]
        runs: list[object] = []
        run = Program.run
        monkeypatch.setattr(Program, "run", lambda *given: runs.append(given) or run(*given))
        expression.evaluate(cycle, rows)
        assert len(runs) < 8

    def test_score_nothing_and_the_others_as_without_them(self) -> None:
        score = ExpressionScore(ScoreRule(name="s", expression="double(node.extra.load)"))
        nodes = [extended(name, load=load) for name, load in [("a", "0.5"), ("b", "4.5"), ("c", "x"), ("d", "1.5")]]
        cycle = cycle_of(nodes)
        assert score.score(cycle, cycle.table.all_rows()).tolist() == [0, 100, 0, 25]


class TestTheNamespace:
    SHOP: ClassVar = {"metadata": {"name": "a", "namespace": "shop", "labels": {"team": "data"}}}

    def test_has_a_name_and_the_labels_that_it_has_now(self) -> None:
        namespaces = {"shop": {"team": "web"}, "default": {"team": "data"}}
        cycle = cycle_of(
            [node("n1", labels={"team": "web"}), node("n2", labels={"team": "data"})],
            pod=self.SHOP,
            namespaces=namespaces,
        )
        source = "namespaceObject.metadata.labels.team == node.metadata.labels.team"
        assert evaluate(source, cycle, Result.BOOLEAN) == [True, False]
        assert evaluate("size(namespaceObject.metadata.name)", cycle) == [4, 4]

    @pytest.mark.parametrize("namespaces", [{}, {"shop": {}}], ids=["unknown", "without labels"])
    def test_has_labels_even_where_there_are_none(self, namespaces: dict[str, dict[str, str]]) -> None:
        source = "!has(namespaceObject.metadata.labels.team) && size(namespaceObject.metadata.labels) == 0"
        assert value_of(source, Result.BOOLEAN, pod=self.SHOP, namespaces=namespaces) is True

    def test_may_say_which_pods_are_counted(self) -> None:
        pods = [pod_on("b", "n2", app="web")]
        cycle = cycle_of([node("n1"), node("n2")], pods, namespaces={"default": {"main": "web"}})
        assert evaluate("node.count({'app': namespaceObject.metadata.labels.main})", cycle) == [0, 1]

    def test_tells_pods_apart_by_their_namespace(self) -> None:
        expression = Expression("namespaceObject.metadata.labels.team == 'web'", Result.BOOLEAN)
        assert expression.pod_paths == {("metadata", "namespace")}

    def test_a_field_that_it_lacks_is_refused_and_the_known_ones_are_named(self) -> None:
        for field, known in [("status.phase", "metadata"), ("metadata.annotations.team", "labels, name")]:
            with pytest.raises(ExpressionError, match=f"known are {known}"):
                Expression(f"namespaceObject.{field} == 'web'", Result.BOOLEAN).check_fields()


class TestWhatTellsPodsApart:
    def test_what_the_arguments_of_count_read_is_read(self) -> None:
        expression = Expression("node.count({'app': pod.metadata.annotations.like}) < params.most", Result.BOOLEAN)
        assert expression.reads["pod"] == [("metadata", "annotations", "like")]
        assert expression.reads["params"] == [("most",)]

    def test_pods_are_counted_by_these_labels(self) -> None:
        source = "node.count({'app': pod.metadata.labels.app}) + topology.count('zone', {'team': 'b'}) < 1"
        assert Expression(source, Result.BOOLEAN).selected(cycle_of([])) == [{"app": "x"}, {"team": "b"}]

    def test_labels_that_cannot_be_evaluated_select_nobody(self) -> None:
        source = "node.count({'app': pod.metadata.annotations.like}) < 1"
        assert Expression(source, Result.BOOLEAN).selected(cycle_of([])) == []

    def test_what_a_node_has_left_goes_by_more_than_labels(self) -> None:
        source = "usage.free.cpu > 1 && node.count({'app': 'x'}) < 1"
        assert Expression(source, Result.BOOLEAN).selected(cycle_of([])) is None
        assert Expression("usage.allocatable.cpu > 1", Result.BOOLEAN).selected(cycle_of([])) == []
