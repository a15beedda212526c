"""What an operator does in the browser, from the first page to the Decision of the next Pod."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import shoot
from tests.stack import Stack, eventually

pytestmark = pytest.mark.browser
WRONG = "has(pod.metadata.labels.team) &&\nnode.metadata.labels.team == pot.metadata.labels.team"
RIGHT = "!has(pod.metadata.labels.team) ||\nnode.metadata.labels[?'team'].orValue('') == pod.metadata.labels.team"


def test_an_operator_writes_a_rule_publishes_it_and_sees_the_decision_of_the_next_pod(page: Page, stack: Stack) -> None:
    # Other stories have left rule sets in Changes: what an empty Berth says first is looked at without a browser.
    expect(page.locator("#next-step")).to_be_visible()
    shoot(page, "home-before")

    page.goto("/admin/policies/ruleset/add/")
    page.fill("#id_name", "team-nodes")
    page.fill("#id_description", "Pods of a team stay on the team's nodes")
    page.click("button[name=_save]")
    page.click("#filters-group .add-row")
    page.fill("#id_filters-0-name", "team")
    page.fill("#id_filters-0-expression", WRONG)
    page.fill("#id_filters-0-reason", "node belongs to another team")
    page.click("button[name=_save]")

    expect(page.locator(".errorlist").first).to_contain_text("undeclared reference to 'pot'; did you mean pod?")
    expect(page.locator(".errorlist").first).to_contain_text(re.compile(r"line 2.*column 30"))
    expect(page.locator("pre.berth-caret")).to_contain_text("^")
    assert page.input_value("#id_filters-0-expression").replace("\r\n", "\n") == WRONG
    assert page.input_value("#id_filters-0-reason") == "node belongs to another team"
    shoot(page, "draft-refused")

    page.fill("#id_filters-0-expression", RIGHT)
    page.click("button[name=policies_rulesetversion_save_and_publish]")
    expect(page.locator("body")).to_contain_text(re.compile(r"Revision \d+ was made"))
    shoot(page, "published")

    page.goto("/admin/policies/assignment/add/")
    page.fill("#id_name", "team-nodes")
    page.click("#select2-id_rule_set-container")
    page.fill(".select2-search__field", "team-")
    page.click(".select2-results__option:has-text('team-nodes')")
    page.fill("#id_pod_selector", "team")
    page.click("button[name=_save]")
    expect(page.locator("body")).to_contain_text("It isn't live until that Change is published")
    shoot(page, "assignment-in-a-change")
    page.fill("#id_text", "teams asked for it")
    page.click("button[name=act][value=publish]")
    expect(page.locator("body")).to_contain_text(re.compile(r"Revision \d+ was made"))
    stack.wait_until_served()

    stack.create_pod("billing-1", labels={"team": "data"})
    assert stack.wait_for_node("billing-1") == "n3"
    eventually(lambda: stack.sql("SELECT 1 FROM scheduler_decision WHERE pod_name = 'billing-1'"))
    page.goto("/admin/scheduler/decision/")
    row = page.locator("#result_list tr", has_text="billing-1").filter(has_text="1 of 3").first
    expect(row).to_contain_text("1 of 3")
    expect(row).to_contain_text("node belongs to another team")
    shoot(page, "decisions")
    row.locator("a").first.click()
    expect(page.locator("body")).to_contain_text("node belongs to another team")
    expect(page.locator("body")).to_contain_text("n3")
    shoot(page, "decision")

    page.goto("/admin/")
    expect(page.locator("#health")).to_contain_text(re.compile(r"Revision \d+"))
    shoot(page, "home")


def test_the_pages_are_readable_in_the_dark(page: Page) -> None:
    page.emulate_media(color_scheme="dark")
    for name, path in (
        ("home", "/admin/"),
        ("decisions", "/admin/scheduler/decision/"),
        ("rule-sets", "/admin/policies/ruleset/"),
    ):
        page.goto(path)
        expect(page.locator("body")).to_be_visible()
        shoot(page, f"dark-{name}")
