"""Tokens and two web processes on one PostgreSQL, `berth` beside them: what is over ends at once, and no secret stands anywhere in clear."""

import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.utils import timezone

from controlplane.models import Token
from tests.component.berth.conftest import ROOT, run
from tests.postgres import binaries
from tests.stack import eventually, free_port
from tests.tokens import bearer, secret_of

pytestmark = pytest.mark.django_db(transaction=True)
LISTED = "/api/v1/rule-sets"


class Web:
    """A web process as deployments start it, on the database of this test; `log` is all that it wrote."""

    def __init__(self, folder: Path, name: str) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = folder / f"{name}.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("BERTH_")}
        found = connection.settings_dict
        host = found["OPTIONS"].get("host") or found["HOST"]
        self.environment = {
            **kept,
            "BERTH_DATABASE_URL": f"postgresql://{found['USER']}@localhost/{found['NAME']}?host={host}",
            "BERTH_LOCAL": "true",
            "BERTH_SECRET_KEY": settings.SECRET_KEY,
            "BERTH_STATE_DIR": str(folder / name),
        }
        command = [sys.executable, "-m", "gunicorn", "-c", "python:controlplane.gunicorn_conf"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "-b", f"127.0.0.1:{port}", "controlplane.wsgi"],
                cwd=ROOT,
                env={**self.environment, "BERTH_ROLE": "admin"},
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self._log.read_text()

    def is_up(self) -> bool:
        try:
            return httpx.get(f"{self.url}/livez").status_code == 200
        except httpx.TransportError:
            return False

    def ask(self, secret: str, path: str = LISTED) -> httpx.Response:
        return httpx.get(self.url + path, headers=bearer(secret))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


@pytest.fixture
def webs(transactional_db: None, tmp_path: Path) -> Iterator[tuple[Web, Web]]:
    if connection.vendor != "postgresql":
        pytest.skip("processes share PostgreSQL; SQLite's database of a test is in this one alone")
    both = Web(tmp_path, "one"), Web(tmp_path, "other")
    try:
        eventually(lambda: all(each.is_up() for each in both), what="both processes answer")
        yield both
    finally:
        for each in both:
            each.stop()


@pytest.fixture
def ann(transactional_db: None) -> User:
    user = User.objects.create_user("ann", is_staff=True)
    user.groups.add(Group.objects.get(name="Operator"))
    return user


def revoke_through(web: Web, person: User, token: Token) -> None:
    """Revoke a token on the page of a process, in somebody's session."""
    client = Client()
    client.force_login(person)
    (session,) = client.cookies.values()
    with httpx.Client(base_url=web.url, cookies={"berth_session": session.value}) as browser:
        page = browser.get("/admin/tokens/")
        form = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.text)
        assert form is not None, page.text
        done = browser.post(f"/admin/tokens/{token.pk}/revoke/", data={"csrfmiddlewaretoken": form[1]})
        assert done.status_code == 302


def token_behind(secret: str) -> Token:
    return Token.objects.get(prefix=secret.removeprefix("berth_").partition(".")[0])


def test_a_token_that_is_over_fails_in_the_next_request_to_every_process(
    webs: tuple[Web, Web], ann: User, shell: Any
) -> None:
    one, other = webs
    revoked, expired, inactive = (secret_of(ann) for _ in range(3))
    for web in webs:
        for secret in (revoked, expired, inactive):
            assert web.ask(secret).status_code == 200
    commands = shell(revoked) | {"BERTH_SERVER": other.url}
    assert "knows you as ann" in run(commands, "berth", "whoami")

    revoke_through(one, ann, token_behind(revoked))
    assert other.ask(revoked).status_code == 401
    assert "was revoked at" in one.ask(revoked).json()["detail"]
    assert "was revoked at" in run(commands, "berth", "whoami", code=1)

    Token.objects.filter(pk=token_behind(expired).pk).update(expires_at=timezone.now())
    assert [web.ask(expired).status_code for web in webs] == [401, 401]
    assert "has expired" in run(commands | {"BERTH_TOKEN": expired}, "berth", "whoami", code=1)

    assert [web.ask(inactive).status_code for web in webs] == [200, 200]
    User.objects.filter(pk=ann.pk).update(is_active=False)
    assert [web.ask(inactive).status_code for web in webs] == [401, 401]


def commands_of_all_processes() -> str:
    """Return what `ps` shows of everybody."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(each.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return "\n".join(found)


def type_into_a_shell(environment: dict[str, str], *lines: tuple[str, str]) -> str:
    """Type lines into an interactive shell on a terminal, each when something is shown; return all that is shown."""
    pid, terminal = pty.fork()
    if not pid:
        os.execvpe("bash", ["bash", "--norc", "-i"], environment)
    # Not `select`, which takes no descriptor above 1,023.
    ready = select.poll()
    ready.register(terminal, select.POLLIN)
    shown = ""
    for awaited, line in lines:
        while awaited not in shown.rpartition("\x00")[2]:
            assert ready.poll(60_000), f"{awaited!r} isn't shown: {shown}"
            shown += os.read(terminal, 4096).decode(errors="replace")
        shown += "\x00"
        os.write(terminal, f"{line}\n".encode())
    with suppress(OSError):  # Linux says the end of a terminal so
        while piece := os.read(terminal, 4096):
            shown += piece.decode(errors="replace")
    os.waitpid(pid, 0)
    os.close(terminal)
    return shown


def test_no_secret_stands_in_clear_in_the_database_logs_process_list_or_history(
    webs: tuple[Web, Web], ann: User, shell: Any, tmp_path: Path
) -> None:
    one, other = webs
    made = subprocess.run(
        [sys.executable, "manage.py", "token", "create", "--owner", "ann", "--scopes", "read", "--name", "mine"],
        cwd=ROOT,
        env=one.environment | {"BERTH_ROLE": "command"},
        capture_output=True,
        text=True,
        check=True,
    )
    secret = made.stdout.strip()
    prefix, _, hidden = secret.removeprefix("berth_").partition(".")
    assert len(hidden) > 20

    # Used, mistyped, sent where it doesn't belong; then a person's own shell, and a command that goes on.
    assert one.ask(secret).status_code == 200
    assert other.ask(secret + "x").status_code == 401
    assert other.ask(secret, f"{LISTED}?nothing=1").status_code == 400
    history = tmp_path / "history"
    environment = {**shell(""), "HISTFILE": str(history), "PS1": "ready> ", "TERM": "dumb"}
    del environment["BERTH_TOKEN"], environment["BERTH_SERVER"]
    shown = type_into_a_shell(
        environment,
        ("ready> ", f"berth login {one.url}"),
        ("Token for ", secret),
        ("Stored in ", "berth whoami"),
        ("with the token", "exit"),
    )
    assert "berth login" in history.read_text()
    kept = Path(environment["HOME"]) / ".config" / "berth" / "config.json"
    assert hidden in kept.read_text(), "login keeps it in a file of its own"
    assert kept.stat().st_mode & 0o077 == 0, "which others can't read"
    command = [environment["PATH"].partition(":")[0] + "/berth", "decisions", "--follow"]
    following = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: "-m berth decisions --follow" in commands_of_all_processes(), what="the command runs")
        processes = commands_of_all_processes()
    finally:
        following.kill()
        following.wait()
    revoke_through(other, ann, token_behind(secret))
    assert one.ask(secret).status_code == 401

    dump = run(dict(os.environ), str(binaries() / "pg_dump"), one.environment["BERTH_DATABASE_URL"])
    assert prefix in dump, "the dump has the token's row"
    assert "token.refuse" in dump
    assert "a token was refused" in one.log, "the logs have what was refused"
    assert "an unknown token was refused" in other.log
    places = {
        "the database": dump,
        "the log of one": one.log,
        "the log of the other": other.log,
        "the process list": processes,
        "the shell's history": history.read_text(),
        "the terminal": shown,
        "what the command says beside it": made.stderr,
    }
    assert [place for place, text in places.items() if hidden in text] == []
