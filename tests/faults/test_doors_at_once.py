"""Twenty Changes published at one moment by processes of their own: REST, the admin's form and commands, on PostgreSQL."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from http.cookiejar import CookieJar
from pathlib import Path
from threading import Barrier, Lock
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener

import pytest

from controlplane.up import free_port, wait_for_port
from tests.faults.planes import Plane
from tests.stack import BASE_DIR

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(1200),
    pytest.mark.skipif("PUBLISHING_DOORS" not in os.environ, reason="`make long` has the time"),
]
DOORS = ("rest", "admin", "command")
PUBLISHES = 20

# Ten Changes of a rule set of their own, ten of one that all want. All but the command are an account's that may do everything.
PREPARE = """
from django.contrib.auth.models import User
from policies import checking, publishing
from policies.publishing import Edit
User.objects.create_superuser("ann", password="a long enough secret")
for number in range({publishes}):
    name = "shared" if number % 2 else f"own-{{number}}"
    document = {{"apiVersion": "berth/v1", "kind": "RuleSet", "metadata": {{"name": name, "description": str(number)}},
                 "spec": {{"filters": [{{"builtin": "PodFitsHost"}}]}}}}
    edits = [Edit.of(checking.read_document(document))]
    print(publishing.open_change(title="t", edits=edits, by="ops").pk)
"""
# What is wrong with the chain of Revisions: nothing.
CHAIN = """
import hashlib, json
from policies import publishing
from policies.models import Revision
former = ""
for number, row in enumerate(Revision.objects.order_by("number"), 1):
    text = publishing.digest_text(row)
    assert row.number == number, row
    assert json.loads(text)["former"] == former, row
    assert hashlib.sha256(text.encode()).hexdigest() == row.digest, row
    former = row.digest
"""


class Doors:
    """A control plane's admin and REST in several processes, and how a Change is published by each door."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        self.environment = {**plane.environment, "BERTH_ROLE": "admin", "BERTH_LOCAL": "true"}
        command = [sys.executable, "-m", "gunicorn", "-c", "python:controlplane.gunicorn_conf"]
        self._log = (folder / "admin.log").open("ab")
        self._server = subprocess.Popen(
            [*command, "-w", "4", "-b", self._url.removeprefix("http://"), "controlplane.wsgi"],
            cwd=BASE_DIR,
            env=self.environment,
            stdout=self._log,
            stderr=self._log,
        )
        assert wait_for_port(int(self._url.rsplit(":", 1)[1]), 120)
        made = plane.manage("token", "create", "--owner", "ann", "--scopes", "read,edit,review,publish")
        self._token = made.split()[-1]
        # The admin compares few passwords at once, and what is tried here is publishing.
        self._signing_in = Lock()

    def stop(self) -> None:
        self._server.terminate()
        self._server.wait()
        self._log.close()

    def publish(self, door: str, number: int, start: Barrier) -> str:
        """Publish a Change; returns what was said."""
        by = {"rest": self._by_rest, "admin": self._by_admin, "command": self._by_command}[door]
        try:
            return by(number, start)
        except Exception:
            start.abort()  # nobody waits for one that isn't coming
            raise

    def _by_rest(self, number: int, start: Barrier) -> str:
        environment = {**os.environ, "BERTH_SERVER": self._url, "BERTH_TOKEN": self._token}
        return self._run([str(Path(sys.executable).with_name("berth")), "publish", str(number)], environment, start)

    def _by_command(self, number: int, start: Barrier) -> str:
        environment = {**self.environment, "BERTH_ROLE": "command"}
        return self._run([sys.executable, "manage.py", "change", "publish", str(number)], environment, start)

    def _run(self, command: list[str], environment: dict[str, str], start: Barrier) -> str:
        start.wait()
        done = subprocess.run(command, cwd=BASE_DIR, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def _by_admin(self, number: int, start: Barrier) -> str:
        browser, cookies = self._signed_in()
        page = f"{self._url}/admin/policies/change/{number}/"
        shown = browser.open(f"{page}change/").read().decode()
        digest, revision = (shown.split(f'name="{name}" value="')[1].split('"')[0] for name in ("digest", "revision"))
        start.wait()
        form = {"act": "publish", "digest": digest, "revision": revision, "text": ""}
        return self._post(browser, cookies, f"{page}act/", form)

    def _signed_in(self) -> tuple[OpenerDirector, CookieJar]:
        cookies = CookieJar()
        browser = build_opener(HTTPCookieProcessor(cookies))
        form = {"username": "ann", "password": "a long enough secret"}
        with self._signing_in:
            browser.open(f"{self._url}/admin/login/")
            self._post(browser, cookies, f"{self._url}/admin/login/", form)
        return browser, cookies

    def _post(self, browser: OpenerDirector, cookies: CookieJar, url: str, form: dict[str, str]) -> str:
        token = next(str(each.value) for each in cookies if "csrf" in each.name)
        body = urlencode({**form, "csrfmiddlewaretoken": token}).encode()
        return browser.open(url, body).read().decode()


def test_each_is_live_once_or_told_what_moved_whatever_door_it_came_by(plane: Plane, tmp_path: Path) -> None:
    changes = [
        int(line) for line in plane.manage("shell", "--no-imports", "-c", PREPARE.format(publishes=PUBLISHES)).split()
    ]
    doors = Doors(plane, tmp_path)
    try:
        asked = [DOORS[place % 3] for place in range(PUBLISHES)]
        start = Barrier(PUBLISHES, timeout=300)
        with ThreadPoolExecutor(PUBLISHES) as pool:
            said = list(pool.map(doors.publish, asked, changes, [start] * PUBLISHES))
    finally:
        doors.stop()
    states = dict(plane.sql("SELECT id, state FROM policies_change"))
    lost = [text for number, text in zip(changes, said, strict=True) if states[number] != "published"]
    assert all("published another RuleSet shared since" in text for text in lost), lost
    assert plane.sql("SELECT count(*), max(number) FROM policies_revision") == [(11, 11)], "own ones, and one of all"
    assert len(lost) == PUBLISHES - 11
    plane.manage("shell", "--no-imports", "-c", CHAIN)
    assert plane.sql("SELECT count(*) FROM policies_rulesetversion WHERE state = 'published'") == [(11,)]
    by = plane.sql("SELECT DISTINCT door FROM policies_auditevent WHERE kind = 'change.publish' ORDER BY door")
    assert by == [("admin",), ("command",), ("rest",)]
