"""A Change from three people's first look to its roll-back, in three sessions of a real browser."""

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from policies import manifests
from tests.browser.conftest import shoot
from tests.builders import rule_set_document
from tests.extender import free_port
from tests.stack import BASE_DIR, eventually

pytestmark = pytest.mark.browser
PASSWORD = "three people, three sessions"
_ACCOUNTS = """
from django.contrib.auth.models import Group, User
for name, role in (("alice", "Operator"), ("bob", "Operator"), ("carol", "Approver")):
    user = User.objects.create_user(name, password="{password}", is_staff=True)
    user.groups.add(Group.objects.get(name=role))
"""


class Reviewed:
    """A Berth of its own, where review is required; no cluster."""

    def __init__(self, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._environment = {name: text for name, text in os.environ.items() if not name.startswith("BERTH_")}
        self._environment |= {
            "BERTH_LOCAL": "true",
            "BERTH_STATE_DIR": str(folder / "state"),
            "BERTH_REVIEW_REQUIRED": "true",
        }
        self.manage("migrate")
        self.manage("shell", "-c", _ACCOUNTS.format(password=PASSWORD))

    def manage(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=BASE_DIR,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def serve(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "gunicorn", "-c", "python:controlplane.gunicorn_conf"]
        address = self.url.removeprefix("http://")
        return subprocess.Popen(
            [*command, "-b", address, "controlplane.wsgi"],
            cwd=BASE_DIR,
            env=self._environment,
            stderr=subprocess.DEVNULL,
        )

    def answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/livez") as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@pytest.fixture
def berth(tmp_path: Path) -> Iterator[Reviewed]:
    made = Reviewed(tmp_path)
    with made.serve() as admin:
        try:
            eventually(made.answers, what="the admin answers")
            yield made
        finally:
            admin.terminate()


@pytest.fixture
def sign_in(berth: Reviewed, browser: Browser) -> Iterator[Callable[[str], Page]]:
    with ExitStack() as stack:

        def sign_in(name: str) -> Page:
            context = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=berth.url)
            stack.callback(context.close)
            page = context.new_page()
            page.set_default_timeout(20_000)
            page.goto("/admin/")
            page.fill("#id_username", name)
            page.fill("#id_password", PASSWORD)
            page.click("button[type=submit]")
            page.wait_for_url("**/admin/")
            return page

        yield sign_in


def press(page: Page, act: str, text: str = "") -> None:
    page.fill("#id_text", text)
    page.click(f"button[name=act][value={act}]")


def says(page: Page, what: str) -> None:
    expect(page.locator("body")).to_contain_text(re.compile(what))


def test_a_change_is_written_reviewed_overtaken_rebased_published_and_rolled_back(
    berth: Reviewed, sign_in: Callable[[str], Page], tmp_path: Path
) -> None:
    alice, bob, carol = map(sign_in, ("alice", "bob", "carol"))

    alice.goto("/admin/policies/ruleset/add/")
    alice.fill("#id_name", "web")
    alice.click("button[name=_save]")
    alice.click("#filters-group .add-row")
    alice.select_option("#id_filters-0-builtin", "PodFitsResources")
    alice.fill("#id_new_title", "web Pods need room")
    shoot(alice, "rule-set-form")
    alice.click("button[name=_save]")
    says(alice, "web is in Change 1")
    alice.goto("/admin/policies/priorityclass/add/?change=1")
    alice.fill("#id_name", "web-high")
    alice.fill("#id_value", "1000")
    shoot(alice, "class-into-a-change")
    alice.click("button[name=_save]")
    says(alice, "web-high is in Change 1")
    shoot(alice, "change-draft")
    for name, url in (("rule-sets", "/admin/policies/ruleset/"), ("classes", "/admin/policies/priorityclass/")):
        alice.goto(url)
        shoot(alice, f"{name}-with-open-edits")
    alice.goto("/admin/policies/change/1/change/")
    press(alice, "submit", "for tonight")
    says(alice, "It is in review")
    says(alice, "0 of 1 approval")
    shoot(alice, "change-in-review")
    first = alice.url

    path = tmp_path / "web.yaml"
    path.write_text(manifests.to_yaml(rule_set_document(filters=[{"builtin": "PodFitsHost"}])))
    assert "Change 2 was opened" in berth.manage("apply", str(path))
    second = first.replace("/change/1/", "/change/2/")
    bob.goto(second)
    press(bob, "submit", "to be quick")
    says(bob, "It is in review")

    carol.goto("/admin/policies/change/?which=waiting")
    says(carol, "Change 1")
    says(carol, "Change 2")
    shoot(carol, "changes-waiting")
    for url in (first, second):
        carol.goto(url)
        press(carol, "approve", "looks right")
        says(carol, "Your approval is noted")
    shoot(carol, "change-approved")

    bob.goto(second)
    press(bob, "publish")
    says(bob, "Revision 1 was made")

    alice.goto(first)
    says(alice, "What is live has moved")
    says(alice, "Publish: Somebody else has published another RuleSet web since")
    shoot(alice, "change-moved")
    press(alice, "rebase")
    says(alice, "It stands on what is live now")
    says(alice, "0 of 1 approval")
    carol.goto(first)
    press(carol, "approve", "still right")
    alice.goto(first)
    press(alice, "publish", "ticket 7")
    says(alice, "Revision 2 was made")
    shoot(alice, "change-published")

    alice.goto("/admin/policies/revision/1/roll_back/")
    alice.fill("#id_reason", "it was right before")
    alice.click("#confirm_form button[type=submit]")
    says(alice, "Change 3 is in review")
    carol.goto(alice.url)
    press(carol, "approve", "go back")
    alice.goto(carol.url)
    press(alice, "publish")
    says(alice, "Revision 3 was made")
    carol.emulate_media(color_scheme="dark")
    carol.goto(first)
    shoot(carol, "change-dark")
