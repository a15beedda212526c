"""What REST is asked with: bodies that say nothing unknown."""

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError


class Asked(serializers.Serializer[Any]):
    """A body, none of whose members is passed over: a slip in a name would change what is done."""

    def to_internal_value(self, data: Any) -> Any:
        """Return what is asked for.

        Raises:
            ValidationError: with every fault.
        """
        if isinstance(data, Mapping):
            unknown = [str(name)[:80] for name in data if name not in self.fields]
            if unknown:
                takes = ", ".join(self.fields) or "none"
                raise ValidationError(dict.fromkeys(unknown, f"is no member of this; it takes {takes}"))
        return super().to_internal_value(data)


def asked_of(serializer: type[serializers.Serializer[Any]], body: Any) -> dict[str, Any]:
    """Return what a body asks for; nothing in a body is as an empty object.

    Raises:
        ValidationError: with every fault.
    """
    made = serializer(data=body or ({} if body is None or body == "" else body))
    made.is_valid(raise_exception=True)
    found: dict[str, Any] = made.validated_data
    return found
