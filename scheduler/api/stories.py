"""REST's answer to what became of a Pod, and why."""

import msgspec
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from policies.api.base import Door
from scheduler.decisions.story import story_of


class StoryView(Door):
    """Each attempt to place a Pod, what changed between two, what became of it, and who answers for the rules."""

    needs = ("scheduler.view_decision",)
    parameters = {
        "get": [OpenApiParameter("uid", str, description="Of the Pod that is meant, where several had the name.")]
    }

    @extend_schema(
        responses={200: OpenApiTypes.OBJECT},
    )
    def get(self, request: Request, namespace: str, name: str) -> Response:
        """Return it as it is recorded; what made a difference is decided anew for the newest few."""
        story = story_of(namespace, name, request.query_params.get("uid", ""), with_causes=True)
        if story is None:
            message = f"no Decision about {namespace}/{name} is recorded"
            raise NotFound(message)
        return Response(msgspec.to_builtins(story))
