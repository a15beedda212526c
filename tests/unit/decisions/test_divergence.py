"""How a shadow's answer differs from the one that was given."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from policies.engine.decision import Answer, CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.decisions.divergence import Divergence, Side, compare, given, placed, settled, would_be
from tests.builders import make_node, make_pod, make_rule_set

AT = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ["n1", "n2", "n3"]


def only(*names: str, mode: str = "enforce") -> dict[str, Any]:
    return {
        "name": f"only-{'-'.join(names) or 'none'}",
        "expression": f"node.metadata.name in {list(names)}" if names else "node.metadata.name == 'nowhere'",
        "reason": "no",
        "mode": mode,
    }


def likes(name: str, *, weight: int = 1, mode: str = "enforce") -> dict[str, Any]:
    expression = f"node.metadata.name == '{name}' ? 9 : 0"
    return {"name": f"likes-{name}", "expression": expression, "bounds": [0, 9], "weight": weight, "mode": mode}


def answer(*, filters: Any = (), scores: Any = (), filtering: bool = True, inside: bool = False) -> Answer:
    """Decide about three nodes; `inside`: as the shadow of an enforced rule set is decided, with its rules in mode shadow."""
    rule_set = CompiledRuleSet(make_rule_set("r", filters=list(filters), scores=list(scores)))
    snapshot = Snapshot.of([Node.from_json(make_node(name)) for name in NAMES], [])
    cycle = Cycle(pod=Pod.from_json(make_pod()), snapshot=snapshot, now=AT, params={})
    rows = snapshot.table.all_rows()
    decided = rule_set if inside else rule_set.enforced
    return decide(decided, cycle, rows, filtering=filtering, scoring=bool(scores))


def shadow(**rules: Any) -> Side:
    return would_be(answer(**rules), is_inside=False, is_exact=False)


def real(**rules: Any) -> Side:
    return given(answer(**rules), len(NAMES))


class TestFiltering:
    @pytest.mark.parametrize(
        ("given_nodes", "shadow_nodes", "expected"),
        [
            (["n1", "n2"], ["n1", "n2"], Divergence.AGREED),
            (["n1", "n2"], ["n1", "n2", "n3"], Divergence.AGREED),
            (["n1", "n2"], [], Divergence.REFUSED_ALL),
            ([], ["n1"], Divergence.LET_PASS),
            ([], [], Divergence.AGREED),
            (["n1"], ["n2"], Divergence.REFUSED_NODE),
            (["n1"], ["n1", "n2"], Divergence.AGREED),
            (["n1", "n2"], ["n1"], Divergence.OPEN),
            (["n1", "n2"], ["n3"], Divergence.OPEN),
        ],
    )
    def test_what_the_shadow_would_have_done(
        self, given_nodes: list[str], shadow_nodes: list[str], expected: Divergence
    ) -> None:
        assert compare(real(filters=[only(*given_nodes)]), shadow(filters=[only(*shadow_nodes)])) == expected

    def test_where_no_assignment_took_the_pod_every_node_was_given(self) -> None:
        everything = given(None, len(NAMES))
        assert compare(everything, shadow(filters=[only()])) == Divergence.REFUSED_ALL
        assert compare(everything, shadow(filters=[only("n2")])) == Divergence.OPEN
        assert compare(everything, shadow(filters=[only(*NAMES)])) == Divergence.AGREED


class TestScoring:
    def test_another_best_node_is_another_node(self) -> None:
        answered = real(scores=[likes("n1")], filtering=False)
        assert compare(answered, shadow(scores=[likes("n2")], filtering=False)) == Divergence.ANOTHER_NODE
        assert compare(answered, shadow(scores=[likes("n1", weight=5)], filtering=False)) == Divergence.AGREED

    def test_a_shared_best_node_agrees(self) -> None:
        answered = real(scores=[likes("n1"), likes("n2")], filtering=False)
        assert compare(answered, shadow(scores=[likes("n2"), likes("n3")], filtering=False)) == Divergence.AGREED

    def test_a_shadow_without_scores_has_nothing_against_the_best(self) -> None:
        assert compare(real(scores=[likes("n1")], filtering=False), shadow(filtering=False)) == Divergence.AGREED

    def test_where_nothing_was_scored_it_depends_on_the_node_that_the_pod_gets(self) -> None:
        likes_n2 = shadow(scores=[likes("n2")], filtering=False)
        assert compare(given(None, len(NAMES)), likes_n2) == Divergence.OPEN
        assert settled(likes_n2, NAMES.index("n2")) == Divergence.AGREED
        assert settled(likes_n2, NAMES.index("n1")) == Divergence.ANOTHER_NODE


class TestACycle:
    def test_the_node_that_the_pod_got_counts(self) -> None:
        got_n1 = placed(answer(scores=[likes("n1")]), NAMES.index("n1"))
        assert compare(got_n1, shadow(filters=[only("n2")])) == Divergence.REFUSED_NODE
        assert compare(got_n1, shadow(filters=[only()])) == Divergence.REFUSED_ALL
        assert compare(got_n1, shadow(scores=[likes("n3")])) == Divergence.ANOTHER_NODE
        assert compare(got_n1, shadow(scores=[likes("n1")])) == Divergence.AGREED

    def test_a_pod_that_got_none_would_have_been_let_pass(self) -> None:
        none = placed(answer(filters=[only()]), -1)
        assert compare(none, shadow(filters=[only("n1")])) == Divergence.LET_PASS
        assert compare(none, shadow(filters=[only()])) == Divergence.AGREED

    def test_totals_tell_nodes_apart_that_have_the_same_points(self) -> None:
        nearly = answer(scores=[likes("n1", weight=99), likes("n2", weight=100)])
        got_n1 = placed(nearly, NAMES.index("n1"))
        assert compare(got_n1, would_be(nearly, is_inside=False, is_exact=True)) == Divergence.ANOTHER_NODE
        assert compare(got_n1, would_be(nearly, is_inside=False, is_exact=False)) == Divergence.AGREED


class TestRulesInsideAnEnforcedRuleSet:
    FILTERS = (only("n1", mode="shadow"), only("n1", "n2"))

    def test_their_refusals_count_as_if_they_were_enforced(self) -> None:
        inside = answer(filters=self.FILTERS, inside=True)
        assert would_be(inside, is_inside=True, is_exact=False).passes.tolist() == [True, False, False]
        assert would_be(inside, is_inside=False, is_exact=False).passes.tolist() == [True, True, False]
        assert compare(real(filters=self.FILTERS), would_be(inside, is_inside=True, is_exact=False)) == Divergence.OPEN

    def test_their_scores_count_too(self) -> None:
        scores = (likes("n1"), likes("n2", weight=2, mode="shadow"))
        inside = would_be(answer(scores=scores, inside=True), is_inside=True, is_exact=False)
        assert compare(real(scores=scores), inside) == Divergence.ANOTHER_NODE


def test_an_open_comparison_is_settled_by_the_node() -> None:
    refuses_n1 = shadow(filters=[only("n2", "n3")])
    assert settled(refuses_n1, 0) == Divergence.REFUSED_NODE
    assert settled(refuses_n1, 1) == Divergence.AGREED


def test_a_question_about_no_node_agrees() -> None:
    nothing = Side(np.zeros(0, dtype=np.bool_))
    assert compare(given(None, 0), nothing) == Divergence.AGREED
