"""An auditor narrows many Decisions to a few, and sees by what they are narrowed."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.admin import Admin
from tests.browser.conftest import shoot_everywhere, without_violations

pytestmark = pytest.mark.browser
# Two days' worth, on 100 nodes; three more share a node and a rule with none of them, each on a day of its own.
_MANY = """
import django
django.setup()
from datetime import UTC, datetime, timedelta
from scheduler.models import Decision
now = datetime.now(UTC)
noon = now.replace(hour=12, minute=0, second=0, microsecond=0)
def decided(name, at, node, rule, number):
    return Decision(at=at, process="many@before", sequence=number, verb="filter", pod_namespace="shop", pod_name=name, pod_uid=name,
                    revision=1, rule_set="web", nodes=100, feasible=60, best=node, placed_on=node, refused_by=f"\\n{rule}\\n", top_reason="no room")
many = [decided(f"job-{n}", now - timedelta(seconds=9 * n), f"n{n % 100}", "gpu" if n % 100 == 7 else "team", n + 1) for n in range(19_997)]
days = (("today", now), ("yesterday", noon - timedelta(days=1)), ("before", noon - timedelta(days=2)))
many += [decided(f"asked-for-{name}", at, "n42", "gpu", 30_000 + n) for n, (name, at) in enumerate(days)]
Decision.objects.bulk_create(many, batch_size=1_000)
"""


@pytest.fixture
def auditor(browser: Browser, lived_in_admin: Admin, seen: dict[str, Any]) -> Iterator[Page]:
    lived_in_admin.run("-c", _MANY)
    with browser.new_context(viewport={"width": 1280, "height": 900}, base_url=lived_in_admin.url) as context:
        context.add_cookies([{"name": seen["cookie"], "value": seen["sessions"]["Auditor"], "url": lived_in_admin.url}])
        page = context.new_page()
        page.set_default_timeout(30_000)
        with without_violations(page):
            yield page


def look_back_until(page: Page, name: str) -> None:
    """Search further back, as a page offers that came to no more in its time, until it shows a Decision about a Pod."""
    while not page.locator("#result_list", has_text=name).count():
        with page.expect_navigation():
            page.get_by_role("link", name="Search further back").click()


@pytest.mark.timeout(600)
def test_20_000_decisions_are_narrowed_to_yesterday_one_node_and_one_rule(auditor: Page) -> None:
    page = auditor
    page.goto("/admin/")
    page.get_by_role("link", name="Decisions", exact=True).click()
    page.get_by_role("navigation", name="Time").get_by_role("link", name="yesterday").click()
    page.wait_for_url(re.compile("span=yesterday"))
    page.fill("#search-node", "n42")
    page.fill("#search-refused_by", "gpu")
    page.click("#decision-search button[type=submit]")
    expect(page.locator("#active-filters")).to_contain_text("node: n42")
    look_back_until(page, "asked-for-yesterday")
    expect(page.locator("#result_list tbody tr")).to_have_count(1)
    chips = page.locator("#active-filters .berth-chip")
    expect(chips).to_have_count(3)
    shoot_everywhere(page, "narrowed")

    # What was narrowed by can be taken away, one by one.
    page.get_by_role("link", name="Remove filter: time").click()
    expect(chips).to_have_count(2)
    look_back_until(page, "asked-for-today")
    look_back_until(page, "asked-for-before")
    page.get_by_role("link", name="Remove filter: node").click()
    expect(page.locator("#result_list")).to_contain_text("job-7")
    expect(chips).to_have_count(1)
