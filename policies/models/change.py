"""Changes: numbered, reviewable sets of edits, and what people did with them."""

from typing import ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q

from policies.models.revision import Revision, RevisionPart


class Change(models.Model):
    """A set of edits that goes live as one Revision. Its number is its key.

    `digest` identifies its result: it covers each edit and the edit's base, the content that was live when the edit was made.
    Approvals are for a digest: a new digest drops them for good, and so does a publishing that moves one of the bases.
    """

    class State(models.TextChoices):
        """The states from draft to live."""

        DRAFT = "draft", "draft"
        IN_REVIEW = "in_review", "in review"
        APPROVED = "approved", "approved"
        PUBLISHED = "published", "published"
        REJECTED = "rejected", "rejected"
        WITHDRAWN = "withdrawn", "withdrawn"

    title = models.CharField(max_length=200)
    reason = models.TextField(blank=True, default="", help_text="Why it is made, for those who review it.")
    state = models.CharField(max_length=9, choices=State, default=State.DRAFT)
    base = models.PositiveIntegerField(
        help_text="The Revision that was live when it was opened or last rebased; 0 for none."
    )
    digest = models.CharField(
        max_length=64, help_text="SHA-256 over its edits and the live parts that they are based on, in hex."
    )
    revision = models.OneToOneField(
        Revision,
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="change",
        help_text="The Revision that it made.",
    )
    rolls_back_to = models.PositiveIntegerField(
        null=True, blank=True, help_text="The Revision whose content it restores, if it does nothing else."
    )
    publish_at = models.DateTimeField(null=True, blank=True, help_text="When it goes live by itself.")
    held = models.TextField(
        blank=True, default="", help_text="Why it was not published, or not reverted, at its scheduled time."
    )
    expires_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When everything it changed goes back to what was live before. Part of its digest.",
    )
    expired_at = models.DateTimeField(
        null=True, blank=True, help_text="When it was reverted, or a Change that reverts it was opened."
    )
    approved_afterwards_at = models.DateTimeField(
        null=True,
        blank=True,
        help_text="When the last approval was given that was missing when it was published in an emergency.",
    )
    expiry_of = models.OneToOneField(
        "self",
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="expiry",
        help_text="The Change that it reverts, at the time that was approved with that Change.",
    )
    owner = models.CharField(
        max_length=100,
        blank=True,
        default="",
        help_text="The repository whose files it applies, by the name that its pipeline uses. What it publishes is managed there.",
    )
    takes_over = models.BooleanField(
        default=False, help_text="Whether it may take over what another repository manages."
    )
    opened_by = models.CharField(max_length=150, help_text="Who opened it, as text that outlives the account.")
    opened_at = models.DateTimeField(auto_now_add=True)
    moved_at = models.DateTimeField(help_text="When its state last changed.")

    class Meta:
        verbose_name = "Change"
        ordering = ["-pk"]
        default_permissions = ("view",)
        indexes = [
            models.Index(fields=["publish_at"], name="changes_by_time", condition=Q(publish_at__isnull=False)),
            models.Index(fields=["expires_at"], name="changes_by_expiry", condition=Q(expires_at__isnull=False)),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["draft", "in_review", "approved", "published", "rejected", "withdrawn"]),
                name="known_change_state",
            ),
            models.CheckConstraint(
                condition=Q(state="published", revision__isnull=False)
                | (~Q(state="published") & Q(revision__isnull=True)),
                name="published_changes_have_a_revision",
            ),
        ]

    def __str__(self) -> str:
        return f"Change {self.pk}"


class ChangeEdit(models.Model):
    """The edit of one thing in a Change: its new content, or its removal."""

    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="edits")
    kind = models.CharField(max_length=13, choices=RevisionPart.Kind)
    name = models.TextField()
    document = models.TextField(blank=True, help_text="Canonical JSON of the new content; empty for a removal.")
    base_digest = models.CharField(
        max_length=64, blank=True, default="", help_text="Digest of the part that was live; empty if none was."
    )
    author = models.CharField(max_length=150, help_text="Who edited it last, as text.")
    edited_at = models.DateTimeField()

    class Meta:
        ordering = ["kind", "name"]
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["change", "kind", "name"], name="one_edit_of_a_thing"),
            models.CheckConstraint(
                condition=Q(kind__in=["RuleSet", "Assignment", "PriorityClass", "Pause", "Exemption"]),
                name="known_kind_of_edit",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.name} in Change {self.change_id}"

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name of the thing that it edits."""
        return self.kind, self.name


class _WithAccounts(models.Manager["ChangeEvent"]):
    """Selects rows together with the accounts that they name."""

    def get_queryset(self) -> models.QuerySet["ChangeEvent"]:
        return super().get_queryset().select_related("by_user", "whom_user")

    def approvals(self) -> models.QuerySet["ChangeEvent"]:
        """Return the approvals of each Change's current content: those after the last act that ends approvals."""
        acts = Q(pk__gt=models.OuterRef("pk"), act__in=ChangeEvent.ENDS_APPROVALS)
        ended = ChangeEvent.objects.filter(acts, change=models.OuterRef("change"))
        return self.filter(~models.Exists(ended), act=ChangeEvent.Act.APPROVE, digest=models.F("change__digest"))


class ChangeEvent(models.Model):
    """An act of somebody on a Change, with the content at that time. Rows are only added."""

    class Act(models.TextChoices):
        """What was done."""

        OPEN = "open", "opened"
        EDIT = "edit", "edited"
        DESCRIBE = "describe", "described anew"
        REBASE = "rebase", "rebased"
        SUBMIT = "submit", "sent to review"
        ASK = "ask", "asked for a review"
        COMMENT = "comment", "commented"
        APPROVE = "approve", "approved"
        REJECT = "reject", "rejected"
        REOPEN = "reopen", "opened again"
        WITHDRAW = "withdraw", "withdrew"
        PUBLISH = "publish", "published"
        URGENT = "urgent", "published without approval, in an emergency"
        SCHEDULE = "schedule", "scheduled"
        HOLD = "hold", "held it back"
        EXPIRE = "expire", "took back"
        OVERTAKE = "overtake", "overtook it, which ends approvals"

    # Approvals before one of these acts no longer count, even if an edit restores the approved content, or the base is restored.
    # A Change published without approvals is approved afterwards: earlier approvals by people who may no longer approve don't count.
    ENDS_APPROVALS: ClassVar = (Act.EDIT, Act.REBASE, Act.REJECT, Act.OVERTAKE, Act.URGENT)

    change = models.ForeignKey(Change, on_delete=models.CASCADE, related_name="events")
    act = models.CharField(max_length=8, choices=Act)
    by = models.CharField(max_length=150, help_text="Who, as text that outlives the account.")
    by_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    via = models.CharField(
        max_length=150,
        blank=True,
        default="",
        help_text="A token's name, or command; empty for the person's own session.",
    )
    whom = models.CharField(max_length=150, blank=True, default="", help_text="Who was asked for a review, as text.")
    whom_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    at = models.DateTimeField()
    text = models.TextField(blank=True, default="", help_text="Reason or comment.")
    digest = models.CharField(max_length=64, help_text="The digest of the Change at that time.")

    objects = _WithAccounts()

    class Meta:
        ordering = ["pk"]
        default_permissions = ()
        indexes = [models.Index(fields=["change", "act"], name="events_of_a_change_by_act")]

    def __str__(self) -> str:
        return f"Change {self.change_id} {self.get_act_display()} by {self.by}"

    @property
    def who(self) -> str:
        """Who did it, by the account's present name: a renamed account is still the same person."""
        return self.by_user.get_username() if self.by_user else self.by

    @property
    def asked(self) -> str:
        """Who was asked for a review, by the account's present name."""
        return self.whom_user.get_username() if self.whom_user else self.whom


class ReviewSetting(models.Model):
    """The approvals that all Changes need, or those that touch a rule set. Rows are only added; the newest one applies.

    A row can only require more than the environment's settings do: all settings that concern a Change have to be met.
    """

    rule_set = models.TextField(
        blank=True, default="", help_text="The rule set whose Changes it applies to; empty for all Changes."
    )
    approvals = models.PositiveSmallIntegerField(
        help_text="How many people who didn't edit the Change have to approve it; 0 requires none beyond the environment's settings."
    )
    group = models.CharField(
        max_length=150,
        blank=True,
        default="",
        help_text="Only approvals of people in this group count; empty for anybody's.",
    )
    roll_backs = models.BooleanField(
        default=True, help_text="Whether a roll-back to an older Revision needs them, too."
    )
    reason = models.TextField(blank=True, default="", help_text="Why, for those who ask later.")
    set_by = models.CharField(max_length=150, help_text="Who set it, as text that outlives the account.")
    set_by_user = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    set_at = models.DateTimeField()

    class Meta:
        ordering = ["-pk"]
        default_permissions = ("add", "view")
        indexes = [models.Index(fields=["rule_set", "-id"], name="newest_review_setting")]

    def __str__(self) -> str:
        return f"review of {self.rule_set or 'all Changes'}"
