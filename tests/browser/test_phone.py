"""What is used on the way, on a phone: lists short enough to be scrolled through, tables that aren't cut, empty fields that look empty."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.admin import Admin
from tests.browser.conftest import in_scheme, without_violations

pytestmark = pytest.mark.browser
_DECISIONS = """
import django
django.setup()
from datetime import UTC, datetime, timedelta
from scheduler.models import Decision
now = datetime.now(UTC)
Decision.objects.bulk_create(
    Decision(at=now - timedelta(seconds=n), process="phone@a", sequence=n + 1, verb="filter", pod_namespace="shop", pod_name=f"checkout-7d9c5b6f4-{n:05}", pod_uid=f"phone-{n}",
             owner_kind="Deployment", owner_name="checkout", revision=1, rule_set="web", rule_set_version=1, nodes=100, feasible=60, best="worker-1", placed_on="worker-2",
             refused_by="\\nteam\\n", top_reason="node belongs to another team")
    for n in range(40)
)
"""
_LONG_TITLE = """
import django
django.setup()
from policies.models import Change
Change.objects.filter(pk=Change.objects.filter(state="in_review").latest("pk").pk).update(title="W" * 200)
"""
_LONG_NAMES = """
import django
django.setup()
from datetime import UTC, datetime
from scheduler.models import Decision, PendingPod
now, space, name = datetime.now(UTC), "n" * 63, ".".join(["b" * 62] * 4)
where = {"pod_namespace": space, "pod_name": name, "pod_uid": "long-names"}
Decision.objects.create(at=now, process="long@a", sequence=1, verb="filter", revision=1, rule_set="web", nodes=15_000, feasible=14_999, best=name, top_reason="r" * 128, **where)
PendingPod.objects.create(uid="long-names", namespace=space, name=name, scheduler_name="s" * 253, owner_kind="Workflow", owner_name=name, created_at=now, since=now, reason="r" * 300)
"""
_PENDING = """
import django
django.setup()
from datetime import UTC, datetime
from scheduler.models import Decision, PendingPod
now, reason = datetime.now(UTC), "no licence with the name of the label license was bought"
PendingPod.objects.create(uid="usual", namespace="default", name="unlicensed", scheduler_name="default-scheduler", created_at=now, since=now, reason=f"0/10 nodes are available: 10 {reason}.")
Decision.objects.create(at=now, process="usual@a", sequence=1, verb="filter", revision=1, rule_set="licences", nodes=10, pod_namespace="default", pod_name="unlicensed", pod_uid="usual", refused_by="\\nknown\\n", top_reason=reason)
"""
_ATTEMPTS = """
import django
django.setup()
from datetime import UTC, datetime
from scheduler.models import Decision, Delivery, Webhook
now = datetime.now(UTC)
Delivery.objects.create(webhook=Webhook.objects.get(pk=1), kind="review asked", body="{}", made_at=now, next_at=now, tried_at=now,
    state="waiting", attempts=3, asked_by="somebody", said="can't be reached: Connection refused")
Decision.objects.create(at=now, process="placed@a", sequence=1, verb="filter", revision=1, rule_set="web", nodes=1, feasible=1, best="worker-7",
    pod_namespace="team-web", pod_name="web-55d4c54c6b-ghnjj", pod_uid="placed", placed_on="worker-7", placed_at=now)
"""
# Tables that are wider than what they stand in: some of their columns can't be seen without scrolling sideways.
_CUT = """() => [...document.querySelectorAll('table.berth-table')]
    .filter((table) => table.scrollWidth > table.clientWidth + 1 || table.offsetWidth > table.parentElement.clientWidth + 1).map((table) => table.id)"""
# What is wider than its place: the page, or a list within it.
_WIDER = """() => [document.documentElement, ...document.querySelectorAll('#content .simplebar-content-wrapper')]
    .filter((each) => each.scrollWidth > each.clientWidth + 1).map((each) => each.scrollWidth)"""
# How many lines a place's first words take.
_LINES = """(each) => {
    const words = document.createRange();
    words.selectNodeContents(each.firstChild);
    return words.getClientRects().length;
}"""
_LOOKS = """(selector) => {
    const field = document.querySelector(selector);
    const [typed, suggested] = [getComputedStyle(field), getComputedStyle(field, '::placeholder')];
    return [suggested.fontStyle, suggested.color !== typed.color];
}"""


@pytest.fixture
def phone(browser: Browser, lived_in_admin: Admin, seen: dict[str, Any]) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 390, "height": 844}, base_url=lived_in_admin.url) as context:
        session = {"name": seen["cookie"], "value": seen["sessions"]["superuser"], "url": lived_in_admin.url}
        context.add_cookies([session])
        page = context.new_page()
        page.set_default_timeout(30_000)
        with without_violations(page):
            yield page


def test_a_decision_takes_a_sixth_of_the_screen(phone: Page, lived_in_admin: Admin) -> None:
    lived_in_admin.run("-c", _DECISIONS)
    phone.goto("/admin/scheduler/decision/?q=checkout")
    expect(phone.locator("#result_list tbody tr")).to_have_count(40)
    heights = phone.locator("#result_list tbody tr").evaluate_all("rows => rows.map((row) => row.offsetHeight)")
    assert max(heights) <= 844 / 6


@pytest.mark.parametrize(
    "path",
    [
        "scheduler/webhooks/",
        "scheduler/webhooks/1/",
        "scheduler/doctor/",
        "policies/ruleset/1/change/",
        "policies/priorityclass/1/change/",
        "policies/audit/",
        "scheduler/ledger/",
        "scheduler/storage/",
        "scheduler/priority-classes/batch/",
        "scheduler/shadows/",
    ],
)
def test_no_column_is_out_of_sight(phone: Page, path: str) -> None:
    phone.goto(f"/admin/{path}")
    assert phone.evaluate(_CUT) == []


@pytest.mark.parametrize(
    "path",
    [
        "",
        "policies/change/1/change/",
        "policies/pauses/",
        "scheduler/decision/",
        "scheduler/doctor/",
        "scheduler/import/",
    ],
)
def test_nothing_is_wider_than_the_narrowest_screen(phone: Page, path: str) -> None:
    """320 CSS pixels are a desk's screen at a zoom of 400 % (WCAG 2.2, 1.4.10 Reflow)."""
    phone.set_viewport_size({"width": 320, "height": 844})
    phone.goto(f"/admin/{path}")
    assert phone.evaluate("document.documentElement.scrollWidth") == 320


def test_a_title_without_a_space_wraps(phone: Page, lived_in_admin: Admin) -> None:
    lived_in_admin.run("-c", _LONG_TITLE)
    for path in ("", "policies/ruleset/", "policies/change/"):
        phone.goto(f"/admin/{path}")
        expect(phone.get_by_text("WWWW").first).to_be_attached()
        for width in (320, 1280):
            phone.set_viewport_size({"width": width, "height": 844})
            assert phone.evaluate(_WIDER) == [], (path, width)


def test_the_buttons_of_a_rule_are_within_the_screen_however_long_its_name_is(phone: Page) -> None:
    phone.goto("/admin/policies/rulesetversion/edit:web/change/")
    title = phone.locator(".form-group.original h3").first
    expect(title.get_by_role("button", name="Duplicate")).to_be_attached()
    title.locator("strong").evaluate("each => { each.textContent = 'l'.repeat(63); }")
    for width in (320, 390):
        phone.set_viewport_size({"width": width, "height": 844})
        for button in title.locator("button, .berth-row-delete").all():
            place = button.bounding_box()
            assert place is not None
            assert place["x"] + place["width"] <= width, (width, button.inner_text())


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("policies/change/", ".field-opener"),
        ("auth/user/", ".field-username"),
    ],
)
def test_a_person_with_a_long_name_pushes_no_column_of_a_list_out_of_sight(phone: Page, path: str, place: str) -> None:
    phone.goto(f"/admin/{path}")
    cell = phone.locator(f"#result_list {place}").first
    name = "somebody.with.a.long.name@a.large.company.example.org." * 2
    cell.evaluate("(each, name) => { (each.querySelector('a') || each).textContent = name; }", name)
    for width in (390, 1280):
        phone.set_viewport_size({"width": width, "height": 844})
        assert phone.evaluate(_WIDER) == [], width
        assert cell.evaluate("each => each.scrollWidth <= each.clientWidth + 1"), width


def test_what_a_revision_changed_wraps_in_the_list(phone: Page) -> None:
    phone.goto("/admin/policies/revision/")
    cell = phone.locator("#result_list .field-in_a_line").first
    cell.evaluate("each => { each.textContent = `rule set ${'b'.repeat(63)} version 1 added`; }")
    assert cell.evaluate("each => each.scrollWidth <= each.clientWidth")


def test_the_reason_of_an_event_has_room_beside_the_name_of_a_process(phone: Page) -> None:
    """The name has no place to break at, and one row is enough to leave every reason a word a line."""
    phone.set_viewport_size({"width": 1280, "height": 844})
    phone.goto("/admin/policies/audit/")
    row = phone.locator("#result_list tbody tr").first
    write = "(each, text) => { each.textContent = text; }"
    row.locator("[data-label=Object]").evaluate(write, "process extender@host-1:23298:20261201T013019491333")
    reason = row.locator("[data-label=Reason]")
    reason.evaluate(write, "Ticket 7: web team wants its nodes for itself (scheduled by alice)")
    assert phone.evaluate(_WIDER) == []
    assert reason.evaluate("each => each.offsetWidth") >= 180


def test_a_pods_name_of_a_usual_length_is_in_one_piece_where_there_is_room(phone: Page, lived_in_admin: Admin) -> None:
    lived_in_admin.run("-c", _PENDING)
    phone.set_viewport_size({"width": 1280, "height": 844})
    phone.goto("/admin/scheduler/pending/?namespace=default")
    name = phone.locator("[data-label=Pod] a").first
    expect(name).to_have_text("default/unlicensed")
    assert name.evaluate("each => each.getClientRects().length") == 1


def test_a_link_and_the_words_after_it_are_one_piece_in_a_list(phone: Page) -> None:
    phone.goto("/admin/scheduler/process/")
    cells = phone.locator("#result_list .field-serves")
    expect(cells.first).to_contain_text("Revision 1 since")
    assert cells.first.evaluate("each => each.childNodes.length") == 1


def test_words_and_dates_are_whole_beside_long_texts(phone: Page, lived_in_admin: Admin) -> None:
    lived_in_admin.run("-c", _ATTEMPTS)
    phone.goto("/admin/scheduler/webhooks/1/")
    for width in (1024, 1280):
        phone.set_viewport_size({"width": width, "height": 844})
        state = phone.locator('#deliveries td[data-label="State"]').first
        expect(state).to_contain_text("queued")
        assert state.evaluate(_LINES) == 1, width
        assert phone.evaluate("document.querySelector('#deliveries').parentElement.scrollWidth") <= width
        assert phone.evaluate(_CUT) == [], width
    phone.goto("/admin/scheduler/nodes/worker-7/")
    assert phone.locator("#placed .berth-help").first.evaluate(_LINES) == 1


def test_the_list_of_rule_sets_shows_its_last_column_on_a_laptop(phone: Page) -> None:
    phone.goto("/admin/policies/ruleset/")
    texts = {
        ".berth-one-line": "Only nodes of the team that owns the Pod",
        ".field-pods_today": "240\N{NO-BREAK SPACE}at\N{NO-BREAK SPACE}least,\N{NO-BREAK SPACE}0\N{NO-BREAK SPACE}refused",
    }
    texts |= {".field-state span": "paused, version 12", ".field-last_change a": "operator"}
    for place, text in texts.items():
        phone.locator(f"#result_list {place}").first.evaluate("(each, text) => { each.textContent = text; }", text)
    for width in (1024, 1280):
        phone.set_viewport_size({"width": width, "height": 844})
        assert phone.evaluate(_WIDER) == [], width


def test_names_of_any_length_and_answers_about_many_nodes_are_within_the_screen(
    phone: Page, lived_in_admin: Admin
) -> None:
    lived_in_admin.run("-c", _LONG_NAMES)
    space, name = "n" * 63, ".".join(["b" * 62] * 4)
    pending = f"scheduler/pending/?namespace={space}&owner_kind=Workflow&owner_name={name}"
    paths = ["", "scheduler/pending/", "scheduler/pending/?by=owner", pending, f"scheduler/pods/{space}/unknown/"]
    paths += [f"scheduler/workloads/{space}/Workflow/{name}/", "scheduler/decision/"]
    for path in paths:
        phone.goto(f"/admin/{path}")
        for width in (390, 641, 1280):  # the second: a tablet, or a laptop at a zoom of 200 %
            phone.set_viewport_size({"width": width, "height": 844})
            assert phone.evaluate(_WIDER) == [], (path, width)
    phone.set_viewport_size({"width": 390, "height": 844})
    answer = phone.locator(".berth-answer").filter(has_text="14,999 of 15,000 nodes").first
    assert answer.evaluate("each => each.scrollWidth <= each.clientWidth")
    assert answer.evaluate("each => getComputedStyle(each, '::before').content") == "none"


def test_what_an_empty_field_suggests_does_not_look_typed(phone: Page) -> None:
    phone.goto("/admin/scheduler/decision/")
    for scheme in ("light", "dark"):
        in_scheme(phone, scheme)
        assert phone.evaluate(_LOOKS, "#decision-search input[placeholder]") == ["italic", True], scheme


def test_times_of_rows_say_their_zone_where_the_head_of_their_column_is_not_seen(phone: Page) -> None:
    zone = "getComputedStyle(document.querySelector('#result_list tbody th time'), '::after').content"
    phone.goto("/admin/policies/audit/")
    assert phone.evaluate(zone) == '" UTC"'
    phone.set_viewport_size({"width": 1280, "height": 844})
    assert phone.evaluate(zone) == "none"


def test_tokens_with_long_names_and_patterns_are_revoked_within_the_page_of_a_laptop_too(phone: Page) -> None:
    phone.goto("/admin/tokens/")
    phone.fill("#id_name", "W" * 50)
    phone.fill("#id_rule_sets", ",".join(f"{letter * 60}-*" for letter in "abc"))
    phone.click("#token-form button[type=submit]")
    expect(phone.locator("#token-made")).to_be_visible()
    for width in (390, 1024, 1440):
        phone.set_viewport_size({"width": width, "height": 844})
        assert phone.evaluate(_WIDER) == [], width
