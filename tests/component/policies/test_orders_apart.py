"""Two Changes that move Assignments: what neither asked for isn't made of their numbers, but shown, and chosen."""

from itertools import permutations

import pytest
from django.contrib.auth.models import User
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from policies import publishing
from policies.models import Change
from policies.publishing import ORDER, Edit, PublishingError
from policies.publishing.assignments import orders_apart
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import get, publish_all, text_of
from tests.component.policies.test_changes import do
from tests.component.rest.asking import ask, told

pytestmark = pytest.mark.django_db

ORDERS = {"one": 10, "two": 20, "three": 30}


@pytest.fixture(autouse=True)
def _live() -> None:
    publish_all(make_rule_set(), *(make_assignment(name, order=order) for name, order in ORDERS.items()))


def order() -> list[str]:
    return [each.name for each in publishing.asked_in_order(publishing.current_revision().assignments)]


def wanted(by: User, *names: str) -> Change:
    return publishing.reorder(names=names, by=by)


def moved(by: User, name: str, number: int) -> Change:
    edit = Edit.of(make_assignment(name, order=number))
    return publishing.open_change(title=f"move {name}", edits=[edit], by=by)


def rebase(change: Change, by: User, **named: object) -> Change:
    return do(change, publishing.rebase_change, by, expected_revision=publishing.current_revision().number, **named)


def test_two_orders_that_make_a_third_are_refused_until_one_is_chosen(alice: User) -> None:
    first, second = moved(alice, "three", 15), moved(alice, "one", 25)
    do(first, publishing.publish_change, alice)
    assert order() == ["one", "three", "two"]
    # By the numbers of both: three, two, one. The second wants two, one, three.
    with pytest.raises(PublishingError, match="published another order of Assignments since; rebase it"):
        do(second, publishing.publish_change, alice)
    assert publishing.orders_of(second).sentences == [
        "asked now: one, three, two",
        "asked as this edit has them: two, one, three",
        "by both's numbers: three, two, one",
    ]


def test_the_first_assignment_in_an_older_change_is_placed_in_the_order_that_is_live_then(alice: User) -> None:
    change = publishing.open_change(title="older", edits=[Edit.of(make_rule_set("other"))], by=alice)
    do(moved(alice, "three", 15), publishing.publish_change, alice)
    do(change, publishing.edit_change, alice, edits=[Edit.of(make_assignment("two", order=12))])
    do(change, publishing.publish_change, alice)
    assert order() == ["one", "two", "three"]


@pytest.mark.parametrize("side", ["mine", "theirs"])
def test_rebased_it_is_the_order_that_was_chosen_and_needs_approvals_again(alice: User, side: str) -> None:
    first = moved(alice, "three", 15)
    edits = [Edit.of(make_assignment("one", order=25, match={"namespaces": ["shop"]}))]
    second = publishing.open_change(title="move one", edits=edits, by=alice)
    do(first, publishing.publish_change, alice)
    digest = second.digest
    rebased = rebase(second, alice, take_theirs=[ORDER] if side == "theirs" else [])
    assert rebased.digest != digest
    assert f"order of Assignments: {side}" in rebased.events.get(act="rebase").text
    do(second, publishing.publish_change, alice)
    assert order() == (["two", "one", "three"] if side == "mine" else ["one", "three", "two"])
    live = {each.name: each.match.namespaces for each in publishing.current_revision().assignments}
    assert live["one"] == ["shop"]


def test_given_up_an_edit_of_nothing_but_the_order_is_gone(alice: User) -> None:
    first, second = moved(alice, "three", 15), moved(alice, "one", 25)
    do(first, publishing.publish_change, alice)
    assert not rebase(second, alice, take_theirs=[ORDER]).edits.exists()


def test_orders_that_go_together_need_no_rebase(alice: User) -> None:
    publish_all(make_assignment("four", order=40))
    first, second = moved(alice, "two", 5), moved(alice, "three", 50)
    do(first, publishing.publish_change, alice)
    do(second, publishing.publish_change, alice)
    assert order() == ["two", "one", "four", "three"]


def test_a_new_assignment_whose_place_was_moved_away_is_shown(alice: User) -> None:
    second = publishing.open_change(title="new", edits=[Edit.of(make_assignment("new", order=15))], by=alice)
    do(moved(alice, "one", 18), publishing.publish_change, alice)
    with pytest.raises(PublishingError, match="order of Assignments"):
        do(second, publishing.publish_change, alice)
    rebase(second, alice)
    do(second, publishing.publish_change, alice)
    assert order() == ["one", "new", "two", "three"]


def test_what_others_added_keeps_its_place_behind_the_one_it_was_put_behind(alice: User) -> None:
    second = wanted(alice, "three", "two", "one")
    publish_all(make_assignment("beside-two", order=21))
    rebase(second, alice)
    do(second, publishing.publish_change, alice)
    assert order() == ["three", "two", "beside-two", "one"]


def test_an_edit_that_joins_later_stands_in_the_order_of_then(alice: User) -> None:
    change = publishing.open_change(title="t", edits=[Edit.of(make_rule_set("other"))], by=alice)
    do(moved(alice, "three", 15), publishing.publish_change, alice)
    do(change, publishing.edit_change, alice, edits=[Edit.of(make_assignment("three", order=5))])
    do(change, publishing.publish_change, alice)
    assert order() == ["three", "one", "two"]


def test_an_order_that_was_moved_is_shown_still_when_the_same_assignment_is_edited_again(alice: User) -> None:
    first, second = moved(alice, "three", 15), moved(alice, "one", 25)
    do(first, publishing.publish_change, alice)
    do(second, publishing.edit_change, alice, edits=[Edit.of(make_assignment("one", order=25, mode="shadow"))])
    with pytest.raises(PublishingError, match="published another order of Assignments since; rebase it"):
        do(second, publishing.publish_change, alice)
    assert order() == ["one", "three", "two"]


def test_an_edit_of_a_rule_set_that_is_called_as_an_assignment_is_none_of_its_order(alice: User) -> None:
    first, second = moved(alice, "three", 15), moved(alice, "one", 25)
    do(first, publishing.publish_change, alice)
    do(second, publishing.edit_change, alice, edits=[Edit.of(make_rule_set("one"))])
    with pytest.raises(PublishingError, match="published another order of Assignments since; rebase it"):
        do(second, publishing.publish_change, alice)
    assert order() == ["one", "three", "two"]


def test_their_order_brings_no_edit_of_an_assignment_that_is_called_as_a_rule_set(alice: User) -> None:
    edits = [Edit.of(make_assignment("one", order=25)), Edit.of(make_rule_set("two"))]
    second = publishing.open_change(title="move one", edits=edits, by=alice)
    do(moved(alice, "three", 15), publishing.publish_change, alice)
    rebased = rebase(second, alice, take_theirs=[ORDER])
    assert [(each.kind, each.name) for each in rebased.edits.all()] == [("RuleSet", "two")]


def test_my_order_renumbers_an_assignment_that_is_called_as_a_rule_set_of_the_change(alice: User) -> None:
    edits = [Edit.of(make_assignment("one", order=25)), Edit.of(make_rule_set("three"))]
    second = publishing.open_change(title="move one", edits=edits, by=alice)
    do(moved(alice, "three", 15), publishing.publish_change, alice)
    rebase(second, alice)
    do(second, publishing.publish_change, alice)
    assert order() == ["two", "one", "three"]


def test_their_order_leaves_what_the_change_adds_and_removes(alice: User) -> None:
    publish_all(make_assignment("four", order=40))
    edits = [Edit.of(make_assignment("one", order=25)), Edit.of(make_assignment("new", order=35))]
    second = publishing.open_change(title="t", edits=[*edits, Edit("Assignment", "four", None)], by=alice)
    do(moved(alice, "three", 15), publishing.publish_change, alice)
    rebased = rebase(second, alice, take_theirs=[ORDER])
    assert [each.name for each in rebased.edits.all()] == ["four", "new"]
    do(second, publishing.publish_change, alice)
    assert order() == ["one", "three", "two", "new"]


@pytest.mark.parametrize("door", ["admin", "rest"])
def test_pages_and_rest_show_the_orders_and_take_the_choice(operator: Client, alice: User, door: str) -> None:
    first, second = moved(alice, "three", 15), moved(alice, "one", 25)
    do(first, publishing.publish_change, alice)
    url = f"/admin/policies/change/{second.pk}/"
    if door == "admin":
        page = get(operator, f"{url}change/")
        assert "by both's numbers: three, two, one" in text_of(page).replace("&#x27;", "'")
        form = page.context["form"]
        data = {"act": "rebase", "text": "", "digest": form["digest"].value(), "revision": form["revision"].value()}
        operator.post(f"{url}act/", data | {"of Assignments/order": "theirs"})
    else:
        shown = told(ask(operator, "get", f"/changes/{second.pk}"))
        assert [(each["kind"], each["name"]) for each in shown["conflicts"]] == [ORDER]
        assert "by both's numbers: three, two, one" in shown["conflicts"][0]["theirs"]
        sides = {"sides": [{"kind": "Assignments", "name": "order", "take": "theirs"}]}
        told(ask(operator, "post", f"/changes/{second.pk}/rebase", sides, match=f'"{second.digest}"'))
    assert not Change.objects.get(pk=second.pk).edits.exists()


def test_the_pairs_that_are_compared_are_all_that_matter() -> None:
    """Each order by each other one: a conflict is said just where a pair comes out as nobody who moved it asked."""
    names = ("a", "b", "c")
    base = {name: place for place, name in enumerate(names)}
    for theirs in permutations(names):
        live = {name: place for place, name in enumerate(theirs)}
        for mine in permutations(names):
            edits = {name: place for place, name in enumerate(mine) if base[name] != place}
            found = orders_apart(base, live, edits)
            if theirs in (names, mine):
                assert found is None
            if found:
                assert sorted(found.wanted) == sorted(names)
                assert found.wanted == list(mine)


@given(st.data())
def test_nothing_is_apart_where_one_side_moved_nothing(data: st.DataObject) -> None:
    numbers = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9))
    base, edits = data.draw(numbers), data.draw(numbers)
    assert orders_apart(base, base, edits) is None
    assert orders_apart(base, {**base, **edits}, edits) is None


def test_my_order_is_kept_where_the_live_number_happens_to_be_mine(alice: User) -> None:
    publish_all(make_assignment("two", order=30), make_assignment("three", order=40))
    change = moved(alice, "two", 0)
    publish_all(make_assignment("two", order=0), make_assignment("one", order=0))
    assert order() == ["one", "two", "three"]
    assert publishing.standing_of(change).moved == ("Assignment two", "order of Assignments")
    rebased = rebase(change, alice)
    assert rebased.events.get(act="rebase").text == "Assignment two: theirs, order of Assignments: mine"
    do(rebased, publishing.publish_change, alice)
    assert order() == ["two", "one", "three"]


def test_an_order_that_comes_apart_by_what_is_given_up_is_asked_about_first(alice: User) -> None:
    edits = [Edit("Assignment", "one", None), Edit.of(make_assignment("zero", order=1))]
    change = publishing.open_change(title="zero in place of one", edits=edits, by=alice)
    publish_all(make_assignment("one", order=1))
    key = ("Assignment", "one")
    assert [each.key for each in publishing.moved_of(change)] == [key]
    assert publishing.orders_of(change) is None
    with pytest.raises(PublishingError, match=r"asked as this edit has them: zero, one.* Discard that edit first"):
        rebase(change, alice, take_theirs=[key])
    do(change, publishing.discard_edits, alice, keys=[key])
    assert publishing.orders_of(change) is not None
    do(rebase(change, alice), publishing.publish_change, alice)
    assert order() == ["zero", "one", "two", "three"]


def test_what_is_given_up_stays_out_where_orders_go_together_without_it(alice: User) -> None:
    edits = [Edit.of(make_assignment(name, order=number)) for name, number in (("one", 25), ("three", 35))]
    change = publishing.open_change(title="both", edits=edits, by=alice)
    publish_all(make_assignment("one", order=15), make_assignment("two", order=16))
    rebased = rebase(change, alice, take_theirs=[("Assignment", "one")])
    assert [each.name for each in publishing.edits_of(rebased)] == ["three"]
    do(rebased, publishing.publish_change, alice)
    assert order() == ["one", "two", "three"]
