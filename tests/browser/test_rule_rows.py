"""The rows of rules in the form of a rule set: rules are duplicated and moved with one press, or by keyboard alone."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.admin import Admin
from tests.browser.conftest import shoot, without_violations

pytestmark = pytest.mark.browser
FORM = "/admin/policies/rulesetversion/edit:web/change/"


@pytest.fixture
def form(browser: Browser, lived_in_admin: Admin, seen: dict[str, Any]) -> Iterator[Page]:
    """The form of a rule set with one filter."""
    with browser.new_context(viewport={"width": 1280, "height": 900}, base_url=lived_in_admin.url) as context:
        context.add_cookies(
            [{"name": seen["cookie"], "value": seen["sessions"]["Operator"], "url": lived_in_admin.url}]
        )
        page = context.new_page()
        page.goto(FORM)
        with without_violations(page):
            yield page


def test_a_rule_is_duplicated_by_keyboard_with_all_that_was_typed_and_saved_as_another(form: Page) -> None:
    expression = form.input_value("#id_filters-0-expression")
    assert "team" in expression
    form.fill("#id_filters-0-reason", "typed a moment ago")
    form.evaluate("document.getElementById('id_filters-0-preemption_helps').checked = true")
    button = form.get_by_role("button", name="Duplicate").first
    button.focus()
    form.keyboard.press("Enter")
    name = form.locator("#id_filters-1-name")
    expect(name).to_be_focused()
    assert name.input_value() == f"{form.input_value('#id_filters-0-name')}-copy"
    assert form.input_value("#id_filters-1-expression") == expression
    assert form.input_value("#id_filters-1-reason") == "typed a moment ago"
    assert form.is_checked("#id_filters-1-preemption_helps")
    expect(form.locator("#filters-group .form-group").nth(1).locator(".cm-content")).to_contain_text(expression[:20])
    shoot(form, "rule-duplicated")
    form.keyboard.press("Control+A")
    form.keyboard.type("again")
    form.click("button[name=_continue]")
    expect(form.locator("body")).to_contain_text("web is in Change")
    assert form.input_value("#id_filters-1-name") == "again"
    assert form.input_value("#id_filters-1-expression") == expression


def test_a_second_copy_has_a_name_of_its_own_and_a_score_keeps_its_weight(form: Page) -> None:
    form.click("#scores-group .add-row")
    form.fill("#id_scores-0-name", "free")
    form.fill("#id_scores-0-expression", "usage.free.cpu")
    form.fill("#id_scores-0-weight", "7")
    button = form.locator("#scores-group .form-group").nth(0).get_by_role("button", name="Duplicate")
    button.click()
    button.click()
    names = [form.input_value(f"#id_scores-{number}-name") for number in range(3)]
    assert names == ["free", "free-copy", "free-copy-2"]
    assert [form.input_value(f"#id_scores-{number}-weight") for number in range(3)] == ["7", "7", "7"]


def test_a_built_in_shows_the_fields_of_a_built_in_in_the_copy_too(form: Page) -> None:
    form.click("#scores-group .add-row")
    form.select_option("#id_scores-0-builtin", "LeastRequestedPriority")
    form.locator("#scores-group .form-group").nth(0).get_by_role("button", name="Duplicate").click()
    assert form.input_value("#id_scores-1-builtin") == "LeastRequestedPriority"
    expect(form.locator("#id_scores-1-arguments")).to_be_visible()
    expect(form.locator("#scores-group .form-group").nth(1).locator(".cm-editor")).to_be_hidden()


def names_in_order(form: Page) -> list[str]:
    """Return the filters as the page shows them."""
    fields = form.locator("#filters-group .form-group:not(.empty-form) input[name$='-name']")
    return [field.input_value() for field in fields.all()]


def test_rules_are_moved_by_keyboard_also_new_ones_and_stay_so_over_a_refused_save(form: Page) -> None:
    for name in ("second", "third"):
        form.locator("#filters-group .form-group").nth(0).get_by_role("button", name="Duplicate").click()
        form.keyboard.type(name)
    first, *_ = names_in_order(form)
    up = form.locator("#filters-group .form-group").nth(2).get_by_role("button", name="Up", exact=True)
    up.focus()
    form.keyboard.press("Enter")
    # The button goes along: pressed again, it moves the rule on. At the top there is nowhere to go.
    form.keyboard.press("Enter")
    form.keyboard.press("Enter")
    assert names_in_order(form) == ["third", first, "second"]
    form.locator("#filters-group .form-group").nth(1).get_by_role("button", name="Down", exact=True).click()
    assert names_in_order(form) == ["third", "second", first]
    form.fill("#id_filters-1-expression", "nope")
    form.click("button[name=_continue]")
    expect(form.locator(".errorlist").first).to_contain_text("undeclared reference to 'nope'")
    assert names_in_order(form) == ["third", "second", first]
    form.fill("#id_filters-1-expression", "true")
    form.click("button[name=_continue]")
    expect(form.locator("body")).to_contain_text("web is in Change")
    assert names_in_order(form) == ["third", "second", first]
    shoot(form, "rules-moved")


def test_the_count_of_tests_leads_to_the_tests_that_are_folded(form: Page) -> None:
    expect(form.locator("details[open] #id_tests")).to_have_count(0)
    form.click("#tests-heading")
    expect(form.locator("details[open] #id_tests")).to_have_count(1)
    expect(form.locator(".cm-editor.cm-focused")).to_be_visible()


@pytest.mark.parametrize("page", [FORM, "/admin/policies/rule-set-text/web/"])
def test_letters_typed_into_the_editor_lead_to_no_other_page(form: Page, page: str) -> None:
    """`g` and `p` lead to Processes, `?` to the list of keys, `/` to the search: not from where an expression is typed."""
    form.goto(page)
    editor = form.locator(".cm-content").first
    editor.click()
    form.keyboard.press("Control+End")
    form.keyboard.type("gpu / gh ? a : b")
    # A page that was asked for would be there now.
    form.wait_for_timeout(1_000)
    assert form.url.endswith(page)
    expect(editor).to_contain_text("gpu / gh ? a : b")
    expect(form.locator("#keys")).to_be_hidden()


def tab_to(form: Page, selector: str) -> None:
    """Press Tab until what has the keyboard is what is wanted."""
    for _ in range(200):
        form.keyboard.press("Tab")
        if form.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    pytest.fail(f"Tab doesn't come to {selector}")


def test_a_rule_is_deleted_by_keyboard_alone_and_the_keyboard_stays_near(form: Page) -> None:
    tab_to(form, "#id_filters-0-DELETE")
    assert form.locator(".berth-row-delete").first.evaluate("label => getComputedStyle(label).outlineStyle") == "solid"
    expect(form.get_by_role("checkbox", name="Delete").first).to_be_focused()
    form.keyboard.press("Space")
    covered = form.locator("#filters-group .form-group").first.locator(".form-delete")
    expect(covered).to_contain_text("This item will be deleted.")
    assert covered.locator("label").evaluate("label => getComputedStyle(label).outlineStyle") == "solid"
    form.keyboard.press("Space")
    expect(covered).to_be_hidden()
    tab_to(form, "#scores-group .add-row")
    form.keyboard.press("Enter")
    expect(form.locator("#id_scores-0-name")).to_be_visible()
    form.locator("#scores-group").get_by_role("button", name="Duplicate").first.focus()
    form.keyboard.press("Tab")
    expect(form.locator("#scores-group").get_by_role("button", name="Delete").first).to_be_focused()
    form.keyboard.press("Enter")
    expect(form.locator("#id_scores-0-name")).to_be_hidden()
    expect(form.locator("#scores-group .add-row")).to_be_focused()
