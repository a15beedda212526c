"""The order of Assignments: moved by buttons, kept in a Change, refused when somebody else was faster."""

import pytest
from django.test import Client

from policies import publishing
from policies.models import Change
from tests.builders import make_assignment, make_rule_set
from tests.component.pages import get, publish, publish_all, publish_staged, stage, text_of

pytestmark = pytest.mark.django_db

PAGE = "/admin/policies/assignment/order/"


@pytest.fixture(autouse=True)
def _live() -> None:
    publish(make_rule_set())
    publish_all(*(make_assignment(name, order=order) for name, order in (("one", 10), ("two", 20), ("three", 30))))


def typed(response: object) -> dict[str, str]:
    context = response.context  # type: ignore[attr-defined]
    return {name: context[name] for name in ("names", "digest")}


def test_moving_writes_nothing_and_shows_which_number_changes(operator: Client) -> None:
    before = Change.objects.count()
    page = operator.post(PAGE, {**typed(get(operator, PAGE)), "move": "up three"})
    assert [row["name"] for row in page.context["rows"]] == ["one", "three", "two"]
    assert sum(row["becomes"] is not None for row in page.context["rows"]) == 1
    page = operator.post(PAGE, {**typed(page), "move": "down one"})
    assert page.context["names"] == "three one two"
    assert operator.post(PAGE, {**typed(page), "move": "up three"}).context["names"] == "three one two"
    assert operator.post(PAGE, {**typed(page), "move": "sideways none"}).context["names"] == "three one two"
    assert Change.objects.count() == before


@pytest.mark.parametrize(
    "button", [{"move": "to"}, {"enter": "yes"}], ids=["its button", "Enter, which presses the first"]
)
def test_one_is_moved_to_a_place_of_another_page(operator: Client, button: dict[str, str]) -> None:
    """Up and down, from the last of 2,000 to the third place is 1,997 clicks."""
    publish_all(*(make_assignment(f"more-{number}", order=100 + number) for number in range(400)))
    before = Change.objects.count()
    page = operator.post(
        PAGE, {**typed(get(operator, PAGE)), "move_name": "more-399", "move_place": "2", "p": "3", **button}
    )
    assert page.context["names"].split()[:3] == ["one", "more-399", "two"]
    assert [row["name"] for row in page.context["rows"]][:2] == ["one", "more-399"]
    assert page.context["typed"] == ["", ""]
    assert Change.objects.count() == before


@pytest.mark.parametrize(
    ("name", "place", "says"),
    [
        ("none", "2", "There is no live Assignment “none”."),
        ("three", "", "There is no place “”: places are 1 to 3."),
        ("three", "0", "There is no place “0”: places are 1 to 3."),
        ("three", "4", "There is no place “4”: places are 1 to 3."),
        ("three", "first", "There is no place “first”: places are 1 to 3."),
        ("three", "1" * 5000, f"There is no place “{'1' * 253}”: places are 1 to 3."),
    ],
)
def test_what_cannot_be_moved_there_is_said_and_stays_typed(operator: Client, name: str, place: str, says: str) -> None:
    page = operator.post(PAGE, {**typed(get(operator, PAGE)), "move_name": name, "move_place": place, "enter": "yes"})
    assert page.context["faults"] == [says]
    assert page.context["names"] == "one two three"
    assert page.context["typed"] == [name, place]


def test_a_move_without_a_name_and_a_place_says_what_to_type(operator: Client) -> None:
    page = operator.post(PAGE, {**typed(get(operator, PAGE)), "move_name": "", "move_place": "", "move": "to"})
    assert page.context["faults"] == ["Type the name of an Assignment, and its new place."]


@pytest.mark.parametrize("left", [{"enter": "yes"}, {"save": "yes", "move_name": "three", "move_place": "1"}])
def test_enter_elsewhere_and_the_button_save_the_order_as_it_is_shown(operator: Client, left: dict[str, str]) -> None:
    looked = typed(get(operator, PAGE)) | {"names": "two one three"}
    assert operator.post(PAGE, {**looked, **left}).status_code == 302
    edits = Change.objects.latest("pk").edits.values_list("name", flat=True)
    assert "three" not in edits


def test_an_order_becomes_a_change(operator: Client) -> None:
    digest = get(operator, PAGE).context["digest"]
    asked = {"names": "three two one", "digest": digest, "reason": "the narrow ones first", "save": "yes"}
    assert operator.post(PAGE, asked).status_code == 302
    change = Change.objects.latest("pk")
    assert change.reason == "the narrow ones first"
    publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
    live = publishing.asked_in_order(publishing.current_revision().assignments)
    assert [each.name for each in live] == ["three", "two", "one"]


def test_who_comes_second_is_told_and_keeps_the_order_and_the_reason(operator: Client) -> None:
    digest = get(operator, PAGE).context["digest"]
    publish_all(make_assignment("one", order=99), by="bob")
    asked = {"names": "three two one", "digest": digest, "reason": "typed with care", "save": "yes"}
    refused = operator.post(PAGE, asked)
    assert "Somebody was faster" in text_of(refused)
    assert refused.context["names"] == "three two one"
    assert b"typed with care" in refused.content
    assert refused.context["digest"] != digest
    assert not Change.objects.filter(state="draft").exists()


def test_who_moves_after_somebody_elses_order_is_told_before_they_save_it(operator: Client) -> None:
    looked = typed(get(operator, PAGE))
    publish_all(make_assignment("three", order=5), by="bob")
    page = operator.post(PAGE, {**looked, "move": "up two"})
    assert page.context["names"] == "two one three"
    assert "Somebody else has published Assignments since you opened this page" in text_of(page)
    page = operator.post(PAGE, {**typed(page), "move": "down two"})
    assert "Somebody else" not in text_of(page)


def test_what_was_moved_is_kept_where_somebody_else_has_added_and_removed_one(operator: Client) -> None:
    looked = typed(get(operator, PAGE)) | {"names": "three two one"}
    publish_all(make_assignment("new", order=15), by="bob")
    refused = operator.post(PAGE, {**looked, "save": "yes"})
    assert "Somebody was faster" in text_of(refused)
    assert refused.context["names"] == "three two one new"
    stage(publishing.Edit("Assignment", "two", None))
    publish_staged()
    assert operator.post(PAGE, {**typed(refused), "move": "up new"}).context["names"] == "three new one"


@pytest.mark.parametrize("names", ["", "one", "one two two three", "one two three none"])
def test_what_isnt_all_of_them_is_the_live_order(operator: Client, names: str) -> None:
    page = operator.post(PAGE, {"names": names, "move": "up one"})
    assert sorted(page.context["names"].split()) == ["one", "three", "two"]


def test_the_live_order_again_is_no_change_and_an_auditor_moves_nothing(operator: Client, auditor: Client) -> None:
    asked = typed(get(operator, PAGE)) | {"save": "yes"}
    assert "Nothing would change" in text_of(operator.post(PAGE, asked))
    assert auditor.get(PAGE).status_code == 403
