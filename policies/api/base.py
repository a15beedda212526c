"""What every door of REST has alike: who acts, what it takes in its URL, what was looked at, which fields are wanted."""

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
    "fields", str, description="Only these members of each object, by commas, such as `name,digest`."
)
IF_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag of what you looked at. 428 without it, 412 when it is another by now.",
)
# Of acts that go by no digest: one that is sent along holds, too.
MAY_MATCH = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag of what you looked at, where that is to be compared: 412 when it is another by now.",
)
# Of a PUT of what is to be new. Other values say nothing that If-Match doesn't.
IF_NONE_MATCH = OpenApiParameter(
    "If-None-Match",
    str,
    OpenApiParameter.HEADER,
    enum=["*"],
    description="`*` in place of If-Match: only where nothing of the name is live, else 412.",
)
_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def by_of(request: Request) -> By:
    """Return who acts: the account of the session, or what acts for one. Each door asks this, and nothing else."""
    if isinstance(request.auth, OnBehalf):
        return request.auth
    return cast("User", request.user)


def expected_of(request: Request, digest: str) -> str:
    """Return the digest of what was looked at: that of what is there, where If-Match names it among others.

    Raises:
        UnlookedError: If-Match names nothing.
    """
    if found := tags_of(request):
        return digest if digest in found else found[0]
    raise UnlookedError


def tags_of(request: Request) -> list[str]:
    """Return the digests that If-Match names. `*` and an empty one name nothing that anybody looked at."""
    return [str(found) for found in _TAG.findall(request.headers.get("If-Match", "")) if found]


def is_for_new(request: Request) -> bool:
    """Return whether it is to be done only where nothing is there yet: `If-None-Match: *`."""
    return request.headers.get("If-None-Match", "").strip() == "*"


def tagged(response: Response, digest: str) -> Response:
    """Return an answer with the digest of what it shows, for If-Match; without one where there is none."""
    if digest:
        response["ETag"] = f'"{digest}"'
    return response


def _lacks_reading(request: Request) -> str | None:
    """Return why a token may not read: it lacks the scope that every answer takes. None for other tokens, and for people."""
    if not isinstance(request.auth, OnBehalf) or READ in request.auth.scopes:
        return None
    return f"The {request.auth.via} hasn't the scope read, which each call takes beside others: answers show what was done."


class MayView(DjangoModelPermissions):
    """Lets in who may view the model; what may be done with it, a verb of `publishing` decides."""

    message: str | None = None

    perms_map = {
        method: [] if method == "OPTIONS" else ["%(app_label)s.view_%(model_name)s"]
        for method in DjangoModelPermissions.perms_map
    }

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the account has the right."""
        self.message = _lacks_reading(request)
        return super().has_permission(request, view)


class MaySee(BasePermission):
    """Lets in who has the rights that the view names, as each role has."""

    message: str | None = None

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Return whether the account has them."""
        self.message = _lacks_reading(request)
        return bool(request.user and request.user.has_perms(getattr(view, "needs", ("policies.view_ruleset",))))


class Door(APIView):
    """A view that takes no parameter that it doesn't know.

    Attributes:
        parameters: what its URL and headers take, by action, or by method where it has no actions.
        needs: rights of who may knock, for `MaySee`.
        more_throttles: what counts beside what counts everywhere.
    """

    permission_classes = [MaySee]
    parameters: Mapping[str, Sequence[OpenApiParameter]] = {}
    needs: Sequence[str] = ("policies.view_ruleset",)
    more_throttles: Sequence[type[BaseThrottle]] = ()

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse what nobody would answer to.

        Raises:
            ValidationError: a parameter isn't known, or given twice: what stands in front of Berth may read the other one.
        """
        super().initial(request, *args, **kwargs)
        taken = [each for each in self.parameters_of(self.act_of(request)) if each.location == "query"]
        known = {each.name for each in taken}
        unknown = [name for name in request.query_params if name not in known]
        if unknown:
            takes = f"it takes {', '.join(sorted(known))}" if known else "it takes none"
            raise ValidationError({name[:80]: f"is no parameter of this; {takes}" for name in unknown})
        lists = {each.name for each in taken if _is_list(each)}
        if twice := [name for name, values in request.query_params.lists() if len(values) > 1 and name not in lists]:
            raise ValidationError(dict.fromkeys(twice, "is given more than once"))

    def get_throttles(self) -> list[BaseThrottle]:
        """Return what counts, of all doors and of this one."""
        return [*super().get_throttles(), *(each() for each in self.more_throttles)]

    def act_of(self, request: Request) -> str:
        """Return what is done here: the action, else the method."""
        method = "get" if request.method == "HEAD" else (request.method or "").lower()
        return getattr(self, "action", None) or method

    def parameters_of(self, act: str) -> list[OpenApiParameter]:
        """Return what an act takes: for its check and for its description, so that both are one."""
        return list(self.parameters.get(act, ()))


def _is_list(parameter: OpenApiParameter) -> bool:
    """Return whether a parameter may come more than once: its schema is an array then."""
    return isinstance(parameter.type, dict) and parameter.type.get("type") == "array"


class ReadOnlyViewSet(Door, ListModelMixin, RetrieveModelMixin, GenericViewSet[Any]):
    """A list and its items, for who may view them."""

    permission_classes = [MayView]
    detail_serializer_class: type[BaseSerializer[Any]] | None = None

    def get_serializer_class(self) -> type[BaseSerializer[Any]]:
        """Return more of one item than of each in a list."""
        if self.action != "list" and self.detail_serializer_class is not None:
            return self.detail_serializer_class
        return super().get_serializer_class()

    def parameters_of(self, act: str) -> list[OpenApiParameter]:
        """Add the pages of a list, and which fields are wanted."""
        found = super().parameters_of(act)
        if act == "list":
            found += getattr(self.paginator, "parameters", [])
        return [*found, FIELDS] if act in {"list", "retrieve"} else found

    def get_serializer(self, *args: Any, **kwargs: Any) -> BaseSerializer[Any]:
        """Return what writes the answer: with the fields that are wanted."""
        made = super().get_serializer(*args, **kwargs)
        wanted = self.request.query_params.get("fields") if self.request else None
        if wanted is not None:
            shown: Any = getattr(made, "child", made)
            keep_fields(shown.fields, wanted.split(","))
        return made


def keep_fields(fields: Any, wanted: Collection[str]) -> None:
    """Take all other fields out.

    Raises:
        ValidationError: one isn't there.
    """
    unknown = [name for name in wanted if name not in fields]
    if unknown:
        raise ValidationError({"fields": f"{unknown[0][:80]!r} is none of them: {', '.join(fields)}"})
    for name in [name for name in fields if name not in wanted]:
        fields.pop(name)
