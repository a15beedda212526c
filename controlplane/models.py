"""Models for signing in: accounts' identities at an OpenID Connect provider; tokens, with which programs act for accounts; sessions."""

from collections.abc import Collection
from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.base_session import AbstractBaseSession
from django.db import models
from django.db.models import Q

from policies.scopes import Reach, scope_of


class Identity(models.Model):
    """The identity of an account: the subject at a provider, which never changes and is never reassigned.

    Names and e-mail addresses can change and be reassigned, so they don't identify anybody.
    """

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="identity")
    issuer = models.TextField()
    subject = models.TextField()

    class Meta:
        default_permissions = ()
        verbose_name_plural = "identities"
        constraints = [models.UniqueConstraint(fields=["issuer", "subject"], name="one_account_per_subject")]

    def __str__(self) -> str:
        return f"{self.subject} of {self.issuer}"


class Token(models.Model):
    """A token with which a program acts for its owner, with at most the owner's permissions. Only a hash of the secret is stored.

    `controlplane.tokens` makes and revokes them. They are deleted with their owner's account.
    """

    name = models.CharField(max_length=50, help_text="What it is for.")
    prefix = models.CharField(
        max_length=8, unique=True, help_text="The beginning of its secret, which identifies the token."
    )
    hashed_key = models.CharField(max_length=150, help_text="SHA-512 of the secret.")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="tokens")
    scopes = models.JSONField(help_text="What it may do: read, edit, review, publish.")
    rule_sets = models.JSONField(
        default=list, help_text="Patterns of the names of rule sets that it may access; empty for all."
    )
    namespaces = models.JSONField(default=list, help_text="Patterns of the namespaces that it may access.")
    made_by = models.CharField(max_length=150, help_text="Who made it, as text that outlives the account.")
    made_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_by = models.CharField(max_length=150, blank=True, default="")
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="When it was last used, to the minute.")
    last_used_from = models.CharField(max_length=200, blank=True, default="")
    refused_at = models.DateTimeField(null=True, blank=True, help_text="When its use was last refused, to the minute.")

    class Meta:
        ordering = ["-made_at", "-pk"]
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "name"], condition=Q(revoked_at=None), name="one_token_of_a_name_and_owner"
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix})"

    @property
    def reach(self) -> Reach:
        """The things that it may touch."""
        return Reach(tuple(self.rule_sets), tuple(self.namespaces))

    def state(self, now: datetime) -> str:
        """Return active, revoked or expired."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at <= now else "active"


class Holder(User):
    """An account seen through a token: with only the permissions that the token's scopes allow."""

    class Meta:
        proxy = True
        default_permissions = ()

    scopes: Collection[str] = ()

    def has_perm(self, perm: str, obj: object = None) -> bool:
        """Return whether the account has a permission, and the token its scope."""
        return scope_of(perm) in self.scopes and super().has_perm(perm, obj)  # type: ignore[arg-type] # of any model


class Session(AbstractBaseSession):
    """A session of a signed-in browser: Django's, with its account, so that people can list theirs."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, null=True, related_name="sessions")

    class Meta(AbstractBaseSession.Meta):
        default_permissions = ()

    def __str__(self) -> str:
        """Return a label. Django's would be the session key, which is a credential."""
        return "session of an account" if self.user_id else "session of nobody yet"
