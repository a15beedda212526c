"""Rule sets, their versions and their rules."""

from collections.abc import Collection

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

NAME_MAX_LENGTH = 63
validate_name = RegexValidator(
    r"\A[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z",
    "Use lower-case letters, digits and hyphens, at most 63, beginning and ending with a letter or digit.",
)


class RuleSet(models.Model):
    """A named set of filter rules and score rules. It has versions."""

    name = models.CharField(
        max_length=NAME_MAX_LENGTH,
        unique=True,
        validators=[validate_name],
        help_text="Lower-case letters, digits and hyphens. It can't be changed later, because Decisions and files refer to the rule set by it.",
    )
    description = models.TextField(blank=True, default="", help_text="What the rules are for, in a sentence or two.")
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]
        verbose_name = "rule set"

    def __str__(self) -> str:
        return self.name


class RuleSetVersion(models.Model):
    """One numbered state of a rule set. Frozen once it leaves draft; the database refuses changes."""

    class State(models.TextChoices):
        """The life of a version."""

        DRAFT = "draft", "draft"
        IN_REVIEW = "in_review", "in review"
        APPROVED = "approved", "approved"
        PUBLISHED = "published", "published"
        SUPERSEDED = "superseded", "superseded"
        REJECTED = "rejected", "rejected"

    rule_set = models.ForeignKey(RuleSet, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    state = models.CharField(max_length=12, choices=State, default=State.DRAFT)
    description = models.TextField(blank=True, default="", help_text="What the rules are for, in a sentence or two.")
    note = models.TextField(blank=True, default="", help_text="Why this version was made.")
    params = models.JSONField(
        blank=True, default=dict, help_text='Constants that expressions read as params, e.g. {"zone": "a"}.'
    )
    tests = models.JSONField(
        blank=True, default=list, help_text="Tests that must pass before publishing, as in spec.tests of a document."
    )
    failures = models.JSONField(
        blank=True, default=dict, help_text="What to answer in an outage, as spec.failures of a document."
    )
    author = models.CharField(max_length=150)
    created_at = models.DateTimeField(auto_now_add=True)
    saved_at = models.DateTimeField(auto_now_add=True)
    published_at = models.DateTimeField(null=True, blank=True)
    published_by = models.CharField(max_length=150, blank=True, default="")
    digest = models.CharField(max_length=64, blank=True, default="", help_text="SHA-256 of the version's document.")

    class Meta:
        ordering = ["rule_set__name", "-number"]
        verbose_name = "rule set version"
        constraints = [
            models.UniqueConstraint(fields=["rule_set", "number"], name="one_number_per_rule_set"),
            models.UniqueConstraint(
                fields=["rule_set"], condition=Q(state="published"), name="one_published_version_per_rule_set"
            ),
            models.UniqueConstraint(fields=["rule_set"], condition=Q(state="draft"), name="one_draft_per_rule_set"),
            models.CheckConstraint(condition=Q(number__gte=1), name="version_numbers_begin_at_1"),
            models.CheckConstraint(
                condition=Q(
                    state__in=["draft", "in_review", "approved", "published", "superseded", "rejected"],
                ),
                name="known_version_state",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.rule_set} v{self.number}" if self.number else str(self.rule_set)  # 0: still unsaved in a form


class Rule(models.Model):
    """One filter, score or victims rule of a version: a built-in by its Kubernetes name, or a CEL expression."""

    class Kind(models.TextChoices):
        """What the rule answers."""

        FILTER = "filter", "filter: may the Pod use the node?"
        SCORE = "score", "score: how good is the node?"
        VICTIM = "victim", "victims rule: may preemption remove the Pod?"

    class OnError(models.TextChoices):
        """The consequence of a failed evaluation."""

        REJECT = "reject", "reject: refuse the node"
        PASS = "pass", "pass: go on as if the rule weren't there"

    class Mode(models.TextChoices):
        """Whether the rule counts."""

        ENFORCE = "enforce", "enforce"
        SHADOW = "shadow", "shadow: record only"
        OFF = "off", "off"

    version = models.ForeignKey(RuleSetVersion, on_delete=models.CASCADE, related_name="rules")
    position = models.PositiveIntegerField(default=0)
    kind = models.CharField(max_length=6, choices=Kind, default=Kind.FILTER)
    name = models.CharField(max_length=NAME_MAX_LENGTH, blank=True, default="")
    builtin = models.CharField(max_length=100, blank=True, default="")
    expression = models.TextField(blank=True, default="")
    arguments = models.JSONField(blank=True, default=dict)
    reason = models.CharField(max_length=250, blank=True, default="")
    on_error = models.CharField(max_length=6, choices=OnError, default=OnError.REJECT)
    mode = models.CharField(max_length=7, choices=Mode, default=Mode.ENFORCE)
    preemption_helps = models.BooleanField(default=False)
    weight = models.PositiveIntegerField(default=1)
    bounds_low = models.FloatField(null=True, blank=True)
    bounds_high = models.FloatField(null=True, blank=True)

    class Meta:
        ordering = ["position", "pk"]
        constraints = [
            models.CheckConstraint(condition=Q(kind__in=["filter", "score", "victim"]), name="known_rule_kind"),
            models.CheckConstraint(condition=Q(on_error__in=["reject", "pass"]), name="known_rule_on_error"),
            models.CheckConstraint(condition=Q(mode__in=["enforce", "shadow", "off"]), name="known_rule_mode"),
            models.CheckConstraint(
                condition=Q(bounds_low__isnull=True, bounds_high__isnull=True)
                | Q(bounds_low__isnull=False, bounds_high__isnull=False),
                name="both_bounds_or_none",
            ),
        ]

    def __str__(self) -> str:
        return self.name or self.builtin or "unnamed rule"

    def validate_constraints(self, exclude: Collection[str] | None = None) -> None:
        """Check none: the engine checks the rows of a form, which are never saved. Each constraint of each row is a query."""
