"""The OpenAPI document: each operation with what it takes, and with every answer that it gives, errors among them."""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from policies.api.asked import Asked
from policies.api.base import IF_MATCH, MAY_MATCH
from policies.api.details import MEDIA_TYPE

_REQUEST_ID = {
    "X-Request-Id": {
        "schema": {"type": "string"},
        "description": "Of this request: what was sent along, else a new one. AuditEvents and lines of the log name it.",
    }
}
_ETAG = {"ETag": {"schema": {"type": "string"}, "description": "Names what this shows; for If-Match."}}
_ALWAYS = {
    "400": "It can't be read, or a parameter isn't known.",
    "401": "Nobody is signed in.",
    "403": "Whoever asks may not.",
    "404": "There is no such thing.",
    "406": "It is answered in JSON alone.",
    "429": "Too many requests a minute; Retry-After says when.",
    "503": "Something that has to be asked is away, or the database took too long.",
}
_WITH_A_BODY = {"413": "The body is too large.", "415": "The body isn't JSON."}
_OF_WRITES = {
    "409": "As things stand it can't be done; the text says why, and what to do.",
    "422": "A document has faults; each says where.",
}
_OVERTAKEN = {"412": "What you looked at is another by now."}
_UNLOOKED = {"428": "If-Match is missing."}


class FaultOfProblemSerializer(serializers.Serializer[Any]):
    """Where something is wrong, and what."""

    path = serializers.CharField(allow_blank=True, help_text="in the document; empty for the whole")
    message = serializers.CharField()
    line = serializers.IntegerField(required=False, help_text="of the file, from 1")
    file = serializers.CharField(required=False, help_text="which file, or which document, of several")
    text = serializers.CharField(required=False, help_text="all of it in a line, as editors read it")


class ProblemSerializer(serializers.Serializer[Any]):
    """Why it wasn't done (RFC 9457)."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField(allow_blank=True, help_text="in sentences, with what to do")
    faults = FaultOfProblemSerializer(many=True)


class Schema(AutoSchema):
    """Describes a door by what the door itself goes by."""

    def get_override_parameters(self) -> list[Any]:
        """Return what the door takes."""
        parameters_of = getattr(self.view, "parameters_of", None)
        if parameters_of is None:
            return []
        found: list[OpenApiParameter] = parameters_of(self._act)
        return found

    @property
    def _act(self) -> str:
        return getattr(self.view, "action", None) or self.method.lower()

    def _get_pagination_parameters(self) -> list[Any]:
        return []

    def _get_response_bodies(self, direction: Any = "response") -> Any:
        bodies = super()._get_response_bodies(direction)
        told = dict(_ALWAYS)
        if self.method != "GET":
            # A DELETE may say its reason in a body.
            told |= _WITH_A_BODY | _OF_WRITES
        takes = self.get_override_parameters()
        if IF_MATCH in takes or MAY_MATCH in takes:
            told |= _OVERTAKEN
        if IF_MATCH in takes:
            told |= _UNLOOKED
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
        # What `Asked` doesn't know it refuses.
        return {**found, "additionalProperties": False} if isinstance(serializer, Asked) else found

    def _problem(self, text: str) -> dict[str, Any]:
        body = self._get_response_for_code(ProblemSerializer(), "400", [MEDIA_TYPE])  # type: ignore[no-untyped-call]
        return {**body, "description": text}


def loosen_selected(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Let any member be absent from what `fields` narrows: spectacular's hook, at the end."""
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
