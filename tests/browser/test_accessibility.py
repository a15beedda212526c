"""axe-core looks at every page, light and dark: nothing that keeps people out, serious or moderate, is on it. None is wider than its screen.

The short form looks at a page of each kind (made from the same templates), as who may do everything. `ACCESSIBILITY=whole` looks
at every page of the URLconf as each role.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.browser.admin import Admin
from tests.browser.conftest import WHOLE, without_violations

pytestmark = pytest.mark.browser
ROLES = ("superuser", "Operator", "Approver", "Emergency", "Auditor", "no role") if WHOLE else ("superuser",)
_AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
# What a page fades in is looked at when it is there.
_SETTLE = "() => document.getAnimations().forEach((each) => { try { each.finish(); } catch { each.cancel(); } })"
_LOOK = """async (rules) => {
    const options = {resultTypes: ['violations'], ...(rules ? {runOnly: {type: 'rule', values: rules}} : {})};
    const found = await axe.run(document, options);
    return found.violations.filter((each) => each.impact !== 'minor').flatMap((each) => each.nodes.map((node) => [
        each.impact, each.id, node.target.join(' '), node.html.slice(0, 160), (node.any[0] || node.all[0] || node.none[0] || {}).message || ''
    ]));
}"""
_TWICE = """() => [...document.querySelectorAll('h1')].map((each) => each.innerText.trim())
    .filter((text, at, all) => text && all.indexOf(text) !== at)"""
_WIDE = "() => document.documentElement.scrollWidth"
_NEXT_FRAME = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
_DESK, _PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
_COLOUR = "(each) => getComputedStyle(each).color"
_DARKEN = "() => document.documentElement.classList.add('dark')"


# What pages show only where there is much: several pages of a list, what is new.
_MUCH = """
import django
django.setup()
from django.contrib.auth.models import User
from django.utils import timezone
from policies.models import RuleSet
from scheduler.models import InboxEntry, Notice
now = timezone.now()
RuleSet.objects.bulk_create(RuleSet(name=f"much-{n}") for n in range(120))
InboxEntry.objects.create(notice=Notice.objects.create(number=987, at=now, kind="published", sentence="It is live"), user=User.objects.get(username="superuser"))
"""
_NO_MORE = """
import django
django.setup()
from policies.models import RuleSet
from scheduler.models import Notice
RuleSet.objects.filter(name__startswith="much-").delete()
Notice.objects.filter(number=987).delete()
"""


@pytest.fixture
def much(lived_in_admin: Admin, seen: dict[str, Any]) -> Iterator[None]:
    assert seen
    lived_in_admin.run("-c", _MUCH)
    yield
    lived_in_admin.run("-c", _NO_MORE)


@pytest.fixture
def context(browser: Browser, lived_in_admin: Admin) -> Iterator[BrowserContext]:
    with browser.new_context(viewport=_DESK, base_url=lived_in_admin.url) as opened:
        yield opened


def to_look_at(pages: dict[str, list[str]]) -> list[str]:
    """Return the URLs of all pages, or of one of each kind."""
    kinds = {kind: url for url, kind in reversed(pages.values())}
    return [url for url, _kind in pages.values()] if WHOLE else sorted(kinds.values())


def looked_at(page: Page, rules: list[str] | None = None) -> list[str]:
    """Return what axe finds on the page as it is now."""
    page.evaluate(_SETTLE)
    return [re.sub(r"\s+", " ", " | ".join(each)) for each in page.evaluate(_LOOK, rules)]


@pytest.mark.timeout(3600 if WHOLE else 600)
@pytest.mark.parametrize("role", ROLES)
def test_axe_finds_nothing_on_any_page_and_none_is_wider_than_the_screen(
    role: str, lived_in_admin: Admin, seen: dict[str, Any], context: BrowserContext
) -> None:
    context.add_cookies([{"name": seen["cookie"], "value": seen["sessions"][role], "url": lived_in_admin.url}])
    page = context.new_page()
    page.set_default_timeout(30_000)
    found: dict[str, list[str]] = {}
    with without_violations(page):
        for url in [*to_look_at(seen["pages"][role]), "/admin/policies/no-such-page/"]:
            page.goto(url, wait_until="load")
            page.evaluate(_AXE)
            light = looked_at(page)
            wide = page.evaluate(_WIDE)
            light += [f"says twice: {each}" for each in page.evaluate(_TWICE)]
            light += [f"{wide} px wide"] * (wide > _DESK["width"])
            # In the dark the same page has other colours, and nothing else.
            page.evaluate(_DARKEN)
            dark = [f"dark: {each}" for each in looked_at(page, ["color-contrast", "link-in-text-block"])]
            page.set_viewport_size(_PHONE)
            page.evaluate(_NEXT_FRAME)
            phone = [f"phone: {each}" for each in looked_at(page, ["scrollable-region-focusable"])]
            wide = page.evaluate(_WIDE)
            phone += [f"phone: {wide} px wide"] * (wide > _PHONE["width"])
            page.set_viewport_size(_DESK)
            if light or dark or phone:
                found[url] = light + dark + phone
    assert not found, json.dumps(found, indent=1)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("much")
def test_what_only_much_of_it_shows_can_be_read_light_and_dark(
    lived_in_admin: Admin, seen: dict[str, Any], context: BrowserContext
) -> None:
    context.add_cookies([{"name": seen["cookie"], "value": seen["sessions"]["superuser"], "url": lived_in_admin.url}])
    page = context.new_page()
    page.goto("/admin/scheduler/inbox/", wait_until="load")
    assert page.locator(".berth-is-unread .berth-help").count()
    page.evaluate(_AXE)
    found = looked_at(page, ["color-contrast"])
    page.evaluate(_DARKEN)
    found += looked_at(page, ["color-contrast"])
    assert not found, json.dumps(found, indent=1)
    # The bar below a list is translucent, and axe can't tell what is behind its words: the page's number has the links' colour.
    page.goto("/admin/policies/ruleset/?which=all", wait_until="load")
    page.evaluate(_DARKEN)
    here, other = page.locator('[aria-current="page"]', has_text="1"), page.locator("a.showall")
    assert here.evaluate(_COLOUR) == other.evaluate(_COLOUR)
