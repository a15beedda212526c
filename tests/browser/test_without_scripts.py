"""Berth's admin where scripts are off: every page is there, and rules are written, reviewed, published and rolled back."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.browser.admin import Admin
from tests.browser.conftest import shoot

pytestmark = pytest.mark.browser
_PAGES = ["", "policies/ruleset/", "policies/change/", "policies/rulesetversion/edit:web/change/", "policies/audit/"]
_PAGES += ["scheduler/pods/shop/web-1/", "scheduler/decision/", "scheduler/doctor/", "policies/no-such-page/"]


@pytest.fixture
def as_role(browser: Browser, lived_in_admin: Admin, seen: dict[str, Any]) -> Iterator[Callable[[str], Page]]:
    opened: list[BrowserContext] = []

    def sign_in(role: str) -> Page:
        context = browser.new_context(
            viewport={"width": 1280, "height": 900}, base_url=lived_in_admin.url, java_script_enabled=False
        )
        opened.append(context)
        context.add_cookies([{"name": seen["cookie"], "value": seen["sessions"][role], "url": lived_in_admin.url}])
        page = context.new_page()
        page.set_default_timeout(30_000)
        return page

    yield sign_in
    for context in opened:
        context.close()


def of_change(page: Page, number: str) -> None:
    page.goto(f"/admin/policies/change/{number}/change/")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("width", [1280, 320])
def test_pages_show_themselves_the_navigation_and_the_way_out(as_role: Callable[[str], Page], width: int) -> None:
    page = as_role("superuser")
    page.set_viewport_size({"width": width, "height": 900})
    for path in _PAGES:
        page.goto(f"/admin/{path}")
        expect(page.locator("#content > *").first, path).to_be_visible()
        expect(page.get_by_label("Pages").get_by_role("link", name="Rule sets"), path).to_be_visible()
        expect(page.locator("#account-links a[href='/admin/profile/']"), path).to_be_visible()
        page.get_by_role("button", name="Log out").click(trial=True)
        shoot(page, f"without-scripts-{width}-{path.replace('/', '-').replace(':', '-')}")


@pytest.mark.timeout(600)
def test_a_list_and_its_filters_do_not_cover_each_other(as_role: Callable[[str], Page]) -> None:
    page = as_role("superuser")
    page.goto("/admin/policies/ruleset/")
    page.get_by_role("link", name="in an open Change", exact=True).click()
    page.wait_for_url("**state**")
    page.get_by_role("link", name="reviewed").last.click()


@pytest.mark.timeout(600)
def test_a_rule_is_changed_reviewed_published_and_rolled_back(as_role: Callable[[str], Page]) -> None:
    author, approver = as_role("Operator"), as_role("Approver")
    author.goto("/admin/policies/rulesetversion/edit:web/change/")
    author.fill("#id_filters-0-reason", "typed without scripts")
    author.click("button[name=_save]")
    author.wait_for_url(re.compile(r"/policies/change/\d+/"))
    number = author.url.split("/change/")[1].split("/")[0]
    author.fill("#id_text", "so that the reason is plain")
    author.click("button[name=act][value=submit]")
    expect(author.locator("#content")).to_contain_text("In review")
    of_change(approver, number)
    approver.click("button[name=act][value=approve]")
    expect(approver.locator("#content")).to_contain_text("Approved")
    of_change(author, number)
    author.click("button[name=act][value=publish]")
    made = re.search(r"Revision (\d+) was made", author.locator("#messages").inner_text())
    assert made
    author.goto(f"/admin/policies/revision/{int(made[1]) - 1}/roll_back/")
    author.fill("textarea[name=reason]", "it wasn't plain")
    author.locator("#content form button[type=submit]").first.click()
    expect(author.locator("#content")).to_contain_text("typed without scripts")
    shoot(author, "without-scripts-rolled-back")
