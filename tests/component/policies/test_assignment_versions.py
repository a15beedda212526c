"""Versions of Assignments: what was published when, by whom and by which Change, what differs, and the way back."""

from typing import Any

import msgspec
import pytest
from django.conf import settings
from django.test import Client

from policies import publishing
from policies.models import Assignment, Change, Part
from policies.publishing import Edit, PublishingError
from tests.builders import TEAM_FILTER, make_assignment, make_rule_set
from tests.component.pages import change_url, confirmed, get, publish_all, publish_staged, stage, text_of
from tests.ledgers import without_triggers

pytestmark = pytest.mark.django_db

PAGE = "/admin/policies/assignment/versions/shop/"


def version(order: int) -> Any:
    return make_assignment("shop", "web", order=order)


@pytest.fixture(autouse=True)
def published() -> None:
    """Three publishes that change it, one that doesn't."""
    publish_all(make_rule_set("web", filters=[TEAM_FILTER]), version(1))
    publish_all(version(2), by="ana")
    publish_all(make_assignment("other", "web"))
    publish_all(version(3))


def numbers() -> list[tuple[int, list[tuple[int, int | None]]]]:
    found = publishing.assignment_versions("shop")
    return [(each.number, [(held.since, held.until) for held in each.held]) for each in found]


class TestVersions:
    def test_are_numbered_by_the_publishes_that_change_it(self) -> None:
        first = publishing.current_revision().number - 3
        assert numbers() == [(1, [(first, first + 1)]), (2, [(first + 1, first + 3)]), (3, [(first + 3, None)])]
        second = publishing.assignment_versions("shop")[1]
        assert (second.value.order, second.held[0].by, second.is_live) == (2, "ana", False)
        change = Change.objects.get(revision=first + 1)
        assert second.held[0].change == change.pk
        assert publishing.assignment_versions("nobody") == []

    def test_gone_back_to_is_the_same_version_again(self) -> None:
        one, *_ = publishing.assignment_versions("shop")
        made = publishing.go_back(version=one, by="ops", reason="3 was wrong")
        assert [(number, len(held)) for number, held in numbers()] == [(1, 2), (2, 1), (3, 1)]
        assert publishing.assignment_versions("shop")[0].is_live
        assert made.change.title == "Go back to shop version 1: 3 was wrong"
        assert {each.name: each.order for each in publishing.current_revision().assignments} == {
            "shop": 1,
            "other": 100,
        }

    def test_of_one_that_was_removed_stay_and_bring_it_back(self) -> None:
        change = publishing.open_change(title="t", edits=[Edit("Assignment", "shop", None)], by="ops")
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        *_, last = publishing.assignment_versions("shop")
        assert not last.is_live
        publishing.go_back(version=last, by="ops", reason="needed after all")
        assert publishing.assignment_versions("shop")[-1].is_live

    def test_what_is_live_is_no_way_back_nor_is_one_whose_rule_set_is_gone(self) -> None:
        with pytest.raises(PublishingError, match="Nothing would change"):
            publishing.go_back(version=publishing.assignment_versions("shop")[-1], by="ops", reason="")
        edits = [Edit("Assignment", name, None) for name in ("shop", "other")] + [Edit("RuleSet", "web", None)]
        change = publishing.open_change(title="t", edits=edits, by="ops")
        publishing.publish_change(change=change, by="ops", expected_digest=change.digest)
        with pytest.raises(PublishingError, match="rule set web has no published version"):
            publishing.go_back(version=publishing.assignment_versions("shop")[0], by="ops", reason="")


class TestThePage:
    def test_lists_versions_and_compares_the_newest_two(self, auditor: Client) -> None:
        said = text_of(get(auditor, PAGE))
        assert "3 ✓ live order 3, every Pod gets web" in said
        assert "ana at" in said
        assert "From version 2 to version 3" in said
        assert "- order: 2" in said
        assert "+ order: 3" in said
        assert "Go back" not in said

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ("?before=1&after=2", "Assignment shop changed: order 1"),
            ("?before=1&after=1", "They are the same."),
            ("?before=0&after=1", "Assignment shop added: order 1"),
            ("?before=x&after=y", "From version 2 to version 3"),
        ],
    )
    def test_compares_any_two_versions_that_the_url_names(self, auditor: Client, query: str, said: str) -> None:
        assert said in text_of(get(auditor, f"{PAGE}{query}"))

    @pytest.mark.parametrize("query", ["?before=999", "?after=999"])
    def test_says_that_a_version_is_not_there(self, auditor: Client, query: str) -> None:
        said = text_of(get(auditor, f"{PAGE}{query}"))
        assert "Not compared" in said
        assert "There is no version 999 of Assignment shop." in said
        assert "From nothing" not in said

    def test_compares_the_newest_version_of_a_removed_assignment_with_no_other(self, operator: Client) -> None:
        stage(Edit("Assignment", "shop", None))
        publish_staged()
        page = get(operator, PAGE).content.decode()
        assert [f"?before={number}" in page for number in (1, 2, 3)] == [True, True, False]
        assert "3/go-back/" in page

    def test_goes_back_after_it_was_confirmed(self, operator: Client) -> None:
        assert "Go back to this version" in text_of(get(operator, PAGE))
        confirmed(operator, f"{PAGE}1/go-back/", "3 was wrong")
        assert publishing.assignment_versions("shop")[0].is_live
        assert Assignment.objects.get(name="shop").order == 1
        assert "Nothing to do" in text_of(get(operator, f"{PAGE}1/go-back/"))

    def test_opens_a_change_where_review_is_required(self, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        reviewed = msgspec.structs.replace(settings.BERTH, review_required=True)
        monkeypatch.setattr(settings, "BERTH", reviewed)
        confirmed(operator, f"{PAGE}1/go-back/", "3 was wrong")
        assert Change.objects.first().state == "in_review"  # type: ignore[union-attr]
        assert publishing.assignment_versions("shop")[-1].is_live

    def test_is_not_there_for_others(self, operator: Client, auditor: Client, client: Client) -> None:
        assert operator.get(PAGE.replace("shop", "nobody")).status_code == 404
        assert operator.get(f"{PAGE}9/go-back/").status_code == 404
        assert auditor.get(f"{PAGE}1/go-back/").status_code == 404
        assert client.get(PAGE).status_code == 302

    def test_is_reached_from_the_page_of_the_assignment(self, auditor: Client) -> None:
        page = get(auditor, change_url("assignment", Assignment.objects.get(name="shop").pk))
        assert PAGE in page.content.decode()
        assert "3 versions: compare versions or go back to one" in text_of(page)


def test_rest_has_the_versions_with_who_made_each_live(auditor: Client) -> None:
    found = auditor.get("/api/v1/assignments/shop").json()["versions"]
    assert [each["number"] for each in found] == [1, 2, 3]
    assert [each["is_live"] for each in found] == [False, False, True]
    assert found[1]["held"][0]["by"] == "ana"
    assert found[0]["document"]["spec"]["order"] == 1


@pytest.fixture
def unreadable() -> None:
    """Version 1 is one that a newer Berth wrote."""
    without_triggers()  # which keep parts as they are
    Part.objects.filter(digest=publishing.assignment_versions("shop")[0].digest).update(document='{"name": []}')


@pytest.mark.usefixtures("unreadable")
@pytest.mark.parametrize(
    "path",
    [
        "",
        PAGE,
        f"{PAGE}?before=1&after=2",
        f"{PAGE}1/go-back/",
        "/admin/policies/compare/?kind=Assignment&name=shop&before=1&after=2",
    ],
)
def test_a_version_that_a_newer_berth_wrote_is_said_to_be_unreadable(operator: Client, path: str) -> None:
    said = text_of(get(operator, path or change_url("assignment", Assignment.objects.get(name="shop").pk)))
    assert "Assignment shop version 1 can't be read: a newer version of Berth wrote it." in said


@pytest.mark.usefixtures("unreadable")
def test_rest_has_a_version_that_a_newer_berth_wrote_without_its_document(auditor: Client) -> None:
    found = auditor.get("/api/v1/assignments/shop").json()["versions"]
    assert [each["document"] is None for each in found] == [True, False, False]
