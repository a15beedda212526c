"""Rows of Notices, inboxes and webhooks."""

from django.conf import settings
from django.db import models


class Notice(models.Model):
    """An event of which users, or their programs, are notified. Numbers are consecutive and show the order."""

    number = models.BigIntegerField(primary_key=True)
    at = models.DateTimeField(help_text="When it happened.")
    kind = models.TextField(help_text="As `scheduler.notices.table` names it.")
    sentence = models.TextField(help_text="What happened, in a sentence.")
    text = models.TextField(blank=True, default="", help_text="The reason, in the words of the person who did it.")
    thing_kind = models.TextField(blank=True, default="")
    thing_name = models.TextField(blank=True, default="")
    by = models.TextField(blank=True, default="", help_text="Who did it; empty for events that nobody caused.")
    link = models.TextField(blank=True, default="", help_text="The path of the page that shows it.")

    class Meta:
        ordering = ["-number"]
        default_permissions = ()
        indexes = [models.Index(fields=["at"], name="notices_by_age")]

    def __str__(self) -> str:
        return f"Notice {self.number}: {self.sentence}"


class NoticeMark(models.Model):
    """How far Notices are made: one row. A process that makes Notices locks it, so that only one does at a time."""

    last_number = models.BigIntegerField(default=0, help_text="The number of the newest Notice.")
    next_event = models.BigIntegerField(default=0, help_text="The next leaf to read of the log of AuditEvents.")

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"Notices until {self.last_number}"


class NoticedCondition(models.Model):
    """An ongoing condition that has a Notice already. The row is deleted when the condition ends."""

    key = models.TextField(primary_key=True)
    kind = models.TextField()
    since = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return self.key


class InboxEntry(models.Model):
    """A Notice in a user's inbox."""

    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="entries")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    read_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-notice_id"]
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["user", "notice"], name="one_inbox_entry_per_notice")]
        indexes = [models.Index(fields=["user"], condition=models.Q(read_at=None), name="unread_entries")]

    def __str__(self) -> str:
        return f"Notice {self.notice_id} for {self.user_id}"


class Webhook(models.Model):
    """A target of Notices. Its URL and its secret are stored encrypted: the URL of a chat's webhook is a secret, too."""

    class Format(models.TextChoices):
        """The format of the body."""

        JSON = "json", "JSON"
        SLACK = "slack", "Slack"
        TEAMS = "teams", "Microsoft Teams"

    name = models.TextField(unique=True)
    host = models.TextField(help_text="The host of its URL, which is all that is shown of the URL.")
    sealed_url = models.TextField()
    sealed_secret = models.TextField()
    kinds = models.JSONField(default=list, help_text="The kinds of Notices; empty for all.")
    format = models.TextField(choices=Format.choices, default=Format.JSON)
    is_active = models.BooleanField(default=True)
    made_by = models.TextField()
    made_at = models.DateTimeField()
    failures = models.IntegerField(default=0, help_text="Failed attempts since the last successful one.")
    said = models.TextField(blank=True, default="", help_text="The result of the last attempt.")
    held_until = models.DateTimeField(
        null=True,
        blank=True,
        help_text="Until when no other process sends to it: one is sending, or it waits after a failure.",
    )

    class Meta:
        ordering = ["name"]
        default_permissions = ()
        permissions = [("manage_webhook", "Can make and change webhooks")]

    def __str__(self) -> str:
        return self.name


class Delivery(models.Model):
    """A Notice for a webhook. The rows are the queue: waiting ones whose time has come are sent.

    `body` is sent unchanged at each attempt, unless the webhook gets another format meanwhile. The sender first defers
    `next_at`, so that no other process sends the delivery at the same time, and so that it is sent again if the sender
    ends before it has recorded the result.
    """

    class State(models.TextChoices):
        """The state of the delivery."""

        WAITING = "waiting", "waits"
        DELIVERED = "delivered", "delivered"
        FAILED = "failed", "given up"

    webhook = models.ForeignKey(Webhook, on_delete=models.CASCADE, related_name="deliveries")
    notice = models.ForeignKey(Notice, null=True, blank=True, on_delete=models.CASCADE, related_name="deliveries")
    kind = models.TextField()
    body = models.TextField()
    state = models.TextField(choices=State.choices, default=State.WAITING)
    made_at = models.DateTimeField()
    next_at = models.DateTimeField(help_text="When the next attempt is due.")
    attempts = models.IntegerField(default=0)
    tried_at = models.DateTimeField(null=True, blank=True)
    status = models.IntegerField(null=True, blank=True, help_text="The status of the last answer.")
    said = models.TextField(blank=True, default="", help_text="The beginning of the last answer, or why there is none.")
    asked_by = models.TextField(
        blank=True, default="", help_text="Who requested it, if it is a test or was sent again."
    )

    class Meta:
        ordering = ["-pk"]
        default_permissions = ()
        verbose_name_plural = "deliveries"
        indexes = [
            models.Index(fields=["next_at"], condition=models.Q(state="waiting"), name="deliveries_due"),
            models.Index(fields=["webhook", "-id"], name="deliveries_of_webhook"),
            models.Index(fields=["made_at"], name="deliveries_by_age"),
        ]

    def __str__(self) -> str:
        return f"Delivery {self.pk} to {self.webhook_id}"
