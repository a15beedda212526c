"""gunicorn for the admin and the REST API."""

import gc
import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
os.environ.setdefault("BERTH_ROLE", "admin")

from django.conf import settings

# A wrong setting ends this process before it starts workers that would fail, too.
_SET = settings.BERTH

bind = "127.0.0.1:8000"
workers = 1
worker_class = "scheduler.http_server.worker.Worker"
threads = 8
worker_connections = 512
backlog = 4096
# Longer than proxies' keep-alive (60 s for nginx and load balancers): if we closed first, a request that is just being sent would be lost.
keepalive = 75
timeout = 60
# Two seconds more than the worker's own time for requests in progress.
graceful_timeout = 24
# The socket that newer versions open would conflict with another process of the same user.
control_socket_disable = True
# gunicorn's log lines have the same format as all others, including those about a worker that was killed or hangs.
logconfig_dict = settings.LOGGING


def post_worker_init(worker: Any) -> None:
    """Load the pages now, not in the first request, and freeze them for the garbage collector.

    Python's thresholds stay as they are: with higher ones more garbage accumulates, and the slowest pages become slower.
    """
    del worker
    from django.urls import get_resolver

    get_resolver().url_patterns  # noqa: B018 - reading it loads it
    gc.collect()
    gc.freeze()
