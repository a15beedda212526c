"""Revisions: the whole published state, immutable and numbered, and the parts of Revisions."""

from django.conf import settings
from django.db import models
from django.db.models import Q


class Revision(models.Model):
    """One published state. The database refuses changes, deletion and a number out of sequence.

    Its content is the RevisionParts of its number; `policies.publishing.load_revision` reads them.
    """

    number = models.PositiveIntegerField(primary_key=True)
    digest = models.CharField(
        max_length=64, help_text="SHA-256 over the digests of its parts and of the Revision before, in hex."
    )
    chained = models.BooleanField(
        default=True, help_text="False for early Revisions: their digest is the SHA-256 of the whole document."
    )
    made_by = models.CharField(max_length=150, help_text="Who made it, as text that outlives the account.")
    made_by_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    reason = models.TextField(blank=True, default="", help_text="Why, in that person's words.")
    summary = models.TextField(help_text="What changed against the Revision before, in words, a line each.")
    created_at = models.DateTimeField()

    class Meta:
        verbose_name = "Revision"
        ordering = ["-number"]
        constraints = [models.CheckConstraint(condition=Q(number__gte=1), name="revision_numbers_begin_at_1")]
        permissions = [
            ("publish", "Can publish, roll back and withdraw"),
            ("approve", "Can approve and reject Changes"),
            ("break_glass", "Can publish without approvals in an emergency"),
        ]

    def __str__(self) -> str:
        return f"Revision {self.number}"


class Part(models.Model):
    """A rule set, Assignment, PriorityClass, Pause or Exemption as it was published: stored once, however many Revisions hold it.

    The database refuses changes and deletion.
    """

    digest = models.CharField(max_length=64, primary_key=True, help_text="SHA-256 of the document, in hex.")
    document = models.TextField(help_text="The exact canonical JSON that the digest is taken over.")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.digest


class RevisionPart(models.Model):
    """The first Revision that holds a part, and the first one that no longer holds it.

    A Revision that changes one part writes one row and ends another. The database accepts a row, or its end, only together
    with the Revision that it names, so the content of a Revision never changes.
    """

    class Kind(models.TextChoices):
        """The kind of the part."""

        RULE_SET = "RuleSet"
        ASSIGNMENT = "Assignment"
        PRIORITY_CLASS = "PriorityClass"
        PAUSE = "Pause"
        EXEMPTION = "Exemption"

    kind = models.CharField(max_length=13, choices=Kind)
    name = models.TextField()
    part = models.ForeignKey(Part, on_delete=models.PROTECT, related_name="+")
    since = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="+")
    until = models.ForeignKey(Revision, on_delete=models.PROTECT, related_name="+", null=True)

    class Meta:
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["kind", "name"], condition=Q(until=None), name="one_live_part_of_a_name"),
            models.CheckConstraint(
                condition=Q(kind__in=["RuleSet", "Assignment", "PriorityClass", "Pause", "Exemption"]),
                name="known_kind_of_part",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} since Revision {self.since_id}"
