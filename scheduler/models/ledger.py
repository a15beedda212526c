"""Rows of the ledger: heads, tiles, leaves, signed checkpoints, and deletions by retention."""

from django.db import models


class LedgerHead(models.Model):
    """The size of a log of the ledger. A process that appends locks the row, so that only one does at a time.

    `unlogged` is the number of rows from before the log began: nothing proves them, and it may not grow later.
    """

    log = models.TextField(primary_key=True)
    size = models.BigIntegerField(default=0)
    root = models.BinaryField()
    began_at = models.DateTimeField()
    unlogged = models.BigIntegerField(default=0)

    class Meta:
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.log}: {self.size} leaves"


class LedgerTile(models.Model):
    """256 hashes of a log's tree, or fewer at its edge; see `scheduler.ledger.tree`. A complete tile never changes."""

    log = models.TextField()
    level = models.SmallIntegerField()
    number = models.BigIntegerField()
    hashes = models.BinaryField()

    class Meta:
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(fields=["log", "level", "number"], name="one_ledger_tile_per_place")]

    def __str__(self) -> str:
        return f"{self.log} {self.level}/{self.number}"


class LedgerCheckpoint(models.Model):
    """A signed note with a log's number of leaves and its root. A copy is kept outside the database."""

    log = models.TextField()
    size = models.BigIntegerField()
    note = models.TextField()
    at = models.DateTimeField()

    class Meta:
        ordering = ["-at"]
        default_permissions = ("view",)
        indexes = [models.Index(fields=["log", "size"], name="ledger_checkpoint_size")]

    def __str__(self) -> str:
        return f"{self.log}: {self.size} leaves at {self.at:%Y-%m-%d %H:%M:%S}"


class LedgerLeaf(models.Model):
    """The row of a leaf, for rows that can't store their leaf's index: they are written before they are appended, and never change."""

    log = models.TextField()
    index = models.BigIntegerField()
    row = models.TextField(help_text="the row's primary key")

    class Meta:
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["log", "index"], name="one_row_per_ledger_leaf"),
            models.UniqueConstraint(fields=["log", "row"], name="one_ledger_leaf_per_row"),
        ]

    def __str__(self) -> str:
        return f"{self.log} {self.index}"


class LedgerPruned(models.Model):
    """Leaves whose rows, or the bodies of these, a rule deleted, from `first` to before `until`, as earlier versions recorded it.

    No rows are added: `scheduler.ledger.deletions` signs deletions now, and has taken these over.
    """

    class What(models.TextChoices):
        """The kind of deletion."""

        ROWS = "rows"
        DETAILS = "details"

    log = models.TextField()
    first = models.BigIntegerField()
    until = models.BigIntegerField()
    what = models.TextField(choices=What.choices, default=What.ROWS)
    rule = models.TextField(help_text="which rule of retention, in words")
    at = models.DateTimeField()

    class Meta:
        ordering = ["log", "first"]
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(condition=models.Q(until__gt=models.F("first")), name="ledger_pruned_has_leaves")
        ]

    def __str__(self) -> str:
        return f"{self.log}: {self.what} of {self.first} to {self.until - 1}, {self.rule}"
