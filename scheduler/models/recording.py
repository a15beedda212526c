"""Rows about recording: each writer's progress, missing Decisions, and unreadable records."""

from django.db import models


class Checkpoint(models.Model):
    """The progress of storing a writer's records: written in the transaction that stores them, so nothing is stored twice.

    `numbered` is the number of Decisions that the writer reports to have answered, `numbered_at` the time of the report; the ingest
    writes the others. The row without a writer is a lock: a process that stores locks it, so that only one does at a time.
    """

    writer = models.TextField(primary_key=True)
    segment = models.IntegerField(default=1)
    offset = models.BigIntegerField(default=0)
    next_sequence = models.BigIntegerField(default=1)
    next_decision = models.BigIntegerField(default=1)
    has_ended = models.BooleanField(default=False)
    at = models.DateTimeField()
    numbered = models.BigIntegerField(default=0)
    numbered_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return self.writer


class DecisionGap(models.Model):
    """Decisions that were answered and are not in the history: their numbers, and why.

    `may_return`: their process is gone, and it isn't known whether they are lost; the row is deleted when they arrive.
    """

    process = models.TextField()
    first = models.BigIntegerField()
    last = models.BigIntegerField()
    reason = models.TextField()
    at = models.DateTimeField()
    may_return = models.BooleanField(default=False)

    class Meta:
        ordering = ["-at"]
        constraints = [models.UniqueConstraint(fields=["process", "first"], name="one_gap_per_number")]

    def __str__(self) -> str:
        return f"{self.process}: {self.first} to {self.last}"

    @property
    def decisions(self) -> int:
        """The number of Decisions."""
        return self.last - self.first + 1


class DeadLetter(models.Model):
    """A record that could not be read or stored, unchanged. Nothing is discarded."""

    writer = models.TextField(blank=True, default="")
    segment = models.IntegerField(default=0)
    offset = models.BigIntegerField(default=0)
    sequence = models.BigIntegerField(default=0)
    kind = models.IntegerField(default=0)
    reason = models.TextField()
    data = models.BinaryField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at"]
        verbose_name_plural = "dead letters"

    def __str__(self) -> str:
        return f"{self.writer} {self.sequence}"
