"""Tokens for tests: accounts' secrets, for the header `Authorization`."""

from collections.abc import Sequence

from django.contrib.auth.models import User
from django.utils import timezone

from controlplane.tokens import make_token
from policies.scopes import SCOPES

_made = iter(range(1, 1_000_000))


def secret_of(
    owner: User,
    scopes: Sequence[str] = SCOPES,
    *,
    rule_sets: Sequence[str] = (),
    namespaces: Sequence[str] = (),
) -> str:
    """Return the secret of a new token."""
    _, secret = make_token(
        name=f"token {next(_made)}",
        owner=owner,
        scopes=scopes,
        days=1,
        by="tests",
        now=timezone.now(),
        rule_sets=rule_sets,
        namespaces=namespaces,
    )
    return secret


def bearer(secret: str) -> dict[str, str]:
    """Return the headers of a request with a token."""
    return {"Authorization": f"Bearer {secret}"}
