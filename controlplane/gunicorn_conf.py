"""gunicorn for the admin and the REST API."""

import gc
import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
os.environ.setdefault("BERTH_ROLE", "admin")

from django.conf import settings

# A wrong setting ends this process, before it starts others that would end in vain.
_SET = settings.BERTH

bind = "127.0.0.1:8000"
workers = 1
worker_class = "scheduler.http_server.worker.Worker"
threads = 8
worker_connections = 512
backlog = 4096
# Longer than proxies keep theirs (60 s by nginx and load balancers): who closes first loses what the other just sends.
keepalive = 75
timeout = 60
graceful_timeout = 10
# Another process of the same user would be hindered by the socket that newer versions open.
control_socket_disable = True
# A line of its log is one as all others, also of a worker that was killed or hangs.
logconfig_dict = settings.LOGGING


def post_worker_init(worker: Any) -> None:
    """Load what answers pages now, not in somebody's first request, and put it out of the garbage collector's sight.

    With Python's own thresholds: higher ones let more pile up, and make the slowest pages slower.
    """
    del worker
    from django.urls import get_resolver

    get_resolver().url_patterns  # noqa: B018 - reading it loads it
    gc.collect()
    gc.freeze()
