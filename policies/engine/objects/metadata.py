"""The part of ObjectMeta that rules read. Source: k8s.io/apimachinery v0.36.3 pkg/apis/meta/v1 types.go."""

from typing import Annotated

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Whole numbers of Kubernetes' size: what doesn't fit is refused when an object is read, as Go does."""


class OwnerReference(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Who an object belongs to; `controller` marks the one that manages it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Name, labels and the like of any object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None
    resource_version: str = ""
    owner_references: list[OwnerReference] | None = None

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages the object."""
        return next((owner for owner in self.owner_references or () if owner.controller), None)


class AnnotatedMetadata(Metadata, rename="camel", frozen=True, gc=False):
    """The same with annotations."""

    annotations: dict[str, str] | None = None


def without_nulls(json: object) -> object:
    """Give the same JSON without members that are null: Go reads null as the member's zero value, or as absent."""
    if isinstance(json, dict):
        return {name: without_nulls(value) for name, value in json.items() if value is not None}
    if isinstance(json, list):
        return [without_nulls(value) for value in json]
    return json
