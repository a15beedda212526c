"""What ops do in the browser: from the first page to why a Pod is Pending, and what would let it run."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import shoot, shoot_everywhere
from tests.stack import Stack, eventually

pytestmark = pytest.mark.browser
POD, OTHERS = "stuck-1", 300
_RULES = """
from policies import publishing
from tests.builders import make_assignment, make_rule_set
rule = dict(name="gpu", expression="node.metadata.?labels.gpu.orValue('') == 'yes'", reason="node has no GPU")
match = dict(podSelector=dict(matchLabels=dict(app="stuck")))
edits = [publishing.Edit.of(each) for each in (make_rule_set("gpus", filters=[rule]), make_assignment("gpus", "gpus", order=2, match=match))]
change = publishing.open_change(title="Pods of stuck need a GPU", edits=edits, by="operator")
publishing.publish_change(change=change, by="operator", expected_digest=change.digest, reason="as asked")
"""
# As if kube-scheduler had placed them since: rows are as good as Pods for what pages look through.
_PLACED = f"""
from datetime import UTC, datetime
from tests.component.controlplane.test_pages import make_decision
from scheduler.models import Outcome
for number in range({OTHERS}):
    now, uid = datetime.now(UTC), f"placed-since-{{number}}"
    make_decision(process="placed@since", sequence=number + 1, at=now, pod_name=uid, pod_uid=uid, placed_on="n1", placed_at=now)
    Outcome.objects.create(kind="bound", at=now, process="placed@since", pod_namespace="shop", pod_name=uid, pod_uid=uid, node_name="n1")
"""


@pytest.fixture(scope="module")
def stuck(stack: Stack) -> str:
    """A Pod of kube-scheduler's that a rule keeps from every node, and 300 others that were placed since; its UID."""
    stack.manage("shell", "-c", _RULES)
    stack.wait_until_served()
    uid = stack.create_pod(POD, labels={"app": "stuck"})
    eventually(lambda: stack.scheduled_message(POD), what="it was refused")
    stack.manage("shell", "-c", _PLACED)
    # The Decision comes by way of spool and stream, the Pod by the worker's next look at the cluster.
    known = f"SELECT 1 FROM scheduler_pendingpod WHERE uid = '{uid}' AND rule = 'gpu'"
    eventually(lambda: stack.sql(known), what="it is among the Pods that wait, with the rule that holds it")
    return uid


def test_ops_find_in_two_clicks_from_home_why_a_pod_is_pending_and_what_would_let_it_run(
    page: Page, stack: Stack, stuck: str
) -> None:
    page.goto("/admin/")
    pending = page.locator("#pending-pods")
    expect(pending).to_contain_text(re.compile(r"Pods? (is|are) Pending"))
    shoot(page, "home-pending")
    pending.get_by_role("link").first.click()  # the first click
    row = page.locator("#pending-groups tr", has_text="node has no GPU")
    expect(row).to_contain_text("1 Pod")
    shoot(page, "pending")
    row.get_by_role("link", name="node has no GPU").click()  # the second
    group = page.locator("#group")
    expect(group).to_contain_text(f"default/{POD}")
    expect(group).to_contain_text("rule gpu: “node has no GPU”")
    expect(group).to_contain_text(re.compile(r"0 of 3 nodes, \d+ \w+ ago"))
    # Decided anew on the Decision's own Snapshot, by a request of its own.
    expect(page.locator("#remedies")).to_contain_text(
        "Without rule gpu (“node has no GPU”) 3 nodes would be allowed: n1, n2 and n3.", timeout=30_000
    )
    shoot_everywhere(page, "pending-group")

    group.get_by_role("link", name=f"default/{POD}", exact=True).click()
    expect(page.locator("#pending-now")).to_contain_text("held by rule gpu: “node has no GPU”")
    expect(page.locator("#pending-now")).to_contain_text("0/3 nodes are available: 3 node has no GPU")
    expect(page.locator("#remedies")).to_contain_text("Without rule gpu", timeout=30_000)
    shoot(page, "pending-pod")
    page.fill("#why-node", "n2")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#why-said")).to_contain_text('filter gpu refused n2: "node has no GPU"')

    page.emulate_media(color_scheme="dark")
    page.set_viewport_size({"width": 390, "height": 844})
    for name, path in (
        ("home", "/admin/"),
        ("pending", "/admin/scheduler/pending/"),
        ("group", "/admin/scheduler/pending/?rule=gpu&reason=node+has+no+GPU"),
        ("pod", f"/admin/scheduler/pods/default/{POD}/?uid={stuck}"),
    ):
        page.goto(path)
        expect(page.locator("main, #main, body").first).to_contain_text("Pending")
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 390, (name, width)
        shoot(page, f"dark-phone-{name}")
