"""The doctor's pages as who runs Berth uses them: is it wired, make the file, what is wrong with mine."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import shoot
from tests.stack import Stack, eventually

pytestmark = pytest.mark.browser
DOCTOR = "/admin/scheduler/doctor/"
MINE = """apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: http://berth.scheduling.svc:8010/scheduler
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 5
  nodeCachecapable: true
  ignorable: true
"""


def test_an_operator_runs_a_canary_and_its_result_stays(page: Page, stack: Stack) -> None:
    page.goto("/admin/")
    page.get_by_role("link", name="Doctor").click()
    expect(page.locator(".berth-chain")).to_contain_text("Snapshot")
    shoot(page, "doctor-before")

    page.get_by_role("button", name="Run canary").click()
    expect(page.locator("#canary-newest")).to_contain_text("…")
    shoot(page, "doctor-running")
    expect(page.locator("#canary-newest h2")).to_contain_text(
        re.compile("✓ Berth was asked: filter, prioritize"), timeout=60_000
    )
    rows = page.locator("#canary-newest tbody tr")
    expect(rows.nth(0)).to_contain_text("127.0.0.1")
    expect(rows.nth(1)).to_contain_text("✓ seen")
    expect(page.locator("#doctor-calls tbody tr").first).to_contain_text(re.compile(r"✓ \d+ s ago"))
    eventually(lambda: not [name for name in stack.pods() if name.startswith("berth-canary-")], what="the Pod is gone")

    page.reload()
    expect(page.locator("#canary-newest h2")).to_contain_text("✓ Berth was asked")
    shoot(page, "doctor-proven")
    page.emulate_media(color_scheme="dark")
    page.reload()
    shoot(page, "dark-doctor-proven")

    page.get_by_role("link", name="its Decisions").click()
    expect(page.locator("#result_list")).to_contain_text("berth-canary-")


def test_a_configuration_is_made_from_answers_and_copied(page: Page) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"{DOCTOR}configuration/")
    page.fill("#id_url_prefix", "https://berth.scheduling.svc:8010")
    page.fill("#id_ca_file", "/etc/kubernetes/berth/ca.crt")
    page.get_by_role("button", name="Generate configuration").click()
    expect(page.locator(".berth-made")).to_contain_text("tls-no-client-certificate")

    page.fill("#id_cert_file", "/etc/kubernetes/berth/tls.crt")
    page.fill("#id_key_file", "/etc/kubernetes/berth/tls.key")
    page.get_by_role("button", name="Generate configuration").click()
    expect(page.locator(".berth-made")).not_to_contain_text("tls-no-client-certificate")
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert "urlPrefix: https://berth.scheduling.svc:8010" in copied
    assert copied.startswith("# kube-scheduler with Berth")
    shoot(page, "doctor-configuration")
    page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="Generate configuration").click()
    expect(page.get_by_role("button", name="Copy")).to_be_visible()
    shoot(page, "dark-doctor-configuration")


def test_a_configuration_is_linted(page: Page) -> None:
    page.goto(f"{DOCTOR}lint/")
    page.fill("#id_text", MINE)
    page.get_by_role("button", name="Lint", exact=True).click()
    result = page.locator("#lint-result")
    expect(result).to_contain_text("kube-scheduler should not run with it")
    expect(result).to_contain_text("Did you mean nodeCacheCapable?")
    for name in ("plain-http", "url-path", "unknown-member", "ignorable-true", "weight-outvoted"):
        expect(result).to_contain_text(name)
    assert page.input_value("#id_text").replace("\r\n", "\n") == MINE
    shoot(page, "doctor-lint")
    page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="Lint", exact=True).click()
    expect(result).to_be_visible()
    shoot(page, "dark-doctor-lint")
