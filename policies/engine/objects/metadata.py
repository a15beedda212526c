"""The part of ObjectMeta that rules read. Source: k8s.io/apimachinery v0.36.3 pkg/apis/meta/v1 types.go."""

from collections.abc import Collection, Hashable, Sequence
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast

import msgspec
from msgspec import inspect

T = TypeVar("T")

# Integers of Kubernetes' sizes: a number that doesn't fit is refused when an object is decoded, as in Go.
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
# The most characters and texts of a value that identical Pods share. Larger values aren't shared: shared ones outlive the Pods.
MOST_SHARED_CHARACTERS = 2_048
MOST_SHARED_TEXTS = 64


class OwnerReference(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """An owner of an object; `controller` marks the one that manages it."""

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
    """A value is too large to share. Raised while a cache makes the value, so that the cache keeps nothing, and hits cost nothing extra."""


def check_is_shared(texts: Collection[str]) -> None:
    """Check that the texts of a value are small enough to share among identical Pods.

    Raises:
        TooLargeToShareError: there are more than should stay in memory after the Pods are gone.
    """
    if len(texts) > MOST_SHARED_TEXTS or sum(map(len, texts)) > MOST_SHARED_CHARACTERS:
        raise TooLargeToShareError


def is_later_version(version: str, than: str) -> bool | None:
    """Return whether a resourceVersion is later than another one of the same kind; None where one of them isn't a number.

    They compare as integers (Kubernetes enhancement 5504). A caller may send a longer one than Python's int accepts.
    """
    if not all(text.isascii() and text.isdigit() for text in (version, than)):
        return None
    one, other = version.lstrip("0"), than.lstrip("0")
    return (len(one), one) > (len(other), other)


def _as_in_go(json: object, kind: inspect.Type | None) -> object:
    """Return the same JSON as Go reads it into a type: null is a member that isn't there, and in a map of texts an empty text.

    So the label `node-role.kubernetes.io/control-plane:` of a YAML document, with nothing behind it, is one.
    """
    for each in kind.types if isinstance(kind, inspect.UnionType) else (kind,):
        match each, json:
            case inspect.StructType(fields=fields), dict():
                known = {field.encode_name: field.type for field in fields}
                return {name: _as_in_go(value, known.get(name)) for name, value in json.items() if value is not None}
            case inspect.DictType(value_type=inspect.StrType()), dict():
                return {name: "" if value is None else value for name, value in json.items()}
            case inspect.ListType(item_type=item), list():
                return [_as_in_go(value, item) for value in json]
    return json


@lru_cache(maxsize=64)
def _type_info(kind: Hashable) -> inspect.Type:
    return inspect.type_info(kind)


def decode_object(json: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode JSON text as Go does: null means a missing member, or an empty text in a map of texts.

    Raises:
        msgspec.DecodeError: the text isn't JSON, or a field has the wrong type (ValidationError).
    """
    try:
        return decoder.decode(json)
    except msgspec.ValidationError:
        return convert_object(msgspec.json.decode(json), decoder.type)


def convert_object(json: Any, kind: type[T]) -> T:
    """Make an object of decoded JSON; null means a missing member, or an empty text in a map of texts.

    Raises:
        msgspec.ValidationError: a field has the wrong type.
    """
    try:
        return _convert(json, kind)
    except msgspec.ValidationError:
        return _convert(_as_in_go(json, _type_info(cast("Hashable", kind))), kind)


def _convert(json: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(json, kind)
    except UnicodeEncodeError as error:  # YAML can write it
        message = "a text holds half of a character (a lone surrogate)"
        raise msgspec.ValidationError(message) from error
