"""URLs of the provider of `tests.provider`, and its claims about people."""

from typing import Any

from django.contrib import admin
from django.urls import include, path
from oauth2_provider.oauth2_validators import OAuth2Validator

from tests.provider import GROUPS


class Validator(OAuth2Validator):
    """Adds everybody's name and groups to the claims."""

    oidc_claim_scope = None

    def get_additional_claims(self, request: Any) -> dict[str, Any]:
        """Return the claims of the person who signed in."""
        name = request.user.username
        return {"preferred_username": name, "email": request.user.email, "groups": GROUPS[name]}


urlpatterns = [
    path("o/", include("oauth2_provider.urls", namespace="oauth2_provider")),
    path("admin/", admin.site.urls),
]
