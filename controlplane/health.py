"""/livez, /readyz and /metrics of the admin server; worker and beat, which have no server, get a listener for them."""

import logging
from collections.abc import Callable
from contextlib import nullcontext
from http import HTTPStatus
from typing import TypeVar

from django.contrib.auth.decorators import login_not_required
from django.db import Error, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponse, JsonResponse
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from scheduler.decisions.metrics import GAPS
from scheduler.doctor.suspensions import SUSPENSIONS
from scheduler.http_server.hosts import may_probe
from scheduler.requeue.metrics import REQUEUES
from scheduler.serving.probes import listen
from scheduler.webhooks.metrics import WEBHOOKS

T = TypeVar("T")
logger = logging.getLogger("berth.health")


@login_not_required
def livez(_request: HttpRequest) -> HttpResponse:
    """Answer that the process runs."""
    return HttpResponse("ok\n", content_type="text/plain")


@login_not_required
def readyz(_request: HttpRequest) -> JsonResponse:
    """Answer whether requests can be served; names each part that isn't ready."""
    parts = _parts()
    ready = not any(parts.values())
    body = {"ok": ready, "parts": {name: fault or "ok" for name, fault in parts.items()}}
    return JsonResponse(body, status=200 if ready else 503)


@login_not_required
def metrics(_request: HttpRequest) -> HttpResponse:
    """Return the process's metrics for Prometheus, and those from the database."""
    return HttpResponse(_metrics(), content_type=CONTENT_TYPE_LATEST)


class Probes:
    """Middleware that runs before host validation: Prometheus and kubelets use a Pod's address, which no setting can know in advance."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer a probe under a substitute host that no page has; all other requests need a host of BERTH_ALLOWED_HOSTS."""
        view = _PROBES.get(request.path_info) if request.method in {"GET", "HEAD"} else None
        if view is not None and may_probe(request.META.get("HTTP_HOST")):
            return view(request)
        return self._get_response(request)


_PROBES: dict[str, Callable[[HttpRequest], HttpResponse]] = {"/livez": livez, "/readyz": readyz, "/metrics": metrics}


def listen_beside(address: str) -> None:
    """Serve the probes of a Celery process on an address, if there is one."""
    listen(address, unready=_in_own_thread(_unready), metrics=_in_own_thread(_metrics))


def _in_own_thread(answer: Callable[[], T]) -> Callable[[], T]:
    """Close the database connection afterwards: each probe runs in its own thread, which ends with it."""

    def answered() -> T:
        try:
            return answer()
        finally:
            connection.close()

    return answered


def _unready() -> list[str]:
    return [name for name, fault in _parts().items() if fault]


def _parts() -> dict[str, str]:
    return {"database": _fault(_query), "migrations": _fault(missing_migrations)}


def _metrics() -> bytes:
    return b"".join(map(generate_latest, (REGISTRY, REQUEUES, GAPS, SUSPENSIONS, WEBHOOKS)))


def _fault(check: Callable[[], str]) -> str:
    """Return what is wrong in a few words. The driver's own, with the database's address and role, are for the log only."""
    try:
        return check()
    except Error as error:
        logger.warning(
            "not ready: %s",
            str(error).strip() or type(error).__name__,
            extra={"status_code": HTTPStatus.SERVICE_UNAVAILABLE.value},
        )
        return "can't be checked; the log of this process says why"


def _query() -> str:
    is_postgresql = connection.vendor == "postgresql"
    # On SQLite a transaction would wait for other writers.
    with transaction.atomic() if is_postgresql else nullcontext(), connection.cursor() as cursor:
        if is_postgresql:
            # For this transaction only: the thread's next page keeps the session's limit.
            cursor.execute("SET LOCAL statement_timeout = 2000")
        cursor.execute("SELECT 1")
    return ""


def missing_migrations() -> str:
    """Return how many migrations the database lacks, and what to do; nothing where it has them all."""
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return (
        f"{len(missing)} {'migration is' if len(missing) == 1 else 'migrations are'} missing; run python manage.py migrate"
        if missing
        else ""
    )
