"""Scopes and patterns of tokens: which right takes which scope, and what a pattern names."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.scopes import MOST_PATTERNS, PATTERN, Reach, pattern_faults, scope_of

# Few letters, so that patterns meet names.
NAMES = st.text("ab-.", max_size=6)
PATTERNS = st.text("ab-.*?", min_size=1, max_size=6)
TUPLES = st.lists(PATTERNS, max_size=3).map(tuple)


@pytest.mark.parametrize(
    ("permission", "scope"),
    [
        ("policies.view_ruleset", "read"),
        ("policies.see_addresses", "read"),
        ("scheduler.view_decision", "read"),
        ("policies.change_ruleset", "edit"),
        ("policies.delete_priorityclass", "edit"),
        ("scheduler.run_canary", "edit"),
        ("policies.approve", "review"),
        ("policies.publish", "publish"),
        ("policies.break_glass", "publish"),
        ("policies.add_reviewsetting", ""),
        ("policies.add_gatesetting", ""),
        ("scheduler.make_legalhold", ""),
        ("scheduler.lift_legalhold", ""),
        ("auth.view_user", ""),
        ("auth.change_user", ""),
        ("anything.else", ""),
    ],
)
def test_a_right_takes_one_scope_and_what_is_not_known_takes_none(permission: str, scope: str) -> None:
    assert scope_of(permission) == scope


def regex_of(pattern: str) -> re.Pattern[str]:
    """The same pattern, said otherwise."""
    return re.compile("".join({"*": ".*", "?": "."}.get(each, re.escape(each)) for each in pattern), re.DOTALL)


@given(NAMES, TUPLES, TUPLES)
def test_a_name_is_within_reach_where_a_pattern_means_all_of_it(
    name: str, patterns: tuple[str, ...], namespaces: tuple[str, ...]
) -> None:
    wanted = not patterns or any(regex_of(pattern).fullmatch(name) for pattern in patterns)
    assert Reach(patterns, namespaces).has_name(name) == wanted


@given(st.lists(NAMES, max_size=4), TUPLES, TUPLES)
def test_namespaces_are_within_reach_where_each_of_them_is(
    names: list[str], rule_sets: tuple[str, ...], patterns: tuple[str, ...]
) -> None:
    each = [any(regex_of(pattern).fullmatch(name) for pattern in patterns) for name in names]
    wanted = not (rule_sets or patterns) or "*" in patterns or (bool(names) and all(each))
    assert Reach(rule_sets, patterns).has_namespaces(names) == wanted


@given(st.lists(NAMES, max_size=4), NAMES, TUPLES, TUPLES)
def test_more_namespaces_are_never_easier_to_reach(
    names: list[str], more: str, rule_sets: tuple[str, ...], patterns: tuple[str, ...]
) -> None:
    reach = Reach(rule_sets, patterns)
    if names and reach.has_namespaces([*names, more]):
        assert reach.has_namespaces(names)


@given(st.text(max_size=8))
def test_what_is_accepted_as_a_pattern_means_nothing_but_its_two_signs(text: str) -> None:
    assert (not pattern_faults([text])) == (PATTERN.fullmatch(text) is not None)
    if not pattern_faults([text]):
        assert not set(text) & set("[]{}!|\\\n ,/")


def test_there_is_a_bound_on_patterns() -> None:
    assert pattern_faults(["a"] * MOST_PATTERNS) == []
    assert "50 at most" in pattern_faults(["a"] * (MOST_PATTERNS + 1))[0]
