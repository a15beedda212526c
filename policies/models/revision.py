"""Revisions: the whole published state, immutable and numbered."""

from django.conf import settings
from django.db import models
from django.db.models import Q


class Revision(models.Model):
    """One published state. The database refuses changes, deletion and a number out of turn."""

    number = models.PositiveIntegerField(primary_key=True)
    document = models.TextField(help_text="The exact canonical JSON that the digest is taken over.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of the document, in hex.")
    made_by = models.CharField(max_length=150, help_text="Who made it, as text that outlives the account.")
    made_by_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    reason = models.TextField(blank=True, default="", help_text="Why, in that person's words.")
    summary = models.TextField(help_text="What changed against the Revision before, in words, a line each.")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-number"]
        constraints = [models.CheckConstraint(condition=Q(number__gte=1), name="revision_numbers_begin_at_1")]
        permissions = [
            ("publish", "Can publish, roll back and withdraw"),
            ("approve", "Can publish where review is required"),
        ]

    def __str__(self) -> str:
        return f"Revision {self.number}"
