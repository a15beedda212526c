"""REST endpoint for a Pod's story: its attempts, its outcome, and the reasons."""

from typing import Any

import msgspec
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from policies.api.base import Door
from scheduler.decisions.reading import recorded
from scheduler.decisions.remedies import remedies_of
from scheduler.decisions.story import Story
from scheduler.pending.listing import shown_pending, waiting_of
from scheduler.pending.telling import story_without_decisions, told


class StoryView(Door):
    """The attempts to place a Pod, what changed between them, the outcome, who published and approved the rules, and what would let the Pod run."""

    needs = ("scheduler.view_decision",)
    parameters = {"get": [OpenApiParameter("uid", str, description="The Pod's UID, if several Pods had the name.")]}

    @extend_schema(
        responses={200: OpenApiTypes.OBJECT},
    )
    def get(self, request: Request, namespace: str, name: str) -> Response:
        """Return the recorded story; the reasons for differences are computed again for the newest attempts."""
        known = told(namespace, name, request.query_params.get("uid", ""), with_causes=True)
        story = known.story
        if story is None and known.waiting is not None:
            story = story_without_decisions(known.waiting, known.others)
        if story is None:
            message = f"no Decision about {namespace}/{name} is recorded, and no Pod of that name waits"
            raise NotFound(message)
        waiting = [] if story.ends or known.waiting is None else waiting_of([known.waiting], timezone.now())
        found = {
            "pending": shown_pending(waiting[0]) if waiting else None,
            "remedies": _remedies(story),
        }
        return Response(msgspec.to_builtins(story) | found)


def _remedies(story: Story) -> dict[str, Any] | None:
    """Return what would let the Pod run; None if it may use a node, or its outcome is known."""
    newest = story.attempts[0] if story.attempts and not story.ends else None
    row = recorded().filter(pk=newest.id).first() if newest and not newest.feasible else None
    return msgspec.to_builtins(remedies_of(row)) if row else None
