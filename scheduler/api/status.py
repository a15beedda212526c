"""REST over how Berth stands: what is live, who serves it, what waits, what was lost; and documents of what is live."""

from typing import Any

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from policies import publishing
from policies.api.base import Door, by_of
from policies.models import Change, Revision
from policies.publishing import Kind, lifecycle
from scheduler.decisions.missing import absent
from scheduler.models import PendingLook, Process
from scheduler.pending.listing import pending

_MOST_NAMES = 1_000
_DIGITS = 9


class LiveSerializer(serializers.Serializer[Any]):
    """The Revision that is live; number 0 and no digest before the first one."""

    number = serializers.IntegerField()
    digest = serializers.CharField(allow_blank=True)
    made_by = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField(allow_null=True)


class ServingSerializer(serializers.Serializer[Any]):
    """A process, and what it serves."""

    id = serializers.CharField()
    role = serializers.CharField()
    host = serializers.CharField()
    revision = serializers.IntegerField(help_text="0 for none")
    snapshot_age_seconds = serializers.FloatField(allow_null=True)
    heartbeat_at = serializers.DateTimeField()
    is_silent = serializers.BooleanField(help_text="whether it hasn't reported lately")


class PendingSerializer(serializers.Serializer[Any]):
    """Pods without a node, of any scheduler, as the cluster's last list had them."""

    pods = serializers.IntegerField()
    looked_at = serializers.DateTimeField(allow_null=True)
    fault = serializers.CharField(allow_blank=True, help_text="why the cluster couldn't be asked")


class StatusSerializer(serializers.Serializer[Any]):
    """How Berth stands."""

    revision = LiveSerializer()
    processes = ServingSerializer(many=True)
    pending = PendingSerializer()
    open_changes = serializers.IntegerField()
    lost_decisions = serializers.IntegerField(help_text="that were answered, and are in no history")
    paused = serializers.ListField(child=serializers.CharField(), help_text="what is out of force")


class StatusView(Door):
    """What a person looks at first."""

    needs = ("policies.view_revision", "scheduler.view_process", "scheduler.view_decision")

    @extend_schema(responses=StatusSerializer)
    def get(self, request: Request) -> Response:
        """Return what is live, which process serves what, what waits, and what was lost."""
        del request
        now, live = timezone.now(), publishing.current_revision()
        made = Revision.objects.filter(number=live.number).first()
        look = PendingLook.objects.first()
        shown = {
            "revision": {
                "number": live.number,
                "digest": made.digest if made else "",
                "made_by": made.made_by if made else "",
                "created_at": made.created_at if made else None,
            },
            "processes": [
                {
                    "id": each.pk,
                    "role": each.role,
                    "host": each.host,
                    "revision": each.revision,
                    "snapshot_age_seconds": each.snapshot_age_seconds,
                    "heartbeat_at": each.heartbeat_at,
                    "is_silent": now - each.heartbeat_at > Process.STALE_AFTER,
                }
                for each in Process.objects.all()
            ],
            "pending": {
                "pods": pending().count(),
                "looked_at": look.looked_at if look else None,
                "fault": look.fault if look else "",
            },
            "open_changes": Change.objects.filter(state__in=lifecycle.OPEN).count(),
            "lost_decisions": absent().lost,
            "paused": [each.value.target for each in publishing.suspended(now) if not each.has_ended],
        }
        return Response(StatusSerializer(shown).data)


class YAMLRenderer(JSONRenderer):
    """For an answer that is YAML already; problems are JSON, whatever was asked for."""

    media_type = "application/yaml"
    format = "yaml"


class ExportView(Door):
    """What is live, taken along; an AuditEvent says so."""

    needs = ("policies.view_rulesetversion", "policies.view_assignment", "policies.view_priorityclass")
    renderer_classes = [YAMLRenderer, JSONRenderer]
    parameters = {
        "get": [
            OpenApiParameter("kind", str, enum=[str(kind) for kind in Kind], description="only this kind"),
            OpenApiParameter(
                "name",
                {"type": "array", "items": {"type": "string"}},
                description="only these; may come more than once",
            ),
            OpenApiParameter("change", int, description="what this Change makes of things, not what is live"),
        ]
    }

    @extend_schema(responses={(200, "application/yaml"): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponse:
        """Return documents as YAML that `apply` reads: the bytes that `manage.py export` prints."""
        kind, number = request.query_params.get("kind", ""), request.query_params.get("change", "")
        if kind not in {"", *map(str, Kind)}:
            raise ValidationError({"kind": f"is one of {', '.join(map(str, Kind))}"})
        if number and not (number.isascii() and number.isdigit() and len(number) <= _DIGITS):
            raise ValidationError({"change": "is the number of a Change"})
        names = request.query_params.getlist("name")
        if len(names) > _MOST_NAMES:
            raise ValidationError({"name": f"comes {_MOST_NAMES} times at most"})
        try:
            text = publishing.export(by=by_of(request), kind=kind, names=names, change=int(number) if number else None)
        except publishing.PublishingError as error:
            raise NotFound(" ".join(error.messages)) from error
        return HttpResponse(text, content_type="application/yaml; charset=utf-8")
