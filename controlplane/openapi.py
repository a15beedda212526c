"""The schema of REST as it is served, with what `Authorization: Bearer` is in it."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.views import SpectacularAPIView


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call] # untyped
    """Says how a token is sent; drf-spectacular finds it here by what it is."""

    target_class = "controlplane.bearer.BearerAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return it as OpenAPI has it."""
        del auto_schema
        return {"type": "http", "scheme": "bearer", "description": "A token, as `manage.py token create` prints it."}


schema = SpectacularAPIView.as_view()
