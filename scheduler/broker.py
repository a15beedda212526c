"""Loads Celery's app on demand: commands that send no task start without Celery."""

from typing import TYPE_CHECKING

from django.conf import settings
from django.utils.module_loading import import_string

if TYPE_CHECKING:
    from celery import Celery


def celery_app() -> "Celery":
    """Return the app, which becomes Celery's default."""
    app: Celery = import_string(settings.CELERY_APP)
    return app
