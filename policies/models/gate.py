"""The gate of Changes: runs of its checks, and how much each check counts for a rule set."""

from django.db import models
from django.db.models import Q

from policies.models.change import Change


class GateRun(models.Model):
    """One run of the checks of a Change, for the Change's content, the live state and the engine at that time."""

    class State(models.TextChoices):
        """The progress of the run."""

        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="gate_runs")
    state = models.CharField(max_length=9, choices=State, default=State.QUEUED)
    digest = models.CharField(max_length=64, help_text="The Change's digest: what was checked.")
    asked_by = models.CharField(max_length=150, help_text="Who asked for it, as text that outlives the account.")
    asked_at = models.DateTimeField()
    revision = models.PositiveIntegerField(null=True, help_text="The live Revision that it was compared with.")
    engine = models.CharField(max_length=40, blank=True, default="", help_text="The version of the rules' engine.")
    started_at = models.DateTimeField(null=True)
    heartbeat_at = models.DateTimeField(null=True, help_text="When it last reported progress.")
    ended_at = models.DateTimeField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="How often it was started.")
    phase = models.CharField(max_length=60, blank=True, default="", help_text="What it is doing now, in words.")
    done = models.PositiveIntegerField(default=0, help_text="How many parts of the phase are done.")
    total = models.PositiveIntegerField(default=0)
    snapshot_at = models.DateTimeField(
        null=True, help_text="The time of the cluster's state that it used; null if it used none."
    )
    results = models.JSONField(default=list, help_text="The result of each check; long lists are cut.")
    fault = models.TextField(blank=True, default="", help_text="Why it failed, and what to do.")

    class Meta:
        ordering = ["-pk"]
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["queued", "running", "done", "failed", "cancelled"]), name="known_gate_state"
            ),
            models.UniqueConstraint(
                fields=["change"], condition=Q(state__in=["queued", "running"]), name="one_gate_run_under_way"
            ),
        ]
        indexes = [models.Index(fields=["state"], name="gate_runs_by_state")]

    def __str__(self) -> str:
        return f"gate run {self.pk} of Change {self.change_id}"

    @property
    def is_under_way(self) -> bool:
        """Whether its result is still to come."""
        return self.state in {self.State.QUEUED, self.State.RUNNING}


class GateSetting(models.Model):
    """The level of a check for Changes that touch a rule set. Rows are only added; the newest one of a check applies.

    A row can only require more than the installation does.
    """

    class Level(models.TextChoices):
        """The consequence of a check's findings."""

        OFF = "off", "as the installation says"
        WARNING = "warning", "a warning"
        BLOCKING = "blocking", "not published"

    rule_set = models.TextField(help_text="The rule set whose Changes it applies to.")
    check_name = models.CharField("check", max_length=20)
    level = models.CharField(max_length=8, choices=Level)
    reason = models.TextField(blank=True, default="", help_text="Why, for those who ask later.")
    set_by = models.CharField(max_length=150, help_text="Who set it, as text that outlives the account.")
    set_at = models.DateTimeField()

    class Meta:
        ordering = ["-pk"]
        default_permissions = ("view", "add")
        constraints = [
            models.CheckConstraint(condition=Q(level__in=["off", "warning", "blocking"]), name="known_gate_level")
        ]
        indexes = [models.Index(fields=["rule_set", "check_name"], name="gate_settings_by_check")]

    def __str__(self) -> str:
        return f"{self.check_name} of {self.rule_set}: {self.level}"
