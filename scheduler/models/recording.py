"""Rows of how far recording is: what each writer shipped, what is missing, what can't be read."""

from django.db import models


class Checkpoint(models.Model):
    """How far a writer's records are stored: written in the transaction that stores them, so nothing comes twice.

    `numbered` is how many Decisions the writer says that it has answered, `numbered_at` when that was; the others are the
    ingest's. The row without a writer is nobody's: who stores holds a lock on it, so that there is one at a time.
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

    `may_return`: their process is gone, and nobody knows whether they are lost; the row goes when they arrive.
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
        """How many Decisions these are."""
        return self.last - self.first + 1


class DeadLetter(models.Model):
    """A record that could not be read or stored, as it came. Nothing is thrown away."""

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
