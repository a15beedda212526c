"""Rows of verifications of the ledger that people asked for."""

from django.db import models


class Verification(models.Model):
    """A verification of the whole ledger: who asked, how far it is, and what was found.

    `progress` is of each log what the next worker goes on from; `holder` fences: who was taken for dead writes nothing any more.
    """

    class State(models.TextChoices):
        """How far it is."""

        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    state = models.CharField(max_length=7, choices=State, default=State.QUEUED)
    asked_by = models.CharField(max_length=150, help_text="Who asked for it, as text that outlives the account.")
    asked_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField(null=True, help_text="Null while no worker has it in hand.")
    ended_at = models.DateTimeField(null=True)
    holder = models.CharField(max_length=32, blank=True, default="")
    deaths = models.PositiveSmallIntegerField(default=0, help_text="Workers that ended while they had it in hand.")
    done = models.PositiveBigIntegerField(default=0, help_text="Leaves so far.")
    total = models.PositiveBigIntegerField(default=0, help_text="Leaves of all logs.")
    progress = models.JSONField(default=dict)
    reports = models.JSONField(default=list, help_text="What `manage.py verify --output json` writes of each log.")
    is_sound = models.BooleanField(null=True, help_text="Whether nothing was wrong.")
    fault = models.TextField(blank=True, default="", help_text="Why it could not be done, and what to do.")

    class Meta:
        ordering = ["-pk"]
        default_permissions = ()
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=["queued", "running", "done", "failed"]), name="known_verification_state"
            )
        ]

    def __str__(self) -> str:
        return f"verification {self.pk}"

    @property
    def is_under_way(self) -> bool:
        """Whether the result is still to come."""
        return self.state in {self.State.QUEUED, self.State.RUNNING}
