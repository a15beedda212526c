"""Signing in: at a provider in a process of its own, by a password beside it, and what happens to those who guess."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PATIENCE_MS, shoot, without_violations
from tests.extender import BASE_DIR
from tests.provider import CLIENT_ID, CLIENT_SECRET, PASSWORD, Provider, answers
from tests.stack import eventually, free_port

pytestmark = pytest.mark.browser


class Admin:
    """Berth's admin alone, with a database of its own, whose people sign in at `provider`."""

    def __init__(self, folder: Path, port: int, issuer: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        self._environment = {
            **kept,
            "BERTH_LOCAL": "true",
            "BERTH_STATE_DIR": str(folder),
            "BERTH_OIDC_ISSUER": issuer,
            "BERTH_OIDC_CLIENT_ID": CLIENT_ID,
            "BERTH_OIDC_CLIENT_SECRET": CLIENT_SECRET,
            "BERTH_OIDC_NAME": "the company's sign-in",
            "BERTH_OIDC_ROLES": "kube-ops=Operator,kube-leads=Approver",
            "BERTH_SIGN_IN_FAILURES": "3",
        }
        self.manage("migrate")
        command = [
            sys.executable,
            "-m",
            "gunicorn",
            "-c",
            "python:controlplane.gunicorn_conf",
            "-b",
            f"127.0.0.1:{port}",
        ]
        self._log = (folder / "admin.log").open("wb")
        self._process = subprocess.Popen(
            [*command, "controlplane.wsgi"],
            cwd=BASE_DIR,
            env={**self._environment, "BERTH_ROLE": "admin"},
            stdout=self._log,
            stderr=self._log,
        )

    def manage(self, *arguments: str) -> str:
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=BASE_DIR, env=self._environment, capture_output=True, text=True, check=True)
        return done.stdout

    def is_up(self) -> bool:
        """Whether it answers. A process that has ended fails the test."""
        assert self._process.poll() is None, "the admin has ended; its log says why"
        return answers(f"{self.url}/livez")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def provider_and_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Provider, Admin]]:
    port, folder = free_port(), tmp_path_factory.mktemp("sign-in")
    provider = Provider(folder / "provider", free_port(), f"http://127.0.0.1:{port}/oidc/callback/")
    admin = Admin(folder, port, provider.issuer)
    try:
        eventually(provider.is_up, what="the provider answers")
        eventually(admin.is_up, what="the admin answers")
        yield provider, admin
    finally:
        admin.stop()
        provider.stop()


@pytest.fixture
def page(browser: Browser, provider_and_admin: tuple[Provider, Admin]) -> Iterator[Page]:
    with browser.new_context(viewport={"width": 1280, "height": 900}, base_url=provider_and_admin[1].url) as context:
        opened = context.new_page()
        opened.set_default_timeout(PATIENCE_MS)
        with without_violations(opened):
            yield opened


def at_the_provider(page: Page, name: str) -> None:
    page.goto("/admin/login/")
    page.click("#sign-in-at-provider")
    page.fill("#id_username", name)
    page.fill("#id_password", PASSWORD)
    page.click("[type=submit]")


def test_an_operator_signs_in_at_the_provider_and_out_of_both(page: Page) -> None:
    page.goto("/admin/login/")
    shoot(page, "sign-in")
    at_the_provider(page, "ops")
    page.wait_for_url("**/admin/")
    expect(page.locator("body")).to_contain_text("Rule sets")
    page.goto("/admin/policies/ruleset/add/")
    expect(page.locator("#id_name")).to_be_visible()
    page.locator("form[action='/admin/logout/']").evaluate("form => form.requestSubmit()")
    page.wait_for_url("**/admin/login/**")
    page.goto("/admin/policies/ruleset/")
    expect(page).to_have_url(re.compile("/admin/login/"))


def test_an_approver_of_the_provider_may_approve_and_not_edit(page: Page) -> None:
    at_the_provider(page, "lead")
    page.wait_for_url("**/admin/")
    assert page.request.get("/admin/policies/change/").status == 200
    assert page.request.get("/admin/policies/ruleset/add/").status == 403


def test_somebody_without_a_role_is_told_so(page: Page) -> None:
    at_the_provider(page, "stranger")
    page.wait_for_url("**/admin/login/**")
    expect(page.locator("body")).to_contain_text("none of Berth's roles")
    shoot(page, "sign-in-without-a-role")


def test_beside_the_provider_only_administrators_have_a_password_here(
    page: Page, provider_and_admin: tuple[Provider, Admin]
) -> None:
    passwords = {}
    for name, role in (("clerk", "Operator"), ("breakglass", "superuser")):
        lines = provider_and_admin[1].manage("createoperator", name, "--role", role).splitlines()
        passwords[name] = next(line.partition(": ")[2] for line in lines if line.startswith("password: "))
    for name, password in passwords.items():
        page.goto("/admin/login/")
        page.fill("#id_username", name)
        page.fill("#id_password", password)
        page.click("button[type=submit]")
        if name == "clerk":
            expect(page.locator("#login-form")).to_be_visible()
    page.wait_for_url("**/admin/")


def test_who_guesses_is_locked_out_and_told_for_how_long(page: Page) -> None:
    for _ in range(3):
        page.goto("/admin/login/")
        page.fill("#id_username", "somebody")
        page.fill("#id_password", "a guess")
        page.click("button[type=submit]")
    expect(page.locator("#locked-out")).to_contain_text("15 minutes")
    shoot(page, "locked-out")
