"""Rows of the ledger: heads, tiles, leaves, signed checkpoints, and what retention deleted."""

from django.db import models


class LedgerHead(models.Model):
    """How far a log of the ledger goes. Who appends holds a lock on the row, so that there is one at a time.

    `unlogged` rows were there before the log began: nothing proves them, and there may be no more of them later.
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
    """256 hashes of a log's tree, or as many as there are; see `scheduler.ledger.tree`. Once whole it never changes."""

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
    """A signed note that says how many leaves a log had, and their root. It stands outside the database too."""

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
    """Which row a leaf is of, where rows can't say it themselves: they are written before they are appended, and never change."""

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
    """Leaves whose rows, or the bodies of these, were deleted by a rule, from `first` to before `until`, as earlier versions noted it.

    Nothing is added to it: `scheduler.ledger.deletions` signs what is deleted, and took this over.
    """

    class What(models.TextChoices):
        """What was deleted."""

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
