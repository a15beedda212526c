"""Somebody who is told that a review waits, and somebody who looks after a webhook whose receiver is ill for a while."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import shoot, signed_in
from tests.stack import BASE_DIR, Stack, eventually

pytestmark = pytest.mark.browser
PASSWORD = "told, and not forgotten"
_ACCOUNTS = f"""
from django.contrib.auth.models import Group, User
User.objects.create_superuser("root", password="{PASSWORD}")
nina = User.objects.create_user("nina", password="{PASSWORD}", is_staff=True)
nina.groups.add(Group.objects.get(name="Approver"))
"""
# Another's Change, that nina is asked to look at.
_ASKED = """
from django.contrib.auth.models import User
from policies import publishing
from tests.builders import make_rule_set
edits = [publishing.Edit.of(make_rule_set("told", filters=[{"builtin": "PodFitsHost"}]))]
change = publishing.open_change(title="Night shift", edits=edits, by="ops", reason="fewer alarms")
change = publishing.submit_change(change=change, by="ops", expected_digest=change.digest)
publishing.ask_for_review(change=change, by="ops", whom="nina")
"""
_WITHDRAWN = """
from policies import publishing
from policies.models import Change
publishing.withdraw_change(change=Change.objects.get(title="Night shift", state="in_review"), by="ops")
"""


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Path]:
    """A receiver in a process of its own, and the folder by which it is led."""
    running = subprocess.Popen([sys.executable, "-m", "tests.receiver", tmp_path, "unknown"], cwd=BASE_DIR)
    eventually((tmp_path / "ports").exists, what="the receiver listens")
    yield tmp_path
    running.kill()
    running.wait()


@pytest.fixture
def sign_in(stack: Stack, browser: Browser) -> Iterator[Callable[[str], Page]]:
    stack.manage("shell", "-c", _ACCOUNTS)
    with ExitStack() as pages:
        yield lambda name: pages.enter_context(signed_in(browser, stack, name, PASSWORD, kept_as=f"told-{name}"))


def send(page: Page, button: Locator) -> None:
    """Press a button that posts a form, and wait for the page that answers: a page that is left can't be loaded anew."""
    with page.expect_navigation():
        button.click()


def comes(page: Page, text: str) -> None:
    """Load a page anew until it says something."""

    def said() -> bool:
        page.reload()
        return text in page.locator("main, body").first.inner_text()

    eventually(said, every=0.5, what=text)


def test_a_review_is_told_and_a_webhook_survives_an_ill_receiver(
    stack: Stack, sign_in: Callable[[str], Page], receiver: Path
) -> None:
    root, nina = sign_in("root"), sign_in("nina")
    nina.goto("/admin/scheduler/inbox/")
    expect(nina.locator("#inbox-empty")).to_contain_text("Your inbox is empty")
    shoot(nina, "inbox-empty")

    # A webhook, whose secret is shown once; its first delivery fails.
    port = (receiver / "ports").read_text().split()[0]
    (receiver / "mode").write_text("fail")
    root.goto("/admin/scheduler/webhooks/")
    root.get_by_role("link", name="Add a webhook").click()
    root.fill("#id_name", "chat")
    root.fill("#id_url", f"http://127.0.0.1:{port}/services/very-secret")
    shoot(root, "webhook-add")
    root.get_by_role("button", name="Add", exact=True).click()
    expect(root.locator("#webhook-secret")).to_have_text(re.compile("whsec_.{40,}"))
    root.get_by_role("link", name="I have saved it").click()
    send(root, root.locator("#webhook-test"))
    comes(root, "I am ill")
    expect(root.locator("#webhook-health")).to_contain_text("The last attempt failed")
    shoot(root, "webhook-failing")

    # The receiver is well again, and what is sent again arrives.
    (receiver / "mode").write_text("ok")
    send(root, root.get_by_role("button", name=re.compile("Send delivery .* again")).first)
    comes(root, "✓ delivered")
    assert "very-secret" not in root.content()

    # Somebody asks nina for a review: she sees it on the first page, and in her inbox.
    stack.manage("shell", "-c", _ASKED)
    nina.goto("/admin/")
    comes(nina, "ops asked nina to review")
    shoot(nina, "inbox-home")
    nina.goto("/admin/scheduler/inbox/")
    expect(nina.locator("#inbox .berth-is-unread")).to_have_count(2)
    expect(nina.locator("#inbox-waits")).to_contain_text("Night shift")
    shoot(nina, "inbox")
    nina.get_by_role("button", name=re.compile("as read$")).nth(1).click()
    expect(nina.locator("#inbox .berth-is-unread")).to_have_count(1)
    nina.click("#inbox-read-all")
    expect(nina.locator("#inbox .berth-is-unread")).to_have_count(0)

    # The chat was told too, in order, and whatever it missed is sent as well.
    def told() -> list[int]:
        lines = [json.loads(line) for line in (receiver / "taken").read_text().splitlines()]
        return [
            line["body"]["number"] for line in lines if line["mode"] == "ok" and line["body"]["kind"] == "review-asked"
        ]

    numbers = eventually(lambda: len(told()) >= 2 and told(), what="both are delivered")
    assert numbers == sorted(numbers)
    root.goto(root.url)
    shoot(root, "webhook-log")
    root.goto("/admin/scheduler/webhooks/")
    nina.set_viewport_size({"width": 390, "height": 844})
    nina.emulate_media(color_scheme="dark")
    nina.reload()
    expect(nina.locator("#inbox")).to_contain_text("Night shift")
    shoot(nina, "inbox-phone-dark")

    # Nothing of it is left for those who come after.
    root.get_by_role("link", name="chat", exact=True).click()
    root.get_by_text("Remove…").click()
    root.get_by_role("button", name="Remove chat").click()
    expect(root.locator(".berth-empty")).to_contain_text("No webhook yet")
    stack.manage("shell", "-c", _WITHDRAWN)
