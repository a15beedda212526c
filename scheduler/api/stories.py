"""REST's answer to what became of a Pod, and why."""

import msgspec
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from scheduler.decisions.story import story_of


class MaySeeDecisions(BasePermission):
    """Lets in who may see Decisions: whoever has a role."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the account may see them."""
        return bool(request.user and request.user.has_perm("scheduler.view_decision"))


class StoryView(APIView):
    """Each attempt to place a Pod, what changed between two, what became of it, and who answers for the rules."""

    permission_classes = [MaySeeDecisions]

    @extend_schema(
        parameters=[OpenApiParameter("uid", str, description="Of the Pod that is meant, where several had the name.")],
        responses={200: OpenApiTypes.OBJECT, 404: OpenApiResponse(description="No Decision about it is recorded.")},
    )
    def get(self, request: Request, namespace: str, name: str) -> Response:
        """Return it as it is recorded; what made a difference is decided anew for the newest few."""
        story = story_of(namespace, name, request.query_params.get("uid", ""), with_causes=True)
        if story is None:
            message = f"no Decision about {namespace}/{name} is recorded"
            raise NotFound(message)
        return Response(msgspec.to_builtins(story))
