"""REST endpoints for single live objects: PUT a whole document, or DELETE an object, each with a Change of its own."""

import re
from fnmatch import fnmatchcase
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies import publishing
from policies.api import views
from policies.api.base import IF_MATCH, IF_NONE_MATCH, ReadOnlyViewSet, by_of, expected_of, is_for_new, tagged, tags_of
from policies.api.documents import EXAMPLES, MadeSerializer, made_of, read_whole
from policies.api.pauses import REASON, reason_of
from policies.api.problems import FaultsError, UnlookedError
from policies.engine.errors import Fault
from policies.models import Change
from policies.publishing import Key, Kind, OvertakenError
from scheduler.applying import Documents, Wish, apply, examine_documents, unknown_rule_sets

_NAMED = OpenApiParameter(
    "name", str, description="Return only objects of this name; * matches any characters: `team-a-*`."
)
_PATTERN = re.compile(r"[a-z0-9*-]{0,63}")
_PATTERN_OF_CLASSES = re.compile(r"[a-z0-9.*-]{0,253}")


class ThingViewSet(ReadOnlyViewSet):
    """Objects of a kind, each with the digest of its live content as ETag."""

    kind = Kind.RULE_SET
    has_etag = True
    parameters = {"list": [_NAMED], "update": [IF_MATCH, IF_NONE_MATCH, REASON], "destroy": [IF_MATCH, REASON]}

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Filter a list by a pattern of names.

        Raises:
            ValidationError: no name can match the pattern.
        """
        pattern = self.request.query_params.get("name", "") if self.action == "list" else ""
        names = _PATTERN_OF_CLASSES if self.kind == Kind.PRIORITY_CLASS else _PATTERN
        if not names.fullmatch(pattern):
            raise ValidationError({"name": "must be a name, or a pattern with * such as team-a-*"})
        return _like(queryset, pattern) if pattern else queryset

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return one object, with its digest as ETag."""
        # Before the object: the digest of a Revision made in between would let its reader overwrite what they haven't seen.
        digest = _live_digest((self.kind, kwargs["name"]))
        return tagged(super().retrieve(request, *args, **kwargs), digest)

    @extend_schema(request=OpenApiTypes.OBJECT, responses=MadeSerializer, examples=EXAMPLES)
    def update(self, request: Request, name: str) -> Response:
        """Make a whole document live: at once, or after review if approvals are required. An identical document changes nothing. To replace a live object, send If-Match."""
        value = read_whole(request.data, self.kind, name)
        documents = Documents()
        documents.of_kind(value)[name] = value
        if unknown := [Fault(each.path, each.message) for each in unknown_rule_sets(documents)]:
            raise FaultsError(unknown)
        key, has_tags = (self.kind, name), bool(tags_of(request))
        # A caller with If-None-Match has looked, too, and saw no object.
        looked = has_tags or is_for_new(request)
        try:
            expected = expected_of(request, _live_digest(key)) if has_tags else ""
            change = self._apply(request, documents, key, expected)
        except OvertakenError as error:
            if looked:
                raise
            raise UnlookedError from error
        return _answer(change, before=expected, after=publishing.content_digest(value))

    @extend_schema(request=None, responses={200: MadeSerializer})
    def destroy(self, request: Request, name: str) -> Response:
        """Remove the live object: at once, or after review if approvals are required. Its versions stay."""
        key = (self.kind, name)
        if key not in publishing.values_of(publishing.current_revision()):
            message = f"No {self.kind} {name} is live."
            raise NotFound(message)
        expected = expected_of(request, _live_digest(key))
        return _answer(self._apply(request, Documents(removed=[key]), key, expected), before=expected, after="")

    def _apply(self, request: Request, documents: Documents, key: Key, expected: str) -> Change | None:
        kind, name = key
        act = "Remove" if documents.removed else "Put"
        wish = Wish(title=f"{act} {kind} {name}", reason=reason_of(request), submit=True, expected={key: expected})
        examined = examine_documents(documents, asks_cluster=True)
        return apply(documents, wish, by=by_of(request), examined=examined).change


def _like(queryset: QuerySet[Any], pattern: str) -> QuerySet[Any]:
    """Return the rows whose names match a pattern."""
    begins, star, _ = pattern.partition("*")
    if not star:
        return queryset.filter(name=pattern)
    found = queryset.filter(name__startswith=begins)
    # Not by a regular expression in the database: SQLite uses Python's, which tries all ways in which the stars can match a name,
    # without a time limit. fnmatch doesn't backtrack like that.
    names = found.order_by().values_list("name", flat=True)
    return found.filter(name__in=[name for name in names if fnmatchcase(name, pattern)])


def _answer(change: Change | None, *, before: str, after: str) -> Response:
    """Return what came of a document, with the digest of what its sender has seen: afterwards, or before if it isn't live yet.

    What is live by now may be somebody else's next version.
    """
    is_live = change is None or change.state == Change.State.PUBLISHED
    return tagged(Response(made_of(change)), after if is_live else before)


def _live_digest(key: Key) -> str:
    """Return the digest of an object's live content; empty if it isn't live."""
    return publishing.content_digest(publishing.values_of(publishing.current_revision()).get(key))


class RuleSetDoor(ThingViewSet, views.RuleSetViewSet):
    """Rule sets, by name."""


class AssignmentDoor(ThingViewSet, views.AssignmentViewSet):
    """Assignments in the order in which they are evaluated."""

    kind = Kind.ASSIGNMENT


class PriorityClassDoor(ThingViewSet, views.PriorityClassViewSet):
    """PriorityClasses, the highest value first, each with its state in the cluster."""

    kind = Kind.PRIORITY_CLASS
