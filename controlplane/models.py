"""Rows of sign-in: who an account is at an OpenID Connect provider."""

from django.conf import settings
from django.db import models


class Identity(models.Model):
    """Whose account it is: the subject of a provider, which never changes and is never given to somebody else.

    Names and e-mail addresses are both changed and given on, so nobody is known by them.
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
