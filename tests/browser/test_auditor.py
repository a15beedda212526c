"""What an auditor does in the browser: from a Pod's name and a day to the person who approved the rule that placed it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import shoot, signed_in
from tests.stack import Stack, eventually

pytestmark = pytest.mark.browser
PASSWORD = "reads it all, months later"
POD = "audited-1"
# What an auditor may send: none of it changes anything that somebody else goes by.
HARMLESS = re.compile(r"/(logout|replay|evidence/start|evidence/[0-9]+/download)/$")
BERTH_VERIFY = Path(__file__).parents[2] / "deploy" / "berth-verify"
_APPROVED = f"""
from django.contrib.auth.models import Group, User
from policies import publishing
from tests.builders import make_assignment, make_rule_set
def person(name, role):
    user = User.objects.create_user(name, password="{PASSWORD}", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
    return user
anna, cleo = person("anna", "Operator"), person("cleo", "Approver")
person("otto", "Auditor")
rule = dict(name="audited", expression="node.metadata.name == 'n2'", reason="audited Pods run on n2")
rules = make_rule_set("audited", filters=[rule])
match = dict(podSelector=dict(matchLabels=dict(app="audited")))
edits = [publishing.Edit.of(each) for each in (rules, make_assignment("audited", "audited", order=3, match=match))]
change = publishing.open_change(title="Audited Pods on n2", edits=edits, by=anna)
publishing.submit_change(change=change, by=anna, expected_digest=change.digest)
publishing.approve_change(change=change, by=cleo, expected_digest=change.digest, text="as agreed")
publishing.publish_change(change=change, by=anna, expected_digest=change.digest, reason="ticket 12")
"""


@pytest.fixture(scope="module")
def placed(stack: Stack) -> str:
    """A Pod that was placed by a rule that somebody approved; the day."""
    stack.manage("shell", "-c", _APPROVED)
    stack.wait_until_served()
    uid = stack.create_pod(POD, labels={"app": "audited"})
    assert stack.wait_for_node(POD) == "n2"
    recorded = f"SELECT 1 FROM scheduler_decision WHERE pod_uid = '{uid}' AND placed_on <> ''"
    eventually(lambda: stack.sql(recorded), what="its Decision and its node")
    return f"{datetime.now(UTC):%Y-%m-%d}"


@pytest.fixture
def auditor(placed: str, stack: Stack, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    with signed_in(browser, stack, "otto", PASSWORD, kept_as=request.node.name) as opened:
        yield opened


def changes_nothing(page: Page) -> None:
    """See that no form of the page sends anything that changes something."""
    sending = page.locator("form[method=post]", has=page.locator("button:not([type=button]), input[type=submit]"))
    actions = sending.evaluate_all("forms => forms.map(form => form.getAttribute('action'))")
    assert [action for action in actions if not HARMLESS.search(action or "")] == [], page.url
    for word in ("Save", "Delete", "Publish", "Approve", "Roll back"):
        assert page.locator("main button", has_text=re.compile(f"^{word}")).count() == 0, (page.url, word)


@pytest.mark.timeout(600)
def test_an_auditor_comes_from_a_pods_name_and_a_day_to_who_approved_the_rule_in_three_clicks(
    auditor: Page, placed: str
) -> None:
    page = auditor
    changes_nothing(page)
    page.locator("a[href='/admin/scheduler/decision/']").first.click()  # the first click
    page.fill("#search-q", POD)
    page.fill("#search-from", placed)
    page.click("#decision-search button[type=submit]")  # the second
    expect(page.locator("#active-filters")).to_contain_text(POD)
    changes_nothing(page)
    shoot(page, "auditor-decisions")
    page.locator("#result_list").get_by_role("link", name=f"default/{POD}").first.click()  # the third
    answers = page.locator("#who-answers")
    expect(answers).to_contain_text(re.compile(r"Rule set audited.*published by anna.*approved by cleo", re.DOTALL))
    expect(page.locator("#ends")).to_contain_text("bound to n2")
    expect(page.locator("#why-not")).to_contain_text("audited Pods run on n2")
    changes_nothing(page)
    shoot(page, "auditor-story")

    # Further: the Change, the version and its Decisions, the node.
    story = page.url
    answers.get_by_role("link", name=re.compile("Change ")).first.click()
    expect(page.locator("body")).to_contain_text("as agreed")
    changes_nothing(page)
    page.goto(story)
    answers.get_by_role("link", name=re.compile("Rule set audited version 1")).click()
    expect(page.locator("#version-decisions")).to_contain_text(POD)
    changes_nothing(page)
    page.goto(story)
    page.locator("#ends").get_by_role("link", name="n2", exact=True).click()
    expect(page.locator("#placed")).to_contain_text(POD)
    changes_nothing(page)
    shoot(page, "auditor-node")


def test_an_auditor_exports_a_case_and_proves_it_on_a_machine_of_their_own(
    auditor: Page, stack: Stack, tmp_path: Path
) -> None:
    page = auditor
    page.get_by_role("link", name="Evidence", exact=True).click()
    page.fill("#id_pod_namespace", "default")
    page.fill("#id_pod_name", POD)
    changes_nothing(page)
    page.get_by_role("button", name="Export").click()
    # The list follows until it is made.
    download = page.locator("#evidence-rows").get_by_role("button", name="Download archive")
    expect(download.first).to_be_visible(timeout=120_000)
    expect(page.locator("#evidence-rows")).to_contain_text(f"Pod default/{POD}")
    shoot(page, "auditor-evidence")
    page.emulate_media(color_scheme="dark")
    page.reload()
    shoot(page, "dark-auditor-evidence")
    with page.expect_download() as taking:
        download.first.click()
    archive = tmp_path / "evidence.tar"
    taking.value.save_as(archive)
    command = [sys.executable, str(BERTH_VERIFY), str(archive), "--keys", str(stack.state / "ledger_key.pub")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "decisions" in done.stdout
    page.goto("/admin/policies/audit/")
    expect(page.locator("body")).to_contain_text(f"Pod default/{POD}")


def test_the_pages_of_the_history_are_readable_in_the_dark_and_a_list_follows_until_it_is_stopped(
    auditor: Page, stack: Stack
) -> None:
    page = auditor
    page.emulate_media(color_scheme="dark")
    for name, path in (
        ("decisions", f"/admin/scheduler/decision/?q={POD}&span=day"),
        ("story", f"/admin/scheduler/pods/default/{POD}/"),
        ("node", "/admin/scheduler/nodes/n2/"),
    ):
        page.goto(path)
        expect(page.locator("body")).to_contain_text(POD)
        shoot(page, f"dark-auditor-{name}")
    page.goto("/admin/scheduler/decision/?assignment=audited")
    page.click("#follow")
    stack.create_pod("audited-2", labels={"app": "audited"})
    # It comes by way of spool and stream; nobody reloads the page.
    expect(page.locator("#result_list")).to_contain_text("audited-2", timeout=60_000)
    page.click("#stop-following")
    expect(page.locator("#follow")).to_be_visible()
    expect(page.locator("#decision-rows")).not_to_have_attribute("hx-trigger", "every 2s")
