"""A Change begun with its title alone, and things edited into it from its page."""

import html
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone

from policies import publishing
from policies.admin import edit_into
from policies.models import Change
from tests.builders import make_assignment, make_exemption, make_pause, make_priority_class, make_rule_set
from tests.component.pages import change_url, edit_page, form_data, get, new_row, opened, publish_all, text_of

pytestmark = pytest.mark.django_db
LIST = "/admin/policies/change/"
ADD = f"{LIST}add/"


def begin(client: Client, title: str = "rules of the shop", reason: str = "OPS-1") -> Change:
    said = text_of(client.post(ADD, {"title": title, "reason": reason}, follow=True))
    change = Change.objects.get(title=title)
    assert f"{change} was opened. It has no edits yet" in said
    return change


def edit_url(change: Change, thing: str) -> str:
    return f"{LIST}{change.pk}/edit/?thing={thing}"


def test_the_list_offers_a_new_one_to_who_may_edit(operator: Client, auditor: Client, approver: Client) -> None:
    assert f'href="{ADD}' in get(operator, LIST).content.decode()
    for client in (auditor, approver):
        assert ADD not in get(client, LIST).content.decode().split('id="main"')[-1]
        assert client.get(ADD).status_code == 403
        assert client.post(ADD, {"title": "x"}).status_code == 403
    assert not Change.objects.exists()


def test_a_new_change_that_is_sent_twice_is_opened_once_until_it_has_edits(operator: Client) -> None:
    change = begin(operator)
    assert begin(operator) == change
    begin(operator, title="another")
    publishing.edit_change(
        change=change, edits=[publishing.Edit.of(make_rule_set("shop"))], by="operator", expected_digest=change.digest
    )
    operator.post(ADD, {"title": change.title, "reason": change.reason})
    assert Change.objects.count() == 3
    Change.objects.update(moved_at=timezone.now() - timedelta(minutes=2))
    operator.post(ADD, {"title": change.title, "reason": change.reason})
    assert Change.objects.count() == 4


def test_a_change_is_begun_with_a_title_and_a_rule_set_written_into_it(operator: Client) -> None:
    change = begin(operator)
    assert (change.state, change.reason, change.opened_by) == ("draft", "OPS-1", "operator")
    page = get(operator, change_url("change", change.pk))
    assert "Nothing: this Change has no edits." in text_of(page)
    assert "What do you want to edit in this Change?" in text_of(page)
    add = f"/admin/policies/ruleset/add/?change={change.pk}"
    assert add in html.unescape(page.content.decode())
    form = operator.post(add, {"name": "shop", "description": ""})
    assert form["Location"].startswith(edit_page("shop").partition("?")[0])
    assert f"change={change.pk}" in form["Location"]
    loaded = get(operator, form["Location"])
    data = form_data(loaded)
    assert data["goes_into"] == str(change.pk)
    new_row(data, "filters", builtin="PodFitsHost")
    operator.post(form["Location"], data, follow=True)
    assert [edit.name for edit in change.edits.all()] == ["shop"]
    assert Change.objects.count() == 1


@pytest.mark.parametrize(
    ("kind", "asked"),
    [
        ("RuleSet", "web"),
        ("RuleSet", "RuleSet/web"),
        ("Assignment", "all"),
        ("PriorityClass", "batch"),
        ("PriorityClass", "%20batch%20"),
    ],
)
def test_what_is_live_is_edited_into_it_in_one_step(operator: Client, kind: str, asked: str) -> None:
    publish_all(make_rule_set("web"), make_assignment("all", "web"), make_priority_class("batch"))
    change = begin(operator)
    page = operator.get(edit_url(change, asked), follow=True)
    assert page.status_code == 200
    form = page.context["adminform"].form
    assert (form.key()[0], form["goes_into"].value()) == (kind, str(change.pk))


def test_a_name_that_isnt_there_is_said_with_what_is_meant_and_stays_typed(operator: Client) -> None:
    publish_all(make_rule_set("web-shop"))
    change = begin(operator)
    page = operator.get(edit_url(change, "web-shp"))
    assert "called web-shp, live or in this Change. Did you mean RuleSet/web-shop?" in text_of(page)
    assert 'value="web-shp"' in page.content.decode()
    assert "Enter what to edit" in text_of(operator.get(edit_url(change, "")))


def test_what_has_no_form_is_not_offered_and_said(operator: Client) -> None:
    publish_all(make_rule_set("web"), make_exemption(), make_pause())
    change = begin(operator)
    offered = re.findall(r'<option value="([^"]+)">', get(operator, change_url("change", change.pk)).content.decode())
    assert offered == ["RuleSet/web"]
    for thing in ("cart", "Pause/web-paused"):
        said = f"There is no rule set, Assignment or PriorityClass called {thing}"
        assert said in text_of(operator.get(edit_url(change, thing)))


def test_a_name_that_two_have_asks_which(operator: Client) -> None:
    publish_all(make_rule_set("web"), make_assignment("web", "web"))
    change = begin(operator)
    assert "Assignment/web, RuleSet/web. Add the kind." in text_of(operator.get(edit_url(change, "web")))
    assert operator.get(edit_url(change, "Assignment/web")).status_code == 302


def test_the_field_offers_what_is_live_and_what_is_new_in_it_up_to_a_bound(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_all(make_rule_set("web"), make_assignment("all", "web"))
    change = opened(make_rule_set("shop"), by="ops")

    def offered() -> list[str]:
        return re.findall(
            r'<option value="([^"]+/[^"]+)">', get(operator, change_url("change", change.pk)).content.decode()
        )

    assert offered() == ["Assignment/all", "RuleSet/shop", "RuleSet/web"]
    monkeypatch.setattr(edit_into, "MOST_OFFERED", 1)
    assert offered() == ["Assignment/all"]
    assert operator.get(edit_url(change, "web")).status_code == 302


def test_who_may_not_edit_is_offered_nothing_and_a_closed_change_takes_nothing(
    operator: Client, auditor: Client
) -> None:
    change = begin(operator)
    assert 'id="edit-into"' not in get(auditor, change_url("change", change.pk)).content.decode()
    publishing.withdraw_change(change=change, by="ops")
    assert 'id="edit-into"' not in get(operator, change_url("change", change.pk)).content.decode()


def test_who_comes_by_the_address_is_told_why_a_thing_cant_be_edited_into_it(
    operator: Client, auditor: Client, approver: Client
) -> None:
    publish_all(make_rule_set("web"))
    change = begin(operator)
    for client in (auditor, approver):
        assert "Your role can't edit RuleSet/web." in text_of(get(client, edit_url(change, "web")))
    publishing.withdraw_change(change=change, by="ops")
    assert "This can't be done" in text_of(get(operator, edit_url(change, "web")))


def test_who_may_edit_only_some_kinds_is_told_so_of_the_others(client: Client, django_user_model: Any) -> None:
    publish_all(make_rule_set("web"), make_priority_class("gold"))
    change = publishing.begin_once(title="mine", by="ops", reason="")
    user = django_user_model.objects.create(username="rules-only", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_change", "change_ruleset"]))
    client.force_login(user)
    assert "Your role can't edit PriorityClass/gold." in text_of(get(client, edit_url(change, "gold")))


@pytest.mark.parametrize("given", [{"title": ""}, {"title": "x" * 201}, {"title": "a\x1b[31mb", "reason": ""}])
def test_a_title_that_is_none_is_refused_at_its_place_and_stays_typed(operator: Client, given: dict[str, Any]) -> None:
    page = operator.post(ADD, {"reason": "typed already", **given})
    assert page.status_code == 200
    assert "typed already" in page.content.decode() or "reason" in given
    assert not Change.objects.exists()
    assert "berth-error" in page.content.decode() or "This can't be done" in text_of(page)
