"""A web page, in the browser of somebody who works on the extender's machine, calls the extender."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.extender import BODY, Extender, post

EVIL = "evil.example"
_FETCH = """async ([url, options, type]) => {
    const body = type === null ? options.body : new Blob([options.body], type === '' ? {} : {type});
    try { const answer = await fetch(url, {...options, body}); return `${answer.type} ${answer.status}`; }
    catch (error) { return `refused: ${error}`; }
}"""
_FORM = """([url, name, value]) => {
    const form = document.createElement('form');
    Object.assign(form, {method: 'POST', enctype: 'text/plain', action: url});
    const field = form.appendChild(document.createElement('input'));
    Object.assign(field, {name, value});
    document.body.appendChild(form);
    form.submit();
}"""


class _EvilPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"<p>hi\n")

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def extender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    with Extender(tmp_path_factory.mktemp("pages")) as running:
        yield running


@pytest.fixture
def elsewhere(browser: Browser) -> Iterator[Page]:
    """A page of another site, on a server of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _EvilPage)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://localhost:{server.server_address[1]}/")
    try:
        yield page
    finally:
        context.close()
        server.shutdown()
        server.server_close()
        thread.join()


def taken(extender: Extender) -> float:
    """How many calls weren't refused at the door, whatever was answered."""
    name = "berth_extender_calls_total"
    lines = [line for line in extender.ask("GET", "/metrics")[1].splitlines() if line.startswith(f"{name}{{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if 'outcome="refused"' not in line)


def call(page: Page, url: str, content_type: str | None = None, **options: Any) -> str:
    return str(page.evaluate(_FETCH, [url, {"method": "POST", "body": BODY.decode(), **options}, content_type]))


@pytest.mark.parametrize("content_type", [None, "", "text/plain", "application/json", "text/plain;application/json"])
@pytest.mark.parametrize("mode", ["no-cors", "cors"])
@pytest.mark.parametrize("slash", ["", "/"])
def test_no_post_of_another_sites_page_is_taken(
    extender: Extender, elsewhere: Page, mode: str, content_type: str | None, slash: str
) -> None:
    before = taken(extender)
    call(elsewhere, f"http://127.0.0.1:{extender.port}/filter{slash}", content_type, mode=mode)
    assert taken(extender) == before


def test_no_form_of_another_sites_page_is_taken(extender: Extender, elsewhere: Page) -> None:
    before = taken(extender)
    # As text/plain the form is NAME=VALUE: a JSON document whose last text holds the sign.
    name, value = json.dumps({**json.loads(BODY), "x": ""})[:-2], '"}'
    with elsewhere.expect_navigation():
        elsewhere.evaluate(_FORM, [f"http://127.0.0.1:{extender.port}/filter", name, value])
    assert "web pages can't call" in elsewhere.inner_text("body")
    assert taken(extender) == before


def test_no_beacon_of_another_sites_page_is_taken(extender: Extender, elsewhere: Page) -> None:
    before = taken(extender)
    with elsewhere.expect_event("requestfinished"):
        elsewhere.evaluate(
            "([url, body]) => navigator.sendBeacon(url, body)",
            [f"http://127.0.0.1:{extender.port}/filter", BODY.decode()],
        )
    assert taken(extender) == before


def test_a_page_whose_name_leads_to_loopback_by_now_is_refused(extender: Extender, browser: Browser) -> None:
    context = browser.new_context()
    try:
        page = context.new_page()
        origin = f"http://{EVIL}:{extender.port}"
        shown = page.goto(f"{origin}/metrics")
        assert shown is not None
        assert (shown.status, "berth_" in shown.text()) == (403, False)
        before = taken(extender)
        assert call(page, f"{origin}/filter", "application/json") == "basic 403"
        assert taken(extender) == before
    finally:
        context.close()


def test_a_host_that_is_not_known_is_refused_without_a_browser_too(extender: Extender) -> None:
    before = taken(extender)
    status, answer = post(extender.connect(), headers={"Host": f"{EVIL}:{extender.port}"})
    assert (status, "BERTH_EXTENDER_HOSTS" in answer["Error"]) == (403, True)
    assert taken(extender) == before


def test_a_call_without_a_content_type_is_refused(extender: Extender) -> None:
    connection = extender.connect()
    connection.request("POST", "/filter", BODY)
    assert connection.getresponse().status == 415


def test_kube_schedulers_own_call_is_taken(extender: Extender) -> None:
    before = taken(extender)
    assert post(extender.connect())[0] == 200
    assert taken(extender) == before + 1


def test_a_secret_path_is_asked_for_where_it_is_set(tmp_path: Path) -> None:
    secret = "s3cret-" * 6
    with Extender(tmp_path, {"BERTH_EXTENDER_SECRET_PATH": secret}) as extender:
        around = (
            f"/{secret}/../filter",
            "//filter",
            "/./filter",
            "/%2e/filter",
            f"/{secret.upper()}/filter",
            "/*/filter",
        )
        for path in ("/filter", "/filter/", f"/{secret[:-1]}/filter", f"/{secret}", f"/{secret}/", *around):
            assert post(extender.connect(), path)[0] == 404, path
        assert post(extender.connect(), f"/{secret}/filter")[0] == 200
        assert post(extender.connect(), f"/{secret}/filter/")[0] == 200
        assert secret not in extender.log
