"""Celery: the app, its queues and its periodic tasks."""

import logging
import os
import sys

from celery import Celery
from celery.signals import beat_init, celeryd_init, setup_logging, task_postrun, task_prerun, worker_ready
from django.conf import settings
from django.db import close_old_connections

from controlplane import redis_transport
from controlplane.beat import Staggered
from controlplane.logs import say_at_once
from controlplane.starts import record_start_of

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

# The periodic tasks: the task, its interval in seconds, its queue, and after how many seconds a message expires: expired ones are
# dropped, so that few are left after an outage. Beat's clock sets the expiry, and the worker's own clock is compared with it, so it
# is at least twenty seconds, by which the clocks of two machines may differ. Every task is idempotent, so a second beat does no
# harm.
_TICKS = (
    ("ingest", "ingest", 1.0, "ingest", 20),
    ("outcomes", "find_outcomes", 2.0, "ops", 20),
    ("missing", "note_missing", 5.0, "ops", 20),
    ("requeue", "requeue", 1.0, "ops", 20),
    ("pending", "follow_pending", 3.0, "ops", 20),
    ("backtests", "run_backtests", 1.0, "ops", 20),
    ("evidence", "run_evidence", 1.0, "ops", 20),
    ("verifications", "run_verifications", 1.0, "ops", 20),
    ("gates", "run_gates", 1.0, "ops", 20),
    ("priority classes", "look_after_priority_classes", 1.0, "ops", 20),
    ("exemptions", "announce_exemptions", 3600.0, "ops", 600),
    ("partitions", "make_partitions", 3600.0, "ops", 600),
    ("retention", "prune_history", 600.0, "ops", 300),
    ("storage", "sample_storage", 300.0, "ops", 60),
    ("events", "append_events", 2.0, "ops", 20),
    ("checkpoints", "sign_checkpoints", 60.0, "ops", 50),
    ("notices", "note_acts", 2.0, "ops", 20),
    ("conditions", "note_conditions", 10.0, "ops", 20),
    ("webhooks", "deliver_notices", 1.0, "ops", 20),
    ("scheduled changes", "publish_scheduled", 2.0, "ops", 20),
)

redis_transport.use()
app = Celery("berth")
# Tasks are registered with the default app.
app.set_default()
app.conf.update(
    broker_url=settings.CELERY_BROKER_URL,
    # kombu verifies no certificate by default; options in the URL override these.
    broker_use_ssl={"ssl_cert_reqs": "required"} if settings.CELERY_BROKER_URL.startswith("rediss:") else None,
    broker_connection_retry_on_startup=True,
    # Celery's own limit of 100 attempts ends a worker, and the binder, once Redis has been away for 46 minutes.
    broker_connection_max_retries=None,
    # In a failover Redis ends blocking commands with an error of its own (UNBLOCKED), and refuses writes (READONLY). Celery doesn't
    # treat these as a lost connection, and they would end the worker.
    broker_channel_error_retry=True,
    # The same value for all workers: a worker that restores unacknowledged messages applies its own timeout to those of all.
    broker_transport_options={
        "visibility_timeout": 120,
        "unacked_restore_interval": 5,
        "unacked_restore_throttle": 1,
        "socket_timeout": 5,
        "socket_keepalive": True,
        "health_check_interval": 10,
    },
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    task_time_limit=85,  # below the visibility timeout, else a long task would start twice
    task_soft_time_limit=75,
    task_create_missing_queues=False,
    task_queues={"ingest": {}, "ops": {}, "binder": {}},
    task_default_queue="ops",
    task_routes={"scheduler.tasks.ingest": {"queue": "ingest"}},
    worker_prefetch_multiplier=1,
    worker_soft_shutdown_timeout=15,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    # Otherwise Celery would close each thread's database connection after each task, and the next task would open another.
    CELERY_DB_REUSE_MAX=sys.maxsize,
    timezone="UTC",
    beat_scheduler="controlplane.beat:Scheduler",
    beat_schedule={
        name: {
            "task": f"scheduler.tasks.{task}",
            "schedule": Staggered(seconds, place / len(_TICKS)),
            "options": {"queue": queue, "expires": expires},
        }
        for place, (name, task, seconds, queue, expires) in enumerate(_TICKS)
    },
)
if settings.BERTH.role == "binder":
    # The checks would load every page of the admin, which this role doesn't have; other processes run them.
    os.environ.setdefault("CELERY_SKIP_CHECKS", "true")
    from scheduler.binder.bootstep import BindingLoop

    app.steps["worker"].add(BindingLoop)
else:
    from scheduler.priority_classes.bootstep import PriorityClassWatch
    from scheduler.requeue.bootstep import NamespaceWatch

    app.autodiscover_tasks()
    app.steps["worker"].update({PriorityClassWatch, NamespaceWatch})


def _keep_our_logging(**_: object) -> None:
    """Stop Celery from setting up its own handlers, so that Django's LOGGING applies."""


def _log_what_celery_writes(**_: object) -> None:
    """Make lines of the log of what Celery (v5.7.0) writes beside it: a warning of the superuser, and that a worker shuts down."""
    from celery.apps import worker

    logging.captureWarnings(capture=True)
    worker.safe_say = say_at_once


def _close_old_connections(**_: object) -> None:
    """Close connections that are broken or older than CONN_MAX_AGE, as Django does around each request."""
    close_old_connections()


def _listen_as_worker(**_: object) -> None:
    """Answer probes and metrics. The binder, a worker too, has a listener of its own."""
    if settings.BERTH.role != "binder":
        _listen(settings.BERTH.worker_bind)
        record_start_of("worker")


def _listen_as_beat(**_: object) -> None:
    _listen(settings.BERTH.beat_bind)
    record_start_of("beat")


def _listen(address: str) -> None:
    # Imported here: Django's apps are loaded now, and weren't when Celery imported this module.
    from controlplane.health import listen_beside

    listen_beside(address)


celeryd_init.connect(_log_what_celery_writes)
setup_logging.connect(_keep_our_logging)
task_prerun.connect(_close_old_connections)
task_postrun.connect(_close_old_connections)
worker_ready.connect(_listen_as_worker)
beat_init.connect(_listen_as_beat)
