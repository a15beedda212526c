"""REST endpoints for canary Pods, with which doctor checks that kube-scheduler calls Berth."""

import re
from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema
from kombu.exceptions import OperationalError
from rest_framework import serializers, status
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from policies import publishing
from policies.api.asked import Asked, asked_of
from policies.api.base import ReadOnlyViewSet, by_of
from policies.api.problems import AwayProblem, ConflictProblem
from scheduler.doctor.runs import LONGEST, CanaryBusyError, ask, give_up
from scheduler.models import CanaryRun
from scheduler.tasks import run_canary

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
_MAX_NAME = 253


class CanarySerializer(serializers.ModelSerializer[CanaryRun]):
    """A requested canary, and its report."""

    report = serializers.JSONField(read_only=True, help_text="the report, as `doctor wiring --output json` prints it")

    class Meta:
        model = CanaryRun
        fields = "__all__"


class NewCanarySerializer(Asked):
    """The namespace and the schedulerName of a new canary."""

    namespace = serializers.RegexField(_NAME, max_length=_MAX_NAME, default="default", required=False)
    scheduler_name = serializers.RegexField(_NAME, max_length=_MAX_NAME, default="default-scheduler", required=False)


class CanaryViewSet(ReadOnlyViewSet):
    """Canary Pods, newest first."""

    queryset = CanaryRun.objects.all()
    serializer_class = CanarySerializer
    lookup_value_converter = "uuid"

    @extend_schema(
        request=NewCanarySerializer,
        responses={202: CanarySerializer},
        examples=[OpenApiExample("in default", value={"namespace": "default"}, request_only=True)],
    )
    def create(self, request: Request) -> Response:
        """Request a canary Pod: a worker creates it, follows it, and deletes it again."""
        by = by_of(request)
        if not publishing.may(by, "scheduler.run_canary"):
            message = f"{publishing.name_of(by)} may not run a canary Pod; an Operator may."
            raise PermissionDenied(message)
        asked: dict[str, Any] = asked_of(NewCanarySerializer, request.data)
        if not publishing.reach_of(by).has_namespaces([asked["namespace"]]):
            message = f"Out of reach of {publishing.via_of(by)}: namespace {asked['namespace']}."
            raise PermissionDenied(message)
        try:
            row = ask(by=by, **asked)
        except CanaryBusyError as error:
            message = "A canary is running: wait for its result first."
            raise ConflictProblem(message) from error
        try:
            run_canary.apply_async(kwargs={"number": str(row.pk)}, retry=False, expires=LONGEST.total_seconds())
        except OperationalError as error:
            give_up(row)
            message = (
                "The canary couldn't be requested, because Redis can't be reached. Bring Redis back, then try again."
            )
            raise AwayProblem(message) from error
        return Response(CanarySerializer(row).data, status=status.HTTP_202_ACCEPTED)
