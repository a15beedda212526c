"""The part of ObjectMeta that rules read. Source: k8s.io/apimachinery v0.36.3 pkg/apis/meta/v1 types.go."""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

T = TypeVar("T")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
# Whole numbers of Kubernetes' size: what doesn't fit is refused when an object is read, as Go does.
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# Characters and texts of what Pods alike share. What has more is each Pod's own: what is shared stays in memory when they have gone.
MOST_SHARED_CHARACTERS = 2_048
MOST_SHARED_TEXTS = 64


class OwnerReference(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Who an object belongs to; `controller` marks the one that manages it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


def controller_of(references: Sequence[OwnerReference] | None) -> OwnerReference | None:
    """Return the owner that manages an object; None without one."""
    for owner in references or ():  # a generator would take three times as long, and each Decision asks
        if owner.controller:
            return owner
    return None


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
        return controller_of(self.owner_references)


class AnnotatedMetadata(Metadata, rename="camel", frozen=True, gc=False):
    """Name, labels, annotations and the like of an object."""

    annotations: dict[str, str] | None = None


class TooLargeToShareError(Exception):
    """Something is a Pod's own. Raised by what makes it for a cache, which then keeps nothing: Pods alike that are found pay nothing."""


def check_is_shared(texts: Collection[str]) -> None:
    """Let through what Pods alike share, by its texts.

    Raises:
        TooLargeToShareError: it has more of them than stay in memory when the Pods have gone.
    """
    if len(texts) > MOST_SHARED_TEXTS or sum(map(len, texts)) > MOST_SHARED_CHARACTERS:
        raise TooLargeToShareError


def is_later_version(version: str, than: str) -> bool | None:
    """Return whether a resourceVersion is later than another one of the same kind; None where one of them is no number.

    They compare as whole numbers (Kubernetes enhancement 5504). A caller may send one of any length, which Python's int refuses.
    """
    if not all(text.isascii() and text.isdigit() for text in (version, than)):
        return None
    one, other = version.lstrip("0"), than.lstrip("0")
    return (len(one), one) > (len(other), other)


def without_nulls(json: object) -> object:
    """Return the same JSON without members that are null: Go reads null as the member's zero value, or as absent."""
    if isinstance(json, dict):
        return {name: without_nulls(value) for name, value in json.items() if value is not None}
    if isinstance(json, list):
        return [without_nulls(value) for value in json]
    return json


def decode_object(json: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode JSON text as Go does: null stands for a member that isn't there.

    Raises:
        msgspec.DecodeError: it isn't JSON, or a field has the wrong type (ValidationError).
    """
    try:
        return decoder.decode(json)
    except msgspec.ValidationError:
        return convert_object(msgspec.json.decode(json), decoder.type)


def convert_object(json: Any, kind: type[T]) -> T:
    """Make an object of decoded JSON; null stands for a member that isn't there.

    Raises:
        msgspec.ValidationError: a field has the wrong type.
    """
    try:
        return _convert(json, kind)
    except msgspec.ValidationError:
        return _convert(without_nulls(json), kind)


def _convert(json: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(json, kind)
    except UnicodeEncodeError as error:  # YAML can write it
        message = "a text holds half of a character (a lone surrogate)"
        raise msgspec.ValidationError(message) from error
