"""Which repository owns a thing: the mark that a repository sets on things that it applies."""

from django.db import models
from django.db.models import Q

from policies.models.change import Change
from policies.models.revision import RevisionPart


class OwnerMark(models.Model):
    """Which repository owns a thing; others that apply the thing are told. A thing without a row has no owner."""

    kind = models.CharField(max_length=13, choices=RevisionPart.Kind)
    name = models.TextField()
    owner = models.CharField(max_length=100, help_text="The repository, as its pipeline names itself.")
    change = models.ForeignKey(
        Change,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="The Change by which it last brought the object in; empty if the object was live already.",
    )
    by = models.CharField(max_length=150, help_text="Who left the mark, as text that outlives the account.")
    marked_at = models.DateTimeField()

    class Meta:
        ordering = ["kind", "name"]
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["kind", "name"], name="one_owner_of_a_thing"),
            models.CheckConstraint(condition=~Q(owner=""), name="owners_have_names"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of {self.owner}"
