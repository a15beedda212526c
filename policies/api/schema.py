"""The OpenAPI document: each operation with its parameters and all its responses, including errors."""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import get_doc
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from policies.api.asked import Asked
from policies.api.base import IF_MATCH, MAY_MATCH
from policies.api.details import MEDIA_TYPE

_REQUEST_ID = {
    "X-Request-Id": {
        "schema": {"type": "string"},
        "description": "The request's ID: the one that the request had, else a new one. AuditEvents and log lines have it, too.",
    }
}
_ETAG = {
    "ETag": {"schema": {"type": "string"}, "description": "Identifies the state that is shown; send it as If-Match."}
}
_ALWAYS = {
    "400": "The request can't be read, or a parameter is unknown.",
    "401": "The request has no valid credentials.",
    "403": "The account or its token lacks the permission.",
    "404": "There is no such object.",
    "406": "Accept has no type that this answer can have: JSON, for most operations.",
    "429": "Too many requests a minute; Retry-After says when to try again.",
    "503": "A service that the request needs is unavailable, or the database took too long.",
}
_WITH_A_BODY = {"413": "The body is too large.", "415": "The body isn't JSON, or is compressed."}
_OF_WRITES = {
    "409": "The present state doesn't allow the request; `detail` says why, and what to do.",
    "422": "A document has faults; `faults` says where.",
}
_OVERTAKEN = {"412": "The state has changed since you looked at it."}
_UNLOOKED = {"428": "If-Match is missing, or holds no ETag."}


class FaultOfProblemSerializer(serializers.Serializer[Any]):
    """A fault, and its place."""

    path = serializers.CharField(
        allow_blank=True, help_text="path in the document; empty if the fault is about the whole document"
    )
    message = serializers.CharField()
    line = serializers.IntegerField(required=False, help_text="line of the file, from 1")
    file = serializers.CharField(required=False, help_text="the file or the document, if there are several")
    text = serializers.CharField(
        required=False, help_text="the whole fault in one line, in the format that editors read"
    )


class ProblemSerializer(serializers.Serializer[Any]):
    """Problem details (RFC 9457): why the request failed."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField(allow_blank=True, help_text="what is wrong and what to do, in sentences")
    faults = FaultOfProblemSerializer(many=True)


class Schema(AutoSchema):
    """Describes a view by the parameters and serializers that the view itself uses."""

    def get_override_parameters(self) -> list[Any]:
        """Return the view's parameters."""
        parameters_of = getattr(self.view, "parameters_of", None)
        if parameters_of is None:
            return []
        found: list[OpenApiParameter] = parameters_of(self._act)
        return found

    @property
    def _act(self) -> str:
        return getattr(self.view, "action", None) or self.method.lower()

    def get_description(self) -> str:  # type: ignore[override] # spectacular gives no path and no method
        """Return what an action says of itself; for one object of a list, what its serializer says that it is."""
        if self._act == "retrieve":
            view: Any = self.view
            return get_doc(view.get_serializer_class())
        return super().get_description()

    def _get_pagination_parameters(self) -> list[Any]:
        return []

    def _get_response_bodies(self, direction: Any = "response") -> Any:
        bodies = super()._get_response_bodies(direction)
        told = dict(_ALWAYS)
        if self.method != "GET":
            # A DELETE may have its reason in a body.
            told |= _WITH_A_BODY | _OF_WRITES
        elif self._act in getattr(self.view, "may_be_unreadable", ()):
            told["409"] = "What is stored can't be read; `detail` says why, and what to do."
        takes = self.get_override_parameters()
        if IF_MATCH in takes or MAY_MATCH in takes:
            told |= _OVERTAKEN | _UNLOOKED
        for code, text in told.items():
            bodies.setdefault(code, self._problem(text))
        for code, body in bodies.items():
            headers = body.setdefault("headers", {})
            headers |= _REQUEST_ID
            if code.startswith("2") and getattr(self.view, "has_etag", None) and self._act != "list":
                headers |= _ETAG
        return bodies

    def _map_serializer(self, serializer: Any, direction: Any, bypass_extensions: bool = False) -> Any:  # noqa: FBT001, FBT002 - spectacular's
        found = super()._map_serializer(serializer, direction, bypass_extensions)  # type: ignore[no-untyped-call]
        # `Asked` refuses unknown members.
        return {**found, "additionalProperties": False} if isinstance(serializer, Asked) else found

    def _problem(self, text: str) -> dict[str, Any]:
        body = self._get_response_for_code(ProblemSerializer(), "400", [MEDIA_TYPE])  # type: ignore[no-untyped-call]
        return {**body, "description": text}


def loosen_selected(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Make all members of responses optional where the parameter `fields` selects them: a hook of drf-spectacular."""
    schemas = result.get("components", {}).get("schemas", {})
    for path in result["paths"].values():
        operation = path.get("get", {})
        if any(each["name"] == "fields" for each in operation.get("parameters", ())):
            shown = operation["responses"]["200"]["content"]["application/json"]["schema"]
            item = _follow(shown, schemas)
            if "results" in item.get("properties", {}):
                item = _follow(item["properties"]["results"]["items"], schemas)
            item.pop("required", None)
    return result


def _follow(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    found: dict[str, Any] = schemas[name] if name else schema
    return found
