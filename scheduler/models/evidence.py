"""Rows of archives of evidence, and of verifications of the ledger, that users requested."""

from django.db import models


class EvidenceExport(models.Model):
    """An archive of evidence: its selection, its requester, and its progress.

    `attempts` fences: a worker that was taken for dead and continues writes pieces of its own attempt, which nobody reads, and can't
    end the export.
    """

    class State(models.TextChoices):
        """Its progress."""

        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    first = models.DateTimeField(null=True, help_text="The start of the period; null for the first Decision.")
    until = models.DateTimeField(
        null=True, help_text="The end of the period, exclusive; null for the time when it is made."
    )
    pod_namespace = models.TextField(blank=True, default="")
    pod_name = models.TextField(blank=True, default="")
    pod_uid = models.TextField(blank=True, default="")
    change = models.PositiveIntegerField(
        null=True, help_text="The number of the Change that it is about; null for none."
    )
    state = models.CharField(max_length=7, choices=State, default=State.QUEUED)
    asked_by = models.CharField(max_length=150, help_text="Who asked for it, as text that outlives the account.")
    asked_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    rows = models.PositiveBigIntegerField(default=0, help_text="How many rows are written so far.")
    bytes = models.PositiveBigIntegerField(default=0, help_text="The size of the archive so far.")
    fault = models.TextField(blank=True, default="", help_text="Why it failed, and what to do.")

    class Meta:
        ordering = ["-pk"]
        default_permissions = ("view",)
        permissions = [("export_evidence", "Can export evidence, and take it along")]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=["queued", "running", "done", "failed"]), name="known_evidence_state"
            )
        ]
        indexes = [models.Index(fields=["state", "id"], name="evidence_by_state")]

    def __str__(self) -> str:
        return f"archive {self.pk} of evidence"

    @property
    def is_under_way(self) -> bool:
        """Whether the archive isn't finished yet."""
        return self.state in {self.State.QUEUED, self.State.RUNNING}


class EvidencePiece(models.Model):
    """A piece of an archive's bytes, as one attempt wrote it."""

    export = models.ForeignKey(EvidenceExport, on_delete=models.CASCADE, related_name="pieces")
    attempt = models.PositiveSmallIntegerField()
    number = models.PositiveIntegerField()
    data = models.BinaryField()

    class Meta:
        ordering = ["export", "attempt", "number"]
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["export", "attempt", "number"], name="one_evidence_piece_per_number")
        ]

    def __str__(self) -> str:
        return f"piece {self.number} of archive {self.export_id}"


class Verification(models.Model):
    """A verification of the whole ledger: its requester, its progress, and its findings.

    `progress` has, for each log, where the next worker continues; `holder` fences: a worker that was taken for dead writes nothing more.
    """

    class State(models.TextChoices):
        """Its progress."""

        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"

    state = models.CharField(max_length=7, choices=State, default=State.QUEUED)
    asked_by = models.CharField(max_length=150, help_text="Who asked for it, as text that outlives the account.")
    asked_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField(null=True, help_text="Null while no worker is processing it.")
    ended_at = models.DateTimeField(null=True)
    holder = models.CharField(max_length=32, blank=True, default="")
    deaths = models.PositiveSmallIntegerField(
        default=0, help_text="How many workers ended while they were processing it."
    )
    done = models.PositiveBigIntegerField(default=0, help_text="Leaves verified so far.")
    total = models.PositiveBigIntegerField(default=0, help_text="Leaves of all logs in total.")
    progress = models.JSONField(default=dict)
    reports = models.JSONField(default=list, help_text="What `manage.py verify --output json` writes of each log.")
    is_sound = models.BooleanField(null=True, help_text="Whether no fault was found.")
    fault = models.TextField(blank=True, default="", help_text="Why it failed, and what to do.")

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
        """Whether it has no result yet."""
        return self.state in {self.State.QUEUED, self.State.RUNNING}
