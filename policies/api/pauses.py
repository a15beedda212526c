"""REST over what is out of force: Pauses and Exemptions, live ones, and the acts that make and end them."""

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies import publishing
from policies.api.asked import Asked, asked_of
from policies.api.base import MAY_MATCH, Door, by_of, expected_of, tags_of
from policies.api.documents import MadeSerializer, made_of, read_whole
from policies.api.pagination import NAMED_PAGES, page_of_named
from policies.api.problems import UnlookedError
from policies.engine import ruleset as engine
from policies.engine.documents import document_of
from policies.publishing import Kind, OvertakenError, Suspended

_MOST_TEXT = 2_000
REASON = OpenApiParameter(
    "reason", str, description='why; kept with the Change. A DELETE takes it as its body, too: {"reason": …}'
)


class SuspendedSerializer(serializers.Serializer[Any]):
    """What is out of force, by whom, and until when."""

    name = serializers.CharField()
    target = serializers.CharField(help_text="everything, Assignment/NAME, RuleSet/NAME or RuleSet/NAME/RULE")
    reason = serializers.CharField()
    by = serializers.CharField()
    at = serializers.DateTimeField()
    revision = serializers.IntegerField()
    ends_at = serializers.DateTimeField(allow_null=True)
    has_ended = serializers.BooleanField(help_text="its end is past: it has nothing out of force any more")
    digest = serializers.CharField(help_text="of its content, for the If-Match of what is to take its place")
    document = serializers.JSONField()


class SuspendedPageSerializer(serializers.Serializer[Any]):
    """A page of them, by name."""

    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = SuspendedSerializer(many=True)


class PauseSerializer(Asked):
    """What is to be out of force, why, and until when."""

    target = serializers.CharField(
        max_length=800, help_text="everything, Assignment/NAME, RuleSet/NAME or RuleSet/NAME/RULE"
    )
    reason = serializers.CharField(max_length=_MOST_TEXT)
    until = serializers.CharField(
        max_length=64,
        required=False,
        allow_blank=True,
        default="",
        help_text="RFC 3339; without it until it is resumed",
    )


class ReasonSerializer(Asked):
    """Why something is ended."""

    reason = serializers.CharField(max_length=_MOST_TEXT, required=False, allow_blank=True)


class SuspensionsView(Door):
    """What both lists have alike."""

    needs = ("policies.view_revision",)
    parameters = {"get": NAMED_PAGES}
    of: type[engine.Pause | engine.Exemption] = engine.Pause

    def _page(self, request: Request) -> Response:
        found = [each for each in publishing.suspended(timezone.now()) if isinstance(each.value, self.of)]
        rows = {each.value.name: each for each in found}
        return Response(page_of_named(rows, request, _shown))


class PausesView(SuspensionsView):
    """Pauses."""

    @extend_schema(responses=SuspendedPageSerializer)
    def get(self, request: Request) -> Response:
        """Return the live Pauses, by name."""
        return self._page(request)

    @extend_schema(
        request=PauseSerializer,
        responses={201: MadeSerializer},
        examples=[
            OpenApiExample(
                "a rule, for an hour or so",
                value={"target": "RuleSet/web/team", "reason": "INC-1", "until": "2126-01-31T22:00:00Z"},
                request_only=True,
            )
        ],
    )
    def post(self, request: Request) -> Response:
        """Take something out of force: at once, or sent to review where that is set so."""
        asked = asked_of(PauseSerializer, request.data)
        made = publishing.pause(**asked, by=by_of(request))
        return Response(made_of(made), status=status.HTTP_201_CREATED)


class PauseView(Door):
    """One Pause, by what it is about."""

    needs = ("policies.view_revision",)
    parameters = {"delete": [REASON]}

    @extend_schema(request=None, responses={200: MadeSerializer})
    def delete(self, request: Request, target: str) -> Response:
        """Put it back in force."""
        if not any(each.target == target for each in publishing.current_revision().pauses):
            message = f"{target} isn't paused"
            raise NotFound(message)
        return Response(made_of(publishing.resume(target=target, by=by_of(request), reason=reason_of(request))))


class ExemptionsView(SuspensionsView):
    """Exemptions."""

    of = engine.Exemption
    parameters = {"get": NAMED_PAGES, "post": [MAY_MATCH]}

    @extend_schema(responses=SuspendedPageSerializer)
    def get(self, request: Request) -> Response:
        """Return the live Exemptions, by name."""
        return self._page(request)

    @extend_schema(request=OpenApiTypes.OBJECT, responses={201: MadeSerializer})
    def post(self, request: Request) -> Response:
        """Exempt some Pods from a rule, by a whole document; the Exemption of its name that If-Match is for becomes this one."""
        value = read_whole(request.data, Kind.EXEMPTION)
        there, looked = publishing.digest_of_exemption(value.name), bool(tags_of(request))
        replaces = expected_of(request, there) if looked else ""
        try:
            made = publishing.exempt(
                name=value.name, spec=document_of(value)["spec"], by=by_of(request), replaces=replaces
            )
        except OvertakenError as error:
            if looked:
                raise
            raise UnlookedError from error
        return Response(made_of(made), status=status.HTTP_201_CREATED)


class ExemptionView(Door):
    """One Exemption."""

    needs = ("policies.view_revision",)
    parameters = {"delete": [REASON]}

    @extend_schema(request=None, responses={200: MadeSerializer})
    def delete(self, request: Request, name: str) -> Response:
        """End it: the rule holds for these Pods again."""
        if not any(each.name == name for each in publishing.current_revision().exemptions):
            message = f"there is no Exemption {name}"
            raise NotFound(message)
        return Response(made_of(publishing.end_exemption(name=name, by=by_of(request), reason=reason_of(request))))


def reason_of(request: Request) -> str:
    """Return why something is done: the URL says it, or the body of a DELETE, which holds nothing else.

    Raises:
        ValidationError: it is too long, both say it, or the body says more.
    """
    in_url = {"reason": request.query_params["reason"]} if "reason" in request.query_params else {}
    in_body = asked_of(ReasonSerializer, request.data) if request.method == "DELETE" else {}
    if in_url and in_body:
        raise ValidationError({"reason": "stands in the URL and in the body: give it once"})
    return str(asked_of(ReasonSerializer, in_url or in_body).get("reason", ""))


def _shown(each: Suspended) -> dict[str, Any]:
    made = each.value
    shown = {
        "name": made.name,
        "target": made.target,
        "reason": made.reason,
        "by": each.by,
        "at": each.at,
        "revision": each.revision,
        "ends_at": each.ends_at,
        "has_ended": each.has_ended,
        "digest": publishing.digest_of_shown(made),
        "document": document_of(made),
    }
    return dict(SuspendedSerializer(shown).data)
