"""Celery: the app, its queues and what runs by the clock."""

import os

from celery import Celery
from celery.signals import beat_init, setup_logging, worker_ready
from django.conf import settings

from controlplane.starts import record_start_of

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

app = Celery("berth")
# Tasks are declared for whichever app is the default.
app.set_default()
app.conf.update(
    broker_url=settings.CELERY_BROKER_URL,
    broker_connection_retry_on_startup=True,
    # One cadence for all workers: whichever sweeps applies its own times to everyone's messages.
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
    task_time_limit=85,  # below the visibility timeout, else a long task starts twice
    task_soft_time_limit=75,
    task_create_missing_queues=False,
    task_queues={"ingest": {}, "ops": {}, "binder": {}},
    task_default_queue="ops",
    task_routes={"scheduler.tasks.ingest": {"queue": "ingest"}},
    worker_prefetch_multiplier=1,
    worker_soft_shutdown_timeout=15,
    worker_cancel_long_running_tasks_on_connection_loss=True,
    worker_hijack_root_logger=False,
    timezone="UTC",
    beat_schedule_filename=str(settings.BERTH.state_dir / "beat-schedule"),
    # A tick that waited longer than it is worth is dropped; every task is idempotent, so that two beats do no harm.
    beat_schedule={
        "ingest": {"task": "scheduler.tasks.ingest", "schedule": 1.0, "options": {"queue": "ingest", "expires": 5}},
        "outcomes": {
            "task": "scheduler.tasks.find_outcomes",
            "schedule": 2.0,
            "options": {"queue": "ops", "expires": 5},
        },
        "missing": {
            "task": "scheduler.tasks.note_missing",
            "schedule": 5.0,
            "options": {"queue": "ops", "expires": 5},
        },
        "requeue": {"task": "scheduler.tasks.requeue", "schedule": 1.0, "options": {"queue": "ops", "expires": 5}},
        "pending": {
            "task": "scheduler.tasks.follow_pending",
            "schedule": 3.0,
            "options": {"queue": "ops", "expires": 5},
        },
        "backtests": {
            "task": "scheduler.tasks.run_backtests",
            "schedule": 1.0,
            "options": {"queue": "ops", "expires": 5},
        },
        "evidence": {
            "task": "scheduler.tasks.run_evidence",
            "schedule": 1.0,
            "options": {"queue": "ops", "expires": 5},
        },
        "gates": {"task": "scheduler.tasks.run_gates", "schedule": 1.0, "options": {"queue": "ops", "expires": 5}},
        "priority classes": {
            "task": "scheduler.tasks.look_after_priority_classes",
            "schedule": 1.0,
            "options": {"queue": "ops", "expires": 5},
        },
        "exemptions": {
            "task": "scheduler.tasks.announce_exemptions",
            "schedule": 3600.0,
            "options": {"queue": "ops", "expires": 600},
        },
        "partitions": {
            "task": "scheduler.tasks.make_partitions",
            "schedule": 3600.0,
            "options": {"queue": "ops", "expires": 600},
        },
        "retention": {
            "task": "scheduler.tasks.prune_history",
            "schedule": 600.0,
            "options": {"queue": "ops", "expires": 300},
        },
        "storage": {
            "task": "scheduler.tasks.sample_storage",
            "schedule": 300.0,
            "options": {"queue": "ops", "expires": 60},
        },
        "events": {
            "task": "scheduler.tasks.append_events",
            "schedule": 2.0,
            "options": {"queue": "ops", "expires": 5},
        },
        "checkpoints": {
            "task": "scheduler.tasks.sign_checkpoints",
            "schedule": 60.0,
            "options": {"queue": "ops", "expires": 50},
        },
        "notices": {
            "task": "scheduler.tasks.note_acts",
            "schedule": 2.0,
            "options": {"queue": "ops", "expires": 5},
        },
        "conditions": {
            "task": "scheduler.tasks.note_conditions",
            "schedule": 10.0,
            "options": {"queue": "ops", "expires": 10},
        },
        "webhooks": {
            "task": "scheduler.tasks.deliver_notices",
            "schedule": 1.0,
            "options": {"queue": "ops", "expires": 5},
        },
        "scheduled changes": {
            "task": "scheduler.tasks.publish_scheduled",
            "schedule": 2.0,
            "options": {"queue": "ops", "expires": 5},
        },
    },
)
if settings.BERTH.role == "binder":
    # They would load every page of the admin, which this role doesn't have; the other processes run them.
    os.environ.setdefault("CELERY_SKIP_CHECKS", "true")
    from scheduler.binder.bootstep import BindingLoop

    app.steps["worker"].add(BindingLoop)
else:
    from scheduler.priority_classes.bootstep import PriorityClassWatch

    app.autodiscover_tasks()
    app.steps["worker"].add(PriorityClassWatch)


def _keep_our_logging(**_: object) -> None:
    """Stop Celery from setting up handlers of its own: Django's LOGGING stands."""


def _listen_as_worker(**_: object) -> None:
    """Answer probes and metrics. The binder, a worker too, has a listener of its own."""
    if settings.BERTH.role != "binder":
        _listen(settings.BERTH.worker_bind)
        record_start_of("worker")


def _listen_as_beat(**_: object) -> None:
    _listen(settings.BERTH.beat_bind)
    record_start_of("beat")


def _listen(address: str) -> None:
    # Imported here: Django's apps are there by now, and weren't when Celery imported this module.
    from controlplane.health import listen_beside

    listen_beside(address)


setup_logging.connect(_keep_our_logging)
worker_ready.connect(_listen_as_worker)
beat_init.connect(_listen_as_beat)
