"""Which process that took something up is gone: by the database's clock alone, for machines have clocks of their own."""

from datetime import timedelta

from django.db.models import Q
from django.db.models.functions import Now


def is_silent(field: str, after: timedelta) -> Q:
    """Return what hasn't shown itself for so long; nor did, before the database's clock was set back, who is ahead of it."""
    return Q(**{f"{field}__lt": Now() - after}) | Q(**{f"{field}__gt": Now() + after})
