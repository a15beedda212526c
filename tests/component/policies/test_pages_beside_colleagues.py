"""Pages of two people at once: nothing is published that wasn't shown, and no save is lost."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from policies import publishing
from policies.models import Assignment, PriorityClass, Revision, RuleSet, RuleSetVersion
from policies.publishing import current_revision
from tests.builders import make_assignment, make_priority_class, make_rule_set
from tests.component.pages import change_url, form_data, get, publish, text_of
from tests.component.policies.test_publishing import _at_once as at_once

pytestmark = pytest.mark.django_db


def save_assignment(order: int, by: str = "ops") -> None:
    publishing.save_assignment(assignment=make_assignment(order=order), by=by)


def save_class(value: int, by: str = "ops") -> None:
    publishing.save_priority_class(priority_class=make_priority_class(value=value), by=by)


class Kind:
    """Assignments or PriorityClasses, as a test treats both alike."""

    def __init__(self, model: Any, save: Callable[..., None], field: str) -> None:
        self.model, self.save, self.field = model, save, field
        self.list = f"/admin/policies/{model._meta.model_name}/"
        self.publish = f"{self.list}publish/"

    def page(self) -> str:
        return change_url(self.model._meta.model_name, self.model.objects.get().pk)

    def number(self) -> int:
        return int(getattr(self.model.objects.get(), self.field))

    def live(self) -> list[int]:
        revision = current_revision()
        found: list[Any] = revision.assignments if self.model is Assignment else list(revision.priority_classes)
        return [getattr(each, self.field) for each in found]

    def publish_all(self, **options: Any) -> Revision | None:
        verb = publishing.publish_assignments if self.model is Assignment else publishing.publish_priority_classes
        return verb(by="ops", reason="tested", **options)


@pytest.fixture(params=["assignment", "priority class"])
def kind(request: pytest.FixtureRequest) -> Kind:
    publish(make_rule_set())
    if request.param == "assignment":
        made = Kind(Assignment, save_assignment, "order")
    else:
        made = Kind(PriorityClass, save_class, "value")
    made.save(10)
    return made


def confirmed(page: Any, reason: str = "ticket 7") -> dict[str, str]:
    """Return what the browser sends when the button is pressed on a page that was loaded."""
    return {"reason": reason, "digest": page.context["confirmation"].digest}


class TestPublishing:
    def test_what_was_shown_is_published(self, operator: Client, kind: Kind) -> None:
        page = get(operator, kind.publish)
        assert "Revision 2 was made" in text_of(operator.post(kind.publish, confirmed(page), follow=True))
        assert kind.live() == [10]

    def test_what_a_colleague_saved_since_is_not_and_the_page_comes_anew(self, operator: Client, kind: Kind) -> None:
        page = get(operator, kind.publish)
        kind.save(20, by="alice")
        again = operator.post(kind.publish, confirmed(page, "ticket 8"))
        assert "Somebody was faster: this changed since you looked at it" in text_of(again)
        assert kind.live() == []
        assert "20" in " ".join(map(str, again.context["confirmation"].changes))
        assert again.context["form"]["reason"].value() == "ticket 8"
        assert b'name="reason"' in again.content
        operator.post(kind.publish, confirmed(again))
        assert kind.live() == [20]

    def test_the_page_that_comes_anew_carries_the_new_digest_to_the_browser(self, operator: Client, kind: Kind) -> None:
        page = get(operator, kind.publish)
        kind.save(20, by="alice")
        again = operator.post(kind.publish, confirmed(page))
        assert f'value="{again.context["confirmation"].digest}"' in again.content.decode()
        assert f'value="{page.context["confirmation"].digest}"' not in again.content.decode()

    def test_a_row_that_a_colleague_removed_since_is_not_removed_unseen(self, operator: Client, kind: Kind) -> None:
        kind.publish_all()
        kind.save(20)
        page = get(operator, kind.publish)
        kind.model.objects.all().delete()
        again = operator.post(kind.publish, confirmed(page))
        assert kind.live() == [10]
        assert "removed" in text_of(again)

    def test_what_a_colleague_published_since_is_said(self, operator: Client, kind: Kind) -> None:
        page = get(operator, kind.publish)
        kind.publish_all()
        again = text_of(operator.post(kind.publish, confirmed(page)))
        assert "Nothing to publish" in again
        assert Revision.objects.count() == 2


class TestForms:
    def test_a_save_over_a_colleagues_is_refused_and_names_who_and_when(self, operator: Client, kind: Kind) -> None:
        data = form_data(get(operator, kind.page()))
        kind.save(20, by="alice")
        at = kind.model.objects.get().updated_at
        response = operator.post(kind.page(), data | {kind.field: "30"})
        said = text_of(response)
        assert f"alice saved {kind.model.objects.get()} at {at:%Y-%m-%d %H:%M:%S} UTC, after you opened it." in said
        assert kind.number() == 20
        assert str(response.context["adminform"].form[kind.field].value()) == "30"

    def test_saving_again_after_that_replaces_theirs(self, operator: Client, kind: Kind) -> None:
        data = form_data(get(operator, kind.page()))
        kind.save(20, by="alice")
        again = form_data(operator.post(kind.page(), data | {kind.field: "30"}))
        assert operator.post(kind.page(), again | {kind.field: "30"})["Location"] == kind.list
        assert kind.number() == 30
        assert kind.model.objects.get().author == "operator"

    def test_a_form_without_the_digest_overwrites_nothing(self, operator: Client, kind: Kind) -> None:
        data = form_data(get(operator, kind.page()))
        del data["loaded_digest"]
        assert operator.post(kind.page(), data | {kind.field: "30"}).status_code == 200
        assert kind.number() == 10

    def test_the_same_edit_by_both_is_no_conflict(self, operator: Client, kind: Kind) -> None:
        data = form_data(get(operator, kind.page()))
        kind.save(30, by="alice")
        assert operator.post(kind.page(), data | {kind.field: "30"})["Location"] == kind.list

    def test_who_only_reads_gets_no_hidden_field(self, auditor: Client, kind: Kind) -> None:
        page = get(auditor, kind.page())
        assert b"loaded_digest" not in page.content

    def test_the_list_says_who_edited_last(self, auditor: Client, kind: Kind) -> None:
        kind.save(20, by="alice")
        row = kind.model.objects.get()
        assert f"alice at {row.updated_at:%Y-%m-%d %H:%M} UTC" in text_of(get(auditor, kind.list))


class TestRevisions:
    def test_a_roll_back_over_a_later_revision_is_refused(self, operator: Client) -> None:
        publish(make_rule_set())
        publish(make_rule_set(filters=[{"builtin": "MatchNodeSelector"}]))
        url = change_url("revision", 1).replace("change", "roll_back")
        page = get(operator, url)
        publish(make_rule_set("late"), by="alice")
        again = operator.post(url, confirmed(page, "ticket 9"))
        assert "Somebody was faster" in text_of(again)
        assert "rule set late withdrawn" in text_of(again)
        assert again.context["form"]["reason"].value() == "ticket 9"
        assert Revision.objects.count() == 3
        operator.post(url, confirmed(again))
        assert [each.name for each in current_revision().rule_sets] == ["web"]

    def test_a_withdrawal_over_a_later_revision_is_refused(self, operator: Client) -> None:
        publish(make_rule_set())
        url = change_url("ruleset", RuleSet.objects.get().pk).replace("change", "withdraw")
        page = get(operator, url)
        publish(make_rule_set("late"), by="alice")
        assert "Somebody was faster" in text_of(operator.post(url, confirmed(page)))
        assert Revision.objects.count() == 2

    def test_a_draft_that_a_colleague_saved_since_is_shown_anew(self, operator: Client) -> None:
        draft = publishing.create_rule_set(name="web", description="", by="ops")
        publishing.save_draft(version=draft, rule_set=make_rule_set(), by="ops")
        url = change_url("rulesetversion", draft.pk).replace("change", "publish")
        page = get(operator, url)
        publishing.save_draft(
            version=draft, rule_set=make_rule_set(filters=[{"builtin": "MatchNodeSelector"}]), by="alice"
        )
        again = operator.post(url, confirmed(page, "ticket 9"))
        assert "alice saved it" in text_of(again)
        assert "MatchNodeSelector" in " ".join(map(str, again.context["confirmation"].changes))
        assert again.context["form"]["reason"].value() == "ticket 9"
        assert RuleSetVersion.objects.get().state == "draft"


@pytest.mark.django_db(transaction=True)
class TestAtOnce:
    def test_many_who_looked_at_the_same_publish_it_once(self, kind: Kind) -> None:
        shown = publishing.digest_of_shown(*self.before_and_after(kind))
        made = at_once(6, lambda _index: kind.publish_all(expected_digest=shown))
        refused = [each for each in made if isinstance(each, publishing.PublishingError)]
        assert len(refused) == 5
        assert all("Somebody was faster" in str(each) for each in refused)
        assert Revision.objects.count() == 2

    def test_a_save_at_the_same_moment_never_goes_along(self, kind: Kind) -> None:
        for number in range(11, 21):
            shown = publishing.digest_of_shown(*self.before_and_after(kind))
            expected = kind.number()

            def act(index: int, shown: str = shown, number: int = number) -> object:
                return kind.save(number, by="alice") if index else kind.publish_all(expected_digest=shown)

            published, _saved = at_once(2, act)
            if isinstance(published, Revision):
                assert kind.live() == [expected]
            else:
                assert isinstance(published, publishing.PublishingError)
            assert kind.number() == number

    def test_two_forms_saved_at_once_lose_none_silently(self, operator: Client, approver: Client, kind: Kind) -> None:
        data = form_data(get(operator, kind.page()))
        page = kind.page()
        users = [self.another(operator), self.another(operator)]
        said = at_once(2, lambda index: users[index].post(page, data | {kind.field: str(40 + index)}).status_code)
        assert sorted(map(int, map(str, said))) == [200, 302]

    def another(self, client: Client) -> Client:
        other = type(client)()
        other.cookies = client.cookies
        return other

    def before_and_after(self, kind: Kind) -> tuple[object, object]:
        current = current_revision()
        if kind.model is PriorityClass:
            return current.priority_classes, publishing.wanted_priority_classes(current.priority_classes)
        return current.assignments, [publishing.assignment_of_row(row) for row in Assignment.objects.all()]
