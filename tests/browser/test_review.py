"""A Change from the first edit to its roll-back, by three people in three sessions of a real browser, with a real cluster."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import in_scheme, shoot, shoot_everywhere, signed_in
from tests.builders import assignment_document, rule_set_document
from tests.stack import Stack, eventually, make_node

pytestmark = pytest.mark.browser
PASSWORD = "three people, three sessions"
_ACCOUNTS = f"""
from django.contrib.auth.models import Group, User
for name, role in (("alice", "Operator"), ("bob", "Operator"), ("carol", "Approver")):
    user = User.objects.create_user(name, password="{PASSWORD}", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
"""


def only(node: str) -> dict[str, Any]:
    return {"name": "one-node", "expression": f"node.metadata.name == '{node}'", "reason": f"only {node} for now"}


def publish_base(running: Stack) -> None:
    """Web Pods go to n2; a rule set for a trial takes none."""
    web = {"podSelector": {"matchLabels": {"app": "web"}}}
    running.publish_all(
        [
            rule_set_document("team", filters=[only("n2")]),
            assignment_document("team", "team", order=10, match=web),
            rule_set_document("trial", filters=[only("n3")]),
            assignment_document("trial", "trial", order=5, match={"namespaces": ["nowhere"]}),
        ]
    )


@pytest.fixture(scope="module")
def reviewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A Berth of its own, where review is required."""
    nodes = [make_node(name) for name in ("n1", "n2", "n3")]
    with Stack(
        tmp_path_factory.mktemp("reviewed"), nodes=nodes, environment={"BERTH_REVIEW_REQUIRED": "true"}
    ) as running:
        running.manage("shell", "-c", _ACCOUNTS)
        running._environment["BERTH_REVIEW_REQUIRED"] = "false"  # of commands, from now on
        publish_base(running)
        yield running


@pytest.fixture
def sign_in(reviewed: Stack, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Callable[[str], Page]]:
    with ExitStack() as pages:

        def sign_in(name: str) -> Page:
            kept_as = f"{request.node.name}-{name}"
            return pages.enter_context(signed_in(browser, reviewed, name, PASSWORD, kept_as=kept_as))

        yield sign_in


def press(page: Page, act: str, text: str = "") -> None:
    page.fill("#id_text", text)
    page.click(f"button[name=act][value={act}]")


def says(page: Page, what: str) -> None:
    expect(page.locator("body")).to_contain_text(re.compile(what))


def number_of(page: Page) -> str:
    """Return the number of the Change that a page shows."""
    found = re.search(r"/change/(\d+)/", page.url)
    assert found, page.url
    return found[1]


def edit_rule_set(page: Page, name: str) -> None:
    """Go to the form of a rule set."""
    page.goto(f"/admin/policies/rulesetversion/edit:{name}/change/")
    expect(page.locator("#filters-group")).to_be_visible()


def look_at_the_gate(page: Page, change: str) -> None:
    """Wait until the gate has looked at a Change, as its page shows by itself; then look at the page."""
    page.goto(change)
    expect(page.locator("#gate")).to_contain_text("The gate looked at", timeout=300_000)
    expect(page.locator("#gate")).to_contain_text("Every Pod that runs could run where it is.")
    page.goto(change)


@pytest.mark.timeout(1800)
def test_a_change_is_written_reviewed_overtaken_approved_again_published_looked_at_and_rolled_back(
    reviewed: Stack, sign_in: Callable[[str], Page]
) -> None:
    alice, bob, carol = map(sign_in, ("alice", "bob", "carol"))
    before = reviewed.newest_revision()

    # Alice edits a rule, and puts the Assignment of its rule set in shadow, in one Change.
    edit_rule_set(alice, "trial")
    alice.fill("#id_filters-0-expression", only("n1")["expression"])
    alice.fill("#id_filters-0-reason", only("n1")["reason"])
    alice.fill("#id_new_title", "Try web Pods on n1")
    alice.click("button[name=_save]")
    says(alice, "It isn't live until that Change is published")
    change = number_of(alice)
    page_of_change = alice.url
    alice.goto("/admin/policies/assignment/")
    alice.locator("#result_list").get_by_role("link", name="trial", exact=True).first.click()
    alice.select_option("#id_mode", "shadow")
    alice.fill("#id_namespaces", "")
    alice.fill("#id_pod_selector", "app=web")
    alice.select_option("#id_goes_into", change)
    shoot(alice, "assignment-into-change")
    alice.click("button[name=_save]")
    assert number_of(alice) == change
    press(alice, "expire", "the times are right")  # a form of its own
    says(alice, "alice commented: the times are right")
    press(alice, "submit", "ticket 7")
    says(alice, "0 of 1 approval")
    shoot(alice, "change-in-review")

    # Carol looks at it, and approves.
    carol.goto("/admin/policies/change/?which=waiting")
    says(carol, f"Change {change}")
    shoot(carol, "changes-waiting")
    look_at_the_gate(carol, page_of_change)
    says(carol, "Try web Pods on n1")
    says(carol, "only n1 for now")
    press(carol, "approve", "looks right")
    says(carol, "Your approval is recorded")
    shoot(carol, "change-approved")

    # Bob's Change of another rule of the same rule set is faster.
    edit_rule_set(bob, "trial")
    bob.click("#scores-group .add-row")
    bob.select_option("#id_scores-0-builtin", "LeastRequestedPriority")
    bob.fill("#id_new_title", "Spread the trial")
    bob.click("button[name=_save]")
    press(bob, "submit", "to be quick")
    carol.goto(bob.url)
    press(carol, "approve", "fine")
    bob.goto(carol.url)
    press(bob, "publish")
    says(bob, f"Revision {before + 1} was made")

    # The base has moved: Alice puts both together, which drops the approval.
    alice.goto(page_of_change)
    says(alice, "The live state has changed")
    says(alice, "Publish: Somebody else has published another RuleSet trial since")
    shoot(alice, "change-moved")
    press(alice, "rebase")
    says(alice, "The Change is now based on the live Revision")
    says(alice, "0 of 1 approval")
    look_at_the_gate(carol, page_of_change)
    press(carol, "approve", "still right")
    alice.goto(page_of_change)
    press(alice, "publish", "ticket 7")
    says(alice, f"Revision {before + 2} was made")
    shoot(alice, "change-published")

    # Pods go on as before, and the shadow says what it would have done with them.
    reviewed.wait_until_served()
    for name in ("web-1", "web-2"):
        reviewed.create_pod(name, labels={"app": "web"})
        assert reviewed.wait_for_node(name) == "n2"
    counted = "SELECT SUM(number) FROM scheduler_shadowcount WHERE divergence = 'refused the node'"
    counted += f" AND assignment = 'trial' AND revision = {before + 2}"
    eventually(lambda: (reviewed.sql(counted)[0][0] or 0) >= 2, what="the shadow is counted")
    carol.goto(page_of_change)
    panel = carol.locator("#shadow-panel")
    expect(panel).to_contain_text("Results of its shadows since")
    expect(panel.locator("tbody tr").first).to_contain_text(re.compile(r"trial\s*trial v3\s*filter"))
    shoot(carol, "change-divergence")
    panel.get_by_role("link", name="2", exact=True).first.click()
    listed = carol.locator("#result_list")
    expect(listed).to_contain_text("web-1")
    expect(listed).to_contain_text("web-2")
    shoot(carol, "diverged-decisions")
    listed.locator("tbody a").first.click()
    says(carol, r"It would have refused the node that the Pod got\.")
    shoot(carol, "shadow-decision")
    carol.get_by_role("link", name="See the enforced answer").click()
    expect(carol.locator("#beside")).to_contain_text("trial v3, by Assignment trial", timeout=60_000)
    carol.goto("/admin/scheduler/shadows/?assignment=trial")
    says(carol, "of Assignment trial")
    shoot(carol, "shadows")

    # What it would have done isn't what they want: it is rolled back.
    alice.goto(f"/admin/policies/revision/{before + 1}/roll_back/")
    alice.fill("#id_reason", "n1 is for others")
    alice.click("#confirm_form button[type=submit]")
    says(alice, "is in review")
    carol.goto(alice.url)
    press(carol, "approve", "go back")
    alice.goto(carol.url)
    press(alice, "publish")
    says(alice, f"Revision {before + 3} was made")
    alice.goto("/admin/policies/assignment/")
    expect(alice.locator("#result_list tr", has_text="trial")).to_contain_text("enforce")

    carol.emulate_media(color_scheme="dark")
    for name, path in (("change", page_of_change), ("shadows", "/admin/scheduler/shadows/")):
        carol.goto(path)
        expect(carol.locator("body")).to_be_visible()
        shoot(carol, f"dark-{name}")


# Of a team that has grown: its end is far from its begin.
_LONG = " && ".join(f"node.metadata.labels[?'team-{number}'].orValue('') != 'closed'" for number in range(8))
_LET_ALL_PASS = """
from policies import publishing
from policies.engine.validation import read_rule_set
from tests.builders import rule_set_document
rule = {{"name": "teams", "expression": {expression!r} + " || true", "reason": "closed to others"}}
edit = publishing.Edit.of(read_rule_set(rule_set_document("teams", filters=[rule])))
change = publishing.open_change(title="Let the teams in", edits=[edit], by="alice")
publishing.submit_change(change=change, by="alice", expected_digest=change.digest)
"""


def test_an_approver_sees_at_once_that_a_long_expression_lets_everything_pass(
    reviewed: Stack, sign_in: Callable[[str], Page]
) -> None:
    rule = {"name": "teams", "expression": _LONG, "reason": "closed to others"}
    reviewed.publish_all([rule_set_document("teams", filters=[rule])])
    reviewed.manage("shell", "-c", _LET_ALL_PASS.format(expression=_LONG))
    carol = sign_in("carol")
    carol.goto("/admin/policies/change/?which=waiting")
    carol.get_by_role("link", name="Let the teams in").or_(
        carol.locator("tr", has_text="Let the teams in").get_by_role("link")
    ).first.click()
    added = carol.locator("ins", has_text="|| true").first
    expect(added).to_be_in_viewport(timeout=30_000)
    shoot(carol, "or-true")
    in_scheme(carol, "dark")
    shoot(carol, "or-true-dark")
    whole = carol.locator("details.berth-diff").first
    whole.locator("summary").press("Enter")
    expect(whole.locator("ins mark", has_text="|| true")).to_be_visible()
    in_scheme(carol, "light")
    shoot(carol, "or-true-whole")
    whole.locator("summary").press("Enter")
    carol.set_viewport_size({"width": 390, "height": 844})
    for scheme in ("light", "dark"):
        in_scheme(carol, scheme)
        carol.evaluate("scrollTo(0, 0)")
        expect(added).to_be_in_viewport()
        shoot(carol, f"or-true-390-{scheme}")


def test_of_two_people_at_one_assignment_the_second_is_told_and_keeps_what_was_typed(
    reviewed: Stack, sign_in: Callable[[str], Page]
) -> None:
    reviewed.publish_all([rule_set_document("shared"), assignment_document("shared", "shared", order=70)])
    alice, bob = map(sign_in, ("alice", "bob"))
    for page in (alice, bob):
        page.goto("/admin/policies/assignment/")
        page.locator("#result_list").get_by_role("link", name="shared", exact=True).first.click()
        expect(page.locator("#id_order")).to_have_value("70")
    alice.fill("#id_order", "71")
    alice.fill("#id_new_title", "Later than it was")
    alice.click("button[name=_save]")
    says(alice, "It isn't live until that Change is published")
    change = number_of(alice)

    # Bob saves beside her: he is told that she is at it, and his form says so from now on.
    bob.fill("#id_description", "typed by bob")
    bob.click("button[name=_save]")
    says(bob, f"Change {change} also edits shared")
    shoot(bob, "beside-a-colleague")
    # Into her Change he would overwrite what he hasn't seen.
    bob.goto(f"{reviewed.admin_url}/admin/policies/assignment/")
    bob.locator("#result_list").get_by_role("link", name="shared", exact=True).first.click()
    says(bob, "in open Changes, not live yet")
    form = bob.url.partition("?")[0]
    for page in (alice, bob):
        page.goto(f"{form}?change={change}")
        expect(page.locator("#id_order")).to_have_value("71")
    alice.fill("#id_order", "72")
    alice.click("button[name=_save]")
    says(alice, "It isn't live until that Change is published")
    bob.fill("#id_order", "5")
    bob.click("button[name=_save]")
    says(bob, "Somebody was faster: alice edited it in")
    expect(bob.locator("#id_order")).to_have_value("5")
    shoot_everywhere(bob, "second-of-two")
