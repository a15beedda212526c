"""Two edits of one rule set: what one side did is taken, what both did otherwise is named, and nothing comes from nowhere."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.ruleset import RuleSet
from policies.publishing.merging import merge_rule_sets
from tests.builders import make_rule_set

NAMES = ("a", "b", "c")


def rule_set(rules: dict[str, int], params: dict[str, int] | None = None, description: str = "") -> RuleSet:
    filters = [{"name": name, "expression": f"{weight} < 9", "reason": "no"} for name, weight in rules.items()]
    made = make_rule_set("web", filters=filters, params=params or {})
    return RuleSet(name=made.name, description=description, spec=made.spec)


def rules_of(made: RuleSet) -> dict[str, str]:
    return {rule.name: rule.expression for rule in made.spec.filters}


def merged(base: Any, theirs: Any, mine: Any) -> Any:
    return merge_rule_sets(rule_set(base), rule_set(theirs), rule_set(mine))


def test_each_sides_own_rules_are_taken() -> None:
    found = merged({"a": 1, "b": 1, "c": 1}, {"a": 2, "c": 1}, {"a": 1, "b": 1, "c": 3, "d": 1})
    assert not found.conflicts
    assert rules_of(found.rule_set) == {"a": "2 < 9", "c": "3 < 9", "d": "1 < 9"}


@pytest.mark.parametrize(
    ("base", "theirs", "mine"),
    [
        pytest.param({"a": 1}, {"a": 2}, {"a": 3}, id="both changed it"),
        pytest.param({"a": 1}, {}, {"a": 3}, id="they removed it"),
        pytest.param({"a": 1}, {"a": 2}, {}, id="I removed it"),
        pytest.param({}, {"a": 2}, {"a": 3}, id="both added it"),
    ],
)
def test_one_rule_that_both_changed_is_named(base: Any, theirs: Any, mine: Any) -> None:
    assert merged(base, theirs, mine).conflicts == {"filters/a": "both sides changed a of filters"}


@pytest.mark.parametrize(
    ("base", "theirs", "mine", "order"),
    [
        pytest.param("abc", "cab", "abc", "cab", id="they moved one"),
        pytest.param("abc", "abc", "cab", "cab", id="I moved one"),
        pytest.param("abc", "bca", "cab", "cab", id="both moved one"),
        pytest.param("abc", "xabc", "abc", "xabc", id="they put one in front"),
        pytest.param("abc", "abc", "axbc", "axbc", id="I put one between"),
        pytest.param("abc", "cabx", "yabc", "cabxy", id="they moved one, and both added one"),
        pytest.param("abc", "cab", "ac", "ca", id="they moved one, and I removed one"),
        pytest.param("abc", "xac", "abcy", "acyx", id="both added one, and they removed one"),
    ],
)
def test_rules_stand_in_the_order_of_the_side_that_changed_it(base: str, theirs: str, mine: str, order: str) -> None:
    found = merged(*(dict.fromkeys(side, 1) for side in (base, theirs, mine)))
    assert not found.conflicts
    assert "".join(rules_of(found.rule_set)) == order


@pytest.mark.parametrize("member", ["filters", "scores", "victims"])
def test_rules_of_each_kind_are_put_together(member: str) -> None:
    more = {"filters": {"reason": "no"}, "scores": {}, "victims": {"reason": "no"}}[member]

    def with_rules(**expressions: str) -> RuleSet:
        return make_rule_set("web", **{member: [{"name": n, "expression": e, **more} for n, e in expressions.items()]})

    one, other = ("1", "2") if member == "scores" else ("1 < 2", "2 < 3")
    base, theirs, mine = with_rules(a=one, b=one), with_rules(a=other, b=one, c=one), with_rules(a=one, b=other)
    found = merge_rule_sets(base, theirs, mine)
    assert not found.conflicts
    assert found.rule_set.spec == with_rules(a=other, b=other, c=one).spec
    assert list(merge_rule_sets(base, theirs, with_rules(b=one)).conflicts) == [f"{member}/a"]


@pytest.mark.parametrize("mine", [1.0, True, [1.0]])
def test_a_param_that_python_takes_for_the_same_is_a_change_all_the_same(mine: Any) -> None:
    own = [1] if isinstance(mine, list) else 1
    base, edited = (make_rule_set("web", params={"x": each}) for each in (own, mine))
    for theirs, ours in ((base, edited), (edited, base)):
        (found,) = merge_rule_sets(base, theirs, ours).rule_set.spec.params.values()
        assert repr(found) == repr(mine)


def test_tests_of_one_name_all_stay() -> None:
    def with_tests(*nodes: str) -> RuleSet:
        names = dict(zip(nodes, ("t", "t", "t (2)"), strict=True))
        return make_rule_set(
            "web", tests=[{"name": name, "pod": {}, "expect": {"best": node}} for node, name in names.items()]
        )

    found = merge_rule_sets(with_tests("n1", "n2", "n3"), with_tests("n4", "n2", "n3"), with_tests("n1", "n5", "n3"))
    assert not found.conflicts
    assert [each.expect.best for each in found.rule_set.spec.tests] == ["n4", "n5", "n3"]


def test_of_each_part_that_both_changed_the_side_that_is_chosen_is_taken() -> None:
    """The rest is put together as ever."""
    sides = (
        rule_set({"a": 1, "b": 1, "c": 1, "d": 1}, {"x": 1}),
        rule_set({"a": 2, "b": 2, "c": 2}, {"x": 2}, "theirs"),
        rule_set({"a": 3, "b": 3, "c": 1, "d": 2, "e": 1}, {"x": 3}, "mine"),
    )
    assert list(merge_rule_sets(*sides).conflicts) == ["filters/a", "filters/b", "filters/d", "params/x", "description"]
    chosen = {"filters/a": "theirs", "filters/b": "mine", "filters/d": "theirs", "params/x": "theirs"}
    found = merge_rule_sets(*sides, chosen)
    assert list(found.conflicts) == ["description"]
    assert rules_of(found.rule_set) == {"a": "2 < 9", "b": "3 < 9", "c": "2 < 9", "e": "1 < 9"}
    assert found.rule_set.spec.params == {"x": 2}
    assert merge_rule_sets(*sides, {**chosen, "description": "theirs"}).rule_set.description == "theirs"


def test_params_and_description_are_put_together_too() -> None:
    sides = (rule_set({}, {"x": 1, "y": 1}), rule_set({}, {"x": 2, "y": 1}, "theirs"), rule_set({}, {"x": 1, "y": 3}))
    found = merge_rule_sets(*sides)
    assert (found.rule_set.spec.params, found.rule_set.description) == ({"x": 2, "y": 3}, "theirs")
    assert not found.conflicts


sides = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3))


@given(sides, sides, sides)
def test_it_is_the_same_whoever_was_first_and_makes_nothing_up(base: Any, theirs: Any, mine: Any) -> None:
    one, other = merged(base, theirs, mine), merged(base, mine, theirs)
    assert set(one.conflicts) == set(other.conflicts)
    if not one.conflicts:
        assert rules_of(one.rule_set) == rules_of(other.rule_set)
    for name in NAMES:
        was, they, me = base.get(name), theirs.get(name), mine.get(name)
        if f"filters/{name}" in one.conflicts:
            assert len({was, they, me}) == 3
        else:
            wanted = they if me == was else me
            assert rules_of(one.rule_set).get(name) == (f"{wanted} < 9" if wanted else None)


@given(sides, sides)
def test_an_edit_of_one_side_alone_is_that_edit(base: Any, edited: Any) -> None:
    for found in (merged(base, edited, base), merged(base, base, edited)):
        assert (rules_of(found.rule_set), found.conflicts) == (rules_of(rule_set(edited)), {})
