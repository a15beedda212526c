"""PriorityClasses and the queue of Berth's own scheduler, as an operator sees them."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import shoot, shoot_everywhere
from tests.stack import Stack, eventually

pytestmark = pytest.mark.browser
HUGE = [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100"}}}]


def test_an_operator_makes_a_priority_class_and_sees_the_cluster_take_it(page: Page, stack: Stack) -> None:
    page.goto("/admin/policies/priorityclass/")
    shoot(page, "priority-classes-empty")
    page.goto("/admin/policies/priorityclass/add/")
    page.fill("#id_name", "system-mine")
    page.fill("#id_value", "5000")
    page.click("button[name=_save]")
    expect(page.locator(".errorlist").first).to_contain_text("system-")
    shoot(page, "priority-class-refused")

    page.fill("#id_name", "nightly")
    page.click("button[name=_save]")
    page.fill("textarea[name=text]", "batch may wait")
    shoot(page, "priority-class-in-a-change")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.locator("body")).to_contain_text(re.compile(r"Revision \d+"))

    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    eventually(
        lambda: "nightly" in {found["metadata"]["name"] for found in json.loads(stack.client.get(path=path))["items"]}
    )
    page.goto("/admin/policies/priorityclass/")
    row = page.locator("#result_list tr", has_text="nightly")
    expect(row).to_contain_text("5,000")
    eventually(lambda: page.reload() and "applied" in row.inner_text().lower())
    shoot(page, "priority-classes")


def test_the_queue_shows_who_waits_and_why(page: Page, stack: Stack) -> None:
    stack.create_pod("too-big", schedulerName="berth", containers=HUGE)
    eventually(lambda: stack.scheduled_message("too-big"))
    page.goto("/admin/scheduler/queue/")
    row = page.locator("#queue-pods tr", has_text="too-big")
    # The page is the queue as it was written last: a Pod that is tried again has no reason for that moment.
    eventually(lambda: page.reload() and row.count() and "Insufficient cpu" in row.inner_text(), what="its reason")
    expect(page.locator("#queue-says")).to_contain_text("schedules the Pods of berth")
    shoot(page, "queue")
    row.locator("a").first.click()
    page.wait_for_url("**/scheduler/pods/default/too-big/**")
    # Its Decision comes by way of spool and stream, a little later.
    attempts = page.locator("#attempts", has_text="0 of 3 nodes")
    eventually(lambda: attempts.count() or (page.reload() and attempts.count()), what="its Decision")
    page.emulate_media(color_scheme="dark")
    page.goto("/admin/scheduler/queue/")
    shoot(page, "dark-queue")


def test_a_pod_that_is_woken_is_tried_at_once(page: Page, stack: Stack) -> None:
    uid = stack.create_pod("sleeper", schedulerName="berth", containers=HUGE)
    tried = f"SELECT 1 FROM scheduler_decision WHERE pod_uid = '{uid}'"
    waits = f"SELECT 1 FROM scheduler_pendingpod WHERE uid = '{uid}'"
    eventually(lambda: stack.sql(tried) and stack.sql(waits), what="it was tried, and is among those that wait")
    # Nothing happens in the cluster: of itself it would be tried after five minutes.
    before = len(stack.sql(tried))
    page.goto(f"/admin/scheduler/pods/default/sleeper/?uid={uid}")
    page.get_by_role("button", name="Wake").click()
    expect(page.locator("body")).to_contain_text("1 Pod is retried within a second.")
    shoot_everywhere(page, "woken")
    eventually(lambda: len(stack.sql(tried)) > before, seconds=20, what="it was tried once more")
    page.goto("/admin/policies/audit/")
    expect(page.locator("body")).to_contain_text("default/sleeper")
    shoot_everywhere(page, "woken-audit")
