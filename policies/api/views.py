"""REST endpoints that read rule sets, Assignments, PriorityClasses, Revisions and AuditEvents, and that check a document."""

from typing import Any

import msgspec
from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from policies import checking, publishing
from policies.api.asked import asked_of
from policies.api.base import MAY_MATCH, Door, ReadOnlyViewSet, by_of, tags_of
from policies.api.change_shapes import ReasonSerializer
from policies.api.documents import MadeSerializer, made_of
from policies.api.pagination import EventPages
from policies.api.serializers import (
    AssignmentDetailSerializer,
    AssignmentSerializer,
    AuditEventSerializer,
    KnownOfAssignments,
    KnownOfPriorityClasses,
    PriorityClassSerializer,
    RevisionDetailSerializer,
    RevisionSerializer,
    RuleSetDetailSerializer,
    RuleSetSerializer,
    ValidationSerializer,
)
from policies.api.throttles import CheckThrottle
from policies.models import Assignment, AuditEvent, PriorityClass, Revision, RuleSet


class RuleSetViewSet(ReadOnlyViewSet):
    """Rule sets, by name."""

    queryset = RuleSet.objects.all()
    serializer_class = RuleSetSerializer
    detail_serializer_class = RuleSetDetailSerializer
    lookup_field = "name"

    def get_queryset(self) -> QuerySet[RuleSet]:
        """Prefetch the versions, with their rules if their documents are shown."""
        with_rules = ("versions__rules", "versions__rule_set")
        return super().get_queryset().prefetch_related(*(("versions",) if self.action == "list" else with_rules))


class AssignmentViewSet(ReadOnlyViewSet):
    """Assignments in the order in which they are evaluated."""

    queryset = Assignment.objects.select_related("rule_set")
    serializer_class = AssignmentSerializer
    detail_serializer_class = AssignmentDetailSerializer
    lookup_field = "name"

    def get_serializer_context(self) -> dict[str, Any]:
        """Add the live Assignments."""
        return {**super().get_serializer_context(), "known": KnownOfAssignments()}


class PriorityClassViewSet(ReadOnlyViewSet):
    """PriorityClasses, the highest value first, each with its state in the cluster."""

    queryset = PriorityClass.objects.all()
    serializer_class = PriorityClassSerializer
    lookup_field = "name"

    def get_serializer_context(self) -> dict[str, Any]:
        """Add the state of all PriorityClasses."""
        return {**super().get_serializer_context(), "known": KnownOfPriorityClasses()}


class RevisionViewSet(ReadOnlyViewSet):
    """Revisions, newest first."""

    queryset = Revision.objects.all()
    serializer_class = RevisionSerializer
    detail_serializer_class = RevisionDetailSerializer
    lookup_field = "number"
    lookup_value_converter = "int"
    parameters = {"rollback": [MAY_MATCH]}

    @extend_schema(request=ReasonSerializer, responses=MadeSerializer)
    @action(detail=True, methods=["post"])
    def rollback(self, request: Request, number: int) -> Response:
        """Roll back: make the next Revision with the content of this one, or a Change in review if approvals are required.

        If-Match may have the digest of the Revision that is live.
        """
        reason, seen = asked_of(ReasonSerializer, request.data)["reason"], tags_of(request)
        made = publishing.bring_back(
            to_number=self.get_object().number, by=by_of(request), reason=reason, looked_at=seen
        )
        return Response(made_of(made))


class AuditEventViewSet(ReadOnlyViewSet):
    """AuditEvents, newest first, with the filters of the admin's list. Unknown parameters are refused."""

    queryset = AuditEvent.objects.all()
    serializer_class = AuditEventSerializer
    pagination_class = EventPages
    lookup_value_converter = "uuid"


class ValidateView(Door):
    """Check a document of any kind, without storing it.

    Callers need the permission to view rule sets, which each role has. A check takes up to seconds, so calls are throttled.
    """

    more_throttles = (CheckThrottle,)

    @extend_schema(request=OpenApiTypes.OBJECT, responses=ValidationSerializer)
    def post(self, request: Request) -> Response:
        """Return every fault of the document in the body."""
        faults = checking.faults_of(request.data)
        return Response({"ok": not faults, "faults": [msgspec.to_builtins(fault) for fault in faults]})
