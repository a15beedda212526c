"""Assignments: which Pods get which rule set."""

from django.db import models
from django.db.models import Q

from policies.models.ruleset import NAME_MAX_LENGTH, RuleSet, validate_name


class Assignment(models.Model):
    """A match and its rule set. Rows hold the wanted state; the Revision is the live state."""

    class Mode(models.TextChoices):
        """Whether the rule set decides."""

        ENFORCE = "enforce", "enforce: the rule set decides"
        SHADOW = "shadow", "shadow: it is evaluated and recorded only"
        CANARY = "canary", "canary: it decides for some of the workloads"

    name = models.CharField(max_length=NAME_MAX_LENGTH, unique=True, validators=[validate_name])
    description = models.TextField(blank=True, default="")
    order = models.IntegerField(
        default=100, help_text="The Assignment with the lowest order that matches a Pod decides."
    )
    rule_set = models.ForeignKey(RuleSet, on_delete=models.PROTECT, related_name="assignments")
    mode = models.CharField(max_length=7, choices=Mode, default=Mode.ENFORCE)
    percent = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="For mode canary: the percentage of workloads for which the rule set decides. Other workloads go on to the next Assignment.",
    )
    params = models.JSONField(
        blank=True, default=dict, help_text="Replace the rule set's own params of the same names."
    )
    scheduler_names = models.JSONField(blank=True, default=list)
    namespaces = models.JSONField(blank=True, default=list)
    namespace_selector = models.JSONField(blank=True, default=dict)
    pod_selector = models.JSONField(blank=True, default=dict)
    priority_class_names = models.JSONField(blank=True, default=list)
    owner_kinds = models.JSONField(blank=True, default=list)
    author = models.CharField(max_length=150, blank=True, default="", help_text="Who saved it last, as text.")
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "Assignment"
        ordering = ["order", "name"]
        constraints = [
            models.CheckConstraint(condition=Q(mode__in=["enforce", "shadow", "canary"]), name="known_assignment_mode"),
            models.CheckConstraint(
                condition=Q(mode="canary", percent__isnull=False, percent__range=(1, 100))
                | (~Q(mode="canary") & Q(percent=None)),
                name="canaries_have_a_percent",
            ),
        ]

    def __str__(self) -> str:
        return self.name
