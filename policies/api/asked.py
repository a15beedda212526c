"""Request bodies of REST, in which unknown members are refused."""

from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, Final

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from policies.engine.documents import NO_MOMENT

# The most elements of a list in a body.
MOST_LISTED: Final = 10_000
# The most members of an object in a body for each of which something is chosen.
_MOST_MEMBERS = 1_000
# Elements of a list whose faults are told, and unknown members that are: a body has room for hundreds of thousands.
_MOST_FAULTY, _MOST_UNKNOWN = 100, 20


class Asked(serializers.Serializer[Any]):
    """A request body. Unknown members are refused, because a misspelt name would change what the request does."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated members.

        Raises:
            ValidationError: with every fault.
        """
        if isinstance(data, Mapping):
            check_members(data, self.fields)
        return super().to_internal_value(data)


def check_members(body: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse members of a body that aren't known.

    Raises:
        ValidationError: names the first of them.
    """
    unknown = (str(name)[:80] for name in body if name not in known)
    if first := list(islice(unknown, _MOST_UNKNOWN)):
        takes = ", ".join(known) or "none"
        raise ValidationError(dict.fromkeys(first, f"is not a known member; known members: {takes}"))


class SeveralField(serializers.ListField):
    """A list in a body. Its length is checked before its elements, and after many faulty elements the rest isn't checked.

    An element takes two bytes, and to tell its faults up to 80 µs and 300 bytes.
    """

    def __init__(self, *, max_length: int = MOST_LISTED, **options: Any) -> None:
        """Make the field."""
        super().__init__(max_length=max_length, **options)
        self._most = max_length

    def to_internal_value(self, data: Any) -> list[Any]:
        """Return the validated elements.

        Raises:
            ValidationError: there are too many, or with the faults of the first faulty ones.
        """
        if isinstance(data, list) and len(data) > self._most:
            self.fail("max_length", max_length=self._most)
        found: list[Any] = super().to_internal_value(data)
        return found

    def run_child_validation(self, data: list[Any]) -> list[Any]:
        """Return the validated elements.

        Raises:
            ValidationError: with the faults of the first faulty ones.
        """
        found: list[Any] = []
        faults: dict[int, Any] = {}
        for index, each in enumerate(data):
            try:
                found.append(self.child.run_validation(each))
            except ValidationError as error:
                faults[index] = error.detail
            if len(faults) == _MOST_FAULTY:
                break
        if faults:
            raise ValidationError(faults)  # type: ignore[arg-type]  # as ListField does: by index
        return found


class FewMembersField(serializers.DictField):
    """An object in a body whose members are all validated: their number is checked before."""

    default_error_messages = {"max_length": f"Ensure this field has no more than {_MOST_MEMBERS:,} members."}

    def to_internal_value(self, data: Any) -> dict[str, Any]:
        """Return the validated members.

        Raises:
            ValidationError: there are too many, or with their faults.
        """
        if isinstance(data, Mapping) and len(data) > _MOST_MEMBERS:
            self.fail("max_length")
        found: dict[str, Any] = super().to_internal_value(data)
        return found


class MomentField(serializers.DateTimeField):
    """A time with its zone, as in documents: one without it may be meant otherwise than it would be read."""

    default_error_messages = {"invalid": NO_MOMENT}

    def enforce_timezone(self, value: datetime) -> datetime:
        """Refuse a time without a zone.

        Raises:
            ValidationError: it has none.
        """
        if value.tzinfo is None:
            self.fail("invalid")
        found: datetime = super().enforce_timezone(value)
        return found


def asked_of(serializer: type[serializers.Serializer[Any]], body: Any) -> dict[str, Any]:
    """Return the validated members of a body; an empty body counts as an empty object.

    Raises:
        ValidationError: with every fault.
    """
    made = serializer(data=body or ({} if body is None or body == "" else body))
    made.is_valid(raise_exception=True)
    found: dict[str, Any] = made.validated_data
    return found
