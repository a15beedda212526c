"""The view of the OpenAPI document, and the description of `Authorization: Bearer` in it."""

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.views import SpectacularAPIView


class BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call] # untyped
    """Describes how a token is sent. drf-spectacular finds subclasses of its extension by itself, so nothing imports this one."""

    target_class = "controlplane.bearer.BearerAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        """Return the description as OpenAPI writes it."""
        return {"type": "http", "scheme": "bearer", "description": "A token, as `manage.py token create` prints it."}


schema = SpectacularAPIView.as_view()
