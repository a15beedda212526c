"""Rows about the history: uses of its journal, legal holds, prunings, and its size."""

from django.db import models


class JournalUse(models.Model):
    """The time at which a Decision last needed a chain of Snapshots, or a list of node names: these are kept as long as that Decision."""

    class Kind(models.TextChoices):
        """The kind of journal record."""

        CHAIN = "chain"
        NAMES = "names"

    writer = models.TextField()
    kind = models.TextField(choices=Kind.choices)
    number = models.IntegerField()
    last_at = models.DateTimeField()
    # For a chain: the lowest and the highest `names_number` in it; 0: not known.
    least_names = models.IntegerField(default=0)
    most_names = models.IntegerField(default=0)

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["writer", "kind", "number"], name="one_use_per_part_of_journal")]
        indexes = [models.Index(fields=["last_at"], name="journal_use_oldest")]

    def __str__(self) -> str:
        return f"{self.kind} {self.number} of {self.writer}, {self.last_at}"


class LegalHold(models.Model):
    """A selection that may not be pruned until the hold is lifted: some Pods, in a period or at any time. Empty: any."""

    reason = models.TextField(help_text="why it is held, such as a case number")
    pod_namespace = models.TextField("namespace", blank=True, default="")
    pod_name = models.TextField("name of the Pod", blank=True, default="")
    pod_uid = models.TextField("UID of the Pod", blank=True, default="")
    from_at = models.DateTimeField("from", null=True, blank=True)
    until_at = models.DateTimeField("until", null=True, blank=True)
    made_by = models.TextField()
    made_at = models.DateTimeField()
    lifted_by = models.TextField(blank=True, default="")
    lifted_at = models.DateTimeField(null=True, blank=True)
    lift_reason = models.TextField(blank=True, default="")
    # The time at which the rows that it had held were pruned; until then, each pruning visits their past period again.
    released_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-made_at", "-pk"]
        default_permissions = ("view",)
        permissions = [
            ("make_legalhold", "Can make a legal hold"),
            ("lift_legalhold", "Can lift a legal hold"),
        ]

    def __str__(self) -> str:
        return f"legal hold {self.pk}: {self.reason}"


class Pruning(models.Model):
    """A pruning by one rule: one row for each run of a rule that deleted something.

    `from_at` is the time of the oldest deleted row; everything before `until_at` is deleted, except for what is held. For parts of
    the journal of Snapshots, the times are those of the last Decisions that needed them.
    """

    class Rule(models.TextChoices):
        """The rule; the first three have a retention time of their own, the others follow the rows that needed them."""

        DECISIONS = "decisions"
        DETAILS = "details"
        OUTCOMES = "outcomes"
        SNAPSHOTS = "snapshots"
        NAMES = "names"

    at = models.DateTimeField()
    rule = models.TextField(choices=Rule.choices)
    days = models.IntegerField(help_text="the value of the setting")
    from_at = models.DateTimeField()
    until_at = models.DateTimeField()
    rows = models.BigIntegerField(default=0)
    bytes = models.BigIntegerField(default=0)
    whole_partitions = models.IntegerField(default=0)

    class Meta:
        ordering = ["-at", "-pk"]
        default_permissions = ("view",)
        indexes = [models.Index(fields=["rule", "-until_at"], name="pruning_furthest")]

    def __str__(self) -> str:
        return f"{self.rule} until {self.until_at:%Y-%m-%d}"


class StorageSample(models.Model):
    """The history's size at a time, and the number of Decisions and Pods until then: the input of forecasts."""

    at = models.DateTimeField(primary_key=True)
    decisions = models.BigIntegerField(help_text="Decisions that were ever stored")
    rows = models.BigIntegerField(help_text="Decisions that are stored now; on PostgreSQL, by its statistics")
    decision_bytes = models.BigIntegerField(help_text="size of Decisions and Outcomes, with indexes")
    detail_bytes = models.BigIntegerField(help_text="average size of the details of the newest Decisions")
    journal_bytes = models.BigIntegerField(help_text="size of Snapshots and node names")

    class Meta:
        ordering = ["-at"]
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.at}: {self.decision_bytes + self.journal_bytes} bytes"
