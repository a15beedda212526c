"""Assignments: which Pods get which rule set."""

from django.db import models
from django.db.models import Q

from policies.models.ruleset import NAME_MAX_LENGTH, RuleSet, validate_name


class Assignment(models.Model):
    """A match and the rule set it gives. Rows are what is wanted; the Revision is what is live."""

    class Mode(models.TextChoices):
        """Whether the rule set decides."""

        ENFORCE = "enforce", "enforce: the rule set decides"
        SHADOW = "shadow", "shadow: it is evaluated and recorded only"

    name = models.CharField(max_length=NAME_MAX_LENGTH, unique=True, validators=[validate_name])
    description = models.TextField(blank=True, default="")
    order = models.IntegerField(
        default=100, help_text="The Assignment with the lowest order that matches a Pod decides."
    )
    rule_set = models.ForeignKey(RuleSet, on_delete=models.PROTECT, related_name="assignments")
    mode = models.CharField(max_length=7, choices=Mode, default=Mode.ENFORCE)
    scheduler_names = models.JSONField(blank=True, default=list)
    namespaces = models.JSONField(blank=True, default=list)
    namespace_selector = models.JSONField(blank=True, default=dict)
    pod_selector = models.JSONField(blank=True, default=dict)
    priority_class_names = models.JSONField(blank=True, default=list)
    author = models.CharField(max_length=150, blank=True, default="", help_text="Who saved it last, as text.")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["order", "name"]
        constraints = [
            models.CheckConstraint(condition=Q(mode__in=["enforce", "shadow"]), name="known_assignment_mode"),
        ]

    def __str__(self) -> str:
        return self.name
