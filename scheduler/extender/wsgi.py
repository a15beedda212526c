"""The extender's WSGI application. Importing it starts the process's runtime, so it is imported in the worker only."""

import atexit
import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
os.environ.setdefault("BERTH_ROLE", "extender")

from django.core import signals
from django.core.wsgi import get_wsgi_application
from django.db import close_old_connections, reset_queries

application = get_wsgi_application()
# Calls never use the database; threads that do look after their connection. What Django does about connections around
# each request takes a fifth of its time for a call.
for receiver in (close_old_connections, reset_queries):
    signals.request_started.disconnect(receiver)
signals.request_finished.disconnect(close_old_connections)

from scheduler.extender.urls import runtime  # noqa: E402 - needs the apps that were just loaded

runtime.start()
atexit.register(runtime.stop)
