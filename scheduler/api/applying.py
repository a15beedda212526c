"""REST over whole files of documents: apply them by way of a Change, or say what that would change."""

from collections.abc import Mapping
from typing import Any

import msgspec
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies.api.asked import Asked, asked_of
from policies.api.base import Door, by_of
from policies.api.change_shapes import ResultSerializer
from policies.api.documents import EXAMPLES
from policies.api.problems import FaultsError
from policies.api.throttles import CheckThrottle
from policies.publishing import Keeper
from scheduler.applying import (
    Documents,
    DocumentsError,
    Wish,
    apply,
    examine_documents,
    lint_files,
    plan_documents,
    read_files,
)

# Within what gunicorn lets a request take.
_DECIDING_SECONDS = 15.0
_MOST_TEXT = 2_000
_MOST_SCOPES = 100
_NOTES = "what to know of the documents themselves"


class FileSerializer(Asked):
    """A file of documents, YAML or JSON."""

    name = serializers.CharField(max_length=500)
    text = serializers.CharField(trim_whitespace=False, allow_blank=True)


class DocumentsSerializer(Asked):
    """Documents, read already or as files."""

    documents = serializers.ListField(child=serializers.DictField(), required=False, default=list)
    files = FileSerializer(many=True, required=False, default=list)
    prune = serializers.ListField(
        child=serializers.CharField(max_length=300),
        required=False,
        default=list,
        max_length=_MOST_SCOPES,
        help_text="remove what is live, isn't among them, and has such a name: team-a-*, or Assignment/team-a-* of one kind",
    )
    asks_cluster = serializers.BooleanField(required=False, default=True, help_text="whether the cluster is looked at")

    owner = serializers.CharField(
        max_length=100,
        required=False,
        allow_blank=True,
        default="",
        help_text="the repository that keeps them: what it brings in is marked as its own, and prune removes nothing else",
    )
    take_over = serializers.BooleanField(required=False, default=False, help_text="also what another owner keeps")


class LintSerializer(Asked):
    """Files to be checked."""

    files = FileSerializer(many=True)


class FileFaultSerializer(serializers.Serializer[Any]):
    """A fault, and where it is."""

    file = serializers.CharField()
    path = serializers.CharField(help_text="inside the document; empty where it is of the whole")
    message = serializers.CharField()
    line = serializers.IntegerField(help_text="of the file, from 1")
    text = serializers.CharField(help_text="all of it in a line, as editors read it")


class LintedSerializer(serializers.Serializer[Any]):
    """What is wrong with files."""

    ok = serializers.BooleanField()
    faults = FileFaultSerializer(many=True)
    notes = serializers.ListField(child=serializers.CharField(), help_text=_NOTES)


class PlanSerializer(DocumentsSerializer):
    """What would be applied."""

    gate = serializers.BooleanField(required=False, default=False, help_text="run the gate: documents, tests, Pods")


class ApplySerializer(DocumentsSerializer):
    """What is to be applied, and how."""

    title = serializers.CharField(max_length=200, required=False, default="apply")
    reason = serializers.CharField(max_length=_MOST_TEXT, required=False, allow_blank=True, default="")
    publish = serializers.BooleanField(
        required=False, default=False, help_text="make it live; refused where it needs approvals"
    )
    submit = serializers.BooleanField(
        required=False, default=False, help_text="send it to review where it needs approvals, else make it live"
    )


class AppliedSerializer(serializers.Serializer[Any]):
    """What came of documents; `change` is null where all of it is live already."""

    ok = serializers.BooleanField()
    change = serializers.IntegerField(allow_null=True)
    is_new = serializers.BooleanField(
        help_text="false where an open Change of yours makes the same already, which is `change`"
    )
    revision = serializers.IntegerField(allow_null=True)
    changes = serializers.ListField(child=serializers.CharField())
    unchanged = serializers.ListField(child=serializers.CharField())
    beside = serializers.ListField(child=serializers.CharField(), help_text="what others are about to do to them")
    drift = serializers.ListField(
        child=serializers.CharField(),
        help_text="what was changed outside of the owner's files since it last brought them in",
    )
    notes = serializers.ListField(child=serializers.CharField(), help_text=_NOTES)
    gate = ResultSerializer(many=True)


class DifferingSerializer(serializers.Serializer[Any]):
    """A thing that would be another, as YAML."""

    kind = serializers.CharField()
    name = serializers.CharField()
    live = serializers.CharField(allow_blank=True, help_text="empty where it is new")
    files = serializers.CharField(allow_blank=True, help_text="empty where it would be removed")


class PlannedSerializer(serializers.Serializer[Any]):
    """What would be changed; members that say nothing are absent."""

    ok = serializers.BooleanField(help_text="false where the gate blocks it")
    would_change = serializers.BooleanField(help_text="here or in the cluster")
    revision = serializers.IntegerField(required=False, help_text="the number that it would have")
    changes = serializers.ListField(child=serializers.CharField(), required=False)
    cluster = serializers.ListField(child=serializers.DictField(child=serializers.CharField()), required=False)
    users = serializers.ListField(child=serializers.DictField(), required=False)
    error = serializers.CharField(required=False, help_text="why the cluster can't be asked")
    gate = ResultSerializer(many=True, required=False)
    forecast = serializers.DictField(required=False)
    blocked = serializers.CharField(required=False)
    levels = serializers.DictField(child=serializers.CharField(), required=False)
    beside = serializers.ListField(child=serializers.CharField(), required=False)
    drift = serializers.ListField(child=serializers.CharField(), required=False)
    notes = serializers.ListField(child=serializers.CharField(), required=False, help_text=_NOTES)
    documents = DifferingSerializer(many=True, required=False)


_BODY = {"documents": [example.value for example in EXAMPLES], "title": "Teams have nodes of their own"}


class LintView(Door):
    """Files are checked, and nothing of them is kept. Checking takes up to seconds, so nobody asks for it without end."""

    more_throttles = (CheckThrottle,)

    @extend_schema(request=LintSerializer, responses=LintedSerializer)
    def post(self, request: Request) -> Response:
        """Check files of documents, and run the tests inside them: every fault of all of them, with file and line."""
        asked = asked_of(LintSerializer, request.data)
        faults, notes = lint_files((each["name"], each["text"]) for each in asked["files"])
        return Response({"ok": not faults, "faults": msgspec.to_builtins(faults), "notes": notes})


class ApplyView(Door):
    """All documents of a call by one Change, or none."""

    @extend_schema(
        request=ApplySerializer,
        responses={200: AppliedSerializer, 201: AppliedSerializer},
        examples=[OpenApiExample("published at once", value={**_BODY, "publish": True}, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Open a Change with what these documents make another, and publish it where that is asked for. 201 where one was opened."""
        asked = asked_of(ApplySerializer, request.data)
        documents = documents_of(asked)
        wish = Wish(title=asked["title"], reason=asked["reason"], publish=asked["publish"], submit=asked["submit"])
        is_live = wish.publish or wish.submit
        examined = examine_documents(documents, asks_cluster=asked["asks_cluster"]) if is_live else None
        applied = apply(documents, wish, by=by_of(request), examined=examined)
        code = status.HTTP_201_CREATED if applied.is_new else status.HTTP_200_OK
        return Response({**applied.summary(), "unchanged": applied.unchanged}, status=code)


class PlanView(Door):
    """A question: nothing of it is kept."""

    @extend_schema(
        request=PlanSerializer,
        responses=PlannedSerializer,
        examples=[OpenApiExample("with the gate", value={**_BODY, "gate": True}, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Return what `apply` with `publish` would change, here and in the cluster; nothing is changed."""
        asked = asked_of(PlanSerializer, request.data)
        planned = plan_documents(
            documents_of(asked),
            by=by_of(request),
            gate=asked["gate"],
            asks_cluster=asked["asks_cluster"],
            deciding_seconds=_DECIDING_SECONDS,
        )
        return Response({**msgspec.to_builtins(planned), "would_change": planned.would_change})


def documents_of(asked: Mapping[str, Any]) -> Documents:
    """Return the documents of a body.

    Raises:
        ValidationError: there are none, and nothing is to be pruned.
        FaultsError: with every fault, each with its file or its place among the documents.
    """
    if not (asked["documents"] or asked["files"] or asked["prune"]):
        raise ValidationError({"documents": "are missing: send documents, or files with name and text"})
    try:
        found = read_files([(each["name"], each["text"]) for each in asked["files"]], asked["documents"])
    except DocumentsError as error:
        faults = [
            {"path": each.path, "message": each.message, "file": each.file, "text": each.text}
            | ({"line": each.line} if each.line else {})
            for each in error.faults
        ]
        detail = f"Nothing was applied: {len(faults)} fault{'s' if len(faults) > 1 else ''}."
        raise FaultsError(faults, detail) from error
    found.prune = list(asked["prune"])
    found.keeper = Keeper(asked["owner"], asked["take_over"])
    return found
