"""REST endpoints for Berth's status (live Revision, processes, Pending Pods, lost Decisions), and for the live documents."""

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
    """The live Revision; before the first one, number 0 and no digest."""

    number = serializers.IntegerField()
    digest = serializers.CharField(allow_blank=True)
    made_by = serializers.CharField(allow_blank=True)
    created_at = serializers.DateTimeField(allow_null=True)


class ServingSerializer(serializers.Serializer[Any]):
    """A process, and the Revision that it serves."""

    id = serializers.CharField()
    role = serializers.CharField()
    host = serializers.CharField()
    revision = serializers.IntegerField(help_text="the Revision that it serves; 0 for none")
    snapshot_age_seconds = serializers.FloatField(allow_null=True)
    heartbeat_at = serializers.DateTimeField()
    is_silent = serializers.BooleanField(help_text="true if it has sent no heartbeat lately")


class PendingSerializer(serializers.Serializer[Any]):
    """Pods without a node, of all schedulers, when a worker last listed them."""

    pods = serializers.IntegerField()
    looked_at = serializers.DateTimeField(allow_null=True)
    fault = serializers.CharField(allow_blank=True, help_text="why the cluster couldn't be read")


class StatusSerializer(serializers.Serializer[Any]):
    """Berth's status."""

    revision = LiveSerializer()
    processes = ServingSerializer(many=True)
    pending = PendingSerializer()
    open_changes = serializers.IntegerField()
    lost_decisions = serializers.IntegerField(help_text="Decisions that were answered, but aren't in the history")
    paused = serializers.ListField(child=serializers.CharField(), help_text="the targets of Pauses")


class StatusView(Door):
    """An overview of Berth's status."""

    needs = ("policies.view_revision", "scheduler.view_process", "scheduler.view_decision")

    @extend_schema(responses=StatusSerializer)
    def get(self, request: Request) -> Response:
        """Return the live Revision, each process with its Revision, Pending Pods, and the number of lost Decisions."""
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
    """For responses that are YAML already; problem details are always JSON."""

    media_type = "application/yaml"
    format = "yaml"


class ExportView(Door):
    """Exports live documents; an AuditEvent records each export."""

    needs = ("policies.view_rulesetversion", "policies.view_assignment", "policies.view_priorityclass")
    renderer_classes = [YAMLRenderer, JSONRenderer]
    may_be_unreadable = {"get"}
    parameters = {
        "get": [
            OpenApiParameter("kind", str, enum=[str(kind) for kind in Kind], description="Export only this kind."),
            OpenApiParameter(
                "name",
                {"type": "array", "items": {"type": "string"}},
                description="Export only these names; may be repeated.",
            ),
            OpenApiParameter(
                "change", int, description="Export what this Change would make live, not what is live now."
            ),
        ]
    }

    @extend_schema(responses={(200, "application/yaml"): OpenApiTypes.STR})
    def get(self, request: Request) -> HttpResponse:
        """Return documents as YAML that `apply` reads: the same bytes as `manage.py export` prints."""
        kind, number = request.query_params.get("kind", ""), request.query_params.get("change", "")
        if kind not in {"", *map(str, Kind)}:
            raise ValidationError({"kind": f"must be one of {', '.join(map(str, Kind))}"})
        if number and not (number.isascii() and number.isdigit() and len(number) <= _DIGITS):
            raise ValidationError({"change": "must be the number of a Change"})
        names = request.query_params.getlist("name")
        if len(names) > _MOST_NAMES:
            raise ValidationError({"name": f"may be given {_MOST_NAMES} times at most"})
        try:
            text = publishing.export(
                by=by_of(request),
                kind=kind,
                names=names,
                change=int(number) if number else None,
                is_handed_out=request.method != "HEAD",
            )
        except publishing.AbsentError as error:
            raise NotFound(" ".join(error.messages)) from error
        return HttpResponse(text, content_type="application/yaml; charset=utf-8")
