"""REST endpoints for live Pauses and Exemptions, and the acts that create and end them."""

import re
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
from policies.api.base import MAY_MATCH, Door, by_of, tags_of
from policies.api.documents import MadeSerializer, made_of, read_whole
from policies.api.pagination import NAMED_PAGES, page_of_named
from policies.api.problems import FaultsError, UnlookedError
from policies.engine import ruleset as engine
from policies.engine.documents import document_of
from policies.engine.errors import Fault
from policies.publishing import Kind, OvertakenError, PastError, PublishingError, Suspended

_MOST_TEXT = 2_000
# A fault in the document that is made of the body: after the document's name, the body's member.
_OF_MADE = re.compile(r"(?:[a-z0-9-]+: )?spec\.(target|reason|until)")
REASON = OpenApiParameter(
    "reason",
    str,
    description='the reason, stored with the Change. A DELETE may also have it in its body: {"reason": …}',
)


class SuspendedSerializer(serializers.Serializer[Any]):
    """A Pause or an Exemption: its target, its author and its end."""

    name = serializers.CharField()
    target = serializers.CharField(help_text="everything, Assignment/NAME, RuleSet/NAME or RuleSet/NAME/RULE")
    reason = serializers.CharField()
    by = serializers.CharField()
    at = serializers.DateTimeField()
    revision = serializers.IntegerField()
    ends_at = serializers.DateTimeField(allow_null=True)
    has_ended = serializers.BooleanField(help_text="true if its end has passed: it no longer has an effect")
    digest = serializers.CharField(
        help_text="digest of its content, for the If-Match of a request that replaces or ends it"
    )
    document = serializers.JSONField()


class SuspendedPageSerializer(serializers.Serializer[Any]):
    """A page of Pauses or Exemptions, ordered by name."""

    next = serializers.URLField(allow_null=True)
    previous = serializers.URLField(allow_null=True)
    results = SuspendedSerializer(many=True)


class PauseSerializer(Asked):
    """A new Pause: its target, its reason and its end."""

    target = serializers.CharField(
        max_length=800, help_text="everything, Assignment/NAME, RuleSet/NAME or RuleSet/NAME/RULE"
    )
    reason = serializers.CharField(max_length=_MOST_TEXT)
    # Blank, as from an unset variable, it would be a Pause without an end.
    until = serializers.CharField(
        max_length=64,
        required=False,
        default="",
        help_text="the end in RFC 3339; default: until it is resumed",
    )


class ReasonSerializer(Asked):
    """The reason for ending it."""

    reason = serializers.CharField(max_length=_MOST_TEXT, required=False, allow_blank=True)


class SuspensionsView(Door):
    """The base of the lists of Pauses and of Exemptions."""

    needs = ("policies.view_revision",)
    parameters = {"get": NAMED_PAGES}
    of: type[engine.Pause | engine.Exemption] = engine.Pause

    def _page(self, request: Request) -> Response:
        found = [each for each in publishing.suspended(timezone.now()) if isinstance(each.value, self.of)]
        rows = {each.value.name: each for each in found}
        return Response(page_of_named(rows, request, _shown))


class PausesView(SuspensionsView):
    """Pauses."""

    parameters = {"get": NAMED_PAGES, "post": [MAY_MATCH]}

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
        """Pause a target: at once, or after review where Pauses need it. If-Match may have the digest of the Pause that this replaces."""
        asked = asked_of(PauseSerializer, request.data)
        known = publishing.pause_of(asked["target"], publishing.current_revision())
        try:
            made = publishing.pause(**asked, by=by_of(request), replaces=_seen(request, *([known] if known else [])))
        except PastError as error:
            raise _faulty(error, "until") from error
        except PublishingError as error:
            if faults := _faults_of_members(error):
                raise FaultsError(faults, "\n".join(map(str, faults))) from error
            raise
        return Response(made_of(made), status=status.HTTP_201_CREATED)


class PauseView(Door):
    """One Pause, by its target."""

    needs = ("policies.view_revision",)
    parameters = {"delete": [REASON, MAY_MATCH]}

    @extend_schema(request=None, responses={200: MadeSerializer})
    def delete(self, request: Request, target: str) -> Response:
        """End the Pause, at once, or after review where that needs approvals or the gate; if files made several of this target, all of them. If-Match may have its digest, or that of one of them."""
        known = [each for each in publishing.current_revision().pauses if each.target == target]
        if not known:
            message = f"{target} isn't paused"
            raise NotFound(message)
        reason, seen = reason_of(request), _seen(request, *known)
        return Response(made_of(publishing.resume(target=target, by=by_of(request), reason=reason, looked_at=seen)))


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
        """Exempt some Pods from a rule, by a whole document. With If-Match, it replaces the Exemption of this name."""
        value = read_whole(request.data, Kind.EXEMPTION)
        live = publishing.current_revision()
        replaces = _seen(request, *(each for each in live.exemptions if each.name == value.name))
        try:
            made = publishing.exempt(
                name=value.name, spec=document_of(value)["spec"], by=by_of(request), replaces=replaces
            )
        except OvertakenError as error:
            if replaces:
                raise
            raise UnlookedError from error
        except PastError as error:
            raise _faulty(error, "spec.until") from error
        return Response(made_of(made), status=status.HTTP_201_CREATED)


class ExemptionView(Door):
    """One Exemption."""

    needs = ("policies.view_revision",)
    parameters = {"delete": [REASON, MAY_MATCH]}

    @extend_schema(request=None, responses={200: MadeSerializer})
    def delete(self, request: Request, name: str) -> Response:
        """End the Exemption: the rule applies to these Pods again. If-Match may have its digest."""
        known = next((each for each in publishing.current_revision().exemptions if each.name == name), None)
        if known is None:
            message = f"there is no Exemption {name}"
            raise NotFound(message)
        reason, seen = reason_of(request), _seen(request, known)
        made = publishing.end_exemption(name=name, by=by_of(request), reason=reason, looked_at=seen)
        return Response(made_of(made))


def _seen(request: Request, *known: engine.Pause | engine.Exemption) -> str:
    """Return the digest that the caller looked at, which is compared under the lock; empty if the request names none."""
    if not (named := tags_of(request)):
        return ""
    return next((digest for digest in map(publishing.digest_of_shown, known) if digest in named), named[0])


def reason_of(request: Request) -> str:
    """Return the reason: from the URL, or from the body of a DELETE, which has no other member.

    Raises:
        ValidationError: it is too long, both have it, or the body has other members.
    """
    in_url = {"reason": request.query_params["reason"]} if "reason" in request.query_params else {}
    in_body = asked_of(ReasonSerializer, request.data) if request.method == "DELETE" else {}
    if in_url and in_body:
        raise ValidationError({"reason": "is in the URL and in the body: give it once"})
    return str(asked_of(ReasonSerializer, in_url or in_body).get("reason", ""))


def _faulty(error: PublishingError, path: str) -> FaultsError:
    """Return a refusal as a fault at a path of the body."""
    faults = [Fault(path, said) for said in error.messages]
    return FaultsError(faults, "\n".join(map(str, faults)))


def _faults_of_members(error: PublishingError) -> list[Fault]:
    """Return the faults with the members of the body as paths; none if a fault is about something else."""
    found = [(_OF_MADE.fullmatch(each.path), each.message) for each in error.faults]
    faults = [Fault(of_made[1], said) for of_made, said in found if of_made]
    return faults if len(faults) == len(found) else []


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
