"""An API server with only PriorityClasses, and Kubernetes' rules about them: for tests without a real one."""

import json
from collections.abc import Callable
from typing import Any

from scheduler.cluster.client import Client, Query
from scheduler.cluster.errors import (
    APIConflictError,
    APIError,
    APIForbiddenError,
    APIInvalidError,
    APINotFoundError,
)
from scheduler.priority_classes.execute import DIGEST, LABEL, PATH
from scheduler.priority_classes.plan import ORIGIN, Found

SYSTEM = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class PriorityServer(Client):
    """A client that answers its own requests."""

    def __init__(self, found: list[Found] | None = None) -> None:
        self.classes: dict[str, dict[str, Any]] = {}
        self.changes: list[str] = []
        self.fault: APIError | None = None
        self.before_change = lambda: None
        # Whether a webhook denies making a class.
        self.refuses: Callable[[dict[str, Any]], bool] = lambda _document: False
        # Whether a webhook denies changing a class.
        self.keeps: Callable[[str], bool] = lambda _name: False
        self._version = 100
        self.made = 0
        for each in found or []:
            self.classes[each.name] = stored(each)

    def have_system_classes(self) -> None:
        for name, value in SYSTEM.items():
            self.have(name, value=value)

    def have(self, name: str, **fields: Any) -> None:
        """Make or change a class, as another client."""
        self._version += 1
        before = self.classes.get(name) or {"metadata": {"name": name, "uid": f"uid-{name}"}, "value": 0}
        self.classes[name] = {**before, **fields}
        self.classes[name]["metadata"] = {**before["metadata"], "resourceVersion": str(self._version)}

    def _send(
        self, method: str, path: str, *, body: bytes | None = None, query: Query | None = None, **_: Any
    ) -> bytes:
        is_dry = bool(query) and "dryRun" in (query or {})
        if method != "GET" and not is_dry:
            self.changes.append(f"{method} {path.removeprefix(PATH).strip('/')}".strip())
            self.before_change()
        if self.fault is not None:
            raise self.fault
        name = path.removeprefix(PATH).strip("/")
        document = json.loads(body) if body else {}
        match method:
            case "GET":
                return json.dumps({"metadata": {"resourceVersion": "1"}, "items": list(self.classes.values())}).encode()
            case "POST" if is_dry:
                return self._asked(document)
            case "POST":
                return self._write(document["metadata"]["name"], self._created(document))
            case "PATCH" if is_dry:
                return json.dumps(self._patched(name, document)).encode()
            case "PATCH":
                return self._write(name, self._patched(name, document))
        self._delete(name, document)
        return b"{}"

    def _asked(self, document: dict[str, Any]) -> bytes:
        """Answer a dry run: admission and validation come before the check whether the name exists."""
        self._admit(document)
        self._created(document)
        return json.dumps(document).encode()

    def _created(self, document: dict[str, Any]) -> dict[str, Any]:
        name = document["metadata"]["name"]
        if document["value"] > 10**9:
            raise APIInvalidError("value is too high", status=422)
        if self.refuses(document):
            raise APIForbiddenError("denied by a webhook", status=403)
        if name in self.classes:
            raise APIConflictError(f"{name} exists", status=409, reason="AlreadyExists")
        self.made += 1
        return {**document, "metadata": {**document["metadata"], "uid": f"uid-{name}-{self.made}"}}

    def _admit(self, document: dict[str, Any]) -> None:
        name = document["metadata"]["name"]
        others = [each for each, found in self.classes.items() if each != name and found.get("globalDefault")]
        if document.get("globalDefault") and others:
            raise APIForbiddenError(f"PriorityClass {others[0]} is already marked as default", status=403)

    def _patched(self, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        found = self._existing(name, patch["metadata"]["resourceVersion"])
        if self.keeps(name):
            raise APIForbiddenError("denied by a policy", status=403)
        if {"value", "preemptionPolicy"} & set(patch):
            raise APIInvalidError("immutable", status=422)
        metadata = {**found["metadata"]}
        for member in ("labels", "annotations"):
            merged = {**(metadata.get(member) or {}), **patch["metadata"].get(member, {})}
            metadata[member] = {key: text for key, text in merged.items() if text is not None}
        return {**found, **patch, "metadata": metadata}

    def _write(self, name: str, document: dict[str, Any]) -> bytes:
        document["metadata"]["name"] = name
        self._admit(document)
        self._version += 1
        document["metadata"]["resourceVersion"] = str(self._version)
        self.classes[name] = document
        return json.dumps(document).encode()

    def _delete(self, name: str, options: dict[str, Any]) -> None:
        found = self._existing(name, options["preconditions"]["resourceVersion"])
        if options["preconditions"]["uid"] != found["metadata"]["uid"]:
            raise APIConflictError("another UID", status=409)
        if found["metadata"].get("finalizers"):
            found["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return
        del self.classes[name]

    def _existing(self, name: str, resource_version: str) -> dict[str, Any]:
        if name not in self.classes:
            raise APINotFoundError(f"{name} isn't there", status=404)
        if self.classes[name]["metadata"]["resourceVersion"] != resource_version:
            raise APIConflictError(f"{name} has been modified", status=409)
        return self.classes[name]


def stored(found: Found) -> dict[str, Any]:
    """Return the object from which this was read."""
    annotations = {DIGEST: found.digest} if found.digest else {}
    if found.is_made_by_berth:
        annotations[ORIGIN] = "created"
    metadata = {"name": found.name, "uid": found.uid, "resourceVersion": found.resource_version}
    if found.is_going:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    labels = {LABEL: "berth"} if found.is_managed else None
    return {
        "metadata": {**metadata, "labels": labels, "annotations": annotations or None},
        "value": found.value,
        "globalDefault": found.global_default,
        "preemptionPolicy": found.preemption_policy,
        "description": found.description,
    }
