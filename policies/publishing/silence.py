"""Detects that a process which took up work is gone: by the database's clock alone, since machines' clocks differ."""

from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now


def is_silent(field: str, after: timedelta) -> Q:
    """Return the condition for rows without a sign of life for this long, or with a future one, after the clock was set back."""
    return Q(**{f"{field}__lt": Now() - after}) | Q(**{f"{field}__gt": Now() + after})
