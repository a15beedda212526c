"""A server that listens, accounts with tokens, and `berth` as their shells have it: by its name, over the wire."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.conf import settings as configured
from django.contrib.auth.models import Group, User
from django.utils import timezone

from controlplane.tokens import make_token

ROOT = Path(__file__).resolve().parents[3]

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def server(request: pytest.FixtureRequest, settings: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return where it listens: on loopback without TLS, where reviews are required."""
    settings.SECURE_SSL_REDIRECT = False
    # Not before: its middleware asks for that setting once.
    live_server: Any = request.getfixturevalue("live_server")
    monkeypatch.setattr(configured, "BERTH", msgspec.structs.replace(configured.BERTH, review_required=True))
    return str(live_server.url)


def token_of(role: str, *scopes: str, **limits: Any) -> str:
    """Return the secret of a token of an account with a role, which is made where there is none."""
    user, made = User.objects.get_or_create(username=role.lower(), defaults={"is_staff": True})
    if made:
        user.groups.add(Group.objects.get(name=role))
    number = user.pk * 1000 + len(scopes)
    _, secret = make_token(
        name=f"{'-'.join(scopes)}-{number}", owner=user, scopes=scopes, days=1, by="tests", now=timezone.now(), **limits
    )
    return secret


@pytest.fixture
def shell(server: str, tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Return the environment of somebody's shell, with a token."""
    programs = tmp_path / "programs"
    programs.mkdir()
    berth = programs / "berth"
    berth.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/berth/src exec {sys.executable} -m berth "$@"\n')
    berth.chmod(0o755)

    def environment(token: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BERTH_", "GIT_"))}
        return {
            **kept,
            "PATH": f"{programs}:{kept['PATH']}",
            "HOME": str(tmp_path / "home"),
            "BERTH_SERVER": server,
            "BERTH_TOKEN": token,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "operator"),
            **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "operator@example.org"),
        }

    return environment


def run(environment: dict[str, str], *command: str, code: int = 0, folder: Path | None = None) -> str:
    """Return what a command prints, on both channels; it has to end with a code."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout
    return done.stdout
