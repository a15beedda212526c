"""Rows of backtests: recorded Decisions, decided again by the rules of a Change."""

from django.db import models


class Backtest(models.Model):
    """A Change, or its version of one rule set, applied to recorded Decisions.

    The row fixes the input: the base Revision, the edits, and the selection of Decisions. So a worker that continues
    after another one was killed gets the same result, to the byte. `digest` is of the edits alone.
    """

    class State(models.TextChoices):
        """Its progress."""

        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"
        FAILED = "failed", "failed"
        CANCELLED = "cancelled", "cancelled"

    change = models.ForeignKey("policies.Change", on_delete=models.CASCADE, related_name="backtests")
    rule_set = models.TextField(blank=True, default="", help_text="The rule set whose edit is tested; empty for all.")
    revision = models.PositiveIntegerField(help_text="The live Revision that the edits were applied to.")
    edits = models.JSONField(help_text="The edits: kind, name, and the document's text; empty to remove it.")
    digest = models.CharField(max_length=64, help_text="Digest of the edits.")
    engine = models.CharField(max_length=40, help_text="The version of the rules' engine.")
    since = models.DateTimeField(null=True, help_text="The start of the period; null for the first Decision.")
    until = models.DateTimeField(help_text="The end of the period, exclusive.")
    namespaces = models.JSONField(default=list, help_text="The namespaces of the Pods; empty for all.")
    rule_sets = models.JSONField(default=list, help_text="The rule sets that decided; empty for all.")
    state = models.CharField(max_length=9, choices=State, default=State.QUEUED)
    asked_by = models.CharField(max_length=150, help_text="Who asked for it, as text that outlives the account.")
    asked_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=150, blank=True, default="", help_text="Who cancelled it.")
    planner = models.UUIDField(null=True, help_text="The process that divides the Decisions into chunks.")
    planned_at = models.DateTimeField(null=True, help_text="When the planner last reported progress.")
    total = models.PositiveIntegerField(default=0, help_text="How many Decisions there are.")
    result = models.BinaryField(default=bytes, help_text="What it found, as JSON.")
    fault = models.TextField(blank=True, default="", help_text="Why it failed, and what to do.")

    class Meta:
        ordering = ["-pk"]
        default_permissions = ("view",)
        permissions = [("run_backtest", "Can run a backtest")]
        constraints = [
            models.CheckConstraint(
                condition=models.Q(state__in=["queued", "running", "done", "failed", "cancelled"]),
                name="known_backtest_state",
            )
        ]
        indexes = [
            models.Index(fields=["state"], name="backtests_by_state"),
            models.Index(fields=["digest", "-id"], name="backtests_by_digest"),
        ]

    def __str__(self) -> str:
        return (
            f"backtest {self.pk} of {f'rule set {self.rule_set} in ' if self.rule_set else ''}Change {self.change_id}"
        )

    @property
    def is_under_way(self) -> bool:
        """Whether it has no result yet."""
        return self.state in {self.State.QUEUED, self.State.RUNNING}


class BacktestChunk(models.Model):
    """Decisions of one writer, from one sequence to another, that one process decides again.

    `result` is written once, complete, and with it `last` and `decisions` of a chunk that was divided. `attempts` fences: a worker that
    was taken for dead and continues writes nothing.
    """

    class State(models.TextChoices):
        """Its progress."""

        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        DONE = "done", "done"

    backtest = models.ForeignKey(Backtest, on_delete=models.CASCADE, related_name="chunks")
    number = models.PositiveIntegerField()
    process = models.TextField()
    first = models.BigIntegerField(help_text="The first Decision's sequence.")
    last = models.BigIntegerField()
    decisions = models.PositiveIntegerField()
    state = models.CharField(max_length=7, choices=State, default=State.QUEUED)
    attempts = models.PositiveSmallIntegerField(default=0)
    heartbeat_at = models.DateTimeField(null=True)
    result = models.BinaryField(default=bytes, help_text="What was found, compressed.")

    class Meta:
        ordering = ["backtest", "number"]
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["backtest", "number"], name="one_chunk_per_number"),
            models.CheckConstraint(
                condition=models.Q(state__in=["queued", "running", "done"]), name="known_backtest_chunk_state"
            ),
        ]
        indexes = [models.Index(fields=["backtest", "state", "number"], name="backtest_chunks_by_state")]

    def __str__(self) -> str:
        return f"chunk {self.number} of backtest {self.backtest_id}"
