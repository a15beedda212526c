"""The worker that runs Berth's own scheduler: `python -m controlplane.binder`.

The same as `celery -A controlplane worker -P threads -c 1 -Q binder -n binder@%h --without-heartbeat`, without loading Celery's command line: a
worker that was killed is back in half the time.
"""

import os
import socket
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
os.environ.setdefault("BERTH_ROLE", "binder")


def main() -> int:
    """Run until SIGTERM. Returns the exit code."""
    from controlplane.celery import app

    worker = app.Worker(
        hostname=f"binder@{socket.gethostname()}",
        pool="threads",
        concurrency=1,
        queues=["binder"],
        # Celery's banner isn't a log line.
        quiet=True,
        # Nothing reads heartbeats. The loop that hears SIGTERM would write them: while Redis hangs, it would not end.
        without_heartbeat=True,
        without_gossip=True,
        without_mingle=True,
    )
    worker.start()
    return int(worker.exitcode or 0)


if __name__ == "__main__":
    sys.exit(main())
