"""/livez, /readyz and /metrics of the admin server."""

from collections.abc import Callable

from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from scheduler.requeue.metrics import REQUEUES


@login_not_required
def livez(_request: HttpRequest) -> HttpResponse:
    """Answer that the process runs."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
def readyz(_request: HttpRequest) -> JsonResponse:
    """Answer whether requests can be served; names each part that isn't ready."""
    parts = {"database": _fault(_query), "migrations": _fault(_migrated)}
    ready = not any(parts.values())
    body = {"ok": ready, "parts": {name: fault or "ok" for name, fault in parts.items()}}
    return JsonResponse(body, status=200 if ready else 503)


@login_not_required
def metrics(_request: HttpRequest) -> HttpResponse:
    """Return the process's metrics to Prometheus, and those that the database has."""
    return HttpResponse(generate_latest() + generate_latest(REQUEUES), content_type=CONTENT_TYPE_LATEST)


def _fault(check: Callable[[], str]) -> str:
    try:
        return check()
    except DatabaseError as error:
        return str(error).strip() or type(error).__name__


def _query() -> str:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET statement_timeout = 2000")
        cursor.execute("SELECT 1")
        if connection.vendor == "postgresql":
            cursor.execute("RESET statement_timeout")
    return ""


def _migrated() -> str:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return f"{len(missing)} migrations are missing; run python manage.py migrate" if missing else ""
