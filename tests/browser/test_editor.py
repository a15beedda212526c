"""Writing a rule with three faults, mending them by what the page says, trying it on a Pod that waits, and keeping a test."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import shoot, shoot_everywhere
from tests.stack import Stack

pytestmark = pytest.mark.browser
WAIT = 30_000
WRONG = "node.metadata.labels[?'team'].orValue('') == pot.metadata.labels.team"
RIGHT = "!has(pod.metadata.labels.team) || node.metadata.labels[?'team'].orValue('') == pod.metadata.labels.team"


def test_three_faults_are_mended_by_what_the_page_says_and_a_test_is_kept(page: Page, stack: Stack) -> None:
    stack.create_pod("waits-for-nobody", labels={"team": "data"}, schedulerName="nobody")
    page.goto("/admin/policies/rulesetversion/edit:written/change/")
    page.click("#filters-group .add-row")
    page.fill("#id_filters-0-name", "team")
    page.fill("#id_filters-0-expression", WRONG)
    page.fill("#id_filters-0-reason", "50% of the nodes are others'")
    page.click("#scores-group .add-row")
    page.fill("#id_scores-0-name", "free")
    page.fill("#id_scores-0-expression", "usage.free.cpu > 1")

    faults = page.locator("#faults-list li")
    expect(faults).to_have_count(3, timeout=WAIT)
    expect(faults.nth(0)).to_contain_text(
        "filter 1 (team), expression: line 1, column 46: undeclared reference to 'pot'; did you mean pod?"
    )
    expect(page.locator(".cm-lintRange-error").first).to_be_visible()
    shoot_everywhere(page, "editor-three-faults")

    faults.nth(0).locator("a").click()
    expect(page.locator(".cm-editor.cm-focused")).to_have_count(1)
    page.fill("#id_filters-0-expression", RIGHT)
    page.fill("#id_filters-0-reason", "node belongs to another team")
    page.fill("#id_scores-0-expression", "usage.free.cpu")
    expect(page.locator("#faults")).to_be_hidden(timeout=WAIT)

    page.click("button[name=_continue]")
    expect(page.locator("body")).to_contain_text("written is in Change")
    page.click("#editor-top >> text=Preview on a Pod")
    page.select_option("#id_pending", "default/waits-for-nobody")
    page.click("#preview-form button[type=submit]")
    expect(page.locator("#preview-found")).to_contain_text("1 of 3 nodes passes; n3 wins")
    expect(page.locator("#preview-matrix")).to_contain_text("node belongs to another team")
    shoot_everywhere(page, "editor-preview")
    page.click("#save-test")
    expect(page.locator("#tests-heading")).to_have_text("✓ Tests: 1 passed, 0 failed")
    shoot(page, "editor-test-kept")

    page.click("#editor-top >> text=Text")
    expect(page.locator(".cm-content")).to_contain_text("waits-for-nobody goes to n3")
    shoot(page, "editor-text")
    text = page.input_value("#id_text")
    page.fill("#id_text", text.replace("onError: reject", "").replace("name: free", "name: free\n    weigt: 2"))
    expect(page.locator("#faults-list")).to_contain_text("unknown member; did you mean weight?", timeout=WAIT)
    page.fill("#id_text", text.replace("name: free", "name: free\n    weight: 2"))
    expect(page.locator("#faults")).to_be_hidden(timeout=WAIT)
    page.click("button[name=_continue]")
    expect(page.locator("body")).to_contain_text(re.compile(r"written is in Change \d+"))
    page.click("#editor-top >> text=Form")
    expect(page.locator("#id_scores-0-weight")).to_have_value("2")


def test_kubernetes_fields_are_completed_with_what_they_are(page: Page, stack: Stack) -> None:
    del stack
    page.goto("/admin/policies/rulesetversion/edit:completed/change/")
    page.click("#filters-group .add-row")
    page.locator("#filters-group .cm-content").first.click()
    page.keyboard.type("node.spec.unsch")
    popup = page.locator(".cm-tooltip-autocomplete")
    expect(popup).to_contain_text("unschedulable", timeout=WAIT)
    expect(page.locator(".cm-completionInfo")).to_contain_text(
        "Unschedulable controls node schedulability", timeout=WAIT
    )
    shoot(page, "editor-completion")
    page.keyboard.press("Enter")
    expect(page.locator("#id_filters-0-expression")).to_have_value("node.spec.unschedulable")
