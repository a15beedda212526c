"""A browser, and one Berth with a cluster to look at."""

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, expect, sync_playwright

from tests.browser.admin import Admin
from tests.stack import BASE_DIR, Stack, eventually, make_node

# How long pages wait for what comes: long enough for a machine with other work.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)

# As Chromium's console says what it has refused.
_POLICY = "Content Security Policy"
RESULTS = BASE_DIR / "test-results"
OPERATOR = "operator"
SCHEMES = ("light", "dark")
# The long form of the accessibility tests, of `make long`.
WHOLE = os.environ.get("ACCESSIBILITY") == "whole"
_FLAGS = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
_FLAGS += ["--disable-quic", "--no-first-run"]
# A name that leads to this machine, as its owner could make it.
_FLAGS += ["--host-resolver-rules=MAP evil.example 127.0.0.1"]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium, else the one that `playwright install chromium` brought."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        try:
            started = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        except Error as error:
            pytest.fail(f"no Chromium: install it (apt-get install chromium, or playwright install chromium): {error}")
        yield started
        started.close()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    nodes = [make_node("n1", team="web"), make_node("n2", team="web"), make_node("n3", team="data")]
    # A webhook's receiver of the tests is on this machine.
    allowed = {"BERTH_WEBHOOK_ALLOW": "127.0.0.1/32"}
    with Stack(tmp_path_factory.mktemp("browser"), nodes=nodes, environment=allowed) as running:
        yield running


@pytest.fixture(scope="session")
def lived_in_admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    """Berth's admin alone, without a cluster."""
    running = Admin(tmp_path_factory.mktemp("lived-in"))
    running.start()
    try:
        yield running
    finally:
        running.stop()


@pytest.fixture(scope="session")
def seen(lived_in_admin: Admin, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Rows of every kind in it; each role's session, the pages that those are shown who look, and a name with a password."""
    callspecs = (getattr(item, "callspec", None) for item in request.session.items)
    looking = {callspec.params["role"] for callspec in callspecs if callspec and "role" in callspec.params}
    printed = lived_in_admin.run("-m", "tests.browser.pages", *sorted(looking))
    eventually(lambda: _answers(lived_in_admin.url), what="the admin answers")
    found: dict[str, Any] = json.loads(printed.splitlines()[-1])
    return found


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/livez", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture(scope="session")
def password(stack: Stack) -> str:
    """The password that `createoperator` printed, once."""
    lines = stack.manage("createoperator", OPERATOR).splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith("password: "))


@pytest.fixture
def page(browser: Browser, stack: Stack, password: str, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page that is logged in as an operator."""
    with signed_in(browser, stack, OPERATOR, password, kept_as=request.node.name) as opened:
        yield opened


@contextmanager
def signed_in(browser: Browser, stack: Stack, name: str, password: str, *, kept_as: str) -> Iterator[Page]:
    """A page of somebody who is signed in; what it showed last is kept."""
    context: BrowserContext = browser.new_context(viewport={"width": 1280, "height": 900}, base_url=stack.admin_url)
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto("/admin/")
    page.fill("#id_username", name)
    page.fill("#id_password", password)
    page.click("button[type=submit]")
    page.wait_for_url("**/admin/")
    try:
        with without_violations(page):
            yield page
    finally:
        shoot(page, f"last-{kept_as}")
        context.close()


@contextmanager
def without_violations(page: Page) -> Iterator[None]:
    """What the page loads, runs and styles is what its Content-Security-Policy allows, or the test fails."""
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text) if _POLICY in message.text else None)
    yield
    assert not said, said


def shoot(page: Page, name: str) -> Path:
    """Keep a picture of the page."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.png"
    page.screenshot(path=path, full_page=True)
    return path


def in_scheme(page: Page, scheme: str) -> None:
    """Show a loaded page light or dark. The theme asks for the system's scheme only while a page loads."""
    page.evaluate("dark => document.documentElement.classList.toggle('dark', dark)", scheme == "dark")


def shoot_everywhere(page: Page, name: str) -> None:
    """Keep pictures of the page on a desk and on a phone, light and dark; it is no wider than either."""
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        for scheme in SCHEMES:
            in_scheme(page, scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            shoot(page, f"{name}-{width}-{scheme}")
    page.evaluate("document.documentElement.classList.remove('dark')")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the operator begin, who finds nothing published; the auditor comes when there is something to read."""
    last = max((index for index, item in enumerate(items) if "/browser/" in str(item.path)), default=-1)
    auditing = [item for item in items if item.path.name == "test_auditor.py"]
    if auditing:
        before = [item for item in items[: last + 1] if item not in auditing]
        items[:] = [*before, *auditing, *items[last + 1 :]]
