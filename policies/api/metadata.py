"""What a door says of itself to OPTIONS."""

from typing import Any

from rest_framework.metadata import SimpleMetadata
from rest_framework.request import Request


class Metadata(SimpleMetadata):
    """Says what a door is for. What its bodies hold stands in the OpenAPI document; REST framework knows rows alone."""

    def determine_actions(self, request: Request, view: Any) -> dict[str, Any]:
        """Leave out the members of the row: no act takes them."""
        del request, view
        return {}
