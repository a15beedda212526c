"""REST endpoints for Decisions, shadows, and the queue of Berth's own scheduler."""

from typing import Any

import msgspec
from django.conf import settings
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies.api.base import ReadOnlyViewSet
from policies.api.problems import ConflictProblem
from scheduler.api.pagination import DecisionPages
from scheduler.decisions.divergence import Divergence
from scheduler.decisions.other_sides import other_sides, shadows_beside
from scheduler.decisions.reading import answered_of, body_of
from scheduler.decisions.shadow_counts import DROPPED, FAILED
from scheduler.models import BinderState, Decision, ShadowCount

_SHADOW_TEXTS = {
    "assignment": "The Assignment that gave the shadow its rule set.",
    "rule_set": "The rule set that was evaluated as a shadow.",
    "divergence": "How the shadow differed from the answer.",
}
_DIVERGENCES = [*map(str, Divergence), DROPPED, FAILED]


class DecisionSerializer(serializers.ModelSerializer[Decision]):
    """A Decision without its body."""

    class Meta:
        model = Decision
        exclude = ["body"]


class DecisionDetailSerializer(serializers.ModelSerializer[Decision]):
    """A Decision with its body: the request and the answer."""

    body = serializers.SerializerMethodField(help_text="the recorded request and answer")

    def get_body(self, decision: Decision) -> dict[str, Any]:
        """Return the body: see scheduler.decisions.reading.

        Raises:
            ConflictProblem: it is damaged.
        """
        try:
            return body_of(decision)
        except ValueError as error:
            message = f"The body of Decision {decision.pk} is damaged: {error}. The list has its columns; `manage.py verify` says more."
            raise ConflictProblem(message) from error

    class Meta:
        model = Decision
        fields = "__all__"


class BinderStateSerializer(serializers.ModelSerializer[BinderState]):
    """The queue of a binder, as the process last reported it."""

    class Meta:
        model = BinderState
        fields = "__all__"


class QueueViewSet(ReadOnlyViewSet):
    """The queue of Berth's own scheduler, as each process last reported it, the leader first."""

    queryset = BinderState.objects.all()
    serializer_class = BinderStateSerializer


class ShadowCountSerializer(serializers.ModelSerializer[ShadowCount]):
    """The number of times that a shadow differed in this way from the answer."""

    class Meta:
        model = ShadowCount
        fields = "__all__"


class ShadowViewSet(ReadOnlyViewSet):
    """Divergences of shadows, counted by Assignment, Revision, rule set version and verb; filters match exact values."""

    parameters = {
        "list": [
            OpenApiParameter(name, str, enum=_DIVERGENCES if name == "divergence" else None, description=text)
            for name, text in _SHADOW_TEXTS.items()
        ]
    }
    queryset = ShadowCount.objects.filter(number__gt=0).order_by("assignment", "revision", "pk")
    serializer_class = ShadowCountSerializer

    def get_queryset(self) -> QuerySet[ShadowCount]:
        """Filter by the query's parameters.

        Raises:
            ValidationError: `divergence` has an unknown value.
        """
        query = self.request.query_params
        if query.get("divergence", DROPPED) not in _DIVERGENCES:
            raise ValidationError({"divergence": f"must be one of {', '.join(_DIVERGENCES)}"})
        return super().get_queryset().filter(**{name: query[name] for name in _SHADOW_TEXTS if name in query})


class DecisionViewSet(ReadOnlyViewSet):
    """Decisions, newest first, with the filters of the admin's list. Unknown parameters are refused."""

    queryset = Decision.objects.all()
    serializer_class = DecisionSerializer
    detail_serializer_class = DecisionDetailSerializer
    pagination_class = DecisionPages
    lookup_value_converter = "uuid"
    may_be_unreadable = {"retrieve"}

    def get_queryset(self) -> QuerySet[Decision]:
        """Read from the history's database."""
        return super().get_queryset().using(settings.HISTORY_DATABASE)

    @extend_schema(responses={200: OpenApiTypes.OBJECT})
    @action(detail=True)
    def sides(self, request: Request, **keys: Any) -> Response:
        """Return what belongs to a Decision: its shadows, and the answer of each canary's other side, evaluated again."""
        del request, keys
        row = self.get_object()
        is_shadow = row.mode == "shadow"
        shadows = [] if is_shadow else shadows_beside(row)
        return Response(
            {
                "answered": (answered_of(row) or None) if is_shadow else None,
                "divergence": row.divergence,
                "shadows": [DecisionSerializer(each).data for each in shadows],
                "canaries": [] if is_shadow else msgspec.to_builtins(other_sides(row)),
            }
        )
