"""Which Pods an Assignment would take as it is typed, and which one takes each now; what stands in its way by what it says alone."""

from datetime import UTC, datetime
from typing import Any

from policies.engine.objects.pod import Pod
from policies.engine.ruleset import Assignment, Revision
from scheduler.takes import Group, takes, warnings_of
from tests.builders import make_assignment, make_pause, make_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(name: str, **more: Any) -> tuple[Pod, dict[str, str]]:
    return Pod.from_json(make_pod(name, **more)), {}


def web(name: str, order: int, **more: Any) -> Assignment:
    return make_assignment(name, order=order, match={"podSelector": {"matchLabels": {"app": "web"}}}, **more)


PODS = [
    *(pod(f"web-{number}", labels={"app": "web"}) for number in range(7)),
    pod("other"),
    pod("bound", labels={"app": "web"}, nodeName="n1"),
]


def revision(*assignments: Assignment, **more: Any) -> Revision:
    return Revision(number=1, assignments=list(assignments), **more)


def test_pods_are_told_by_who_takes_them_now() -> None:
    before = revision(web("old", 10))
    after = revision(web("old", 10), make_assignment("new", order=5))
    found = takes("new", before, after, PODS, NOW)
    assert found.looked_at == 9
    assert found.pods == 9
    assert found.groups == [
        Group("old", 8, [f"default/web-{number}" for number in range(5)]),
        Group("", 1, ["default/other"]),
    ]
    assert takes("old", after, before, PODS, NOW).groups == [Group("new", 8, [f"default/web-{n}" for n in range(5)])]


def test_those_that_it_leaves_are_counted() -> None:
    found = takes("old", revision(web("old", 10)), revision(web("old", 10), web("first", 1)), PODS, NOW)
    assert (found.pods, found.left) == (0, 8)


def test_shadows_and_what_is_paused_take_none() -> None:
    shadow = revision(web("seen", 1, mode="shadow"), web("old", 10))
    assert takes("seen", revision(), shadow, PODS, NOW).pods == 0
    paused = revision(web("old", 10), pauses=[make_pause(target="Assignment/old")])
    assert takes("old", revision(), paused, PODS, NOW).pods == 0
    everything = revision(web("old", 10), pauses=[make_pause(target="everything")])
    assert takes("old", revision(), everything, PODS, NOW).pods == 0


def test_warnings_say_what_hides_it_equal_orders_and_an_empty_match() -> None:
    hidden, *_ = warnings_of(web("late", 10), revision(make_assignment("all", order=1)), NOW)
    assert hidden == "Assignment late is never reached: all before it takes every Pod that it could take"
    (equal,) = warnings_of(
        web("one", 10), revision(make_assignment("two", order=10, match={"namespaces": ["shop"]})), NOW
    )
    assert equal.startswith("Order 10 is that of two, too")
    hides, empty = warnings_of(make_assignment("one", order=1), revision(make_assignment("two", order=2)), NOW)
    assert hides == "Assignment two is never reached: one before it takes every Pod that it could take"
    assert empty.startswith("Its match is empty")
    for more, said in (
        ({"mode": "shadow"}, "it shadows every Pod that none before it takes"),
        ({"mode": "canary", "percent": 5}, "it takes its share of all workloads that none before it takes"),
    ):
        assert warnings_of(make_assignment("one", **more), revision(), NOW) == [f"Its match is empty: {said}"]
    assert (
        warnings_of(web("one", 1), revision(make_assignment("two", order=2, match={"namespaces": ["shop"]})), NOW) == []
    )


def test_what_a_paused_assignment_hides_is_said_to_be_hidden_once_it_comes_back() -> None:
    live = revision(make_assignment("all", order=1), pauses=[make_pause(target="Assignment/all")])
    assert warnings_of(web("late", 10), live, NOW) == [
        "Assignment late is never reached: all before it takes every Pod that it could take, once Assignment all isn't paused any more"
    ]
