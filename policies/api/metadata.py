"""The answer to OPTIONS."""

from typing import Any

from rest_framework.metadata import SimpleMetadata
from rest_framework.request import Request


class Metadata(SimpleMetadata):
    """Describes a view, without its request bodies, which the OpenAPI document describes: Django REST framework knows only models."""

    def determine_actions(self, request: Request, view: Any) -> dict[str, Any]:
        """Return no actions: the model's fields aren't the members of request bodies."""
        return {}
