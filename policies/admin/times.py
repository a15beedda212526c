"""Relative times for all pages: how long ago, with the exact time on hover, and how far ahead."""

from datetime import datetime

from django.template import Library
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from policies import wording

register = Library()


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
