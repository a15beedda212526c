"""The frame around the pages: its error pages, its keys, what Ctrl-K finds, what it weighs."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import unfold
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.utils import label_for_field
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.db import connection
from django.http import HttpResponse
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from controlplane.compression import Gzip
from controlplane.errors import fault
from controlplane.palette import find
from controlplane.site import navigation
from controlplane.statics import digest_of_statics
from policies import publishing
from policies.models import Change, Revision, RuleSet, RuleSetVersion
from scheduler.models import Decision
from tests.builders import TEAM_FILTER, make_assignment, make_priority_class, make_rule_set
from tests.component.controlplane.test_pages import make_decision
from tests.component.pages import get, opened, publish, publish_all, text_of
from tests.conftest import HTTPSClient
from tests.lived_in import lived_in, pages_of
from tests.security.people import knocking

pytestmark = pytest.mark.django_db
FONTS = settings.BASE_DIR / "controlplane" / "static" / "berth" / "fonts"


def test_labels_of_lists_on_phones_have_one_capital_as_their_columns_have() -> None:
    css = (settings.BASE_DIR / "controlplane" / "static" / "berth" / "berth.css").read_text()
    assert '#result_list [data-label*=" "]::before { text-transform: none; }' in css
    for model, pages in admin.site._registry.items():
        for name in pages.list_display:
            label = str(label_for_field(name, model, pages))
            # The head of a table is in capitals by its template, what stands beside a cell isn't.
            if " " in label and label[0].islower():
                assert f'.field-{name}::before {{ content: "{label.capitalize()}"; }}' in css, (model, name)


def test_what_a_field_names_as_its_description_is_on_the_page() -> None:
    """A screen reader reads the help of a field by that ID; axe doesn't miss what isn't there."""
    lived_in()
    client = knocking("superuser")
    missing, described = {}, 0
    for page in pages_of(client).values():
        text = client.get(page.url).content.decode()
        ids = set(re.findall(r'\sid="([^"]+)"', text))
        named = {each for value in re.findall(r'aria-describedby="([^"]*)"', text) for each in value.split()}
        described += len(named)
        missing |= {page.url: named - ids} if named - ids else {}
    assert missing == {}
    assert described > 100


@pytest.mark.parametrize("app", ["policies", "scheduler", "auth"])
def test_what_breadcrumbs_lead_to_lists_the_whole_menu(operator: Client, app: str) -> None:
    if app == "auth":
        operator.force_login(User.objects.create_superuser("root"))
    page = get(operator, f"/admin/{app}/")
    shown = page.content.decode().partition('id="all-pages"')[2].partition("</main>")[0]
    items = [item for group in navigation(page.wsgi_request) for item in group["items"]]
    assert len(items) > 10
    for item in items:
        assert f'href="{item["link"]}">{item["title"]}</a>' in shown
    assert "administration" not in text_of(page)


def test_who_may_not_is_told_who_may(auditor: Client) -> None:
    page = auditor.get("/admin/policies/ruleset/add/")
    assert page.status_code == 403
    assert "as Auditor" in text_of(page)
    assert "People with the role Operator can do it" in text_of(page)
    assert b'id="nav-sidebar"' in page.content


def test_who_may_not_even_see_is_told_of_all_roles_that_see(client: Client) -> None:
    """And not of those alone that may change it, too: an Auditor needs no more to read rule sets."""
    client.force_login(User.objects.create(username="new", is_staff=True))
    page = client.get("/admin/policies/ruleset/")
    assert "People with the role Operator, Approver, Emergency and Auditor can do it" in text_of(page)


def test_several_roles_that_may_are_all_named(auditor: Client) -> None:
    number = publish(make_rule_set(filters=[TEAM_FILTER])).pk
    page = auditor.get(f"/admin/policies/revision/{number}/roll_back/")
    assert "People with the role Operator, Approver and Emergency can do it" in text_of(page)


def test_what_no_role_may_is_an_administrators(operator: Client) -> None:
    assert "An administrator can do it" in text_of(operator.get("/admin/auth/user/"))


def test_an_account_without_a_role_is_told_that_it_has_none(client: Client) -> None:
    client.force_login(User.objects.create(username="new", is_staff=True))
    assert "it has no role" in text_of(client.get("/admin/policies/ruleset/"))


@pytest.mark.parametrize("path", ["/admin/policies/no-such-page/", "/admin/policies/revision/9999/roll_back/"])
def test_an_address_that_nothing_has_is_a_page_with_a_way_on(operator: Client, path: str) -> None:
    page = operator.get(path)
    assert page.status_code == 404
    assert "Look for it by its name or its number" in text_of(page)
    assert 'href="/admin/"' in page.content.decode()


def test_what_cannot_be_asked_is_a_page_with_a_way_on(operator: Client) -> None:
    page = operator.get("/admin/policies/revision/?created_at__regex=x")
    assert page.status_code == 400
    assert "has no filter 'created_at__regex' that takes 'x'. Remove it from the URL" in text_of(page)


def test_a_form_of_too_many_fields_is_a_page_with_a_way_on(operator: Client) -> None:
    fields = {f"field-{number}": "" for number in range(settings.DATA_UPLOAD_MAX_NUMBER_FIELDS + 1)}
    page = operator.post("/admin/policies/ruleset/add/", fields)
    assert page.status_code == 400
    assert "try again from the page itself" in text_of(page)


@pytest.mark.parametrize("path", ["/admin/login/", "/admin/policies/ruleset/add/"])
def test_a_proxy_that_changes_the_host_is_named_with_both_remedies(operator: Client, path: str) -> None:
    strict = type(operator)(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    sent = {"Origin": "https://berth.example.org:8443", "Sec-Fetch-Site": "same-origin"}
    page = strict.post(path, {"username": "operator"}, headers=sent)
    assert page.status_code == 403
    for word in ("https://berth.example.org:8443", "://testserver", "BERTH_TRUSTED_ORIGINS", "Host"):
        assert word in text_of(page)
    of_another_site = strict.post(path, {}, headers=sent | {"Sec-Fetch-Site": "cross-site"})
    assert "berth.example.org" not in text_of(of_another_site)


@pytest.mark.parametrize(
    ("path", "above"),
    [
        ("/admin/scheduler/decision/{}/replay/", "/admin/scheduler/decision/{}/"),
        ("/admin/scheduler/pending/wake/", "/admin/scheduler/pending/"),
    ],
)
def test_an_address_that_only_takes_a_form_is_a_page_that_leads_to_the_form(
    operator: Client, path: str, above: str
) -> None:
    key = make_decision().pk
    path, above = path.format(key), above.format(key)
    page = operator.get(path)
    assert (page.status_code, page["Allow"]) == (405, "POST")
    assert "Opening it has changed nothing" in text_of(page)
    assert f'href="{above}"' in page.content.decode()
    assert operator.get(above, follow=True).status_code == 200


def test_a_form_of_another_session_is_told_to_be_too_old(operator: Client) -> None:
    strict = type(operator)(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    page = strict.post("/admin/policies/ruleset/add/", {})
    assert page.status_code == 403
    assert "The form has expired" in text_of(page)
    assert "Go to the page" not in text_of(page)


@pytest.mark.parametrize(
    ("referer", "leads"),
    [
        ("https://testserver/admin/policies/pauses/pause/?target=everything", True),
        ("https://elsewhere.example/admin/policies/pauses/pause/", False),
        ("https://testserver/api/v1/status", False),
        ("http://[", False),
    ],
)
def test_a_form_that_is_too_old_leads_to_the_page_that_has_it_anew(operator: Client, referer: str, leads: bool) -> None:
    strict = type(operator)(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    headers = {"Host": "testserver", "Referer": referer, "Sec-Fetch-Site": "same-origin"}
    page = strict.post("/admin/policies/pauses/pause/", {"reason": "INC-1"}, headers=headers).content.decode()
    assert ('href="/admin/policies/pauses/pause/?target=everything" target="_blank"' in page) == leads
    assert ("Go to the page" in page) == leads


@pytest.mark.parametrize("site", ["same-origin", "cross-site"])
def test_what_was_typed_is_shown_when_the_role_was_taken_or_the_thing_removed_meanwhile(
    operator: Client, site: str
) -> None:
    data = {"name": "typed-for-long", "secret": "not this"}
    gone = operator.post("/admin/policies/change/4711/act/", data, headers={"Sec-Fetch-Site": site})
    User.objects.get(username="operator").groups.set(Group.objects.filter(name="Auditor"))
    refused = operator.post("/admin/policies/ruleset/add/", data, headers={"Sec-Fetch-Site": site})
    assert (gone.status_code, refused.status_code) == (404, 403)
    for page in (gone, refused):
        assert ("typed-for-long" in text_of(page)) == (site == "same-origin")
        assert "not this" not in text_of(page)


def test_what_was_typed_into_a_form_that_is_too_old_is_shown_to_who_sent_it_and_not_what_another_site_sent(
    operator: Client,
) -> None:
    strict = type(operator)(enforce_csrf_checks=True)
    strict.cookies = operator.cookies
    data = {"name": "typed-for-long", "password1": "not this", "_save": "Save"}
    own = strict.post("/admin/policies/ruleset/add/", data, headers={"Sec-Fetch-Site": "same-origin"})
    assert "typed-for-long" in text_of(own)
    assert "not this" not in text_of(own)
    others = strict.post("/admin/policies/ruleset/add/", data, headers={"Sec-Fetch-Site": "cross-site"})
    assert (own.status_code, others.status_code) == (403, 403)
    assert "typed-for-long" not in text_of(others)


def sign_out_with_a_form_open(client: Client) -> None:
    client.get("/admin/policies/ruleset/add/")
    of_the_form = client.cookies[settings.CSRF_COOKIE_NAME].value
    client.logout()
    client.cookies[settings.CSRF_COOKIE_NAME] = of_the_form


def test_who_was_shown_no_form_is_sent_to_the_sign_in(client: Client) -> None:
    page = client.post("/admin/policies/ruleset/add/", {"name": "mine"})
    assert (page.status_code, page.headers["Location"]) == (302, "/admin/login/?next=/admin/policies/ruleset/add/")


def test_what_is_sent_after_the_session_has_ended_is_shown_and_nothing_is_done(operator: Client) -> None:
    sign_out_with_a_form_open(operator)
    page = operator.post("/admin/policies/ruleset/add/", {"name": "typed-for-long", "secret": "not this"})
    assert page.status_code == 403
    assert "typed-for-long" in text_of(page)
    assert "not this" not in text_of(page)
    assert 'href="/admin/login/?next=/admin/policies/ruleset/add/"' in page.content.decode()
    assert not RuleSet.objects.filter(name="typed-for-long").exists()
    assert operator.post("/admin/policies/ruleset/add/", {}).status_code == 302


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("change/7/act/", {"digest": "abc", "revision": "4", "text": "", "act": "approve"}),
        (
            "ruleset/web/change/",
            {"loaded_digest": "abc", "filters-0-id": "3", "filters-0-position": "0", "_save": "Save"},
        ),
    ],
)
def test_a_button_that_is_pressed_after_the_session_has_ended_leads_to_the_sign_in(
    operator: Client, path: str, sent: dict[str, str]
) -> None:
    sign_out_with_a_form_open(operator)
    page = operator.post(f"/admin/policies/{path}", sent)
    assert (page.status_code, page.headers["Location"]) == (302, f"/admin/login/?next=/admin/policies/{path}")


def test_who_signs_in_for_a_page_that_leads_to_the_sign_in_is_signed_in(operator: Client) -> None:
    """As after a form of the sign-in that was too old: its answer led back to it."""
    User.objects.filter(username="operator").update(password=make_password("a password of the test"))
    operator.logout()
    typed = {"username": "operator", "password": "a password of the test"}
    page = operator.post("/admin/login/?next=%2Fadmin%2Flogin%2F%3Fnext%3D%2Fadmin%2F", typed)
    assert page.status_code == 302
    assert operator.get("/admin/").status_code == 200
    strict = type(operator)(enforce_csrf_checks=True)
    old = strict.post("/admin/login/?next=/admin/", typed, headers={"Sec-Fetch-Site": "same-origin"})
    assert "The form has expired" in text_of(old)


def test_a_fault_is_a_page_that_asks_no_database(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        page = fault(RequestFactory().get("/admin/policies/ruleset/"))
    assert page.status_code == 500
    assert "the admin's log has a line" in text_of(page)


@pytest.mark.parametrize("path", ["/no-such-page", "/metrics/x"])
def test_outside_the_admin_an_error_is_a_line_of_text(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in {302, 404}
    if answer.status_code == 404:
        assert answer["Content-Type"].startswith("text/plain")


def test_keys_lead_to_what_somebody_sees(auditor: Client) -> None:
    page = get(auditor, "/admin/").content.decode()
    found = dict(re.findall(r'data-key="(.)" href="([^"]+)"', page))
    assert found["d"] == "/admin/scheduler/decision/"
    assert "/admin/auth/user/" not in found.values()
    for url in found.values():
        get(auditor, url)


def test_each_page_of_the_sidebar_has_a_key_of_its_own(client: Client) -> None:
    client.force_login(User.objects.create(username="root", is_staff=True, is_superuser=True))
    page = get(client, "/admin/")
    keys = re.findall(r'data-key="(.)"', page.content.decode())
    items = [item for group in navigation(page.wsgi_request) for item in group["items"]]
    assert len(set(keys)) == len(keys) == len(items)


@pytest.mark.usefixtures("lived")
@pytest.mark.parametrize(
    ("path", "current"),
    [
        ("/admin/policies/rulesetversion/edit:web/change/", "Rule sets"),
        ("/admin/policies/ruleset/", "Rule sets"),
        ("/admin/scheduler/priority-classes/batch/", "PriorityClasses"),
        ("/admin/scheduler/legal-holds/", "Storage"),
        ("/admin/scheduler/nodes/n1/", ""),
    ],
)
def test_the_sidebar_marks_the_page_that_a_page_belongs_to(path: str, current: str) -> None:
    publish_all(make_priority_class("batch"))
    client = HTTPSClient()
    client.force_login(User.objects.create_superuser("everything"))
    page = get(client, path)
    groups = page.context["sidebar_navigation"]
    assert [item["title"] for group in groups for item in group["items"] if item["active"]] == [current] * bool(current)


def test_each_page_of_the_sidebar_has_a_key() -> None:
    everything = HTTPSClient()
    everything.force_login(User.objects.create_superuser("everything"))
    page = get(everything, "/admin/")
    shown = {item["title"] for group in navigation(page.wsgi_request) for item in group["items"]}
    assert shown == {title for title, _key, _url in page.context["keys"]}


def found(client: Client, text: str) -> dict[str, str]:
    """Return what Ctrl-K finds: the titles, and where they lead."""
    page = get(client, f"/admin/search/?extended=1&s={text}").content.decode()
    return {title: url for url, title in re.findall(r'href="([^"]+)"\s+data-title="([^"]+)"', page)}


@pytest.fixture
def lived(db: None) -> Decision:
    publish(make_rule_set(filters=[TEAM_FILTER]))
    publish_all(make_assignment())
    opened(make_rule_set("batch"), title="Batch at night")
    return make_decision(placed_on="n1")


@pytest.mark.usefixtures("lived")
def test_ctrl_k_finds_things_by_name_number_and_id(auditor: Client) -> None:
    decision, revision = Decision.objects.get(), Revision.objects.order_by("-number").first()
    change = Change.objects.get(title="Batch at night")
    assert revision is not None
    for text, title in (
        ("we", "web"),
        ("all-web", "all-web"),
        ("shop/web-1", "shop/web-1"),
        ("uid-1", "shop/web-1"),
        ("eb-1", "shop/web-1"),
        ("n1", "n1"),
        (str(decision.pk), str(decision.pk)),
        (f"revision {revision.number}", f"Revision {revision.number}"),
        (str(change.pk), str(change)),
        ("at night", str(change)),
        ("doctor", "Doctor"),
        ("gaps", "Decision gaps"),
        ("dead", "Dead letters"),
        ("legal", "Legal holds"),
        ("ops", "ops"),
    ):
        assert title in found(auditor, text), text
        get(auditor, found(auditor, text)[title])


@pytest.mark.usefixtures("lived")
def test_ctrl_k_finds_a_change_by_a_number_in_its_title_after_the_one_of_that_number(auditor: Client) -> None:
    first = Change.objects.get(title="Batch at night")
    later = opened(make_rule_set("later"), title=f"As ticket 4711 says, after Change {first.pk}")
    assert str(later) in found(auditor, "4711")
    titles = list(found(auditor, str(first.pk)))
    assert titles.index(str(first)) < titles.index(str(later))


@pytest.mark.usefixtures("lived")
def test_home_says_of_which_day_its_newest_decisions_are(auditor: Client) -> None:
    """Where no Pod was decided on for days, a time alone would be taken for one of today."""
    Decision.objects.update(at=datetime(2026, 3, 5, 13, 30, 21, tzinfo=UTC))
    assert "03-05 13:30:21" in text_of(get(auditor, "/admin/"))


@pytest.mark.usefixtures("lived")
def test_home_lists_answers_and_no_shadow_as_if_it_were_one(auditor: Client) -> None:
    make_decision(pod_name="answered")
    make_decision(pod_name="tried", mode="shadow")
    text = text_of(get(auditor, "/admin/"))
    assert "shop/answered" in text
    assert "shop/tried" not in text


@pytest.mark.usefixtures("lived")
def test_ctrl_k_begins_with_the_thing_of_exactly_that_name_however_many_contain_it(auditor: Client) -> None:
    publish_all(*[make_rule_set(f"a-web-{index}") for index in range(8)])
    for index in range(8):
        make_decision(pod_namespace=f"a-{index}", pod_name=f"web-1{index}", pod_uid=f"uid-of-{index}")
    assert next(iter(found(auditor, "web"))) == "web"
    assert next(iter(found(auditor, "web-1"))) == "shop/web-1"


def test_ctrl_k_finds_a_person_whose_name_has_capitals(auditor: Client) -> None:
    publish(make_rule_set(), by="Anna.Smith")
    assert "Anna.Smith" in found(auditor, "Anna.Smith")


def test_ctrl_k_finds_a_person_whose_name_is_typed_with_a_capital(auditor: Client) -> None:
    publish(make_rule_set(), by="bert.jones")
    assert "bert.jones" in found(auditor, "Bert.jones")


@pytest.mark.usefixtures("lived")
def test_ctrl_k_says_of_a_change_whose_approvals_no_longer_count_that_they_dont(auditor: Client) -> None:
    publishing.set_review(approvals=1, by="root")
    change, approver = Change.objects.get(title="Batch at night"), User.objects.create_superuser("bert")
    publishing.submit_change(change=change, by="ops", expected_digest=change.digest)
    publishing.approve_change(change=change, by=approver, expected_digest=change.digest)
    page = "/admin/search/?extended=1&s=at+night"
    assert "Change, approved: Batch at night" in get(auditor, page).content.decode()
    User.objects.filter(pk=approver.pk).update(is_active=False)
    assert "Change, approved, but no longer by enough people: Batch at night" in get(auditor, page).content.decode()


@pytest.mark.usefixtures("lived")
@pytest.mark.parametrize("page", ["x", "0", "-1", "99", ""])
def test_ctrl_k_takes_any_page(auditor: Client, page: str) -> None:
    assert "web" in get(auditor, f"/admin/search/?extended=1&s=web&page={page}").content.decode()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("change", "3 Changes"),
        ("assignment", "1 Assignment"),
        ("revision", "2 Revisions"),
        ("ruleset", "2 rule sets"),
    ],
)
@pytest.mark.usefixtures("lived")
def test_the_foot_of_a_list_counts_in_berths_own_words(auditor: Client, path: str, said: str) -> None:
    text = text_of(
        get(auditor, f"/admin/policies/{path}/?which=all" if path == "ruleset" else f"/admin/policies/{path}/")
    )
    assert said in text


@pytest.mark.usefixtures("lived")
def test_ctrl_k_finds_nothing_that_somebody_may_not_see(auditor: Client, client: Client) -> None:
    User.objects.create(username="webster")
    assert "webster" not in found(auditor, "webster")
    client.force_login(User.objects.create(username="new", is_staff=True))
    assert found(client, "web") == {}


@pytest.mark.usefixtures("lived")
def test_ctrl_k_says_when_it_finds_nothing(auditor: Client) -> None:
    """In the part of the answer that the page shows: without it the box stays empty, as if the answer were on its way."""
    page = get(auditor, "/admin/search/?extended=1&s=<b>no-such-thing</b>").content.decode()
    assert 'id="command-results-list"' in page
    assert "Nothing found for “&lt;b&gt;no-such-thing&lt;/b&gt;”." in page
    assert "by the whole name in all" in page


@pytest.mark.usefixtures("lived")
@pytest.mark.parametrize("text", ["%", "9" * 40, "１", "a" * 3000, "'\"", "/", "-"])
def test_ctrl_k_takes_any_text(auditor: Client, text: str) -> None:
    assert auditor.get("/admin/search/", {"extended": 1, "s": text}).status_code == 200


@pytest.mark.usefixtures("lived")
def test_ctrl_k_asks_a_bounded_number_of_times() -> None:
    user = User.objects.create(username="finder", is_staff=True)
    user.groups.add(Group.objects.get(name="Auditor"))
    request = RequestFactory().get("/")
    request.user = user
    with CaptureQueriesContext(connection) as asked:
        find(request, "web")
    assert len(asked) <= 14
    assert all("LIMIT" in each["sql"] for each in asked if "scheduler_decision" in each["sql"])


def icons_of_unfold() -> set[str]:
    """Return the icons that Unfold's own pages name, between conditions, too."""
    found = set()
    for path in Path(unfold.__file__).parent.glob("templates/**/*.html"):
        for text in re.findall(r"material-symbols-outlined[^>]*>(.*?)</", path.read_text(), re.DOTALL):
            found |= set(re.findall(r"(?<!\S)[a-z]+(?:_[a-z]+)*(?!\S)", re.sub(r"{[{%].*?[%}]}", " ", text)))
    # Those of Django's own scripts: calendars and such.
    styles = (Path(unfold.__file__).parent / "styles.css").read_text()
    return found | set(re.findall(r'content: "([a-z_]+)"', styles))


def test_icons_of_the_pages_are_in_the_font() -> None:
    known = set((FONTS / "icons.txt").read_text().split())
    used = set()
    for path in [*settings.BASE_DIR.glob("*/templates/**/*.html"), *settings.BASE_DIR.glob("*/**/*.py")]:
        if path.parts[len(settings.BASE_DIR.parts)] in {"controlplane", "policies", "scheduler"}:
            text = path.read_text()
            used |= set(re.findall(r"\bicon=\"([a-z_0-9]+)\"", text))
            used |= set(re.findall(r"material-symbols-outlined[^>]*>\s*([a-z_0-9]+)\s*<", text))
    used |= icons_of_unfold()
    request = RequestFactory().get("/")
    request.user = User.objects.create(username="root", is_superuser=True)
    from controlplane.site import elsewhere, navigation

    used |= {item["icon"] for group in navigation(request) for item in group["items"]}
    used |= {item["icon"] for item in elsewhere(request)}
    assert used - known == set(), "add them to icons.txt and run deploy/fonts"


def test_static_files_have_another_name_when_one_of_them_changes(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("a {}")
    first = digest_of_statics([tmp_path])
    (tmp_path / "a.css").write_text("b {}")
    assert digest_of_statics([tmp_path]) != first


def test_a_static_file_is_kept_for_a_year_and_a_page_for_no_moment(auditor: Client) -> None:
    assert re.fullmatch(r"/static/[0-9a-f]{12}/", settings.STATIC_URL)
    assert "max-age=31536000" in auditor.head(f"{settings.STATIC_URL}berth/berth.css")["Cache-Control"]
    assert "no-store" in auditor.get("/admin/")["Cache-Control"]


@pytest.mark.parametrize(
    ("kind", "is_packed"),
    [("text/css", True), ("application/json", True), ("font/woff2", False), ("application/x-tar", False)],
)
def test_answers_are_packed_and_what_is_packed_or_sent_as_it_is_made_is_not(kind: str, is_packed: bool) -> None:
    request = RequestFactory().get("/", HTTP_ACCEPT_ENCODING="gzip")
    answer = Gzip(lambda _: HttpResponse(b"x" * 1000, content_type=kind))(request)
    assert answer.has_header("Content-Encoding") == is_packed


def test_pages_load_no_library_of_charts(auditor: Client) -> None:
    assert b"chart.js" not in get(auditor, reverse("admin:index")).content


def test_djangos_own_page_of_a_history_leads_to_the_audit(auditor: Client) -> None:
    publish(make_rule_set(filters=[TEAM_FILTER]))
    row = RuleSet.objects.get()
    page = auditor.get(reverse("admin:policies_ruleset_history", args=[row.pk]), follow=True)
    assert page.redirect_chain == [(f"{reverse('audit')}?thing=RuleSet%2F{row.name}", 302)]
    assert page.status_code == 200


def test_times_that_django_writes_are_written_as_all_others(auditor: Client) -> None:
    publish(make_rule_set(filters=[TEAM_FILTER]))
    at = RuleSetVersion.objects.get().published_at
    assert at is not None
    assert f"{at:%Y-%m-%d %H:%M} UTC" in text_of(get(auditor, reverse("admin:policies_rulesetversion_changelist")))


def test_the_search_of_a_list_and_its_button_have_names_that_stay_when_something_is_typed(operator: Client) -> None:
    for url, name in (
        ("/admin/policies/ruleset/?q=web", "Name, description, or an expression or built-in of the live version"),
        ("/admin/policies/assignment/?q=web", "Assignments"),
    ):
        page = get(operator, url).content.decode()
        assert f'aria-label="Search: {name}"' in page
        assert 'id="searchbar-submit" aria-label="Search"' in page
