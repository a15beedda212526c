"""Request bodies of REST, in which unknown members are refused."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from policies.engine.documents import NO_MOMENT


class Asked(serializers.Serializer[Any]):
    """A request body. Unknown members are refused, because a misspelt name would change what the request does."""

    def to_internal_value(self, data: Any) -> Any:
        """Return the validated members.

        Raises:
            ValidationError: with every fault.
        """
        if isinstance(data, Mapping):
            unknown = [str(name)[:80] for name in data if name not in self.fields]
            if unknown:
                takes = ", ".join(self.fields) or "none"
                raise ValidationError(dict.fromkeys(unknown, f"is not a known member; known members: {takes}"))
        return super().to_internal_value(data)


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
