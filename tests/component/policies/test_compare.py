"""Any two versions, Revisions and Changes beside each other, and the whole documents below the sentences."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from policies.changes_in_words import rule_set_changes
from policies.models import Change, Revision, RuleSet, RuleSetVersion
from tests.builders import make_assignment, make_priority_class, make_rule_set
from tests.component.pages import change_url, get, opened, publish, publish_all, text_of

pytestmark = pytest.mark.django_db


def team(expression: str, name: str = "web", **spec: Any) -> Any:
    return make_rule_set(name, filters=[{"name": "team", "expression": expression, "reason": "no"}], **spec)


def read(client: Client, path: str) -> str:
    """Return what a page says, without the marks on words."""
    page = get(client, path)
    page.content = re.sub(rb"</?(ins|del|mark)>", b"", page.content)
    return text_of(page)


def compare_url(kind: str, before: int, after: int, name: str = "") -> str:
    return reverse("compare", query={"kind": kind, "name": name, "before": before, "after": after})


def newest() -> int:
    return Revision.objects.values_list("number", flat=True)[0]


def test_two_versions_of_a_rule_set_are_compared_and_its_pages_ask_for_them(auditor: Client) -> None:
    for expression in ("1 > 0", "1 > 0 || true"):
        publish(team(expression))
    assert "“1 > 0” → “1 > 0 || true”" in read(auditor, compare_url("RuleSet", 1, 2, "web"))
    page = get(auditor, compare_url("RuleSet", 1, 2, "web")).content.decode()
    assert "<mark> || true</mark>" in page
    assert 'name="before" value="1"' in page
    assert "rule set web version 2 published in place of 1" in read(auditor, compare_url("RuleSet", 1, 2, "web"))
    for version in RuleSetVersion.objects.all():
        assert f'href="{change_url("rulesetversion", version.pk)}"' in page
    rule_set = RuleSet.objects.get(name="web")
    pages = [change_url("ruleset", rule_set.pk), change_url("rulesetversion", rule_set.versions.latest("number").pk)]
    for path in (*pages, change_url("revision", newest()), change_url("change", Change.objects.latest("pk").pk)):
        assert 'action="/admin/policies/compare/"' in get(auditor, path).content.decode(), path


@pytest.mark.parametrize(
    ("kind", "versions", "said"),
    [
        ("Assignment", [make_assignment(order=1), make_assignment(order=2)], ("- order: 1", "+ order: 2")),
        (
            "PriorityClass",
            [make_priority_class(description="first"), make_priority_class(description="second")],
            ("- description: first", "+ description: second"),
        ),
    ],
)
def test_two_versions_of_others_are_compared(auditor: Client, kind: str, versions: list[Any], said: list[str]) -> None:
    publish(make_rule_set())
    for version in versions:
        publish_all(version)
    text = read(auditor, compare_url(kind, 1, 2, versions[0].name))
    page = get(auditor, compare_url(kind, 1, 2, versions[0].name)).content.decode()
    for url in re.findall(rf'href="([^"]+)">{kind} {versions[0].name} version \d</a>', page):
        get(auditor, url.partition("#")[0])
    assert page.count("version 1</a>") == page.count("version 2</a>") == 1
    assert f"{kind} {versions[0].name} version 1 compared with nothing" in read(
        auditor, compare_url(kind, 0, 1, versions[0].name)
    )
    assert [each for each in said if each not in text] == []


def test_two_revisions_are_compared_however_far_apart_they_are_and_whichever_comes_first(auditor: Client) -> None:
    publish(team("1 > 0"))
    first = newest()
    publish(team("2 > 0"))
    publish_all(make_assignment())
    publish(team("1 > 0"))  # a version of its own that says what the first says
    publish(make_rule_set("other"))
    there = read(auditor, compare_url("Revision", first, newest()))
    assert "Assignment all-web added" in there
    assert "rule set other version 1 published" in there
    assert "2 > 0" not in there
    back = text_of(get(auditor, compare_url("Revision", newest(), first)))
    assert "Assignment all-web removed" in back
    nothing = text_of(get(auditor, compare_url("Revision", 0, first)))
    assert "rule set web version 1 published" in nothing


def test_two_changes_are_compared_by_what_each_makes(auditor: Client) -> None:
    publish(team("1 > 0"))
    one, other = opened(team("2 > 0")), opened(team("3 > 0"), make_rule_set("new"))
    text = read(auditor, compare_url("Change", one.pk, other.pk))
    assert "expression “2 > 0” → “3 > 0”" in text
    assert "rule set new added" in text


def test_edits_of_changes_have_no_version_zero(auditor: Client) -> None:
    publish_all(team("1 > 0"), make_priority_class(value=1))
    one, other = opened(team("2 > 0"), make_priority_class(value=2)), opened(make_rule_set("new"))
    again = opened(team("3 > 0"), make_priority_class(value=3))
    there = read(auditor, compare_url("Change", one.pk, other.pk))
    assert "rule set web version 1, compared with an edit that isn't live" in there
    assert "PriorityClass batch version 1, compared with an edit that isn't live:" in there
    between = read(auditor, compare_url("Change", one.pk, again.pk))
    assert "rule set web changed, compared with another edit" in between
    assert "PriorityClass batch changed, compared with another edit:" in between
    assert "rule set web changed, compared with version 1" in read(auditor, compare_url("Change", other.pk, one.pk))
    for text in (there, between):
        assert not re.search(r"(version|place of) 0", text)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "Compare any two versions of an object"),
        ("before=1&after=2", "Choose what to compare"),
        ("kind=Revision&before=1", "Enter two numbers"),
        ("kind=Revision&before=1&after=99999999", "There is no Revision 99999999"),
        ("kind=Change&before=1&after=99999999", "There is no Change"),
        ("kind=RuleSet&name=none&before=1&after=2", "There is no version 1 of rule set none"),
        ("kind=PriorityClass&name=none&before=1&after=2", "There is no version 1"),
        ("kind=Assignment&name=none&before=1&after=2", "There is no version 1"),
        ("kind=Pod&before=1&after=2", "Choose what to compare"),
        ("kind=RuleSet&name=web&before=1&after=1", "They are the same"),
    ],
)
def test_what_cant_be_compared_is_said(auditor: Client, query: str, said: str) -> None:
    publish(make_rule_set())
    assert said in text_of(get(auditor, f"/admin/policies/compare/?{query}"))


def test_a_page_beyond_the_last_one_says_not_that_both_sides_are_the_same(auditor: Client) -> None:
    publish(make_rule_set())
    page = get(auditor, f"{compare_url('Revision', 0, newest())}&p=99")
    assert "1 object differs. " in text_of(page)
    assert "There is nothing on this page." in text_of(page)
    assert "They are the same." not in text_of(page)
    assert '&amp;p=1" rel="prev"' in page.content.decode()


def test_a_change_its_revision_and_the_way_back_show_whole_documents(operator: Client) -> None:
    publish(team("1 > 0"))
    first = newest()
    change = opened(team("1 > 0 || true"))
    assert "Full YAML diff: 1 line added, 1 removed" in text_of(get(operator, change_url("change", change.pk)))
    publish(team("1 > 0 || true"))
    for page in (change_url("revision", newest()), f"/admin/policies/revision/{first}/roll_back/"):
        assert "Full YAML diff: 1 line added, 1 removed" in text_of(get(operator, page)), page


def test_archiving_says_what_goes(operator: Client) -> None:
    publish(team("1 > 0"))
    page = get(operator, f"/admin/policies/ruleset/{RuleSet.objects.get(name='web').pk}/archive/")
    assert "rule set web archived" in text_of(page)
    assert "Full YAML diff: 0 lines added" in text_of(page)


def test_tests_that_come_go_and_change_are_named() -> None:
    def tested(*names: str, best: str = "n1") -> Any:
        return team("1 > 0", tests=[{"name": name, "pod": {}, "expect": {"best": best}} for name in names])

    lines = rule_set_changes(tested("stays", "goes"), tested("stays", "comes", best="n2"))
    assert lines == [
        "test comes added: best n2",
        "test goes removed: best n1",
        "test stays changed: expects “best n1” → “best n2”",
    ]
    assert rule_set_changes(tested("a", "b"), tested("b", "a")) == ["tests reordered: b, a"]


def test_who_may_not_see_changes_compares_none(client: Client, django_user_model: Any) -> None:
    publish(team("1 > 0"))
    publish(team("1 > 0 || true"))
    user = django_user_model.objects.create_user("reader", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="view_revision"))
    client.force_login(user)
    numbers = Change.objects.order_by("pk").values_list("pk", flat=True)
    assert client.get(compare_url("Change", *numbers)).status_code == 403
    assert "<option>Change</option>" not in get(client, reverse("compare")).content.decode()
    assert client.get(compare_url("Revision", 1, 2)).status_code == 200
