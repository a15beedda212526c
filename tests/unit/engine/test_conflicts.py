"""Conflicts between Assignments: what is said is true of every Pod, and what is planted is said."""

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.engine.conflicts import Conflict, conflicts
from policies.engine.decision import CompiledMatch
from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Assignment
from tests.builders import make_assignment, make_pod

# The last value, like the last namespace, is one that no match names.
KEYS, VALUES = ("a", "b"), ("x", "y", None, "z")
NAME = "kubernetes.io/metadata.name"
KINDS = ("none", "Job", "ReplicaSet", "Deployment")
# What controls a Pod; a Deployment does so by a ReplicaSet. No match names the last one.
OWNERS = ("", "Job/j", "ReplicaSet/r", "ReplicaSet/d-hash", "Deployment/d", "StatefulSet/s")


def owned(namespace: str, labels: Iterable[str | None], owner: str) -> Pod:
    found = {key: value for key, value in zip(KEYS, labels, strict=True) if value}
    pod = make_pod("p", namespace=namespace, labels={**found, "pod-template-hash": "hash"})
    kind, _, name = owner.partition("/")
    if kind:
        pod["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "uid": name, "controller": True}]
    return Pod.from_json(pod)


# Every Pod that matches of these tests can tell apart.
PODS = [
    (owned(namespace, pod, owner), {NAME: namespace} | {k: v for k, v in zip(KEYS, space, strict=True) if v})
    for namespace, pod, space, owner in product(
        ("n1", "n2", "n3"), product(VALUES, repeat=2), product(VALUES, repeat=2), OWNERS
    )
]


def asking(keys: Iterable[str], values: Iterable[str]) -> st.SearchStrategy[dict[str, Any]]:
    """One expression of a selector."""
    return st.builds(
        lambda key, operator, values: (
            {"key": key, "operator": operator} | ({"values": values} if "In" in operator else {})
        ),
        st.sampled_from(list(keys)),
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        st.lists(st.sampled_from(list(values)), min_size=1, max_size=2, unique=True),
    )


expressions = asking(KEYS, ["x", "y"])
selectors = st.fixed_dictionaries(
    {},
    optional={
        "matchLabels": st.dictionaries(st.sampled_from(KEYS), st.sampled_from(["x", "y"]), max_size=2),
        "matchExpressions": st.lists(expressions, max_size=2),
    },
)
matches = st.fixed_dictionaries(
    {},
    optional={
        "namespaces": st.lists(st.sampled_from(["n1", "n2"]), min_size=1, max_size=2, unique=True),
        "ownerKinds": st.lists(st.sampled_from(KINDS), min_size=1, max_size=2, unique=True),
        "podSelector": selectors,
        "namespaceSelector": selectors
        | st.fixed_dictionaries(
            {"matchExpressions": st.lists(expressions | asking([NAME], ["n1", "n2"]), min_size=1, max_size=2)}
        ),
    },
)


def teams(*named: tuple[str, dict[str, Any]], **more: Any) -> list[Assignment]:
    """Assignments in this order, each to a rule set of its own."""
    return [
        make_assignment(name, f"rules-of-{name}", order=place, match=match, **more)
        for place, (name, match) in enumerate(named)
    ]


def taken(match: Assignment) -> set[int]:
    compiled = CompiledMatch(match.match)
    return {place for place, (pod, space) in enumerate(PODS) if compiled.takes(pod, space)}


@given(matches, matches)
def test_what_is_said_is_true_of_every_pod(one: dict[str, Any], other: dict[str, Any]) -> None:
    first, second = teams(("first", one), ("second", other))
    ahead, behind = taken(first), taken(second)
    for kind, name, by in conflicts([second, first]):
        if name == by:
            assert not taken(first if name == "first" else second)
        elif kind == "never reached":
            assert (name, by) == ("second", "first")
            assert behind <= ahead
        else:
            assert kind == "hidden"
            assert not ahead <= behind
            assert ahead & behind


@given(matches, matches)
def test_what_is_behind_one_that_takes_the_same_is_said_to_be_never_reached(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    narrow = {**one, **other}
    first, second, third = teams(("first", narrow), ("second", other), ("third", narrow))
    if taken(third):
        assert Conflict("never reached", "third", "first") in conflicts([first, second, third])


@given(st.lists(matches, min_size=3, max_size=6))
def test_what_is_said_of_many_is_what_is_said_of_each_pair(given: list[dict[str, Any]]) -> None:
    many = teams(*((f"a{place}", match) for place, match in enumerate(given)))
    expected: list[Conflict] = []
    for place, each in enumerate(many):
        pairs = dict.fromkeys(c for other in many[:place] for c in conflicts([other, each]) if c.name == each.name)
        never = [c for c in pairs if c.kind == "never reached"]
        expected += never[:1] or pairs
    assert conflicts(many) == conflicts(many[:1]) + expected


@given(st.lists(matches, min_size=3, max_size=6), st.sets(st.sampled_from([f"a{place}" for place in range(6)])))
def test_what_is_said_about_some_is_what_is_said_of_them_among_all(
    given: list[dict[str, Any]], about: set[str]
) -> None:
    many = teams(*((f"a{place}", match) for place, match in enumerate(given)))
    assert conflicts(many, about) == [c for c in conflicts(many) if not about.isdisjoint((c.name, c.other))]


def label(key: str, *values: str, operator: str = "In") -> dict[str, Any]:
    entry = {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
    return {"podSelector": {"matchExpressions": [entry]}}


def test_the_general_behind_the_special_is_no_conflict() -> None:
    assert conflicts(teams(("web", label("a", "x")), ("all", {}))) == []


def test_the_special_behind_the_general_is_never_reached() -> None:
    (found,) = conflicts(teams(("all", {}), ("web", label("a", "x"))))
    assert found == Conflict("never reached", "web", "all")
    assert found.sentence() == "Assignment web is never reached: all before it takes every Pod that it could take"


@pytest.mark.parametrize(
    ("ahead", "behind", "covers"),
    [
        (label("a", operator="Exists"), label("a", "x", operator="NotIn"), False),
        (label("a", operator="Exists"), label("a", "x"), True),
        (label("a", "x"), label("a", operator="Exists"), False),
        (label("a", "x", operator="NotIn"), label("a", "y"), True),
        (label("a", "x", operator="NotIn"), label("a", "x", "y", operator="NotIn"), True),
        (label("a", "x", "y", operator="NotIn"), label("a", "x", operator="NotIn"), False),
        (label("a", "x", operator="NotIn"), label("a", operator="DoesNotExist"), True),
        (label("a", operator="DoesNotExist"), label("a", "x", operator="NotIn"), False),
    ],
)
def test_one_requirement_covers_another_where_it_follows_from_it(
    ahead: dict[str, Any], behind: dict[str, Any], *, covers: bool
) -> None:
    found = conflicts(teams(("one", ahead), ("two", behind)))
    assert ([each.kind for each in found] == ["never reached"]) is covers


def test_a_namespace_selected_by_the_label_that_is_its_name_is_that_namespace() -> None:
    web = label("a", "x")
    first = {**web, "namespaces": ["n1"]}
    same, other = ({**web, "namespaceSelector": {"matchLabels": {NAME: name}}} for name in ("n1", "n2"))
    assert conflicts(teams(("first", first), ("other", other))) == []
    assert conflicts(teams(("first", first), ("same", same))) == [Conflict("never reached", "same", "first")]
    none = {"namespaceSelector": {"matchExpressions": [{"key": NAME, "operator": "DoesNotExist"}]}}
    assert conflicts(teams(("none", none))) == [Conflict("never reached", "none", "none")]


def test_two_that_overlap_and_cover_neither_hide_a_part() -> None:
    (found,) = conflicts(teams(("one", label("a", "x", "y")), ("two", label("a", "y", "z"))))
    assert found == Conflict("hidden", "two", "one")
    assert found.sentence() == "Assignment two doesn't get the Pods that one before it takes too"


def test_the_same_order_is_said_where_names_decide() -> None:
    both = [
        make_assignment("one", "r1", order=5, match=label("a", "x", "y")),
        make_assignment("two", "r2", order=5, match=label("a", "y", "z")),
    ]
    (found,) = conflicts(both)
    assert found == Conflict("same order", "two", "one")
    assert found.sentence().startswith("Assignments one and two have the same order")


def test_those_that_require_quite_other_things_are_no_conflict() -> None:
    """Nearly any two of these could share a Pod: thirty teams would be told of each other."""
    assert conflicts(teams(("one", label("a", "x")), ("two", label("b", "x")), ("three", {"namespaces": ["n1"]}))) == []


def test_one_that_excludes_itself_is_never_reached() -> None:
    nobody = {
        "podSelector": {"matchLabels": {"a": "x"}, "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}
    }
    (found,) = conflicts(teams(("nobody", nobody), ("all", {})))
    assert found == Conflict("never reached", "nobody", "nobody")
    assert found.sentence() == "Assignment nobody is never reached: no Pod can meet all that it requires"
    assert conflicts(teams(("nobody", nobody)), about={"all"}) == []


def test_shadows_stand_in_nobodys_way_and_the_same_rule_set_hides_nothing() -> None:
    assert conflicts(teams(("all", {}), ("web", label("a", "x")), mode="shadow")) == []
    same = [
        make_assignment("one", "r", order=1, match=label("a", "x", "y")),
        make_assignment("two", "r", order=2, match=label("a", "y", "z")),
    ]
    assert conflicts(same) == []
    other_params = [same[0], make_assignment("two", "r", order=2, match=label("a", "y", "z"), params={"team": "b"})]
    assert [each.kind for each in conflicts(other_params)] == ["hidden"]


def test_only_what_was_asked_about_is_compared() -> None:
    three = teams(("all", {}), ("web", label("a", "x")), ("db", label("a", "y")))
    assert [each.name for each in conflicts(three, about={"db"})] == ["db"]
    assert [each.name for each in conflicts(three, about={"all"})] == ["web", "db"]
    assert [each.name for each in conflicts(three, about={"nothing"})] == []


def test_what_gets_no_pod_anyway_is_not_said_to_lose_some_to_one_that_was_asked_about() -> None:
    new, behind = label("a", "x"), {**label("a", "x", "y"), "namespaces": ["n1"]}
    three = teams(("first", {}), ("new", new), ("behind", behind))
    assert conflicts(three, about={"new"}) == [Conflict("never reached", "new", "first")]


def test_a_pod_may_have_owners_of_several_kinds() -> None:
    kinds = [{"ownerKinds": ["ReplicaSet"]}, {"ownerKinds": ["Deployment"]}, {"ownerKinds": ["Deployment"]}]
    found = conflicts(teams(*zip(("one", "two", "three"), kinds, strict=True)))
    assert found == [Conflict("hidden", "two", "one"), Conflict("never reached", "three", "two")]


@pytest.mark.parametrize(
    ("one", "other"), [("Job", "DaemonSet"), ("none", "ReplicaSet"), ("Deployment", "StatefulSet")]
)
@pytest.mark.parametrize("order", [0, 1])
def test_no_pod_is_hidden_by_an_assignment_for_owners_of_another_kind(one: str, other: str, order: int) -> None:
    first, second = ({"ownerKinds": [one]}, {"ownerKinds": [other, "CloneSet"]})
    both = [make_assignment("a", "r1", order=1, match=first), make_assignment("b", "r2", order=1 + order, match=second)]
    assert conflicts(both) == []


def test_a_canary_leaves_pods_to_those_behind_it() -> None:
    canary = make_assignment("canary", "r1", order=1, mode="canary", percent=10)
    assert conflicts([canary, make_assignment("all", "r2", order=2)]) == []
