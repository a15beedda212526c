"""How an answer differs from a recorded one, and which rule is named as the cause."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from policies.engine.decision import Answer, CompiledRuleSet, decide
from policies.engine.objects.node import Node
from policies.engine.objects.pod import Pod
from policies.engine.objects.snapshot import Snapshot
from policies.engine.rule import Cycle
from scheduler.backtest.compare import Difference, Kind, Recorded, compare
from scheduler.decisions.columns import store_answer
from tests.builders import make_node, make_pod, make_rule_set

NODES = [f"n{number}" for number in range(6)]
SNAPSHOT = Snapshot.of([Node.from_json(make_node(name)) for name in NODES])


def refuse(name: str, *nodes: str) -> dict[str, Any]:
    return {"name": name, "expression": f"!(node.metadata.name in {list(nodes)})", "reason": f"{name} says so"}


def rank(name: str, weight: int = 1, **points: int) -> dict[str, Any]:
    expression = " : ".join([*(f"node.metadata.name == '{node}' ? {number}" for node, number in points.items()), "0"])
    return {"name": name, "expression": expression, "bounds": [0, 10], "weight": weight}


def decided(*rules: dict[str, Any]) -> Answer:
    rule_set = CompiledRuleSet(
        make_rule_set(
            filters=[rule for rule in rules if "reason" in rule], scores=[rule for rule in rules if "bounds" in rule]
        )
    )
    cycle = Cycle(pod=Pod.from_json(make_pod("asked")), snapshot=SNAPSHOT, now=datetime(2026, 1, 1, tzinfo=UTC))
    return decide(rule_set, cycle, SNAPSHOT.table.all_rows())


def compared(then: list[dict[str, Any]], now: list[dict[str, Any]] | None, **how: bool) -> Difference | None:
    before, after = decided(*then), decided(*now) if now is not None else None
    best = np.empty(0, dtype=np.intp)
    if after is not None and len(after.scored):
        best = after.scored[after.totals == after.totals.max()]
    return compare(Recorded(store_answer(before), before.best), after, SNAPSHOT.table.row_of.get, best, **how)


FIRST, SECOND = rank("first", n1=9, n2=8), rank("second", n3=7, n2=1)


@pytest.mark.parametrize(
    ("then", "now", "expected"),
    [
        ([FIRST], [FIRST], None),
        # Of several rules the one that refuses most; of equals the first.
        ([], [refuse("few", "n0"), refuse("most", *NODES)], ("no-node", "most", "most says so", 0, 6)),
        ([], [refuse("one", *NODES[:3]), refuse("other", *NODES[3:])], ("no-node", "one", "one says so", 0, 6)),
        ([refuse("few", "n0"), refuse("most", *NODES)], [], ("allowed", "most", "most says so", 6, 0)),
        ([refuse("most", *NODES)], None, ("allowed", "most", "most says so", 6, 0)),
        ([], [refuse("a", "n0"), refuse("b", "n4", "n5")], ("other-nodes", "b", "b says so", 0, 3)),
        ([refuse("a", "n0"), refuse("b", "n4", "n5")], [], ("other-nodes", "b", "b says so", 3, 0)),
        # Both ways at once: what is refused now is the cause.
        ([refuse("a", *NODES[:4])], [refuse("b", "n5")], ("other-nodes", "b", "b says so", 4, 1)),
        # The best node is refused: by which rule that one is, whatever others refuse more.
        ([FIRST], [FIRST, refuse("a", *NODES[3:]), refuse("b", "n1")], ("other-best", "b", "b says so", 0, 4)),
        # A better one was refused: by which rule that one was.
        ([FIRST, refuse("a", *NODES[3:]), refuse("b", "n1")], [FIRST], ("other-best", "b", "b says so", 4, 0)),
        # Nobody is refused: the score that speaks most for the other one, against then.
        ([FIRST], [FIRST, rank("second", 9, n3=7)], ("other-best", "second", "", 0, 0)),
        ([FIRST, rank("second", 9, n3=7)], [FIRST], ("other-best", "second", "", 0, 0)),
        ([FIRST, SECOND], [rank("first", 1, n1=9, n2=9), SECOND], ("other-best", "first", "", 0, 0)),
    ],
)  # fmt: skip
def test_the_first_cause_is_named(
    then: list[dict[str, Any]], now: list[dict[str, Any]] | None, expected: tuple[str, str, str, int, int] | None
) -> None:
    found = compared(then, now)
    said = found and (found.kind.value, found.rule, found.reason, found.gained, found.lost)
    assert said == expected
    # What was refused then and passes now was the doing of a rule of then.
    assert found is None or found.of_then is bool(found.gained and not found.lost)


def test_rules_in_mode_shadow_are_no_cause() -> None:
    """Former versions asked them before the answer, and recorded them in it."""
    dry = {**refuse("dry", *NODES[1:]), "mode": "shadow"}
    dries = {**rank("dries", 99, n5=9), "mode": "shadow"}
    assert compared([FIRST, dry, dries], [FIRST]) is None
    assert compared([FIRST], [FIRST, dry, dries]) is None
    found = compared([dry, dries, refuse("a", "n0", "n1"), FIRST], [dry, dries, FIRST])
    assert found is not None
    assert (found.rule, found.gained) == ("a", 2)
    found = compared([dry, dries, FIRST], [dry, dries, refuse("a", "n2"), SECOND])
    assert found is not None
    assert (found.kind, found.rule, found.nodes, found.lost) == (Kind.OTHER_BEST, "first", 6, 1)


def test_the_best_nodes_of_both_sides_are_named() -> None:
    found = compared([FIRST], [rank("first", n4=3, n3=3)])
    assert found is not None
    assert (found.before, found.after, found.nodes) == ("n1", "n3", 6)
    gone, come = compared([FIRST], [refuse("a", *NODES)]), compared([refuse("a", *NODES)], [FIRST])
    assert gone is not None
    assert come is not None
    assert [(each.before, each.after, each.nodes) for each in (gone, come)] == [("n1", "", 6), ("", "n1", 0)]
    # One of several that are best now is no other one.
    found = compared([FIRST], [rank("first", n1=3, n0=3)])
    assert found is not None
    assert (found.kind, found.points) == (Kind.OTHER_POINTS, 8)


def test_of_nodes_that_were_to_be_ranked_only_the_best_one_and_the_points_count() -> None:
    assert compared([FIRST], [FIRST, refuse("a", *NODES)], best_alone=True) is None
    assert compared([FIRST], [FIRST, refuse("a", "n5")], best_alone=True) is None
    found = compared([FIRST], [FIRST, refuse("a", "n1")], best_alone=True)
    assert found is not None
    assert (found.kind, found.rule, found.after) == (Kind.OTHER_BEST, "a", "n2")


@pytest.mark.parametrize(
    ("then", "now", "points"),
    [
        ([rank("r", n1=9)], [rank("r", n1=7)], 2),
        ([rank("r", n1=9)], [rank("r", n1=7, n2=4)], 4),
        # A node that one side refuses is compared by nobody's points.
        ([rank("r", n1=9, n2=4), refuse("a", "n0")], [rank("r", n1=9, n0=4), refuse("a", "n2")], 0),
        ([rank("r", n1=9)], [], 9),
        ([rank("r", n1=9)], None, 9),
        ([], [rank("r", n1=9)], 9),
        ([], None, 0),
    ],
)
def test_points_are_compared_of_the_nodes_that_both_rank(
    then: list[dict[str, Any]], now: list[dict[str, Any]] | None, points: int
) -> None:
    found = compared(then, now, best_alone=True)
    assert (found.points if found else 0) == points
    assert compared(then, now, best_alone=True, with_points=False) is None


def test_a_record_that_names_a_refused_node_as_the_best_has_no_best_node() -> None:
    then = decided(FIRST, refuse("a", "n5"))
    now = decided(SECOND)
    found = compare(Recorded(store_answer(then), "n5"), now, SNAPSHOT.table.row_of.get, now.scored[3:4])
    assert found is not None
    assert found.kind is Kind.OTHER_NODES
