"""Links of the OpenAPI document: the operations that may follow a response, and the members that they use."""

from collections.abc import Iterator, Mapping
from typing import Any

_CHANGE, _REVISION, _EXEMPTION = "/api/v1/changes/{number}", "/api/v1/revisions/{number}", "/api/v1/exemptions/{name}"
# The object that a response names, by the response's schema, and the member with its id.
_NAMED: Mapping[str, tuple[tuple[str, str], ...]] = {
    "Applied": ((_CHANGE, "change"), (_REVISION, "revision")),
    "Canary": (("/api/v1/canary-pods/{id}", "id"),),
    "ChangeDetail": ((_CHANGE, "number"),),
    "Made": ((_CHANGE, "change"), (_REVISION, "revision")),
}
# The object that a request creates, if the response doesn't name it.
_SENT = {
    "/api/v1/exemptions": (_EXEMPTION, {"name": "$request.body#/metadata/name"}),
    "/api/v1/pauses": ("/api/v1/pauses/{target}", {"target": "$request.body#/target"}),
}


def link_answers(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Link each response that names an object to the operations on it: a hook of drf-spectacular."""
    paths = result["paths"]
    for path, operations in paths.items():
        for method, operation in operations.items():
            for code, answer in operation["responses"].items():
                links = dict(_links_of(paths, path, method, answer)) if code.startswith("2") else {}
                links.pop(operation["operationId"], None)
                if links:
                    answer["links"] = links
    return result


def _links_of(
    paths: Mapping[str, Any], path: str, method: str, answer: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    for row, keys in _rows_of(path, method, answer):
        # After an act, link only the object itself: linking each act to each other would make hundreds of links.
        deep = path == row or row.rpartition("/")[0] == path
        for target, operations in paths.items():
            if target == row or (deep and target.startswith(f"{row}/")):
                for does, operation in operations.items():
                    if deep or does == "get":
                        yield operation["operationId"], _link(operation, keys, has_etag="ETag" in answer["headers"])


def _rows_of(path: str, method: str, answer: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    shown = answer.get("content", {}).get("application/json", {}).get("schema", {}).get("$ref", "")
    for row, member in _NAMED.get(shown.rpartition("/")[2], ()):
        yield row, {row.rpartition("{")[2][:-1]: f"$response.body#/{member}"}
    if method == "post" and path in _SENT:
        yield _SENT[path]
    if path.endswith("}") and method != "delete":
        yield path, {part[1:-1]: f"$request.path.{part[1:-1]}" for part in path.split("/") if part.startswith("{")}


def _link(operation: Mapping[str, Any], keys: Mapping[str, str], *, has_etag: bool) -> dict[str, Any]:
    parameters = dict(keys)
    if has_etag and any(each["name"] == "If-Match" for each in operation.get("parameters", ())):
        parameters["If-Match"] = "$response.header.ETag"
    return {"operationId": operation["operationId"], "parameters": parameters}
