"""REST endpoint for which Assignment matches a Pod, and why earlier ones don't."""

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

from policies.api.asked import check_members
from policies.api.base import Door
from policies.api.problems import AwayProblem
from policies.api.throttles import CheckThrottle
from policies.engine.which import Which
from policies.models import Assignment
from scheduler.which import AskedError, ClusterAwayError, UnknownPodError, which_of_cluster, which_of_document


class PassedOverSerializer(serializers.Serializer[Any]):
    """An Assignment that doesn't match the Pod, and why."""

    name = serializers.CharField()
    why = serializers.ListField(child=serializers.CharField())


class WhichSerializer(serializers.Serializer[Any]):
    """What applies to a Pod; `assignment` and `rule_set` are empty if no Assignment matches."""

    pod = serializers.CharField(help_text="namespace/name")
    revision = serializers.IntegerField(help_text="the live Revision")
    assignment = serializers.CharField(allow_blank=True)
    rule_set = serializers.CharField(allow_blank=True)
    params = serializers.DictField(help_text="the params that the Assignment sets")
    because = serializers.ListField(
        child=serializers.CharField(), help_text="why a canary applies, and which rules are paused or exempted"
    )
    shadows = serializers.ListField(
        child=serializers.CharField(), help_text="Assignments that are also evaluated, as shadows"
    )
    passed_over = PassedOverSerializer(many=True)
    hidden = serializers.ListField(
        child=serializers.CharField(), help_text="Assignments that match the Pod too, but come later in the order"
    )


_EXAMPLE = {
    "pod": {"metadata": {"name": "web-1", "namespace": "shop", "labels": {"team": "web"}}},
    "namespace_labels": {"env": "live"},
}
# Those of a body that isn't the Pod itself.
_MEMBERS = ("pod", "namespace_labels")
# An Assignment may have this name, too.
_NAME = "which"


class WhichView(Door):
    """Which live Assignment matches a Pod, and why earlier ones don't. The Pod isn't stored."""

    # The view of single Assignments.
    named: Callable[..., HttpResponseBase] | None = None
    needs = ("policies.view_assignment",)
    parameters = {
        "get": [OpenApiParameter("pod", str, required=True, description="NAMESPACE/NAME of a Pod in the cluster")]
    }
    more_throttles = (CheckThrottle,)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Pass requests about the Assignment with this path to the view of Assignments."""
        if self.named is not None and _is_about_assignment(request):
            return self.named(request, name=_NAME)
        return super().dispatch(request, *args, **kwargs)

    @extend_schema(responses=WhichSerializer)
    def get(self, request: Request) -> Response:
        """Evaluate a Pod in the cluster, as it is now. Without `pod`, return the Assignment named which, if there is one."""
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
        """Evaluate the Pod in the body: the Pod itself, or {"pod": …, "namespace_labels": {…}}. It needn't be in the cluster."""
        pod, labels = _pod_and_labels(request.data)
        try:
            return _answer(which_of_document(pod, labels))
        except AskedError as error:
            raise ValidationError({"pod": str(error)}) from error


def _pod_and_labels(body: Any) -> tuple[Any, dict[str, str]]:
    """Return the Pod of a body, and the labels of its namespace.

    Raises:
        ValidationError: a member beside `pod` is unknown, or the labels aren't strings.
    """
    if not isinstance(body, dict) or "pod" not in body:
        return body, {}
    check_members(body, _MEMBERS)
    labels = body.get("namespace_labels") or {}
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise ValidationError({"namespace_labels": "must be an object whose values are strings"})
    return body["pod"], labels


def _is_about_assignment(request: HttpRequest) -> bool:
    """Return whether a request puts, removes or reads the Assignment of this name, and isn't about a Pod."""
    if request.method in {"GET", "HEAD"}:
        return "pod" not in request.GET and Assignment.objects.filter(name=_NAME).exists()
    return request.method in {"PUT", "DELETE"}


def _answer(found: Which) -> Response:
    return Response(msgspec.structs.asdict(found) | {"passed_over": msgspec.to_builtins(found.passed_over)})
