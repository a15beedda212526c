"""REST endpoints for Changes, their edits and their acts.

Each act calls one function of `publishing`, which checks by `lifecycle` whether this account may do it now; nothing is checked here.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from django.db import transaction
from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies import publishing
from policies.api import change_shapes as shapes
from policies.api.asked import asked_of
from policies.api.base import (
    IF_MATCH,
    MAY_MATCH,
    Door,
    MayView,
    ReadOnlyViewSet,
    by_of,
    digest_of,
    expected_of,
    tagged,
    tags_of,
)
from policies.api.documents import EXAMPLES, read_whole
from policies.api.problems import FaultsError, OvertakenProblem
from policies.models import Change, ChangeEdit
from policies.publishing import Edit, Kind, lifecycle

_KINDS = Kind.values
_STATES = (*Change.State.values, "open")
_FILTERS = [
    OpenApiParameter("state", str, enum=_STATES, description="open: those that can still go live"),
    OpenApiParameter("author", str, description="the account that opened it"),
    OpenApiParameter("thing", str, description="an object that it edits: a name, or KIND/NAME such as RuleSet/web"),
    OpenApiParameter("waiting", str, description="an account whose review was requested and isn't done yet"),
]
# Acts that require If-Match: nobody approves, publishes or edits a state that they haven't seen.
_MATCHED = (
    "partial_update",
    "submit",
    "approve",
    "reject",
    "publish",
    "publish_urgently",
    "rebase",
    "schedule",
    "expire",
)
_MAY_BE_MATCHED = ("withdraw", "reopen", "comment", "request_review", "gate")


class ChangeViewSet(ReadOnlyViewSet):
    """Changes, newest first. The ETag of a Change is the digest of its edits, which approvals name; comments don't change it."""

    queryset = Change.objects.select_related("revision").prefetch_related("edits", "events")
    serializer_class = shapes.ChangeSerializer
    detail_serializer_class = shapes.ChangeDetailSerializer
    lookup_field = "pk"
    lookup_url_kwarg = "number"
    lookup_value_converter = "int"
    parameters = {
        "list": _FILTERS,
        **dict.fromkeys(_MATCHED, (IF_MATCH,)),
        **dict.fromkeys(_MAY_BE_MATCHED, (MAY_MATCH,)),
    }
    has_etag = True

    def get_queryset(self) -> QuerySet[Change]:
        """Filter the list by the URL's parameters."""
        found: QuerySet[Change] = super().get_queryset()
        return _narrowed(found, self.request.query_params.dict()) if self.action == "list" else found

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return one Change: its edits, its state and its events."""
        change = self.get_object()
        return tagged(Response(self.get_serializer(change).data), change.digest)

    @extend_schema(
        request=shapes.NewChangeSerializer,
        responses={201: shapes.ChangeDetailSerializer},
        examples=[
            OpenApiExample(
                "for a team", value={"title": "Teams have nodes of their own", "reason": "TICKET-1"}, request_only=True
            )
        ],
    )
    def create(self, request: Request) -> Response:
        """Open a Change without edits."""
        asked = asked_of(shapes.NewChangeSerializer, request.data)
        change = publishing.begin_change(title=asked["title"], reason=asked["reason"], by=by_of(request))
        return answer(request, change, status.HTTP_201_CREATED)

    @extend_schema(
        request=shapes.DescriptionSerializer,
        responses=shapes.ChangeDetailSerializer,
        examples=[OpenApiExample("another title", value={"title": "Teams have nodes and disks"}, request_only=True)],
    )
    def partial_update(self, request: Request, number: int) -> Response:
        """Change the title or the reason. The edits, the approvals and the ETag stay the same."""
        asked = asked_of(shapes.DescriptionSerializer, request.data)
        row, by = self.get_object(), by_of(request)
        digest = expected_of(request, row.digest)
        return answer(request, publishing.describe_change(change=row, by=by, expected_digest=digest, **asked))

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def submit(self, request: Request, number: int) -> Response:
        """Send the Change to review; its documents must have no faults."""
        return self._act(request, publishing.submit_change)

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, number: int) -> Response:
        """Approve the state of the Change that If-Match names."""
        return self._act(request, publishing.approve_change)

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, number: int) -> Response:
        """Reject the Change, with a reason."""
        return self._act(request, publishing.reject_change)

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def publish(self, request: Request, number: int) -> Response:
        """Publish the Change: make the next Revision with its edits."""
        return self._act(request, publishing.publish_change, said_as="reason")

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"], url_path="publish-urgently")
    def publish_urgently(self, request: Request, number: int) -> Response:
        """Publish the Change without approvals, in an emergency, with a reason; somebody else approves it afterwards."""
        return self._act(request, publishing.publish_urgently, said_as="reason")

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, number: int) -> Response:
        """Withdraw the Change: it never goes live."""
        return self._act(request, publishing.withdraw_change)

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def reopen(self, request: Request, number: int) -> Response:
        """Make a rejected Change a draft again."""
        return self._act(request, publishing.reopen_change)

    @extend_schema(request=shapes.CommentSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def comment(self, request: Request, number: int) -> Response:
        """Add a comment."""
        text = asked_of(shapes.CommentSerializer, request.data)["comment"]
        return answer(
            request, publishing.comment_on_change(change=self._matched(request), by=by_of(request), text=text)
        )

    @extend_schema(request=shapes.AskingSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"], url_path="request-review")
    def request_review(self, request: Request, number: int) -> Response:
        """Request somebody's review of the Change."""
        asked = asked_of(shapes.AskingSerializer, request.data)
        row, by = self._matched(request), by_of(request)
        return answer(request, publishing.ask_for_review(change=row, by=by, whom=asked["whom"], text=asked["reason"]))

    @extend_schema(request=None, responses={202: shapes.ChangeDetailSerializer})
    @action(detail=True, methods=["post"])
    def gate(self, request: Request, number: int) -> Response:
        """Request a run of the gate, which a worker carries out. The member `gate` of the Change has its results."""
        row = self._matched(request)
        publishing.run_gate(change=row, by=by_of(request))
        return answer(request, row, status.HTTP_202_ACCEPTED)

    @extend_schema(request=shapes.RebaseSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def rebase(self, request: Request, number: int) -> Response:
        """Rebase the edits on the live Revision."""
        asked = asked_of(shapes.RebaseSerializer, request.data)
        sides = {(each["kind"], each["name"]): each for each in asked["sides"]}
        row = self.get_object()
        rebased = publishing.rebase_change(
            change=row,
            by=by_of(request),
            expected_digest=expected_of(request, row.digest),
            expected_revision=asked.get("revision", publishing.current_revision().number),
            take_theirs=[key for key, side in sides.items() if side["take"] == "theirs"],
            merge={key: side["parts"] for key, side in sides.items() if side["take"] == "merge"},
        )
        return answer(request, rebased)

    @extend_schema(request=shapes.ScheduleSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def schedule(self, request: Request, number: int) -> Response:
        """Schedule the Change to go live at a time, in the state that was looked at."""
        asked = asked_of(shapes.ScheduleSerializer, request.data)
        row, by = self.get_object(), by_of(request)
        scheduled = publishing.schedule_change(
            change=row,
            by=by,
            publish_at=asked["publish_at"],
            expected_digest=expected_of(request, row.digest),
            expected_at=asked.get("seen_publish_at", msgspec.UNSET),
        )
        return answer(request, scheduled)

    @extend_schema(request=shapes.ExpirySerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def expire(self, request: Request, number: int) -> Response:
        """Set the time at which the edits are reverted. It is part of the approved state."""
        at = asked_of(shapes.ExpirySerializer, request.data)["expires_at"]
        row, by = self.get_object(), by_of(request)
        digest = expected_of(request, row.digest)
        return answer(request, publishing.set_expiry(change=row, by=by, expires_at=at, expected_digest=digest))

    def _act(self, request: Request, act: Callable[..., object], *, said_as: str = "text") -> Response:
        """Do an act whose body has only a reason; `said_as` is the name that `act` has for it.

        `act` compares the digest again, under its lock; an empty one isn't compared.
        """
        said = asked_of(shapes.ReasonSerializer, request.data)["reason"]
        row = self._matched(request)
        digest = expected_of(request, row.digest) if self.action in _MATCHED or tags_of(request) else ""
        act(change=row, by=by_of(request), expected_digest=digest, **{said_as: said})
        return answer(request, row)

    def _matched(self, request: Request) -> Change:
        """Return the Change; for acts that don't require If-Match, one that is sent is compared, too."""
        change: Change = self.get_object()
        if (tags := tags_of(request)) and change.digest not in tags:
            message = f"{change} changed since you looked at it. Look at it again."
            raise OvertakenProblem(message)
        return change


def answer(request: Request, change: Change, code: int = status.HTTP_200_OK) -> Response:
    """Return a response with the Change's present state, as the caller sees it."""
    with publishing.one_revision():  # `live` is what the edits are compared with
        row = ChangeViewSet.queryset.get(pk=change.pk)
        shown = shapes.ChangeDetailSerializer(row, context={"request": request}).data
        return tagged(Response(shown, status=code), row.digest)


def _narrowed(found: QuerySet[Change], asked: dict[str, str]) -> QuerySet[Change]:
    if state := asked.get("state"):
        if state not in _STATES:
            raise ValidationError({"state": f"must be one of {', '.join(_STATES)}"})
        found = found.filter(state__in=lifecycle.OPEN if state == "open" else [state])
    if author := asked.get("author"):
        found = found.filter(opened_by=author)
    if thing := asked.get("thing"):
        kind, _, name = thing.rpartition("/")
        if kind and kind not in _KINDS:
            raise ValidationError({"thing": f"{kind[:80]!r} isn't a kind; the kinds are {', '.join(_KINDS)}"})
        edits = ChangeEdit.objects.filter(name=name, **({"kind": kind} if kind else {}))
        found = found.filter(pk__in=edits.values("change"))
    if waiting := asked.get("waiting"):
        found = found.filter(pk__in=[change.pk for change, _ in publishing.changes_waiting_for(waiting)])
    return found


SEEN = OpenApiParameter(
    "seen",
    str,
    description="The ETag of the live object as you read it; empty if there was none. If the live object has changed since, the answer is 412. "
    "Without this parameter, the edit is based on the object that is live now.",
)


class EditOfChangeView(Door):
    """One edit of a Change: set a whole document, remove an object, or discard the edit."""

    permission_classes = [MayView]
    queryset = Change.objects.all()
    has_etag = True
    parameters = {"put": [IF_MATCH, SEEN], "delete": [IF_MATCH, SEEN], "post": [IF_MATCH]}
    may_be_empty = {"seen"}
    kind = Kind.RULE_SET

    @transaction.atomic
    def _edit(self, request: Request, number: int, edit: Edit) -> Response:
        change = get_object_or_404(Change, pk=number)
        by, digest = by_of(request), expected_of(request, change.digest)
        if (seen := request.query_params.get("seen")) is not None:
            publishing.check_seen({edit.key: digest_of(seen)}, [edit.key])
        return answer(request, publishing.edit_change(change=change, edits=[edit], by=by, expected_digest=digest))


class PutEditView(EditOfChangeView):
    """The edit of one object in a Change."""

    @extend_schema(request=OpenApiTypes.OBJECT, responses=shapes.ChangeDetailSerializer, examples=EXAMPLES)
    def put(self, request: Request, number: int, name: str) -> Response:
        """Put a whole document into the Change. It replaces the Change's previous edit of this object.

        An Assignment's params must be declared by its rule set, in the Change or live: put the rule set in first.
        """
        value = read_whole(request.data, self.kind, name)
        if faults := publishing.misfitting_params(get_object_or_404(Change, pk=number), value):
            raise FaultsError(faults)
        return self._edit(request, number, Edit.of(value))

    @extend_schema(request=None, responses={200: shapes.ChangeDetailSerializer})
    def delete(self, request: Request, number: int, name: str) -> Response:
        """Remove this object by the Change."""
        change, key = get_object_or_404(Change, pk=number), (self.kind, name)
        is_live = key in publishing.values_of(publishing.current_revision())
        if not is_live and not change.edits.filter(kind=self.kind, name=name).exists():
            message = f"There is no {self.kind} {name}: it isn't live, and {change} has no edit of it."
            raise NotFound(message)
        return self._edit(request, number, Edit(self.kind, name, None))


class DiscardEditView(EditOfChangeView):
    """Discards the edit of one object."""

    @extend_schema(request=None, responses=shapes.ChangeDetailSerializer)
    def post(self, request: Request, number: int, name: str) -> Response:
        """Discard the edit of this object: the Change no longer changes it."""
        change = get_object_or_404(Change, pk=number)
        by, digest = by_of(request), expected_of(request, change.digest)
        key = (self.kind, name)
        return answer(request, publishing.discard_edits(change=change, keys=[key], by=by, expected_digest=digest))
