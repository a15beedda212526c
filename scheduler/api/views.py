"""REST over what happened to Pods: Decisions, and what shadows would have done; over what waits for Berth's own scheduler."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import serializers

from policies.api.views import ReadOnlyViewSet
from scheduler.decisions.reading import body_of
from scheduler.models import BinderState, Decision, ShadowCount

_TEXTS = ("verb", "rule_set", "assignment", "pod_namespace", "pod_name", "pod_uid", "best", "mode", "divergence")
_NUMBERS = ("revision", "rule_set_version")
_SHADOW_TEXTS = ("assignment", "rule_set", "divergence")
_LARGEST = 2**31 - 1


class DecisionSerializer(serializers.ModelSerializer[Decision]):
    """A Decision without its body."""

    class Meta:
        model = Decision
        exclude = ["body"]


class DecisionDetailSerializer(serializers.ModelSerializer[Decision]):
    """A Decision with all that was asked and said."""

    body = serializers.SerializerMethodField()

    def get_body(self, decision: Decision) -> dict[str, Any]:
        """Return the body: see scheduler.decisions.reading."""
        return body_of(decision)

    class Meta:
        model = Decision
        fields = "__all__"


class BinderStateSerializer(serializers.ModelSerializer[BinderState]):
    """What a process that schedules last said of its queue."""

    class Meta:
        model = BinderState
        fields = "__all__"


class QueueViewSet(ReadOnlyViewSet):
    """The queue of Berth's own scheduler, as each process last wrote it; the one that leads first."""

    queryset = BinderState.objects.all()
    serializer_class = BinderStateSerializer


class ShadowCountSerializer(serializers.ModelSerializer[ShadowCount]):
    """How often a shadow diverged so from what was answered."""

    class Meta:
        model = ShadowCount
        exclude = ["id"]


@extend_schema_view(list=extend_schema(parameters=[OpenApiParameter(name, str) for name in _SHADOW_TEXTS]))
class ShadowViewSet(ReadOnlyViewSet):
    """What shadows would have done, counted by Assignment, Revision, rule set version and verb; filtered by equality."""

    queryset = ShadowCount.objects.filter(number__gt=0).order_by("assignment", "revision", "pk")
    serializer_class = ShadowCountSerializer

    def get_queryset(self) -> QuerySet[ShadowCount]:
        """Filter by the query's parameters."""
        query = self.request.query_params
        return super().get_queryset().filter(**{name: query[name] for name in _SHADOW_TEXTS if name in query})


@extend_schema_view(
    list=extend_schema(
        parameters=[
            *(OpenApiParameter(name, str) for name in _TEXTS),
            *(OpenApiParameter(name, int) for name in _NUMBERS),
            OpenApiParameter("refused", bool, description="true: no node; false: at least one"),
        ]
    )
)
class DecisionViewSet(ReadOnlyViewSet):
    """Decisions, newest first; filtered by equality."""

    queryset = Decision.objects.all()
    serializer_class = DecisionSerializer
    detail_serializer_class = DecisionDetailSerializer
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Decision]:
        """Filter by the query's parameters."""
        queryset = super().get_queryset()
        if self.action != "list":
            return queryset
        query = self.request.query_params
        wanted: dict[str, Any] = {name: query[name] for name in _TEXTS if name in query}
        for name in _NUMBERS:
            if name in query:
                wanted[name] = _number(name, query[name])
        if "refused" in query:
            queryset = queryset.filter(feasible=0) if query["refused"] == "true" else queryset.filter(feasible__gt=0)
        return queryset.filter(**wanted).defer("body")


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_LARGEST)) and int(text) <= _LARGEST):
        raise serializers.ValidationError({name: f"{text[:40]!r} is not a whole number from 0 to {_LARGEST}"})
    return int(text)
