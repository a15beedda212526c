"""REST's answer to which Assignment takes a Pod, and why not those before it."""

from collections.abc import Callable
from typing import Any

import msgspec
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies.api.base import Door
from policies.api.problems import AwayProblem
from policies.api.throttles import CheckThrottle
from policies.engine.which import Which
from policies.models import Assignment
from scheduler.which import AskedError, ClusterAwayError, UnknownPodError, which_of_cluster, which_of_document


class PassedOverSerializer(serializers.Serializer[Any]):
    """An Assignment that doesn't take the Pod, and why."""

    name = serializers.CharField()
    why = serializers.ListField(child=serializers.CharField())


class WhichSerializer(serializers.Serializer[Any]):
    """What applies to a Pod; `assignment` and `rule_set` are empty where no Assignment takes it."""

    pod = serializers.CharField(help_text="namespace/name")
    revision = serializers.IntegerField(help_text="which is live")
    assignment = serializers.CharField(allow_blank=True)
    rule_set = serializers.CharField(allow_blank=True)
    params = serializers.DictField(help_text="those that the Assignment gives")
    because = serializers.ListField(
        child=serializers.CharField(), help_text="why a canary takes it, what is out of force"
    )
    shadows = serializers.ListField(child=serializers.CharField(), help_text="evaluated beside it")
    passed_over = PassedOverSerializer(many=True)
    hidden = serializers.ListField(child=serializers.CharField(), help_text="would take it, and stand behind")


_EXAMPLE = {
    "pod": {"metadata": {"name": "web-1", "namespace": "shop", "labels": {"team": "web"}}},
    "namespace_labels": {"env": "live"},
}
# An Assignment may be called so, too.
_NAME = "which"


class WhichView(Door):
    """Which live Assignment takes a Pod, and why not those before it. Nothing is kept of the Pod."""

    # The door of single Assignments.
    named: Callable[..., HttpResponseBase] | None = None
    needs = ("policies.view_assignment",)
    parameters = {
        "get": [OpenApiParameter("pod", str, required=True, description="NAMESPACE/NAME of a Pod of the cluster")]
    }
    more_throttles = (CheckThrottle,)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Leave to the other door what is about the Assignment that has this path for its own."""
        if self.named is not None and _is_about_assignment(request):
            return self.named(request, name=_NAME)
        return super().dispatch(request, *args, **kwargs)

    @extend_schema(responses=WhichSerializer)
    def get(self, request: Request) -> Response:
        """Ask about a Pod of the cluster, as it is now. Without `pod` it is the Assignment called which, where there is one."""
        try:
            return _answer(which_of_cluster(request.query_params.get("pod", "")))
        except UnknownPodError as error:
            raise NotFound(str(error)) from error
        except ClusterAwayError as error:
            raise AwayProblem(str(error)) from error
        except AskedError as error:
            raise ValidationError({"pod": str(error)}) from error

    @extend_schema(
        request=OpenApiTypes.OBJECT,
        responses=WhichSerializer,
        examples=[OpenApiExample("with the labels of its namespace", value=_EXAMPLE, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Ask about the Pod in the body: the Pod itself, or {"pod": …, "namespace_labels": {…}}. It needn't be in the cluster."""
        given = request.data
        labels: object = {}
        if isinstance(given, dict) and isinstance(given.get("pod"), dict):
            given, labels = given["pod"], given.get("namespace_labels") or {}
        if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
            raise ValidationError({"namespace_labels": "must be an object of texts"})
        try:
            return _answer(which_of_document(given, labels))
        except AskedError as error:
            raise ValidationError({"pod": str(error)}) from error


def _is_about_assignment(request: HttpRequest) -> bool:
    """Return whether a request puts, removes or reads the Assignment of this name, and asks about no Pod."""
    if request.method in {"GET", "HEAD"}:
        return "pod" not in request.GET and Assignment.objects.filter(name=_NAME).exists()
    return request.method in {"PUT", "DELETE"}


def _answer(found: Which) -> Response:
    return Response(msgspec.structs.asdict(found) | {"passed_over": msgspec.to_builtins(found.passed_over)})
