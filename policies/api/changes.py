"""REST over Changes: what waits to go live, its edits, and each act that moves it on.

Each act is one verb of `publishing`, which decides by `lifecycle` whether this account may do it now; nothing is decided here.
"""

from typing import Any

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
from policies.api.base import IF_MATCH, MAY_MATCH, Door, MayView, ReadOnlyViewSet, by_of, expected_of, tagged, tags_of
from policies.api.documents import EXAMPLES, read_whole
from policies.api.problems import FaultsError, OvertakenProblem
from policies.models import Change, ChangeEdit
from policies.publishing import Edit, Kind, lifecycle

_KINDS = Kind.values
_STATES = (*Change.State.values, "open")
_FILTERS = [
    OpenApiParameter("state", str, enum=_STATES, description="open: what can still go live"),
    OpenApiParameter("author", str, description="who opened it"),
    OpenApiParameter("thing", str, description="what it touches: a name, or KIND/NAME such as RuleSet/web"),
    OpenApiParameter("waiting", str, description="whose review it was asked for and hasn't got yet: an account's name"),
]
# Acts that go by what was looked at: nobody approves, publishes or edits what they haven't seen.
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
    """Changes, newest first. The ETag of one names what it makes, as an approval does; comments don't change it."""

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
        """Narrow the list by what the URL says."""
        found: QuerySet[Change] = super().get_queryset()
        return _narrowed(found, self.request.query_params.dict()) if self.action == "list" else found

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Return one Change: what it makes, how it stands, and what was done with it."""
        del args, kwargs
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
        """Open a Change that holds no edit yet."""
        asked = asked_of(shapes.NewChangeSerializer, request.data)
        change = publishing.begin_change(title=asked["title"], reason=asked["reason"], by=by_of(request))
        return answer(change, status.HTTP_201_CREATED)

    @extend_schema(
        request=shapes.DescriptionSerializer,
        responses=shapes.ChangeDetailSerializer,
        examples=[OpenApiExample("another title", value={"title": "Teams have nodes and disks"}, request_only=True)],
    )
    def partial_update(self, request: Request, number: int) -> Response:
        """Change its title or its reason. What it makes stays the same, and so do its approvals and its ETag."""
        asked = asked_of(shapes.DescriptionSerializer, request.data)
        row, by = self.get_object(), by_of(request)
        digest = expected_of(request, row.digest)
        return answer(publishing.describe_change(change=row, by=by, expected_digest=digest, **asked))

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def submit(self, request: Request, number: int) -> Response:
        """Send it to review, once its documents are right."""
        row, by, said = self._asked(request)
        digest = expected_of(request, row.digest)
        return answer(publishing.submit_change(change=row, by=by, expected_digest=digest, text=said))

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, number: int) -> Response:
        """Approve what If-Match names."""
        row, by, said = self._asked(request)
        digest = expected_of(request, row.digest)
        return answer(publishing.approve_change(change=row, by=by, expected_digest=digest, text=said))

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def reject(self, request: Request, number: int) -> Response:
        """Reject it, with a reason."""
        row, by, said = self._asked(request)
        digest = expected_of(request, row.digest)
        return answer(publishing.reject_change(change=row, by=by, expected_digest=digest, text=said))

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def publish(self, request: Request, number: int) -> Response:
        """Make the next Revision with its edits."""
        row, by, said = self._asked(request)
        digest = expected_of(request, row.digest)
        publishing.publish_change(change=row, by=by, expected_digest=digest, reason=said)
        return answer(row)

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"], url_path="publish-urgently")
    def publish_urgently(self, request: Request, number: int) -> Response:
        """Publish it without approvals, in an emergency, with a reason; somebody else approves it afterwards."""
        row, by, said = self._asked(request)
        digest = expected_of(request, row.digest)
        publishing.publish_urgently(change=row, by=by, expected_digest=digest, reason=said)
        return answer(row)

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def withdraw(self, request: Request, number: int) -> Response:
        """Withdraw it: it never goes live."""
        row, by, said = self._asked(request)
        return answer(publishing.withdraw_change(change=row, by=by, expected_digest=_seen(row, request), text=said))

    @extend_schema(request=shapes.ReasonSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def reopen(self, request: Request, number: int) -> Response:
        """Make a draft of it again, where it was rejected."""
        row, by, said = self._asked(request)
        return answer(publishing.reopen_change(change=row, by=by, expected_digest=_seen(row, request), text=said))

    @extend_schema(request=shapes.CommentSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def comment(self, request: Request, number: int) -> Response:
        """Add a comment."""
        text = asked_of(shapes.CommentSerializer, request.data)["comment"]
        return answer(publishing.comment_on_change(change=self._matched(request), by=by_of(request), text=text))

    @extend_schema(request=shapes.AskingSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"], url_path="request-review")
    def request_review(self, request: Request, number: int) -> Response:
        """Ask somebody by name to review it."""
        asked = asked_of(shapes.AskingSerializer, request.data)
        row, by = self._matched(request), by_of(request)
        return answer(publishing.ask_for_review(change=row, by=by, whom=asked["whom"], text=asked["reason"]))

    @extend_schema(request=None, responses={202: shapes.ChangeDetailSerializer})
    @action(detail=True, methods=["post"])
    def gate(self, request: Request, number: int) -> Response:
        """Ask for the gate to look at it; a worker does. What it finds is `gate` of the Change."""
        row = self._matched(request)
        publishing.run_gate(change=row, by=by_of(request))
        return answer(row, status.HTTP_202_ACCEPTED)

    @extend_schema(request=shapes.RebaseSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def rebase(self, request: Request, number: int) -> Response:
        """Put its edits on what is live now."""
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
        return answer(rebased)

    @extend_schema(request=shapes.ScheduleSerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def schedule(self, request: Request, number: int) -> Response:
        """Let it go live by itself at a time, as it was looked at."""
        at = asked_of(shapes.ScheduleSerializer, request.data)["publish_at"]
        row, by = self.get_object(), by_of(request)
        digest = expected_of(request, row.digest)
        return answer(publishing.schedule_change(change=row, by=by, publish_at=at, expected_digest=digest))

    @extend_schema(request=shapes.ExpirySerializer, responses=shapes.ChangeDetailSerializer)
    @action(detail=True, methods=["post"])
    def expire(self, request: Request, number: int) -> Response:
        """Let what it touches go back at a time: a part of what is approved."""
        at = asked_of(shapes.ExpirySerializer, request.data)["expires_at"]
        row, by = self.get_object(), by_of(request)
        digest = expected_of(request, row.digest)
        return answer(publishing.set_expiry(change=row, by=by, expires_at=at, expected_digest=digest))

    def _asked(self, request: Request) -> tuple[Change, publishing.By, str]:
        said = asked_of(shapes.ReasonSerializer, request.data)["reason"]
        return self._matched(request), by_of(request), said

    def _matched(self, request: Request) -> Change:
        """Return the Change; of acts that need no If-Match, one that is sent along holds, too."""
        change: Change = self.get_object()
        if (tags := tags_of(request)) and change.digest not in tags:
            message = f"{change} changed since you looked at it. Look at it again."
            raise OvertakenProblem(message)
        return change


def _seen(matched: Change, request: Request) -> str:
    """Return the digest of what was looked at, for the verb to compare once more under its lock; empty where nobody says."""
    return matched.digest if tags_of(request) else ""


def answer(change: Change, code: int = status.HTTP_200_OK) -> Response:
    """Return a Change as it stands now."""
    row = ChangeViewSet.queryset.get(pk=change.pk)
    return tagged(Response(shapes.ChangeDetailSerializer(row).data, status=code), row.digest)


def _narrowed(found: QuerySet[Change], asked: dict[str, str]) -> QuerySet[Change]:
    if state := asked.get("state"):
        if state not in _STATES:
            raise ValidationError({"state": f"is one of {', '.join(_STATES)}"})
        found = found.filter(state__in=lifecycle.OPEN if state == "open" else [state])
    if author := asked.get("author"):
        found = found.filter(opened_by=author)
    if thing := asked.get("thing"):
        kind, _, name = thing.rpartition("/")
        if kind and kind not in _KINDS:
            raise ValidationError({"thing": f"{kind[:80]!r} is no kind: it is one of {', '.join(_KINDS)}"})
        edits = ChangeEdit.objects.filter(name=name, **({"kind": kind} if kind else {}))
        found = found.filter(pk__in=edits.values("change"))
    if waiting := asked.get("waiting"):
        found = found.filter(pk__in=[change.pk for change, _ in publishing.changes_waiting_for(waiting)])
    return found


SEEN = OpenApiParameter(
    "seen",
    str,
    description="The ETag of the thing as you read it, from where it is live; empty where there was none. 412 when another is live by now. "
    "Without it the edit is made on what is live at this moment.",
)


class EditOfChangeView(Door):
    """One thing of a Change: its whole document, put in, removed by an edit, or taken out again."""

    permission_classes = [MayView]
    queryset = Change.objects.all()
    has_etag = True
    parameters = {"put": [IF_MATCH, SEEN], "delete": [IF_MATCH, SEEN], "post": [IF_MATCH]}
    kind = Kind.RULE_SET

    @transaction.atomic
    def _edit(self, request: Request, number: int, edit: Edit) -> Response:
        change = get_object_or_404(Change, pk=number)
        by, digest = by_of(request), expected_of(request, change.digest)
        if (seen := request.query_params.get("seen")) is not None:
            publishing.check_seen({edit.key: seen.strip('"')}, [edit.key])
        return answer(publishing.edit_change(change=change, edits=[edit], by=by, expected_digest=digest))


class PutEditView(EditOfChangeView):
    """What becomes of one thing by a Change."""

    @extend_schema(request=OpenApiTypes.OBJECT, responses=shapes.ChangeDetailSerializer, examples=EXAMPLES)
    def put(self, request: Request, number: int, name: str) -> Response:
        """Put a whole document into the Change, in place of what it made of this thing.

        Params of an Assignment have to be those of its rule set, where the Change or what is live holds it: put that in first.
        """
        value = read_whole(request.data, self.kind, name)
        if faults := publishing.misfitting_params(get_object_or_404(Change, pk=number), value):
            raise FaultsError(faults)
        return self._edit(request, number, Edit.of(value))

    @extend_schema(request=None, responses={200: shapes.ChangeDetailSerializer})
    def delete(self, request: Request, number: int, name: str) -> Response:
        """Let the Change remove this thing."""
        change, key = get_object_or_404(Change, pk=number), (self.kind, name)
        is_live = key in publishing.values_of(publishing.current_revision())
        if not is_live and not change.edits.filter(kind=self.kind, name=name).exists():
            message = f"There is no {self.kind} {name}: it isn't live, and {change} holds no edit of it."
            raise NotFound(message)
        return self._edit(request, number, Edit(self.kind, name, None))


class DiscardEditView(EditOfChangeView):
    """What a Change no longer makes of one thing."""

    @extend_schema(request=None, responses=shapes.ChangeDetailSerializer)
    def post(self, request: Request, number: int, name: str) -> Response:
        """Take the edit of this thing out of the Change: it makes nothing of it any more."""
        change = get_object_or_404(Change, pk=number)
        by, digest = by_of(request), expected_of(request, change.digest)
        key = (self.kind, name)
        return answer(publishing.discard_edits(change=change, keys=[key], by=by, expected_digest=digest))
