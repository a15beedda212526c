"""Files of documents are chosen on the page Import, which reads them into its field."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, FilePayload, Page, expect

from tests.browser.admin import Admin
from tests.browser.conftest import without_violations

pytestmark = pytest.mark.browser
_POLICY = '{"kind": "Policy", "apiVersion": "v1", "predicates": [{"name": "HostName"}], "priorities": []}'
_LONGEST = 2_000_000


@pytest.fixture
def importing(browser: Browser, lived_in_admin: Admin, seen: dict[str, Any]) -> Iterator[Page]:
    with browser.new_context(base_url=lived_in_admin.url) as context:
        session = {"name": seen["cookie"], "value": seen["sessions"]["Operator"], "url": lived_in_admin.url}
        context.add_cookies([session])
        page = context.new_page()
        page.set_default_timeout(30_000)
        with without_violations(page):
            page.goto("/admin/scheduler/import/")
            yield page


def choose(page: Page, content: bytes) -> None:
    page.set_input_files("#file", FilePayload(name="policy.json", mimeType="application/json", buffer=content))


def test_a_chosen_file_is_imported_without_a_name_being_made_up(importing: Page) -> None:
    choose(importing, _POLICY.encode())
    expect(importing.locator("#id_text")).to_have_value(_POLICY)
    expect(importing.locator("#id_name")).to_have_value("")
    importing.get_by_role("button", name="Open a Change").click()
    importing.wait_for_url("**/policies/change/*/change/")
    expect(importing.locator("#content")).to_contain_text("rule set imported")


def test_a_file_that_is_not_utf_8_is_said_to_be_damaged_until_another_is_chosen(importing: Page) -> None:
    said = importing.locator("[data-berth-file] [role=alert]")
    choose(importing, b"caf\xe9: 1")
    expect(said).to_contain_text("policy.json isn't UTF-8")
    choose(importing, _POLICY.encode())
    expect(said).to_have_text("")


def test_a_file_that_the_field_cannot_hold_is_not_loaded_over_what_was_typed(importing: Page) -> None:
    importing.fill("#id_text", "typed")
    for content in (b"x" * (_LONGEST + 1), b"x" * (4 * _LONGEST + 1)):
        choose(importing, content)
        expect(importing.locator("[data-berth-file] [role=alert]")).to_contain_text("more than 2,000,000 characters")
    expect(importing.locator("#id_text")).to_have_value("typed")
