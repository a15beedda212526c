"""Times on all pages: how long ago, with the exact time on hover, how far ahead, and the field in which one is typed."""

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.template import Library
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from policies import wording

register = Library()


class MomentField(forms.DateTimeField):
    """A moment: in UTC, unless another zone is sent with it. Its value is in UTC."""

    def to_python(self, value: Any) -> datetime | None:
        """Return the moment; None for an empty field.

        Raises:
            ValidationError: there is no such moment, or it has no date in UTC.
        """
        found = super().to_python(value)
        try:
            return found.astimezone(UTC) if found else None
        except OverflowError as error:
            raise forms.ValidationError(self.error_messages["invalid"], code="invalid") from error


@register.filter
def ago(at: datetime) -> str:
    """Return how long ago it was, in words."""
    return wording.ago((timezone.now() - at).total_seconds())


@register.filter
def ahead(at: datetime) -> str:
    """Return how far ahead a moment is, in words."""
    return f"in {wording.duration((at - timezone.now()).total_seconds())}"


@register.filter
def time_ago(at: datetime) -> SafeString:
    """Return how long ago it was, as an element with the exact time."""
    exact = f"{at:%Y-%m-%d %H:%M:%S} UTC"
    tag = '<time class="berth-nowrap" datetime="{}" title="{}">{}</time>'
    return format_html(tag, at.isoformat(), exact, ago(at))
