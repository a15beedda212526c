"""Probes when the database can't be asked: each part is named, and nothing that the driver said leaves the process."""

import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from django.apps import apps
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from prometheus_client import generate_latest

from controlplane import health
from controlplane.env import BASE_DIR
from controlplane.up import free_port
from scheduler.metrics import PROCESS
from scheduler.serving.probes import listen

pytestmark = pytest.mark.django_db
SECURITY = BASE_DIR / "docs" / "security.md"
SAID = 'connection to server at "10.1.2.3", port 5432 failed: role "berth" does not exist'
UNASKED = "can't be checked; the log of this process says why"


def raising(error: Exception) -> Callable[[], None]:
    def refuse() -> None:
        raise error

    return refuse


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
@pytest.mark.parametrize(
    ("host", "status"), [("10.1.2.3:8000", 200), ("berth-admin.berth.svc", 200), ("page.example.org", 400)]
)
def test_prometheus_reads_the_admin_at_its_pods_address_and_no_page_does(
    client: Client, path: str, host: str, status: int
) -> None:
    assert client.get(path, headers={"Host": host}).status_code == status


def test_security_says_how_the_admin_refuses_a_probe_under_a_pages_name(client: Client) -> None:
    status = client.get("/metrics", headers={"Host": "page.example.org"}).status_code
    assert f"(admin, worker, beat, binder); else 403, at the admin {status}." in " ".join(SECURITY.read_text().split())


def test_a_pods_address_leads_to_no_page(client: Client) -> None:
    assert client.get("/admin/login/", headers={"Host": "10.1.2.3:8000"}).status_code == 400


@pytest.mark.parametrize("kind", [OperationalError, ProgrammingError, InterfaceError, DatabaseError])
def test_readyz_tells_no_words_of_the_driver_and_the_log_does(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    caplog.set_level(logging.WARNING, "berth.health")
    monkeypatch.setattr(connection, "cursor", raising(kind(SAID)))
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {"ok": False, "parts": {"database": UNASKED, "migrations": UNASKED}}
    assert f"not ready: {SAID}" in caplog.text


def test_a_fault_without_words_is_logged_by_its_name(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "cursor", raising(OperationalError()))
    assert client.get("/readyz").status_code == 503
    assert "not ready: OperationalError" in caplog.text


def test_readyz_counts_missing_migrations_and_names_the_command(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MigrationExecutor, "migration_plan", lambda *_: [object(), object()])
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["parts"] == {
        "database": "ok",
        "migrations": "2 migrations are missing; run python manage.py migrate",
    }


@pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has no standby")
def test_readyz_stays_ready_on_a_database_that_only_reads(client: Client) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL transaction_read_only = on")
        answer = client.get("/readyz")
        transaction.set_rollback(True)
    assert (answer.status_code, answer.json()["ok"]) == (200, True)


def test_livez_asks_no_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "cursor", raising(OperationalError(SAID)))
    assert client.get("/livez").content == b"ok\n"


def test_a_listener_beside_names_what_is_missing_and_nothing_of_why(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    monkeypatch.setattr(health, "listen", lambda *args, **probes: started.append(listen(*args, **probes)))
    monkeypatch.setattr(health, "_query", raising(OperationalError(SAID)))
    monkeypatch.setattr(health, "missing_migrations", lambda: "")
    port = free_port()
    health.listen_beside(f"127.0.0.1:{port}")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30)
    with caught.value as answer:
        assert answer.code == 503
        assert json.loads(answer.read()) == {"ok": False, "missing": ["database"]}
    started[0].stop()


@pytest.mark.parametrize("role", ["extender", "binder", "worker", "beat", "admin"])
def test_each_process_says_in_its_metrics_what_it_is(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Extender and binder have the same series else, and no alert could tell that none of one is there."""
    PROCESS.clear()
    monkeypatch.setattr(settings, "BERTH", msgspec.structs.replace(settings.BERTH, role=role))
    apps.get_app_config("scheduler").ready()
    assert f'berth_process{{role="{role}"}} 1.0'.encode() in generate_latest()
    PROCESS.clear()
