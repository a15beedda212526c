"""REST over what happened to Pods: Decisions, and what shadows would have done; over what waits for Berth's own scheduler."""

from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from policies.api.base import ReadOnlyViewSet
from scheduler.api.pagination import DecisionPages
from scheduler.decisions.reading import body_of
from scheduler.models import BinderState, Decision, ShadowCount

_SHADOW_TEXTS = ("assignment", "rule_set", "divergence")


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


class ShadowViewSet(ReadOnlyViewSet):
    """What shadows would have done, counted by Assignment, Revision, rule set version and verb; filtered by equality."""

    parameters = {"list": [OpenApiParameter(name, str) for name in _SHADOW_TEXTS]}
    queryset = ShadowCount.objects.filter(number__gt=0).order_by("assignment", "revision", "pk")
    serializer_class = ShadowCountSerializer

    def get_queryset(self) -> QuerySet[ShadowCount]:
        """Filter by the query's parameters."""
        query = self.request.query_params
        return super().get_queryset().filter(**{name: query[name] for name in _SHADOW_TEXTS if name in query})


class DecisionViewSet(ReadOnlyViewSet):
    """Decisions, newest first, narrowed as the admin's list is. What isn't a filter is refused."""

    queryset = Decision.objects.all()
    serializer_class = DecisionSerializer
    detail_serializer_class = DecisionDetailSerializer
    pagination_class = DecisionPages
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Decision]:
        """Read from where the history is read."""
        return super().get_queryset().using(settings.HISTORY_DATABASE)
