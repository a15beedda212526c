"""REST endpoints for files of documents: check them, apply them with a Change, or show what that would change."""

from collections.abc import Mapping
from typing import Any

import msgspec
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from policies.api.asked import Asked, SeveralField, asked_of
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
    faults_of_scopes,
    lint_files,
    plan_documents,
    read_files,
)

# Below gunicorn's time limit of a request.
_DECIDING_SECONDS = 15.0
_MOST_TEXT = 2_000
_MOST_SCOPES = 100
_NOTES = "notes on the documents themselves"


class FileSerializer(Asked):
    """A file of documents, YAML or JSON."""

    name = serializers.CharField(max_length=500)
    text = serializers.CharField(trim_whitespace=False, allow_blank=True)


class DocumentsSerializer(Asked):
    """Documents, parsed or as files."""

    documents = SeveralField(child=serializers.DictField(), required=False, default=list)
    files = SeveralField(child=FileSerializer(), required=False, default=list)
    prune = SeveralField(
        child=serializers.CharField(max_length=300),
        required=False,
        default=list,
        max_length=_MOST_SCOPES,
        help_text="remove live objects that aren't in the documents and have such a name: team-a-*, or Assignment/team-a-* for one kind",
    )
    asks_cluster = serializers.BooleanField(required=False, default=True, help_text="whether the cluster is read")

    owner = serializers.CharField(
        max_length=100,
        required=False,
        allow_blank=True,
        default="",
        help_text="the repository that holds the documents: applied objects are marked as its own, and prune removes only those",
    )
    take_over = serializers.BooleanField(
        required=False, default=False, help_text="also change objects of another owner"
    )


class LintSerializer(Asked):
    """The files to check."""

    files = SeveralField(child=FileSerializer())


class FileFaultSerializer(serializers.Serializer[Any]):
    """A fault, and its place."""

    file = serializers.CharField()
    path = serializers.CharField(help_text="path in the document; empty if the fault is about the whole document")
    message = serializers.CharField()
    line = serializers.IntegerField(help_text="line of the file, from 1")
    text = serializers.CharField(help_text="the whole fault in one line, in the format that editors read")


class LintedSerializer(serializers.Serializer[Any]):
    """The faults of files."""

    ok = serializers.BooleanField()
    faults = FileFaultSerializer(many=True)
    notes = serializers.ListField(child=serializers.CharField(), help_text=_NOTES)


class PlanSerializer(DocumentsSerializer):
    """The documents of a plan."""

    gate = serializers.BooleanField(
        required=False, default=False, help_text="also run the gate: documents, tests, Pods"
    )


class ApplySerializer(DocumentsSerializer):
    """Documents to apply, and how to apply them."""

    title = serializers.CharField(max_length=200, required=False, default="apply")
    reason = serializers.CharField(max_length=_MOST_TEXT, required=False, allow_blank=True, default="")
    publish = serializers.BooleanField(
        required=False, default=False, help_text="publish the Change; refused if approvals are required"
    )
    submit = serializers.BooleanField(
        required=False, default=False, help_text="send the Change to review if approvals are required, else publish it"
    )


class AppliedSerializer(serializers.Serializer[Any]):
    """The result of apply; `change` is null if everything is live already."""

    ok = serializers.BooleanField()
    change = serializers.IntegerField(allow_null=True)
    is_new = serializers.BooleanField(
        help_text="false if an open Change of yours already has the same edits; it is `change`"
    )
    revision = serializers.IntegerField(allow_null=True)
    changes = serializers.ListField(child=serializers.CharField())
    unchanged = serializers.ListField(child=serializers.CharField())
    beside = serializers.ListField(
        child=serializers.CharField(), help_text="what others are about to change in the same objects"
    )
    drift = serializers.ListField(
        child=serializers.CharField(),
        help_text="what was changed outside of the owner's files since the owner last applied them",
    )
    notes = serializers.ListField(child=serializers.CharField(), help_text=_NOTES)
    gate = ResultSerializer(many=True)


class DifferingSerializer(serializers.Serializer[Any]):
    """An object that would change, as YAML."""

    kind = serializers.CharField()
    name = serializers.CharField()
    live = serializers.CharField(allow_blank=True, help_text="the live document; empty if the object is new")
    files = serializers.CharField(allow_blank=True, help_text="the new document; empty if the object would be removed")


class PlannedSerializer(serializers.Serializer[Any]):
    """The result of a plan; empty members are absent."""

    ok = serializers.BooleanField(help_text="false if the gate blocks publishing")
    would_change = serializers.BooleanField(help_text="whether anything would change, in Berth or in the cluster")
    revision = serializers.IntegerField(required=False, help_text="the number that the Revision would have")
    changes = serializers.ListField(child=serializers.CharField(), required=False)
    cluster = serializers.ListField(child=serializers.DictField(child=serializers.CharField()), required=False)
    users = serializers.ListField(child=serializers.DictField(), required=False)
    error = serializers.CharField(required=False, help_text="why the cluster can't be read")
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
    """Checks files, without storing them. A check takes up to seconds, so calls are throttled."""

    more_throttles = (CheckThrottle,)

    @extend_schema(request=LintSerializer, responses=LintedSerializer)
    def post(self, request: Request) -> Response:
        """Check files of documents, and run the tests inside them. The answer has the faults of all files with file and line: every one, or of very many the first thousand."""
        asked = asked_of(LintSerializer, request.data)
        faults, notes = lint_files((each["name"], each["text"]) for each in asked["files"])
        return Response({"ok": not faults, "faults": msgspec.to_builtins(faults), "notes": notes})


class ApplyView(Door):
    """Applies all documents of a call with one Change, or none of them."""

    @extend_schema(
        request=ApplySerializer,
        responses={200: AppliedSerializer, 201: AppliedSerializer},
        examples=[OpenApiExample("published at once", value={**_BODY, "publish": True}, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Open a Change with the differences between these documents and the live state; publish it if requested. 201 if a Change was opened."""
        asked = asked_of(ApplySerializer, request.data)
        documents = documents_of(asked)
        wish = Wish(title=asked["title"], reason=asked["reason"], publish=asked["publish"], submit=asked["submit"])
        is_live = wish.publish or wish.submit
        examined = examine_documents(documents, asks_cluster=asked["asks_cluster"]) if is_live else None
        applied = apply(documents, wish, by=by_of(request), examined=examined)
        code = status.HTTP_201_CREATED if applied.is_new else status.HTTP_200_OK
        return Response({**applied.summary(), "unchanged": applied.unchanged}, status=code)


class PlanView(Door):
    """Plans changes, without storing anything."""

    @extend_schema(
        request=PlanSerializer,
        responses=PlannedSerializer,
        examples=[OpenApiExample("with the gate", value={**_BODY, "gate": True}, request_only=True)],
    )
    def post(self, request: Request) -> Response:
        """Return what `apply` with `publish` would change in Berth and in the cluster, without changing anything."""
        asked = asked_of(PlanSerializer, request.data)
        planned = plan_documents(
            documents_of(asked, "planned"),
            by=by_of(request),
            gate=asked["gate"],
            asks_cluster=asked["asks_cluster"],
            deciding_seconds=_DECIDING_SECONDS,
        )
        return Response({**msgspec.to_builtins(planned), "would_change": planned.would_change})


def documents_of(asked: Mapping[str, Any], done: str = "applied") -> Documents:
    """Return the documents of a body.

    Args:
        asked: the body.
        done: what isn't done with them where they have faults.

    Raises:
        ValidationError: there are none, and `prune` is empty; or it has what is no scope.
        FaultsError: with every fault, or the first thousand, each with its file or its index among the documents.
    """
    if not (asked["documents"] or asked["files"] or asked["prune"]):
        raise ValidationError({"documents": "is missing: send documents, or files with name and text"})
    if wrong := faults_of_scopes(asked["prune"]):
        raise ValidationError({"prune": wrong})
    try:
        found = read_files([(each["name"], each["text"]) for each in asked["files"]], asked["documents"])
    except DocumentsError as error:
        faults = [
            {"path": each.path, "message": each.message, "file": each.file, "text": each.text}
            | ({"line": each.line} if each.line else {})
            for each in error.faults
        ]
        detail = f"Nothing was {done}: {len(faults)} fault{'s' if len(faults) > 1 else ''}."
        raise FaultsError(faults, detail) from error
    found.prune = list(asked["prune"])
    found.keeper = Keeper(asked["owner"], asked["take_over"])
    return found
