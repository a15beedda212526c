"""gunicorn for the extender: one process, a few threads, connections kept longer than kube-scheduler keeps them."""

from typing import Any

from scheduler.extender.tuning import keep_freed_memory, shorten_pauses

bind = "127.0.0.1:8010"
workers = 1
worker_class = "gthread"
threads = 8
# kube-scheduler's transport drops an idle connection after 90 s; it must be the one to do so, or a call is lost.
keepalive = 120
timeout = 60
graceful_timeout = 15
# Another process of the same user would be hindered by the socket that newer versions open.
control_socket_disable = True


def post_fork(server: Any, worker: Any) -> None:
    """Set up the process before anything is loaded into it."""
    del server, worker
    keep_freed_memory()


def post_worker_init(worker: Any) -> None:
    """Set up the process when all is loaded."""
    del worker
    shorten_pauses()
