"""REST endpoint that computes where Pods would be placed, without changing or storing anything."""

from typing import Any

import msgspec
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies import publishing
from policies.api.asked import Asked, asked_of
from policies.api.base import Door, by_of
from policies.api.problems import AwayProblem, ConflictProblem
from policies.api.throttles import CheckThrottle
from scheduler.backtest.runs import RUN_BACKTEST
from scheduler.cluster.client import connect
from scheduler.decisions.time_limit import TimeLimit
from scheduler.scenario import (
    SECONDS,
    ClusterAwayError,
    Scenario,
    ScenarioError,
    live_snapshot,
    pod_of_cluster,
    rules_of,
    template_of,
    work_out,
)

_LARGEST = 2**31 - 1


class ScenarioSerializer(Asked):
    """The Pods to place, their number, and the rules: either a Pod in the cluster or a manifest."""

    pod = serializers.CharField(
        max_length=510, required=False, default="", help_text="NAMESPACE/NAME of a Pod in the cluster"
    )
    manifest = serializers.DictField(required=False, help_text="manifest of a Pod, a Deployment or the like")
    pods = serializers.IntegerField(
        min_value=1, max_value=_LARGEST, required=False, default=1, help_text="the number of Pods"
    )
    change = serializers.IntegerField(
        min_value=1,
        max_value=_LARGEST,
        required=False,
        help_text="also evaluate the rules that this Change would make live",
    )


class SpreadSerializer(serializers.Serializer[Any]):
    """How evenly nodes are used: the requested share of a resource."""

    min = serializers.FloatField()
    max = serializers.FloatField()
    deviation = serializers.FloatField()


class BalanceSerializer(serializers.Serializer[Any]):
    """How evenly the nodes' CPU and memory are used."""

    cpu = SpreadSerializer()
    memory = SpreadSerializer()


class RefusalSerializer(serializers.Serializer[Any]):
    """A rule's refusals: the reason, and the number of nodes."""

    rule = serializers.CharField()
    reason = serializers.CharField(allow_blank=True)
    nodes = serializers.IntegerField()


class StopSerializer(serializers.Serializer[Any]):
    """Why no node accepts the next Pod."""

    pod = serializers.IntegerField(help_text="the Pod's number, from 1")
    refusals = RefusalSerializer(many=True)
    sentence = serializers.CharField(help_text="the reason on one of the nodes, as a sentence")


class SideSerializer(serializers.Serializer[Any]):
    """Where the Pods would be placed by one set of rules."""

    ruleSet = serializers.CharField(allow_blank=True, help_text="the first Pod's rule set; empty for the default set")  # noqa: N815
    decided = serializers.DictField(child=serializers.IntegerField(), help_text="number of Pods by rule set")
    asked = serializers.IntegerField()
    fits = serializers.IntegerField()
    nodes = serializers.DictField(child=serializers.IntegerField(), help_text="number of Pods by node")
    landed = serializers.ListField(child=serializers.CharField(), help_text="the node of each Pod, in order")
    before = BalanceSerializer()
    after = BalanceSerializer()
    stop = StopSerializer(allow_null=True, help_text="null if all Pods got a node")


class ScenarioAnswerSerializer(serializers.Serializer[Any]):
    """The result of a scenario; `drafted` is null if the request named no Change."""

    says = serializers.ListField(child=serializers.CharField(), help_text="the result in sentences")
    pods = serializers.IntegerField()
    running = serializers.IntegerField(help_text="Pods of the template that have a node already")
    snapshotAt = serializers.DateTimeField()  # noqa: N815
    unknown = serializers.ListField(
        child=serializers.CharField(), help_text="kinds that rules read, but that weren't recorded"
    )
    revision = serializers.IntegerField()
    change = serializers.IntegerField(allow_null=True)
    live = SideSerializer()
    drafted = SideSerializer(allow_null=True)


_EXAMPLE = {"manifest": {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": []}}, "pods": 3}


class ScenarioView(Door):
    """Places Pods one after another, as Berth's own scheduler would. That takes up to seconds, so calls are throttled."""

    needs = ("policies.view_ruleset", "scheduler.view_decision")
    more_throttles = (CheckThrottle,)

    @extend_schema(
        request=ScenarioSerializer,
        responses=ScenarioAnswerSerializer,
        examples=[OpenApiExample("three Pods of a manifest", value=_EXAMPLE, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Return where Pods would be placed on the cluster as it is now."""
        by = by_of(request)
        if not publishing.may(by, RUN_BACKTEST):
            message = f"{publishing.name_of(by)} may not start a scenario; an Operator may."
            raise PermissionDenied(message)
        asked = asked_of(ScenarioSerializer, request.data)
        if bool(asked["pod"]) == ("manifest" in asked):
            raise ValidationError({"pod": "name a Pod in the cluster, or give a manifest"})
        try:
            found = _found(asked)
        except ClusterAwayError as error:
            raise AwayProblem(str(error)) from error
        except ScenarioError as error:
            raise ConflictProblem(str(error)) from error
        return Response({**msgspec.to_builtins(found), "says": found.sentences})


def _found(asked: dict[str, Any]) -> Scenario:
    rules = rules_of(asked.get("change"))
    template = template_of(pod_of_cluster(connect(), asked["pod"])) if asked["pod"] else template_of(asked["manifest"])
    snapshot = live_snapshot(connect(), rules.reads)
    return work_out(template, asked["pods"], rules, snapshot, limit=TimeLimit(SECONDS))
