"""gunicorn's configuration for the extender: one process, connections kept longer than kube-scheduler keeps them, TLS if set."""

import os
from pathlib import Path
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
os.environ.setdefault("BERTH_ROLE", "extender")

from django.conf import settings

from scheduler.extender.server.tls import Credentials
from scheduler.http_server.hosts import is_this_machine
from scheduler.serving.memory import keep_freed_memory, shorten_pauses
from scheduler.serving.pace import switch_often

_SET = settings.BERTH

bind = [address for address in (_SET.extender_bind, _SET.extender_health_bind) if address]
workers = 1
worker_class = "scheduler.extender.server.worker.ExtenderWorker"
# Concurrent calls. More than there are cores: a call that binds waits for the API server most of the time.
threads = 32
worker_connections = 512
# The kernel caps this at net.core.somaxconn.
backlog = 4096
# kube-scheduler's transport drops an idle connection after 90 s. It must close first, or a call is lost.
keepalive = 120
timeout = 60
# 8 s for calls in progress (the server's GRACE_SECONDS), ten for shipping Decisions.
graceful_timeout = 20
# Enough: kube-scheduler sends five header fields and a short path.
limit_request_line = 2048
limit_request_fields = 32
limit_request_field_size = 4096
# Newer versions open a control socket, which would get in the way of another process of the same user.
control_socket_disable = True
# gunicorn's own log lines have the same format as all others, also those about a worker that was killed or hangs.
logconfig_dict = settings.LOGGING

credentials: Credentials | None = None
if _SET.extender_tls_cert_file:
    credentials = Credentials(
        certificate=Path(_SET.extender_tls_cert_file),
        key=Path(_SET.extender_tls_key_file),
        clients=Path(_SET.extender_client_ca_file),
    )


def on_starting(server: Any) -> None:
    """Refuse listeners that the settings don't allow; `-b` bypasses the settings.

    Raises:
        RuntimeError: other machines would reach the verbs without a client certificate.
    """
    health_port = _SET.extender_health_bind.rpartition(":")[2]
    open_to_others = [
        address
        for address in server.cfg.address
        if not (address[0] == "localhost" or is_this_machine(address[0])) and str(address[1]) != health_port
    ]
    if open_to_others and credentials is None:
        message = (
            "the extender would listen for other machines without TLS: set BERTH_EXTENDER_TLS_CERT_FILE, "
            "BERTH_EXTENDER_TLS_KEY_FILE and BERTH_EXTENDER_CLIENT_CA_FILE, or bind to 127.0.0.1"
        )
        raise RuntimeError(message)


def post_fork(server: Any, worker: Any) -> None:
    """Set up the process before anything is imported into it."""
    del server, worker
    keep_freed_memory()


def post_worker_init(worker: Any) -> None:
    """Watch the TLS files, and set up the process once everything is imported."""
    del worker
    if credentials is not None:
        credentials.watch()
    shorten_pauses()
    switch_often()
