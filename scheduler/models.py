"""Rows of what happened to Pods: Decisions, the processes that made them, and wakes after a publish."""

import uuid

from django.db import models


class Decision(models.Model):
    """One answer to one question about one Pod, with all that is needed to replay it.

    The columns are a projection of `body` for lists. `body` is columnar: `pod` (Kubernetes JSON), `nodes` (names),
    `filters` [{rule, statuses [{code, reason}], verdicts [index into statuses per node; -1 success, -2 not
    evaluated]}], `scores` [{rule, weight, raw [0..100 or null per node]}], `totals` [0..10 or null per node].
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    at = models.DateTimeField()
    process = models.TextField()
    sequence = models.BigIntegerField()
    verb = models.TextField()
    pod_namespace = models.TextField()
    pod_name = models.TextField()
    pod_uid = models.TextField()
    revision = models.IntegerField()
    rule_set = models.TextField(blank=True, default="")
    rule_set_version = models.IntegerField(default=0)
    assignment = models.TextField(blank=True, default="")
    nodes = models.IntegerField(default=0)
    feasible = models.IntegerField(default=0)
    best = models.TextField(blank=True, default="")
    top_reason = models.TextField(blank=True, default="")
    duration_microseconds = models.IntegerField(default=0)
    mode = models.TextField(default="enforce")
    error = models.TextField(blank=True, default="")
    body = models.JSONField(default=dict)

    class Meta:
        ordering = ["-at", "-sequence"]
        constraints = [models.UniqueConstraint(fields=["process", "sequence"], name="one_decision_per_sequence")]
        indexes = [
            models.Index(fields=["-at", "-sequence"], name="decision_newest"),
            models.Index(fields=["pod_namespace", "pod_name", "-at"], name="decision_pod"),
            models.Index(fields=["pod_uid", "-at"], name="decision_uid"),
            models.Index(fields=["rule_set", "-at"], name="decision_rule_set"),
            models.Index(fields=["revision", "-at"], name="decision_revision"),
            models.Index(fields=["verb", "-at"], name="decision_verb"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} {self.pod_namespace}/{self.pod_name}"


class Process(models.Model):
    """One running process of Berth and what it serves; written by the process itself, about once a second."""

    id = models.TextField(primary_key=True, help_text="role@host:pid:start")
    role = models.TextField()
    host = models.TextField()
    pid = models.IntegerField()
    revision = models.IntegerField(default=0)
    revision_at = models.DateTimeField(null=True, blank=True)
    snapshot_age_seconds = models.FloatField(null=True, blank=True)
    started_at = models.DateTimeField()
    beat_at = models.DateTimeField()

    class Meta:
        ordering = ["role", "host", "pid"]
        verbose_name_plural = "processes"

    def __str__(self) -> str:
        return self.id


class Wake(models.Model):
    """Waiting Pods were made to be tried again because of a Revision."""

    revision = models.IntegerField(unique=True)
    woken_at = models.DateTimeField()
    pods = models.IntegerField(default=0)

    class Meta:
        ordering = ["-revision"]

    def __str__(self) -> str:
        return f"wake for Revision {self.revision}"


class Caller(models.Model):
    """The last call of a caller with a verb; written by the extender's beat, not by the call."""

    identity = models.TextField(help_text="name in the client certificate, or what stands for callers without one")
    verb = models.TextField()
    address = models.TextField(blank=True, default="")
    process = models.TextField(help_text="the process that was called last")
    last_at = models.DateTimeField()

    class Meta:
        ordering = ["identity", "verb"]
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["identity", "verb"], name="one_row_per_caller_and_verb")]

    def __str__(self) -> str:
        return f"{self.identity} {self.verb}"


class CanaryRun(models.Model):
    """A canary Pod that somebody asked for in the admin, and what came of it."""

    class State(models.TextChoices):
        """How far it is."""

        ASKED = "asked"
        RUNNING = "running"
        DONE = "done"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    asked_by = models.TextField()
    asked_at = models.DateTimeField()
    namespace = models.TextField()
    scheduler_name = models.TextField()
    state = models.TextField(choices=State.choices, default=State.ASKED)
    step = models.TextField(blank=True, default="", help_text="what is done right now")
    ended_at = models.DateTimeField(null=True, blank=True)
    report = models.JSONField(default=dict, help_text="what `doctor wiring --output json` writes")

    class Meta:
        ordering = ["-asked_at"]
        default_permissions = ("view",)
        permissions = [("run_canary", "Can run a canary Pod")]

    def __str__(self) -> str:
        return f"canary of {self.asked_by} at {self.asked_at:%Y-%m-%d %H:%M:%S}"
