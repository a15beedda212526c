"""The base of REST's views: the caller, the URL's parameters, conditional requests by ETag, and selected fields."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

from django.contrib.auth.models import User
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.permissions import BasePermission, DjangoModelPermissions
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.throttling import BaseThrottle
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from policies.api.problems import UnlookedError
from policies.publishing import By, OnBehalf
from policies.scopes import READ

FIELDS = OpenApiParameter(
    "fields", str, description="Return only these members of each object, separated by commas, such as `name,digest`."
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag of the state that you looked at. Without it the answer is 428; if the state has changed since, 412.",
)
# For acts that don't require a digest: if one is sent, it is compared.
MAY_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="Optional: the ETag of the state that you looked at. For the live Revision, a Pause or an Exemption send its `digest`, in double quotes. `*` compares nothing. If the state has changed since, the answer is 412. If this is no ETag, it is 428.",
)
# For a PUT that creates an object. Other values add nothing to If-Match.
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    str,
    OpenApiParameter.HEADER,
    enum=["*"],
    description="`*`, instead of If-Match: create the object; if one of this name is live, the answer is 412.",
)
_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def by_of(request: Request) -> By:
    """Return the caller: the session's account, or the token that acts for an account. Every view uses this function."""
    if isinstance(request.auth, OnBehalf):
        return request.auth
    return cast("User", request.user)


def expected_of(request: Request, digest: str) -> str:
    """Return the digest that the caller looked at: the current digest if If-Match names it, else the first one in If-Match.

    Raises:
        UnlookedError: If-Match names no digest.
    """
    if found := tags_of(request):
        return digest if digest in found else found[0]
    raise UnlookedError


def tags_of(request: Request) -> list[str]:
    """Return the digests that If-Match names. `*` doesn't name a state.

    Raises:
        UnlookedError: it names no digest, as without quotes or from an unset variable: whoever sends that wants it compared.
    """
    sent = request.headers.get("If-Match", "").strip()
    tags = [str(found) for found in _TAG.findall(sent) if found]
    if not tags and sent not in {"", "*"}:
        raise UnlookedError
    return tags


def digest_of(tag: str) -> str:
    """Return the digest of an ETag. In a compressed answer the ETag is weak: W/"…"."""
    return tag.removeprefix("W/").strip('"')


def is_for_new(request: Request) -> bool:
    """Return whether the object has to be new: `If-None-Match: *`."""
    return request.headers.get("If-None-Match", "").strip() == "*"


def tagged(response: Response, digest: str) -> Response:
    """Return a response with the digest of its object as ETag, if there is a digest."""
    if digest:
        response["ETag"] = f'"{digest}"'
    return response


def _lacks_reading(request: Request) -> str | None:
    """Return why a token may not read: it lacks the scope that every call needs. None for other tokens, and for sessions."""
    if not isinstance(request.auth, OnBehalf) or READ in request.auth.scopes:
        return None
    return f"The {request.auth.via} lacks the scope read, which each call needs in addition to others, because the answer shows the result."


class MayView(DjangoModelPermissions):
    """Permits callers who may view the model; the functions of `publishing` check further permissions."""

    message: str | None = None

    perms_map = {
        method: [] if method == "OPTIONS" else ["%(app_label)s.view_%(model_name)s"]
        for method in DjangoModelPermissions.perms_map
    }

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the account has the permission."""
        self.message = _lacks_reading(request)
        return super().has_permission(request, view)


class MaySee(BasePermission):
    """Permits callers with the permissions that the view names."""

    message: str | None = None

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the account has these permissions."""
        self.message = _lacks_reading(request)
        return bool(request.user and request.user.has_perms(getattr(view, "needs", ("policies.view_ruleset",))))


class Door(APIView):
    """A view that refuses unknown parameters.

    Attributes:
        parameters: those of URL and headers, by action, or by method if the view has no actions.
        needs: the permissions that `MaySee` checks.
        may_be_empty: the parameters of the URL whose empty value says something; others count as none, and are refused.
        more_throttles: throttles in addition to those of all views.
        may_be_unreadable: the actions without a write that are answered 409 if what is stored can't be read.
    """

    permission_classes = [MaySee]
    parameters: Mapping[str, Sequence[OpenApiParameter]] = {}
    needs: Sequence[str] = ("policies.view_ruleset",)
    may_be_empty: Collection[str] = ()
    more_throttles: Sequence[type[BaseThrottle]] = ()
    may_be_unreadable: Collection[str] = ()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse unknown, repeated and empty parameters.

        Raises:
            ValidationError: a parameter isn't known; or is repeated: a proxy in front of Berth may read the other value; or is
                empty, as from an unset shell variable.
        """
        super().initial(request, *args, **kwargs)
        taken = [each for each in self.parameters_of(self.act_of(request)) if each.location == "query"]
        known = {each.name for each in taken}
        unknown = [name for name in request.query_params if name not in known]
        if unknown:
            takes = f"known parameters: {', '.join(sorted(known))}" if known else "there are none here"
            raise ValidationError({name[:80]: f"is not a known parameter; {takes}" for name in unknown})
        lists = {each.name for each in taken if _is_list(each)}
        if twice := [name for name, values in request.query_params.lists() if len(values) > 1 and name not in lists]:
            raise ValidationError(dict.fromkeys(twice, "is given more than once"))
        empty = [
            name for name, values in request.query_params.lists() if "" in values and name not in self.may_be_empty
        ]
        if empty:
            raise ValidationError(dict.fromkeys(empty, "is empty: give it a value, or leave it out"))

    def get_throttles(self) -> list[BaseThrottle]:
        """Return the throttles of all views, and those of this view."""
        return [*super().get_throttles(), *(each() for each in self.more_throttles)]

    def act_of(self, request: Request) -> str:
        """Return the action of the request, or its method if the view has no actions."""
        method = "get" if request.method == "HEAD" else (request.method or "").lower()
        return getattr(self, "action", None) or method

    def parameters_of(self, act: str) -> list[OpenApiParameter]:
        """Return the parameters of an action. The check and the OpenAPI document both use them."""
        return list(self.parameters.get(act, ()))


def _is_list(parameter: OpenApiParameter) -> bool:
    """Return whether a parameter may be repeated: then its schema is an array."""
    return isinstance(parameter.type, dict) and parameter.type.get("type") == "array"


class ReadOnlyViewSet(Door, ListModelMixin, RetrieveModelMixin, GenericViewSet[Any]):
    """A list and its items, for callers who may view them."""

    permission_classes = [MayView]
    detail_serializer_class: type[BaseSerializer[Any]] | None = None

    def get_serializer_class(self) -> type[BaseSerializer[Any]]:
        """Return the detailed serializer for a single item."""
        if self.action != "list" and self.detail_serializer_class is not None:
            return self.detail_serializer_class
        return super().get_serializer_class()

    def parameters_of(self, act: str) -> list[OpenApiParameter]:
        """Add the parameters of pages, and `fields`."""
        found = super().parameters_of(act)
        if act == "list":
            found += getattr(self.paginator, "parameters", [])
        return [*found, FIELDS] if act in {"list", "retrieve"} else found

    def get_serializer(self, *args: Any, **kwargs: Any) -> BaseSerializer[Any]:
        """Return the serializer, with only the requested fields."""
        made = super().get_serializer(*args, **kwargs)
        wanted = self.request.query_params.get("fields") if self.request else None
        if wanted is not None:
            shown: Any = getattr(made, "child", made)
            _keep_fields(shown.fields, wanted.split(","))
        return made


def _keep_fields(fields: Any, wanted: Collection[str]) -> None:
    """Remove all other fields.

    Raises:
        ValidationError: a wanted field doesn't exist.
    """
    unknown = [name for name in wanted if name not in fields]
    if unknown:
        raise ValidationError({"fields": f"{unknown[0][:80]!r} is not a field; the fields are: {', '.join(fields)}"})
    for name in [name for name in fields if name not in wanted]:
        fields.pop(name)
