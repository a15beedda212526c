"""Rows of processes, callers, canaries, and the queue of Berth's own scheduler."""

import uuid
from datetime import timedelta

from django.db import models


class Process(models.Model):
    """A running process of Berth and the Revision that it serves; written by the process itself, about once a second."""

    # A process that hasn't written for this long is silent.
    STALE_AFTER = timedelta(seconds=10)

    id = models.TextField(primary_key=True, help_text="role@host:pid:start")
    role = models.TextField()
    host = models.TextField()
    pid = models.IntegerField()
    revision = models.IntegerField(default=0)
    revision_at = models.DateTimeField(null=True, blank=True)
    snapshot_age_seconds = models.FloatField(null=True, blank=True)
    spool_records = models.BigIntegerField(
        null=True, blank=True, help_text="records on disk that wait to be sent to Redis"
    )
    spool_bytes = models.BigIntegerField(
        null=True, blank=True, help_text="bytes on disk that aren't in the database yet"
    )
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()

    class Meta:
        ordering = ["role", "host", "pid"]
        verbose_name_plural = "processes"

    def __str__(self) -> str:
        return self.id


class Caller(models.Model):
    """A caller's last call with a verb; written by the extender's heartbeat, not by the call."""

    identity = models.TextField(help_text="name in the client certificate, or the value for callers without one")
    verb = models.TextField()
    address = models.TextField(blank=True, default="")
    process = models.TextField(help_text="the process that was last called")
    last_at = models.DateTimeField()

    class Meta:
        ordering = ["identity", "verb"]
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["identity", "verb"], name="one_row_per_caller_and_verb")]

    def __str__(self) -> str:
        return f"{self.identity} {self.verb}"


class CanaryRun(models.Model):
    """A canary Pod that a user requested in the admin, and its report."""

    class State(models.TextChoices):
        """Its progress."""

        ASKED = "asked"
        RUNNING = "running"
        DONE = "done"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    asked_by = models.TextField()
    asked_at = models.DateTimeField()
    namespace = models.TextField()
    scheduler_name = models.TextField()
    state = models.TextField(choices=State.choices, default=State.ASKED)
    step = models.TextField(blank=True, default="", help_text="the current step")
    ended_at = models.DateTimeField(null=True, blank=True)
    report = models.JSONField(default=dict, help_text="what `doctor wiring --output json` writes")

    class Meta:
        ordering = ["-asked_at"]
        default_permissions = ("view",)
        permissions = [("run_canary", "Can run a canary Pod")]

    def __str__(self) -> str:
        return f"canary of {self.asked_by} at {self.asked_at:%Y-%m-%d %H:%M:%S}"


class BinderState(models.Model):
    """The queue of a scheduling process, as it last wrote it with its heartbeat; bounded, one row for each identity.

    `counts` has the number of Pods by state. `pods` are the longest waiting ones, each with namespace, name, uid,
    scheduler, priority, state, attempts, since, until, opens_at, nominated and message; in UNSCHEDULABLE, time alone
    may help a Pod at `opens_at`. `overcommitted` names nodes with more Pods than they have room for, `overcommits`
    counts how often one was found since the process started. `last_node` is the node that it picked last: among equal
    nodes it picks the next one behind it.
    """

    identity = models.TextField(primary_key=True, help_text="in the Lease: host and state folder")
    process = models.TextField()
    heartbeat_at = models.DateTimeField()
    leads = models.BooleanField(default=False)
    holder = models.TextField(blank=True, default="", help_text="who held the Lease when it was last read")
    scheduler_names = models.JSONField(default=list)
    node_label = models.TextField(blank=True, default="")
    counts = models.JSONField(default=dict)
    in_flight = models.IntegerField(default=0)
    pods = models.JSONField(default=list)
    overcommitted = models.JSONField(default=list)
    overcommits = models.IntegerField(default=0)
    last_node = models.TextField(blank=True, default="", db_default="")

    class Meta:
        ordering = ["-leads", "-heartbeat_at"]
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.identity
