"""What tests of a checkup share: an API server, processes, doctor's clock, and one part of what was found."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import msgspec
import pytest
from django.conf import settings

from policies import publishing
from scheduler.cluster.errors import APIUnavailableError
from scheduler.doctor import checkup, database, processes
from scheduler.doctor.checkup import Checkup
from scheduler.doctor.parts import Part
from scheduler.models import Process


class Cluster:
    """An API server that answers doctor's questions. `refused` are verbs that the account lacks."""

    refused: tuple[str, ...] = ()
    account = "kubernetes-admin"
    is_away = False

    def get(self, *, path: str, **_: Any) -> bytes:
        if self.is_away:
            message = f"GET {path}: connection refused"
            raise APIUnavailableError(message)
        return b'{"gitVersion": "v1.36.3"}'

    def list_pages(self, **_: Any) -> Iterator[bytes]:
        if not self.is_away:
            yield b'{"metadata": {"resourceVersion": "1"}, "items": []}'

    def post(self, *, path: str, body: bytes) -> bytes:
        if path.endswith("/selfsubjectreviews"):
            return msgspec.json.encode({"status": {"userInfo": {"username": self.account}}})
        verb = msgspec.json.decode(body)["spec"]["resourceAttributes"]["verb"]
        return msgspec.json.encode({"status": {"allowed": verb not in self.refused}})


def make_process(name: str = "a", **fields: Any) -> Process:
    now = datetime.now(UTC)
    usual = {"role": "extender", "host": name, "pid": 1, "revision": 0, "snapshot_age_seconds": 1.5}
    return Process.objects.create(id=name, **{**usual, "started_at": now, "heartbeat_at": now, **fields})


def set_environment(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, **fields))


def set_clock(monkeypatch: pytest.MonkeyPatch, *, ahead: timedelta) -> None:
    """Set doctor's clock, and leave the database's."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + ahead

    for module in (checkup, database, processes):
        monkeypatch.setattr(module, "datetime", Clock)


def part(found: Checkup, name: str) -> Part:
    return next(each for each in found.parts if each.name.startswith(name))


def start_in(monkeypatch: pytest.MonkeyPatch, role: str, name: str, namespace: str) -> Process:
    with monkeypatch.context() as patched:
        set_environment(patched, lease_namespace=namespace)
        publishing.record_start(name, role)
    return make_process(name, role=role)
