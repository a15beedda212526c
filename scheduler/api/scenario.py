"""REST's answer to where Pods would land. Nothing is touched, and nothing is kept."""

from typing import Any

import msgspec
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies.api.asked import Asked, asked_of
from policies.api.base import Door
from policies.api.problems import ConflictProblem
from policies.api.throttles import CheckThrottle
from scheduler.decisions.time_limit import TimeLimit
from scheduler.scenario import (
    SECONDS,
    Rules,
    Scenario,
    ScenarioError,
    connect,
    live_snapshot,
    pod_of_cluster,
    rules_of,
    template_of,
    work_out,
)

_LARGEST = 2**31 - 1


class ScenarioSerializer(Asked):
    """What is to be placed, how many of it, and by which rules: a Pod of the cluster or a manifest, one of both."""

    pod = serializers.CharField(max_length=510, required=False, default="", help_text="NAMESPACE/NAME of the cluster's")
    manifest = serializers.DictField(required=False, help_text="of a Pod, a Deployment or the like")
    pods = serializers.IntegerField(min_value=1, max_value=_LARGEST, required=False, default=1, help_text="how many")
    change = serializers.IntegerField(
        min_value=1, max_value=_LARGEST, required=False, help_text="also by what this Change would make live"
    )


class SpreadSerializer(serializers.Serializer[Any]):
    """How evenly nodes are used: the share of a resource that is requested."""

    min = serializers.FloatField()
    max = serializers.FloatField()
    deviation = serializers.FloatField()


class BalanceSerializer(serializers.Serializer[Any]):
    """How evenly nodes are used of what Pods ask for most."""

    cpu = SpreadSerializer()
    memory = SpreadSerializer()


class RefusalSerializer(serializers.Serializer[Any]):
    """On how many nodes a rule refuses a Pod, and in which words."""

    rule = serializers.CharField()
    reason = serializers.CharField(allow_blank=True)
    nodes = serializers.IntegerField()


class StopSerializer(serializers.Serializer[Any]):
    """What keeps the next Pod from a node."""

    pod = serializers.IntegerField(help_text="which one it would be, from 1")
    refusals = RefusalSerializer(many=True)
    sentence = serializers.CharField(help_text="for one of the nodes")


class SideSerializer(serializers.Serializer[Any]):
    """Where they land by one set of rules."""

    ruleSet = serializers.CharField(allow_blank=True, help_text="of the first Pod; empty for the default set")  # noqa: N815
    decided = serializers.DictField(child=serializers.IntegerField(), help_text="how many, by rule set")
    asked = serializers.IntegerField()
    fits = serializers.IntegerField()
    nodes = serializers.DictField(child=serializers.IntegerField(), help_text="how many, by node")
    landed = serializers.ListField(child=serializers.CharField(), help_text="each one's node, in order")
    before = BalanceSerializer()
    after = BalanceSerializer()
    stop = StopSerializer(allow_null=True, help_text="null where all got a node")


class ScenarioAnswerSerializer(serializers.Serializer[Any]):
    """What becomes of the Pods; `drafted` is null where no Change was asked about."""

    says = serializers.ListField(child=serializers.CharField(), help_text="in sentences")
    pods = serializers.IntegerField()
    running = serializers.IntegerField(help_text="of the template's, with a node already")
    snapshotAt = serializers.DateTimeField()  # noqa: N815
    unknown = serializers.ListField(
        child=serializers.CharField(), help_text="kinds that rules read and nobody recorded"
    )
    revision = serializers.IntegerField()
    change = serializers.IntegerField(allow_null=True)
    live = SideSerializer()
    drafted = SideSerializer(allow_null=True)


_EXAMPLE = {"manifest": {"kind": "Pod", "metadata": {"name": "web"}, "spec": {"containers": []}}, "pods": 3}


class ScenarioView(Door):
    """Pods are placed one after another, as Berth's own scheduler would. That takes up to seconds, so nobody asks for it without end."""

    needs = ("policies.view_ruleset", "scheduler.view_decision")
    more_throttles = (CheckThrottle,)

    @extend_schema(
        request=ScenarioSerializer,
        responses=ScenarioAnswerSerializer,
        examples=[OpenApiExample("three Pods of a manifest", value=_EXAMPLE, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Return where Pods would land on the cluster as it is now."""
        asked = asked_of(ScenarioSerializer, request.data)
        if bool(asked["pod"]) == ("manifest" in asked):
            raise ValidationError({"pod": "name a Pod of the cluster, or give a manifest"})
        try:
            rules = rules_of(asked.get("change"))
            return Response(_shown(_found(asked, rules)))
        except ScenarioError as error:
            raise ConflictProblem(str(error)) from error


def _found(asked: dict[str, Any], rules: Rules) -> Scenario:
    template = template_of(pod_of_cluster(connect(), asked["pod"])) if asked["pod"] else template_of(asked["manifest"])
    snapshot = live_snapshot(connect(), rules.reads)
    return work_out(template, asked["pods"], rules, snapshot, limit=TimeLimit(SECONDS))


def _shown(found: Scenario) -> dict[str, Any]:
    sides = {"live": found.live, "drafted": found.drafted}
    return {
        **msgspec.to_builtins(found),
        "says": found.sentences,
        **{name: None if side is None else msgspec.to_builtins(side) for name, side in sides.items()},
        "change": found.change,
    }
