"""gunicorn for the extender: one process, a few threads, connections kept longer than kube-scheduler keeps them."""

import gc
from typing import Any

bind = "127.0.0.1:8010"
workers = 1
worker_class = "gthread"
# kube-scheduler binds any number of Pods at once, and a thread waits for the API server meanwhile.
threads = 48
# kube-scheduler's transport drops an idle connection after 90 s; it must be the one to do so, or a call is lost.
keepalive = 120
timeout = 60
graceful_timeout = 15
# Another process of the same user would be hindered by the socket that newer versions open.
control_socket_disable = True


def post_worker_init(worker: Any) -> None:
    """Put what lives for good out of the garbage collector's sight: its pauses are the slowest calls otherwise."""
    del worker
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
